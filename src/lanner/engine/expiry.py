"""When messages expire: Time To Be Received (MS-MQDMPR 3.1.2.4) and Time To Reach Queue.

Time To Reach Queue counts in outgoing queues only.

Deadlines of recoverable messages are rows of a table, so they survive a crash and use no memory.
Messages that arrive in succession mostly expire in the same second, so all messages of a block of
lookup ids with the same deadline share a row. For a row written before the start, the number of its
messages is not known; such a row stays until it is due. Deadlines of express messages and of
uncommitted sends are a heap in memory.

Not in the specification: a hold keeps messages from expiring while they are being processed. The
data pipeline needs it, because it writes the range of a batch before it reads the messages, and
reads the range again after a crash.

This part decides what is due. `Positions` removes the messages, through the callback that
`expire_messages` takes.
"""

from __future__ import annotations

import heapq
from itertools import islice
from typing import TYPE_CHECKING, Final

from lanner.engine.tables import EXPIRY, EXPIRY_BLOCK, EXPIRY_HOLDS, EXPIRY_KEY, HOLD, QUEUE_KEY
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import MessageClass
from lanner.model.live import DEAD_LETTER, MessagePosition
from lanner.wire.envelope import RECOVERABLE, Envelope, expiry_times, read_envelope
from lanner.wire.fields import user_flags_0

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lanner.engine.core import Core
    from lanner.model.directory_objects import Queue
    from lanner.model.live import Record

_MAX_DEADLINE: Final = 0xFFFF_FFFF
_BLOCK_MASK: Final = -EXPIRY_BLOCK
# Added to the count of a row that also stands for messages from before the start.
_UNCOUNTED: Final = 1 << 40
# Not in the specification: a heap of deadlines shorter than this is not searched for messages that
# have left.
_MIN_EXPIRY: Final = 1024
# Not in the specification: messages that expire under one hold of the store's lock and in one
# commit.
EXPIRY_SLICE: Final = 1000


def expiry_reason(queue: Queue) -> MessageClass:
    """Return the message class for an expiry.

    A message in an outgoing queue did not reach its queue (DMPR-3.1.1.12-6).
    """
    if isinstance(queue, OutgoingQueue):
        return MessageClass.NACK_REACH_QUEUE_TIMEOUT
    return MessageClass.NACK_RECEIVE_TIMEOUT


def _deadline(queue: Queue, envelope: Envelope) -> int | None:
    if isinstance(queue, OutgoingQueue):
        return envelope.delivered_by()
    return None if queue.is_system else envelope.received_by()


class Expiry:
    """The deadlines of messages, and the holds on them."""

    def __init__(self, core: Core) -> None:
        self._store = core.store
        self._queue_manager = core.queue_manager
        self._clocks = core.clocks
        self._table = core.store.table(EXPIRY)
        self._holds_table = core.store.table(EXPIRY_HOLDS)
        # (deadline, queue, lookup id) of express messages and uncommitted sends; a heap.
        self.volatile: list[tuple[int, int, int]] = []
        self._volatile_limit = 0  # a longer heap is searched for messages that have left
        # (deadline, queue, first lookup id) of a row: how many messages it stands for, as far as
        # known.
        self.blocks: dict[tuple[int, int, int], int] = {}
        self._next: int | None = None
        # By queue number: the visibility number up to which nothing expires for now, and when the
        # hold ends on the monotonic clock (None: when it is released).
        self.holds: dict[int, tuple[int, float | None]] = {}

    # Deadlines ------------------------------------------------------------------------------------

    def arm(self, position: MessagePosition, envelope: Envelope) -> None:
        """Note the deadline of a message that has arrived, if it has one."""
        if not position.record.flags & DEAD_LETTER:
            is_volatile = envelope.is_express or position.is_uncommitted_send
            self.arm_run(position.queue, position.lookup_id, 1, envelope, is_volatile=is_volatile)

    def arm_run(self, queue: Queue, first: int, count: int, envelope: Envelope, *, is_volatile: bool) -> None:
        """Note the common deadline, if any, of new messages under consecutive lookup ids.

        Their envelopes are equal.
        """
        deadline = _deadline(queue, envelope)
        if deadline is None:
            return
        deadline = min(deadline, _MAX_DEADLINE)
        if is_volatile:
            for lookup_id in range(first, first + count):
                heapq.heappush(self.volatile, (deadline, queue.number, lookup_id))
            if len(self.volatile) > self._volatile_limit:
                self._drop_volatile()
        else:
            self._count_in(deadline, queue.number, first, count)
        if self._next is None or deadline < self._next:
            self._next = deadline
            self._clocks.deadline_changed()

    def _drop_volatile(self) -> None:
        """Remove messages from the heap that were received or stored.

        Otherwise they would stay until their deadlines, which may be days away.
        """
        heap = self.volatile
        heap[:] = [entry for entry in heap if self._is_volatile(*entry[1:])]
        heapq.heapify(heap)
        self._volatile_limit = 2 * len(heap) + _MIN_EXPIRY

    def _is_volatile(self, number: int, lookup_id: int) -> bool:
        queue = self._queue_manager.queue_collection.get(number)
        held = None if queue is None else queue.held_positions.get(lookup_id)
        return (held is not None and held.is_uncommitted_send) or self._store.is_express(number, lookup_id)

    def disarm(self, queue: Queue, rows: Iterable[tuple[int, Record]]) -> None:
        """Drop the deadlines of messages, given by lookup id, that leave their queue."""
        # Consecutive messages mostly have equal times, so a deadline is computed once for all of
        # them.
        leaving: dict[tuple[bytes, int], int] = {}
        packets: dict[tuple[bytes, int], bytes] = {}
        for lookup_id, record in rows:
            packet = record.packet
            if record.flags & DEAD_LETTER or not user_flags_0(packet) & RECOVERABLE:
                continue
            key = expiry_times(packet), lookup_id & _BLOCK_MASK
            if key in leaving:
                leaving[key] += 1
            else:
                leaving[key] = 1
                packets[key] = packet
        for key, count in leaving.items():
            deadline = _deadline(queue, read_envelope(packets[key]))
            if deadline is not None:
                self._count_out((min(deadline, _MAX_DEADLINE), queue.number, key[1]), count)

    def _count_in(self, deadline: int, number: int, first: int, count: int) -> None:
        end = first + count
        while first < end:
            start = first & _BLOCK_MASK
            block = (deadline, number, start)
            known = self.blocks.get(block)
            if known is None:
                row = EXPIRY_KEY.pack(*block)
                if self._table.get(row) is None:
                    self._table.put(row, b"")
                    known = 0
                else:
                    known = _UNCOUNTED
            following = min(start + EXPIRY_BLOCK, end)
            self.blocks[block] = known + following - first
            first = following

    def _count_out(self, block: tuple[int, int, int], leaving: int) -> None:
        count = self.blocks.get(block, _UNCOUNTED)
        if count > leaving:
            if count < _UNCOUNTED:
                self.blocks[block] = count - leaving
        else:
            self._end_block(block)

    def _end_block(self, block: tuple[int, int, int]) -> None:
        """Drop a row unless a message of its block still has its deadline."""
        if next(self._expiring(*block), None) is None:
            self.blocks.pop(block, None)
            self._table.delete(EXPIRY_KEY.pack(*block))

    def _expiring(self, deadline: int, number: int, lookup_id: int) -> Iterator[int]:
        """Yield the messages of a block that expire at a time."""
        queue = self._queue_manager.queue_collection.get(number)
        at = (lookup_id & _BLOCK_MASK) - 1
        end = at + EXPIRY_BLOCK
        while queue is not None and (found := self._store.next(number, at)) is not None and found <= end:
            at = found
            record = self._store.get(number, found)
            if record is not None and not record.flags & DEAD_LETTER:
                due = _deadline(queue, read_envelope(record.packet))
                if due is not None and min(due, _MAX_DEADLINE) == deadline:
                    yield found

    def has_expired(self, position: MessagePosition) -> bool:
        """Return whether the deadline of a message has passed."""
        deadline = _deadline(position.queue, read_envelope(position.record.packet))
        return deadline is not None and deadline <= self._clocks.wall() and not position.record.flags & DEAD_LETTER

    # Timer ----------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> int | None:
        """The next deadline of a message in Unix seconds; None if no message has one."""
        return self._next

    def find_next(self) -> None:
        """Compute `next_deadline` again."""
        first = self._table.first()
        due = [] if first is None else [EXPIRY_KEY.unpack(first[0])[0]]
        if self.volatile:
            due.append(self.volatile[0][0])
        self._next = min(due, default=None)

    def go_back(self) -> None:
        """Undo the counts made since the last sync, after the store has undone it."""
        self.blocks.clear()
        self.find_next()

    def expire_messages(self, expire: Callable[[MessagePosition], bool]) -> None:
        """Raise Time To Be Received Timer Expired for every message that is due.

        `expire` removes a message. It returns False if the message is locked; the message then
        expires when the lock ends.
        """
        now = self._clocks.wall()
        if self._next is None or self._next > now:
            return
        still_locked = False
        ended = 0
        held: list[tuple[int, int, int]] = []
        for entry in self._due(int(now)):
            if ended == EXPIRY_SLICE or len(held) == EXPIRY_SLICE:
                break
            if self.holds and self._is_held(entry):
                held.append(entry)
                still_locked = True
                continue
            position = self._position(entry)
            if position is None or expire(position):
                ended += 1
            else:
                still_locked = True
        for entry in held:
            if self._store.is_express(*entry[1:]):
                # It was popped from the heap above, and the end of a hold does not add it again.
                heapq.heappush(self.volatile, entry)
        self.find_next()
        if still_locked and ended < EXPIRY_SLICE:
            # The entry of a locked message stays until the lock ends; look again in a second.
            self._next = int(now) + 1

    def _due(self, now: int) -> Iterator[tuple[int, int, int]]:
        """Yield the messages that expire now.

        The caller removes an entry of the heap afterwards. A row is removed with its messages.
        """
        heap = self.volatile
        while heap and heap[0][0] <= now:
            entry = heap[0]
            yield entry
            if heap and heap[0] == entry:
                heapq.heappop(heap)
        for key, _ in islice(self._table.items(), EXPIRY_SLICE):
            block = deadline, number, _ = EXPIRY_KEY.unpack(key)
            if deadline > now:
                return
            for lookup_id in self._expiring(*block):
                yield deadline, number, lookup_id
            self._end_block(block)

    def _position(self, entry: tuple[int, int, int]) -> MessagePosition | None:
        _, number, lookup_id = entry
        queue = self._queue_manager.queue_collection.get(number)
        if queue is None:
            return None
        held = queue.held_positions.get(lookup_id)
        if held is not None:
            return held
        record = self._store.get(number, lookup_id)
        return None if record is None else MessagePosition(queue, lookup_id, record)

    # Holds ----------------------------------------------------------------------------------------

    def hold_expiry(self, queue: Queue, upto: int, seconds: int) -> None:
        """Prevent messages up to a visibility number from expiring until `release_expiry`.

        After a restart the hold lasts for `seconds`.
        """
        self.holds[queue.number] = (upto, None)
        self._holds_table.put(QUEUE_KEY.pack(queue.number), HOLD.pack(upto, seconds))

    def release_expiry(self, queue: Queue, upto: int | None = None) -> None:
        """Let messages expire again if the hold reaches no further than `upto`."""
        hold = self.holds.get(queue.number)
        if hold is not None and (upto is None or hold[0] <= upto):
            self._drop_hold(queue.number)

    def _drop_hold(self, number: int) -> None:
        del self.holds[number]
        self._holds_table.delete(QUEUE_KEY.pack(number))

    def load_holds(self) -> None:
        """Load the holds of the last run. Holds on deleted queues are dropped."""
        now = self._clocks.monotonic()
        for key, value in list(self._holds_table.items()):
            number = QUEUE_KEY.unpack(key)[0]
            upto, seconds = HOLD.unpack(value)
            if number in self._queue_manager.queue_collection:
                self.holds[number] = (upto, now + seconds)
            else:
                self._holds_table.delete(key)

    def _is_held(self, entry: tuple[int, int, int]) -> bool:
        _, number, lookup_id = entry
        hold = self.holds.get(number)
        if hold is None:
            return False
        upto, until = hold
        if until is not None and until <= self._clocks.monotonic():
            # The reader of the last run has not returned.
            self._drop_hold(number)
            return False
        record = self._store.get(number, lookup_id)
        return record is not None and 0 < record.visibility <= upto
