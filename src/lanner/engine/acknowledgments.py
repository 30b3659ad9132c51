"""The acknowledger: the effects that a message requests for its arrival, removal or refusal.

It sends administration acknowledgments (MS-MQQB 3.1.5.8.10, 3.1.7.2.1, 3.1.7.15) and has `copies`
make journal copies and dead letters. It subscribes to arrivals and removals, so the parts that
raise these events do not depend on it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import (
    INFINITE,
    Acknowledgements,
    EnqueueStatus,
    MessageClass,
    MessagePrivacyLevel,
    QueueAccessType,
    QueueShareMode,
    QueueType,
    SenderIdentifierType,
)
from lanner.model.errors import InsufficientResources, StatusError
from lanner.model.live import DEAD_LETTER
from lanner.security.identity import ANONYMOUS_IN_EVERYONE, SYSTEM, Identity
from lanner.security.log_lines import log_of_peer
from lanner.security.profile import Profile
from lanner.wire.builder import MessageProperties
from lanner.wire.envelope import wants_attention
from lanner.wire.message import Message
from lanner.wire.sid import Sid

if TYPE_CHECKING:
    from lanner.engine.copies import Copies
    from lanner.engine.core import Core
    from lanner.engine.delivery import Delivery
    from lanner.engine.opening import OpenQueues
    from lanner.engine.sending import Sending
    from lanner.model.directory_objects import Queue
    from lanner.model.live import MessagePosition
    from lanner.wire.format_name import FormatName

_LOG = logging.getLogger(__name__)

# MS-MQQB 3.1.7.15: these would reveal to a stranger which queues exist and how they are protected.
INSECURE_NACKS: Final = frozenset(
    {
        MessageClass.NACK_BAD_DEST_QUEUE,
        MessageClass.NACK_BAD_ENCRYPTION,
        MessageClass.NACK_BAD_SIGNATURE,
        MessageClass.NACK_ACCESS_DENIED,
        MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER,
    }
)
# A positive acknowledgment has no body; a negative one returns the body of the message.
WITHOUT_BODY: Final = frozenset({MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE})
# Not in the specification, with profile SAFE: the longest body that a negative acknowledgment
# returns to a peer that the operator has not named.
MAX_BODY_FOR_STRANGERS: Final = 4096

# A module-level name instead of `Queue.is_system`, because every message that leaves is checked.
_SYSTEM: Final = QueueType.SYSTEM
_ACK_RECEIVE: Final = MessageClass.ACK_RECEIVE


class Acknowledger:
    """Answers arrivals and removals with the effects that the message requests."""

    def __init__(self, core: Core, opening: OpenQueues, sending: Sending, copies: Copies, delivery: Delivery) -> None:
        self._settings = core.settings
        self._is_safe = core.settings.profile is Profile.SAFE
        self._shares = core.shares
        self.opening = opening
        self._sending = sending
        self._copies = copies
        self._delivery = delivery

    def message_arrived(self, queue: Queue, position: MessagePosition) -> None:
        """Acknowledge and journal a message that came to a local queue."""
        if isinstance(queue, OutgoingQueue) or queue.is_system:
            return
        message = Message(position.record.packet)
        if message.acknowledgements_requested & Acknowledgements.POS_ARRIVAL:
            self.send_administration_acknowledgment(message, MessageClass.ACK_REACH_QUEUE)
        if message.positive_journaling_requested and self._copies.is_from_here(message):
            self._copies.journal_sent(message)

    def message_removed(self, queue: Queue, position: MessagePosition, reason: MessageClass) -> None:
        """Acknowledge, journal or dead-letter a message that left a queue."""
        if queue.queue_type is _SYSTEM:
            # A journal, dead-letter or internal queue: no acknowledgment.
            self._delivery.system_message_removed(queue, position)
            return
        record = position.record
        if queue.journaling and reason is _ACK_RECEIVE:
            self._copies.journal_received(queue, record.packet)
        if not wants_attention(record.packet) or record.flags & DEAD_LETTER:
            return
        message = Message(record.packet)
        if isinstance(queue, OutgoingQueue):
            # The message was removed on its way: NackPurged, regardless of who emptied the queue.
            removed = reason in (MessageClass.NACK_QUEUE_PURGED, MessageClass.NACK_QUEUE_DELETED)
            self.refused(message, MessageClass.NACK_PURGED if removed else reason)
            return
        requested = message.acknowledgements_requested
        wanted = Acknowledgements.POS_RECEIVE if reason is _ACK_RECEIVE else Acknowledgements.NEG_RECEIVE
        if requested & wanted:
            self.send_administration_acknowledgment(message, reason)
        if reason is MessageClass.NACK_RECEIVE_TIMEOUT or (message.is_transactional and reason is not _ACK_RECEIVE):
            self._copies.dead_letter(message, reason)

    def refused(self, message: Message, reason: MessageClass) -> None:
        """Acknowledge and dead-letter a message that did not reach its queue."""
        if reason is _ACK_RECEIVE:
            return
        if message.acknowledgements_requested & Acknowledgements.NEG_ARRIVAL:
            self.send_administration_acknowledgment(message, reason)
        self._copies.dead_letter(message, reason)

    def send_administration_acknowledgment(self, message: Message, message_class: MessageClass) -> None:
        """3.1.7.15 Send Administration Acknowledgment (MS-MQQB)."""
        destination = message.administration_queue_format_name
        if destination is None:
            return
        if message_class in INSECURE_NACKS and not self._settings.send_insecure_nacks:
            return
        if self._copies.is_to_internal_queue(message):
            return
        acknowledgment = MessageProperties(
            message_class=message_class,
            correlation_identifier=message.identifier_bytes,
            response_queue_format_name=message.destination_queue_format_name,
            delivery_guarantee=message.delivery_guarantee,
            time_to_reach_queue=INFINITE,
            # A queue that is open to Everyone accepts this (MS-MQQB 3.1.5.8.3, ST 2). For a message
            # without a sender, its list would need an entry for the anonymous user.
            sender_identifier_type=SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER,
        )
        is_for_others = not self._copies.is_from_here(message)
        is_negative = message_class not in WITHOUT_BODY
        source = message.source_machine_identifier.bytes_le
        is_for_stranger = is_negative and self._is_safe and self._shares.is_of_stranger(source)
        if is_for_stranger:
            acknowledgment.time_to_reach_queue = self._settings.long_live_time
        is_plain = message.privacy_level == MessagePrivacyLevel.NONE and not message.is_body_encrypted
        is_returned = not is_for_stranger or message.body_size <= MAX_BODY_FOR_STRANGERS
        if is_negative and is_plain and is_returned:
            acknowledgment.body = message.body
            acknowledgment.body_type = message.body_type
        self.send_own_message(destination, acknowledgment, self.sender_of(message), for_others=is_for_others)

    def send_own_message(
        self,
        destination: FormatName,
        properties: MessageProperties,
        identity: Identity = SYSTEM,
        *,
        for_others: bool = True,
    ) -> EnqueueStatus | None:
        """Send a message of the queue manager itself.

        Returns None if its queue cannot be opened or the disk is full.

        With `for_others`, it answers a message of another computer, so the limit on outgoing queues
        applies.
        """
        try:
            # Not the event for applications, because a message can also leave while the queue
            # manager starts or stops.
            descriptor = self.opening.open(
                destination, QueueAccessType.SEND, QueueShareMode.DENY_NONE, identity, for_others=for_others
            )
        except InsufficientResources:
            return None  # logged where it is raised, but not for each message
        except StatusError as error:
            text = "message %#06x to %s is dropped: %s"
            log_of_peer(_LOG, logging.INFO, "dropped", "", text, properties.message_class, destination, error)
            return None
        try:
            return self._sending.sender(descriptor, None)(properties)
        except StatusError as error:
            text = "message %#06x to %s is dropped: %s"
            log_of_peer(_LOG, logging.INFO, "dropped", "", text, properties.message_class, destination, error)
            return None
        finally:
            self.opening.close_queue(descriptor)

    def sender_of(self, message: Message) -> Identity:
        """Return the identity that requested an acknowledgment or a report.

        The answer may go only where that identity may send. Otherwise a message to a queue that is
        open to all could put its body into a queue that is not. A SID is trusted in messages that
        were sent here, because the engine wrote it.
        """
        if message.sender_identifier_type != SenderIdentifierType.SID or not self._copies.is_from_here(message):
            # The acknowledgment is the queue manager's own, so it may go to a queue that is open to
            # everyone.
            return ANONYMOUS_IN_EVERYONE
        return self._copies.deadletters.identity_of(Sid.unpack(message.sender_identifier))
