"""Messages between queue managers, over a network of memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.model.enums import OutgoingState, QueueAccessType
from lanner.transfer.packets import OrderAckBody
from lanner.transfer.session_states import SessionState
from lanner.wire.internal_header import InternalHeader, PacketType, pack_internal
from lanner.wire.session_header import SessionHeader
from tests.transfer.pairs import headers, split
from tests.transfer.world import FakeConnection, Node, World


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


@pytest.mark.spec("QQB-3.1.5.8.7-1")
@pytest.mark.parametrize("transactional", [False, True])
def test_nothing_is_acknowledged_on_the_wire_before_the_disk_has_it(
    world: World, alpha: Node, beta: Node, *, transactional: bool
) -> None:
    name = beta.direct("tx" if transactional else "q")
    # The session is open, and what came first is acknowledged.
    alpha.commit_one(name, b"first") if transactional else alpha.send(name, b"first")
    alpha.sync()
    world.tick(15)
    (wire,) = [one for one in world.connections if one.node is beta]
    before = headers(b"".join(wire.sent))[-1]
    assert (before.ack_sequence_number, before.recoverable_msg_ack_seq_number) == (1, 1)
    beta.network.writes = False
    wire.sent.clear()
    alpha.commit_one(name, b"second") if transactional else alpha.send(name, b"second")
    alpha.sync()
    world.run()
    # Looking for what has become possible, because of something else, changes nothing.
    beta.network.wake()
    world.tick(15)
    assert beta.bodies("tx" if transactional else "q") == [b"first", b"second"]
    # SessionAcks that repeat what was on disk before, and no OrderAck.
    sent = headers(b"".join(wire.sent))
    assert {(header.ack_sequence_number, header.recoverable_msg_ack_flags) for header in sent} == {(1, 0)}
    assert {len(packet) for packet in split(b"".join(wire.sent))} == {36}
    assert alpha.outgoing(name).message_count == 1
    beta.network.writes = True
    beta.sync()
    world.tick(15)
    sent = headers(b"".join(wire.sent))
    assert max(header.ack_sequence_number for header in sent) == 2
    assert [
        (header.recoverable_msg_ack_seq_number, header.recoverable_msg_ack_flags)
        for header in sent
        if header.recoverable_msg_ack_flags
    ] == [(2, 1)]
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


@pytest.mark.spec("QQB-3.1.5.5-2")
def test_what_a_session_header_acknowledges_counts_before_its_own_counts_are_compared(
    world: World, alpha: Node, beta: Node
) -> None:
    name = beta.direct("q")
    alpha.send(name, b"recoverable", positive_journaling_requested=True)
    alpha.send(name, b"express", recoverable=False, positive_journaling_requested=True)
    alpha.send(name, b"unacknowledged")
    alpha.sync()
    beta.network.writes = False
    world.run()
    link = alpha.route(name).link
    assert link is not None
    # Two of three messages, the first recoverable one of two; and counts of messages that were
    # never sent to us.
    wrong = SessionHeader(2, 1, 0b1, user_msg_sequence_number=7, recoverable_msg_seq_number=0)
    alpha.transfer.data_received(link, pack_internal(InternalHeader.of(PacketType.SESSION_ACK), wrong))
    assert link.session.state is SessionState.CLOSED
    assert alpha.outgoing(name).message_count == 1
    journal = alpha.engine.queue_manager.system_journal_queue
    assert journal is not None
    assert journal.message_count == 2


@pytest.mark.spec("QQB-3.1.5.5.1-2")
def test_a_session_ack_lets_the_next_messages_go_and_repeats_none(world: World, alpha: Node, beta: Node) -> None:
    name = beta.direct("q")
    bodies = [b"<%03d>" % number for number in range(150)]
    for body in bodies:
        alpha.send(name, body)
    alpha.sync()
    world.run()
    (connection,) = [one for one in world.connections if one.node is alpha]
    sent = b"".join(connection.sent)
    assert [sent.count(body) for body in bodies] == [1] * 150
    assert [sent.index(body) for body in bodies] == sorted(sent.index(body) for body in bodies)


def test_the_next_messages_go_before_those_are_taken_out_that_have_come(
    world: World, alpha: Node, beta: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer waits for the next messages; removing the acknowledged ones is not urgent."""
    counts: list[int] = []  # of messages in the queue, whenever some go
    write = FakeConnection.write

    def noted(connection: FakeConnection, data: list[bytes]) -> None:
        if connection.node is alpha and len(data) > 1:
            counts.append(alpha.outgoing(name).message_count)
        write(connection, data)

    monkeypatch.setattr(FakeConnection, "write", noted)
    name = beta.direct("q")
    for number in range(128):
        alpha.send(name, b"%d" % number)
    alpha.sync()
    world.run()
    # In halves of a window: with the third half the peer has forgotten the first, which is not yet
    # out of the queue.
    assert counts == [128, 128, 128, 96]
    assert alpha.outgoing(name).message_count == 0


def test_a_session_that_breaks_between_order_ack_and_session_ack(world: World, alpha: Node, beta: Node) -> None:
    """The OrderAck came, the SessionAck did not.

    The messages wait to be sent again; reads meanwhile do not matter.
    """
    name = beta.direct("tx")
    for number in range(20):
        alpha.commit_one(name, b"%d" % number)
    alpha.sync()
    world.run()
    route = alpha.route(name)
    link = route.link
    assert link is not None
    sequence = alpha.engine.outgoing_sequence(route.queue)
    assert sequence is not None
    route.table.order_ack(OrderAckBody.of(sequence.tx_sequence_id, 20))
    assert route.queue.message_count == 20
    world.cut()
    (head,) = route.table.next_unsent(1)
    assert (head.tx_sequence_number, head.previous_tx_sequence_number) == (1, 0)
    world.tick(10)
    assert route.queue.message_count == 0
    assert beta.bodies("tx") == [b"%d" % number for number in range(20)]
