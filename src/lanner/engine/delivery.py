"""What becomes of a message when another queue manager has it (MS-MQQB 3.1.5.5.2-3.1.5.5.4, 3.1.5.6, 3.1.5.7).

A transactional message with source journaling or dead-lettering stays until its FinalAck tells how it ended. It has left its
outgoing queue by then and lies in a queue of its own, AwaitingFinalACKTable, under the ordinal of its message identifier, by
which the FinalAck names it. There it counts against the quota of the queue manager, and an administrator can look at it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from lanner.engine.envelope import read_envelope
from lanner.engine.outgoing_sequences import OutgoingSequences
from lanner.model.enums import MessageClass, PositionState
from lanner.model.events import EventKind
from lanner.model.live import MessagePosition, Record
from lanner.wire.builder import read_sequence
from lanner.wire.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lanner.model.directory_objects import OutgoingQueue, Queue
    from lanner.wire.identifiers import TxSequenceID

_ordinal = struct.Struct("<56xI").unpack_from  # UserHeader.MessageID


class Delivery(OutgoingSequences):
    """Messages leave outgoing queues."""

    def messages_delivered(self, queue: OutgoingQueue, delivered: Iterable[tuple[int, Record | None]]) -> None:
        """Another queue manager has acknowledged these: they leave, with a copy in the journal where one was asked for.

        With each comes what was read when it was sent, if that is known still.
        """
        for lookup_id, record in delivered:
            packet = self._take_delivered(queue, lookup_id, record)
            if packet is None:
                continue
            message = Message(packet)
            if message.positive_journaling_requested and not message.is_transactional and self._is_from_here(message):
                self._journal_sent(message)

    def messages_await_final_ack(self, queue: OutgoingQueue, delivered: Iterable[tuple[int, Record | None]]) -> None:
        """3.1.5.6: the destination has these; those that asked to be told of their end wait for it."""
        waiting = 0
        for lookup_id, record in delivered:
            packet = self._take_delivered(queue, lookup_id, record)
            if packet is None:
                continue
            message = Message(packet)
            if message.positive_journaling_requested or message.negative_journaling_requested:
                self._await_final_ack(packet)
                waiting += 1
        if waiting:
            self._count_unread(queue, waiting)

    def _take_delivered(self, queue: OutgoingQueue, lookup_id: int, sent: Record | None) -> bytes | None:
        """The packet of a message, which leaves; None if it expired or was purged meanwhile."""
        # An administrator who holds it has lost it: what is delivered cannot be received here.
        held = queue.held_positions.get(lookup_id)
        if held is None and sent is not None and self.events is None:
            # To read it again would cost more than all that follows.
            if not self.store.delete(queue.number, lookup_id, sent):
                return None
            self._remove(queue, MessagePosition(queue, lookup_id, sent), is_deleted=True)
            return sent.packet
        record = self.store.get(queue.number, lookup_id)
        if record is None:
            return None
        position = held or MessagePosition(queue, lookup_id, record)
        if position.state is PositionState.PURGE_PENDING:
            self._purge_pending_table.delete(self._position_key(position))
        if self.events is not None:
            self.events.add(EventKind.TRANSFERRED_OUT, position)
        self._remove(queue, position)
        return record.packet

    # AwaitingFinalACKTable --------------------------------------------------------------------------------------

    def _await_final_ack(self, packet: bytes) -> None:
        queue = self.queue_manager.awaiting_final_ack_queue
        if queue is None:
            return
        size = len(packet)
        queue.total_bytes += size
        self.queue_manager.total_bytes += size
        position = MessagePosition(queue, _ordinal(packet)[0], Record(packet, int(self.clock())))
        self._store(position, read_envelope(packet))

    def final_acknowledgment(
        self, ordinal: int, tx_sequence_id: TxSequenceID, tx_sequence_number: int, message_class: int
    ) -> bool:
        """3.1.5.7: the end of a message that awaited it; False if there is none of that identifier and that place.

        Identifiers are counted up, so anybody could name one; a place in a sequence is known to whoever got the message.
        """
        queue = self.queue_manager.awaiting_final_ack_queue
        record = None if queue is None else self.store.get(queue.number, ordinal)
        if queue is None or record is None or read_sequence(record.packet) != (tx_sequence_id, tx_sequence_number):
            return False
        position = queue.held_positions.get(ordinal) or MessagePosition(queue, ordinal, record)
        self.message_position_deleted(queue, position, MessageClass.ACK_RECEIVE)
        self._conclude(record.packet, message_class, ordinal)
        return True

    def final_acknowledgment_in_queue(self, queue: OutgoingQueue, lookup_id: int, message_class: int) -> bool:
        """3.1.5.7 for a message whose OrderAck has not come: it ends all the same and is not sent again."""
        packet = self._take_delivered(queue, lookup_id, None)
        if packet is None:
            return False
        self._conclude(packet, message_class, lookup_id)
        return True

    def _conclude(self, packet: bytes, message_class: int, lookup_id: int) -> None:
        message = Message(packet)
        if self.events is not None:
            self.events.tell(EventKind.CONCLUDED, None, lookup_id, packet, reason=message_class)
        if message_class != MessageClass.ACK_RECEIVE:
            self._dead_letter(message, message_class)
        elif message.positive_journaling_requested:
            self._journal_sent(message)

    def _journal_sent(self, message: Message) -> None:
        """Source journaling; not of what goes to the queues of queue managers themselves (QQB-3.1.5.8.10-2)."""
        if not self.is_to_internal_queue(message):
            self._journal(self.queue_manager.system_journal_queue, message.packet)

    # EodNoReadCount ---------------------------------------------------------------------------------------------

    def _count_unread(self, queue: OutgoingQueue, change: int) -> None:
        sequence = self.outgoing_sequence(queue)
        if sequence is not None:
            count = max(0, sequence.no_read_count + change)
            self._save_sequence(queue, sequence._replace(no_read_count=count))
            if queue.outgoing_transfer_info is not None:
                queue.outgoing_transfer_info.eod_no_read_count = count

    def _system_message_removed(self, queue: Queue, position: MessagePosition) -> None:
        if queue is self.queue_manager.awaiting_final_ack_queue:
            sequence = Message(position.record.packet).transactional_message_sequence_identifier
            sender = None if sequence is None else self.outgoing_queue_of(sequence)
            if sender is not None:
                self._count_unread(sender, -1)
