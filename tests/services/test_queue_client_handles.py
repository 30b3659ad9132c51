"""Opening and closing queues, cursors, purging, and names of handles.

MS-MQMP 3.1.4.17 to 3.1.4.22 and 3.1.5.4.
"""

from __future__ import annotations

import asyncio
import uuid
from itertools import pairwise
from typing import Any

import pytest

from lanner.rpc.association import MAX_HANDLES
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import NULL_HANDLE, Pointed
from lanner.services import queue_client_handles
from lanner.services.interfaces import mqmp
from lanner.services.interfaces.mqmp import CACCreateRemoteCursor
from lanner.services.interfaces.mqmq import DlId, MulticastId, QueueFormat
from tests.services.queue_client_peer import PEEK, SEND, Site, served
from tests.statuses import (
    MQ_ERROR_ACCESS_DENIED,
    MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL,
    MQ_ERROR_ILLEGAL_CURSOR_ACTION,
    MQ_ERROR_ILLEGAL_FORMATNAME,
    MQ_ERROR_ILLEGAL_OPERATION,
    MQ_ERROR_INSUFFICIENT_RESOURCES,
    MQ_ERROR_INVALID_HANDLE,
    MQ_ERROR_INVALID_PARAMETER,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_MESSAGE_ALREADY_RECEIVED,
    MQ_ERROR_OPERATION_CANCELLED,
    MQ_ERROR_QUEUE_NOT_FOUND,
    MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE,
    MQ_ERROR_SHARING_VIOLATION,
    MQ_ERROR_UNSUPPORTED_ACCESS_MODE,
    MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
    NCA_FAULT_CONTEXT_MISMATCH,
)

OK = 0
RECEIVE_ADMIN, PEEK_ADMIN = 0x81, 0xA0
ELSEWHERE = r"DIRECT=OS:elsewhere\private$\far"


# Open and close
# --------------------------------------------------------------------------------------------------


@served
async def test_a_queue_is_opened_and_closed(site: Site) -> None:
    """3.1.4.17 rpc_QMOpenQueueInternal, 3.1.4.18 rpc_ACCloseHandle."""
    peer = await site.peer()
    results = await peer.open_queue()
    assert results[RETURNS] == OK
    assert results["ph_queue"] != NULL_HANDLE
    assert results["pdw_qm_context"] != 0
    assert results["lplp_remote_queue_name"] == Pointed(None)
    assert len(site.runtime.engine.opening.descriptors) == len(site.queue_client.handles) == 1
    closed = await peer.call(mqmp.RPC_AC_CLOSE_HANDLE, ph_queue=results["ph_queue"])
    assert closed == {RETURNS: OK, "ph_queue": NULL_HANDLE}
    assert len(site.runtime.engine.opening.descriptors) == len(site.queue_client.handles) == 0
    assert await peer.fault(mqmp.RPC_AC_CLOSE_HANDLE, ph_queue=results["ph_queue"]) == NCA_FAULT_CONTEXT_MISMATCH


@served
async def test_the_numbers_of_open_queues_cannot_be_guessed(site: Site) -> None:
    peer = await site.peer()
    numbers = [(await peer.open()).context for _ in range(50)]
    assert len({abs(one - other) for one, other in pairwise(numbers)}) == 49


REFUSED: list[tuple[dict[str, Any], int]] = [
    ({"access": 0}, MQ_ERROR_UNSUPPORTED_ACCESS_MODE),
    ({"access": 3}, MQ_ERROR_UNSUPPORTED_ACCESS_MODE),
    ({"access": 4}, MQ_ERROR_UNSUPPORTED_ACCESS_MODE),
    ({"access": 0x82}, MQ_ERROR_UNSUPPORTED_ACCESS_MODE),
    ({"access": SEND, "dw_share_mode": 1}, MQ_ERROR_UNSUPPORTED_ACCESS_MODE),
    ({"dw_share_mode": 2}, MQ_ERROR_INVALID_PARAMETER),
    ({"dwp_remote_context": 7}, MQ_ERROR_INVALID_PARAMETER),
    ({"h_remote_queue": 7, "dwp_remote_context": 7, "dwp_queue": 7}, MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE),
    ({"name": QueueFormat(0, 0, 0, None)}, MQ_ERROR_ILLEGAL_FORMATNAME),
    ({"name": QueueFormat(3, 0, 0, None)}, MQ_ERROR_ILLEGAL_FORMATNAME),
    ({"name": QueueFormat(3, 0, 0, "nonsense")}, MQ_ERROR_ILLEGAL_FORMATNAME),
    ({"name": QueueFormat(3, 0x81, 0, "OS:.\\private$\\q"), "access": SEND}, MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
    (
        {"name": QueueFormat(8, 5, 0, "OS:.\\private$\\q;sub"), "access": SEND},
        MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
    ),
    ({"name": QueueFormat(7, 0, 0, MulticastId(0x010203EF, 8001))}, MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
    ({"name": QueueFormat(3, 0, 0, "HTTP://alpha/msmq/private$/q")}, MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
    ({"name": QueueFormat(6, 0, 0, DlId(uuid.uuid4(), None)), "access": SEND}, MQ_ERROR_ILLEGAL_FORMATNAME),
    ({"name": r"DIRECT=OS:.\private$\none"}, MQ_ERROR_QUEUE_NOT_FOUND),
    ({"name": r"DIRECT=OS:.\private$\none", "access": SEND}, MQ_ERROR_QUEUE_NOT_FOUND),
    ({"name": ELSEWHERE, "access": RECEIVE_ADMIN}, MQ_ERROR_QUEUE_NOT_FOUND),
    ({"name": ELSEWHERE, "lplp_remote_queue_name": None}, MQ_ERROR_QUEUE_NOT_FOUND),
]


@served
async def test_what_breaks_a_rule_is_not_opened(site: Site) -> None:
    """3.1.4.17: the constraints on its parameters, and the codes of note 51."""
    peer = await site.peer()
    for changes, status in REFUSED:
        results = await peer.open_queue(**changes)
        assert hex(results[RETURNS]) == hex(status), changes
        assert (results["ph_queue"], results["pdw_qm_context"]) == (NULL_HANDLE, 0)
    assert not site.runtime.engine.opening.descriptors


@served
async def test_a_queue_of_another_computer_is_said_to_be_there(site: Site) -> None:
    """3.1.4.17 lplpRemoteQueueName names a queue of another computer.

    "a null-terminated path name, from which the client can determine the computer name".
    """
    peer = await site.peer()
    results = await peer.open_queue(ELSEWHERE, PEEK)
    assert results == {
        RETURNS: OK,
        "lplp_remote_queue_name": Pointed(r"elsewhere\private$\far"),
        "ph_queue": NULL_HANDLE,
        "pdw_qm_context": 0,
    }
    assert not site.runtime.engine.opening.descriptors


@served
async def test_messages_for_another_computer_wait_in_an_outgoing_queue(site: Site) -> None:
    """3.1.4.17 dwDesiredAccess: MQ_ADMIN_ACCESS opens the outgoing queue.

    It is for administrators.
    """
    peer = await site.peer()
    sender = await peer.open(ELSEWHERE, SEND)
    assert (await sender.send(b"far"))[RETURNS] == OK
    assert (await peer.open_queue(ELSEWHERE, RECEIVE_ADMIN))[RETURNS] == MQ_ERROR_ACCESS_DENIED
    site.add_user("root", is_administrator=True)
    root = await site.peer("root")
    looker = await root.open(ELSEWHERE, PEEK_ADMIN)
    assert (await looker.peek()).body == b"far"
    assert (await looker.read()).status == MQ_ERROR_ACCESS_DENIED
    taker = await root.open(ELSEWHERE, RECEIVE_ADMIN)
    assert (await taker.read()).body == b"far"
    assert (await taker.read()).status == MQ_ERROR_IO_TIMEOUT


@served
async def test_an_exclusive_open_excludes_readers(site: Site) -> None:
    """3.1.4.17 dwShareMode, note 51: MQ_ERROR_SHARING_VIOLATION."""
    peer, other = await site.peer(), await site.peer()
    first = await peer.open(dw_share_mode=1)
    assert (await other.open_queue())[RETURNS] == MQ_ERROR_SHARING_VIOLATION
    await other.open(access=SEND)
    assert (await first.close())[RETURNS] == OK
    await other.open()
    assert (await peer.open_queue(dw_share_mode=1))[RETURNS] == MQ_ERROR_SHARING_VIOLATION


@served
async def test_journals_and_subqueues_are_opened_for_reading(site: Site) -> None:
    peer = await site.peer()
    site.set("q", journaling=True)
    site.send(b"one")
    assert (await (await peer.open()).read()).body == b"one"
    journal = await peer.open(QueueFormat(3, 0x81, 0, "OS:.\\private$\\q"))
    assert (await journal.read()).body == b"one"
    await peer.open(QueueFormat(8, 5, 0, "OS:.\\private$\\q;sub"))
    assert site.operations.subqueue_names(site.name_of("q"))


@served
async def test_a_client_that_opens_without_end_is_stopped(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: the runtime's limit on context handles; nothing stays open behind it."""
    from lanner.rpc import association

    assert MAX_HANDLES >= 1000
    monkeypatch.setattr(association, "MAX_HANDLES", 3)
    peer = await site.peer()
    for _ in range(3):
        await peer.open()
    with pytest.raises(RpcFault):
        await peer.open_queue()
    assert len(site.runtime.engine.opening.descriptors) == len(site.queue_client.handles) == 3


# Cursors
# --------------------------------------------------------------------------------------------------


@served
async def test_a_cursor_goes_through_the_queue(site: Site) -> None:
    """3.1.5.4 rpc_ACCreateCursorEx, 3.1.5.3 ptb.old.Receive.Cursor."""
    peer = await site.peer()
    reader = await peer.open()
    site.send(b"one", b"two", b"three")
    cursor = await reader.cursor()
    assert (await reader.peek_next(cursor=cursor)).status == MQ_ERROR_ILLEGAL_CURSOR_ACTION
    first = await reader.peek(cursor=cursor)
    assert first.body == b"one"
    # "On output, the value of ptb.old.Receive.Cursor MUST be the same".
    assert first.buffer.old.u.cursor == cursor  # type: ignore[union-attr]
    assert (await reader.peek_next(cursor=cursor)).body == b"two"
    assert (await reader.read(cursor=cursor)).body == b"two"
    assert (await reader.peek(cursor=cursor)).body == b"three"
    assert (await reader.read()).body == b"one"
    assert (await reader.read()).body == b"three"
    assert (await reader.read(cursor=cursor)).status == MQ_ERROR_MESSAGE_ALREADY_RECEIVED


@served
async def test_a_cursor_belongs_to_its_handle(site: Site) -> None:
    """3.1.5.3: "created using the queue handle associated with the queue context value".

    Also 3.1.4.19.
    """
    peer = await site.peer()
    reader, other = await peer.open(), await peer.open()
    site.send(b"one")
    cursor = await reader.cursor()
    assert (await other.read(cursor=cursor)).status == MQ_ERROR_INVALID_HANDLE
    assert await other.close_cursor(cursor) == MQ_ERROR_INVALID_HANDLE
    assert await reader.close_cursor(cursor) == OK
    assert await reader.close_cursor(cursor) == MQ_ERROR_INVALID_HANDLE
    assert (await reader.read(cursor=cursor)).status == MQ_ERROR_INVALID_HANDLE
    assert site.bodies() == [b"one"]


@served
async def test_closing_a_cursor_ends_its_waiting_read(site: Site) -> None:
    peer = await site.peer()
    reader = await peer.open()
    cursor = await reader.cursor()
    waiting = asyncio.ensure_future(reader.read(timeout=0xFFFF_FFFF, cursor=cursor))
    await site.waiting(1)
    assert await reader.close_cursor(cursor) == OK
    assert (await waiting).status == MQ_ERROR_OPERATION_CANCELLED


@served
async def test_the_reserved_cursor_is_closed_by_doing_nothing(site: Site) -> None:
    """3.1.4.19: "If hCursor is 0x0000000b, take no further action and return MQ_OK"."""
    peer = await site.peer()
    reader = await peer.open()
    assert await reader.close_cursor(0x0B) == OK
    # Numbers come in a row: where a cursor has this one, it is closed.
    while (await reader.cursor()) != 0x0B:
        pass
    assert await reader.close_cursor(0x0B) == OK
    assert (await reader.read(cursor=0x0B)).status == MQ_ERROR_INVALID_HANDLE
    reader.handle = NULL_HANDLE
    assert await reader.close_cursor(0x0B) == OK


@served
async def test_there_is_an_end_to_the_cursors_of_one_client(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Note 75: MQ_ERROR_INSUFFICIENT_RESOURCES."""
    monkeypatch.setattr(queue_client_handles, "MAX_CURSORS", 2)
    peer = await site.peer()
    reader = await peer.open()
    await reader.cursor()
    await reader.cursor()
    results = await reader.create_cursor()
    assert results == {RETURNS: MQ_ERROR_INSUFFICIENT_RESOURCES, "pcc": CACCreateRemoteCursor()}


@served
async def test_cursors_are_not_set_from_outside(site: Site) -> None:
    """3.1.4.20 rpc_ACSetCursorProperties: obsolete; the code is returned, not raised."""
    peer = await site.peer()
    reader = await peer.open()
    cursor = await reader.cursor()
    method = mqmp.RPC_AC_SET_CURSOR_PROPERTIES
    assert (
        await peer.status(method, h_proxy=reader.handle, h_cursor=cursor, h_remote_cursor=1)
        == MQ_ERROR_ILLEGAL_OPERATION
    )


# Names and purging
# --------------------------------------------------------------------------------------------------


@served
async def test_a_handle_tells_its_format_name(site: Site) -> None:
    """3.1.4.21 rpc_ACHandleToFormatName: terminated, and cut to fit.

    The call always returns its whole length.
    """
    peer = await site.peer()
    reader = await peer.open()
    name = f"{site.runtime.engine.descriptor(next(iter(site.runtime.engine.opening.descriptors))).format_name}\0"
    length = len(name)
    for size in (length, length + 5):
        results = await reader.format_name(size)
        assert results == {RETURNS: OK, "pdw_length": length, "lpwcs_format_name": name.ljust(size, "\0")}
    for size in (1, 2, length - 1):
        results = await reader.format_name(size)
        assert results[RETURNS] == MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL
        assert results["pdw_length"] == length
        assert results["lpwcs_format_name"] == name[: size - 1] + "\0"
    results = await reader.format_name(0)
    assert results == {RETURNS: MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL, "pdw_length": length, "lpwcs_format_name": None}
    assert (await reader.format_name(length, length=length - 1))[RETURNS] == MQ_ERROR_INVALID_PARAMETER


@served
async def test_a_queue_is_purged(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """3.1.4.22 rpc_ACPurgeQueue; in slices."""
    monkeypatch.setattr("lanner.host.reads.PURGE_SLICE", 2)
    peer = await site.peer()
    reader = await peer.open()
    site.send(*[b"x"] * 5)
    assert await reader.purge() == OK
    assert site.count() == 0


@pytest.mark.parametrize("access", [SEND, PEEK])
@served
async def test_only_who_may_receive_may_purge(site: Site, access: int) -> None:
    """3.1.4.17 dwDesiredAccess: "Queue purge" is among what MQ_RECEIVE_ACCESS permits.

    No other access permits it.
    """
    peer = await site.peer()
    q = await peer.open(access=access)
    site.send(b"x")
    assert await q.purge() == MQ_ERROR_ACCESS_DENIED
    assert site.count() == 1
