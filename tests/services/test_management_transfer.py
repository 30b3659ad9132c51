"""R_QMMgmtGetInfo and R_QMMgmtAction about queues that lead to other computers.

MS-MQMR 3.1.4.1 and 3.1.4.2.
"""

from __future__ import annotations

import errno
import math
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import ConnectionStatus, OutgoingState, QueueAccessType
from lanner.transfer.addresses import NextHop
from lanner.transfer.packets import OrderAckBody
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.property_ids import ManagementQueueProperty as Property
from lanner.wire.propvariant import NULL, PropVariant
from lanner.wire.vartypes import VT
from tests.overlay import overlay
from tests.services.managed import MACHINE, Caller, Managed
from tests.transfer.world import Node, World

EOD = list(range(13, 24))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def alpha(world: World) -> Node:
    return world.node("ALPHA", "127.0.0.2", resolve_identity=Caller().resolve)


@pytest.fixture
def beta(world: World) -> Node:
    node = world.node("BETA", "127.0.0.3", resolve_identity=Caller().resolve)
    node.create("q")
    node.create("tx", transactional=True)
    return node


@pytest.fixture
def manager(alpha: Node) -> Iterator[Managed]:
    manager = Managed(alpha, alpha.transfer)
    yield manager
    manager.close()


def stop_acknowledging(node: Node) -> None:
    """Nothing that comes is on disk from now on, so nothing is acknowledged."""
    node.network.writes = False


def go_on(world: World, node: Node) -> None:
    node.network.writes = True
    node.sync()
    world.tick(20)


def commit(world: World, node: Node, name: str, *bodies: bytes, **properties: object) -> None:
    for body in bodies:
        node.commit_one(name, body, **properties)
    node.sync()
    world.run()


def blob(variant: PropVariant) -> tuple[int, int, int]:
    """SeqID, SeqNo and PrevNo of a SEQUENCE_INFO."""
    assert (variant.vt, type(variant.value)) == (VT.BLOB, bytes)
    assert isinstance(variant.value, bytes)
    assert len(variant.value) == 16
    identifier, number, previous = struct.unpack("<QII", variant.value)
    return identifier, number, previous


def eod(manager: Managed, name: str) -> dict[Property, PropVariant]:
    status, variants = manager.get_info(name, EOD)
    assert status == 0
    return dict(zip(map(Property, EOD), variants, strict=True))


# The sequence to a destination
# ------------------------------------------------------------------------------------


@pytest.mark.spec(
    "MQMR-2.2.3.2-13",
    "MQMR-2.2.3.2-16",
    "MQMR-2.2.3.2-17",
    "MQMR-2.2.3.2-18",
    "MQMR-3.1.4.1-43",
    "MQMR-3.1.4.1-44",
    "MQMR-3.1.4.1-45",
    "MQMR-3.1.4.1-46",
)
def test_where_a_sequence_is(world: World, alpha: Node, beta: Node, manager: Managed) -> None:
    name = beta.direct("tx")
    alpha.open(name, QueueAccessType.SEND)
    stop_acknowledging(beta)
    commit(world, alpha, name, b"1", b"2", b"3")
    current = alpha.engine.outgoing_sequence(alpha.outgoing(name))
    assert current is not None
    sequence = current.tx_sequence_id.value
    # Acknowledge the first of three; the order ack names the sequence and the last number.
    table = alpha.route(name).table
    assert table.order_ack(OrderAckBody.of(TxSequenceID.from_value(sequence), 1))
    told = eod(manager, name)
    assert blob(told[Property.EOD_LAST_ACK]) == (sequence, 1, 0)
    assert blob(told[Property.EOD_FIRST_NON_ACK]) == (sequence, 2, 1)
    assert blob(told[Property.EOD_LAST_NON_ACK]) == (sequence, 3, 2)
    assert blob(told[Property.EOD_NEXT_SEQ]) == (sequence, 4, 3)
    # The octets: SeqID, SeqNo and PrevNo, the lowest octet first.
    assert told[Property.EOD_NEXT_SEQ].value == sequence.to_bytes(8, "little") + b"\4\0\0\0\3\0\0\0"
    go_on(world, beta)
    told = eod(manager, name)
    assert told[Property.EOD_NO_ACK_COUNT].value == 0
    assert told[Property.EOD_LAST_ACK] == NULL
    assert blob(told[Property.EOD_FIRST_NON_ACK]) == blob(told[Property.EOD_LAST_NON_ACK]) == (0, 0, 0)


def test_a_sequence_identifier_of_the_far_future_is_reported(alpha: Node, beta: Node, manager: Managed) -> None:
    """SeqID is a signed number, and a time in 2038 takes its highest bit."""
    name = beta.direct("tx")
    alpha.commit_one(name, b"")
    route = alpha.transfer._routes.of(alpha.outgoing(name))
    info = alpha.outgoing(name).outgoing_transfer_info
    assert info is not None
    route.table = overlay(route.table, refresh_transfer_info=lambda: None)
    info.eod_first_non_ack = (0xFFFF_FFFE_0000_0001, 5, 4)
    info.eod_resend_time = info.eod_last_ack_time = 1 << 40
    told = eod(manager, name)
    assert blob(told[Property.EOD_FIRST_NON_ACK]) == (0xFFFF_FFFE_0000_0001, 5, 4)
    assert told[Property.EOD_RESEND_TIME].value == told[Property.EOD_LAST_ACK_TIME].value == 0x7FFF_FFFF


@pytest.mark.spec("MQMR-2.2.3.2-14", "MQMR-2.2.3.2-21", "MQMR-3.1.4.1-47")
def test_times_are_seconds_since_1970(world: World, alpha: Node, beta: Node, manager: Managed) -> None:
    name = beta.direct("tx")
    commit(world, alpha, name, b"1")
    world.tick(2)
    acknowledged = int(alpha.now)
    assert alpha.outgoing(name).message_count == 0
    world.tick(7)
    assert isinstance(last := eod(manager, name)[Property.EOD_LAST_ACK_TIME].value, int)
    assert acknowledged - 2 <= last <= acknowledged
    stop_acknowledging(beta)
    sent = int(alpha.now)
    commit(world, alpha, name, b"2")
    told = eod(manager, name)
    assert told[Property.EOD_RESEND_TIME] == PropVariant(VT.I4, sent + 30)
    assert told[Property.EOD_LAST_ACK_TIME] == PropVariant(VT.I4, last)


@pytest.mark.spec("MQMR-2.2.3.2-15", "MQMR-3.1.4.1-48")
def test_order_acknowledgments_are_counted(world: World, alpha: Node, beta: Node, manager: Managed) -> None:
    name = beta.direct("tx")
    stop_acknowledging(beta)
    commit(world, alpha, name, b"1", b"2")
    assert eod(manager, name)[Property.EOD_LAST_ACK_COUNT] == PropVariant(VT.UI4, 0)
    current = alpha.engine.outgoing_sequence(alpha.outgoing(name))
    assert current is not None
    for count in (1, 2, 3):
        alpha.route(name).table.order_ack(OrderAckBody.of(current.tx_sequence_id, 1))
        assert eod(manager, name)[Property.EOD_LAST_ACK_COUNT] == PropVariant(VT.UI4, count)


@pytest.mark.spec("MQMR-2.2.3.2-19", "MQMR-2.2.3.2-20", "MQMR-3.1.4.1-49")
def test_counts_fall_when_acknowledgments_come(world: World, alpha: Node, beta: Node, manager: Managed) -> None:
    name = beta.direct("tx")

    def counts() -> tuple[PropVariant, PropVariant]:
        told = eod(manager, name)
        return told[Property.EOD_NO_ACK_COUNT], told[Property.EOD_NO_READ_COUNT]

    stop_acknowledging(beta)
    commit(world, alpha, name, b"1", b"2", negative_journaling_requested=True)
    info = alpha.outgoing(name).outgoing_transfer_info
    assert info is not None
    info.eod_no_ack_count = 99
    assert counts() == (PropVariant(VT.UI4, 2), PropVariant(VT.UI4, 0)), "as it is when somebody asks"
    go_on(world, beta)
    assert counts() == (PropVariant(VT.UI4, 0), PropVariant(VT.UI4, 2)), "there, not received"
    for left in (1, 0):
        beta.receive("tx")
        beta.sync()
        world.tick(5)
        assert counts() == (PropVariant(VT.UI4, 0), PropVariant(VT.UI4, left))


@pytest.mark.spec("MQMR-2.2.3.2-22", "MQMR-2.2.3.2-23", "MQMR-3.1.4.1-50")
def test_resends(world: World, alpha: Node, beta: Node, manager: Managed) -> None:
    name = beta.direct("tx")
    stop_acknowledging(beta)
    commit(world, alpha, name, b"1")

    def resends() -> tuple[PropVariant, PropVariant]:
        told = eod(manager, name)
        return told[Property.EOD_RESEND_INTERVAL], told[Property.EOD_RESEND_COUNT]

    assert resends() == (PropVariant(VT.UI4, 30), PropVariant(VT.UI4, 0))
    world.tick(31)
    assert resends() == (PropVariant(VT.UI4, 30), PropVariant(VT.UI4, 1))
    (sequence,) = beta.transfer.incoming.sequences
    assert sequence.reject_count == 1, "it came again"
    world.tick(60)
    assert resends() == (PropVariant(VT.UI4, 300), PropVariant(VT.UI4, 3))
    assert sequence.reject_count == 3
    go_on(world, beta)
    assert resends() == (PropVariant(VT.UI4, 30), PropVariant(VT.UI4, 0)), "it starts over"


# The sequences that come in
# ---------------------------------------------------------------------------------------


@pytest.mark.spec("MQMR-2.2.3.2-24", "MQMR-3.1.4.1-52", "MQMR-3.1.4.1-53")
def test_who_sends_transactional_messages_here(world: World, alpha: Node, beta: Node) -> None:
    gamma = world.node("GAMMA", "127.0.0.4")
    manager = Managed(beta, beta.transfer)
    try:
        here = r"DIRECT=OS:.\private$\tx"
        empty = manager.variant(here, Property.EOD_SOURCE_INFO)
        kinds = [0x101F, 0x1048, 0x1015, 0x1013, 0x1003, 0x1013]
        assert empty == PropVariant(0x100C, tuple(PropVariant(vt, ()) for vt in kinds))
        name = beta.direct("tx")
        commit(world, alpha, name, b"1", b"2", b"3")
        world.tick(2)
        when = int(beta.now) - 2
        commit(world, gamma, name, b"1")
        world.tick(2)
        variant = manager.variant(here, Property.EOD_SOURCE_INFO)
        assert isinstance(variant.value, tuple)
        assert all(isinstance(each, PropVariant) for each in variant.value)
        vectors = [each for each in variant.value if isinstance(each, PropVariant)]
        assert [each.vt for each in vectors] == kinds
        names, senders, sequences, numbers, times, rejects = (each.value for each in vectors)
        assert isinstance(sequences, tuple)
        assert isinstance(times, tuple)
        assert (names, senders) == ((name, name), (alpha.guid, gamma.guid))
        assert len(set(sequences)) == len(sequences) == 2
        assert sequences[0] == beta_sequence(beta, alpha)
        assert (numbers, rejects) == ((3, 1), (0, 0))
        assert [isinstance(time, int) and when <= time <= beta.now for time in times] == [True, True]
    finally:
        manager.close()


def beta_sequence(beta: Node, sender: Node) -> int:
    infos = beta.queue("tx").incoming_transactional_transfer_info.values()
    return next(info.sequence_identifier for info in infos if info.sender_identifier == sender.guid)


# Connections
# --------------------------------------------------------------------------------------------------


def history(manager: Managed, name: str) -> list[tuple[object, object, object, object]]:
    """Status, time, error and addresses of each entry; all four vectors have the same length."""
    variant = manager.variant(name, Property.CONNECTION_HISTORY)
    assert variant.vt == 0x100C
    assert isinstance(variant.value, tuple)
    vectors = [each for each in variant.value if isinstance(each, PropVariant)]
    assert [each.vt for each in vectors] == [0x1013, 0x1003, 0x1003, 0x100C]
    status, times, errors, addresses = (each.value for each in vectors)
    assert isinstance(addresses, tuple)
    lists = [each for each in addresses if isinstance(each, PropVariant)]
    assert all(each.vt == 0x101F for each in lists)
    return list(zip(status, times, errors, [each.value for each in lists], strict=True))  # type: ignore[arg-type] # strict tells


@pytest.mark.spec("MQMR-2.2.3.2-25", "MQMR-3.1.4.1-54", "MQMR-3.1.4.1-55", "MQMR-3.1.4.1-56", "MQMR-3.1.4.1-59")
def test_the_history_of_a_connection(world: World, alpha: Node, beta: Node, manager: Managed) -> None:
    name = beta.direct("q")
    world.unreachable["127.0.0.3"] = errno.ECONNREFUSED
    alpha.send(name, b"1", recoverable=False)
    world.run()
    now = int(alpha.now)
    # WSAECONNREFUSED as an HRESULT, which VT_I4 holds as a negative number.
    refused = 0x8007274D - (1 << 32)
    assert history(manager, name) == [(0x80000004, now, refused, ("127.0.0.3",))]
    world.unreachable.clear()
    world.tick(100)
    later = history(manager, name)[1:]
    assert [status for status, _, _, _ in later] == [0, 1, 2]
    assert [(error, addresses) for _, _, error, addresses in later] == [(0, ("127.0.0.3",))] * 3
    assert all(isinstance(time, int) and now < time <= alpha.now for _, time, _, _ in later)


@pytest.mark.spec("MQMR-3.1.4.1-55")
def test_failures_before_a_connection(world: World, alpha: Node, beta: Node, manager: Managed) -> None:
    # A label of 64 letters is no name that DNS could be asked for.
    nowhere = rf"DIRECT=OS:{64 * 'n'}\private$\q"
    alpha.send(nowhere, b"1", recoverable=False)
    world.run()
    assert [(status, addresses) for status, _, _, addresses in history(manager, nowhere)] == [(0x80000008, ())]
    assert history(manager, nowhere)[0][2] != 0
    delta = world.node("DELTA", "127.0.0.5", resolve_identity=Caller().resolve, pings_before_connecting=True)
    world.refuses_pings.add("127.0.0.3")
    pinging = Managed(delta, delta.transfer)
    try:
        delta.send(beta.direct("q"), b"1", recoverable=False)
        world.run()
        assert history(pinging, beta.direct("q"))[0][0] == 0x80000001
    finally:
        pinging.close()
    assert [int(status) for status in ConnectionStatus] == [0, 1, 2, *range(0x80000000, 0x8000000E)]


@pytest.mark.spec("MQMR-2.2.3.2-12", "MQMR-3.1.4.1-40", "MQMR-3.1.4.1-41", "MQMR-3.1.4.1-42")
def test_next_hops(world: World, alpha: Node, beta: Node, manager: Managed) -> None:
    name = beta.direct("q")
    hops = [NextHop(GUID_NULL, "BETA", "127.0.0.3"), NextHop(GUID_NULL, "BETA", "2001:db8::3")]
    alpha.network.hops = lambda _: hops
    alpha.open(name, QueueAccessType.SEND)
    assert manager.variant(name, Property.NEXTHOPS) == NULL, "inactive"
    alpha.send(name, b"1", recoverable=False)
    while not alpha.outgoing(name).next_hops:
        world._soon.popleft()()
    assert manager.value(name, Property.STATE) == "WAITING"
    both = PropVariant(0x101F, ("IP=127.0.0.3", "IPv6=2001:db8::3"))
    assert manager.variant(name, Property.NEXTHOPS) == both
    world.run()
    assert manager.value(name, Property.STATE) == "CONNECTED"
    assert manager.variant(name, Property.NEXTHOPS) == PropVariant(0x101F, ("IP=127.0.0.3",))
    assert manager.action(name, "PAUSE") == 0
    assert manager.variant(name, Property.NEXTHOPS) == NULL, "on hold"
    multicast = "MULTICAST=239.1.2.3:8001"
    alpha.open(multicast, QueueAccessType.SEND)
    alpha.outgoing(multicast).state = OutgoingState.CONNECTED
    assert manager.variant(multicast, Property.NEXTHOPS) == PropVariant(0x101F, (multicast,))


# Actions
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQMR-3.1.4.2-6", "MQMR-3.1.4.2-7", "MQMR-3.1.4.2-8")
def test_offline_and_online_again(world: World, alpha: Node, beta: Node, manager: Managed) -> None:
    name = beta.direct("q")
    alpha.create("here")
    alpha.create("in")
    nowhere = r"DIRECT=TCP:127.0.0.77\private$\q"
    alpha.send(name, b"1", recoverable=False)
    world.tick(11)
    assert manager.action(MACHINE, "CONNECT") == 0, "already"
    assert manager.value(name, Property.STATE) == "CONNECTED"
    alpha.send(nowhere, b"1", recoverable=False)
    while manager.value(nowhere, Property.STATE) != "WAITING":
        world._soon.popleft()()
    assert manager.action(MACHINE, "DISCONNECT") == 0
    world.run()
    assert manager.value(MACHINE, 4) == "DISCONNECTED"
    assert manager.value(name, Property.STATE) == manager.value(nowhere, Property.STATE) == "DISCONNECTED"
    assert manager.action(MACHINE, "DISCONNECT") == 0, "already"
    assert manager.value(name, Property.STATE) == "DISCONNECTED"
    assert manager.value(MACHINE, 4) == "DISCONNECTED"
    alpha.send(name, b"2", recoverable=False)
    beta.send(alpha.direct("in"), b"3", recoverable=False)
    world.tick(120)
    assert beta.bodies("q") == [b"1"]
    assert alpha.bodies("in") == []
    alpha.send("here", b"local")
    assert alpha.receive("here") == b"local"
    assert manager.action(MACHINE, "CONNECT") == 0
    assert manager.value(MACHINE, 4) == "CONNECTED"
    world.tick(120)
    assert beta.bodies("q") == [b"1", b"2"]
    assert alpha.bodies("in") == [b"3"]


@pytest.mark.spec("MQMR-3.1.4.2-11", "MQMR-3.1.4.2-12", "MQMR-3.1.4.2-13")
def test_pause_and_resume(world: World, alpha: Node, beta: Node, manager: Managed) -> None:
    name = beta.direct("q")
    alpha.send(name, b"0", recoverable=False)
    world.tick(11)
    assert manager.action(name, "PAUSE") == 0
    assert manager.value(name, Property.STATE) == "ONHOLD"
    for number in (1, 2, 3):
        alpha.send(name, b"%d" % number)
        assert manager.value(name, Property.MESSAGE_COUNT) == number
    alpha.sync()
    world.tick(120)
    assert beta.bodies("q") == [b"0"]
    assert manager.get_info(name, [11, 7]) == (0, (PropVariant(VT.LPWSTR, "ONHOLD"), PropVariant(VT.UI4, 3)))
    assert manager.action(name, "RESUME") == 0
    assert manager.value(name, Property.STATE) == "INACTIVE"
    world.tick(12)
    assert beta.bodies("q") == [b"0", b"1", b"2", b"3"]
    assert manager.value(name, Property.MESSAGE_COUNT) == 0
    # The sender had made its window smaller: the receiver takes the negotiated one again, step by
    # step.
    world.tick(120)
    (link,) = beta.transfer.links.values()
    assert (link.session.received_window_size, link.session._window_recovery.deadline) == (64, math.inf)


@pytest.mark.spec("MQMR-3.1.4.2-15")
def test_resume_does_not_break_a_connection_in_use(world: World, alpha: Node, beta: Node, manager: Managed) -> None:
    name = beta.direct("q")
    alpha.send(name, b"1", recoverable=False)
    world.run()
    connections = list(world.connections)
    assert manager.action(name, "RESUME") == 0
    assert manager.value(name, Property.STATE) == "CONNECTED"
    alpha.send(name, b"2", recoverable=False)
    world.run()
    assert world.connections == connections
    assert beta.bodies("q") == [b"1", b"2"]


@pytest.mark.spec("MQMR-3.1.4.2-16")
def test_a_pending_sequence_is_sent_again_at_once(world: World, alpha: Node, beta: Node, manager: Managed) -> None:
    name = beta.direct("tx")
    stop_acknowledging(beta)
    bodies = (b"<one>", b"<two>")
    commit(world, alpha, name, *bodies)
    (connection,) = [one for one in world.connections if one.node is alpha]

    def times_sent() -> list[int]:
        sent = b"".join(connection.sent)
        return [sent.count(body) for body in bodies]

    assert times_sent() == [1, 1]
    assert manager.action(name, "EOD_RESEND") == 0
    world.run()
    assert times_sent() == [2, 2], "without any time passing"
    go_on(world, beta)
    assert beta.bodies("tx") == list(bodies), "each once"
    assert manager.value(name, Property.EOD_NO_ACK_COUNT) == 0


@pytest.mark.spec("MQMR-3.1.4.2-17")
def test_nothing_pending_nothing_sent(world: World, alpha: Node, beta: Node, manager: Managed) -> None:
    name = beta.direct("tx")
    commit(world, alpha, name, b"<one>")
    world.tick(20)
    (connection,) = [one for one in world.connections if one.node is alpha]
    before = len(b"".join(connection.sent))
    assert manager.value(name, Property.MESSAGE_COUNT) == 0
    assert manager.action(name, "EOD_RESEND") == 0
    world.run()
    assert len(b"".join(connection.sent)) == before
    # Nor anything that is not transactional.
    plain = beta.direct("q")
    alpha.send(plain, b"<plain>")
    alpha.sync()
    world.run()
    assert manager.action(plain, "EOD_RESEND") == 0
    world.run()
    assert b"".join(connection.sent).count(b"<plain>") == 1


@pytest.mark.spec("MQMR-3.1.4.2-20")
def test_a_pause_outlives_a_crash_as_soon_as_it_is_answered(world: World, alpha: Node, beta: Node) -> None:
    name = beta.direct("q")
    manager = Managed(alpha, alpha.transfer)
    try:
        alpha.send(name, b"1")
        assert manager.action(name, "PAUSE") == 0
    finally:
        manager.close()
    alpha.crash()
    manager = Managed(alpha, alpha.transfer)
    try:
        world.tick(60)
        assert manager.value(name, Property.STATE) == "ONHOLD"
        assert beta.bodies("q") == []
        assert manager.action(name, "RESUME") == 0
        world.tick(12)
        assert beta.bodies("q") == [b"1"]
        assert manager.value(name, Property.STATE) == "CONNECTED"
    finally:
        manager.close()


def test_a_resend_from_a_queue_on_hold_waits_for_its_end(
    world: World, alpha: Node, beta: Node, manager: Managed
) -> None:
    name = beta.direct("tx")
    stop_acknowledging(beta)
    commit(world, alpha, name, b"<one>")
    (connection,) = [one for one in world.connections if one.node is alpha]
    assert manager.action(name, "PAUSE") == 0
    world.run()
    assert manager.action(name, "EOD_RESEND") == 0
    world.run()
    assert b"".join(connection.sent).count(b"<one>") == 1
