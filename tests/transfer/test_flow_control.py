"""A full disk and full memory delay what peers send, instead of ending their sessions.

MS-MQDMPR 3.1.7.2.5 and 3.1.7.2.6.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lanner.model.directory_objects import Queue
from lanner.model.enums import EnqueueStatus
from lanner.model.errors import InsufficientResources
from lanner.model.live import Record
from lanner.transfer.route_stages import Stage
from tests.transfer.world import Node, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def alpha(world: World) -> Node:
    return world.node("ALPHA", "127.0.0.2")


@pytest.fixture
def beta(world: World) -> Node:
    beta = world.node("BETA", "127.0.0.3")
    beta.create("q")
    beta.create("tx", transactional=True)
    return beta


def set_disk_full(node: Node, *, is_full: bool) -> None:
    """As the allocation of the store leaves it when the disk has no room for its reserve."""
    allocation = node.store._allocation
    allocation._refuses = is_full
    allocation._retry_at = math.inf


def is_throttled(node: Node) -> bool:
    return node.engine.queue_manager.throttled


def send(node: Node, name: str, *bodies: bytes) -> None:
    for body in bodies:
        node.send(name, body)
    node.sync()


@pytest.mark.spec("DMPR-3.1.7.2.5-1", "DMPR-3.1.7.2.6-1")
def test_messages_wait_while_the_disk_is_full_and_arrive_when_there_is_room(
    world: World, alpha: Node, beta: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """The session stays open for longer than a peer waits for an acknowledgment."""
    send(alpha, beta.direct("q"), b"first")
    world.tick(2)
    (link,) = beta.transfer.links.values()
    set_disk_full(beta, is_full=True)
    send(alpha, beta.direct("q"), *(b"%d" % number for number in range(100)))
    alpha.commit_one(beta.direct("tx"), b"transactional")
    alpha.sync()
    with caplog.at_level(logging.WARNING):
        world.tick(120, step=1)
    assert is_throttled(beta)
    assert not link.is_closed
    assert alpha.route(beta.direct("q")).stage is Stage.ATTACHED
    assert beta.bodies("q") == [b"first"]
    # Not more than a window of them is here.
    assert link.session.total_received == 1 + 64
    # 3.1.7.2.5: no enqueue succeeds meanwhile, here or to another computer, express or not.
    own = [("q", True), ("q", False), (alpha.direct("back"), True), (alpha.direct("back"), False)]
    assert {int(beta.send(name, b"own", recoverable=recoverable)) for name, recoverable in own} == {2}
    set_disk_full(beta, is_full=False)
    world.tick(5)
    assert not is_throttled(beta)
    assert beta.bodies("q") == [b"first", *(b"%d" % number for number in range(100))]
    assert beta.bodies("tx") == [b"transactional"]
    assert not link.is_closed
    assert [beta.send(name, b"own", recoverable=recoverable) for name, recoverable in own] == [EnqueueStatus.OK] * 4
    assert [queue for queue in alpha.engine.outgoing_queues() if queue.message_count] == []
    assert [record.getMessage() for record in caplog.records if "flow control" in record.getMessage()] == [
        "flow control is on: the disk is full, and messages of peers wait until there is room",
        "flow control is off",
    ]


def test_a_quota_still_ends_the_session(world: World, alpha: Node, beta: Node) -> None:
    set_disk_full(beta, is_full=True)
    send(alpha, beta.direct("q"), b"one", b"two")
    world.tick(3)
    assert is_throttled(beta)
    set_disk_full(beta, is_full=False)
    beta.engine.queue_manager.queue_manager_quota = 0
    world.tick(2)
    # The quota of the queue manager is another matter: the session ends, as ever, and the messages
    # come again.
    assert not is_throttled(beta)
    assert beta.bodies("q") == []
    beta.engine.queue_manager.queue_manager_quota = 1000
    world.tick(10)
    assert beta.bodies("q") == [b"one", b"two"]


def test_a_session_that_ends_meanwhile_brings_its_messages_again(world: World, alpha: Node, beta: Node) -> None:
    set_disk_full(beta, is_full=True)
    send(alpha, beta.direct("q"), b"one", b"two")
    world.tick(3)
    world.cut()
    set_disk_full(beta, is_full=False)
    world.tick(10)
    assert beta.bodies("q") == [b"one", b"two"]
    assert not is_throttled(beta)


def test_flow_control_ends_with_transfer(world: World, alpha: Node, beta: Node) -> None:
    """Otherwise local programs would be rejected forever."""
    set_disk_full(beta, is_full=True)
    send(alpha, beta.direct("q"), b"one")
    world.tick(3)
    assert is_throttled(beta)
    beta.transfer.stop()
    assert not is_throttled(beta)
    beta.transfer.start()


def test_what_peers_acknowledge_is_heard_meanwhile(world: World, alpha: Node, beta: Node) -> None:
    """Messages leave a full disk by being delivered."""
    alpha.create("back")
    send(alpha, beta.direct("q"), b"one")
    send(beta, alpha.direct("back"), b"first")
    world.tick(2)
    set_disk_full(beta, is_full=True)
    send(alpha, beta.direct("q"), b"two")
    world.tick(2)
    assert is_throttled(beta)
    set_disk_full(beta, is_full=False)
    beta.engine.end_flow_control()
    send(beta, alpha.direct("back"), b"second")
    set_disk_full(beta, is_full=True)
    beta.engine.begin_flow_control()
    world.tick(3)
    assert alpha.bodies("back") == [b"first", b"second"]
    assert beta.outgoing(alpha.direct("back")).message_count == 0


def test_a_disk_that_fills_up_again_holds_the_rest(world: World, alpha: Node, beta: Node) -> None:
    """The first message after the end of flow control finds no room.

    Flow control begins again, and nothing is lost.
    """
    set_disk_full(beta, is_full=True)
    send(alpha, beta.direct("q"), b"one", b"two")
    world.tick(3)
    set_disk_full(beta, is_full=False)
    arrived = beta.engine.position_available_subscribers

    def fill_up(queue: Queue, _first: int, _records: Sequence[Record]) -> None:
        if queue.pathname.endswith("q") and beta.queue("q").message_count == 1:
            set_disk_full(beta, is_full=True)

    arrived.append(fill_up)
    world.tick(3)
    arrived.remove(fill_up)
    assert beta.bodies("q") == [b"one"]
    assert is_throttled(beta)
    set_disk_full(beta, is_full=False)
    world.tick(3)
    assert beta.bodies("q") == [b"one", b"two"]


# The memory for express messages
# ------------------------------------------------------------------------------------

MIB = 1 << 20


def send_express(node: Node, name: str, count: int) -> None:
    for _ in range(count):
        node.send(name, bytes(MIB), recoverable=False)


@pytest.fixture
def small(world: World) -> Node:
    """A queue manager with little memory for express messages, all of which one peer may take."""
    gamma = world.node("GAMMA", "127.0.0.4", express_memory=32 * MIB, peer_share=1.0, strangers_share=1.0)
    gamma.create("q")
    return gamma


def flow_control_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "flow control" in record.getMessage()]


def test_express_messages_wait_while_memory_is_full_and_all_arrive(
    world: World, alpha: Node, small: Node, caplog: pytest.LogCaptureFixture
) -> None:
    send_express(alpha, small.direct("q"), 40)
    with caplog.at_level(logging.WARNING):
        world.tick(120, step=1)
    (link,) = small.transfer.links.values()
    assert small.queue("q").message_count == 31
    assert small.engine.express_memory.used <= 32 * MIB
    assert alpha.route(small.direct("q")).stage is Stage.ATTACHED
    # The queue manager takes everything else meanwhile.
    assert not is_throttled(small)
    assert small.send("q", b"recoverable", recoverable=True) is EnqueueStatus.OK
    # Not what would take the room that the peer waits for.
    small.receive()
    with pytest.raises(InsufficientResources, match="messages of other computers wait for it"):
        small.send("q", b"express", recoverable=False)
    world.tick(5)
    assert small.queue("q").message_count == 31
    for _ in range(31):
        small.receive()
        world.tick(2)
    assert not link.is_closed
    assert small.queue("q").message_count == 9
    assert [queue for queue in alpha.engine.outgoing_queues() if queue.message_count] == []
    assert small.send("q", b"express", recoverable=False) is EnqueueStatus.OK
    # Four messages at a time: there must be room for the largest before any is taken.
    lines = flow_control_lines(caplog)
    assert len(lines) == 6
    assert lines[0].startswith(
        "flow control is on for express messages: the memory for express messages is full: limit 32 MiB"
    )
    assert lines[-1] == "flow control is off for express messages"


def test_full_memory_holds_no_session_that_brings_recoverable_messages(
    world: World, alpha: Node, beta: Node, small: Node
) -> None:
    send_express(alpha, small.direct("q"), 40)
    world.tick(5)
    assert small.engine.express_memory.is_short
    small.create("kept")
    send(beta, small.direct("kept"), b"one", b"two")
    world.tick(5)
    assert small.bodies("kept") == [b"one", b"two"]


def test_two_that_are_full_of_messages_for_each_other_continue(world: World, small: Node) -> None:
    other = world.node("DELTA", "127.0.0.5", express_memory=32 * MIB)
    other.create("q")
    for node, peer in ((small, other), (other, small)):
        with pytest.raises(InsufficientResources):
            send_express(node, peer.direct("q"), 30)
    for _ in range(60):
        world.tick(2, step=1)
        for node in (small, other):
            node.receive()
    world.tick(2)
    for node in (small, other):
        assert [queue for queue in node.engine.outgoing_queues() if queue.message_count] == []
        assert node.queue("q").message_count == 0
        assert node.engine.express_memory.used == 0


def test_a_shortage_ends_with_transfer(world: World, alpha: Node, small: Node) -> None:
    send_express(alpha, small.direct("q"), 40)
    world.tick(5)
    with pytest.raises(InsufficientResources):
        send_express(small, "q", 1)
    small.transfer.stop()
    small.receive()
    send_express(small, "q", 1)
    small.transfer.start()
