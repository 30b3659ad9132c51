"""Reads that wait: time-outs, cancels from elsewhere, and concurrent work.

MS-MQQP 3.1.2, 3.1.4.1 and 3.1.4.6.
"""

from __future__ import annotations

import asyncio
import resource
import threading
import time
from collections.abc import Awaitable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from lanner.rpc.async_client import connect_unix
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import NULL_HANDLE
from lanner.services.interfaces import mqqp
from lanner.services.interfaces.mqmr import QMMGMT, R_QM_MGMT_GET_INFO, MgmtObject, MgmtObjectType
from lanner.services.interfaces.mqqp import QM2QM
from lanner.services.management import ManagementService
from lanner.services.remote_read import MQ_ACTION_PEEK_CURRENT, MQ_ACTION_PEEK_NEXT, MQ_ACTION_RECEIVE
from lanner.wire.propvariant import NULL
from tests.services.remote_read_peer import CO_CANCEL, INFINITE, ORPHANED, Fault, Read, RemoteOpen, Site, served
from tests.services.site import ADDRESS, until
from tests.statuses import (
    MQ_ERROR,
    MQ_ERROR_INVALID_HANDLE,
    MQ_ERROR_INVALID_PARAMETER,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_MESSAGE_NOT_FOUND,
    MQ_ERROR_QUEUE_NOT_AVAILABLE,
    MQ_INFORMATION_REMOTE_CANCELED,
    STATUS_NOT_FOUND,
)

OK = 0
# All that a handler asks of a call that it is handed past the server.
CALL: Any = SimpleNamespace(peer=ADDRESS)
# Longer than any test; none waits for it.
LONG = 3_600_000


def without_a_message(read: Read) -> int:
    """The status of a read that gave nothing."""
    assert read.context == NULL_HANDLE
    assert read.desc is not None
    assert (read.desc.dw_size, read.desc.lp_buffer) == (0, None)
    return read.status


@pytest.mark.spec("MQQP-3.1.2-1")
@pytest.mark.parametrize("action", [MQ_ACTION_RECEIVE, MQ_ACTION_PEEK_CURRENT])
@served
async def test_a_wait_ends_with_its_time(site: Site, action: int) -> None:
    q = await site.opened()
    assert without_a_message(await q.read(action, timeout=5)) == MQ_ERROR_IO_TIMEOUT
    assert without_a_message(await q.read2(action, timeout=5)) == MQ_ERROR_IO_TIMEOUT
    assert not list(site.queues.remote_read_entries)


@pytest.mark.spec("MQQP-2.2.2.1-6", "MQQP-3.1.1.2-1")
@served
async def test_times_are_milliseconds(site: Site) -> None:
    q = await site.opened()
    before = time.monotonic()
    reads = [q.begin(timeout=1_500_000, dw_request_id=8), q.begin(MQ_ACTION_PEEK_CURRENT, INFINITE, dw_request_id=9)]
    short, endless = await site.waiting(2)
    assert (short.open_queue_descriptor_handle, short.timeout, short.action, short.request_id) == (
        q.handle,
        1_500_000,
        MQ_ACTION_RECEIVE,
        8,
    )
    assert (endless.timeout, endless.action, endless.request_id) == (INFINITE, MQ_ACTION_PEEK_CURRENT, 9)
    finite, infinite = short.queue.descriptor.waiting_reads
    assert finite.deadline is not None
    assert before + 1500 <= finite.deadline <= time.monotonic() + 1500
    assert infinite.deadline is None
    site.send(b"one", b"two")
    assert [(await read).body for read in reads] == [b"one", b"two"]


@pytest.mark.spec("MQQP-3.1.2-2")
@served
async def test_nobody_waits_without_a_time_out(site: Site) -> None:
    q = await site.opened()
    cursor = await q.peer.create_cursor(q.handle)
    for read in (q.read, q.read2):
        assert without_a_message(await read()) == MQ_ERROR_IO_TIMEOUT
        assert without_a_message(await read(MQ_ACTION_PEEK_CURRENT)) == MQ_ERROR_IO_TIMEOUT
        assert without_a_message(await read(MQ_ACTION_PEEK_CURRENT, cursor=cursor)) == MQ_ERROR_IO_TIMEOUT
        assert without_a_message(await read(cursor=cursor)) == MQ_ERROR_MESSAGE_NOT_FOUND


@pytest.mark.spec("MQQP-3.1.4.1-23")
@served
async def test_a_read_that_waits_stops_nothing_else(site: Site) -> None:
    """Other calls run on its own connection and on others of the same client."""
    site.create("other")
    q = await site.opened()
    waiting = asyncio.ensure_future(q.begin(timeout=LONG, dw_request_id=70))
    await site.waiting(1)
    for peer in (q.peer, await site.peer(group=q.peer.group)):
        other = await peer.opened("OS:.\\private$\\other")
        site.send(b"there", queue="other")
        assert await other.receive() == b"there"
        assert (await peer.call(QM2QM, mqqp.REMOTE_QM_GET_VERSION))["p_major"] == 6
        assert not waiting.done()
    assert await q.cancel(70, peer=q.peer) == OK
    assert (await waiting).status == MQ_INFORMATION_REMOTE_CANCELED


@served
async def test_a_read_that_waits_stops_no_management_and_no_sender(site: Site) -> None:
    """While one receive waits, other calls are served at once.

    These are a management query, a cancel, and a send from elsewhere.
    """
    engine, committer = site.runtime.engine, site.queues.committer
    site.server.register(ManagementService(engine, committer))
    path = site.runtime.path / "rpc.sock"
    await site.server.listen_unix(path)
    q = await site.opened()
    first, second = (asyncio.ensure_future(q.begin(timeout=LONG, dw_request_id=number)) for number in (1, 2))
    await site.waiting(2)
    async with await connect_unix(path) as client:
        managing = await client.bind(QMMGMT)
        asked = {
            "p_object_format": MgmtObject(MgmtObjectType.MGMT_MACHINE, 0),
            "cp": 1,
            "a_prop": (1,),
            "ap_var": (NULL,),
        }
        assert (await managing.call(R_QM_MGMT_GET_INFO, **asked))[RETURNS] == OK
    assert await q.cancel(1, peer=await site.peer()) == OK
    assert (await first).status == MQ_INFORMATION_REMOTE_CANCELED
    assert not second.done()
    await asyncio.to_thread(site.send, b"one")
    assert (await second).body == b"one"


@pytest.mark.spec("MQQP-3.1.4.1-7", "MQQP-3.1.4.10-3")
@served
async def test_a_request_id_is_used_once_at_a_time(site: Site) -> None:
    q = await site.opened()
    first = q.begin(timeout=LONG, dw_request_id=5)
    await site.waiting(1)
    assert without_a_message(await q.read(timeout=LONG, dw_request_id=5)) == MQ_ERROR_INVALID_PARAMETER
    assert without_a_message(await q.read(MQ_ACTION_PEEK_CURRENT, dw_request_id=5)) == MQ_ERROR_INVALID_PARAMETER
    assert without_a_message(await q.read2(timeout=LONG, dw_request_id=5)) == MQ_ERROR_INVALID_PARAMETER
    assert len(list(site.queues.remote_read_entries)) == 1
    site.send(b"one")
    assert (await first).body == b"one"
    second = asyncio.ensure_future(q.read2(timeout=LONG, dw_request_id=5))
    await site.waiting(1)
    assert without_a_message(await q.read(dw_request_id=5)) == MQ_ERROR_INVALID_PARAMETER
    site.send(b"two")
    assert (await second).body == b"two"


@pytest.mark.spec("MQQP-3.1.4.1-8")
@served
async def test_a_request_id_belongs_to_a_handle(site: Site) -> None:
    one = await site.opened()
    other = await one.peer.opened()
    reads = [one.begin(timeout=LONG, dw_request_id=5), other.begin(timeout=LONG, dw_request_id=5)]
    await site.waiting(2)
    site.send(b"one", b"two")
    assert [(await read).body for read in reads] == [b"one", b"two"]


@pytest.mark.spec("MQQP-3.1.4.1-22")
@served
async def test_a_read_that_is_over_is_pending_no_more(site: Site) -> None:
    site.send(b"one")
    q = await site.opened()
    read = await q.read(dw_request_id=3)
    assert not list(site.queues.remote_read_entries)
    assert await q.cancel(3) == MQ_ERROR_INVALID_HANDLE
    assert await q.end(read) == OK
    waiting = q.begin(timeout=LONG, dw_request_id=3)
    await site.waiting(1)
    site.send(b"two")
    assert (await waiting).body == b"two"
    assert not list(site.queues.remote_read_entries)


@pytest.mark.spec("MQQP-3.1.4.6-4")
@pytest.mark.parametrize("kind", ["StartReceive", "StartReceive2"])
@served
async def test_a_waiting_receive_is_cancelled_from_another_connection(site: Site, kind: str) -> None:
    q = await site.opened()
    other = await site.peer()
    reading: Awaitable[Read] = (q.begin if kind == "StartReceive" else q.read2)(timeout=LONG, dw_request_id=42)
    waiting = asyncio.ensure_future(reading)
    await site.waiting(1)
    assert await q.cancel(42, peer=other) == OK
    assert without_a_message(await waiting) == MQ_INFORMATION_REMOTE_CANCELED
    site.send(b"one")
    assert site.count() == 1
    assert await q.receive() == b"one"


@pytest.mark.spec("MQQP-3.1.4.6-6")
@pytest.mark.parametrize("action", [MQ_ACTION_PEEK_CURRENT, MQ_ACTION_PEEK_NEXT])
@served
async def test_a_waiting_peek_is_cancelled_too(site: Site, action: int) -> None:
    cursor = 0
    q = await site.opened()
    if action == MQ_ACTION_PEEK_NEXT:
        site.send(b"one")
        cursor = await q.peer.create_cursor(q.handle)
        assert (await q.read(MQ_ACTION_PEEK_CURRENT, cursor=cursor)).body == b"one"
    waiting = asyncio.ensure_future(q.begin(action, LONG, cursor, dw_request_id=42))
    await site.waiting(1)
    assert await q.cancel(42) == OK
    assert without_a_message(await waiting) == MQ_INFORMATION_REMOTE_CANCELED


@pytest.mark.spec("MQQP-3.1.4.6-1")
@served
async def test_a_cancel_names_its_queue_twice(site: Site) -> None:
    q = await site.opened()
    waiting = asyncio.ensure_future(q.begin(timeout=LONG, dw_request_id=1))
    await site.waiting(1)
    wrong: list[dict[str, Any]] = [
        {"p_queue": 0},
        {"p_queue": q.handle ^ 1},
        {"h_queue": 0},
        {"h_queue": 0, "p_queue": 0},
    ]
    for changes in wrong:
        assert await q.cancel(1, **changes) == MQ_ERROR_INVALID_PARAMETER
    assert not waiting.done()
    assert await q.cancel(1) == OK
    await waiting


@pytest.mark.spec("MQQP-3.1.4.6-2", "MQQP-3.1.4.6-3")
@served
async def test_a_cancel_of_what_is_not_pending(site: Site) -> None:
    q = await site.opened()
    unknown = q.handle ^ 1
    assert await q.cancel(1) == MQ_ERROR_INVALID_HANDLE
    assert await q.cancel(1, h_queue=unknown, p_queue=unknown) == MQ_ERROR_INVALID_HANDLE
    waiting = asyncio.ensure_future(q.begin(timeout=LONG, dw_request_id=1))
    await site.waiting(1)
    assert await q.cancel(2) == MQ_ERROR
    assert not waiting.done()
    site.send(b"one")
    assert (await waiting).body == b"one"


@pytest.mark.spec("MQQP-3.1.4.6-5")
@served
async def test_a_cancel_that_comes_when_the_message_is_there(site: Site) -> None:
    """The entry is pending until the call continues, and no read waits in the queue."""
    q = await site.opened()
    waiting = asyncio.ensure_future(q.begin(timeout=LONG, dw_request_id=1))
    await site.waiting(1)
    site.send(b"one")
    status: Any = site.service.cancel_receive(CALL, q.handle, q.handle, 1)
    assert status == STATUS_NOT_FOUND
    read = await waiting
    assert read.body == b"one"
    assert await q.end(read) == OK


@pytest.mark.spec("MQQP-3.1.4.6-7")
@served
async def test_a_cancelled_id_is_free_at_once(site: Site) -> None:
    """A new read may reuse the id before the cancelled one has been notified.

    The cancel must not affect the new read.
    """
    q = await site.opened()
    first = asyncio.ensure_future(q.begin(timeout=LONG, dw_request_id=1))
    await site.waiting(1)
    peer = q.peer
    arguments = {"h_queue": q.handle, "p_queue": q.handle, "dw_request_id": 1}
    cancelling = peer.begin(QM2QM, mqqp.REMOTE_QM_CANCEL_RECEIVE, **arguments)
    second = asyncio.ensure_future(q.begin(timeout=LONG, dw_request_id=1))
    assert (await cancelling)[RETURNS] == OK
    assert (await first).status == MQ_INFORMATION_REMOTE_CANCELED
    (entry,) = await site.waiting(1)
    assert entry.read.is_waiting
    site.send(b"one")
    assert (await second).body == b"one"


@pytest.mark.spec("MQQP-3.1.4.6-8")
@served
async def test_a_cancel_ends_the_read_of_its_own_handle_alone(site: Site) -> None:
    one = await site.opened()
    other = await site.opened()
    waiting = [asyncio.ensure_future(q.begin(timeout=LONG, dw_request_id=7)) for q in (one, other)]
    await site.waiting(2)
    assert await other.cancel(7) == OK
    assert (await waiting[1]).status == MQ_INFORMATION_REMOTE_CANCELED
    assert not waiting[0].done()
    site.send(b"one")
    assert (await waiting[0]).body == b"one"


@pytest.mark.spec("MQQP-3.1.4.4-3")
@served
async def test_closing_a_queue_cancels_what_waits_on_it(site: Site) -> None:
    q = await site.opened()
    other = await site.opened()
    waiting = [asyncio.ensure_future(q.begin(action, LONG)) for action in (MQ_ACTION_RECEIVE, MQ_ACTION_PEEK_CURRENT)]
    left = asyncio.ensure_future(other.begin(timeout=LONG))
    await site.waiting(3)
    assert await q.close() == OK
    assert [without_a_message(await read) for read in waiting] == [
        MQ_INFORMATION_REMOTE_CANCELED,
        MQ_INFORMATION_REMOTE_CANCELED,
    ]
    assert not left.done()
    site.send(b"one")
    assert (await left).body == b"one"


@served
async def test_a_queue_that_is_deleted_ends_what_waits_on_it(site: Site) -> None:
    site.create("gone")
    q = await site.opened("OS:.\\private$\\gone")
    waiting = asyncio.ensure_future(q.begin(timeout=LONG, dw_request_id=1))
    await site.waiting(1)
    site.delete("gone")
    status: Any = site.service.cancel_receive(CALL, q.handle, q.handle, 1)
    assert status == STATUS_NOT_FOUND
    assert without_a_message(await waiting) == MQ_ERROR_QUEUE_NOT_AVAILABLE


@served
async def test_a_message_that_another_thread_puts_wakes_a_reader(site: Site) -> None:
    q = await site.opened()
    waiting = asyncio.ensure_future(q.begin(timeout=LONG))
    await site.waiting(1)
    thread = threading.Thread(target=site.send, args=(b"one",))
    thread.start()
    assert (await waiting).body == b"one"
    thread.join()


# The runtime's own cancels
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_at_once", [True, False])
@pytest.mark.parametrize("kind", [CO_CANCEL, ORPHANED])
@served
async def test_a_call_that_is_cancelled_takes_nothing_along(site: Site, kind: int, is_at_once: bool) -> None:
    """C706 12.6.4.2, .9.

    At once: in the same segment as the request, before anything had a turn.
    """
    q = await site.opened()
    waiting = asyncio.ensure_future(q.begin(timeout=LONG))
    if not is_at_once:
        await site.waiting(1)
    q.peer.cancel_last(kind)
    if kind == CO_CANCEL:
        with pytest.raises(Fault):
            await waiting
    else:
        # The server answers no more, and does not hang up either.
        assert (await q.peer.call(QM2QM, mqqp.REMOTE_QM_GET_VERSION))["p_major"] == 6
        waiting.cancel()
    await site.waiting(0)
    site.send(b"one")
    assert await q.receive() == b"one"


@served
async def test_a_call_that_is_cancelled_when_it_has_its_message_gives_it_back(site: Site) -> None:
    q = await site.opened()
    waiting = asyncio.ensure_future(q.begin(timeout=LONG))
    await site.waiting(1)
    (task,) = site.server._tasks
    site.send(b"one")
    task.cancel()
    with pytest.raises(Fault):
        await waiting
    assert await q.receive() == b"one"


@served
async def test_a_peek_that_is_cancelled_frees_nothing_that_a_receive_has(site: Site) -> None:
    """Both were given the same message, in one go."""
    q = await site.opened()
    peek = asyncio.ensure_future(q.begin(MQ_ACTION_PEEK_CURRENT, LONG))
    await site.waiting(1)
    (task,) = site.server._tasks
    receive = asyncio.ensure_future(q.begin(timeout=LONG))
    await site.waiting(2)
    site.send(b"one")
    task.cancel()
    with pytest.raises(Fault):
        await peek
    read = await receive
    assert without_a_message(await q.read()) == MQ_ERROR_IO_TIMEOUT
    assert await q.end(read) == OK
    assert site.count() == 0


# Waking in order
# --------------------------------------------------------------------------------------------------

# As many as a server lets one computer connect, nearly; fewer where the time is short.
FEW_AND_MANY = pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.soak)])


@pytest.fixture(autouse=True)
def _enough_descriptors() -> Iterator[None]:
    """Both ends of a connection are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def waiting_clients(site: Site, count: int) -> list[tuple[RemoteOpen, asyncio.Task[Read]]]:
    """So many connections, each with a receive that waits, in this order."""
    clients = []
    for number in range(count):
        q = await site.opened()
        clients.append((q, asyncio.ensure_future(q.read(timeout=INFINITE))))
        await site.waiting(number + 1)
    return clients


def bodies(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in range(*numbers)]


@FEW_AND_MANY
@served
async def test_readers_are_woken_in_the_order_in_which_they_came(site: Site, count: int) -> None:
    clients = await waiting_clients(site, count)
    site.send(*bodies(count))
    reads = [await task for _, task in clients]
    assert [read.body for read in reads] == bodies(count)
    assert [await q.end(read) for (q, _), read in zip(clients, reads, strict=True)] == [OK] * count
    assert site.count() == 0


@pytest.mark.spec("MQQP-3.1.6.2-1")
@FEW_AND_MANY
@served
async def test_half_of_the_readers_die_and_give_back_what_they_got(site: Site, count: int) -> None:
    clients = await waiting_clients(site, count)
    site.send(*bodies(count))
    await asyncio.gather(*(task for _, task in clients))
    for q, _ in clients[::2]:
        q.peer.abort()
    await until(lambda: site.server.connections == count // 2)
    for q, task in clients[1::2]:
        assert await q.end(task.result()) == OK
    assert site.count() == count // 2
    last = clients[1][0]
    assert [await last.receive() for _ in range(count // 2)] == bodies(0, count, 2)


@FEW_AND_MANY
@served
async def test_readers_that_die_waiting_are_passed_over(site: Site, count: int) -> None:
    clients = await waiting_clients(site, count)
    for q, task in clients[::2]:
        q.peer.abort()
        task.cancel()
    await site.waiting(count // 2)
    site.send(*bodies(count // 2))
    reads = [await task for _, task in clients[1::2]]
    assert [read.body for read in reads] == bodies(count // 2)
    assert site.count() == count // 2


@FEW_AND_MANY
@served
async def test_readers_die_while_messages_come(site: Site, count: int) -> None:
    """A reader that disconnects returns the message on its way before the next one asks."""
    clients = await waiting_clients(site, count)
    for number, (q, task) in enumerate(clients[::2]):
        site.send(b"%d" % number)
        q.peer.abort()
        task.cancel()
    await until(lambda: site.server.connections == count // 2)
    reads = [await task for _, task in clients[1::2]]
    assert sorted(read.body for read in reads) == sorted(bodies(count // 2))
