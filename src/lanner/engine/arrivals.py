"""Arrivals of messages in queues: Enqueue Message (MS-MQDMPR 3.1.7.1.9), quotas, new positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanner.engine.checks import READY, not_ready, require_open
from lanner.engine.held_memory import HELD_OVERHEAD
from lanner.model.directory_objects import KILOBYTE, OutgoingQueue
from lanner.model.enums import INFINITE, EnqueueStatus, OperationType, PositionState
from lanner.model.errors import InsufficientResources, InvalidParameter
from lanner.model.live import DEAD_LETTER, MessagePosition, Record, TransactionalOperation
from lanner.model.lookup_ids import LANE_SHIFT, LOWEST_LANE, SEQUENTIAL_ID_MASK
from lanner.store.queue_view import EXPRESS_OVERHEAD
from lanner.wire.envelope import RECOVERABLE, WANTS_ATTENTION, Envelope, read_envelope
from lanner.wire.fields import sent_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lanner.engine.core import Core
    from lanner.engine.positions import Positions
    from lanner.model.directory_objects import Queue
    from lanner.model.live import Transaction
    from lanner.wire.message import Message

# Module-level names: they are used for each message, and Python 3.11 looks up members of an
# enumeration slowly.
_OK: Final = EnqueueStatus.OK
_ENQUEUE: Final = OperationType.ENQUEUE
_LOCKED: Final = PositionState.LOCKED


class Arrivals:
    """Puts messages into queues."""

    def __init__(self, core: Core, positions: Positions) -> None:
        self._store = core.store
        self._queue_manager = core.queue_manager
        self._clocks = core.clocks
        self._numbers = core.numbers
        self._recorder = core.recorder
        self._positions = positions
        self._expiry = positions.expiry
        self.shares = core.shares
        self._express_memory = core.express_memory
        # Called for a message that was sent, committed or delivered to a queue, but not for one
        # that was moved or given back.
        self.arrived_subscribers: list[Callable[[Queue, MessagePosition], None]] = []

    def enqueue_message(self, queue: Queue, message: Message, transaction: Transaction | None = None) -> EnqueueStatus:
        """3.1.7.1.9 Enqueue Message."""
        if self._queue_manager.queue_manager_state is not READY:
            raise not_ready(self._queue_manager)
        if transaction is not None:
            if transaction.is_null:
                transaction = None
            else:
                require_open(transaction)
        return self.enqueue(queue, message.packet, transaction)

    def enqueue(
        self, queue: Queue, packet: bytes, transaction: Transaction | None, holder: bytes = b""
    ) -> EnqueueStatus:
        """Do the steps of Enqueue Message in any state of the queue manager.

        The transaction is open, and `holder` is the SID of its user.
        """
        if transaction is not None:
            self._positions.held_memory.check(holder)
        now = int(self._clocks.wall())
        envelope = read_envelope(packet)
        status = self.check_quota(queue, len(packet))
        if status is not _OK:
            return status
        ttrq = envelope.time_to_reach_queue
        if ttrq != INFINITE and now - envelope.sent_time > ttrq:
            return EnqueueStatus.TIMED_OUT_IN_TRANSIT
        if envelope.user_flags & RECOVERABLE:
            if self._store.refuses_sends:
                raise disk_full()
        else:
            self._express_memory.check(len(packet), is_leaving=isinstance(queue, OutgoingQueue))
        shares = self.shares
        if shares.is_taking:
            status = shares.take(queue, packet, len(packet), express=not envelope.user_flags & RECOVERABLE)
            if status is not _OK:
                return status
        elif shares.sources:
            shares.placed(queue, packet, len(packet))
        position = self._counted_position(queue, packet, envelope, now)
        if transaction is None:
            self.arrive(position, envelope)
            return _OK
        position.is_uncommitted_send = True
        position.transaction = transaction
        self._positions.lock(position, holder)
        if envelope.time_to_be_received != INFINITE or isinstance(queue, OutgoingQueue):
            self._expiry.arm(position, envelope)
        transaction.transactional_operations.append(TransactionalOperation(_ENQUEUE, position))
        return _OK

    def enqueue_run(
        self, queue: Queue, packets: Sequence[bytes], transaction: Transaction | None = None, holder: bytes = b""
    ) -> int:
        """Do Enqueue Message for messages of the same shape; return how many are stored.

        All are stored, or none. If any check fails, none is stored, and `enqueue` finds the reason
        message by message. Each check below holds for every message if it holds for all together.
        The packets are equal in all fields of `Envelope` except SentTime (`wire.packet_runs`).
        """
        if self._queue_manager.queue_manager_state is not READY:
            raise not_ready(self._queue_manager)
        now = int(self._clocks.wall())
        packet, count = packets[0], len(packets)
        envelope = read_envelope(packet)
        size = sum(map(len, packets))
        is_express = not envelope.user_flags & RECOVERABLE
        is_leaving = isinstance(queue, OutgoingQueue)
        if (
            self.check_quota(queue, size) is not _OK
            or (transaction is not None and self._positions.held_memory.is_full(holder, size + count * HELD_OVERHEAD))
            or not self._is_in_time(packets, envelope, now, is_leaving=is_leaving)
        ):
            return 0
        shares = self.shares
        if is_express:
            if not self._express_memory.has_room(size + count * EXPRESS_OVERHEAD, is_leaving=is_leaving):
                return 0
        elif self._store.refuses_sends:
            return 0
        if shares.is_taking:
            if shares.take(queue, packet, size, express=is_express) is not _OK:
                return 0
        elif shares.sources:
            shares.placed(queue, packet, size)
        sequential_id = self._numbers.sequential_id.next(count) & SEQUENTIAL_ID_MASK
        first = (LOWEST_LANE - envelope.priority) << LANE_SHIFT | sequential_id
        queue.total_bytes += size
        self._queue_manager.total_bytes += size
        records = [Record(packet, now) for packet in packets]
        if transaction is None:
            self.arrive_run(queue, first, records, envelope)
        else:
            self._hold_run(queue, first, records, envelope, transaction, holder)
        return count

    @staticmethod
    def _is_in_time(packets: Sequence[bytes], envelope: Envelope, now: int, *, is_leaving: bool) -> bool:
        """Return whether no TimeToReachQueue has passed and all share one deadline, if any."""
        longest = envelope.time_to_reach_queue
        may_expire = is_leaving or envelope.time_to_be_received != INFINITE
        if longest == INFINITE and not may_expire:
            return True
        sent_times = {sent_time(packet) for packet in packets}
        if may_expire and len(sent_times) > 1:
            return False
        return longest == INFINITE or all(now - int.from_bytes(each, "little") <= longest for each in sent_times)

    def _hold_run(
        self,
        queue: Queue,
        first: int,
        records: Sequence[Record],
        envelope: Envelope,
        transaction: Transaction,
        holder: bytes,
    ) -> None:
        """Keep messages that are sent in a transaction until it commits."""
        positions = [
            MessagePosition(queue, lookup_id, record, _LOCKED, transaction, is_uncommitted_send=True)
            for lookup_id, record in enumerate(records, first)
        ]
        self._positions.lock_run(queue, positions, holder)
        if envelope.time_to_be_received != INFINITE or isinstance(queue, OutgoingQueue):
            self._expiry.arm_run(queue, first, len(records), envelope, is_volatile=True)
        transaction.transactional_operations.extend([TransactionalOperation(_ENQUEUE, each) for each in positions])

    def check_quota(self, queue: Queue, size: int) -> EnqueueStatus:
        """Check the quotas for a message of this size.

        The queue manager's quota comes first (DMPR-3.1.7.1.9-1).
        """
        qm = self._queue_manager
        quota = qm.queue_manager_quota
        if qm.throttled or (quota != INFINITE and qm.total_bytes + size > quota * KILOBYTE):
            return EnqueueStatus.QUEUE_MANAGER_QUOTA_EXCEEDED
        quota = queue.quota
        if quota != INFINITE and queue.total_bytes + size > quota * KILOBYTE:
            return EnqueueStatus.QUEUE_QUOTA_EXCEEDED
        return _OK

    def new_position(self, queue: Queue, packet: bytes, envelope: Envelope, now: int) -> MessagePosition:
        """Return a position at the end of its priority.

        From now on the totals include the message's bytes (DECISIONS, TotalBytes).
        """
        if self.shares.sources:
            self.shares.placed(queue, packet, len(packet))
        return self._counted_position(queue, packet, envelope, now)

    def _counted_position(self, queue: Queue, packet: bytes, envelope: Envelope, now: int) -> MessagePosition:
        """Return a position for a message that is already charged to its peer."""
        sequential_id = self._numbers.sequential_id.next() & SEQUENTIAL_ID_MASK
        lookup_id = (LOWEST_LANE - envelope.priority) << LANE_SHIFT | sequential_id
        size = len(packet)
        queue.total_bytes += size
        self._queue_manager.total_bytes += size
        return MessagePosition(queue, lookup_id, Record(packet, now))

    def arrive(self, position: MessagePosition, envelope: Envelope) -> None:
        """Store a message from outside the queue, inform subscribers, and serve a waiting read."""
        self._positions.write(position, envelope)
        self._tell(position, envelope)
        self._positions.message_position_available(position.queue, position)

    def arrive_run(self, queue: Queue, first: int, records: Sequence[Record], envelope: Envelope) -> None:
        """Do the same as `arrive` for messages under consecutive lookup ids.

        Their envelopes are equal, and their bytes are counted already.
        """
        self._positions.write_run(queue, first, records, envelope)
        if envelope.user_flags & WANTS_ATTENTION:
            for lookup_id, record in enumerate(records, first):
                self._tell(MessagePosition(queue, lookup_id, record), envelope)
        elif self._recorder is not None:
            self._recorder.run_arrived(queue, first, records)
        self._positions.message_positions_available(queue, first, records)

    def _tell(self, position: MessagePosition, envelope: Envelope) -> None:
        """Record an arrival; inform subscribers if the message asks for it."""
        if self._recorder is not None:
            self._recorder.arrived(position)
        if envelope.user_flags & WANTS_ATTENTION:
            self.tell_arrived(position)

    def tell_arrived(self, position: MessagePosition) -> None:
        """Inform subscribers of an arrival that requests a journal copy or an acknowledgment."""
        for subscriber in self.arrived_subscribers:
            subscriber(position.queue, position)

    def restore_message(
        self, queue: Queue, packet: bytes, *, arrived: int, abort_count: int = 0, move_count: int = 0
    ) -> MessagePosition:
        """Put a message back into a queue with its former arrival time and counts.

        Not in the specification. A waiting read gets the message. It does not count as an arrival:
        no quota is checked, no acknowledgment, journal copy or event is made, and the message never
        expires.
        """
        if isinstance(queue, OutgoingQueue):
            raise InvalidParameter("an outgoing queue sends what is in it: a message cannot be restored there")
        envelope = read_envelope(packet)
        position = self.new_position(queue, packet, envelope, arrived)
        record = position.record
        record.abort_count, record.move_count, record.flags = abort_count, move_count, DEAD_LETTER
        self._positions.write(position, envelope)
        self._positions.message_position_available(queue, position)
        return position


def disk_full() -> InsufficientResources:
    """Return the error for a recoverable send while the store refuses sends."""
    return InsufficientResources(
        "the disk of the data directory is full: recoverable messages are refused until there is room; receiving "
        "continues"
    )
