"""Sequences of transactional messages to a destination (MS-MQQB 3.1.1.3.1, 3.1.1.5, 3.1.7.1.3).

The specification numbers a message when it is first sent. Here a message is numbered when its
transaction commits into the outgoing queue, in the same batch of the store. No message is written
twice, and a crash can neither lose a number nor assign it to another message. A message gets its
position in the queue together with its number, so the order of the queue is the order of the
sequence.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from lanner.engine.tables import OUTGOING_SEQUENCES, QUEUE_KEY
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.live import START
from lanner.model.lookup_ids import SEQUENTIAL_ID_MASK
from lanner.wire.builder import set_sequence
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.message import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanner.engine.core import Core
    from lanner.engine.positions import Positions
    from lanner.model.live import MessagePosition

_ROW = struct.Struct(">IIQIQ")
_MAX_NUMBER = 0xFFFF_FFFF
# No queue has this number: it is the key of the row with the newest Timestamp of any sequence.
_NEWEST = QUEUE_KEY.pack(0)


class OutgoingSequence(NamedTuple):
    """OutgoingTxSequenceID and OutgoingTxSequenceNumber of one outgoing queue."""

    ordinal: int
    time_stamp: int
    number: int  # of the next message
    no_read_count: int  # messages of this queue that wait for their FinalAck
    epoch: int  # epoch of the store that assigned the Timestamp

    @property
    def tx_sequence_id(self) -> TxSequenceID:
        """OutgoingTxSequenceID."""
        return TxSequenceID(self.ordinal, self.time_stamp)


class OutgoingSequences:
    """The sequences of all outgoing queues, one each.

    No two have the same Timestamp, so a Timestamp identifies the queue.
    """

    def __init__(self, core: Core, positions: Positions) -> None:
        self._store = core.store
        self._queue_manager = core.queue_manager
        self._clocks = core.clocks
        self._numbers = core.numbers
        self._attributes = core.attributes
        self._positions = positions
        self._table = core.store.table(OUTGOING_SEQUENCES)
        # From the Timestamp of a sequence to the number of its queue.
        self.queues: dict[int, int] = {}

    def outgoing_sequence(self, queue: OutgoingQueue) -> OutgoingSequence | None:
        """Return the sequence to a destination; None before the first transactional message."""
        row = self._table.get(QUEUE_KEY.pack(queue.number))
        return None if row is None else OutgoingSequence._make(_ROW.unpack(row))

    def outgoing_queue_of(self, tx_sequence_id: TxSequenceID) -> OutgoingQueue | None:
        """Return the queue whose messages are or were numbered under this identifier."""
        number = self.queues.get(tx_sequence_id.time_stamp, 0)
        queue = self._queue_manager.queue_collection.get(number)
        if not isinstance(queue, OutgoingQueue):
            return None
        sequence = self.outgoing_sequence(queue)
        return queue if sequence is not None and sequence.time_stamp == tx_sequence_id.time_stamp else None

    def begin_outgoing_sequence(self, queue: OutgoingQueue) -> None:
        """Begin a new sequence: all messages of the old one are acknowledged (MS-MQQB 3.1.5.6)."""
        sequence = self.outgoing_sequence(queue)
        if sequence is not None:
            self.save(queue, sequence._replace(ordinal=sequence.ordinal + 1, number=1))

    def save(self, queue: OutgoingQueue, sequence: OutgoingSequence) -> None:
        """Write the sequence of a queue."""
        self._table.put(QUEUE_KEY.pack(queue.number), _ROW.pack(*sequence))

    def _first_sequence(self, queue: OutgoingQueue) -> OutgoingSequence:
        """Return a sequence with a new Timestamp, above any earlier one."""
        table, epoch = self._table, self._store.epoch
        row = table.get(_NEWEST)
        newest = 0 if row is None else OutgoingSequence._make(_ROW.unpack(row)).time_stamp
        sequence = OutgoingSequence(1, max(int(self._clocks.wall()), newest + 1), 1, 0, epoch)
        table.put(_NEWEST, _ROW.pack(*sequence))
        self.queues[sequence.time_stamp] = queue.number
        return sequence

    def take_numbers(self, queue: OutgoingQueue, positions: Sequence[MessagePosition]) -> None:
        """Give messages that enter an outgoing queue the next numbers and consecutive lookup ids.

        Their former lookup identifiers date from the send, and transactions may commit in another
        order.
        """
        for position in positions:
            if position.transaction is not None and position.transaction.is_prepared:
                self._store.delete(queue.number, position.lookup_id, position.record)
        self._positions.unhold_run(queue, positions)
        lookup_id = self._numbers.sequential_id.next(len(positions)) & SEQUENTIAL_ID_MASK
        lookup_id |= positions[0].lookup_id & ~SEQUENTIAL_ID_MASK
        key = QUEUE_KEY.pack(queue.number)
        row = self._table.get(key)
        ordinal, time_stamp, number, *rest = self._first_sequence(queue) if row is None else _ROW.unpack(row)
        sequence = TxSequenceID(ordinal, time_stamp)
        for place, position in enumerate(positions, lookup_id):
            position.lookup_id = place
            if number > _MAX_NUMBER:
                ordinal, number = ordinal + 1, 1
                sequence = TxSequenceID(ordinal, time_stamp)
            record = position.record
            record.packet = set_sequence(record.packet, sequence, number, number - 1)
            number += 1
        self._table.put(key, _ROW.pack(ordinal, time_stamp, number, *rest))

    def forget(self, queue: OutgoingQueue) -> None:
        """Drop the sequence of a deleted queue.

        A new queue to the same destination begins with a higher Timestamp.
        """
        sequence = self.outgoing_sequence(queue)
        if sequence is not None:
            self._table.delete(QUEUE_KEY.pack(queue.number))
            self.queues.pop(sequence.time_stamp, None)

    # Start ----------------------------------------------------------------------------------------

    def load(self) -> None:
        """Load the stored sequences, at startup and after a failure of the store."""
        self._skip_given_identifiers()
        for key, row in list(self._table.items()):
            sequence = OutgoingSequence._make(_ROW.unpack(row))
            queue = self._queue_manager.queue_collection.get(QUEUE_KEY.unpack(key)[0])
            if not isinstance(queue, OutgoingQueue):
                continue
            if sequence.epoch == self._store.epoch:
                self.queues[sequence.time_stamp] = queue.number
            else:
                self._renew_sequence(queue, sequence)

    def _skip_given_identifiers(self) -> None:
        """Skip message identifiers that may have been used after a backup that was restored.

        Receivers would drop new messages with these identifiers as duplicates (MS-MQQB 3.1.5.8.1).
        """
        epoch = self._store.epoch
        known = self._attributes.replace_epoch(epoch)
        if known not in (None, epoch):
            self._numbers.skip_message_ordinals()

    def _renew_sequence(self, queue: OutgoingQueue, old: OutgoingSequence) -> None:
        """Begin a new sequence after a restore: the numbers used since the backup are not known.

        Its Timestamp is above any earlier one (MS-MQQB 3.1.1.3.1). The waiting messages are
        numbered again, because none may be sent under the old identifier.
        """
        sequence = self._first_sequence(queue)._replace(no_read_count=old.no_read_count)
        after = START
        while (lookup_id := self._store.next(queue.number, after)) is not None:
            after = lookup_id
            record = self._store.get(queue.number, lookup_id)
            if record is None:
                continue
            waiting = Message(record.packet).transactional_message_sequence_identifier
            if waiting is not None and waiting.time_stamp == old.time_stamp:
                number = sequence.number
                record.packet = set_sequence(record.packet, sequence.tx_sequence_id, number, number - 1)
                self._store.put(queue.number, lookup_id, record, express=False)
                sequence = sequence._replace(number=number + 1)
        self.save(queue, sequence)
