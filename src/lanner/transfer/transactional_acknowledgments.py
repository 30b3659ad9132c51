"""OrderAcks and FinalAcks to the senders of transactional messages.

Implements MS-MQQB 3.1.6.9, 3.1.7.2.2 and 3.1.7.17. They are end-to-end: they go to the queue
manager that sent the message, whichever queue managers forwarded it. An OrderAck uses the session
on which its messages arrived, unless that ends at a router. A FinalAck is recoverable and uses an
outgoing queue like any message.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import EnqueueStatus, MessageClass, SenderIdentifierType
from lanner.model.errors import IllegalFormatname
from lanner.model.live import DEAD_LETTER
from lanner.security.log_lines import log_of_peer
from lanner.security.peer_address import peer_of
from lanner.transfer.packets import (
    ORDER_QUEUE_NAME,
    ORDER_QUEUE_NUMBER,
    FinalAckBody,
    OrderAckBody,
    acknowledgment_properties,
    build_order_ack,
)
from lanner.wire import fields
from lanner.wire.format_name import DirectFormatName, PrivateFormatName
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.message import Message

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable

    from lanner.engine import Engine
    from lanner.model.directory_objects import Queue
    from lanner.model.live import MessagePosition
    from lanner.transfer.incoming_sequence import IncomingSequence, IncomingSequences
    from lanner.wire.builder import MessageProperties
    from lanner.wire.format_name import FormatName

_LOG = logging.getLogger(__name__)


class AcknowledgingLink(Protocol):
    """The part of a session that is needed here; its messages are acknowledged."""

    @property
    def remote_qm_guid(self) -> uuid.UUID: ...
    @property
    def is_open(self) -> bool: ...
    def send_express(self, packet: bytes) -> None: ...


def order_queue_of(source: uuid.UUID, remote_address: str, *, is_direct: bool) -> FormatName:
    """Return the destination of acknowledgments of a sender's sequence (QQB-3.1.7.17-3)."""
    if is_direct and remote_address:
        try:
            return DirectFormatName(f"TCP:{remote_address}\\PRIVATE$\\{ORDER_QUEUE_NAME}")
        except IllegalFormatname as error:
            text = "acknowledgments cannot go back to address %s: %s"
            log_of_peer(_LOG, logging.WARNING, "way back", remote_address, text, remote_address, error)
    return PrivateFormatName(source, ORDER_QUEUE_NUMBER)


class TransactionalAcknowledgments:
    """3.1.7.17 Send Transactional Acknowledgment. The store's lock is held.

    `is_known` returns whether the directory or an open session leads to a queue manager. Without
    it, all are assumed to be known.
    """

    def __init__(
        self, engine: Engine, sequences: IncomingSequences, is_known: Callable[[uuid.UUID], bool] | None = None
    ) -> None:
        self._engine = engine
        self._sequences = sequences
        self._is_known = is_known
        engine.position_deleted_subscribers.append(self._message_position_deleted)

    def stop(self) -> None:
        self._engine.position_deleted_subscribers.remove(self._message_position_deleted)

    def send_order_ack(self, sequence: IncomingSequence, link: AcknowledgingLink | None) -> None:
        """Send one OrderAck for what is on disk (3.1.6.9).

        Sends nothing if the session is closed or nothing has arrived.
        """
        sequence_id, number = sequence.durable
        if not number or link is None or not link.is_open:
            return
        engine = self._engine
        body = OrderAckBody.of(TxSequenceID.from_value(sequence_id), number)
        destination = order_queue_of(sequence.source, sequence.remote_address, is_direct=sequence.is_direct)
        if not sequence.is_direct and link.remote_qm_guid != sequence.source:
            # The messages came through a router, which forwards only messages addressed to the
            # sender.
            self._send(destination, acknowledgment_properties(MessageClass.ORDER_ACK, body), sequence.remote_address)
            return
        packet = build_order_ack(
            body,
            source=engine.queue_manager.identifier,
            ordinal=engine.next_message_ordinal(),
            sent_time=int(engine.clock()),
            destination=destination,
        )
        link.send_express(packet)

    def send_final_ack(
        self, packet: bytes, message_class: MessageClass, destination: FormatName, remote_address: str
    ) -> bool:
        """Send a FinalAck, the outcome of a transactional message.

        Return False if there is no room to keep the FinalAck until it is sent. `remote_address` is
        where the message came from; empty if it is no longer known.
        """
        return self._send(
            destination, acknowledgment_properties(message_class, FinalAckBody.of(packet)), remote_address
        )

    def _send(self, destination: FormatName, properties: MessageProperties, remote_address: str) -> bool:
        engine = self._engine
        # 2.2.4, 2.2.5: there is no SecurityHeader that could name a sender.
        properties.sender_identifier_type = SenderIdentifierType.NONE
        # Not in the specification, which has no time limit: a sender that is unreachable for this
        # long may not exist at all.
        properties.time_to_reach_queue = engine.settings.long_live_time
        if engine.find_queue(destination) is not None:
            text = "acknowledgment to %s is dropped: that is this queue manager"
            log_of_peer(_LOG, logging.WARNING, "to itself", "", text, destination)
            return True
        if not self._leads_anywhere(destination):
            # A packet may contain any SourceQueueManager, and each would get a queue.
            _LOG.debug("acknowledgment to %s is dropped: nobody knows that queue manager", destination)
            return True
        # The sender waits for it, so strangers must not be able to use up the queues for
        # acknowledgments.
        engine.outgoing.acknowledged_peer = peer_of(remote_address)
        try:
            status = engine.send_own_message(destination, properties)
        finally:
            engine.outgoing.acknowledged_peer = ""
        # None: the order queue cannot be opened, so no sender waits for the acknowledgment
        # (QQB-3.1.7.17-4); or its peer has caused too many of these queues, which is counted; or
        # the disk is full.
        return status is EnqueueStatus.OK or (status is None and not engine.store.refuses_sends)

    def _leads_anywhere(self, destination: FormatName) -> bool:
        if self._is_known is None or not isinstance(destination, PrivateFormatName):
            return True
        is_there = self._engine.find_outgoing_queue(destination) is not None
        return is_there or self._is_known(destination.queue_manager_identifier)

    def _message_position_deleted(self, queue: Queue, position: MessagePosition, reason: MessageClass) -> None:
        """Send a FinalAck for another queue manager's message that has left its queue (3.1.7.2.2).

        It may have been received or not.
        """
        packet = position.record.packet
        if (
            not fields.user_flags_2(packet) & fields.TH_IN_USER_FLAGS_2
            or fields.source_queue_manager(packet) == self._engine.queue_manager.identifier.bytes_le
            or isinstance(queue, OutgoingQueue)
            or position.record.flags & DEAD_LETTER
        ):
            return
        message = Message(packet)
        if not fields.user_flags_1(packet) & fields.JOURNALING_IN_USER_FLAGS_1 and not message.final_ack_required:
            return
        name = message.destination_queue_format_name
        sequence = None if name is None else self._sequences.find(fields.source_queue_manager(packet), name)
        source = message.source_machine_identifier
        remote_address = "" if sequence is None else sequence.remote_address
        destination = order_queue_of(source, remote_address, is_direct=sequence is not None and sequence.is_direct)
        self.send_final_ack(packet, reason, destination, remote_address)
