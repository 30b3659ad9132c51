"""The client of RemoteRead: its requests, and what it makes of answers (MS-MQRR 3.2)."""

# What a method takes is told by its declaration.
# ruff: noqa: ANN401

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lanner.client._async.connections import Connections
from lanner.client._async.mqrr_reader import MqrrReader, PendingRead
from lanner.client._async.msmq_connection import CLIENT_ID as OWN_ID
from lanner.client._async.msmq_connection import MsmqConnection
from lanner.client._async.msmq_handles import Handles
from lanner.client._async.remote_reader import OPEN_TIMEOUT, RemoteReader
from lanner.client.remote_message import from_remote_read
from lanner.client.target import Target
from lanner.model.branches import Branch
from lanner.model.enums import QueueAccessType, QueueShareMode
from lanner.model.errors import (
    DtcConnect,
    InsufficientResources,
    InvalidHandle,
    IOTimeout,
    OperationCancelled,
    QueueNotFound,
    RemoteProtocolError,
    SharingViolation,
    StatusError,
    TransactionSequence,
)
from lanner.rpc.calls import ServerCall
from lanner.rpc.faults import FaultStatus, RpcConnectionError, RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import Syntax, Value
from lanner.rpc.pdu import AuthType
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.interfaces.mqqp import RemoteReadAck
from lanner.services.interfaces.mqrr import REMOTE_READ, SectionBuffer
from lanner.services.remote_read import MQ_ACTION_PEEK_CURRENT, MQ_LOOKUP_PEEK_NEXT
from lanner.wire.extension_headers import Extensions, SubqueueHeader
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from lanner.wire.propagation_token import pack_token
from lanner.wire.remote_packet import Section, joined, remote_packet, stored_packet
from tests.services.mqrr_peer import Site, served, serving
from tests.services.site import until
from tests.services.test_mqrr_transactions import Unit
from tests.statuses import (
    MQ_ERROR_DTC_CONNECT,
    MQ_ERROR_INSUFFICIENT_RESOURCES,
    MQ_ERROR_TRANSACTION_SEQUENCE,
)
from tests.wire.samples import full_packet

CLIENT_ID = uuid.UUID("7d9a1f00-0000-4000-8000-00000000c11e")
Q, T = r"DIRECT=OS:.\private$\q", r"DIRECT=OS:.\private$\t"
NO_TRANSACTION = bytes(16)
WHOLE = 0xFFFF_FFFF
Calls = list[tuple[str, dict[str, Any]]]


def watched(site: Site) -> Calls:
    """Every call of RemoteRead from now on, by name, with its arguments."""
    calls: Calls = []
    methods = site.service.interface._methods
    for number, found in enumerate(methods):
        if found is None:
            continue
        method, handler = found

        def watching(
            call: ServerCall, *, _name: str = method.name, _handler: Callable[..., Value] = handler, **arguments: Value
        ) -> Value:
            calls.append((_name, arguments))
            return _handler(call, **arguments)

        methods[number] = (method, watching)
    return calls


def answered(site: Site, name: str, answer: Callable[..., Value]) -> None:
    """Have a method answered otherwise; `answer` gets what the server would have done."""
    method = REMOTE_READ.by_name[name]
    found = site.service.interface._methods[method.opnum]
    assert found is not None
    site.service.interface._methods[method.opnum] = (method, lambda call, **a: answer(found[1], call, **a))


def named(calls: Calls, *names: str) -> list[tuple[str, dict[str, Any]]]:
    return [(name, arguments) for name, arguments in calls if name in names]


def target(site: Site, **options: Any) -> Target:
    return Target("127.0.0.1", port=site.port, **options)


@asynccontextmanager
async def reading(site: Site, **options: Any) -> AsyncIterator[MqrrReader]:
    reader = await MqrrReader.connect(target(site), client_id=CLIENT_ID, **options)
    async with reader:
        yield reader


def ends(calls: Calls) -> list[tuple[str, int]]:
    return [(name, a["dw_ack"]) for name, a in named(calls, "R_EndReceive", "R_EndTransactionalReceive")]


# Connecting and opening
# -----------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-3.2.3-1")
@served
async def test_it_is_read_by_mqrr_where_that_is_served(site: Site) -> None:
    connection = await MsmqConnection.make(target(site))
    assert isinstance(connection.reader, MqrrReader)
    assert (REMOTE_READ.uuid, REMOTE_READ.version) == (uuid.UUID("1a9134dd-7b39-45ba-ad88-44d01ca47f28"), (1, 0))
    await connection.close()


@pytest.mark.spec("MQRR-3.2.4.1-7")
def test_a_computer_without_it_is_read_by_mqqp(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, has_mqrr=False) as site:
            connection = await MsmqConnection.make(target(site))
            assert isinstance(connection.reader, RemoteReader)
            await connection.close()

    asyncio.run(run())


@pytest.mark.spec("MQRR-3.2.4.1-8")
@pytest.mark.spec("MQRR-3.2.4.1-9")
@served
async def test_a_refused_open_is_the_application_s(site: Site) -> None:
    async with reading(site) as reader:
        with pytest.raises(QueueNotFound):
            await reader.open(parse(r"DIRECT=OS:.\private$\none"))
        queue = await reader.open(parse(Q), QueueAccessType.RECEIVE, QueueShareMode.DENY_RECEIVE)
        with pytest.raises(SharingViolation):
            await reader.open(parse(Q))
        assert queue.is_open
        with pytest.raises(StatusError):
            await reader.enlist(bytes(range(16)), b"no token", parse(Q))
        with pytest.raises(StatusError):
            await queue.end(PendingRead(77), RemoteReadAck.RR_ACK)
    # The whole client: no other protocol is tried after a refusal.
    connections = Connections(target(site), MsmqConnection.make)
    handles = Handles(parse(r"DIRECT=OS:.\private$\none"), exclusive=False)
    with pytest.raises(QueueNotFound):
        await handles.reading(await connections.now(), QueueAccessType.RECEIVE)
    assert isinstance((await connections.now()).reader, MqrrReader)
    await connections.close()


@pytest.mark.spec("MQRR-3.2.4-1")
@served
async def test_every_refusal_is_the_application_s(site: Site) -> None:
    site.create("t", transactional=True)
    site.send(b"one", queue="t")
    unit = Unit(site)
    async with reading(site) as reader:
        queue = await reader.open(parse(T))
        there = await reader.open_for_move(parse(f"{T};sub"))
        handle, cursor = queue.context, await queue.create_cursor()
        await reader.enlist(unit.uow, unit.token, parse(T))
        entry, _ = await queue.begin(transaction=unit.uow)
        waiting = asyncio.ensure_future(queue.peek(60_000))
        await until(lambda: len(reader.pending) == 2)
        (request_id,) = reader.pending.keys() - {entry.request_id}
        works: dict[str, Callable[[], Awaitable[object]]] = {
            "R_CreateCursor": queue.create_cursor,
            "R_CloseCursor": lambda: queue.close_cursor(cursor),
            "R_PurgeQueue": queue.purge,
            "R_StartReceive": lambda: queue.receive(0),
            "R_CancelReceive": lambda: queue.cancel(request_id),
            "R_EndReceive": lambda: queue.end(PendingRead(77), RemoteReadAck.RR_ACK),
            "R_MoveMessage": lambda: queue.move(1, there),
            "R_QMEnlistRemoteTransaction": lambda: reader.enlist(uuid.uuid4().bytes, b"token", parse(T)),
            "R_StartTransactionalReceive": lambda: queue.receive(0, transaction=unit.uow),
            "R_SetUserAcknowledgementClass": lambda: queue.reject(1, 0xC004),
            "R_EndTransactionalReceive": lambda: queue.end(entry, RemoteReadAck.RR_ACK),
            "R_CloseQueue": queue.close,
        }
        methods = site.service.interface._methods
        for name, work in works.items():
            opnum = REMOTE_READ.by_name[name].opnum
            kept = methods[opnum]
            answered(site, name, lambda *_, **__: MQ_ERROR_INSUFFICIENT_RESOURCES)
            with pytest.raises(InsufficientResources):
                await work()
            methods[opnum] = kept
        assert not queue.is_open
        await reader.reading.call(REMOTE_READ.by_name["R_CloseQueue"], pph_context=handle)
        with pytest.raises(OperationCancelled):
            await waiting


@pytest.mark.spec("MQRR-3.2.4.1-1")
@pytest.mark.spec("MQRR-3.2.4.1-2")
@pytest.mark.spec("MQRR-3.2.4.1-3")
@pytest.mark.spec("MQRR-3.2.4.1-4")
@pytest.mark.spec("MQRR-3.2.4.1-5")
@pytest.mark.spec("MQRR-3.2.4.6-1")
@served
async def test_an_open_says_who_we_are(site: Site) -> None:
    calls = watched(site)
    async with reading(site) as reader:
        first = await reader.open(parse(Q), QueueAccessType.PEEK)
        await first.close()
        second = await reader.open(parse(Q), QueueAccessType.RECEIVE, QueueShareMode.DENY_RECEIVE)
        await second.close()
        await reader.open_for_move(parse(Q))
        reader.is_workgroup = False
        await reader.open(parse(Q))
    opened = [arguments for _, arguments in named(calls, "R_OpenQueue", "R_OpenQueueForMove")]
    assert [(a["dw_access"], a["dw_share_mode"], a["f_workgroup"]) for a in opened] == [
        (0x20, 0, 1),
        (1, 1, 1),
        (4, 0, 1),
        (1, 0, 0),
    ]
    for arguments in opened:
        assert arguments["p_queue_format"] == QueueFormat(3, 0, 0, r"OS:.\private$\q")
        assert arguments["p_client_id"] == CLIENT_ID
        assert arguments["f_non_routing_server"] == 1
        assert (arguments["major"], arguments["minor"], arguments["build_number"]) == (6, 1, 7601)


@pytest.mark.spec("MQRR-3.2.4.1-2")
@served
async def test_a_program_has_one_identifier(site: Site) -> None:
    first, second = [await MsmqConnection.make(target(site)) for _ in range(2)]
    assert first.reader.client_id == second.reader.client_id == OWN_ID
    assert Target("x", auth_type=AuthType.GSS_KERBEROS).auth_type is AuthType.GSS_KERBEROS
    for one in (first, second):
        await one.close()


@pytest.mark.spec("MQRR-3.1.2.1-6")
@pytest.mark.parametrize("method", ["R_OpenQueue", "R_OpenQueueForMove", "R_QMEnlistRemoteTransaction"])
@served
async def test_a_call_that_takes_too_long_is_given_up(site: Site, method: str) -> None:
    async with reading(site) as reader:
        assert reader.open_timeout == OPEN_TIMEOUT == 300

    async def never(*_: object, **__: object) -> int:
        await asyncio.get_running_loop().create_future()
        return 0

    answered(site, method, never)
    async with reading(site, open_timeout=0.01) as reader:
        works: dict[str, Callable[[], Awaitable[object]]] = {
            "R_OpenQueue": lambda: reader.open(parse(Q)),
            "R_OpenQueueForMove": lambda: reader.open_for_move(parse(Q)),
            "R_QMEnlistRemoteTransaction": lambda: reader.enlist(uuid.uuid4().bytes, b"token", parse(Q)),
        }
        with pytest.raises(RpcConnectionError, match=f"{method} was not answered within"):
            await works[method]()


# Reads
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-3.2.4.3-1")
@pytest.mark.spec("MQRR-3.2.4.3-2")
@pytest.mark.spec("MQRR-3.2.4.3-6")
@pytest.mark.spec("MQRR-3.2.4.4-1")
@pytest.mark.spec("MQRR-3.2.4.4.1-1")
@pytest.mark.spec("MQRR-3.2.4.4.1-6")
@pytest.mark.spec("MQRR-3.2.4.8-1")
@pytest.mark.spec("MQRR-3.2.4.9-1")
@pytest.mark.spec("MQRR-3.2.4.10.1-1")
@pytest.mark.spec("MQRR-3.2.4.10.1-2")
@pytest.mark.spec("MQRR-3.2.4.7-1")
@pytest.mark.spec("MQRR-3.2.4.12-2")
@pytest.mark.spec("MQRR-3.2.4.12-3")
@pytest.mark.spec("MQRR-3.2.4.13-3")
@pytest.mark.spec("MQRR-3.2.4.13-4")
@pytest.mark.spec("MQRR-3.2.1-1")
@pytest.mark.parametrize("syntax", [Syntax.NDR20, Syntax.NDR64])
@served
async def test_the_requests_of_reads(site: Site, syntax: Syntax) -> None:
    one, *_ = site.send(b"one", b"two", b"three", b"four")
    async with reading(site, syntaxes=(syntax,)) as reader:
        calls = watched(site)
        queue, other = await reader.open(parse(Q)), await reader.open(parse(Q))
        handle = queue.context
        assert (await queue.peek(11)).body == b"one"
        assert (await queue.look_up(one, MQ_LOOKUP_PEEK_NEXT)).body == b"two"
        assert (await queue.receive(12)).body == b"one"
        cursor, far = await queue.create_cursor(), await other.create_cursor()
        assert (await queue.peek(13, cursor)).body == b"two"
        assert (await queue.peek_next(cursor, 14)).body == b"three"
        assert (await queue.receive(15, cursor)).body == b"three"
        before = len(calls)
        with pytest.raises(InvalidHandle):
            await queue.peek(0, far)
        assert len(calls) == before
        await queue.close_cursor(cursor)
        with pytest.raises(InvalidHandle):
            await queue.peek(0, cursor)
        await queue.purge()
        await queue.close()
        before = len(calls)
        for work in (queue.peek(0), queue.purge(), queue.create_cursor(), queue.receive(0)):
            with pytest.raises(InvalidHandle):
                await work
        await queue.close()
        assert len(calls) == before
    reads = [arguments for _, arguments in named(calls, "R_StartReceive")]
    assert [(a["ul_action"], a["lookup_id"], a["h_cursor"], a["ul_timeout"]) for a in reads] == [
        (0x8000_0000, 0, 0, 11),
        (0x4000_0011, one, 0, 0),
        (0, 0, 0, 12),
        (0x8000_0000, 0, cursor, 13),
        (0x8000_0001, 0, cursor, 14),
        (0, 0, cursor, 15),
    ]
    assert {(a["dw_max_body_size"], a["dw_max_compound_message_size"]) for a in reads} == {(WHOLE, WHOLE)}
    ended = [arguments for _, arguments in named(calls, "R_EndReceive")]
    assert [(a["ph_context"], a["dw_ack"], a["dw_request_id"]) for a in ended] == [
        (handle, 2, reads[2]["dw_request_id"]),
        (handle, 2, reads[5]["dw_request_id"]),
    ]
    assert not named(calls, "R_QMEnlistRemoteTransaction", "R_StartTransactionalReceive", "R_EndTransactionalReceive")
    assert [a["ph_context"] for _, a in named(calls, "R_PurgeQueue")] == [handle]
    assert [(a["ph_context"], a["h_cursor"]) for _, a in named(calls, "R_CloseCursor")] == [(handle, cursor)]
    assert [a["pph_context"] for _, a in named(calls, "R_CloseQueue")] == [handle]
    assert site.count() == 0


@pytest.mark.spec("MQRR-3.2.4.3-3")
@served
async def test_identifiers_of_requests_are_one_pending_read_s(site: Site) -> None:
    site.send(b"one", b"two")
    calls = watched(site)
    async with reading(site) as reader:
        queue, other = await reader.open(parse(Q)), await reader.open(parse(Q))
        reader._last_request_id = 0xFFFF_FFFE
        held, _ = await queue.begin()
        await queue.begin()
        assert held.request_id == 0xFFFF_FFFF
        waiting = asyncio.ensure_future(other.peek(5000))
        await until(lambda: len(named(calls, "R_StartReceive")) == 3)
        reader._last_request_id = 0xFFFF_FFFE
        again = asyncio.ensure_future(other.peek(5000))
        await until(lambda: len(named(calls, "R_StartReceive")) == 4)
        ids = [a["dw_request_id"] for _, a in named(calls, "R_StartReceive")]
        assert ids == [0xFFFF_FFFF, 1, 2, 3]
        site.send(b"three")
        assert (await waiting).body == (await again).body == b"three"


@pytest.mark.spec("MQRR-3.2.4.3-4")
@served
async def test_a_packet_in_two_sections(site: Site) -> None:
    site.send(b"0123456789", label="label", app_specific=7)
    async with reading(site) as reader:
        queue = await reader.open(parse(Q))
        _, message = await queue.begin(MQ_ACTION_PEEK_CURRENT, 0, max_body_size=4)
        assert message.body == b"0123"
        assert message.message.body_size == 10
        assert (message.message.label, message.message.application_tag) == ("label", 7)
        assert message.message.extensions is not None
        assert (await queue.peek(0)).body == b"0123456789"


@pytest.mark.spec("MQRR-3.2.4.3-5")
@served
async def test_the_time_to_reach_the_queue_is_relative_again(site: Site) -> None:
    site.send(b"one", time_to_reach_queue=1000)
    site.create("t", transactional=True)
    site.runtime.engine.sending._long_live_time = 0xFFFF_FFFF
    site.send(b"never", queue="t", time_to_reach_queue=None)
    async with reading(site) as reader:
        queue, unlimited = await reader.open(parse(Q)), await reader.open(parse(T))
        assert (await queue.receive(0)).message.time_to_reach_queue == 1000
        assert (await unlimited.receive(0)).message.time_to_reach_queue == 0xFFFF_FFFF


def made_up(*parts: SectionBuffer, count: int | None = None) -> Callable[..., Value]:
    def answer(handler: Callable[..., Value], call: ServerCall, **arguments: Any) -> Value:
        handler(call, **arguments)
        return {
            "pdw_arrive_time": 1,
            "p_sequence_id": 1,
            "pdw_number_of_sections": len(parts) if count is None else count,
            "pp_packet_sections": parts or None,
            RETURNS: 0,
        }

    return answer


@pytest.mark.spec("MQRR-3.2.4.4.1-2")
@pytest.mark.spec("MQRR-3.2.4.4.1-3")
@pytest.mark.spec("MQRR-3.1.4-2")
@pytest.mark.parametrize(
    "answer",
    [
        made_up(SectionBuffer(0, 9, 9, b"no packet")),
        made_up(SectionBuffer(1, 9, 9, b"no packet"), SectionBuffer(1, 9, 9, b"no packet")),
        made_up(SectionBuffer(2, 9, 9, b"no packet")),
        made_up(SectionBuffer(0, 3, 9, b"no packet")),
        made_up(),
    ],
)
@served
async def test_sections_that_make_no_packet(site: Site, answer: Callable[..., Value]) -> None:
    (one,) = site.send(b"one")
    calls = watched(site)
    answered(site, "R_StartReceive", answer)
    async with reading(site) as reader:
        queue = await reader.open(parse(Q))
        with pytest.raises(RemoteProtocolError):
            await queue.receive(0)
        assert ends(calls) == [("R_EndReceive", 1)]
        assert site.lookup_ids() == [one]


@pytest.mark.spec("MQRR-3.2.4.4.1-4")
@pytest.mark.spec("MQRR-3.2.4.11-1")
@pytest.mark.spec("MQRR-3.2.4.11-2")
@served
async def test_failures_and_cancels(site: Site) -> None:
    calls = watched(site)
    async with reading(site) as reader:
        queue = await reader.open(parse(Q))
        with pytest.raises(IOTimeout):
            await queue.receive(0)
        assert not reader.pending
        waiting = [asyncio.ensure_future(work) for work in (queue.receive(), queue.peek())]
        await until(lambda: len(named(calls, "R_StartReceive")) == 3)
        started = [a["dw_request_id"] for _, a in named(calls, "R_StartReceive")][1:]
        for request_id in started:
            await queue.cancel(request_id)
        for one in waiting:
            with pytest.raises(OperationCancelled):
                await one
        cancelled = [(a["ph_context"], a["dw_request_id"]) for _, a in named(calls, "R_CancelReceive")]
        assert cancelled == [(queue.context, request_id) for request_id in started]
        assert ends(calls) == []
        with pytest.raises(InvalidHandle):
            await queue.cancel(started[0])


@served
async def test_a_caller_that_is_cancelled_loses_nothing(site: Site) -> None:
    calls = watched(site)
    async with reading(site) as reader:
        queue = await reader.open(parse(Q))
        task = asyncio.ensure_future(queue.receive())
        await until(lambda: bool(named(calls, "R_StartReceive")))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: bool(named(calls, "R_CancelReceive")))
        site.send(b"one")
        assert (await queue.receive(5000)).body == b"one"


@pytest.mark.spec("MQRR-3.2.4.12-1")
@pytest.mark.spec("MQRR-3.2.4.13-1")
@pytest.mark.spec("MQRR-3.2.4.13-2")
@served
async def test_what_waits_is_cancelled_before_it_is_closed(site: Site) -> None:
    calls = watched(site)
    async with reading(site) as reader:
        queue = await reader.open(parse(Q))
        first, second = await queue.create_cursor(), await queue.create_cursor()
        waiting = [asyncio.ensure_future(queue.peek(timeout=60_000, cursor=one)) for one in (first, second)]
        await until(lambda: len(named(calls, "R_StartReceive")) == 2)
        await queue.close_cursor(first)
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [one.done() for one in waiting] == [True, False]
        await queue.close()
        for one in waiting:
            with pytest.raises(OperationCancelled):
                await one
    assert [name for name, _ in calls if name not in ("R_OpenQueue", "R_CreateCursor", "R_StartReceive")] == [
        "R_CancelReceive",
        "R_CloseCursor",
        "R_CancelReceive",
        "R_CloseCursor",
        "R_CloseQueue",
    ]


@pytest.mark.spec("MQRR-7-1")
@served
async def test_a_server_without_the_later_methods(site: Site) -> None:
    (one,) = site.send(b"one")

    def missing(*_: object, **__: object) -> Value:
        raise RpcFault(FaultStatus.NCA_OP_RNG_ERROR)

    for name in ("R_MoveMessage", "R_OpenQueueForMove", "R_QMEnlistRemoteTransaction", "R_SetUserAcknowledgementClass"):
        answered(site, name, missing)
    async with reading(site) as reader:
        queue = await reader.open(parse(Q))
        for work in (
            reader.open_for_move(parse(Q)),
            queue.move(one, queue),
            queue.reject(one, 0xC004),
            reader.enlist(bytes(range(16)), b"token", parse(Q)),
        ):
            with pytest.raises(RpcFault):
                await work
        assert (await queue.receive(0)).body == b"one"


# Moves, transactions
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQRR-3.2.4.6-2")
@pytest.mark.spec("MQRR-3.2.4.6-3")
@pytest.mark.spec("MQRR-3.2.4.6-5")
@pytest.mark.spec("MQRR-3.2.4.5-2")
@served
async def test_moves(site: Site) -> None:
    site.send(b"one", priority=6)
    calls = watched(site)
    async with reading(site) as reader:
        queue = await reader.open(parse(Q))
        there = await reader.open_for_move(parse(f"{Q};sub"))
        lookup_id = from_remote_read(await queue.peek(0)).lookup_id
        assert [lookup_id] == site.lookup_ids()
        peeking = await reader.open(parse(Q), QueueAccessType.PEEK)
        with pytest.raises(Exception, match=r"denied|DENIED|access"):
            await peeking.move(lookup_id, there)
        await queue.move(lookup_id, there)
        sub = await reader.open(parse(f"{Q};sub"))
        moved = from_remote_read(await sub.receive(0))
        assert (moved.body, moved.move_count) == (b"one", 1)
        (_, arguments) = named(calls, "R_MoveMessage")[-1]
        assert arguments == {
            "ph_context_from": queue.context,
            "ull_context_to": there.move_context,
            "lookup_id": lookup_id,
            "p_transaction_id": NO_TRANSACTION,
        }


@pytest.mark.spec("MQRR-3.2.4.2-1")
@pytest.mark.spec("MQRR-3.2.4.2-2")
@pytest.mark.spec("MQRR-3.2.4.2-3")
@pytest.mark.spec("MQRR-3.2.4.2-4")
@pytest.mark.spec("MQRR-3.2.4.4-2")
@pytest.mark.spec("MQRR-3.2.4.4.2-1")
@pytest.mark.spec("MQRR-3.2.4.4.2-4")
@pytest.mark.spec("MQRR-3.2.4.4.2-5")
@pytest.mark.spec("MQRR-3.2.4.5-1")
@pytest.mark.spec("MQRR-3.2.4.5-3")
@pytest.mark.spec("MQRR-3.2.4.6-4")
@pytest.mark.spec("MQRR-3.2.4.10.2-1")
@pytest.mark.spec("MQRR-3.2.4.10.2-2")
@served
async def test_a_transaction(site: Site) -> None:
    site.create("t", transactional=True)
    one, two, three = site.send(b"one", b"two", b"three", queue="t")
    unit = Unit(site)
    calls = watched(site)
    async with reading(site) as reader:
        queue = await reader.open(parse(T))
        there = await reader.open_for_move(parse(f"{T};sub"))
        await reader.enlist(unit.uow, unit.token, parse(T))
        await reader.enlist(unit.uow, unit.token, parse(T))
        received = from_remote_read(await queue.receive(21, transaction=unit.uow))
        assert (received.body, received.lookup_id) == (b"one", one)
        cursor = await queue.create_cursor()
        assert (await queue.receive(22, cursor, unit.uow)).body == b"two"
        await queue.reject(two, 0xC004)
        await queue.move(three, there, unit.uow)
        await unit.commit()
        assert site.lookup_ids("t") == []
    assert [name for name, _ in calls][2:] == [
        "R_QMEnlistRemoteTransaction",
        "R_StartTransactionalReceive",
        "R_EndTransactionalReceive",
        "R_CreateCursor",
        "R_StartTransactionalReceive",
        "R_EndTransactionalReceive",
        "R_SetUserAcknowledgementClass",
        "R_MoveMessage",
    ]
    ((_, enlisted),) = named(calls, "R_QMEnlistRemoteTransaction")
    assert enlisted["p_queue_format"] == QueueFormat(3, 0, 0, r"OS:.\private$\t")
    assert bytes(enlisted["pb_propagation_token"]) == pack_token(unit.branch)
    begun = [a for _, a in named(calls, "R_StartTransactionalReceive")]
    assert [(a["ul_action"], a["lookup_id"], a["h_cursor"], a["ul_timeout"], a["dw_max_body_size"]) for a in begun] == [
        (0, 0, 0, 21, WHOLE),
        (0, 0, cursor, 22, WHOLE),
    ]
    carried = [bytes(a["p_transaction_id"]) for _, a in calls if "p_transaction_id" in a]
    assert carried == [unit.uow] * 4
    assert ends(calls) == [("R_EndTransactionalReceive", 2)] * 2
    assert [(a["lookup_id"], a["us_class"]) for _, a in named(calls, "R_SetUserAcknowledgementClass")] == [
        (two, 0xC004)
    ]


@pytest.mark.spec("MQRR-3.2.4.4.2-2")
@pytest.mark.spec("MQRR-3.2.4.4.2-3")
@pytest.mark.spec("MQRR-3.2.4.10.2-2/a packet that cannot be rebuilt")
@pytest.mark.spec("MQRR-3.2.4.10.2-3")
@pytest.mark.parametrize("has_cursor", [False, True])
@served
async def test_a_transaction_that_fails(site: Site, has_cursor: bool) -> None:
    site.create("t", transactional=True)
    site.send(b"one", queue="t")
    calls = watched(site)
    async with reading(site) as reader:
        unit = Unit(site)
        await reader.enlist(unit.uow, unit.token, parse(T))
        queue = await reader.open(parse(T))

        async def receive() -> None:
            cursor = await queue.create_cursor() if has_cursor else 0
            await queue.receive(0, cursor, unit.uow)

        methods = site.service.interface._methods
        kept = methods[13]
        answered(site, "R_StartTransactionalReceive", made_up(SectionBuffer(0, 9, 9, b"no packet")))
        with pytest.raises(RemoteProtocolError):
            await receive()
        assert ends(calls) == [("R_EndTransactionalReceive", 1)]
        methods[13] = kept
        answered(site, "R_EndTransactionalReceive", lambda *_, **__: MQ_ERROR_TRANSACTION_SEQUENCE)
        with pytest.raises(TransactionSequence):
            await receive()


@pytest.mark.spec("MQRR-3.2.4.2-5")
@served
async def test_a_token_that_is_refused(site: Site) -> None:
    calls = watched(site)
    answered(site, "R_QMEnlistRemoteTransaction", lambda *_, **__: MQ_ERROR_DTC_CONNECT)
    async with reading(site) as reader:
        token = pack_token(Branch(uuid.uuid4(), uuid.uuid4(), "far"))
        with pytest.raises(DtcConnect):
            await reader.enlist(bytes(range(16)), token, parse(Q))
        assert not reader.enlisted
    assert [name for name, _ in calls] == []


# Packets
# --------------------------------------------------------------------------------------------------


def message_of(packet: bytes) -> Any:
    return stored_packet(joined([Section(packet, len(packet))]))


@pytest.mark.spec("MQRR-2.2.5-3")
@pytest.mark.spec("MQRR-2.2.5.2-7")
@pytest.mark.spec("MQRR-2.2.5.2-8")
@pytest.mark.spec("MQRR-2.2.5.3-12")
@pytest.mark.spec("MQRR-2.2.5.3-14")
@pytest.mark.spec("MQRR-2.2.5.5-5")
def test_what_a_client_ignores() -> None:
    bare = full_packet()
    assert Message(message_of(bare)).body == Message(bare).body
    plain = remote_packet(bare, SubqueueHeader(abort_counter=2))
    start = Message(plain).end_of_headers
    wanted = Message(message_of(plain))

    def changed(offset: int, octets: bytes) -> Any:
        packet = bytearray(plain)
        packet[start + offset : start + offset + len(octets)] = octets
        return Message(message_of(bytes(packet)))

    flags = plain[start + 8]
    extensions: list[Extensions | None] = []
    for message in (
        changed(8, bytes((flags | 0xE4, 1, 2, 3))),
        changed(8, bytes((flags | 0x08,))),
        changed(12 + 4, struct.pack("<I", 0xFFFE_0000)),
        changed(len(plain) - start - 22, bytes(range(22))[2:]),
    ):
        assert (message.body, message.label) == (wanted.body, wanted.label)
        extensions.append(message.extensions)
    for one in extensions:
        assert one is not None
        assert one.subqueue is not None
        assert (one.subqueue.abort_counter, one.subqueue.subqueue_name) == (2, "")
        assert one.subqueue.acknowledgement_class == 0
