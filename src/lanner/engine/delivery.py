"""Messages that another queue manager has accepted (MS-MQQB 3.1.5.5.2-3.1.5.5.4, 3.1.5.6, 3.1.5.7).

A transactional message with source journaling or dead-lettering is kept until its FinalAck reports
its outcome. By then it has left its outgoing queue and is in a queue of its own,
AwaitingFinalACKTable, under the ordinal of its message identifier, which the FinalAck names. There
it counts against the quota of the queue manager, and an administrator can see it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.model.enums import MessageClass
from lanner.model.events import EventKind
from lanner.model.live import MessagePosition, Record
from lanner.wire.builder import read_sequence
from lanner.wire.envelope import message_ordinal, read_envelope, wants_attention
from lanner.wire.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lanner.engine.copies import Copies
    from lanner.engine.core import Core
    from lanner.engine.outgoing_sequences import OutgoingSequences
    from lanner.engine.positions import Positions
    from lanner.model.directory_objects import OutgoingQueue, Queue
    from lanner.wire.identifiers import TxSequenceID


class Delivery:
    """Removal of messages from outgoing queues when they are acknowledged."""

    def __init__(self, core: Core, positions: Positions, sequences: OutgoingSequences, copies: Copies) -> None:
        self._store = core.store
        self._queue_manager = core.queue_manager
        self._clocks = core.clocks
        self._recorder = core.recorder
        self._positions = positions
        self._sequences = sequences
        self._copies = copies

    def messages_delivered(self, queue: OutgoingQueue, delivered: Iterable[tuple[int, Record | None]]) -> None:
        """Remove messages that another queue manager has acknowledged, and journal them.

        Each comes with the record that was read when it was sent, if that is still known.
        """
        for packet in self._take_delivered(queue, delivered):
            message = Message(packet)
            is_journaled = message.positive_journaling_requested and not message.is_transactional
            if is_journaled and self._copies.is_from_here(message):
                self._copies.journal_sent(message)

    def messages_await_final_ack(self, queue: OutgoingQueue, delivered: Iterable[tuple[int, Record | None]]) -> None:
        """Remove messages that the destination has (3.1.5.6).

        Those with source journaling wait for their FinalAck.
        """
        waiting = 0
        for packet in self._take_delivered(queue, delivered):
            message = Message(packet)
            if message.positive_journaling_requested or message.negative_journaling_requested:
                self.await_final_ack(packet)
                waiting += 1
        if waiting:
            self._count_unread(queue, waiting)

    def _take_delivered(self, queue: OutgoingQueue, delivered: Iterable[tuple[int, Record | None]]) -> list[bytes]:
        """Remove messages, and return the packets that need further work.

        These packets request journaling, dead-lettering or acknowledgment. Messages that have
        expired or were purged are not among them.
        """
        sent: list[tuple[int, Record]] = []
        packets: dict[int, bytes] = {}
        for lookup_id, record in delivered:
            if record is not None and lookup_id not in queue.held_positions:
                # Reading the record again would cost more than all later steps.
                sent.append((lookup_id, record))
            elif (packet := self._take(queue, lookup_id)) is not None:
                packets[lookup_id] = packet
        gone = self._store.delete_run(queue.number, sent)
        if gone:
            if self._recorder is not None:
                self._recorder.run_delivered(queue, gone)
            self._positions.remove_run(queue, gone)
            packets |= {lookup_id: record.packet for lookup_id, record in gone if wants_attention(record.packet)}
        return [packet for _, packet in sorted(packets.items()) if wants_attention(packet)]

    def _take(self, queue: OutgoingQueue, lookup_id: int) -> bytes | None:
        """Remove a message and return its packet; None if it has expired or was purged."""
        record = self._store.get(queue.number, lookup_id)
        if record is None:
            return None
        # An administrator's lock does not keep it: a delivered message cannot be received here.
        position = queue.held_positions.get(lookup_id) or MessagePosition(queue, lookup_id, record)
        self._positions.forget_purge(position)
        if self._recorder is not None:
            self._recorder.add(EventKind.TRANSFERRED_OUT, position)
        self._positions.remove(queue, position)
        return record.packet

    # AwaitingFinalACKTable ------------------------------------------------------------------------

    def await_final_ack(self, packet: bytes) -> None:
        """Keep a message that has left its outgoing queue until its FinalAck arrives."""
        queue = self._queue_manager.awaiting_final_ack_queue
        if queue is None:
            return
        size = len(packet)
        queue.total_bytes += size
        self._queue_manager.total_bytes += size
        position = MessagePosition(queue, message_ordinal(packet)[0], Record(packet, int(self._clocks.wall())))
        self._positions.write(position, read_envelope(packet))

    def final_acknowledgment(
        self, ordinal: int, tx_sequence_id: TxSequenceID, tx_sequence_number: int, message_class: int
    ) -> bool:
        """End the wait of a message for its FinalAck (3.1.5.7).

        Returns False if no message has that identifier and that place in its sequence. Identifiers
        are consecutive, so any peer could guess one; only the receiver knows the place in the
        sequence.
        """
        queue = self._queue_manager.awaiting_final_ack_queue
        record = None if queue is None else self._store.get(queue.number, ordinal)
        if queue is None or record is None or read_sequence(record.packet) != (tx_sequence_id, tx_sequence_number):
            return False
        position = queue.held_positions.get(ordinal) or MessagePosition(queue, ordinal, record)
        self._positions.message_position_deleted(queue, position, MessageClass.ACK_RECEIVE)
        self._conclude(record.packet, message_class, ordinal)
        return True

    def final_acknowledgment_in_queue(self, queue: OutgoingQueue, lookup_id: int, message_class: int) -> bool:
        """Apply a FinalAck (3.1.5.7) to a message whose OrderAck has not arrived.

        Removes it, so that it is not sent again.
        """
        packet = self._take(queue, lookup_id)
        if packet is None:
            return False
        self._conclude(packet, message_class, lookup_id)
        return True

    def _conclude(self, packet: bytes, message_class: int, lookup_id: int) -> None:
        message = Message(packet)
        if self._recorder is not None:
            self._recorder.tell(EventKind.CONCLUDED, None, lookup_id, packet, reason=message_class)
        if message_class != MessageClass.ACK_RECEIVE:
            self._copies.dead_letter(message, message_class)
        elif message.positive_journaling_requested:
            self._copies.journal_sent(message)

    # EodNoReadCount -------------------------------------------------------------------------------

    def _count_unread(self, queue: OutgoingQueue, change: int) -> None:
        sequence = self._sequences.outgoing_sequence(queue)
        if sequence is not None:
            count = max(0, sequence.no_read_count + change)
            self._sequences.save(queue, sequence._replace(no_read_count=count))
            if queue.outgoing_transfer_info is not None:
                queue.outgoing_transfer_info.eod_no_read_count = count

    def system_message_removed(self, queue: Queue, position: MessagePosition) -> None:
        """Note that a message has left a system queue.

        A message of AwaitingFinalACKTable no longer waits for its FinalAck.
        """
        if queue is self._queue_manager.awaiting_final_ack_queue:
            sequence = Message(position.record.packet).transactional_message_sequence_identifier
            sender = None if sequence is None else self._sequences.outgoing_queue_of(sequence)
            if sender is not None:
                self._count_unread(sender, -1)
