"""Places in a queue (MS-MQDMPR 3.1.1.11, 3.1.7.2.1, 3.1.7.2.2, 3.1.7.2.7, 3.1.7.3.2, 3.1.7.3.3).

MessagePositionList is the order of lookup ids in the store. A message that no reader holds has no
object here: `Queue.held_positions` has the positions that are Locked or PurgePending, and every
other message is Available. `Queue.head_hint` is a lookup id up to which no message is Available, so
that a receive from a long run of locked messages does not walk over them again.

A lock by a receive or a two-phase read is in memory only. A crash drops it, as the abort at
start-up (3.1.3) and the release of abandoned reads (DMPR-3.1.1.11-3) require. What must survive is
written: the locks of prepared transactions, and that a locked message was purged.

Seeking, locking and removing are one part: each of them keeps the same three facts of a queue
(`held_positions`, `peekable_locks`, `head_hint`) consistent with the store.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from lanner.engine.expiry import expiry_reason
from lanner.engine.held_memory import HELD_OVERHEAD
from lanner.engine.tables import MOVE_TIME, MOVE_TIMES, POSITION_KEY, PURGE_PENDING
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import INFINITE, MessageClass, MessageSeekAction, OperationType, PositionState
from lanner.model.errors import MessageAlreadyReceived, MessageNotFound, TransactionUsage
from lanner.model.events import EventKind
from lanner.model.live import (
    ALLOW_PEEK_WHEN_LOCKED,
    END,
    MAX_LOOKUP_ID,
    START,
    MessagePosition,
    TransactionalOperation,
)
from lanner.model.lookup_ids import lane_of
from lanner.wire.envelope import RECOVERABLE, Envelope, is_express, may_expire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lanner.engine.core import Core
    from lanner.engine.expiry import Expiry
    from lanner.engine.waiting import WaitingReads
    from lanner.model.directory_objects import Queue
    from lanner.model.live import Record

    # MS-MQDMPR 3.1.7.2: events that co-located protocols consume.
    PositionDeleted = Callable[[Queue, MessagePosition, MessageClass], None]
    # Messages under consecutive lookup ids: the first lookup id, and the records.
    PositionsAvailable = Callable[[Queue, int, Sequence[Record]], None]

# MS-MQQP passes these with SeekNext and SeekPrevious to mean "from the end of the list"
# (DMPR-3.1.7.3.3-6).
LOOKUP_ID_BEFORE_FIRST: Final = 0
LOOKUP_ID_AFTER_LAST: Final = MAX_LOOKUP_ID

# Not in the specification: bytes of packets that are read at once.
_RUN_BYTES: Final = 8 << 20

# Module-level names: Python 3.11 looks up members of an enumeration several times as slowly.
_AVAILABLE, _DELETED = PositionState.AVAILABLE, PositionState.DELETED
_ACK_RECEIVE: Final = MessageClass.ACK_RECEIVE
_LOCKED, _PURGE_PENDING = PositionState.LOCKED, PositionState.PURGE_PENDING


class Positions:
    """Finding, locking, releasing, storing and removing messages."""

    def __init__(self, core: Core, waiting: WaitingReads, expiry: Expiry) -> None:
        self._store = core.store
        self._clocks = core.clocks
        self._queue_manager = core.queue_manager
        self._recorder = core.recorder
        self._shares = core.shares
        self.held_memory = core.held_memory
        self.waiting = waiting
        self.expiry = expiry
        self._purge_pending_table = core.store.table(PURGE_PENDING)
        self._move_times_table = core.store.table(MOVE_TIMES)
        # Messages that have expired since the queue manager started.
        self.expiries = 0
        # Subqueues that may be unused now; the next timer event checks them.
        self.emptied: list[Queue] = []
        self.deleted_subscribers: list[PositionDeleted] = []
        self.available_subscribers: list[PositionsAvailable] = []

    # Seeks ----------------------------------------------------------------------------------------

    def seek_available_message_position(
        self, queue: Queue, initial: int, *, peek: bool, backward: bool = False
    ) -> MessagePosition | None:
        """3.1.7.3.2 Seek Available Message Position. None stands for the End position."""
        found = self._seek_backward(queue, initial) if backward else self.seek_forward(queue, initial)
        if peek and queue.peekable_locks:
            return self._nearer_peekable_lock(queue, initial, found, backward=backward)
        return found

    def peek_after(self, queue: Queue, initial: int) -> MessagePosition | None:
        """Return the first position after `initial` that a peek may show; None if there is none."""
        return self.seek_available_message_position(queue, initial, peek=True)

    def seek_forward(self, queue: Queue, initial: int) -> MessagePosition | None:
        """Return the first Available position after `initial`; None if there is none."""
        hint = queue.head_hint
        after = hint if hint > initial else initial  # noqa: FURB136 (max() costs three times as much)
        found = self._store.read_next(queue.number, after, queue.held_positions)
        if found is None:
            return None
        lookup_id, record = found
        if after == hint:
            queue.head_hint = lookup_id - 1
        return MessagePosition(queue, lookup_id, record)

    def seek_run(self, queue: Queue, count: int, size: int, *, is_taken: bool) -> list[tuple[int, Record]]:
        """Return the first Available messages, at most `count` and `size` bytes of packets.

        With `is_taken` they are deleted in the store. Otherwise the caller must lock them. Either
        way they are no longer Available.
        """
        work = self._store.take_run if is_taken else self._store.read_run
        rows = work(queue.number, queue.head_hint, MAX_LOOKUP_ID, count, size, queue.held_positions)
        if rows:
            queue.head_hint = rows[-1][0]
        return rows

    def _seek_backward(self, queue: Queue, initial: int) -> MessagePosition | None:
        store, number, held = self._store, queue.number, queue.held_positions
        before = initial
        while (lookup_id := store.previous(number, before)) is not None:
            before = lookup_id
            if lookup_id in held:
                continue
            record = store.get(number, lookup_id)
            if record is not None:
                return MessagePosition(queue, lookup_id, record)
        return None

    @staticmethod
    def _nearer_peekable_lock(
        queue: Queue, initial: int, found: MessagePosition | None, *, backward: bool
    ) -> MessagePosition | None:
        """Return a nearer Locked position that allows peeks, or `found` (DMPR-3.1.7.3.2-3)."""
        if backward:
            ids = [i for i in queue.peekable_locks if i < initial]
            nearest = max(ids, default=None)
            if nearest is None or (found is not None and found.lookup_id > nearest):
                return found
        else:
            ids = [i for i in queue.peekable_locks if i > initial]
            nearest = min(ids, default=None)
            if nearest is None or (found is not None and found.lookup_id < nearest):
                return found
        return queue.peekable_locks[nearest]

    def seek_available_message_position_with_id(
        self, queue: Queue, lookup_id: int, *, peek: bool, action: MessageSeekAction
    ) -> MessagePosition:
        """3.1.7.3.3 Seek Available Message Position With Id, with DMPR-3.1.7.3.3-1 to -6."""
        if action is MessageSeekAction.CURRENT:
            return self.seek_current(queue, lookup_id, peek=peek)
        backward = action in (MessageSeekAction.PREVIOUS, MessageSeekAction.LAST)
        if action is MessageSeekAction.FIRST or (
            action is MessageSeekAction.NEXT and lookup_id == LOOKUP_ID_BEFORE_FIRST
        ):
            initial = START
        elif action is MessageSeekAction.LAST or (
            action is MessageSeekAction.PREVIOUS and lookup_id == LOOKUP_ID_AFTER_LAST
        ):
            initial = END
        elif self._position_exists(queue, lookup_id):
            initial = lookup_id
        else:
            raise _not_found(queue, lookup_id)
        found = self.seek_available_message_position(queue, initial, peek=peek, backward=backward)
        if found is None:
            raise MessageNotFound(f"queue {queue.pathname}: no message {action.value} of lookup id {lookup_id:#x}")
        return found

    def seek_current(self, queue: Queue, lookup_id: int, *, peek: bool) -> MessagePosition:
        """Return the position of a lookup id if it is Available or a peek may see it."""
        held = queue.held_positions.get(lookup_id)
        if held is not None:
            if peek and held.state is _LOCKED:
                if held.record.flags & ALLOW_PEEK_WHEN_LOCKED:
                    return held
                raise TransactionUsage(f"message {lookup_id:#x} of queue {queue.pathname} is locked by a reader")
            raise _not_found(queue, lookup_id)
        record = self._store.get(queue.number, lookup_id)
        if record is not None:
            return MessagePosition(queue, lookup_id, record)
        if self._is_under_a_cursor(queue, lookup_id):
            raise MessageAlreadyReceived(f"message {lookup_id:#x} of queue {queue.pathname} was received")
        raise _not_found(queue, lookup_id)

    def _position_exists(self, queue: Queue, lookup_id: int) -> bool:
        return (
            lookup_id in queue.held_positions
            or self._store.get(queue.number, lookup_id) is not None
            or self._is_under_a_cursor(queue, lookup_id)
        )

    @staticmethod
    def _is_under_a_cursor(queue: Queue, lookup_id: int) -> bool:
        """Return whether a cursor rests on a position.

        Such a position still exists after its message is deleted (DMPR-3.1.1.11-4).
        """
        return any(
            cursor.position == lookup_id
            for descriptor in queue.open_queue_descriptors.values()
            for cursor in descriptor.cursors
        )

    # Holding --------------------------------------------------------------------------------------

    def lock(self, position: MessagePosition, holder: bytes = b"") -> None:
        """Set the state to Locked, in memory.

        `holder` is the SID of the user that locks the message.
        """
        if holder:
            self.held_memory.hold(position, holder)
        position.state = _LOCKED
        queue = position.queue
        if queue.head_hint == position.lookup_id - 1:
            queue.head_hint = position.lookup_id
        queue.held_positions[position.lookup_id] = position
        if position.record.flags & ALLOW_PEEK_WHEN_LOCKED:
            queue.peekable_locks[position.lookup_id] = position

    def lock_run(self, queue: Queue, positions: Sequence[MessagePosition], holder: bytes) -> None:
        """Set new messages, or messages that `seek_run` found, to Locked."""
        size = 0
        held = queue.held_positions
        for position in positions:
            position.state = _LOCKED
            position.holder = holder
            held[position.lookup_id] = position
            record = position.record
            size += len(record.packet) + HELD_OVERHEAD
            if record.flags & ALLOW_PEEK_WHEN_LOCKED:
                queue.peekable_locks[position.lookup_id] = position
        if holder:
            self.held_memory.add(holder, size)
        # New messages have consecutive lookup ids. For others, `seek_run` has moved the hint
        # already.
        if queue.head_hint == positions[0].lookup_id - 1:
            queue.head_hint = positions[-1].lookup_id

    def unhold(self, position: MessagePosition) -> None:
        """Release the lock of a position. The caller sets its state."""
        if position.holder:
            self.held_memory.release(position)
        queue = position.queue
        queue.held_positions.pop(position.lookup_id, None)
        queue.peekable_locks.pop(position.lookup_id, None)
        position.transaction = None

    def unhold_run(self, queue: Queue, positions: Sequence[MessagePosition]) -> None:
        """Release the locks of positions that one transaction sends."""
        size, holder = 0, positions[0].holder
        held, peekable = queue.held_positions, queue.peekable_locks
        for position in positions:
            held.pop(position.lookup_id, None)
            if peekable:
                peekable.pop(position.lookup_id, None)
            position.transaction = None
            if position.holder != holder:
                self.held_memory.release(position)
            else:
                position.holder = b""
                size += len(position.record.packet) + HELD_OVERHEAD
        if holder:
            self.held_memory.add(holder, -size)

    def purge_pending(self, position: MessagePosition) -> None:
        """Set the state to PurgePending, durably.

        Otherwise the message would return after a crash (DMPR-3.1.1.11-5).
        """
        position.state = _PURGE_PENDING
        position.queue.peekable_locks.pop(position.lookup_id, None)
        self._purge_pending_table.put(_position_key(position), b"")

    def forget_purge(self, position: MessagePosition) -> None:
        """Delete the note that a locked message was purged, if there is one.

        Called for messages that leave the queue in another way.
        """
        if position.state is _PURGE_PENDING:
            self._purge_pending_table.delete(_position_key(position))

    def recover_purges(self) -> None:
        """Remove messages that were purged, but locked, before the last stop.

        Locks of prepared transactions remain.
        """
        for key, _ in list(self._purge_pending_table.items()):
            number, lookup_id = POSITION_KEY.unpack(key)
            queue = self._queue_manager.queue_collection.get(number)
            record = None if queue is None else self._store.get(number, lookup_id)
            if queue is None or record is None:
                self._purge_pending_table.delete(key)
                continue
            held = queue.held_positions.get(lookup_id)
            if held is not None:
                held.state = _PURGE_PENDING
            else:
                position = MessagePosition(queue, lookup_id, record, _PURGE_PENDING)
                self.message_position_deleted(queue, position, MessageClass.NACK_QUEUE_PURGED)

    # Moves ----------------------------------------------------------------------------------------

    def moved(self, position: MessagePosition) -> None:
        """Note when a message was moved, durably."""
        self._move_times_table.put(_position_key(position), MOVE_TIME.pack(int(self._clocks.wall())))

    def last_move_time(self, position: MessagePosition) -> int:
        """Return when a message was moved last, in seconds since 1970 UTC; 0 if it never was."""
        stored = self._move_times_table.get(_position_key(position)) if position.record.move_count else None
        return 0 if stored is None else int(MOVE_TIME.unpack(stored)[0])

    def recover_move_times(self) -> None:
        """Forget the moves of express messages, which did not survive the last stop."""
        for key, _ in list(self._move_times_table.items()):
            if self._store.get(*POSITION_KEY.unpack(key)) is None:
                self._move_times_table.delete(key)

    # All positions --------------------------------------------------------------------------------

    def all_positions(self, queue: Queue) -> Iterator[MessagePosition]:
        """Yield every position of the list, held or not. The caller may remove them meanwhile."""
        yield from list(queue.held_positions.values())
        after = START
        while (lookup_id := self._store.next(queue.number, after)) is not None:
            after = lookup_id
            if lookup_id not in queue.held_positions:
                record = self._store.get(queue.number, lookup_id)
                if record is not None:
                    yield MessagePosition(queue, lookup_id, record)

    def go_back(self) -> None:
        """Release locks on messages that the store has undone because they were not synced."""
        for queue in self._queue_manager.queue_collection.values():
            queue.head_hint = START
            queue.unserved_positions.clear()
            for position in list(queue.held_positions.values()):
                if position.is_uncommitted_send:
                    continue
                if self._store.get(queue.number, position.lookup_id) is None:
                    position.state = _DELETED
                    self.unhold(position)

    # Events that other protocols consume ----------------------------------------------------------

    def message_position_deleted(self, queue: Queue, position: MessagePosition, reason: MessageClass) -> None:
        """3.1.7.2.1 Message Position Deleted."""
        if position.state is _PURGE_PENDING:
            self._purge_pending_table.delete(_position_key(position))
        if self._recorder is not None:
            self._recorder.removed(position, reason)
        self.remove(queue, position)
        for subscriber in self.deleted_subscribers:
            subscriber(queue, position, reason)

    def remove(self, queue: Queue, position: MessagePosition) -> None:
        """Remove a position and subtract its bytes from the totals, without an event."""
        record, lookup_id = position.record, position.lookup_id
        size = len(record.packet)
        queue.total_bytes -= size
        self._queue_manager.total_bytes -= size
        if self._shares.sources:
            self._shares.removed(queue, record.packet)
        position.state = _DELETED
        if queue.head_hint == lookup_id - 1:
            queue.head_hint = lookup_id
        if lookup_id in queue.held_positions:
            self.unhold(position)
        if position.is_uncommitted_send:
            position.is_uncommitted_send = False
        else:
            queue.message_count -= 1
            queue.removed_count += 1
            self._store.delete(queue.number, lookup_id, record)
            if may_expire(record.packet, in_transit=isinstance(queue, OutgoingQueue)):
                self.expiry.disarm(queue, ((lookup_id, record),))
            if record.move_count:
                self._move_times_table.delete(_position_key(position))
        if queue.ends_when_unused:
            self.may_be_unused(queue)

    def may_be_unused(self, queue: Queue) -> None:
        """Have the next timer event delete a subqueue if it has no use any more."""
        if not queue.message_count:
            self.emptied.append(queue)
            self._clocks.deadline_changed()

    def messages_received(self, queue: Queue, rows: Sequence[tuple[int, Record]]) -> list[MessagePosition]:
        """3.1.7.2.1 Message Position Deleted for messages that were deleted in the store.

        Returns their positions.
        """
        positions = [MessagePosition(queue, lookup_id, record, _DELETED) for lookup_id, record in rows]
        self._tell_received(queue, positions, rows)
        return positions

    def receive_numbered(self, queue: Queue, numbers: Mapping[int, int]) -> int:
        """Receive the messages with these lookup ids, given with their visibility numbers.

        Returns how many there were. Messages that a reader holds, that are gone, or that have
        another number by now are passed over.
        """
        store, held = self._store, queue.held_positions
        rows: list[tuple[int, Record]] = []
        for _, lane in groupby(sorted(numbers), lane_of):
            ids = list(lane)
            rows += store.take_numbered(queue.number, ids[0] - 1, ids[-1], len(ids), _RUN_BYTES, numbers, held)
        if len(rows) < len(numbers):
            # A run was cut off, because there are other messages between these, or a damaged one.
            missing = numbers.keys() - dict(rows).keys() - held.keys()
            found = [(lookup_id, store.get(queue.number, lookup_id)) for lookup_id in sorted(missing)]
            rest = [(i, record) for i, record in found if record is not None and record.visibility == numbers[i]]
            rows += store.delete_run(queue.number, rest)
        rows.sort(key=lambda row: row[1].visibility)
        self.messages_received(queue, rows)
        return len(rows)

    def locked_messages_received(self, queue: Queue, positions: Sequence[MessagePosition]) -> None:
        """3.1.7.2.1 Message Position Deleted for messages that are Locked."""
        self.unhold_run(queue, positions)
        rows = [(position.lookup_id, position.record) for position in positions]
        self._store.delete_run(queue.number, rows)
        for position in positions:
            position.state = _DELETED
        self._tell_received(queue, positions, rows)

    def _tell_received(
        self, queue: Queue, positions: Sequence[MessagePosition], rows: Sequence[tuple[int, Record]]
    ) -> None:
        if self._recorder is not None:
            self._recorder.run_removed(queue, rows, _ACK_RECEIVE)
        self.remove_run(queue, rows)
        for position in positions:
            for subscriber in self.deleted_subscribers:
                subscriber(queue, position, _ACK_RECEIVE)

    def remove_run(self, queue: Queue, rows: Sequence[tuple[int, Record]]) -> None:
        """Subtract messages that no reader holds from the totals of their queue.

        The caller has deleted them in the store.
        """
        size = 0
        for lookup_id, record in rows:
            size += len(record.packet)
            if queue.head_hint == lookup_id - 1:
                queue.head_hint = lookup_id
            if record.move_count:
                self._move_times_table.delete(POSITION_KEY.pack(queue.number, lookup_id))
        queue.message_count -= len(rows)
        queue.removed_count += len(rows)
        queue.total_bytes -= size
        self._queue_manager.total_bytes -= size
        if self._shares.sources:
            for _, record in rows:
                self._shares.removed(queue, record.packet)
        in_transit = isinstance(queue, OutgoingQueue)
        self.expiry.disarm(queue, [row for row in rows if may_expire(row[1].packet, in_transit=in_transit)])
        if queue.ends_when_unused:
            self.may_be_unused(queue)

    def message_position_available(self, queue: Queue, position: MessagePosition) -> None:
        """3.1.7.2.2 Message Position Available.

        The bytes of the message were counted when it arrived (DECISIONS).
        """
        position.state = _AVAILABLE
        for subscriber in self.available_subscribers:
            subscriber(queue, position.lookup_id, (position.record,))
        if queue.waiting_reads:
            self.waiting.serve(queue, position)

    def message_positions_available(self, queue: Queue, first: int, records: Sequence[Record]) -> None:
        """3.1.7.2.2 Message Position Available for new messages under consecutive lookup ids."""
        for subscriber in self.available_subscribers:
            subscriber(queue, first, records)
        for lookup_id, record in enumerate(records, first):
            if not queue.waiting_reads:
                break
            self.waiting.serve(queue, MessagePosition(queue, lookup_id, record))

    def give_back(self, position: MessagePosition, *, is_abort: bool) -> None:
        """Release a lock whose message was not received.

        The message becomes Available in its old place, unless it has expired.
        """
        queue = position.queue
        if position.state is _PURGE_PENDING:
            self.unhold(position)
            self.message_position_deleted(queue, position, MessageClass.NACK_QUEUE_PURGED)
            return
        self.unhold(position)
        if self.expiry.has_expired(position):
            self.expiries += 1
            self.message_position_deleted(queue, position, expiry_reason(queue))
            return
        if is_abort:
            position.record.abort_count += 1
        position.record.state = _AVAILABLE
        # The flag belongs to the lock that ends; the next reader may not want it (MC-MQAC
        # 3.11.4.1.33).
        position.record.flags &= ~ALLOW_PEEK_WHEN_LOCKED
        queue.head_hint = min(queue.head_hint, position.lookup_id - 1)
        if self._recorder is not None:
            self._recorder.add(EventKind.RECEIVE_ABORTED, position)
        # Written again to store the abort count and to give it a new number in the visibility
        # sequence.
        self._store.put(queue.number, position.lookup_id, position.record, express=is_express(position.record.packet))
        self.message_position_available(queue, position)

    def count(self, queue: Queue) -> None:
        """Set MessageCount and TotalBytes from the store and from uncommitted sends."""
        queue.message_count, queue.total_bytes = self._store.stats(queue.number)
        for position in queue.held_positions.values():
            if position.is_uncommitted_send:
                if position.transaction is not None and position.transaction.is_prepared:
                    queue.message_count -= 1
                else:
                    queue.total_bytes += len(position.record.packet)

    # Storing --------------------------------------------------------------------------------------

    def write(self, position: MessagePosition, envelope: Envelope) -> None:
        """Write a position whose bytes are counted already. The next commit makes it visible."""
        queue = position.queue
        queue.message_count += 1
        if position.lookup_id <= queue.head_hint:
            queue.head_hint = position.lookup_id - 1
        self._store.put(
            queue.number, position.lookup_id, position.record, express=not envelope.user_flags & RECOVERABLE
        )
        if envelope.time_to_be_received != INFINITE or isinstance(queue, OutgoingQueue):
            self.expiry.arm(position, envelope)

    def write_run(self, queue: Queue, first: int, records: Sequence[Record], envelope: Envelope) -> None:
        """Write new messages with equal envelopes under consecutive lookup ids.

        Their bytes are counted already.
        """
        queue.message_count += len(records)
        if first <= queue.head_hint:
            queue.head_hint = first - 1
        is_express = not envelope.user_flags & RECOVERABLE
        self._store.put_run(queue.number, first, records, express=is_express)
        if envelope.time_to_be_received != INFINITE or isinstance(queue, OutgoingQueue):
            self.expiry.arm_run(queue, first, len(records), envelope, is_volatile=is_express)

    def time_to_be_received_timer_expired(self, position: MessagePosition) -> bool:
        """3.1.7.2.7 Time To Be Received Timer Expired.

        Returns False if the message is locked; it then expires when the lock ends.
        """
        if position.is_uncommitted_send and position.transaction is not None:
            position.transaction.transactional_operations.append(
                TransactionalOperation(
                    OperationType.DEQUEUE, position, dequeue_reason=MessageClass.NACK_RECEIVE_TIMEOUT
                )
            )
            return True
        if position.state is _AVAILABLE:
            self.expiries += 1
            self.message_position_deleted(position.queue, position, expiry_reason(position.queue))
            return True
        return False


def _position_key(position: MessagePosition) -> bytes:
    return POSITION_KEY.pack(position.queue.number, position.lookup_id)


def _not_found(queue: Queue, lookup_id: int) -> MessageNotFound:
    return MessageNotFound(f"no message with lookup id {lookup_id:#x} in queue {queue.pathname}")
