"""OutgoingMessageTable: the messages in transit from one outgoing queue.

Implements MS-MQQB 3.1.1.3.1, 3.1.3.2, 3.1.5.5-3.1.5.7, 3.1.6.5 and 3.1.7.1. The table of the
document has an entry for each message of the queue. Here the store has the queue in order, and the
table has only the messages that were read from it: those sent and not yet acknowledged, and those
to be sent again. The position up to which the queue was read is kept per lane (a lane is a
priority, the top byte of lookup identifiers).

A message is looked up in the store whenever it is to be sent, and when it is acknowledged. If it
has expired or was purged meanwhile, it is not found there, and so it is not sent.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import MessageClass, PositionState
from lanner.model.live import MessagePosition, OutgoingTransferInfo, Record
from lanner.model.lookup_ids import LANE_SHIFT, LOWEST_LANE
from lanner.transfer.outgoing_sequence import NO_SEQUENCE_INFO, OutgoingTransferSequence, sequence_info
from lanner.wire import fields
from lanner.wire.builder import set_sequence
from lanner.wire.identifiers import NO_SEQUENCE, TxSequenceID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lanner.engine import Engine
    from lanner.engine.outgoing_sequences import OutgoingSequence
    from lanner.transfer.packets import FinalAckBody, OrderAckBody
    from lanner.transfer.settings import TransferSettings
    from lanner.wire.identifiers import SequenceInfo

# Every transactional message has priority 0 (MS-MQDMPR 3.1.7.1.32).
_TRANSACTIONAL_LANE = LOWEST_LANE
# A module-level name, because every message uses it and attribute access on an enumeration is slow
# (Python 3.11).
_AVAILABLE = PositionState.AVAILABLE
# Placeholder for the record of a message that is not in transit; the store has it.
_NOT_LOADED = Record(b"")
# Not in the specification: messages that leave the queue in one turn, which takes a millisecond or
# two.
_END_SLICE = 128
# Not in the specification: messages examined to find out whether a numbered one is left.
_LOOK_AHEAD = 16
# Not in the specification: bytes of packets read at once.
_MAX_SIZE = 1 << 20
# Not in the specification: for each queue, bytes of packets that the next hop has and that stay
# cached until they leave the queue. Removing other messages reads them again.
_MAX_KEPT = 2 << 20


@dataclass(slots=True, eq=False)
class OutgoingMessagePosition:
    """MS-MQQB 3.1.1.3.1.2; SequenceNumber and RecoverableSequenceNumber are the session's."""

    queue: OutgoingQueue = field(repr=False)
    lookup_id: int
    is_recoverable: bool
    # The stored record, and the UserMessage as it is sent. None and empty while the message is not
    # in transit.
    record: Record | None = None
    packet: bytes = field(default=b"", repr=False)
    tx_sequence_id: TxSequenceID = NO_SEQUENCE
    # 0: not transactional, or in the sequence of another queue manager.
    tx_sequence_number: int = 0
    previous_tx_sequence_number: int = 0
    ordinal: int = 0  # of the message identifier
    awaiting_ack: bool = False
    received_session_ack: bool = False
    received_order_ack: bool = False
    transmitted: bool = False  # on this session
    was_sent: bool = False  # on any session
    is_to_be_sent_again: bool = False

    @property
    def message_position(self) -> MessagePosition:
        return MessagePosition(self.queue, self.lookup_id, self.record or _NOT_LOADED)


class _Lane:
    """The messages of one priority: first those to be sent again, then those not yet read."""

    __slots__ = ("again", "cursor", "index", "is_read")

    def __init__(self, index: int) -> None:
        self.index = index
        self.again: list[int] = []  # a heap of lookup ids
        self.rewind()

    def rewind(self) -> None:
        self.cursor = (self.index << LANE_SHIFT) - 1  # the last lookup id that was read
        self.is_read = False  # up to the end


class _Collection:
    """Messages collected for sending, with a limit on their number and their bytes."""

    __slots__ = ("_entries", "horizon", "is_full", "room", "size")

    def __init__(self, entries: list[OutgoingMessagePosition], room: int, size: int, horizon: int) -> None:
        self.horizon = horizon  # up to this visibility number messages are durable
        self.is_full = False
        self._entries = entries
        self.room = room  # of messages
        self.size = size  # of bytes

    def add(self, entry: OutgoingMessagePosition) -> None:
        self._entries.append(entry)
        self.size -= len(entry.packet)
        self.room -= 1
        self.is_full = self.size <= 0 or not self.room


class OutgoingMessageTable:
    """The outgoing messages of one queue. Every method needs the store's lock."""

    def __init__(
        self,
        engine: Engine,
        queue: OutgoingQueue,
        settings: TransferSettings,
        monotonic: Callable[[], float],
        *,
        sent_before: OutgoingSequence | None = None,
    ) -> None:
        """Start with the queue as it is.

        `sent_before` is the sequence as an earlier process left it. That process may have sent any
        message that was numbered by then.
        """
        self.queue = queue
        # A message could be sent if it were durable: ask again after the next sync.
        self.is_waiting_for_sync = False
        # False: every message of the queue is in transit or acknowledged.
        self.may_have_unsent = True
        self._engine = engine
        self._store = engine.store
        self._settings = settings
        self._own_guid = engine.queue_manager.identifier.bytes_le
        self._lanes = [_Lane(index) for index in range(LOWEST_LANE + 1)]
        self._entries: dict[int, OutgoingMessagePosition] = {}  # by lookup id
        # Of these, our transactional messages, by number.
        self._numbered: dict[int, OutgoingMessagePosition] = {}
        self._offered: list[OutgoingMessagePosition] = []
        # By lookup id, acknowledged messages that are still in the queue, with their record if
        # known. `_delivered` has those that are complete, `_ended` those that reached their
        # destination and may still get a FinalAck.
        self._delivered: dict[int, Record | None] = {}
        self._ended: dict[int, Record | None] = {}
        # By lookup id, bytes of the cached packets of messages whose SessionAck has arrived.
        self._kept: dict[int, int] = {}
        self._kept_size = 0
        self._highest_read = 0  # number in the current sequence
        self.tx_outgoing_sequence: OutgoingTransferSequence[OutgoingMessagePosition] = OutgoingTransferSequence(
            settings.resend_timer_table, clock=engine.clock, monotonic=monotonic
        )
        self._monotonic = monotonic
        self._sent_before = sent_before
        self._resume_sequence()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be sent or acknowledged."""
        return self.queue.message_count == 0

    # Sessions
    # ----------------------------------------------------------------------------------------------

    def session_opened(self) -> None:
        """Have everything sent again that an earlier session sent (3.1.3.2)."""
        self.session_closed()
        self.tx_outgoing_sequence.session_opened()
        self.refresh_transfer_info()

    def session_closed(self) -> None:
        """Have every entry sent again, with the number that it has, because the session ended."""
        sequence = self.tx_outgoing_sequence
        sequence.stop()
        self._offered.clear()
        for entry in self._entries.values():
            if entry.received_order_ack:
                sequence.add(entry)
            entry.transmitted = entry.received_order_ack = False
            self._send_again(entry)
        for lane in self._lanes:
            lane.is_read = False
        self.may_have_unsent = True

    def _send_again(self, entry: OutgoingMessagePosition) -> None:
        self.may_have_unsent = True
        entry.awaiting_ack = entry.received_session_ack = False
        self._release(entry)
        if not entry.is_to_be_sent_again:
            entry.is_to_be_sent_again = True
            heapq.heappush(self._lanes[entry.lookup_id >> LANE_SHIFT].again, entry.lookup_id)

    def message_available(self, first: int) -> None:
        """Note that messages of one priority came to the queue (3.1.7.12).

        A message may also have returned to its old place. `first` is the lowest lookup id.
        """
        lane = self._lanes[first >> LANE_SHIFT]
        lane.is_read = False
        self.may_have_unsent = True
        if first <= lane.cursor:
            lane.cursor = first - 1

    def message_removed(self, position: MessagePosition) -> None:
        """Note that a message left the queue by other means than this table.

        It expired, was purged, or an administrator removed it.
        """
        entry = self._entries.get(position.lookup_id)
        if entry is not None:
            self._forget(entry)
            self._renew_sequence()
            self.refresh_transfer_info()

    def store_failed(self) -> None:
        """Start reading anew, because the store dropped what was not durable.

        Removed messages may be in the queue again.
        """
        for lane in self._lanes:
            lane.rewind()
        self.may_have_unsent = True
        sequence = self._engine.outgoing_sequence(self.queue)
        self._highest_read = 0 if sequence is None else min(self._highest_read, sequence.number - 1)

    # Sending (3.1.7.1)
    # ------------------------------------------------------------------------------------------

    def next_unsent(self, room: int, size: int = _MAX_SIZE) -> list[OutgoingMessagePosition]:
        """Return the next messages, at most `room`, in the order of the queue.

        Ends after the message with which they have `size` bytes together. Messages that are not
        passed to `sent` are returned again.
        """
        self.take_back()
        entries: list[OutgoingMessagePosition] = []
        if room > 0:
            self.is_waiting_for_sync = False
            self._collect(_Collection(entries, room, size, self._store.horizon))
        self._offered = entries
        if self.tx_outgoing_sequence.unacked:
            self.refresh_transfer_info()
        return entries.copy()

    def _collect(self, collection: _Collection) -> None:
        may_have_unsent = False
        for lane in self._lanes:
            if lane.again:
                self._collect_again(lane, collection)
            if not lane.again and not lane.is_read and not collection.is_full:
                self._collect_unread(lane, collection)
            if collection.is_full:
                return
            may_have_unsent = may_have_unsent or bool(lane.again) or not lane.is_read
        self.may_have_unsent = may_have_unsent

    def peek_priority(self) -> int | None:
        """Return BasePriority plus Priority of the next message; None if no message waits.

        Both follow from the lookup identifier, so the message, which may be large, is not read. It
        may turn out that it cannot be sent yet and that a message of lower priority is the next
        (`priority_of`).
        """
        self.take_back()
        return next((self._priority(lane.index) for lane in self._lanes if self._has_unsent(lane)), None)

    def priority_of(self, entry: OutgoingMessagePosition) -> int:
        """Return BasePriority plus Priority of a message."""
        return self._priority(entry.lookup_id >> LANE_SHIFT)

    def _priority(self, lane: int) -> int:
        return self.queue.base_priority + LOWEST_LANE - lane

    def _has_unsent(self, lane: _Lane) -> bool:
        again, entries = lane.again, self._entries
        while again:
            entry = entries.get(again[0])
            if entry is not None and entry.is_to_be_sent_again:
                return True
            heapq.heappop(again)
        while not lane.is_read:
            lookup_id = self._store.next(self.queue.number, lane.cursor)
            if lookup_id is None or lookup_id >> LANE_SHIFT != lane.index:
                lane.is_read = True
            elif lookup_id in entries or self._is_acknowledged(lookup_id):
                lane.cursor = lookup_id
            else:
                return True
        return False

    def head(self) -> bytes:
        """Return the packet of the next message without sending it; empty if none can be sent."""
        entries = self.next_unsent(1)
        packet = entries[0].packet if entries else b""
        self.take_back()
        return packet

    def sent(self, entries: Sequence[OutgoingMessagePosition]) -> None:
        """Note that messages were passed to the session."""
        highest = 0
        for entry in entries:
            entry.awaiting_ack = entry.transmitted = entry.was_sent = True
            highest = max(highest, entry.tx_sequence_number)
        if highest and self.tx_outgoing_sequence.sent(highest):
            self.refresh_transfer_info()

    def refused(self, entry: OutgoingMessagePosition, reason: MessageClass) -> None:
        """Remove a message that cannot be sent.

        The acknowledgment and the dead letter that it asked for are created.
        """
        self._forget(entry)
        record = self._store.get(self.queue.number, entry.lookup_id)
        if record is not None:
            position = MessagePosition(self.queue, entry.lookup_id, record)
            self._engine.message_position_deleted(self.queue, position, reason)
        self._renew_sequence()
        self.refresh_transfer_info()

    def take_back(self) -> None:
        """Return messages to the queue that `next_unsent` has returned and that were not sent."""
        if not self._offered:
            return
        for entry in self._offered:
            is_sent = entry.awaiting_ack or entry.received_session_ack
            if not is_sent and self._entries.get(entry.lookup_id) is entry:
                self._send_again(entry)
        self._offered = []

    def _collect_again(self, lane: _Lane, collection: _Collection) -> None:
        while lane.again and not collection.is_full:
            lookup_id = lane.again[0]
            entry = self._entries.get(lookup_id)
            if entry is not None and entry.is_to_be_sent_again:
                record = self._store.get(self.queue.number, lookup_id)
                if record is None or self._has_expired(lookup_id, record):
                    self._forget(entry)
                elif self._is_held(lookup_id, record):
                    if entry.tx_sequence_number:
                        return
                    self._forget(entry)
                elif entry.is_recoverable and record.visibility > collection.horizon:
                    self.is_waiting_for_sync = True
                    return
                else:
                    heapq.heappop(lane.again)
                    entry.is_to_be_sent_again = False
                    self._load(entry, record)
                    collection.add(entry)
                    continue
            heapq.heappop(lane.again)

    def _collect_unread(self, lane: _Lane, collection: _Collection) -> None:
        last = (lane.index + 1 << LANE_SHIFT) - 1
        while not collection.is_full:
            rows = self._store.read_run(self.queue.number, lane.cursor, last, collection.room, collection.size)
            if not rows:
                lane.is_read = True
            if not rows or not self._collect_rows(lane, rows, collection):
                return

    def _collect_rows(self, lane: _Lane, rows: list[tuple[int, Record]], collection: _Collection) -> bool:
        """Collect messages read from a lane; return False if one of them cannot be sent yet.

        Then no message after it can be sent either.
        """
        entries, now, tx_sequence_id = self._entries, self._engine.clock(), self._tx_sequence_id
        held_positions, horizon = self.queue.held_positions, collection.horizon
        for lookup_id, record in rows:
            if lookup_id in entries or lookup_id in self._delivered or lookup_id in self._ended:
                lane.cursor = lookup_id
                continue
            # Inlined from `_has_expired` and `_is_held`: every message comes here, and a call would
            # cost as much as the work.
            time_to_reach_queue, sent_time = fields.lifetime(record.packet)
            is_held = lookup_id in held_positions or record.state is not _AVAILABLE
            if now - sent_time > time_to_reach_queue and not is_held:
                self._expire(lookup_id, record)
                lane.cursor = lookup_id
                continue
            entry = self._new_entry(lookup_id, record, tx_sequence_id)
            if is_held:
                if entry.tx_sequence_number:
                    # No message may overtake a numbered one, because the receiver would then refuse
                    # the numbered one.
                    return False
                lane.cursor = lookup_id  # if it comes back, the engine calls `message_available`
                continue
            if entry.is_recoverable and record.visibility > horizon:
                # A message sent before its commit is durable would share its number with another
                # one after a crash.
                self.is_waiting_for_sync = True
                return False
            if entry.tx_sequence_number:
                if len(self._numbered) >= self._settings.max_unacked_sequence:
                    return False
                self._numbered[entry.tx_sequence_number] = entry
                self._highest_read = max(self._highest_read, entry.tx_sequence_number)
                self.tx_outgoing_sequence.add(entry)
            lane.cursor = lookup_id
            entries[lookup_id] = entry
            self._load(entry, record)
            collection.add(entry)
        return True

    def _is_acknowledged(self, lookup_id: int) -> bool:
        return lookup_id in self._delivered or lookup_id in self._ended

    def _is_held(self, lookup_id: int, record: Record) -> bool:
        """Return whether a message is locked.

        An administrator who reads it has locked it, or the transaction that sent it has not ended.
        """
        return lookup_id in self.queue.held_positions or record.state is not _AVAILABLE

    def _has_expired(self, lookup_id: int, record: Record) -> bool:
        """Remove a message if it has expired (3.1.7.1.2 Checking for Message Expiration)."""
        time_to_reach_queue, sent_time = fields.lifetime(record.packet)
        if self._engine.clock() - sent_time <= time_to_reach_queue or self._is_held(lookup_id, record):
            return False  # a locked message expires when the lock ends (DECISIONS)
        self._expire(lookup_id, record)
        return True

    def _expire(self, lookup_id: int, record: Record) -> None:
        position = MessagePosition(self.queue, lookup_id, record)
        self._engine.message_position_deleted(self.queue, position, MessageClass.NACK_REACH_QUEUE_TIMEOUT)

    @property
    def _tx_sequence_id(self) -> TxSequenceID:
        """OutgoingTxSequenceID."""
        current = self._engine.outgoing_sequence(self.queue)
        return NO_SEQUENCE if current is None else current.tx_sequence_id

    def _new_entry(self, lookup_id: int, record: Record, current: TxSequenceID) -> OutgoingMessagePosition:
        """Return an entry for a message. `current` is `_tx_sequence_id`."""
        packet = record.packet
        is_recoverable = bool(fields.user_flags_0(packet) & fields.DM_IN_USER_FLAGS_0)
        entry = OutgoingMessagePosition(self.queue, lookup_id, is_recoverable)
        if (
            fields.user_flags_2(packet) & fields.TH_IN_USER_FLAGS_2
            and fields.source_queue_manager(packet) == self._own_guid
        ):
            [(tx_sequence_id, number, _)] = fields.transactions((packet,), fields.user_flags(packet)[0])
            # A message that claims to come from here, but was not numbered here, is forwarded like
            # one of another queue manager.
            if tx_sequence_id == current.value:
                entry.tx_sequence_id = current
                entry.tx_sequence_number = number
                entry.ordinal = int.from_bytes(fields.message_id(packet), "little")
        return entry

    def _load(self, entry: OutgoingMessagePosition, record: Record) -> None:
        """Load the packet and set the previous number in it (3.1.7.1.3)."""
        entry.record = record
        entry.packet = record.packet
        number = entry.tx_sequence_number
        if number:
            previous = self._previous(entry)
            entry.previous_tx_sequence_number = previous
            if previous != number - 1:
                entry.packet = set_sequence(record.packet, entry.tx_sequence_id, number, previous)

    def _previous(self, entry: OutgoingMessagePosition) -> int:
        """Return PreviousTxSequenceNumber for a message.

        Messages that are no longer in the table are skipped, because they will not be sent.

        A receiver accepts 0 in any state, even if it has lost its state. Therefore 0 is in the
        first message that is sent again. A message that is sent for the first time follows the last
        acknowledged number.
        """
        preceding = self.tx_outgoing_sequence.preceding(entry.tx_sequence_number)
        if preceding is not None:
            return preceding.tx_sequence_number
        last_ack = self.tx_outgoing_sequence.last_ack
        if entry.transmitted or last_ack.seq_id != entry.tx_sequence_id.value:
            return 0
        # The acknowledged number is higher if the session broke between the OrderAck and the
        # SessionAck; then the message is sent again.
        return last_ack.seq_no if last_ack.seq_no < entry.tx_sequence_number else 0

    def _release(self, entry: OutgoingMessagePosition) -> None:
        self._unkeep(entry)
        entry.packet = b""
        entry.record = None

    def _keep(self, entry: OutgoingMessagePosition) -> None:
        """Cache the record of a message that the next hop has, if there is room.

        It stays cached until the message leaves the queue.
        """
        size = 0 if entry.record is None else len(entry.record.packet)
        if entry.lookup_id not in self._entries or self._kept_size + size > _MAX_KEPT:
            self._release(entry)
        else:
            entry.packet = b""
            self._kept[entry.lookup_id] = size
            self._kept_size += size

    def _unkeep(self, entry: OutgoingMessagePosition) -> None:
        self._kept_size -= self._kept.pop(entry.lookup_id, 0)

    # Acknowledgments (3.1.5.5, 3.1.5.6, 3.1.5.7)
    # ----------------------------------------------------------------

    def session_acked(
        self, acked: Sequence[OutgoingMessagePosition], persisted: Iterable[OutgoingMessagePosition]
    ) -> None:
        """Handle a SessionAck (3.1.5.5).

        The next hop has received `acked` and has `persisted` on disk. The messages leave the queue
        with `end_some`.
        """
        ended: list[OutgoingMessagePosition] = []
        for entry in acked:
            entry.awaiting_ack = False
            entry.received_session_ack = True
            if not entry.is_recoverable:
                self._deliver(entry)
            elif entry.received_order_ack:
                ended.append(entry)
        for entry in persisted:
            if not entry.tx_sequence_number:
                self._deliver(entry)
            elif entry.received_order_ack:
                ended.append(entry)
        for entry in acked:
            self._keep(entry)
        if ended:
            self._end(ended)

    def _deliver(self, entry: OutgoingMessagePosition) -> None:
        self._delivered[entry.lookup_id] = entry.record
        self._entries.pop(entry.lookup_id, None)
        self._unkeep(entry)

    def order_ack(self, body: OrderAckBody) -> bool:
        """Handle an OrderAck (3.1.5.6); return False if it is not for a sequence of this queue."""
        current = self._engine.outgoing_sequence(self.queue)
        if current is None or body.tx_sequence_id.time_stamp != current.time_stamp:
            return False
        if body.tx_sequence_id == current.tx_sequence_id:
            self.take_back()
            acked = self.tx_outgoing_sequence.order_ack(body.tx_sequence_id, body.tx_sequence_number)
            for entry in acked:
                entry.received_order_ack = True
            # An entry that waits to be sent again will get no SessionAck. Its destination has the
            # message, so it need not be sent again.
            self._end([entry for entry in acked if entry.received_session_ack or entry.is_to_be_sent_again])
        return True

    def _end(self, entries: list[OutgoingMessagePosition]) -> None:
        """Move messages with both acknowledgments out of the table.

        They are delivered, or wait for their FinalAck. None of them is in UnackedSequence.
        """
        for entry in entries:
            if self._entries.pop(entry.lookup_id, None) is not None:
                del self._numbered[entry.tx_sequence_number]
            self._ended[entry.lookup_id] = entry.record
            self._unkeep(entry)

    @property
    def is_ending(self) -> bool:
        """Whether `end_some` has more to do."""
        return bool(self._delivered or self._ended)

    def end_some(self) -> None:
        """Remove a slice of the acknowledged messages from the queue.

        An OrderAck may cover thousands, and other messages wait to be sent.
        """
        if self._delivered:
            _do_some(self._delivered, partial(self._engine.messages_delivered, self.queue))
        if self._ended:
            _do_some(self._ended, partial(self._engine.messages_await_final_ack, self.queue))
            self._renew_sequence()
            self.refresh_transfer_info()

    def final_ack(self, body: FinalAckBody, message_class: int) -> bool:
        """Handle a FinalAck for a message whose OrderAck has not come (3.1.5.7).

        Return False if the message is not here.
        """
        current = self._engine.outgoing_sequence(self.queue)
        if current is None or body.tx_sequence_id != current.tx_sequence_id:
            return False
        if body.source_guid != self._engine.queue_manager.identifier:
            return False
        entry = self._numbered.get(body.tx_sequence_number) or self._find(body.tx_sequence_number)
        if entry is None or entry.ordinal != body.message_id or not self._may_have_been_sent(entry):
            return False
        self._forget(entry)
        is_ended = self._engine.final_acknowledgment_in_queue(self.queue, entry.lookup_id, message_class)
        self._renew_sequence()
        self.refresh_transfer_info()
        return is_ended

    def _may_have_been_sent(self, entry: OutgoingMessagePosition) -> bool:
        before = self._sent_before
        return entry.was_sent or (
            before is not None
            and entry.tx_sequence_id == before.tx_sequence_id
            and entry.tx_sequence_number < before.number
        )

    def _find(self, number: int) -> OutgoingMessagePosition | None:
        """Return a message that was sent before a restart and not since.

        It is among the first of its lane.
        """
        for entry in self._peek_numbered(self._settings.max_unacked_sequence):
            if entry is not None and entry.tx_sequence_number >= number:
                return entry
        return None

    def _peek_numbered(
        self, limit: int, after: int = (_TRANSACTIONAL_LANE << LANE_SHIFT) - 1
    ) -> Iterator[OutgoingMessagePosition | None]:
        """Yield our transactional messages from the store, without reading on; None for others."""
        number, tx_sequence_id = self.queue.number, self._tx_sequence_id
        for _ in range(limit):
            lookup_id = self._store.next(number, after)
            if lookup_id is None:
                return
            after = lookup_id
            record = self._store.get(number, lookup_id)
            entry = None if record is None else self._new_entry(lookup_id, record, tx_sequence_id)
            yield entry if entry is not None and entry.tx_sequence_number else None

    def _forget(self, entry: OutgoingMessagePosition) -> None:
        self._unkeep(entry)
        if self._entries.pop(entry.lookup_id, None) is not None and entry.tx_sequence_number:
            del self._numbered[entry.tx_sequence_number]
            self.tx_outgoing_sequence.remove(entry)

    # The sequence
    # ----------------------------------------------------------------------------------------------

    def _resume_sequence(self) -> None:
        """Initialize the sequence: messages before the first in the queue were sent or are gone.

        The queue may have been stored over a restart.
        """
        current = self._engine.outgoing_sequence(self.queue)
        if current is not None:
            first = next((entry for entry in self._peek_numbered(_LOOK_AHEAD) if entry is not None), None)
            number = current.number if first is None else first.tx_sequence_number
            self.tx_outgoing_sequence.highest_sent = self._highest_read = number - 1
        self.refresh_transfer_info()

    def _renew_sequence(self) -> None:
        """Begin a new sequence when no numbered message is left (3.1.5.6)."""
        current = self._engine.outgoing_sequence(self.queue)
        if current is None or current.number == 1 or self._numbered:
            return
        if self._highest_read + 1 < current.number:
            # Numbers were issued that were not seen here, to messages that wait or that are gone.
            unread = list(self._peek_numbered(_LOOK_AHEAD, self._lanes[_TRANSACTIONAL_LANE].cursor))
            if len(unread) == _LOOK_AHEAD or any(unread):
                return
        self._engine.begin_outgoing_sequence(self.queue)
        self.tx_outgoing_sequence.highest_sent = self._highest_read = 0

    def refresh_transfer_info(self) -> None:
        """Update what an operator sees (MS-MQDMPR 3.1.1.4), as 3.1.5.6 and 3.1.5.8.8 set it."""
        current = self._engine.outgoing_sequence(self.queue)
        if current is None:
            return
        sequence = self.tx_outgoing_sequence
        info = self.queue.outgoing_transfer_info
        if info is None:
            info = self.queue.outgoing_transfer_info = OutgoingTransferInfo(self.queue)
        info.eod_last_ack = _triple(sequence.last_ack)
        info.eod_last_ack_count = sequence.last_ack_count
        info.eod_last_ack_time = sequence.time_of_last_ack
        info.eod_no_read_count = current.no_read_count
        info.eod_resend_count = sequence.resend_interval_index
        info.eod_resend_interval = int(sequence.resend_interval)
        info.eod_resend_time = sequence.resend_time
        unacked = sequence.unacked
        info.eod_no_ack_count = len(unacked)
        info.eod_first_non_ack = _triple(sequence_info(unacked[0]) if unacked else NO_SEQUENCE_INFO)
        info.eod_last_non_ack = _triple(sequence_info(unacked[-1]) if unacked else NO_SEQUENCE_INFO)
        last = max(unacked[-1].tx_sequence_number if unacked else 0, sequence.highest_sent)
        info.eod_next_seq = (current.tx_sequence_id.value, last + 1, last)

    # The Transactional Ack Wait Timer (3.1.6.5)
    # -----------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when `on_timer` has something to do, on the monotonic clock."""
        return self.tx_outgoing_sequence.deadline

    def on_timer(self) -> None:
        """Handle the Transactional Ack Wait Timer event (3.1.6.5)."""
        deadline = self.tx_outgoing_sequence.deadline
        if deadline is not None and deadline <= self._monotonic():
            self.tx_outgoing_sequence.timed_out()
            self.resend()

    def resend(self) -> None:
        """Send all unacknowledged transactional messages again.

        Called when the timer has expired, and for an operator.
        """
        self.take_back()
        for entry in self._numbered.values():
            if entry.transmitted:
                self._send_again(entry)
        self.refresh_transfer_info()


def _do_some(waiting: dict[int, Record | None], work: Callable[[list[tuple[int, Record | None]]], None]) -> None:
    """Call `work` with the first slice of waiting messages, and then remove them.

    If it fails they stay. They are acknowledged, so nothing else would ever remove them.
    """
    some = list(islice(waiting.items(), _END_SLICE))
    work(some)
    for lookup_id, _ in some:
        waiting.pop(lookup_id, None)


def _triple(info: SequenceInfo) -> tuple[int, int, int]:
    return info.seq_id, info.seq_no, info.prev_no
