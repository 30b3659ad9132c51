"""Seeks by place and by lookup identifier (MS-MQDMPR 3.1.7.1.13, 3.1.7.3.2, 3.1.7.3.3)."""

from __future__ import annotations

import pytest

from lanner.model.enums import MessageClass, MessageSeekAction, OperationType, PositionState
from lanner.model.errors import InvalidParameter
from lanner.model.live import ALLOW_PEEK_WHEN_LOCKED, END, START, MessagePosition, Transaction
from lanner.wire.envelope import read_envelope
from tests.engine.harness import Harness, body_of, status_of
from tests.statuses import MQ_ERROR_MESSAGE_ALREADY_RECEIVED, MQ_ERROR_MESSAGE_NOT_FOUND, MQ_ERROR_TRANSACTION_USAGE

ALL_ONES = 0xFFFF_FFFF_FFFF_FFFF

FIRST, PREVIOUS, CURRENT = MessageSeekAction.FIRST, MessageSeekAction.PREVIOUS, MessageSeekAction.CURRENT
NEXT, LAST = MessageSeekAction.NEXT, MessageSeekAction.LAST


class Row:
    """A queue of five messages a to e: b and d are locked, and d may be peeked at all the same."""

    def __init__(self, h: Harness) -> None:
        self.h = h
        h.create()
        for body in (b"a", b"b", b"c"):
            h.send(body=body)
        packet = h.message(b"d")
        envelope = read_envelope(packet.packet)
        visible = h.engine.arrivals.new_position(h.queue(), packet.packet, envelope, int(h.now))
        visible.record.flags |= ALLOW_PEEK_WHEN_LOCKED
        h.engine.arrivals.arrive(visible, envelope)
        h.send(body=b"e")
        self.descriptor = h.open()
        self.ids = h.lookup_ids()
        self.locks = {body: self.read(CURRENT, body, two_phase_read=True) for body in (b"b", b"d")}

    def id_of(self, of: bytes | int) -> int:
        return of if isinstance(of, int) else self.ids[of]

    def read(
        self,
        action: MessageSeekAction,
        of: bytes | int = 0,
        *,
        peek: bool = False,
        transaction: Transaction | None = None,
        two_phase_read: bool = False,
    ) -> MessagePosition:
        return self.h.engine.read_message_by_lookup_identifier(
            self.descriptor,
            self.id_of(of),
            peek_operation=peek,
            lookup_operation=action,
            transaction=transaction,
            two_phase_read=two_phase_read,
        )

    def peek(self, action: MessageSeekAction, of: bytes | int = 0) -> bytes:
        return body_of(self.read(action, of, peek=True))

    def refused(self, action: MessageSeekAction, of: bytes | int = 0, *, peek: bool) -> int:
        """The status, and a check that the refusal changed nothing."""
        before = self.state()
        status = status_of(lambda: self.read(action, of, peek=peek))
        assert self.state() == before
        return status

    def state(self) -> tuple[object, ...]:
        queue = self.h.queue()
        return (queue.total_bytes, queue.message_count, set(queue.held_positions), self.h.lookup_ids())

    def take_all(self) -> None:
        for position in self.locks.values():
            self.h.engine.dequeue_message_end(self.descriptor, position, delete_message=True)
        while self.h.receive() is not None:
            pass


@pytest.fixture
def row(h: Harness) -> Row:
    return Row(h)


@pytest.fixture(params=[True, False], ids=["peek", "receive"])
def peek(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def seek(row: Row, initial: int, *, peek: bool, backward: bool = False) -> bytes | None:
    found = row.h.engine.positions.seek_available_message_position(row.h.queue(), initial, peek=peek, backward=backward)
    return None if found is None else body_of(found)


@pytest.mark.spec("DMPR-3.1.7.3.2-1")
def test_a_forward_seek_begins_at_the_head_or_after_the_given_place(row: Row) -> None:
    """3.1.7.3.2: from Start the search begins at the head, else at the following position.

    It returns End when no position is Available.
    """
    ids = row.ids
    assert [seek(row, START, peek=False), seek(row, ids[b"a"], peek=False)] == [b"a", b"c"]
    assert [seek(row, ids[b"b"], peek=False), seek(row, ids[b"c"], peek=False)] == [b"c", b"e"]
    assert seek(row, ids[b"e"], peek=False) is None
    row.take_all()
    assert seek(row, START, peek=False) is None


@pytest.mark.spec("DMPR-3.1.7.3.2-2")
def test_a_backward_seek_begins_at_the_tail_or_before_the_given_place(row: Row) -> None:
    """3.1.7.3.2: from End the search begins at the tail, else at the preceding position.

    It returns Start when no position is Available.
    """
    ids = row.ids
    assert seek(row, END, peek=False, backward=True) == b"e"
    assert seek(row, ids[b"e"], peek=False, backward=True) == b"c"
    assert seek(row, ids[b"d"], peek=False, backward=True) == b"c"
    assert seek(row, ids[b"c"], peek=False, backward=True) == b"a"
    assert seek(row, ids[b"a"], peek=False, backward=True) is None
    row.take_all()
    assert seek(row, END, peek=False, backward=True) is None


@pytest.mark.spec("DMPR-3.1.7.3.2-3")
def test_only_a_peek_stops_on_a_lock_that_allows_it(row: Row) -> None:
    """3.1.7.3.2: Locked, iPeekOperation True and AllowPeekWhenLocked True; in both directions."""
    ids = row.ids
    assert [seek(row, ids[b"a"], peek=True), seek(row, ids[b"c"], peek=True)] == [b"c", b"d"]
    assert [seek(row, ids[b"c"], peek=False), seek(row, ids[b"d"], peek=True)] == [b"e", b"e"]
    assert seek(row, ids[b"e"], peek=True, backward=True) == b"d"
    assert seek(row, ids[b"e"], peek=False, backward=True) == b"c"
    assert seek(row, ids[b"c"], peek=True, backward=True) == b"a"
    row.h.engine.dequeue_message_end(row.descriptor, row.locks[b"d"], delete_message=True)
    assert seek(row, ids[b"c"], peek=True) == b"e"


@pytest.mark.spec("DMPR-3.1.7.3.3-1")
@pytest.mark.parametrize("action", [CURRENT, NEXT, PREVIOUS])
def test_an_identifier_that_is_not_in_the_queue_is_not_found(row: Row, action: MessageSeekAction, peek: bool) -> None:
    """3.1.7.3.3: MQ_ERROR_MESSAGE_NOT_FOUND, except for the two reserved identifiers."""
    assert row.refused(action, row.ids[b"e"] + 1, peek=peek) == MQ_ERROR_MESSAGE_NOT_FOUND
    assert row.refused(action, 5, peek=peek) == MQ_ERROR_MESSAGE_NOT_FOUND
    reserved = {NEXT: ALL_ONES, PREVIOUS: 0}
    assert row.refused(action, reserved.get(action, 0), peek=peek) == MQ_ERROR_MESSAGE_NOT_FOUND
    assert row.refused(action, reserved.get(action, ALL_ONES), peek=peek) == MQ_ERROR_MESSAGE_NOT_FOUND


@pytest.mark.spec("DMPR-3.1.7.3.3-1")
def test_a_message_that_was_received_is_not_found_either(row: Row, peek: bool) -> None:
    """3.1.7.3.3: its position has left the list, and no cursor rests on it."""
    assert row.h.receive() == b"a"
    for action in (CURRENT, NEXT, PREVIOUS):
        assert row.refused(action, b"a", peek=peek) == MQ_ERROR_MESSAGE_NOT_FOUND


@pytest.mark.spec("DMPR-3.1.7.3.3-2")
@pytest.mark.parametrize("identifier", [0, 5, ALL_ONES])
def test_first_and_last_ignore_the_identifier(row: Row, identifier: int, peek: bool) -> None:
    """DECISIONS: SeekFirst and SeekLast do not look the identifier up."""
    assert body_of(row.read(FIRST, identifier, peek=peek)) == b"a"
    assert body_of(row.read(LAST, identifier, peek=peek)) == b"e"


@pytest.mark.spec("DMPR-3.1.7.3.3-2")
def test_first_and_last_skip_what_the_read_may_not_have(row: Row) -> None:
    """DECISIONS: the first or last eligible message, which for a peek may be a locked one."""
    for body in (b"a", b"e"):
        row.read(CURRENT, body)
    assert [row.peek(FIRST), row.peek(LAST)] == [b"c", b"d"]
    assert [body_of(row.read(LAST)), row.refused(LAST, peek=False)] == [b"c", MQ_ERROR_MESSAGE_NOT_FOUND]


@pytest.mark.spec("DMPR-3.1.7.3.3-3")
def test_current_next_and_previous_go_from_the_given_message(row: Row) -> None:
    """3.1.7.3.3: the message itself, or the nearest eligible one after or before it."""
    assert [row.peek(CURRENT, b"a"), row.peek(CURRENT, b"c"), row.peek(CURRENT, b"e")] == [b"a", b"c", b"e"]
    assert [row.peek(NEXT, b"a"), row.peek(NEXT, b"b"), row.peek(NEXT, b"c")] == [b"c", b"c", b"d"]
    assert [row.peek(PREVIOUS, b"e"), row.peek(PREVIOUS, b"d"), row.peek(PREVIOUS, b"c")] == [b"d", b"c", b"a"]
    assert body_of(row.read(NEXT, b"c")) == b"e"
    assert body_of(row.read(PREVIOUS, b"d")) == b"c"
    assert body_of(row.read(CURRENT, b"a")) == b"a"


@pytest.mark.spec("DMPR-3.1.7.3.3-3", "DMPR-3.1.1.11-4")
def test_stepping_continues_from_a_deleted_message_under_a_cursor(row: Row) -> None:
    """DMPR-3.1.1.11-4: the position under a cursor keeps its place when the message goes."""
    cursor = row.h.engine.open_cursor(row.descriptor)
    assert cursor is not None
    row.h.engine.peek_message(row.descriptor, cursor=cursor, timeout=0)
    row.h.engine.peek_next_message(row.descriptor, cursor, timeout=0)
    assert cursor.position == row.ids[b"c"]
    row.read(CURRENT, b"c")
    assert [row.peek(PREVIOUS, b"c"), row.peek(NEXT, b"c")] == [b"a", b"d"]


@pytest.mark.spec("DMPR-3.1.7.3.3-4")
def test_a_peek_at_a_locked_message_needs_its_leave(row: Row) -> None:
    """3.1.7.3.3: AllowPeekWhenLocked True returns it, else MQ_ERROR_TRANSACTION_USAGE."""
    assert row.peek(CURRENT, b"d") == b"d"
    assert row.refused(CURRENT, b"b", peek=True) == MQ_ERROR_TRANSACTION_USAGE


@pytest.mark.spec("DMPR-3.1.7.3.3-5", "DMPR-3.1.1.11-4")
def test_why_the_current_message_cannot_be_had(row: Row, peek: bool) -> None:
    """DECISIONS: Deleted and still referenced is ALREADY_RECEIVED, any other state NOT_FOUND."""
    h = row.h
    cursor = h.engine.open_cursor(row.descriptor)
    assert cursor is not None
    h.engine.peek_message(row.descriptor, cursor=cursor, timeout=0)
    row.read(CURRENT, b"a")
    assert row.refused(CURRENT, b"a", peek=peek) == MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    h.engine.close_cursor(cursor)
    assert row.refused(CURRENT, b"a", peek=peek) == MQ_ERROR_MESSAGE_NOT_FOUND
    assert [row.refused(CURRENT, body, peek=False) for body in (b"b", b"d")] == [MQ_ERROR_MESSAGE_NOT_FOUND] * 2
    h.engine.purge_queue(h.queue())
    assert row.locks[b"d"].state is PositionState.PURGE_PENDING
    assert [row.refused(CURRENT, body, peek=peek) for body in (b"b", b"d")] == [MQ_ERROR_MESSAGE_NOT_FOUND] * 2


@pytest.mark.spec("DMPR-3.1.7.3.3-6")
def test_the_reserved_identifiers_mean_the_ends_of_the_queue(row: Row, peek: bool) -> None:
    """DECISIONS: NEXT with 0 and PREVIOUS with all ones do not look the identifier up."""
    assert body_of(row.read(NEXT, 0, peek=peek)) == b"a"
    assert body_of(row.read(PREVIOUS, ALL_ONES, peek=peek)) == b"e"
    row.take_all()
    assert row.refused(NEXT, 0, peek=peek) == MQ_ERROR_MESSAGE_NOT_FOUND
    assert row.refused(PREVIOUS, ALL_ONES, peek=peek) == MQ_ERROR_MESSAGE_NOT_FOUND


# Read Message By Lookup Identifier
# -----------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.13-2")
def test_a_failing_seek_is_the_status_of_the_read(row: Row) -> None:
    """3.1.7.1.13: rStatus of the seek is returned and nothing else happens (`refused` compares)."""
    cursor = row.h.engine.open_cursor(row.descriptor)
    assert cursor is not None
    row.h.engine.peek_message(row.descriptor, cursor=cursor, timeout=0)
    row.read(CURRENT, b"a")
    removals = row.h.removals()
    assert row.refused(CURRENT, b"a", peek=False) == MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    assert row.refused(CURRENT, b"b", peek=True) == MQ_ERROR_TRANSACTION_USAGE
    assert row.refused(CURRENT, b"b", peek=False) == MQ_ERROR_MESSAGE_NOT_FOUND
    assert removals == []


@pytest.mark.spec("DMPR-3.1.7.1.13-3")
def test_stepping_off_either_end_finds_nothing(row: Row, peek: bool) -> None:
    """DECISIONS: the End position yields MQ_ERROR_MESSAGE_NOT_FOUND.

    The text does not test for it.
    """
    assert row.refused(NEXT, b"e", peek=peek) == MQ_ERROR_MESSAGE_NOT_FOUND
    assert row.refused(PREVIOUS, b"a", peek=peek) == MQ_ERROR_MESSAGE_NOT_FOUND
    row.take_all()
    assert row.refused(FIRST, peek=peek) == MQ_ERROR_MESSAGE_NOT_FOUND
    assert row.refused(LAST, peek=peek) == MQ_ERROR_MESSAGE_NOT_FOUND


@pytest.mark.spec("DMPR-3.1.7.1.13-4")
def test_a_peek_by_identifier_changes_nothing_and_takes_no_transaction(row: Row) -> None:
    """3.1.7.1.13: iTransaction MUST NOT be supplied if iPeekOperation is True."""
    before = row.state()
    assert row.peek(CURRENT, b"c") == b"c"
    assert row.state() == before
    transaction = row.h.begin()
    with pytest.raises(InvalidParameter):
        row.read(CURRENT, b"c", peek=True, transaction=transaction)
    assert (row.state(), transaction.transactional_operations) == (before, [])


@pytest.mark.spec("DMPR-3.1.7.1.13-5")
def test_a_receive_by_identifier_deletes_locks_or_joins_a_transaction(row: Row) -> None:
    """3.1.7.1.13: what Dequeue Message does with its position; it never waits."""
    h, removals = row.h, row.h.removals()
    before = h.queue().total_bytes
    transaction = h.begin()
    position = row.read(CURRENT, b"c", transaction=transaction)
    assert (body_of(position), position.state) == (b"c", PositionState.LOCKED)
    [operation] = transaction.transactional_operations
    assert (operation.operation_type, operation.message_position) == (OperationType.DEQUEUE, position)
    assert operation.dequeue_reason is MessageClass.ACK_RECEIVE
    locked = row.read(CURRENT, b"e", two_phase_read=True)
    assert (body_of(locked), locked.state) == (b"e", PositionState.LOCKED)
    assert (removals, h.queue().total_bytes) == ([], before)
    assert body_of(row.read(CURRENT, b"a")) == b"a"
    assert removals == [(b"a", MessageClass.ACK_RECEIVE)]
    h.commit(transaction)
    assert removals == [(b"a", MessageClass.ACK_RECEIVE), (b"c", MessageClass.ACK_RECEIVE)]
    assert row.refused(FIRST, peek=False) == MQ_ERROR_MESSAGE_NOT_FOUND
    assert h.queue().waiting_reads == {}
