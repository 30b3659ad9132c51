"""Receiving and peeking, at once or in two phases (MS-MQDMPR 3.1.7.1.10 to 3.1.7.1.15)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lanner.engine import Engine
from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import (
    CursorState,
    MessageClass,
    MessageSeekAction,
    OperationType,
    PositionState,
    QueueAccessType,
)
from lanner.model.errors import OperationCancelled
from lanner.model.live import ALLOW_PEEK_WHEN_LOCKED, END, Cursor, MessagePosition, OpenQueueDescriptor, Transaction
from lanner.wire.envelope import read_envelope
from tests.engine.harness import Harness, Reader, at_once, body_of, is_waiting, status_of
from tests.statuses import (
    MQ_ERROR_ILLEGAL_CURSOR_ACTION,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_MESSAGE_ALREADY_RECEIVED,
    MQ_ERROR_MESSAGE_NOT_FOUND,
    MQ_ERROR_QUEUE_NOT_AVAILABLE,
    MQ_ERROR_TRANSACTION_SEQUENCE,
)


def opened(h: Harness, *bodies: bytes) -> OpenQueueDescriptor:
    """A queue with these messages, open for receiving."""
    h.create()
    for body in bodies:
        h.send(body=body)
    return h.open()


def cursor_on(h: Harness, descriptor: OpenQueueDescriptor) -> Cursor:
    cursor = h.engine.open_cursor(descriptor)
    assert cursor is not None
    return cursor


def begun(h: Harness, descriptor: OpenQueueDescriptor) -> MessagePosition:
    """The first Available message, locked by a two-phase read."""
    return at_once(h.engine.dequeue_message_begin(descriptor, timeout=0))


def transactional_queue(h: Harness, *bodies: bytes) -> OpenQueueDescriptor:
    h.create(transactional=True)
    transaction = h.begin()
    for body in bodies:
        h.send(body=body, transaction=transaction)
    h.commit(transaction)
    return h.open()


Read = Callable[[Engine, OpenQueueDescriptor, Cursor, MessagePosition], object]

READS: list[tuple[str, Read]] = [
    ("DMPR-3.1.7.1.10-1", lambda e, d, _c, _p: e.dequeue_message(d)),
    ("DMPR-3.1.7.1.11-1", lambda e, d, _c, _p: e.dequeue_message_begin(d)),
    ("DMPR-3.1.7.1.12-1", lambda e, d, _c, p: e.dequeue_message_end(d, p, delete_message=True)),
    (
        "DMPR-3.1.7.1.13-1",
        lambda e, d, _c, p: e.read_message_by_lookup_identifier(
            d, p.lookup_id, peek_operation=False, lookup_operation=MessageSeekAction.CURRENT
        ),
    ),
    ("DMPR-3.1.7.1.14-1", lambda e, d, c, _p: e.peek_next_message(d, c)),
    ("DMPR-3.1.7.1.15-1", lambda e, d, _c, _p: e.peek_message(d)),
]


@pytest.mark.parametrize("read", [pytest.param(read, id=row, marks=pytest.mark.spec(row)) for row, read in READS])
@pytest.mark.parametrize("how", ["deleted", "closed", "multiple"])
def test_a_handle_without_a_queue_cannot_be_read_from(h: Harness, read: Read, how: str) -> None:
    """3.1.7.1.10 to .15: QueueReference is NULL, so MQ_ERROR_QUEUE_NOT_AVAILABLE (0xC00E004B)."""
    descriptor = opened(h, b"a", b"b")
    cursor = cursor_on(h, descriptor)
    h.engine.peek_message(descriptor, cursor=cursor, timeout=0)
    position = begun(h, descriptor)
    if how == "deleted":
        h.engine.delete_queue(h.queue())
    elif how == "closed":
        h.engine.close_queue(descriptor)
    else:
        h.create("r")
        name = r"DIRECT=OS:.\private$\q,DIRECT=OS:.\private$\r"
        descriptor = h.open(name, QueueAccessType.SEND)
    assert descriptor.queue is None
    assert status_of(lambda: read(h.engine, descriptor, cursor, position)) == MQ_ERROR_QUEUE_NOT_AVAILABLE


# Dequeue Message
# ---------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.10-2")
def test_a_receive_takes_the_first_available_message(h: Harness) -> None:
    """3.1.7.1.10: the first Available message, beginning with the head itself.

    Locked, Deleted and PurgePending positions are skipped.
    """
    descriptor = opened(h, b"locked and purged", b"received")
    assert begun(h, descriptor).state is PositionState.LOCKED
    assert h.receive() == b"received"
    h.engine.purge_queue(h.queue())
    for body in (b"locked", b"wanted", b"later"):
        h.send(body=body)
    assert body_of(begun(h, descriptor)) == b"locked"
    assert {p.state for p in h.queue().held_positions.values()} == {PositionState.LOCKED, PositionState.PURGE_PENDING}
    assert [h.receive(), h.receive(), h.receive()] == [b"wanted", b"later", None]


@pytest.mark.spec("DMPR-3.1.7.1.10-3")
def test_a_receive_waits_without_limit_for_the_next_message(h: Harness) -> None:
    """3.1.7.1.10: nothing is Available, so it waits; without iTimeout, it waits forever.

    It receives the message that arrives, and only that one.
    """
    descriptor = opened(h)
    reader = Reader()
    assert is_waiting(h.engine.dequeue_message(descriptor, on_end=reader))
    h.tick(30 * 365 * 86400)
    assert reader.ends == []
    h.send(body=b"first")
    h.send(body=b"second")
    assert reader.body == b"first"
    assert len(reader.ends) == 1
    assert h.bodies() == [b"second"]


@pytest.mark.spec("DMPR-3.1.7.1.10-4")
def test_a_receive_that_times_out_leaves_nothing_behind(h: Harness) -> None:
    """DECISIONS: time-out 0 fails at once with MQ_ERROR_IO_TIMEOUT, like one that runs out."""
    descriptor = opened(h)
    reader = Reader()
    h.engine.dequeue_message(descriptor, timeout=1500, on_end=reader)
    h.tick(1.4)
    assert (reader.ends, len(descriptor.waiting_reads)) == ([], 1)
    h.tick(0.2)
    assert (reader.status, descriptor.waiting_reads) == (MQ_ERROR_IO_TIMEOUT, [])
    assert status_of(lambda: h.engine.dequeue_message(descriptor, timeout=0, on_end=reader)) == MQ_ERROR_IO_TIMEOUT
    assert descriptor.waiting_reads == []
    h.send(body=b"late")
    assert len(reader.ends) == 1
    assert h.bodies() == [b"late"]


@pytest.mark.spec("DMPR-3.1.7.1.10-5")
def test_a_cursor_receive_that_may_not_wait_finds_nothing(h: Harness) -> None:
    """3.1.7.1.10: NotFound of the cursor is MQ_ERROR_MESSAGE_NOT_FOUND.

    This holds even with messages behind it.
    """
    descriptor = opened(h, b"a", b"b")
    cursor = cursor_on(h, descriptor)
    lock = begun(h, descriptor)
    found = at_once(h.engine.dequeue_message(descriptor, cursor=cursor, timeout=0))
    assert body_of(found) == b"b"
    h.engine.dequeue_message_end(descriptor, lock, delete_message=False)
    assert (
        status_of(lambda: h.engine.dequeue_message(descriptor, cursor=cursor, timeout=0)) == MQ_ERROR_MESSAGE_NOT_FOUND
    )
    assert h.bodies() == [b"a"]


@pytest.mark.spec("DMPR-3.1.7.1.10-6")
def test_a_cursor_receive_of_a_message_another_took_fails(h: Harness) -> None:
    """3.1.7.1.10: AlreadyReceived of the cursor is MQ_ERROR_MESSAGE_ALREADY_RECEIVED."""
    descriptor = opened(h, b"a", b"b")
    cursor = cursor_on(h, descriptor)
    h.engine.peek_message(descriptor, cursor=cursor, timeout=0)
    assert h.receive() == b"a"
    assert status_of(lambda: h.engine.dequeue_message(descriptor, cursor=cursor)) == MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    assert h.bodies() == [b"b"]


@pytest.mark.spec("DMPR-3.1.7.1.10-7")
def test_a_waiting_cursor_receive_tells_its_cursor_how_it_ended(h: Harness) -> None:
    """3.1.7.1.10: the event Message Available on success.

    On failure it is Wait Time Expired, with the status of the wait.
    """
    descriptor = opened(h)
    cursor, reader = cursor_on(h, descriptor), Reader()
    h.engine.dequeue_message(descriptor, cursor=cursor, on_end=reader)
    h.send(body=b"a")
    [end] = reader.ends
    assert isinstance(end, MessagePosition)
    assert (cursor.position, cursor.state) == (end.lookup_id, CursorState.UNREAD)
    assert h.bodies() == []

    reader = Reader()
    h.engine.dequeue_message(descriptor, cursor=cursor, timeout=1000, on_end=reader)
    h.tick(1)
    assert (reader.status, cursor.position, cursor.state) == (MQ_ERROR_IO_TIMEOUT, END, CursorState.UNREAD)

    reader = Reader()
    h.engine.dequeue_message(descriptor, cursor=cursor, tag="x", on_end=reader)
    assert cursor.state is CursorState.WAIT_RECEIVE
    h.engine.cancel_waiting_message_read_request(h.queue(), "x", OperationCancelled())
    assert (reader.status, cursor.position, cursor.state) == (OperationCancelled.status, END, CursorState.UNREAD)


@pytest.mark.spec("DMPR-3.1.7.1.10-8")
def test_a_receive_in_a_transaction_locks_until_commit(h: Harness) -> None:
    """3.1.7.1.10: State Locked, and a Dequeue operation with reason AckReceive.

    The message is deleted only at commit.
    """
    descriptor = transactional_queue(h, b"a", b"b")
    removals, before = h.removals(), h.queue().total_bytes
    transaction = h.begin()
    position = at_once(h.engine.dequeue_message(descriptor, timeout=0, transaction=transaction))
    assert (body_of(position), position.state) == (b"a", PositionState.LOCKED)
    [operation] = transaction.transactional_operations
    assert operation.operation_type is OperationType.DEQUEUE
    assert operation.message_position is position
    assert operation.dequeue_reason is MessageClass.ACK_RECEIVE
    assert (h.bodies(), removals, h.queue().total_bytes) == ([b"b"], [], before)
    h.commit(transaction)
    assert removals == [(b"a", MessageClass.ACK_RECEIVE)]
    assert h.queue().total_bytes == before - len(position.record.packet)


@pytest.mark.spec("DMPR-3.1.7.1.10-8")
def test_a_receive_that_waited_is_part_of_its_transaction(h: Harness) -> None:
    """3.1.7.1.10: the steps after the search hold for a position that came by waiting, too."""
    descriptor = transactional_queue(h)
    reader, transaction = Reader(), h.begin()
    h.engine.dequeue_message(descriptor, transaction=transaction, on_end=reader)
    sending = h.begin()
    h.send(body=b"a", transaction=sending)
    assert reader.ends == []
    h.commit(sending)
    assert (reader.body, h.bodies()) == (b"a", [])
    h.abort(transaction)
    assert h.bodies() == [b"a"]


@pytest.mark.spec("DMPR-3.1.7.1.10-9")
def test_a_transaction_without_identifier_is_none(h: Harness) -> None:
    """3.1.7.1.10 would neither lock nor delete when iTransaction.Identifier is NULL.

    Lanner treats it as a plain receive.
    """
    opened(h, b"a")
    removals = h.removals()
    transaction = Transaction(GUID_NULL)
    assert h.receive(transaction=transaction) == b"a"
    assert transaction.transactional_operations == []
    assert removals == [(b"a", MessageClass.ACK_RECEIVE)]
    assert h.receive() is None


@pytest.mark.spec("DMPR-3.1.7.1.10-10")
def test_a_two_phase_receive_locks_and_does_not_delete(h: Harness) -> None:
    """3.1.7.1.10: iTwoPhaseRead True and no transaction."""
    descriptor = opened(h, b"a")
    removals, before = h.removals(), h.queue().total_bytes
    position = at_once(h.engine.dequeue_message(descriptor, timeout=0, two_phase_read=True))
    assert (body_of(position), position.state) == (b"a", PositionState.LOCKED)
    assert (h.receive(), removals) == (None, [])
    assert (h.queue().total_bytes, h.queue().message_count) == (before, 1)


@pytest.mark.spec("DMPR-3.1.7.1.10-11")
def test_a_received_message_is_gone_for_everybody_else(h: Harness) -> None:
    """3.1.7.1.10: Message Position Deleted with AckReceive.

    No second reader of any kind gets the message.
    """
    descriptor = opened(h, b"a")
    waiting = Reader()
    lookup_id, removals = h.lookup_ids()[b"a"], h.removals()
    cursor = cursor_on(h, descriptor)
    assert h.receive() == b"a"
    assert removals == [(b"a", MessageClass.ACK_RECEIVE)]
    h.engine.dequeue_message(descriptor, on_end=waiting)
    assert h.receive() is None
    assert h.bodies() == []
    assert (
        status_of(lambda: h.engine.dequeue_message(descriptor, cursor=cursor, timeout=0)) == MQ_ERROR_MESSAGE_NOT_FOUND
    )
    assert (
        status_of(
            lambda: h.engine.read_message_by_lookup_identifier(
                descriptor, lookup_id, peek_operation=False, lookup_operation=MessageSeekAction.CURRENT
            )
        )
        == MQ_ERROR_MESSAGE_NOT_FOUND
    )
    assert (waiting.ends, len(removals)) == ([], 1)
    h.restart()
    assert h.bodies() == []


# Dequeue Message Begin and End
# ---------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.11-2")
def test_begin_locks_and_passes_its_arguments_through(h: Harness) -> None:
    """3.1.7.1.11: Dequeue Message with iTwoPhaseRead True.

    The cursor, tag and time-out are passed on.
    """
    descriptor = opened(h, b"a", b"b", b"c")
    before = h.queue().total_bytes
    position = begun(h, descriptor)
    assert (body_of(position), position.state) == (b"a", PositionState.LOCKED)
    cursor = cursor_on(h, descriptor)
    h.engine.peek_message(descriptor, cursor=cursor, timeout=0)
    h.engine.peek_next_message(descriptor, cursor, timeout=0)
    under = at_once(h.engine.dequeue_message_begin(descriptor, cursor=cursor, timeout=0))
    assert (body_of(under), under.state) == (b"c", PositionState.LOCKED)
    assert h.queue().total_bytes == before
    assert (
        status_of(lambda: h.engine.dequeue_message_begin(descriptor, cursor=cursor, timeout=0))
        == MQ_ERROR_MESSAGE_NOT_FOUND
    )
    begun(h, descriptor)
    assert status_of(lambda: h.engine.dequeue_message_begin(descriptor, timeout=0)) == MQ_ERROR_IO_TIMEOUT

    timed, tagged, endless = Reader(), Reader(), Reader()
    h.engine.dequeue_message_begin(descriptor, timeout=2000, on_end=timed)
    h.engine.dequeue_message_begin(descriptor, tag=7, on_end=tagged)
    h.engine.dequeue_message_begin(descriptor, on_end=endless)
    h.tick(2)
    assert (timed.status, tagged.ends, endless.ends) == (MQ_ERROR_IO_TIMEOUT, [], [])
    h.engine.cancel_waiting_message_read_request(h.queue(), 7, OperationCancelled())
    assert tagged.status == OperationCancelled.status
    h.tick(1e9)
    h.send(body=b"d")
    [end] = endless.ends
    assert isinstance(end, MessagePosition)
    assert (body_of(end), end.state) == (b"d", PositionState.LOCKED)


@pytest.mark.spec("DMPR-3.1.7.1.11-3")
def test_begin_in_a_transaction_belongs_to_the_transaction(h: Harness) -> None:
    """3.1.7.1.11: iTransaction takes precedence over iTwoPhaseRead; commit and abort decide."""
    descriptor = transactional_queue(h, b"a")
    for end in (h.abort, h.commit):
        transaction = h.begin()
        position = at_once(h.engine.dequeue_message_begin(descriptor, timeout=0, transaction=transaction))
        [operation] = transaction.transactional_operations
        assert (operation.operation_type, operation.message_position) == (OperationType.DEQUEUE, position)
        assert h.bodies() == []
        end(transaction)
        assert h.bodies() == ([b"a"] if end == h.abort else [])


@pytest.mark.spec("DMPR-3.1.7.1.12-2")
def test_ending_a_read_that_was_given_back_fails(h: Harness) -> None:
    """3.1.7.1.12: State is Available, so MQ_ERROR_TRANSACTION_SEQUENCE; the message stays."""
    descriptor = opened(h, b"a")
    position = begun(h, descriptor)
    h.engine.dequeue_message_end(descriptor, position, delete_message=False)
    for delete in (True, False):
        call = lambda d=delete: h.engine.dequeue_message_end(descriptor, position, delete_message=d)  # noqa: E731
        assert status_of(call) == MQ_ERROR_TRANSACTION_SEQUENCE
    assert h.bodies() == [b"a"]


@pytest.mark.spec("DMPR-3.1.7.1.12-3")
@pytest.mark.parametrize("delete", [True, False])
def test_a_transactional_end_changes_nothing(h: Harness, delete: bool) -> None:
    """3.1.7.1.12: iTransactional True leaves the message locked, whatever iDeleteMessage says."""
    descriptor = transactional_queue(h, b"a")
    removals, transaction = h.removals(), h.begin()
    position = at_once(h.engine.dequeue_message_begin(descriptor, timeout=0, transaction=transaction))
    h.engine.dequeue_message_end(descriptor, position, delete_message=delete, transactional=True)
    assert (position.state, h.bodies(), removals) == (PositionState.LOCKED, [], [])
    h.abort(transaction)
    assert h.bodies() == [b"a"]


@pytest.mark.spec("DMPR-3.1.7.1.12-4")
def test_ending_a_read_with_delete_removes_the_message(h: Harness) -> None:
    """3.1.7.1.12: iDeleteMessage True raises Message Position Deleted with AckReceive."""
    descriptor = opened(h, b"a", b"b")
    removals = h.removals()
    position = begun(h, descriptor)
    h.engine.dequeue_message_end(descriptor, position, delete_message=True)
    assert removals == [(b"a", MessageClass.ACK_RECEIVE)]
    assert (h.bodies(), h.queue().message_count) == ([b"b"], 1)
    h.restart()
    assert h.bodies() == [b"b"]


@pytest.mark.spec("DMPR-3.1.7.1.12-5")
@pytest.mark.parametrize("delete", [True, False])
def test_ending_a_read_of_a_purged_message_reports_the_purge(h: Harness, delete: bool) -> None:
    """3.1.7.1.12: PurgePending is deleted with NackQueuePurged, whatever iDeleteMessage says."""
    descriptor = opened(h, b"a")
    removals = h.removals()
    position = begun(h, descriptor)
    h.engine.purge_queue(h.queue())
    assert (position.state, removals) == (PositionState.PURGE_PENDING, [])
    h.engine.dequeue_message_end(descriptor, position, delete_message=delete)
    assert removals == [(b"a", MessageClass.NACK_QUEUE_PURGED)]
    assert (h.bodies(), h.queue().total_bytes) == ([], 0)


@pytest.mark.spec("DMPR-3.1.7.1.12-6")
def test_ending_a_read_without_delete_gives_the_message_back(h: Harness) -> None:
    """3.1.7.1.12: Available again in the old place; the event wakes a waiting reader."""
    descriptor = opened(h, b"a", b"b", b"c")
    positions = [begun(h, descriptor) for _ in range(3)]
    reader = Reader()
    h.engine.dequeue_message(descriptor, on_end=reader)
    for index in (1, 2, 0):
        h.engine.dequeue_message_end(descriptor, positions[index], delete_message=False)
    assert reader.body == b"b"
    assert h.bodies() == [b"a", b"c"]


@pytest.mark.spec("DMPR-3.1.7.1.12-7")
@pytest.mark.parametrize("delete", [True, False])
def test_a_repeated_end_changes_nothing(h: Harness, delete: bool) -> None:
    """3.1.7.1.12 read literally would resurrect the message, or subtract its bytes twice."""
    descriptor = opened(h, b"a", b"b")
    removals = h.removals()
    position = begun(h, descriptor)
    h.engine.dequeue_message_end(descriptor, position, delete_message=True)
    before = (h.queue().total_bytes, h.queue().message_count, h.engine.queue_manager.total_bytes)
    call = lambda: h.engine.dequeue_message_end(descriptor, position, delete_message=delete)  # noqa: E731
    assert status_of(call) == MQ_ERROR_TRANSACTION_SEQUENCE
    assert (h.queue().total_bytes, h.queue().message_count, h.engine.queue_manager.total_bytes) == before
    assert (h.bodies(), len(removals)) == ([b"b"], 1)


# Peeks
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.14-2")
def test_peek_next_before_a_peek_is_illegal(h: Harness) -> None:
    """3.1.7.1.14: state Unread - new, after a cursor receive, after a wait that ran out."""
    descriptor = opened(h, b"a")
    cursor = cursor_on(h, descriptor)

    def peek_next() -> object:
        return h.engine.peek_next_message(descriptor, cursor, timeout=0)

    assert status_of(peek_next) == MQ_ERROR_ILLEGAL_CURSOR_ACTION
    h.engine.dequeue_message(descriptor, cursor=cursor, timeout=0)
    assert status_of(peek_next) == MQ_ERROR_ILLEGAL_CURSOR_ACTION
    h.send(body=b"b")
    h.engine.peek_message(descriptor, cursor=cursor, timeout=0)
    reader = Reader()
    h.engine.peek_next_message(descriptor, cursor, timeout=1000, on_end=reader)
    h.tick(1)
    assert reader.status == MQ_ERROR_IO_TIMEOUT
    assert status_of(peek_next) == MQ_ERROR_ILLEGAL_CURSOR_ACTION


@pytest.mark.spec("DMPR-3.1.7.1.14-3")
def test_peek_next_steps_through_the_queue(h: Harness) -> None:
    """3.1.7.1.14: the message after the cursor, which moves there; nothing is removed."""
    descriptor = opened(h, b"a", b"b", b"c")
    cursor, ids = cursor_on(h, descriptor), h.lookup_ids()
    h.engine.peek_message(descriptor, cursor=cursor, timeout=0)
    for body in (b"b", b"c"):
        position = at_once(h.engine.peek_next_message(descriptor, cursor, timeout=0))
        assert (body_of(position), cursor.position, cursor.state) == (body, ids[body], CursorState.READ)
    assert h.bodies() == [b"a", b"b", b"c"]


@pytest.mark.spec("DMPR-3.1.7.1.14-4")
def test_peek_next_at_the_end_waits(h: Harness) -> None:
    """3.1.7.1.14: an arrival returns the message and releases the next reader.

    Expiry is MQ_ERROR_IO_TIMEOUT.
    """
    descriptor = opened(h, b"a")
    cursor, late = cursor_on(h, descriptor), cursor_on(h, descriptor)
    for each in (cursor, late):
        h.engine.peek_message(descriptor, cursor=each, timeout=0)
    timed, endless, receiver = Reader(), Reader(), Reader()
    h.engine.peek_next_message(descriptor, late, timeout=5000, on_end=timed)
    h.engine.peek_next_message(descriptor, cursor, on_end=endless)
    taken = begun(h, descriptor)
    h.engine.dequeue_message(descriptor, on_end=receiver)
    h.tick(5)
    assert (timed.status, late.state) == (MQ_ERROR_IO_TIMEOUT, CursorState.UNREAD)
    h.tick(1e9)
    assert endless.ends == []
    h.send(body=b"b")
    assert (endless.body, receiver.body) == (b"b", b"b")
    assert (cursor.state, len(timed.ends)) == (CursorState.READ, 1)
    h.engine.dequeue_message_end(descriptor, taken, delete_message=False)
    assert h.bodies() == [b"a"]


@pytest.mark.spec("DMPR-3.1.7.1.15-2")
def test_a_peek_shows_the_first_message_it_may_see(h: Harness) -> None:
    """3.1.7.1.15: Available, or Locked with AllowPeekWhenLocked, which is False by default.

    A peek never removes a message.
    """
    descriptor = opened(h, b"a", b"b")

    def peek() -> bytes:
        position = at_once(h.engine.peek_message(descriptor, timeout=0))
        return body_of(position)

    assert [peek(), peek()] == [b"a", b"a"]
    begun(h, descriptor)
    assert peek() == b"b"
    packet = h.message(b"open", priority=7)
    envelope = read_envelope(packet.packet)
    visible = h.engine.arrivals.new_position(h.queue(), packet.packet, envelope, int(h.now))
    visible.record.flags |= ALLOW_PEEK_WHEN_LOCKED
    h.engine.arrivals.arrive(visible, envelope)
    assert body_of(begun(h, descriptor)) == b"open"
    assert [peek(), peek()] == [b"open", b"open"]
    assert h.receive() == b"b"


@pytest.mark.spec("DMPR-3.1.7.1.15-3")
def test_a_peek_of_an_empty_queue_waits(h: Harness) -> None:
    """3.1.7.1.15: an arrival returns the message, and the other waiting readers proceed.

    The section omits that step.
    """
    descriptor = opened(h)
    timed, peeker, another, receiver = Reader(), Reader(), Reader(), Reader()
    h.engine.peek_message(descriptor, timeout=1000, on_end=timed)
    h.tick(1)
    assert (timed.status, descriptor.waiting_reads) == (MQ_ERROR_IO_TIMEOUT, [])
    assert status_of(lambda: h.engine.peek_message(descriptor, timeout=0)) == MQ_ERROR_IO_TIMEOUT
    h.engine.peek_message(descriptor, on_end=peeker)
    h.engine.peek_message(descriptor, on_end=another)
    h.engine.dequeue_message(descriptor, on_end=receiver)
    h.send(body=b"a")
    assert [peeker.body, another.body, receiver.body] == [b"a", b"a", b"a"]
    assert h.bodies() == []


@pytest.mark.spec("DMPR-3.1.7.1.15-4")
def test_a_repeated_cursor_peek_does_not_advance(h: Harness) -> None:
    """3.1.7.1.15: the same message while it is Available.

    Afterwards the result is MQ_ERROR_MESSAGE_ALREADY_RECEIVED.
    """
    descriptor = opened(h, b"a", b"b")
    cursor = cursor_on(h, descriptor)
    for _ in range(3):
        position = at_once(h.engine.peek_message(descriptor, cursor=cursor, timeout=0))
        assert body_of(position) == b"a"
    lock = begun(h, descriptor)
    assert (
        status_of(lambda: h.engine.peek_message(descriptor, cursor=cursor, timeout=0))
        == MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    )
    h.engine.dequeue_message_end(descriptor, lock, delete_message=False)
    assert h.engine.peek_message(descriptor, cursor=cursor, timeout=0) is not None
    assert h.receive() == b"a"
    assert (
        status_of(lambda: h.engine.peek_message(descriptor, cursor=cursor, timeout=0))
        == MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    )


@pytest.mark.spec("DMPR-3.1.7.1.15-5")
def test_a_cursor_peek_that_waited_updates_the_cursor(h: Harness) -> None:
    """3.1.7.1.15: Message Available on the cursor, and the next waiting reader is released."""
    descriptor = opened(h)
    cursor, peeker, receiver = cursor_on(h, descriptor), Reader(), Reader()
    h.engine.peek_message(descriptor, cursor=cursor, on_end=peeker)
    h.engine.dequeue_message(descriptor, on_end=receiver)
    h.send(body=b"a")
    [end] = peeker.ends
    assert isinstance(end, MessagePosition)
    assert (peeker.body, receiver.body) == (b"a", b"a")
    assert (cursor.position, cursor.state) == (end.lookup_id, CursorState.READ)


@pytest.mark.spec("DMPR-3.1.7.1.15-6")
def test_a_cursor_peek_whose_wait_expires_ends_with_a_time_out(h: Harness) -> None:
    """3.1.7.1.15: MQ_ERROR_IO_TIMEOUT, Wait Time Expired on the cursor, no waiting read left."""
    descriptor = opened(h)
    cursor, reader = cursor_on(h, descriptor), Reader()
    h.engine.peek_message(descriptor, cursor=cursor, timeout=250, on_end=reader)
    assert cursor.state is CursorState.WAIT_PEEK
    h.tick(0.25)
    assert (reader.status, cursor.state, descriptor.waiting_reads) == (MQ_ERROR_IO_TIMEOUT, CursorState.UNREAD, [])


def test_a_cursor_that_peeks_on_while_it_is_told_of_a_message_gets_it_once(h: Harness) -> None:
    """A read may begin while an arrival is being announced.

    It has already looked at that arrival, so it waits for the next one.
    """
    descriptor = opened(h)
    cursor = cursor_on(h, descriptor)
    seen: list[bytes] = []

    def peek_on(end: object) -> None:
        assert isinstance(end, MessagePosition)
        seen.append(body_of(end))
        if len(seen) < 5:
            h.engine.peek_next_message(descriptor, cursor, on_end=peek_on)

    h.engine.peek_message(descriptor, cursor=cursor, on_end=peek_on)
    h.send(body=b"a")
    assert seen == [b"a"]
    h.send(body=b"b")
    assert seen == [b"a", b"b"]
