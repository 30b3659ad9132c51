"""MSMQOutgoingQueueManagement while transfer is running (MC-MQAC 3.5, 2.2.4.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lanner.activex.collection import MSMQCollection
from lanner.activex.environment import Environment
from lanner.activex.management import MSMQManagement
from lanner.activex.outgoing_queue_management import MSMQOutgoingQueueManagement
from lanner.com.automation.values import MISSING, SafeArray, Variant
from lanner.com.objects import ComObject
from lanner.host.committer import Committer
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import OutgoingState, QueueAccessType
from lanner.model.errors import AccessDenied, QueueNotActive, ServiceNotAvailable
from lanner.security.identity import ANONYMOUS
from lanner.transfer.packets import OrderAckBody
from lanner.wire.identifiers import SequenceInfo, TxSequenceID
from lanner.wire.vartypes import VT
from tests.activex.managed import FAR, FarManager
from tests.activex.world import World, invoke
from tests.statuses import MQ_ERROR_QUEUE_NOT_ACTIVE
from tests.transfer.world import Node
from tests.transfer.world import World as Network

OUTGOING = r"DIRECT=OS:BETA\private$\far"
STATES = {
    "LOCAL CONNECTION": 0,
    "DISCONNECTED": 1,
    "WAITING": 2,
    "NEED VALIDATION": 3,
    "ONHOLD": 4,
    "INACTIVE": 5,
    "CONNECTED": 6,
    "DISCONNECTING": 7,
    "LOCKED": 8,
}
COUNTERS = {
    "EodLastAckCount": VT.UI4,
    "EodNoAckCount": VT.UI4,
    "EodNoReadCount": VT.UI4,
    "EodResendCount": VT.UI4,
    "EodResendInterval": VT.UI4,
    "EodLastAckTime": VT.I4,
    "EodResendTime": VT.I4,
}
SEQUENCES = ("EodFirstNonAck", "EodLastAck", "EodLastNonAck", "EodNextSeq")


def text(value: str) -> Variant:
    return Variant(VT.BSTR, value)


def waiting(world: World) -> OutgoingQueue:
    """Return an outgoing queue with a message in it, without transfer."""
    with world.held() as h:
        h.send(OUTGOING, b"waits")
        queue = h.queue(OUTGOING)
    assert isinstance(queue, OutgoingQueue)
    return queue


def managed(world: World, name: str = OUTGOING, machine: Variant = MISSING) -> MSMQOutgoingQueueManagement:
    found = MSMQOutgoingQueueManagement(world.environment)
    world.call(found, "init", machine, MISSING, text(name))
    return found


# State and next hops
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-2.2.2.19-1", "MQAC-3.5.4.1.1-1")
@pytest.mark.parametrize("word", STATES)
def test_a_state_is_a_number(world: World, word: str) -> None:
    FarManager(world, STATE=word)
    assert world.call(managed(world, machine=text(FAR)), "get_state") == STATES[word]


@pytest.mark.spec("MQAC-2.2.2.19-1", "MQAC-3.5.4.1.1-1")
def test_the_state_is_that_of_now(world: World) -> None:
    queue = waiting(world)
    found = managed(world)
    numbers = {
        OutgoingState.DISCONNECTED: 1,
        OutgoingState.WAITING: 2,
        OutgoingState.NEED_VALIDATION: 3,
        OutgoingState.ON_HOLD: 4,
        OutgoingState.INACTIVE: 5,
        OutgoingState.CONNECTED: 6,
        OutgoingState.DISCONNECTING: 7,
        OutgoingState.LOCKED: 8,
    }
    assert set(numbers) == set(OutgoingState)
    for state, number in numbers.items():
        queue.state = state
        assert world.call(found, "get_state") == number
    with world.held() as h:
        h.create("here")
        h.open("here")
    assert world.call(managed(world, r"DIRECT=OS:.\private$\here"), "get_state") == 0


@pytest.mark.spec("MQAC-3.5.4.1.2-1")
def test_next_hops_are_strings_and_may_be_none(world: World) -> None:
    queue = waiting(world)
    found = managed(world)
    hops = world.call(found, "get_next_hops")
    assert (hops.vt, hops.value) == (0x2008, SafeArray.of(VT.BSTR, []))
    queue.state, queue.next_hops = OutgoingState.CONNECTED, ["IP=192.0.2.7", "beta"]
    hops = world.call(found, "get_next_hops")
    assert (hops.vt, hops.value) == (0x2008, SafeArray.of(VT.BSTR, ["IP=192.0.2.7", "beta"]))


# EodGetSendInfo
# --------------------------------------------------------------------------------------------------


def values(collection: MSMQCollection) -> dict[str, Variant]:
    found = {key: world_free(collection, key) for key in (*COUNTERS, *SEQUENCES)}
    assert collection.get_count(None) == len(found)  # type: ignore[arg-type]  # it does not look at the call
    return found


def world_free(collection: MSMQCollection, key: str) -> Variant:
    return collection.item(None, text(key))  # type: ignore[arg-type]  # it does not look at the call


def sequence(variant: Variant) -> tuple[int, int, int]:
    """SeqID, SeqNo and PrevNo of a nested collection, which has nothing else."""
    assert variant.vt == VT.DISPATCH
    nested = variant.value
    assert isinstance(nested, MSMQCollection)
    assert nested.get_count(None) == 3  # type: ignore[arg-type]  # it does not look at the call
    found = [world_free(nested, key) for key in ("SeqID", "SeqNo", "PrevNo")]
    assert [one.vt for one in found] == [VT.UI8, VT.I4, VT.I4]
    identifier, number, previous = (one.value for one in found)
    return identifier, number, previous


@pytest.mark.spec("MQAC-2.2.4.2-1", "MQAC-2.2.4.2-2", "MQAC-3.5.4.1.3-1")
def test_a_queue_that_has_carried_nothing_transactional_has_zeros(world: World) -> None:
    waiting(world)
    found = values(world.call(managed(world), "eod_get_send_info"))
    for key, vt in COUNTERS.items():
        assert found[key] == Variant(vt, 0), key
    for key in SEQUENCES:
        assert sequence(found[key]) == (0, 0, 0)


@pytest.mark.spec("MQAC-3.5.4.1.3-1", "MQAC-3.3.4.1.4-2")
@pytest.mark.parametrize("member", ["get_state", "get_next_hops", "eod_get_send_info", "pause", "resume", "eod_resend"])
def test_what_fails_is_reported(world: World, member: str) -> None:
    waiting(world)
    found = managed(world)
    assert world.status(found, member, by=ANONYMOUS) == AccessDenied.status
    far = FarManager(world)
    elsewhere = managed(world, machine=text(FAR))
    far.status = 0xC00E_1234
    assert world.status(elsewhere, member) == 0xC00E_1234


@pytest.mark.spec("MQAC-3.5.4.1.3-1")
def test_the_eleven_properties_are_read_and_one_that_fails_is_all_there_is(world: World) -> None:
    far = FarManager(world)
    found = managed(world, machine=text(FAR))
    far.objects.clear()
    world.call(found, "eod_get_send_info")
    assert len(far.objects) == 11
    far.status, far.successes = 0xC00E_1234, 10
    assert world.status(found, "eod_get_send_info") == 0xC00E_1234


@pytest.mark.spec("MQAC-3.5.4.1.3-1", "MQAC-2.2.4.2-1", "MQAC-2.2.4.2-2")
def test_each_value_stands_under_its_own_key(world: World) -> None:
    sequences = {
        "EOD_FIRST_NON_ACK": SequenceInfo(11, 12, 13),
        "EOD_LAST_ACK": SequenceInfo(21, 22, 23),
        "EOD_LAST_NON_ACK": SequenceInfo(31 - 2**63, 2**32 - 1, 2**31),
        "EOD_NEXT_SEQ": SequenceInfo(41, 42, 43),
    }
    FarManager(
        world,
        EOD_LAST_ACK_COUNT=1,
        EOD_NO_ACK_COUNT=2,
        EOD_NO_READ_COUNT=3,
        EOD_RESEND_COUNT=4,
        EOD_RESEND_INTERVAL=5,
        EOD_LAST_ACK_TIME=6,
        EOD_RESEND_TIME=7,
        **{name: info.pack() for name, info in sequences.items()},
    )
    found = values(world.call(managed(world, machine=text(FAR)), "eod_get_send_info"))
    # In the order of COUNTERS.
    assert {key: found[key] for key in COUNTERS} == {
        key: Variant(vt, number) for number, (key, vt) in enumerate(COUNTERS.items(), 1)
    }
    # SeqID is unsigned here; SeqNo and PrevNo are longs, so the upper half of them is negative.
    last = (2**63 + 31, -1, -(2**31))
    assert [sequence(found[key]) for key in SEQUENCES] == [(11, 12, 13), (21, 22, 23), last, (41, 42, 43)]


# Orders
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-3.5.4.1.4-1", "MQAC-3.5.4.1.6-1")
def test_orders_to_another_computer_are_its_actions(world: World) -> None:
    far = FarManager(world, LOCATION="REMOTE")
    found = managed(world, machine=text(FAR))
    for member in ("pause", "resume", "eod_resend"):
        world.call(found, member)
    assert far.actions == ["PAUSE", "RESUME", "EOD_RESEND"]


@pytest.mark.spec("MQAC-3.5.4.1.4-1")
def test_a_queue_that_is_not_active_any_more_takes_no_orders(world: World) -> None:
    queue = waiting(world)
    found = managed(world)
    with world.held() as h:
        h.engine.purge_queue(queue)
    for member in ("pause", "resume"):
        assert world.status(found, member) == QueueNotActive.status == MQ_ERROR_QUEUE_NOT_ACTIVE


def test_nothing_is_resent_without_transfer(world: World) -> None:
    waiting(world)
    assert world.status(managed(world), "eod_resend") == ServiceNotAvailable.status


# With transfer
# --------------------------------------------------------------------------------------------------


class Managed:
    """A management object of a queue manager that really sends."""

    def __init__(self, node: Node, name: str) -> None:
        self._node = node
        self._loop = asyncio.new_event_loop()
        self._committer = Committer(node.store, self._loop)
        environment = Environment(node.engine, self._committer, transfer=node.transfer)
        self.object = MSMQManagement(environment)
        self.call("init", MISSING, MISSING, text(name))

    def call(self, member: str, *arguments: object, of: ComObject | None = None) -> Any:  # noqa: ANN401 (whatever it returns)
        """With the lock free, which the harness of the node has."""
        self._node.store.lock.release()
        try:
            return self._loop.run_until_complete(invoke(of or self.object, member, *arguments))
        finally:
            self._node.store.lock.acquire()

    def close(self) -> None:
        self._node.store.lock.release()
        self._committer.close()
        self._node.store.lock.acquire()
        self._loop.close()


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    network = Network(tmp_path)
    yield network
    network.close()


@pytest.fixture
def alpha(network: Network) -> Node:
    return network.node("ALPHA", "127.0.0.2")


@pytest.fixture
def beta(network: Network) -> Node:
    node = network.node("BETA", "127.0.0.3")
    node.create("q")
    node.create("tx", transactional=True)
    return node


@pytest.mark.spec("MQAC-3.5.4.1.5-1", "MQAC-3.5.4.1.4-1")
def test_nothing_leaves_a_paused_queue(network: Network, alpha: Node, beta: Node) -> None:
    name = beta.direct("q")
    alpha.open(name, QueueAccessType.SEND)
    management = Managed(alpha, name)
    try:
        management.call("pause")
        assert management.call("get_state") == 4
        alpha.send(name, b"held")
        alpha.sync()
        network.tick(30)
        assert beta.bodies("q") == []
        assert management.call("get_message_count") == 1
        management.call("resume")
        network.tick(30)
        assert management.call("get_state") == 6
        assert beta.bodies("q") == [b"held"]
        assert management.call("get_message_count") == 0
    finally:
        management.close()


@pytest.mark.spec("MQAC-2.2.4.2-1", "MQAC-2.2.4.2-2", "MQAC-3.5.4.1.3-1")
def test_where_a_sequence_is(network: Network, alpha: Node, beta: Node) -> None:
    name = beta.direct("tx")
    alpha.open(name, QueueAccessType.SEND)
    # Nothing that comes is on disk there, so nothing is acknowledged.
    beta.network.writes = False
    for body in (b"1", b"2", b"3"):
        alpha.commit_one(name, body)
    alpha.sync()
    network.run()
    current = alpha.engine.outgoing_sequence(alpha.outgoing(name))
    assert current is not None
    identifier = current.tx_sequence_id.value
    assert alpha.route(name).table.order_ack(OrderAckBody.of(TxSequenceID.from_value(identifier), 1))
    management = Managed(alpha, name)
    try:
        found = values(management.call("eod_get_send_info"))
    finally:
        management.close()
    assert sequence(found["EodLastAck"]) == (identifier, 1, 0)
    assert sequence(found["EodFirstNonAck"]) == (identifier, 2, 1)
    assert sequence(found["EodLastNonAck"]) == (identifier, 3, 2)
    assert sequence(found["EodNextSeq"]) == (identifier, 4, 3)
    assert {key: found[key].vt for key in COUNTERS} == COUNTERS
    assert found["EodLastAckCount"].value == 1
    assert found["EodNoAckCount"].value == 2
    assert found["EodLastAckTime"].value == int(alpha.now)
    assert found["EodResendInterval"].value > 0
    assert found["EodResendTime"].value > int(alpha.now)


@pytest.mark.spec("MQAC-3.5.4.1.6-1")
def test_resend_sends_the_pending_sequence_again(network: Network, alpha: Node, beta: Node) -> None:
    name = beta.direct("tx")
    beta.network.writes = False
    bodies = (b"<one>", b"<two>")
    for body in bodies:
        alpha.commit_one(name, body)
    alpha.sync()
    network.run()
    (connection,) = [one for one in network.connections if one.node is alpha]

    def times_sent() -> list[int]:
        sent = b"".join(connection.sent)
        return [sent.count(body) for body in bodies]

    assert times_sent() == [1, 1]
    management = Managed(alpha, name)
    try:
        management.call("eod_resend")
        # The document's Pause would leave it on hold.
        assert management.call("get_state") == 6
    finally:
        management.close()
    network.run()
    assert times_sent() == [2, 2]
