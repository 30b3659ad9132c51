"""Places in a queue (MS-MQDMPR 3.1.1.11, 3.1.7.2.1, 3.1.7.2.2, 3.1.7.2.7, 3.1.7.3.2, 3.1.7.3.3).

MessagePositionList is the order of lookup ids in the store. A message nobody holds has no object here;
`Queue.held_positions` has those that are Locked or PurgePending, and everything that is not in it is
Available. `Queue.head_hint` remembers below which lookup id nothing is Available, so that a receive
from a long run of locked messages does not walk over them again.

A lock by a receive or a two-phase read is in memory only: after a crash it is gone, which is what the
abort at start-up (3.1.3) and the release of abandoned reads (DMPR-3.1.1.11-3) ask for. What must
survive is written: the locks of prepared transactions, and that a locked message was purged.
"""

from __future__ import annotations

import heapq
from itertools import islice
from typing import TYPE_CHECKING

from lanner.engine.envelope import Envelope, is_express, may_expire, read_envelope
from lanner.engine.tables import EXPIRY_BLOCK, EXPIRY_KEY, HOLD, POSITION_KEY, QUEUE_KEY
from lanner.engine.waiting import WaitingReads
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import INFINITE, MessageClass, MessageSeekAction, OperationType, PositionState
from lanner.model.errors import MessageAlreadyReceived, MessageNotFound, TransactionUsage
from lanner.model.events import EventKind
from lanner.model.live import END, MAX_LOOKUP_ID, START, MessagePosition, TransactionalOperation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lanner.model.directory_objects import Queue

# Record.flags: a peek may see the message while it is locked (MS-MQDMPR 3.1.1.12 AllowPeekWhenLocked).
ALLOW_PEEK_WHEN_LOCKED = 0x0001
# Record.flags: a copy in a dead-letter queue or journal. Its time has run out or no longer counts, and what it
# asked of others was done when the copy was made; an application's dead-letter queue is a queue like any other.
DEAD_LETTER = 0x0002

# MS-MQQP passes these with SeekNext and SeekPrevious for "from the end of the list" (DMPR-3.1.7.3.3-6).
LOOKUP_ID_BEFORE_FIRST = 0
LOOKUP_ID_AFTER_LAST = MAX_LOOKUP_ID

# By names of their own: in Python 3.11 an enumeration looks a member up several times as slowly.
_AVAILABLE, _DELETED, _PURGE_PENDING = PositionState.AVAILABLE, PositionState.DELETED, PositionState.PURGE_PENDING

_MAX_DEADLINE = 0xFFFF_FFFF
_BLOCK_MASK = -EXPIRY_BLOCK
# A row that is there for messages from before the start, too.
_UNCOUNTED = 1 << 40
# Ours: a heap of deadlines that is shorter is not worth a look.
_MIN_EXPIRY = 1024
# Ours: so many messages expire under one hold of the store's lock, and in one commit.
EXPIRY_SLICE = 1000


class Positions(WaitingReads):
    """Finding, taking, giving back and removing messages."""

    # Seeks ------------------------------------------------------------------------------------------

    def _seek_available_message_position(
        self, queue: Queue, initial: int, *, peek: bool, backward: bool = False
    ) -> MessagePosition | None:
        """3.1.7.3.2 Seek Available Message Position; None stands for the End position."""
        found = self._seek_backward(queue, initial) if backward else self._seek_forward(queue, initial)
        if peek and queue.peekable_locks:
            return self._nearer_peekable_lock(queue, initial, found, backward=backward)
        return found

    def _seek_forward(self, queue: Queue, initial: int) -> MessagePosition | None:
        hint = queue.head_hint
        after = hint if hint > initial else initial  # noqa: FURB136 (max() costs three times as much)
        found = self.store.read_next(queue.number, after, queue.held_positions)
        if found is None:
            return None
        lookup_id, record = found
        if after == hint:
            queue.head_hint = lookup_id - 1
        return MessagePosition(queue, lookup_id, record)

    def _seek_backward(self, queue: Queue, initial: int) -> MessagePosition | None:
        store, number, held = self.store, queue.number, queue.held_positions
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
        """A peek also stops on a Locked position whose message allows it (DMPR-3.1.7.3.2-3)."""
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

    def _seek_available_message_position_with_id(
        self, queue: Queue, lookup_id: int, *, peek: bool, action: MessageSeekAction
    ) -> MessagePosition:
        """3.1.7.3.3 Seek Available Message Position With Id, with DMPR-3.1.7.3.3-1 to -6."""
        if action is MessageSeekAction.CURRENT:
            return self._seek_current(queue, lookup_id, peek=peek)
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
            raise self._not_found(queue, lookup_id)
        found = self._seek_available_message_position(queue, initial, peek=peek, backward=backward)
        if found is None:
            raise MessageNotFound(f"queue {queue.pathname}: no message {action.value} of lookup id {lookup_id:#x}")
        return found

    def _seek_current(self, queue: Queue, lookup_id: int, *, peek: bool) -> MessagePosition:
        held = queue.held_positions.get(lookup_id)
        if held is not None:
            if peek and held.state is PositionState.LOCKED:
                if held.record.flags & ALLOW_PEEK_WHEN_LOCKED:
                    return held
                raise TransactionUsage(f"message {lookup_id:#x} of queue {queue.pathname} is locked by a reader")
            raise self._not_found(queue, lookup_id)
        record = self.store.get(queue.number, lookup_id)
        if record is not None:
            return MessagePosition(queue, lookup_id, record)
        if self._is_under_a_cursor(queue, lookup_id):
            raise MessageAlreadyReceived(f"message {lookup_id:#x} of queue {queue.pathname} was received")
        raise self._not_found(queue, lookup_id)

    def _position_exists(self, queue: Queue, lookup_id: int) -> bool:
        return (
            lookup_id in queue.held_positions
            or self.store.get(queue.number, lookup_id) is not None
            or self._is_under_a_cursor(queue, lookup_id)
        )

    @staticmethod
    def _is_under_a_cursor(queue: Queue, lookup_id: int) -> bool:
        """A deleted position lives on while a cursor rests on it (DMPR-3.1.1.11-4)."""
        return any(
            cursor.position == lookup_id for descriptor in queue.open_queue_descriptors for cursor in descriptor.cursors
        )

    @staticmethod
    def _not_found(queue: Queue, lookup_id: int) -> MessageNotFound:
        return MessageNotFound(f"no message with lookup id {lookup_id:#x} in queue {queue.pathname}")

    # Holding ----------------------------------------------------------------------------------------

    def _lock(self, position: MessagePosition) -> None:
        """State := Locked, in memory."""
        position.state = PositionState.LOCKED
        queue = position.queue
        if queue.head_hint == position.lookup_id - 1:
            queue.head_hint = position.lookup_id
        queue.held_positions[position.lookup_id] = position
        if position.record.flags & ALLOW_PEEK_WHEN_LOCKED:
            queue.peekable_locks[position.lookup_id] = position

    @staticmethod
    def _unhold(position: MessagePosition) -> None:
        queue = position.queue
        queue.held_positions.pop(position.lookup_id, None)
        queue.peekable_locks.pop(position.lookup_id, None)
        position.transaction = None

    def _purge_pending(self, position: MessagePosition) -> None:
        """State := PurgePending, durably: it must not come back after a crash (DMPR-3.1.1.11-5)."""
        position.state = PositionState.PURGE_PENDING
        position.queue.peekable_locks.pop(position.lookup_id, None)
        self._purge_pending_table.put(self._position_key(position), b"")

    @staticmethod
    def _position_key(position: MessagePosition) -> bytes:
        return POSITION_KEY.pack(position.queue.number, position.lookup_id)

    # Events other protocols consume -------------------------------------------------------------------

    def message_position_deleted(self, queue: Queue, position: MessagePosition, reason: MessageClass) -> None:
        """3.1.7.2.1 Message Position Deleted."""
        if position.state is _PURGE_PENDING:
            self._purge_pending_table.delete(self._position_key(position))
        if self.events is not None:
            self.events.removed(position, reason)
        self._remove(queue, position)
        for subscriber in self.position_deleted_subscribers:
            subscriber(queue, position, reason)

    def _remove(self, queue: Queue, position: MessagePosition, *, is_deleted: bool = False) -> None:
        """Take a position out of the list, if it is not out of the store already, and its bytes out of the totals, telling nobody."""
        record, lookup_id = position.record, position.lookup_id
        size = len(record.packet)
        queue.total_bytes -= size
        self.queue_manager.total_bytes -= size
        position.state = _DELETED
        if queue.head_hint == lookup_id - 1:
            queue.head_hint = lookup_id
        if lookup_id in queue.held_positions:
            self._unhold(position)
        if position.is_uncommitted_send:
            position.is_uncommitted_send = False
        else:
            queue.message_count -= 1
            if not is_deleted:
                self.store.delete(queue.number, lookup_id, record)
            if may_expire(record.packet, in_transit=isinstance(queue, OutgoingQueue)):
                self._disarm_expiry(position)

    def message_position_available(self, queue: Queue, position: MessagePosition) -> None:
        """3.1.7.2.2 Message Position Available; the bytes were counted when the message came (DECISIONS)."""
        position.state = _AVAILABLE
        if self.position_available_subscribers:
            for subscriber in self.position_available_subscribers:
                subscriber(queue, position)
        if queue.waiting_reads:
            self._serve_waiting_reads(queue, position)

    def _give_back(self, position: MessagePosition, *, is_abort: bool) -> None:
        """A lock ends without a receive: Available again in the old place, unless its time has run out."""
        queue = position.queue
        if position.state is PositionState.PURGE_PENDING:
            self._unhold(position)
            self.message_position_deleted(queue, position, MessageClass.NACK_QUEUE_PURGED)
            return
        self._unhold(position)
        if self._has_expired(position):
            self.expiries += 1
            self.message_position_deleted(queue, position, self._expiry_reason(queue))
            return
        if is_abort:
            position.record.abort_count += 1
        position.record.state = PositionState.AVAILABLE
        # Of the lock that has ended: whoever locks it next may not want that (MC-MQAC 3.11.4.1.33).
        position.record.flags &= ~ALLOW_PEEK_WHEN_LOCKED
        queue.head_hint = min(queue.head_hint, position.lookup_id - 1)
        if self.events is not None:
            self.events.add(EventKind.RECEIVE_ABORTED, position)
        # Written again: it gets a new place in the visibility sequence, and its abort count is kept.
        self.store.put(queue.number, position.lookup_id, position.record, express=is_express(position.record.packet))
        self.message_position_available(queue, position)

    def _count(self, queue: Queue) -> None:
        """MessageCount and TotalBytes from the store, and the sends that are not there yet."""
        queue.message_count, queue.total_bytes = self.store.stats(queue.number)
        for position in queue.held_positions.values():
            if position.is_uncommitted_send:
                if position.transaction is not None and position.transaction.is_prepared:
                    queue.message_count -= 1
                else:
                    queue.total_bytes += len(position.record.packet)

    # Storing ------------------------------------------------------------------------------------------

    def _store(self, position: MessagePosition, envelope: Envelope) -> None:
        """Write a position whose bytes are counted already; it is visible from this commit on."""
        queue = position.queue
        queue.message_count += 1
        if position.lookup_id <= queue.head_hint:
            queue.head_hint = position.lookup_id - 1
        self.store.put(queue.number, position.lookup_id, position.record, express=envelope.is_express)
        if envelope.time_to_be_received != INFINITE or isinstance(queue, OutgoingQueue):
            self._arm_expiry(position, envelope)

    # Time To Be Received (3.1.2.4) and, in an outgoing queue, Time To Reach Queue -----------------------

    def _deadline(self, queue: Queue, envelope: Envelope) -> int | None:
        if isinstance(queue, OutgoingQueue):
            return envelope.delivered_by()
        return None if queue.is_system else envelope.received_by()

    def _arm_expiry(self, position: MessagePosition, envelope: Envelope) -> None:
        deadline = self._deadline(position.queue, envelope)
        if deadline is None or position.record.flags & DEAD_LETTER:
            return
        deadline = min(deadline, _MAX_DEADLINE)
        if envelope.is_express or position.is_uncommitted_send:
            heapq.heappush(self._volatile_expiry, (deadline, position.queue.number, position.lookup_id))
            if len(self._volatile_expiry) > self._volatile_expiry_limit:
                self._drop_volatile_expiry()
        else:
            self._count_in(deadline, position)
        if self._next_expiry is None or deadline < self._next_expiry:
            self._next_expiry = deadline
            self.deadline_changed()

    def _drop_volatile_expiry(self) -> None:
        """Take messages out of the heap that were received or stored meanwhile: their time may be days away."""
        heap = self._volatile_expiry
        heap[:] = [entry for entry in heap if self._is_volatile(*entry[1:])]
        heapq.heapify(heap)
        self._volatile_expiry_limit = 2 * len(heap) + _MIN_EXPIRY

    def _is_volatile(self, number: int, lookup_id: int) -> bool:
        queue = self.queue_manager.queue_collection.get(number)
        held = None if queue is None else queue.held_positions.get(lookup_id)
        return (held is not None and held.is_uncommitted_send) or self.store.is_express(number, lookup_id)

    def _disarm_expiry(self, position: MessagePosition) -> None:
        envelope = read_envelope(position.record.packet)
        deadline = self._deadline(position.queue, envelope)
        if deadline is not None and not envelope.is_express and not position.record.flags & DEAD_LETTER:
            self._count_out(min(deadline, _MAX_DEADLINE), position)

    # Messages that come one after the other mostly expire in the same second: all of a block of lookup ids that do share a row of the table. What is in a
    # row from before the start is not known; such a row stays until it is due.

    def _count_in(self, deadline: int, position: MessagePosition) -> None:
        block = (deadline, position.queue.number, position.lookup_id & _BLOCK_MASK)
        count = self._expiry_blocks.get(block)
        if count is None:
            row = EXPIRY_KEY.pack(*block)
            if self._expiry_table.get(row) is None:
                self._expiry_table.put(row, b"")
                count = 0
            else:
                count = _UNCOUNTED
        self._expiry_blocks[block] = count + 1

    def _count_out(self, deadline: int, position: MessagePosition) -> None:
        block = (deadline, position.queue.number, position.lookup_id & _BLOCK_MASK)
        count = self._expiry_blocks.get(block, _UNCOUNTED)
        if count > 1:
            if count < _UNCOUNTED:
                self._expiry_blocks[block] = count - 1
        else:
            self._end_block(block)

    def _end_block(self, block: tuple[int, int, int]) -> None:
        """Drop a row, unless there is a message for it."""
        if next(self._expiring(*block), None) is None:
            self._expiry_blocks.pop(block, None)
            self._expiry_table.delete(EXPIRY_KEY.pack(*block))

    def _expiring(self, deadline: int, number: int, lookup_id: int) -> Iterator[int]:
        """The messages of a block that expire at a time."""
        queue = self.queue_manager.queue_collection.get(number)
        at = (lookup_id & _BLOCK_MASK) - 1
        end = at + EXPIRY_BLOCK
        while queue is not None and (found := self.store.next(number, at)) is not None and found <= end:
            at = found
            record = self.store.get(number, found)
            if record is not None and not record.flags & DEAD_LETTER:
                due = self._deadline(queue, read_envelope(record.packet))
                if due is not None and min(due, _MAX_DEADLINE) == deadline:
                    yield found

    def _has_expired(self, position: MessagePosition) -> bool:
        deadline = self._deadline(position.queue, read_envelope(position.record.packet))
        return deadline is not None and deadline <= self.clock() and not position.record.flags & DEAD_LETTER

    def _find_next_expiry(self) -> None:
        first = self._expiry_table.first()
        due = [] if first is None else [EXPIRY_KEY.unpack(first[0])[0]]
        if self._volatile_expiry:
            due.append(self._volatile_expiry[0][0])
        self._next_expiry = min(due, default=None)

    def _expire_messages(self) -> None:
        """Raise Time To Be Received Timer Expired for every message that is due."""
        now = self.clock()
        if self._next_expiry is None or self._next_expiry > now:
            return
        still_locked = False
        ended = 0
        held: list[tuple[int, int, int]] = []
        for entry in self._due(int(now)):
            if ended == EXPIRY_SLICE or len(held) == EXPIRY_SLICE:
                break
            if self._expiry_holds and self._is_held(entry):
                held.append(entry)
                still_locked = True
            elif self._expire(entry):
                ended += 1
            else:
                still_locked = True
        for entry in held:
            if self.store.is_express(*entry[1:]):
                # Taken out of the heap; the end of a hold tells nobody of it.
                heapq.heappush(self._volatile_expiry, entry)
        self._find_next_expiry()
        if still_locked and ended < EXPIRY_SLICE:
            # A locked message's entry stays until the lock ends; look again in a second.
            self._next_expiry = int(now) + 1

    def _due(self, now: int) -> Iterator[tuple[int, int, int]]:
        """What expires now. An entry of the heap is taken out of it when it is done, one of the table goes with its message."""
        heap = self._volatile_expiry
        while heap and heap[0][0] <= now:
            entry = heap[0]
            yield entry
            if heap and heap[0] == entry:
                heapq.heappop(heap)
        for key, _ in islice(self._expiry_table.items(), EXPIRY_SLICE):
            block = deadline, number, _ = EXPIRY_KEY.unpack(key)
            if deadline > now:
                return
            for lookup_id in self._expiring(*block):
                yield deadline, number, lookup_id
            self._end_block(block)

    # Ours: what somebody is processing, and will receive when that is done, does not expire meanwhile. The data pipeline needs it: the
    # range that a batch reads is written down before it is read, and is read again after a crash.

    def hold_expiry(self, queue: Queue, upto: int, seconds: int) -> None:
        """Let nothing of a queue expire up to a visibility number, until it is released; after a restart, for so many seconds."""
        self._expiry_holds[queue.number] = (upto, None)
        self._expiry_holds_table.put(QUEUE_KEY.pack(queue.number), HOLD.pack(upto, seconds))

    def release_expiry(self, queue: Queue, upto: int | None = None) -> None:
        """Let messages expire again, if the hold reaches no further than `upto`."""
        hold = self._expiry_holds.get(queue.number)
        if hold is not None and (upto is None or hold[0] <= upto):
            self._drop_hold(queue.number)

    def _drop_hold(self, number: int) -> None:
        del self._expiry_holds[number]
        self._expiry_holds_table.delete(QUEUE_KEY.pack(number))

    def _load_expiry_holds(self) -> None:
        now = self.monotonic()
        for key, value in list(self._expiry_holds_table.items()):
            number = QUEUE_KEY.unpack(key)[0]
            upto, seconds = HOLD.unpack(value)
            if number in self.queue_manager.queue_collection:
                self._expiry_holds[number] = (upto, now + seconds)
            else:
                self._expiry_holds_table.delete(key)

    def _is_held(self, entry: tuple[int, int, int]) -> bool:
        _, number, lookup_id = entry
        hold = self._expiry_holds.get(number)
        if hold is None:
            return False
        upto, until = hold
        if until is not None and until <= self.monotonic():
            # Whoever held it has not come back.
            self._drop_hold(number)
            return False
        record = self.store.get(number, lookup_id)
        return record is not None and 0 < record.visibility <= upto

    def _expire(self, entry: tuple[int, int, int]) -> bool:
        """The time of a message has run out. False: it waits for the end of a lock."""
        _, number, lookup_id = entry
        queue = self.queue_manager.queue_collection.get(number)
        held = None if queue is None else queue.held_positions.get(lookup_id)
        if held is None and queue is not None:
            record = self.store.get(number, lookup_id)
            held = None if record is None else MessagePosition(queue, lookup_id, record)
        return held is None or self.time_to_be_received_timer_expired(held)

    def time_to_be_received_timer_expired(self, position: MessagePosition) -> bool:
        """3.1.7.2.7 Time To Be Received Timer Expired. False: it waits for the end of a lock."""
        if position.is_uncommitted_send and position.transaction is not None:
            position.transaction.transactional_operations.append(
                TransactionalOperation(
                    OperationType.DEQUEUE, position, dequeue_reason=MessageClass.NACK_RECEIVE_TIMEOUT
                )
            )
            return True
        if position.state is PositionState.AVAILABLE:
            self.expiries += 1
            self.message_position_deleted(position.queue, position, self._expiry_reason(position.queue))
            return True
        return False

    @staticmethod
    def _expiry_reason(queue: Queue) -> MessageClass:
        """A message that never left for its destination did not reach it (DMPR-3.1.1.12-6)."""
        if isinstance(queue, OutgoingQueue):
            return MessageClass.NACK_REACH_QUEUE_TIMEOUT
        return MessageClass.NACK_RECEIVE_TIMEOUT
