"""An outgoing queue and its table, with a peer that the test plays.

The test sees what the peer gets and decides what it acknowledges.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lanner.model.directory_objects import OutgoingQueue, Queue
from lanner.model.enums import QueueAccessType
from lanner.model.live import MessagePosition, Record
from lanner.transfer.awaiting_final_ack import AwaitingFinalAck
from lanner.transfer.outgoing_message_table import OutgoingMessagePosition, OutgoingMessageTable
from lanner.transfer.packets import FinalAckBody, OrderAckBody
from lanner.transfer.settings import TransferSettings
from lanner.wire.format_name import parse
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.message import Message
from tests.engine.harness import Harness

DESTINATION = r"DIRECT=TCP:192.0.2.1\private$\far"


class Outgoing(Harness):
    """`h.table` is what is tested; a message is sent with `h.say`, and leaves with `h.transmit`."""

    def __init__(self, path: Path, transfer: TransferSettings | None = None, **settings: object) -> None:
        self.transfer = transfer or TransferSettings()
        super().__init__(path, **settings)  # type: ignore[arg-type] # the test's own choice

    def start(self) -> None:
        super().start()
        # An outgoing queue comes into being when it is opened.
        self.engine.close_queue(self.open(DESTINATION, QueueAccessType.SEND))
        self.new_table()
        self.engine.position_available_subscribers.append(self._available)
        self.engine.position_deleted_subscribers.append(self._deleted)
        self.sync()

    def new_table(self) -> None:
        """The table of a session that has just been opened."""
        self.table = OutgoingMessageTable(
            self.engine,
            self.far,
            self.transfer,
            lambda: self.now,
            sent_before=self.engine.outgoing_sequence(self.far),
        )
        self.table.session_opened()
        self.awaiting = AwaitingFinalAck(self.engine)

    def _available(self, queue: Queue, first: int, _records: Sequence[Record]) -> None:
        if queue is self.table.queue:
            self.table.message_available(first)

    def _deleted(self, queue: Queue, position: MessagePosition, _reason: object) -> None:
        if queue is self.table.queue:
            self.table.message_removed(position)

    @property
    def far(self) -> OutgoingQueue:
        queue = self.engine.find_outgoing_queue(parse(DESTINATION))
        assert isinstance(queue, OutgoingQueue)
        return queue

    def say(self, *bodies: bytes, transactional: bool = False, **properties: object) -> None:
        """Send messages to the far queue, durably; transactional ones in one transaction."""
        transaction = self.begin() if transactional else None
        for body in bodies:
            self.send(DESTINATION, body, transaction=transaction, **properties)  # type: ignore[arg-type]
        if transaction is not None:
            self.commit(transaction)
        self.sync()

    def transmit(self, room: int = 64) -> list[OutgoingMessagePosition]:
        """Return the messages that go to the peer now."""
        entries = self.table.next_unsent(room)
        for entry in entries:
            self.table.sent([entry])
        return entries

    def packets(self, room: int = 64) -> list[Message]:
        return [Message(entry.packet) for entry in self.transmit(room)]

    def acknowledge(self, *entries: OutgoingMessagePosition) -> None:
        """A SessionAck: the peer has them, and those that are recoverable on its disk."""
        self.session_acked(entries, [entry for entry in entries if entry.is_recoverable])

    def session_acked(
        self, acked: Sequence[OutgoingMessagePosition], persisted: Sequence[OutgoingMessagePosition]
    ) -> None:
        """A SessionAck for some as received, and some as on disk."""
        self.table.session_acked(acked, persisted)
        self.end_all()

    def order_ack(self, number: int, sequence: TxSequenceID | None = None) -> bool:
        is_ours = self.table.order_ack(OrderAckBody.of(sequence or self.sequence_id, number))
        self.end_all()
        return is_ours

    def end_all(self) -> None:
        """Acknowledge messages, which then leave the queue."""
        while self.table.is_ending:
            self.table.end_some()

    def final_ack(self, packet: bytes, message_class: int = 0x4000) -> bool:
        return self.awaiting.final_ack(FinalAckBody.of(packet), message_class, self.table)

    @property
    def sequence_id(self) -> TxSequenceID:
        sequence = self.engine.outgoing_sequence(self.far)
        assert sequence is not None
        return sequence.tx_sequence_id

    @property
    def waiting(self) -> list[bytes]:
        """The bodies that are still in the outgoing queue."""
        found, after = [], -1
        while (lookup_id := self.store.next(self.far.number, after)) is not None:
            after = lookup_id
            record = self.store.get(self.far.number, lookup_id)
            assert record is not None
            found.append(Message(record.packet).body)
        return found

    def copies(self, queue: Queue | None) -> list[bytes]:
        """The bodies in a journal or dead-letter queue."""
        assert queue is not None
        found, after = [], -1
        while (lookup_id := self.store.next(queue.number, after)) is not None:
            after = lookup_id
            record = self.store.get(queue.number, lookup_id)
            assert record is not None
            found.append(Message(record.packet).body)
        return found

    @property
    def journal(self) -> list[bytes]:
        return self.copies(self.engine.queue_manager.system_journal_queue)

    @property
    def dead_letters(self) -> list[bytes]:
        return self.copies(self.engine.queue_manager.system_deadletter_queue)

    @property
    def transactional_dead_letters(self) -> list[bytes]:
        return self.copies(self.engine.queue_manager.system_transactional_deadletter_queue)

    @property
    def unread(self) -> list[bytes]:
        """The bodies in AwaitingFinalACKTable."""
        return self.copies(self.engine.queue_manager.awaiting_final_ack_queue)


def numbers(messages: list[Message]) -> list[tuple[int, int]]:
    """TxSequenceNumber and PreviousTxSequenceNumber of each."""
    return [(m.transaction_sequence_number, m.transaction_previous_sequence_number) for m in messages]


def bodies(messages: list[Message]) -> list[bytes]:
    return [message.body for message in messages]
