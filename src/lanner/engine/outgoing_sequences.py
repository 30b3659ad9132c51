"""Places of transactional messages in the sequence to their destination (MS-MQQB 3.1.1.3.1, 3.1.1.5, 3.1.7.1.3).

The document numbers a message when it is first sent. Here it is numbered when its transaction commits into the outgoing queue, in
the same batch of the store: no message is written twice, and no number can be lost or given to another message by a crash. A
message that is numbered takes its place in the queue with its number, so the order of the queue is the order of the sequence.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from lanner.engine.acknowledgments import Acknowledgments
from lanner.engine.tables import EPOCH, EPOCH_KEY, QUEUE_KEY
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import OutgoingState
from lanner.model.live import START
from lanner.model.lookup_ids import SEQUENTIAL_ID_MASK
from lanner.wire.builder import set_sequence
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.message import Message

if TYPE_CHECKING:
    from lanner.model.directory_objects import Queue
    from lanner.model.live import MessagePosition

_ROW = struct.Struct(">IIQIQ")
_MAX_NUMBER = 0xFFFF_FFFF
# Ours: more messages than anybody sends between a backup and its use.
_SKIPPED_IDENTIFIERS = 1 << 30
# No queue has this number: the row of the newest Timestamp that was given to any.
_NEWEST = QUEUE_KEY.pack(0)


class OutgoingSequence(NamedTuple):
    """OutgoingTxSequenceID and OutgoingTxSequenceNumber of one outgoing queue."""

    ordinal: int
    time_stamp: int
    number: int  # of the next message
    no_read_count: int  # messages of this queue that wait for their FinalAck
    epoch: int  # of the store that gave the Timestamp

    @property
    def tx_sequence_id(self) -> TxSequenceID:
        """OutgoingTxSequenceID."""
        return TxSequenceID(self.ordinal, self.time_stamp)


class OutgoingSequences(Acknowledgments):
    """Sequences are per outgoing queue; no Timestamp is given to two of them, so one tells the queue."""

    def outgoing_sequence(self, queue: OutgoingQueue) -> OutgoingSequence | None:
        """The sequence to a destination; None before the first transactional message."""
        row = self._outgoing_sequences_table.get(QUEUE_KEY.pack(queue.number))
        return None if row is None else OutgoingSequence._make(_ROW.unpack(row))

    def outgoing_queue_of(self, tx_sequence_id: TxSequenceID) -> OutgoingQueue | None:
        """The queue whose messages are or were numbered under this identifier."""
        number = self._sequence_queues.get(tx_sequence_id.time_stamp, 0)
        queue = self.queue_manager.queue_collection.get(number)
        if not isinstance(queue, OutgoingQueue):
            return None
        sequence = self.outgoing_sequence(queue)
        return queue if sequence is not None and sequence.time_stamp == tx_sequence_id.time_stamp else None

    def begin_outgoing_sequence(self, queue: OutgoingQueue) -> None:
        """MS-MQQB 3.1.5.6: every message of the sequence was acknowledged, a new one begins."""
        sequence = self.outgoing_sequence(queue)
        if sequence is not None:
            self._save_sequence(queue, sequence._replace(ordinal=sequence.ordinal + 1, number=1))

    def _save_sequence(self, queue: OutgoingQueue, sequence: OutgoingSequence) -> None:
        self._outgoing_sequences_table.put(QUEUE_KEY.pack(queue.number), _ROW.pack(*sequence))

    def _first_sequence(self, queue: OutgoingQueue) -> OutgoingSequence:
        """A Timestamp above any earlier one, also where the clock was set back."""
        table, epoch = self._outgoing_sequences_table, self.store.epoch
        row = table.get(_NEWEST)
        newest = 0 if row is None else OutgoingSequence._make(_ROW.unpack(row)).time_stamp
        sequence = OutgoingSequence(1, max(int(self.clock()), newest + 1), 1, 0, epoch)
        table.put(_NEWEST, _ROW.pack(*sequence))
        self._sequence_queues[sequence.time_stamp] = queue.number
        return sequence

    def _take_sequence_number(self, position: MessagePosition) -> None:
        """A transactional message enters an outgoing queue: the next number, and the place that goes with it.

        Lookup identifiers were given when the messages were sent; transactions may commit in another order.
        """
        queue = position.queue
        if not isinstance(queue, OutgoingQueue):
            return
        record = position.record
        if position.transaction is not None and position.transaction.is_prepared:
            self.store.delete(queue.number, position.lookup_id, record)
        self._unhold(position)
        position.lookup_id = position.lookup_id & ~SEQUENTIAL_ID_MASK | self._sequential_id.next() & SEQUENTIAL_ID_MASK
        key = QUEUE_KEY.pack(queue.number)
        row = self._outgoing_sequences_table.get(key)
        ordinal, time_stamp, number, *rest = self._first_sequence(queue) if row is None else _ROW.unpack(row)
        if number > _MAX_NUMBER:
            ordinal, number = ordinal + 1, 1
        record.packet = set_sequence(record.packet, TxSequenceID(ordinal, time_stamp), number, number - 1)
        self._outgoing_sequences_table.put(key, _ROW.pack(ordinal, time_stamp, number + 1, *rest))

    def _delete_one(self, queue: Queue) -> None:
        """An outgoing queue takes its sequence along: one that is made anew begins with a higher Timestamp."""
        sequence = self.outgoing_sequence(queue) if isinstance(queue, OutgoingQueue) else None
        super()._delete_one(queue)
        if sequence is not None:
            self._outgoing_sequences_table.delete(QUEUE_KEY.pack(queue.number))
            self._sequence_queues.pop(sequence.time_stamp, None)

    def is_idle(self, queue: OutgoingQueue) -> bool:
        """Whether nobody would miss an outgoing queue: empty, not open, not paused, nothing waits for a FinalAck."""
        if queue.open_queue_descriptors or queue.message_count or queue.held_positions:
            return False
        sequence = self.outgoing_sequence(queue)
        return queue.state is not OutgoingState.ON_HOLD and (sequence is None or not sequence.no_read_count)

    def remove_idle_outgoing_queue(self, queue: OutgoingQueue) -> bool:
        """Remove an outgoing queue that nobody uses; it is made again when somebody sends to its destination."""
        if queue.is_deleted or not self.is_idle(queue):
            return False
        self._delete_one(queue)
        return True

    # Start ------------------------------------------------------------------------------------------------------

    def _load_sequences(self) -> None:
        self._skip_given_identifiers()
        for key, row in list(self._outgoing_sequences_table.items()):
            sequence = OutgoingSequence._make(_ROW.unpack(row))
            queue = self.queue_manager.queue_collection.get(QUEUE_KEY.unpack(key)[0])
            if not isinstance(queue, OutgoingQueue):
                continue
            if sequence.epoch == self.store.epoch:
                self._sequence_queues[sequence.time_stamp] = queue.number
            else:
                self._renew_sequence(queue, sequence)

    def _skip_given_identifiers(self) -> None:
        """The store was restored from a backup: message identifiers were given since that are not known here.

        Given again, they would make receivers drop new messages as duplicates (MS-MQQB 3.1.5.8.1).
        """
        epoch = EPOCH.pack(self.store.epoch)
        known = self._settings_table.get(EPOCH_KEY)
        if known != epoch:
            self._settings_table.put(EPOCH_KEY, epoch)
            if known is not None:
                self._message_ordinal.next(_SKIPPED_IDENTIFIERS)

    def _renew_sequence(self, queue: OutgoingQueue, old: OutgoingSequence) -> None:
        """The store was restored from a backup, and what was numbered after it was made is not known here.

        So the sequence begins anew (MS-MQQB 3.1.1.3.1: a Timestamp above any earlier one), and the messages that wait are
        numbered again, since nothing may be sent under the older identifier.
        """
        sequence = self._first_sequence(queue)._replace(no_read_count=old.no_read_count)
        after = START
        while (lookup_id := self.store.next(queue.number, after)) is not None:
            after = lookup_id
            record = self.store.get(queue.number, lookup_id)
            if record is None:
                continue
            waiting = Message(record.packet).transactional_message_sequence_identifier
            if waiting is not None and waiting.time_stamp == old.time_stamp:
                number = sequence.number
                record.packet = set_sequence(record.packet, sequence.tx_sequence_id, number, number - 1)
                self.store.put(queue.number, lookup_id, record, express=False)
                sequence = sequence._replace(number=number + 1)
        self._save_sequence(queue, sequence)
