"""Messages between queue managers, over a network of memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.model.enums import OutgoingState, QueueAccessType
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
    node = world.node("BETA", "127.0.0.3")
    node.create("q")
    node.create("tx", transactional=True)
    return node


def test_a_recoverable_message_arrives_and_leaves_the_sender(world: World, alpha: Node, beta: Node) -> None:
    name = beta.direct("q")
    for number in range(100):
        alpha.send(name, b"%d" % number)
    alpha.sync()
    world.run()
    assert beta.bodies("q") == [b"%d" % number for number in range(100)]
    world.tick(2)
    assert alpha.outgoing(name).message_count == 0
    assert alpha.outgoing(name).state is OutgoingState.CONNECTED


def test_an_express_message_arrives(world: World, alpha: Node, beta: Node) -> None:
    alpha.send(beta.direct("q"), b"quick", recoverable=False)
    world.run()
    assert beta.bodies("q") == [b"quick"]
    world.tick(11)
    assert alpha.outgoing(beta.direct("q")).message_count == 0


def test_transactional_messages_arrive_in_order_and_leave_after_their_order_ack(
    world: World, alpha: Node, beta: Node
) -> None:
    name = beta.direct("tx")
    for number in range(100):
        alpha.commit_one(name, b"%d" % number)
    alpha.sync()
    world.run()
    assert beta.bodies("tx") == [b"%d" % number for number in range(100)]
    world.tick(12)
    assert alpha.outgoing(name).message_count == 0


def test_an_outgoing_queue_that_nobody_uses_is_removed_and_made_again_when_needed(
    world: World, alpha: Node, beta: Node
) -> None:
    name = beta.direct("tx")
    alpha.commit_one(name, b"one")
    alpha.sync()
    world.tick(2)
    first = alpha.outgoing(name)
    assert first.message_count == 0
    world.tick(800, step=5)
    assert list(alpha.engine.outgoing_queues()) == []
    assert alpha.transfer.routes == {}
    # The new queue's sequence is above the old one's, so the receiver takes it.
    alpha.commit_one(name, b"two")
    alpha.sync()
    world.tick(2)
    assert beta.bodies("tx") == [b"one", b"two"]
    assert alpha.outgoing(name) is not first


def test_an_outgoing_queue_with_an_open_handle_stays(world: World, alpha: Node, beta: Node) -> None:
    alpha.open(beta.direct("q"), QueueAccessType.SEND)
    world.tick(800, step=5)
    assert list(alpha.engine.outgoing_queues()) != []
