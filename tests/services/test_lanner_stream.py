"""The stream of a session.

The tests check the answers to hostile entries, and that the stream permits no more than calls do.
"""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lanner
from lanner import errors
from lanner.client import QueueManager
from lanner.client._sync.lanner_backend import LannerBackend
from lanner.client._sync.lanner_connection import LannerConnection
from lanner.model.errors import MQ_OK, InvalidParameter
from lanner.rpc import frames
from lanner.rpc.async_client import RpcClient, connect_tcp
from lanner.rpc.faults import FaultStatus, RpcConnectionError, RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.security import Credentials
from lanner.services import lanner_session
from lanner.services import stream_entries as entries
from lanner.services.interfaces.lanner import LANNER, LANNER_BEGIN_STREAM, LANNER_CLOSE_SESSION, LANNER_OPEN_SESSION
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import parse
from tests.cli.conftest import free_address
from tests.client.served import ServedManager

KEPT = r"DIRECT=OS:ALPHA\private$\kept"


@pytest.fixture(scope="module")
def alpha(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedManager]:
    data = tmp_path_factory.mktemp("stream") / "data"
    served = ServedManager(data, free_address())
    for name in ("alice", "bob"):
        served.runtime.users.add(name, "secret")
    with lanner.connect(data=data) as manager:
        manager.create_queue("kept")
    yield served
    served.close()
    shutil.rmtree(data)


@pytest.fixture
def qm(alpha: ServedManager) -> Iterator[QueueManager]:
    with lanner.connect(data=alpha.data) as manager:
        yield manager
        manager.open("kept").purge()


def connection_of(manager: QueueManager) -> LannerConnection:
    backend = manager._backend
    assert isinstance(backend, LannerBackend)
    return backend.connections.now()


def opened(manager: QueueManager, access: str) -> tuple[int, bytes]:
    """Open the queue; return its number and the sender of packets to it."""
    connection = connection_of(manager)
    number = connection.new_number()
    document, _ = connection.call({"request": "open", "queue": number, "name": KEPT, "access": access})
    return number, bytes.fromhex(document.get("sender", ""))


def packet(sender: bytes, **changes: Any) -> bytes:  # noqa: ANN401 (of any property)
    properties = MessageProperties(**{"body": b"x", "sender_identifier": sender, **changes})
    return build(properties, source=uuid.UUID(int=0), ordinal=0, sent_time=0, destination=parse(KEPT))


def send(manager: QueueManager, queue: int, *packets: bytes, transaction: int = 0) -> memoryview:
    return connection_of(manager).exchange(entries.SEND, entries.pack_send(queue, transaction, 0), *packets)


def ends(manager: QueueManager, kind: int, body: bytes = b"") -> None:
    """Check that an entry ends its connection, and that the next call makes another."""
    with pytest.raises(RpcConnectionError):
        connection_of(manager).exchange(kind, body)
    assert manager.open("kept").count() == 0


def receive(manager: QueueManager, queue: int, read: int, most: int = 1, timeout: int = 0) -> memoryview:
    request = entries.ReceiveRequest(queue, 0, read, most, timeout)
    return connection_of(manager).exchange(entries.RECEIVE, entries.pack_receive(request))


# Entries
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (0, b""),
        (0x80, b""),
        (0xFFFF, b""),
        (entries.SEND, b""),
        (entries.SEND, bytes(entries.SEND_SIZE - 1)),
        (entries.SEND, bytes(entries.SEND_SIZE + 1)),
        (entries.SEND, bytes(entries.SEND_SIZE + 200)),
        (entries.RECEIVE, bytes(31)),
        (entries.RECEIVE, bytes(33)),
        (entries.REMOVE, bytes(15)),
        (entries.GIVE_BACK, entries.pack_reads([1]) * 2),
        (entries.CONFIRM, entries.pack_reads([1])[:8] + bytes(8)),
        (entries.BEGIN, bytes(23)),
        (entries.COMMIT, bytes(9)),
        (entries.ABORT, b""),
        (entries.COMMIT_BEHIND, bytes(8)),
        (entries.SEND_ONCE, bytes(entries.SEND_ONCE_SIZE - 1)),
    ],
)
def test_a_malformed_entry_ends_the_connection(qm: QueueManager, kind: int, body: bytes) -> None:
    ends(qm, kind, body)


def test_a_send_has_so_many_packets(qm: QueueManager) -> None:
    queue, sender = opened(qm, "send")
    one = packet(sender)
    ordinals = entries.unpack_ordinals(send(qm, queue, *[one] * entries.MAX_MESSAGES))
    assert len(set(ordinals)) == entries.MAX_MESSAGES
    qm.open("kept").purge()
    with pytest.raises(RpcConnectionError):
        send(qm, queue, *[one] * (entries.MAX_MESSAGES + 1))
    assert qm.open("kept").count() == 0


def test_a_receive_has_so_many_messages(qm: QueueManager) -> None:
    queue, _ = opened(qm, "receive")
    for most, error in ((entries.MAX_MESSAGES, errors.IOTimeout), (entries.MAX_MESSAGES + 1, errors.InvalidParameter)):
        with pytest.raises(error):
            receive(qm, queue, 1, most)


def test_a_request_ends_so_many_reads(qm: QueueManager) -> None:
    most = entries.MAX_READS
    assert not connection_of(qm).exchange(entries.GIVE_BACK, entries.pack_reads(range(most)))
    for numbers in ([*range(most + 1)], [*range(most), 2 * most]):
        ends(qm, entries.GIVE_BACK, entries.pack_reads(numbers))


@given(st.lists(st.integers(0, 1 << 62), min_size=1, max_size=50, unique=True))
def test_reads_are_packed_as_ranges(numbers: list[int]) -> None:
    assert entries.unpack_reads(memoryview(entries.pack_reads(numbers))) == numbers


def test_numbers_that_mean_nothing_are_refused_and_the_connection_continues(qm: QueueManager) -> None:
    connection = connection_of(qm)
    queue, sender = opened(qm, "send")
    with pytest.raises(errors.InvalidHandle, match="there is no queue 999 on this connection"):
        send(qm, 999, packet(sender))
    with pytest.raises(errors.InvalidHandle, match="there is no transaction 999 on this connection"):
        send(qm, queue, packet(sender), transaction=999)
    with pytest.raises(errors.InvalidHandle, match="there is no transaction 999 on this connection"):
        connection.exchange(entries.COMMIT, entries.pack_transaction(999))
    with pytest.raises(errors.InvalidHandle, match="read 999 is not held"):
        connection.exchange(entries.REMOVE, entries.pack_reads([999]))
    assert not connection.exchange(entries.PING)
    assert connection_of(qm) is connection


def test_a_refused_packet_says_why_and_those_before_it_are_sent(qm: QueueManager) -> None:
    queue, sender = opened(qm, "send")
    good, bad = packet(sender, label="good"), packet(sender, message_class=5)
    connection = connection_of(qm)
    body = entries.pack_send(queue, 0, 0)
    posted = connection.post(entries.SEND, body, good, bad, good)
    # A part that was already on its way when the one before it failed.
    behind = connection.post(entries.SEND, entries.pack_send(queue, 0, posted.number), good)
    answer = connection._client.answer(posted)
    status, text, ordinals = entries.unpack_error(answer.body)
    assert (answer.kind, status, len(ordinals)) == (entries.FAILED, InvalidParameter.status, 1)
    assert text == "a packet to send: its MessagePropertiesHeader is not one of a message to send"
    assert connection._client.answer(behind).kind == entries.SKIPPED
    (message,) = qm.open("kept").receive_many(5)
    assert (message.label, message.id) == ("good", connection.identifiers(ordinals)[0])
    assert message.sender_verified


def test_a_read_number_in_use_is_refused(qm: QueueManager) -> None:
    qm.open("kept").send_many(["a", "b"])
    queue, _ = opened(qm, "receive")
    receive(qm, queue, 1000)
    with pytest.raises(errors.InvalidParameter, match="read 1000 is in use"):
        receive(qm, queue, 1000)
    connection_of(qm).exchange(entries.GIVE_BACK, entries.pack_reads([1000]))
    assert [message.body for message in qm.open("kept").receive_many(5)] == ["a", "b"]


def test_messages_with_numbers_of_their_own_are_removed_and_given_back_one_by_one(qm: QueueManager) -> None:
    qm.open("kept").send_many(["a", "b", "c", "d"])
    queue, _ = opened(qm, "receive")
    connection = connection_of(qm)
    found = connection.received(receive(qm, queue, 3000, 3 | entries.NUMBERED))
    assert [message.body for message in found] == ["a", "b", "c"]
    with pytest.raises(errors.InvalidParameter, match="read 3002 is in use"):
        receive(qm, queue, 3002)
    connection.exchange(entries.REMOVE, entries.pack_reads([3001]))
    connection.exchange(entries.GIVE_BACK, entries.pack_reads([3000, 3002]))
    assert [message.body for message in qm.open("kept").receive_many(5)] == ["a", "c", "d"]
    with pytest.raises(errors.IOTimeout):
        receive(qm, queue, 4000, 3 | entries.NUMBERED)


def test_messages_that_a_transaction_received_are_given_back_by_their_numbers_and_the_others_go(
    qm: QueueManager,
) -> None:
    qm.open("kept").send_many(["a", "b", "c", "d"])
    queue, _ = opened(qm, "receive")
    connection = connection_of(qm)
    connection.tell(entries.BEGIN, entries.pack_begin(6000, uuid.uuid4()))
    request = entries.ReceiveRequest(queue, 6000, 3000, 3 | entries.NUMBERED, 0)
    found = connection.received(connection.exchange(entries.RECEIVE, entries.pack_receive(request)))
    assert [message.body for message in found] == ["a", "b", "c"]
    with pytest.raises(errors.InvalidParameter, match="read 3000 is in use"):
        receive(qm, queue, 2999, 5 | entries.NUMBERED)
    # A confirmed one is given back no more.
    connection.tell(entries.CONFIRM, entries.pack_reads([3001]))
    connection.exchange(entries.GIVE_BACK, entries.pack_reads([3000, 3001]))
    connection.exchange(entries.COMMIT, entries.pack_transaction(6000))
    # The transaction has ended, and its numbers with it.
    connection.exchange(entries.GIVE_BACK, entries.pack_reads([3002]))
    (first, last) = qm.open("kept").receive_many(5)
    assert (first.body, first.abort_count, last.body) == ("a", 0, "d")


def test_a_wait_ends_when_its_read_is_given_back(qm: QueueManager) -> None:
    queue, _ = opened(qm, "receive")
    connection = connection_of(qm)
    request = entries.ReceiveRequest(queue, 0, 1001, 1, 60_000)
    waiting = connection.post(entries.RECEIVE, entries.pack_receive(request))
    connection.exchange(entries.GIVE_BACK, entries.pack_reads([1001]))
    with pytest.raises(errors.OperationCancelled):
        connection.answer(waiting)


def test_a_transaction_that_cannot_be_begun_says_why_when_it_is_used(
    qm: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, sender = opened(qm, "send")
    connection = connection_of(qm)
    monkeypatch.setattr(lanner_session, "MAX_OPEN", 1)
    connection.tell(entries.BEGIN, entries.pack_begin(5000, uuid.uuid4()))
    why = "are open on this connection: close some"
    with pytest.raises(errors.InsufficientResources, match=why):
        send(qm, queue, packet(sender), transaction=5000)
    with pytest.raises(errors.InsufficientResources, match=why):
        connection.exchange(entries.COMMIT, entries.pack_transaction(5000))


def test_what_a_session_may_have_open_counts_the_reads_of_its_stream(
    alpha: ServedManager, qm: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lanner.connect(data=alpha.data) as other:
        other.open("kept").send_many(["a", "b"])
    queue, _ = opened(qm, "receive")
    monkeypatch.setattr(lanner_session, "MAX_OPEN", 2)
    receive(qm, queue, 2000)
    with pytest.raises(errors.InsufficientResources):
        receive(qm, queue, 2001)
    monkeypatch.undo()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 12), st.binary(max_size=60)), min_size=1, max_size=6))
def test_any_entries_leave_the_service_as_it_was(qm: QueueManager, requests: list[tuple[int, bytes]]) -> None:
    connection = connection_of(qm)
    try:
        posted = [connection.post(kind, body) for kind, body in requests if kind != entries.RECEIVE]
        connection.exchange(entries.PING)
        for one in posted:
            connection.forget(one)
    except RpcConnectionError:
        pass
    assert qm.open("kept").count() == 0


# Who may begin one
# --------------------------------------------------------------------------------------------------


async def connected(alpha: ServedManager, user: str, group: int = 0) -> RpcClient:
    return await connect_tcp(
        alpha.bind,
        alpha.port,
        credentials=Credentials(user, "secret"),
        level=AuthLevel.PKT_PRIVACY,
        assoc_group_id=group,
    )


def test_a_stream_is_begun_once_by_the_owner_of_the_session(alpha: ServedManager) -> None:
    async def main() -> None:
        async with await connected(alpha, "alice") as client:
            bound = await client.bind(LANNER)
            session = (await bound.call(LANNER_OPEN_SESSION))["session"]
            old: Any = await bound.call(LANNER_BEGIN_STREAM, session=session, version=0)
            assert old[RETURNS] == InvalidParameter.status
            begun: Any = await bound.call(LANNER_BEGIN_STREAM, session=session, version=7)
            assert (begun[RETURNS], begun["agreed"], begun["keys_size"]) == (MQ_OK, frames.VERSION, 64)
            with pytest.raises(RpcFault) as raised:
                await bound.call(LANNER_BEGIN_STREAM, session=session, version=1)
            assert raised.value.status == FaultStatus.NCA_FAULT_CONTEXT_MISMATCH
            async with await connected(alpha, "bob", client.assoc_group_id) as other:
                stranger = await other.bind(LANNER)
                with pytest.raises(RpcFault) as raised:
                    await stranger.call(LANNER_BEGIN_STREAM, session=session, version=1)
                assert raised.value.status == FaultStatus.NCA_FAULT_CONTEXT_MISMATCH
            client.begin_frames(bytes(begun["keys"]))
            assert (await client.answer(client.post(entries.PING))).kind == entries.DONE
            await bound.call(LANNER_CLOSE_SESSION, session=session)
            answer = await client.answer(client.post(entries.SEND, entries.pack_send(1, 0, 0)))
            assert answer.kind == entries.FAILED

    asyncio.run(main())


def test_frames_with_other_keys_end_the_connection(alpha: ServedManager) -> None:
    async def main() -> None:
        async with await connected(alpha, "alice") as client:
            bound = await client.bind(LANNER)
            session = (await bound.call(LANNER_OPEN_SESSION))["session"]
            await bound.call(LANNER_BEGIN_STREAM, session=session, version=1)
            client.begin_frames(bytes(64))
            with pytest.raises(RpcConnectionError):
                await client.answer(client.post(entries.PING))

    asyncio.run(main())
