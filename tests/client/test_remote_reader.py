"""The client of remote reads: its requests, and what it makes of answers (MS-MQQP 3.2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

import pytest

from lanner.client._async.remote_reader import OPEN_TIMEOUT, OpenRemoteQueue, RemoteReader
from lanner.client._sync.remote_reader import RemoteReader as BlockingReader
from lanner.client.target import Target
from lanner.model.enums import QueueAccessType, QueueShareMode
from lanner.model.errors import (
    AccessDenied,
    InvalidHandle,
    IOTimeout,
    MessageNotFound,
    RemoteCanceled,
    RemoteProtocolError,
    StatusError,
    StatusSharingViolation,
)
from lanner.rpc.calls import ServerCall
from lanner.rpc.faults import FaultStatus, RpcConnectionError, RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import NULL_HANDLE, Syntax, Value
from lanner.services.interfaces.mqqp import QM2QM
from lanner.services.remote_read import MQ_LOOKUP_PEEK_NEXT, MQ_LOOKUP_RECEIVE_PREV
from lanner.wire.format_name import parse
from tests.services.remote_read_peer import Site, served
from tests.services.site import until
from tests.statuses import (
    MQ_ERROR_ACCESS_DENIED,
    MQ_ERROR_INVALID_HANDLE,
    MQ_ERROR_IO_TIMEOUT,
    MQ_INFORMATION_REMOTE_CANCELED,
    STATUS_INVALID_PARAMETER,
)

CLIENT_ID = UUID("7d9a1f00-0000-4000-8000-00000000c11e")
NAME = parse(r"DIRECT=OS:.\private$\q")
Calls = list[tuple[str, dict[str, Value]]]


def watched(site: Site) -> Calls:
    """Every call of qm2qm from now on, by name, with its arguments."""
    calls: Calls = []
    interface = site.service.interface
    for number, found in enumerate(interface._methods):
        assert found is not None
        method, handler = found

        def watching(
            call: ServerCall, *, _name: str = method.name, _handler: Callable[..., Value] = handler, **arguments: Value
        ) -> Value:
            calls.append((_name, arguments))
            return _handler(call, **arguments)

        interface._methods[number] = (method, watching)
    return calls


def replaced(site: Site, name: str, handler: Callable[..., Value]) -> None:
    """Have a method answered otherwise."""
    method = QM2QM.by_name[name]
    site.service.interface._methods[method.opnum] = (method, handler)


def target(site: Site) -> Target:
    return Target("127.0.0.1", port=site.port)


@asynccontextmanager
async def reading(site: Site, **options: Value) -> AsyncIterator[RemoteReader]:
    reader = await RemoteReader.connect(target(site), client_id=CLIENT_ID, **options)
    async with reader:
        yield reader


def named(calls: Calls, name: str) -> list[dict[str, Value]]:
    return [arguments for called, arguments in calls if called == name]


@served
async def test_the_port_is_asked_for_first(site: Site) -> None:
    """Over a binding that is dropped; the queue is opened at the port of the answer."""
    calls = watched(site)
    first = site.port
    site.service._ports.ip_read = second = await site.server.listen_tcp("127.0.0.1", 0)
    async with reading(site) as reader:
        await until(lambda: site.server.connections == 2)
        peername = reader.reading_client._transport.get_extra_info("peername")  # type: ignore[union-attr]
        assert peername[1] == second != first
        await reader.open(NAME)
    assert [name for name, _ in calls] == ["RemoteQMGetQMQMServerPort", "RemoteQMOpenQueue"]
    assert calls[0][1] == {"dw_port_type": 1}
    await until(lambda: site.server.connections == 0)


@served
async def test_a_server_that_knows_no_port_is_read_where_it_was_asked(site: Site) -> None:
    site.service._ports.ip_read = 0
    async with reading(site) as reader:
        await reader.open(NAME)
        assert site.server.connections == 1
    await until(lambda: site.server.connections == 0)


@served
async def test_an_open_says_who_we_are(site: Site) -> None:
    calls = watched(site)
    async with reading(site) as reader:
        queue = await reader.open(NAME)
        assert reader.opened == {queue.handle: queue}
    (opened,) = named(calls, "RemoteQMOpenQueue")
    assert opened == {
        "p_lic_guid": CLIENT_ID,
        "dw_mqs": 0,
        "h_queue": queue.handle,
        "p_queue": queue.queue,
        "dwp_context": queue.handle,
    }


@pytest.mark.spec("MQQP-3.2.4.1-3")
@served
async def test_an_open_that_takes_too_long_is_cancelled(site: Site) -> None:
    assert OPEN_TIMEOUT == 300
    cancelled: list[bool] = []

    async def never(call: ServerCall, **arguments: Value) -> int:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return 0

    replaced(site, "RemoteQMOpenQueue", never)
    async with reading(site, open_timeout=0.01) as reader:
        assert reader.open_timeout == 0.01
        with pytest.raises(RpcConnectionError, match="not opened within"):
            await reader.open(NAME)
        await until(lambda: bool(cancelled))
        await until(lambda: len(site.queues) == 0)
        assert not reader.opened


@served
async def test_an_open_that_takes_too_long_ends_in_a_thread_too(site: Site) -> None:
    """A thread that waits cannot be cancelled: its connection is closed."""

    async def never(call: ServerCall, **arguments: Value) -> int:
        await asyncio.get_running_loop().create_future()
        return 0

    replaced(site, "RemoteQMOpenQueue", never)

    def work() -> None:
        with BlockingReader.connect(target(site), client_id=CLIENT_ID, open_timeout=0.05) as reader:
            with pytest.raises(RpcConnectionError, match="not opened within"):
                reader.open(NAME)
            assert not reader.opened

    await asyncio.to_thread(work)
    await until(lambda: len(site.queues) == 0)


VERSIONS = [((4, 0), False), ((5, 0), False), ((5, 1), True), ((5, 2), True), ((6, 1), True)]


@pytest.mark.spec("MQQP-3.2.4.2-1")
@pytest.mark.parametrize(("version", "is_new"), [*VERSIONS, (None, False)])
@served
async def test_the_version_decides_how_to_read(site: Site, version: tuple[int, int] | None, is_new: bool) -> None:
    """A server that is too old does not even know the question."""

    def told(call: ServerCall) -> dict[str, int]:
        if version is None:
            raise RpcFault(FaultStatus.NCA_OP_RNG_ERROR)
        return {"p_major": version[0], "p_minor": version[1], "p_build_number": 1}

    replaced(site, "RemoteQmGetVersion", told)
    calls = watched(site)
    site.send(b"one", b"two")
    async with reading(site) as reader:
        queue = await reader.open(NAME)
        peeked = await queue.peek()
        received = await queue.receive()
    assert peeked.message.body == received.message.body == b"one"
    assert [name for name, _ in calls if "Receive" in name or "Version" in name] == [
        "RemoteQmGetVersion",
        *["RemoteQMStartReceive2" if is_new else "RemoteQMStartReceive"] * 2,
        "RemoteQMEndReceive",
    ]
    assert (received.sequential_id > 0) == is_new


@pytest.mark.spec("MQQP-3.2.4.2-2")
@served
async def test_a_read_asks_for_what_it_wants_and_no_more(site: Site) -> None:
    calls = watched(site)
    site.send(b"one", b"two", b"three")
    async with reading(site) as reader:
        queue = await reader.open(NAME)
        cursor = await queue.create_cursor()
        await queue.peek(timeout=17)
        await queue.peek(cursor=cursor)
        await queue.peek_next(cursor)
        await queue.receive(cursor=cursor)
        await queue.receive()
        await queue.look_up(0, MQ_LOOKUP_PEEK_NEXT)
    reads = [
        arguments["lp_remote_read_desc2"] for name, arguments in calls if "lp_remote_read_desc2" in arguments and name
    ]
    assert len(reads) == 6
    for read in reads:
        desc = read.p_remote_read_desc
        assert read.sequential_id == 0
        assert (desc.dw_size, desc.lp_buffer, desc.reserved) == (0, None, 0)
        assert (desc.h_remote_queue, desc.dw_queue) == (queue.handle, queue.queue)
    descs = [read.p_remote_read_desc for read in reads]
    assert [desc.h_cursor for desc in descs] == [0, cursor, cursor, cursor, 0, 0]
    assert [desc.ul_action for desc in descs] == [0x80000000, 0x80000000, 0x80000001, 0, 0, MQ_LOOKUP_PEEK_NEXT]
    assert [desc.ul_timeout for desc in descs] == [17, *[0xFFFF_FFFF] * 4, 0]


@pytest.mark.spec("MQQP-3.2.4.3-1")
@pytest.mark.parametrize("syntax", [Syntax.NDR20, Syntax.NDR64])
@served
async def test_a_receive_is_acknowledged_and_a_peek_is_not(site: Site, syntax: Syntax) -> None:
    calls = watched(site)
    site.send(b"one", b"two", label="told")
    async with reading(site, syntaxes=(syntax,)) as reader:
        queue = await reader.open(NAME)
        peeked = await queue.peek()
        assert not named(calls, "RemoteQMEndReceive")
        received = await queue.receive()
        assert (received.message.body, received.message.label) == (b"one", "told")
        assert (received.arrived, received.sequential_id) == (peeked.arrived, peeked.sequential_id)
        (ended,) = named(calls, "RemoteQMEndReceive")
        assert ended["dw_ack"] == 2
        assert ended["pph_context"] != NULL_HANDLE
        assert not reader.pending
        last = await queue.look_up(0xFFFF_FFFF_FFFF_FFFF, MQ_LOOKUP_RECEIVE_PREV)
        assert last.message.body == b"two"
        assert len(named(calls, "RemoteQMEndReceive")) == 2
        assert site.count() == 0


@pytest.mark.spec("MQQP-3.2.1.2-1")
@served
async def test_every_pending_read_has_an_id_of_its_own(site: Site) -> None:
    site.create("other")
    async with reading(site) as reader:
        queues = [await reader.open(NAME), await reader.open(parse(r"DIRECT=OS:.\private$\other"))]
        reader._last_request_id = 0xFFFF_FFFD
        reads = [asyncio.ensure_future(queue.receive()) for queue in queues * 3]
        entries = await site.waiting(6)
        ids = [entry.request_id for entry in entries]
        assert len(set(ids)) == 6
        assert 0 not in ids
        assert set(ids) == set(reader.pending)
        # Round once more: those that are pending are left out.
        reader._last_request_id = 0xFFFF_FFFD
        more = asyncio.ensure_future(queues[0].receive())
        await site.waiting(7)
        assert len(reader.pending) == 7
        site.send(*[b"x"] * 4)
        site.send(*[b"x"] * 3, queue="other")
        await asyncio.gather(*reads, more)
        assert not reader.pending
        waiting = asyncio.ensure_future(queues[0].receive())
        ((request_id, _),) = await _pending(reader)
        await queues[0].cancel(request_id)
        assert not reader.pending
        with pytest.raises(RemoteCanceled):
            await waiting


async def _pending(reader: RemoteReader) -> list[tuple[int, Value]]:
    await until(lambda: bool(reader.pending))
    # And the server has it.
    await reader.version()
    await asyncio.sleep(0.005)
    return list(reader.pending.items())


@pytest.mark.spec("MQQP-3.2.4-1")
@pytest.mark.parametrize(
    "status",
    [
        MQ_ERROR_IO_TIMEOUT,
        MQ_ERROR_ACCESS_DENIED,
        STATUS_INVALID_PARAMETER,
        0x80004005,
        MQ_ERROR_INVALID_HANDLE,
        MQ_INFORMATION_REMOTE_CANCELED,
    ],
)
@served
async def test_no_failure_is_taken_for_a_message(site: Site, status: int) -> None:
    """The handle that comes with one is not used."""
    calls = watched(site)

    def failing(call: ServerCall, lp_remote_read_desc2: Value) -> dict[str, Value]:
        return {"pph_context": b"\1" * 20, "lp_remote_read_desc2": lp_remote_read_desc2, RETURNS: status}

    replaced(site, "RemoteQMStartReceive2", failing)
    async with reading(site) as reader:
        queue = await reader.open(NAME)
        with pytest.raises(StatusError) as raised:
            await queue.receive()
        expected = StatusError.by_status.get(status)
        assert expected is None or raised.type is expected
        assert not reader.pending
    assert not named(calls, "RemoteQMEndReceive")


@pytest.mark.spec("MQQP-3.2.4.7-1")
@served
async def test_a_cancel_names_queue_and_request(site: Site) -> None:
    calls = watched(site)
    async with reading(site) as reader:
        queue = await reader.open(NAME)
        waiting = asyncio.ensure_future(queue.receive())
        (entry,) = await site.waiting(1)
        await queue.cancel(entry.request_id)
        assert not reader.pending
        with pytest.raises(RemoteCanceled):
            await waiting
        with pytest.raises(InvalidHandle):
            await queue.cancel(entry.request_id)
    assert named(calls, "RemoteQMCancelReceive") == [
        {"h_queue": queue.handle, "p_queue": queue.queue, "dw_request_id": entry.request_id}
    ]


@served
async def test_a_task_that_is_cancelled_cancels_its_read(site: Site) -> None:
    calls = watched(site)
    async with reading(site) as reader:
        queue = await reader.open(NAME)
        waiting = asyncio.ensure_future(queue.receive())
        await site.waiting(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await site.waiting(0)
        assert len(named(calls, "RemoteQMCancelReceive")) == 1
        site.send(b"one")
        assert (await queue.receive()).message.body == b"one"


@served
async def test_a_task_that_is_cancelled_when_its_message_is_on_the_way_gives_it_back(site: Site) -> None:
    async with reading(site) as reader:
        queue = await reader.open(NAME)
        waiting = asyncio.ensure_future(queue.receive())
        await site.waiting(1)
        site.send(b"one")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await queue.receive(timeout=60_000)).message.body == b"one"
        await until(lambda: not reader.pending)


@pytest.mark.spec("MQQP-3.2.4.9-1")
@served
async def test_closing_sends_the_session_handle_and_forgets_the_queue(site: Site) -> None:
    calls = watched(site)
    async with reading(site) as reader:
        queue = await reader.open(NAME, share_mode=QueueShareMode.DENY_RECEIVE)
        with pytest.raises(StatusSharingViolation):
            await reader.open(NAME)
        handle = queue.rr_session_handle
        waiting = asyncio.ensure_future(queue.receive())
        await site.waiting(1)
        await queue.close()
        assert not reader.opened
        with pytest.raises(RemoteCanceled):
            await waiting
        await queue.close()
        assert named(calls, "RemoteQMCloseQueue") == [{"pph_context": handle}]
        assert len(site.queues) == 0
        groups = site.server.groups._groups.values()
        assert sum(len(group.handles) for group in groups) == 0
        await reader.open(NAME)


@served
async def test_cursors_purges_and_denials(site: Site) -> None:
    site.create("closed", 0)
    site.send(b"one", b"two")
    async with reading(site) as reader:
        with pytest.raises(AccessDenied):
            await reader.open(parse(r"DIRECT=OS:.\private$\closed"))
        queue = await reader.open(NAME)
        cursor = await queue.create_cursor()
        assert (await queue.peek(cursor=cursor)).message.body == b"one"
        assert (await queue.peek_next(cursor)).message.body == b"two"
        await queue.close_cursor(cursor)
        with pytest.raises(InvalidHandle):
            await queue.close_cursor(cursor)
        await queue.purge()
        assert site.count() == 0
        with pytest.raises(IOTimeout):
            await queue.receive(timeout=0)
        with pytest.raises(MessageNotFound):
            await queue.look_up(0, MQ_LOOKUP_PEEK_NEXT)
        peeking = await reader.open(NAME, QueueAccessType.PEEK)
        with pytest.raises(AccessDenied):
            await peeking.purge()


@pytest.mark.spec("MQQP-3.1.4.7-2")
@pytest.mark.parametrize("is_thrown", [False, True])
@served
async def test_a_purge_may_fail_in_two_ways(site: Site, is_thrown: bool) -> None:
    """Returned, as ours does, or thrown, as Windows does."""

    def failing(call: ServerCall, h_queue: int) -> int:
        if is_thrown:
            raise RpcFault(InvalidHandle.status)
        return InvalidHandle.status

    replaced(site, "RemoteQMPurgeQueue", failing)
    async with reading(site) as reader:
        queue = await reader.open(NAME)
        with pytest.raises(InvalidHandle):
            await queue.purge()


BAD_PACKETS: list[bytes | None] = [None, b"", b"nonsense", bytes(400)]


@pytest.mark.parametrize("packet", BAD_PACKETS)
@served
async def test_a_message_that_cannot_be_rebuilt_is_refused(site: Site, packet: bytes | None) -> None:
    site.send(b"one")
    genuine = site.service.start_receive2

    def spoiling(call: ServerCall, lp_remote_read_desc2: Value) -> Value:
        results: Value = genuine(call, lp_remote_read_desc2)
        desc2 = results["lp_remote_read_desc2"]
        spoiled = replace(desc2.p_remote_read_desc, lp_buffer=packet, dw_size=len(packet or b""))
        return {**results, "lp_remote_read_desc2": replace(desc2, p_remote_read_desc=spoiled)}

    replaced(site, "RemoteQMStartReceive2", spoiling)
    calls = watched(site)
    async with reading(site) as reader:
        queue = await reader.open(NAME)
        with pytest.raises(RemoteProtocolError):
            await queue.receive(timeout=0)
        assert not reader.pending
        (ended,) = named(calls, "RemoteQMEndReceive")
        assert ended["dw_ack"] == 1
        assert site.count() == 1


@served
async def test_a_server_that_hangs_up_ends_every_read(site: Site) -> None:
    async with reading(site) as reader:
        queue: OpenRemoteQueue = await reader.open(NAME)
        waiting: list[Awaitable[object]] = [asyncio.ensure_future(queue.receive()) for _ in range(3)]
        await site.waiting(3)
        await site.server.stop()
        for read in waiting:
            with pytest.raises(RpcConnectionError):
                await read
        assert not reader.pending
