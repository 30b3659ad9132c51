"""Cursors and lookup identifiers of a queue on another computer.

MS-MQQP 3.1.4.1, 3.1.4.5 and 3.1.4.11.
"""

# A read's time-out is the protocol's.
# ruff: noqa: ASYNC109

from __future__ import annotations

import asyncio

import pytest

from lanner.rpc.ndr import NULL_HANDLE, Syntax
from lanner.services.remote_read import (
    MQ_ACTION_PEEK_CURRENT,
    MQ_ACTION_PEEK_NEXT,
    MQ_ACTION_RECEIVE,
    MQ_LOOKUP_PEEK_CURRENT,
    MQ_LOOKUP_PEEK_NEXT,
    MQ_LOOKUP_PEEK_PREV,
    MQ_LOOKUP_RECEIVE_CURRENT,
    MQ_LOOKUP_RECEIVE_NEXT,
    MQ_LOOKUP_RECEIVE_PREV,
)
from tests.services.remote_read_peer import Read, RemoteOpen, Site, served
from tests.statuses import (
    MQ_ERROR_ILLEGAL_CURSOR_ACTION,
    MQ_ERROR_INVALID_HANDLE,
    MQ_ERROR_INVALID_PARAMETER,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_MESSAGE_ALREADY_RECEIVED,
    MQ_ERROR_MESSAGE_NOT_FOUND,
    MQ_ERROR_TRANSACTION_USAGE,
    STATUS_INVALID_PARAMETER,
)

OK = 0
LAST = 0xFFFF_FFFF_FFFF_FFFF
LOW_56_BITS = 0x00FF_FFFF_FFFF_FFFF
FORMS = pytest.mark.parametrize("form", ["read", "read2"])
LOOKUPS = (
    MQ_LOOKUP_PEEK_CURRENT,
    MQ_LOOKUP_PEEK_NEXT,
    MQ_LOOKUP_PEEK_PREV,
    MQ_LOOKUP_RECEIVE_CURRENT,
    MQ_LOOKUP_RECEIVE_NEXT,
    MQ_LOOKUP_RECEIVE_PREV,
)
RECEIVES = LOOKUPS[3:]


class Walk:
    """A cursor, read with one of the two forms of a read."""

    def __init__(self, q: RemoteOpen, cursor: int, form: str) -> None:
        self._read = getattr(q, form)
        self._cursor = cursor

    @classmethod
    async def begun(cls, q: RemoteOpen, form: str = "read") -> Walk:
        return cls(q, await q.peer.create_cursor(q.handle), form)

    async def _go(self, action: int, timeout: int) -> Read:
        read: Read = await self._read(action, timeout, self._cursor)
        return read

    async def current(self, timeout: int = 0) -> Read:
        return await self._go(MQ_ACTION_PEEK_CURRENT, timeout)

    async def next(self, timeout: int = 0) -> Read:
        return await self._go(MQ_ACTION_PEEK_NEXT, timeout)

    async def receive(self, timeout: int = 0) -> Read:
        return await self._go(MQ_ACTION_RECEIVE, timeout)


@pytest.mark.spec("MQQP-3.1.4.1-17", "MQQP-3.1.4.1-18", "MQQP-3.1.4.10-5")
@FORMS
@served
async def test_a_cursor_walks_through_the_queue(site: Site, form: str) -> None:
    site.send(b"one", b"two", b"three")
    q = await site.opened()
    walk = await Walk.begun(q, form)
    for _ in range(3):
        assert (await walk.current()).body == b"one"
    assert (await walk.next()).body == b"two"
    for _ in range(2):
        assert (await walk.current()).body == b"two"
    assert (await walk.next()).body == b"three"
    assert site.count() == 3


@pytest.mark.spec("MQQP-3.1.4.1-15", "MQQP-3.1.4.1-17", "MQQP-3.1.4.1-20")
@FORMS
@pytest.mark.parametrize("is_ended", [True, False])
@served
async def test_the_message_under_a_cursor_may_be_gone(site: Site, form: str, is_ended: bool) -> None:
    site.send(b"one", b"two")
    q = await site.opened()
    walk = await Walk.begun(q, form)
    assert (await walk.current()).body == b"one"
    other = await site.opened()
    read = await other.read()
    if is_ended:
        assert await other.end(read) == OK
    assert (await walk.current()).status == MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    assert (await walk.receive()).status == MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    # It goes on from where it is.
    assert (await walk.next()).body == b"two"


@pytest.mark.spec("MQQP-3.1.4.1-15")
@FORMS
@served
async def test_a_receive_takes_what_the_cursor_has_peeked(site: Site, form: str) -> None:
    site.send(b"one", b"two", b"three", b"four")
    q = await site.opened()
    walk = await Walk.begun(q, form)
    assert (await walk.current()).body == b"one"
    assert (await walk.next()).body == b"two"
    read = await walk.receive()
    assert read.body == b"two"
    assert await q.end(read) == OK
    assert (await walk.current()).body == b"three"
    new = await Walk.begun(q, form)
    first = await new.receive()
    assert first.body == b"one"
    assert await q.end(first) == OK
    assert (await new.current()).body == b"three"


@pytest.mark.spec("MQQP-3.1.4.1-24")
@FORMS
@pytest.mark.parametrize("timeout", [0, 3_600_000])
@served
async def test_next_needs_something_that_was_peeked(site: Site, form: str, timeout: int) -> None:
    site.send(b"one", b"two", b"three")
    q = await site.opened()
    walk = await Walk.begun(q, form)
    assert (await walk.next(timeout)).status == MQ_ERROR_ILLEGAL_CURSOR_ACTION
    assert (await walk.current()).body == b"one"
    assert (await walk.receive()).body == b"one"
    assert (await walk.next(timeout)).status == MQ_ERROR_ILLEGAL_CURSOR_ACTION
    assert (await walk.current()).body == b"two"
    assert not list(site.queues.remote_read_entries)


@pytest.mark.spec("MQQP-3.1.4.1-9", "MQQP-3.1.4.10-4")
@FORMS
@served
async def test_next_needs_a_cursor(site: Site, form: str) -> None:
    site.send(b"one")
    q = await site.opened()
    assert (await getattr(q, form)(MQ_ACTION_PEEK_NEXT)).status == STATUS_INVALID_PARAMETER


@pytest.mark.spec("MQQP-3.1.4.1-11", "MQQP-3.1.4.10-4")
@FORMS
@pytest.mark.parametrize("action", [MQ_ACTION_RECEIVE, MQ_ACTION_PEEK_CURRENT, MQ_ACTION_PEEK_NEXT])
@served
async def test_a_cursor_belongs_to_its_open_queue(site: Site, form: str, action: int) -> None:
    site.send(b"one")
    q = await site.opened()
    other = await q.peer.opened()
    foreign = await q.peer.create_cursor(other.handle)
    for cursor in (foreign, 0x7FFF_FFFF):
        assert (await getattr(q, form)(action, cursor=cursor)).status == STATUS_INVALID_PARAMETER
    assert site.count() == 1


@FORMS
@served
async def test_a_cursor_waits_at_the_end_of_the_queue(site: Site, form: str) -> None:
    site.send(b"one")
    q = await site.opened()
    walk = await Walk.begun(q, form)
    assert (await walk.current()).body == b"one"
    waiting = asyncio.ensure_future(walk.next(3_600_000))
    await site.waiting(1)
    site.send(b"two")
    assert (await waiting).body == b"two"
    assert (await walk.current()).body == b"two"


# Closing cursors
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQQP-3.1.4.5-1", "MQQP-3.1.4.5-2")
@served
async def test_a_cursor_that_is_not_there_is_not_closed(site: Site) -> None:
    q = await site.opened()
    other = await q.peer.opened()
    cursor = await q.peer.create_cursor(q.handle)
    assert await q.close_cursor(cursor, h_queue=q.handle ^ 1) == MQ_ERROR_INVALID_HANDLE
    assert await other.close_cursor(cursor) == MQ_ERROR_INVALID_HANDLE
    assert await q.close_cursor(0) == MQ_ERROR_INVALID_HANDLE
    assert await q.close_cursor(cursor) == OK
    assert await q.close_cursor(cursor) == MQ_ERROR_INVALID_HANDLE


@pytest.mark.spec("MQQP-3.1.4.5-3")
@served
async def test_a_closed_cursor_leaves_the_others_where_they_are(site: Site) -> None:
    site.send(b"one", b"two")
    q = await site.opened()
    closed = await q.peer.create_cursor(q.handle)
    kept = await Walk.begun(q)
    assert (await kept.current()).body == b"one"
    assert (await q.read(MQ_ACTION_PEEK_CURRENT, cursor=closed)).body == b"one"
    assert await q.close_cursor(closed) == OK
    assert (await q.read(MQ_ACTION_PEEK_CURRENT, cursor=closed)).status == STATUS_INVALID_PARAMETER
    assert (await kept.next()).body == b"two"


# Lookup identifiers
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQQP-3.1.4.11-3", "MQQP-3.1.4.11-10")
@pytest.mark.parametrize("syntax", [Syntax.NDR20, Syntax.NDR64])
@served
async def test_a_message_is_found_by_its_lookup_id(site: Site, syntax: Syntax) -> None:
    ids = site.send(b"one", b"two", b"three", priority=2)
    q = await site.opened(syntax=syntax)
    for lookup_id, body in zip(ids, [b"one", b"two", b"three"], strict=True):
        assert lookup_id >> 56 == 5
        read = await q.look_up(lookup_id, MQ_LOOKUP_PEEK_CURRENT)
        assert (read.body, read.context) == (body, NULL_HANDLE)
        assert read.sequential_id == lookup_id & LOW_56_BITS
    assert site.count() == 3


CHOICES = [
    # base of the action, index of the lookup id or the id itself, what is found
    (0, 1, b"two"),
    (1, 0, b"two"),
    (1, "first", b"one"),
    (2, 1, b"one"),
    (2, "last", b"three"),
]


@pytest.mark.spec("MQQP-3.1.4.11-4", "MQQP-3.1.4.11-5")
@pytest.mark.parametrize(("step", "where", "body"), CHOICES)
@served
async def test_a_peek_looks_beside_a_lookup_id(site: Site, step: int, where: int | str, body: bytes) -> None:
    ids = site.send(b"one", b"two", b"three")
    q = await site.opened()
    lookup_id = {"first": 0, "last": LAST}[where] if isinstance(where, str) else ids[where]
    read = await q.look_up(lookup_id, MQ_LOOKUP_PEEK_CURRENT + step)
    assert (read.body, read.context) == (body, NULL_HANDLE)
    assert site.count() == 3


@pytest.mark.spec("MQQP-3.1.4.11-6", "MQQP-3.1.4.11-7")
@pytest.mark.parametrize(("step", "where", "body"), CHOICES)
@served
async def test_a_lookup_receive_is_in_two_phases(site: Site, step: int, where: int | str, body: bytes) -> None:
    ids = site.send(b"one", b"two", b"three")
    q = await site.opened()
    lookup_id = {"first": 0, "last": LAST}[where] if isinstance(where, str) else ids[where]
    action = MQ_LOOKUP_RECEIVE_CURRENT + step
    read = await q.look_up(lookup_id, action)
    assert read.body == body
    assert read.context != NULL_HANDLE
    assert read.sequential_id in {one & LOW_56_BITS for one in ids}
    assert site.count() == 3
    assert await q.end(read, ack=1) == OK
    again = await q.look_up(lookup_id, action)
    assert again.body == body
    assert await q.end(again) == OK
    assert site.count() == 2


@pytest.mark.spec("MQQP-3.1.4.11-7")
@served
async def test_a_lost_connection_gives_a_lookup_receive_back(site: Site) -> None:
    (lookup_id,) = site.send(b"one")
    q = await site.opened()
    assert (await q.look_up(lookup_id, MQ_LOOKUP_RECEIVE_CURRENT)).body == b"one"
    other = await site.opened()
    assert (await other.read()).status == MQ_ERROR_IO_TIMEOUT
    waiting = asyncio.ensure_future(other.begin(timeout=3_600_000))
    await site.waiting(1)
    q.peer.abort()
    assert (await waiting).body == b"one"


@pytest.mark.spec("MQQP-3.1.4.11-1")
@pytest.mark.parametrize("changes", [{"h_remote_queue": 0}, {"ul_timeout": 1}, {"h_cursor": 1}], ids=str)
@served
async def test_a_lookup_has_a_queue_no_time_out_and_no_cursor(site: Site, changes: dict[str, int]) -> None:
    (lookup_id,) = site.send(b"one")
    q = await site.opened()
    cursor = await q.peer.create_cursor(q.handle)
    for action in LOOKUPS:
        if "h_cursor" in changes:
            changes = {"h_cursor": cursor}
        read = await q.look_up(lookup_id, action, **changes)
        assert (read.status, read.context) == (MQ_ERROR_INVALID_PARAMETER, NULL_HANDLE)
    assert site.count() == 1
    assert (await q.read()).body == b"one"


@pytest.mark.spec("MQQP-3.1.4.11-8")
@pytest.mark.parametrize("action", [LOOKUPS[0], LOOKUPS[2], LOOKUPS[3], LOOKUPS[5]], ids=hex)
@served
async def test_no_message_has_lookup_id_zero(site: Site, action: int) -> None:
    site.send(b"one")
    q = await site.opened()
    assert (await q.look_up(0, action)).status == MQ_ERROR_INVALID_PARAMETER
    assert (await q.read()).body == b"one"


@pytest.mark.spec("MQQP-3.1.4.11-9")
@served
async def test_a_lookup_never_waits(site: Site) -> None:
    ids = site.send(b"one", b"two")
    q = await site.opened()
    unknown = ids[1] + 1
    for action in LOOKUPS:
        assert (await q.look_up(unknown, action)).status == MQ_ERROR_MESSAGE_NOT_FOUND
    assert (await q.look_up(ids[1], MQ_LOOKUP_PEEK_NEXT)).status == MQ_ERROR_MESSAGE_NOT_FOUND
    assert (await q.look_up(ids[0], MQ_LOOKUP_PEEK_PREV)).status == MQ_ERROR_MESSAGE_NOT_FOUND
    walk = await Walk.begun(q)
    assert (await walk.current()).body == b"one"
    other = await site.opened()
    locked = await other.read()
    assert (await q.look_up(ids[0], MQ_LOOKUP_PEEK_CURRENT)).status == MQ_ERROR_TRANSACTION_USAGE
    assert (await q.look_up(ids[0], MQ_LOOKUP_RECEIVE_CURRENT)).status == MQ_ERROR_MESSAGE_NOT_FOUND
    assert await other.end(locked) == OK
    for action in (MQ_LOOKUP_PEEK_CURRENT, MQ_LOOKUP_RECEIVE_CURRENT):
        read = await q.look_up(ids[0], action)
        assert (read.status, read.context) == (MQ_ERROR_MESSAGE_ALREADY_RECEIVED, NULL_HANDLE)
    assert not list(site.queues.remote_read_entries)


@pytest.mark.spec("MQQP-3.1.4.11-11")
@served
async def test_a_lookup_looks_at_neither_dw_queue_nor_the_request_id(site: Site) -> None:
    q = await site.opened()
    site.create("other")
    other = await q.peer.opened("OS:.\\private$\\other")
    waiting = asyncio.ensure_future(q.begin(timeout=3_600_000, dw_request_id=9))
    await site.waiting(1)
    (lookup_id,) = site.send(b"there", queue="other")
    for dw_queue in (0, q.handle, 0xFFFF_FFFF):
        read = await other.look_up(lookup_id, MQ_LOOKUP_PEEK_CURRENT, dw_queue=dw_queue, dw_request_id=9)
        assert read.body == b"there"
    # Also on the queue where the request id is pending.
    assert (await q.look_up(lookup_id, MQ_LOOKUP_PEEK_CURRENT, dw_request_id=9)).status == MQ_ERROR_MESSAGE_NOT_FOUND
    assert len(list(site.queues.remote_read_entries)) == 1
    site.send(b"here")
    assert (await waiting).body == b"here"


@pytest.mark.spec("MQQP-3.1.4.11-11")
@pytest.mark.parametrize("action", [0, 0x8000_0000, 0x8000_0001, 0x4000_0013, 0x4000_0023, 0x4000_0000], ids=hex)
@served
async def test_an_action_that_is_no_lookup(site: Site, action: int) -> None:
    (lookup_id,) = site.send(b"one")
    q = await site.opened()
    assert (await q.look_up(lookup_id, action)).status == MQ_ERROR_INVALID_PARAMETER
    assert (await q.read()).body == b"one"
