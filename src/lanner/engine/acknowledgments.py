"""What a message asks of others when it arrives, leaves or is refused.

Administration acknowledgments (MS-MQQB 3.1.5.8.10, 3.1.7.2.1, 3.1.7.15), target journaling (MS-MQDMPR
3.1.1.2 Journaling), source journaling and dead-lettering (3.1.1.12 PositiveJournalingRequested,
NegativeJournalingRequested, ApplicationDeadletterQueue).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lanner.engine.envelope import read_envelope, wants_attention
from lanner.engine.positions import DEAD_LETTER
from lanner.engine.queues import LAST_SYSTEM_QUEUE_NUMBER
from lanner.engine.sending import Sending
from lanner.model.directory_objects import KILOBYTE, OutgoingQueue
from lanner.model.enums import (
    INFINITE,
    Acknowledgements,
    EnqueueStatus,
    MessageClass,
    MessagePrivacyLevel,
    QueueAccessType,
    QueuePrivacyLevel,
    QueueShareMode,
    QueueType,
    SenderIdentifierType,
)
from lanner.model.errors import InsufficientResources, StatusError
from lanner.model.events import EventKind
from lanner.security.access import QUEUE_RIGHTS, is_granted
from lanner.security.identity import ANONYMOUS, ANONYMOUS_IN_EVERYONE, SYSTEM, Identity
from lanner.wire.builder import MessageProperties, set_message_class
from lanner.wire.format_name import DirectFormatName, PrivateFormatName
from lanner.wire.message import Message
from lanner.wire.path_name import PathName
from lanner.wire.sid import Sid

if TYPE_CHECKING:
    from lanner.model.directory_objects import Queue
    from lanner.model.live import MessagePosition
    from lanner.security.examination import Examination
    from lanner.wire.format_name import FormatName

_LOG = logging.getLogger(__name__)

# MS-MQQB 3.1.7.15: told to a stranger, these say what is here and how it is guarded.
INSECURE_NACKS = frozenset(
    {
        MessageClass.NACK_BAD_DEST_QUEUE,
        MessageClass.NACK_BAD_ENCRYPTION,
        MessageClass.NACK_BAD_SIGNATURE,
        MessageClass.NACK_ACCESS_DENIED,
        MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER,
    }
)
# A positive acknowledgment says nothing but that it happened; a negative one gives the body back.
WITHOUT_BODY = frozenset({MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE})

# MS-MQQB 3.1.5.8.8, 3.1.7.1.2, MC-MQAC 3.1.6.1.1: a non-transactional message that fails here for one of these has no other queue
# manager left that could keep it. 3.1.7.1.2 is about outgoing queues; no section says what becomes of a message whose time is over when
# it arrives (status 3 of Enqueue Message), and it is kept in the same way.
KEPT_WHERE_IT_FAILED = frozenset(
    {
        MessageClass.NACK_QUEUE_EXCEED_QUOTA,
        MessageClass.NACK_RECEIVE_TIMEOUT,
        MessageClass.NACK_REACH_QUEUE_TIMEOUT,
    }
)

# Ours: so many seconds the descriptor of a public queue is known without the directory being asked for each message.
PUBLISHED_SECURITY_LIFETIME = 60.0

# MS-MQQB 3.1.5.8.10, note 62: what comes to these is answered by nobody.
INTERNAL_QUEUES = frozenset({"admin_queue$", "notify_queue$", "order_queue$"})

# A name of its own, and not `Queue.is_system`: each message that leaves asks.
_SYSTEM = QueueType.SYSTEM

REFUSALS = {
    EnqueueStatus.QUEUE_QUOTA_EXCEEDED: MessageClass.NACK_QUEUE_EXCEED_QUOTA,
    EnqueueStatus.TIMED_OUT_IN_TRANSIT: MessageClass.NACK_REACH_QUEUE_TIMEOUT,
}


class Acknowledgments(Sending):
    """Listens to arrivals and removals, and sends what they call for."""

    def _subscribe_acknowledgments(self) -> None:
        # Journals and dead-letter queues (by number) of which the log has said that they are full.
        self._full_copy_queues: set[int] = set()
        # Descriptors of public queues, by number: good until when, the one here, the one in the directory.
        self._published_securities: dict[int, tuple[float, bytes | None, bytes | None]] = {}
        self.position_arrived_subscribers.append(self._message_arrived)
        self.position_deleted_subscribers.append(self._message_removed)

    def _message_arrived(self, queue: Queue, position: MessagePosition) -> None:
        if isinstance(queue, OutgoingQueue) or queue.is_system:
            return
        message = Message(position.record.packet)
        if message.acknowledgements_requested & Acknowledgements.POS_ARRIVAL:
            self.send_administration_acknowledgment(message, MessageClass.ACK_REACH_QUEUE)
        is_journaled = message.positive_journaling_requested and self._is_from_here(message)
        if is_journaled and not self.is_to_internal_queue(message):
            self._journal(self.queue_manager.system_journal_queue, position.record.packet)

    def _message_removed(self, queue: Queue, position: MessagePosition, reason: MessageClass) -> None:
        if queue.queue_type is _SYSTEM:
            self._system_message_removed(queue, position)
            return
        record = position.record
        if queue.journaling and reason is MessageClass.ACK_RECEIVE:
            self._journal(self._journal_of(queue), record.packet)
        if not wants_attention(record.packet) or record.flags & DEAD_LETTER:
            return
        message = Message(record.packet)
        if isinstance(queue, OutgoingQueue):
            # It was removed on its way: NackPurged, whoever emptied the queue.
            removed = reason in (MessageClass.NACK_QUEUE_PURGED, MessageClass.NACK_QUEUE_DELETED)
            self._refused(message, MessageClass.NACK_PURGED if removed else reason)
            return
        requested = message.acknowledgements_requested
        wanted = Acknowledgements.POS_RECEIVE if reason is MessageClass.ACK_RECEIVE else Acknowledgements.NEG_RECEIVE
        if requested & wanted:
            self.send_administration_acknowledgment(message, reason)
        if reason is MessageClass.NACK_RECEIVE_TIMEOUT or (
            message.is_transactional and reason is not MessageClass.ACK_RECEIVE
        ):
            self._dead_letter(message, reason)

    def _system_message_removed(self, queue: Queue, position: MessagePosition) -> None:
        """A message has left a journal, a dead-letter or an internal queue: nobody is told."""

    def _refused(self, message: Message, reason: MessageClass) -> None:
        """A message did not reach its queue: the negative acknowledgment and the dead-letter copy."""
        if reason is MessageClass.ACK_RECEIVE:
            return
        if message.acknowledgements_requested & Acknowledgements.NEG_ARRIVAL:
            self.send_administration_acknowledgment(message, reason)
        self._dead_letter(message, reason)

    def _is_from_here(self, message: Message) -> bool:
        return message.source_machine_identifier == self.queue_manager.identifier

    def is_to_internal_queue(self, message: Message) -> bool:
        """Whether a message goes to an administration, notification or order queue (QQB-3.1.5.8.10-2)."""
        name = message.destination_queue_format_name
        if isinstance(name, DirectFormatName):
            part = name.queue_part
            return part is not None and part.queue_type is QueueType.PRIVATE and part.name.lower() in INTERNAL_QUEUES
        if not isinstance(name, PrivateFormatName):
            return False
        queue = self.find_queue(name)
        if queue is None:
            return name.number <= LAST_SYSTEM_QUEUE_NUMBER
        return PathName.parse(queue.pathname).name.lower() in INTERNAL_QUEUES

    def _journal_of(self, queue: Queue) -> Queue | None:
        return self._guarding_queue(queue).journal_queue

    def _dead_letter(self, message: Message, reason: int) -> None:
        """The source keeps what was not delivered, if it was asked to (DMPR-3.1.1.12-2, -12)."""
        is_from_here = self._is_from_here(message)
        is_kept = is_from_here or (reason in KEPT_WHERE_IT_FAILED and not message.is_transactional)
        if not message.negative_journaling_requested or not is_kept:
            return
        qm = self.queue_manager
        target = self._application_deadletter_queue(message) if is_from_here else None
        if target is None:
            target = (
                qm.system_transactional_deadletter_queue if message.is_transactional else qm.system_deadletter_queue
            )
        # As on Windows, the class of a dead letter says why it is one.
        self._copy_to(target, set_message_class(message.packet, reason), EventKind.DEAD_LETTERED, reason)

    def _application_deadletter_queue(self, message: Message) -> Queue | None:
        pathname = message.application_deadletter_queue
        if not pathname:
            return None
        try:
            return self.find_by_path(PathName.parse(pathname))
        except StatusError:
            return None

    def _journal(self, target: Queue | None, packet: bytes) -> None:
        """A journal copy; on a full disk the room that is left is for receiving and dead letters."""
        if self.store.refuses_sends:
            if target is not None and self._is_newly_full(target):
                _LOG.warning("the disk is full: %s gets no more copies until there is room", target.pathname)
        else:
            self._copy_to(target, packet, EventKind.JOURNALED)

    def _is_newly_full(self, target: Queue) -> bool:
        """Said once, not for each message: the log is on the same disk, perhaps."""
        is_new = target.number not in self._full_copy_queues
        self._full_copy_queues.add(target.number)
        return is_new

    def _copy_to(self, target: Queue | None, packet: bytes, kind: EventKind, reason: int = 0) -> None:
        """A copy in a journal or dead-letter queue; dropped when its quota would be exceeded."""
        if target is None:
            return
        size = len(packet)
        quota = self._copy_quota(target)
        if quota != INFINITE and target.total_bytes + size > quota * KILOBYTE:
            if self._is_newly_full(target):
                _LOG.warning(
                    "%s is full: quota %d KiB, used %d bytes; a copy of %d bytes and those after it are dropped "
                    "until there is room",
                    target.pathname,
                    quota,
                    target.total_bytes,
                    size,
                )
            return
        self._full_copy_queues.discard(target.number)
        envelope = read_envelope(packet)
        position = self._new_position(target, packet, envelope, int(self.clock()))
        position.record.flags = DEAD_LETTER
        self._store(position, envelope)
        if self.events is not None:
            self.events.add(kind, position, reason)
        self.message_position_available(target, position)

    def _copy_quota(self, target: Queue) -> int:
        if target is self.queue_manager.system_journal_queue:
            return self.queue_manager.journal_quota
        if target.is_system and target.parent:
            return self._guarding_queue(target).journal_quota
        return target.quota

    def send_administration_acknowledgment(self, message: Message, message_class: MessageClass) -> None:
        """MS-MQQB 3.1.7.15 Send Administration Acknowledgment."""
        destination = message.administration_queue_format_name
        if destination is None:
            return
        if message_class in INSECURE_NACKS and not self.settings.send_insecure_nacks:
            return
        if self.is_to_internal_queue(message):
            return
        acknowledgment = MessageProperties(
            message_class=message_class,
            correlation_identifier=message.identifier_bytes,
            response_queue_format_name=message.destination_queue_format_name,
            delivery_guarantee=message.delivery_guarantee,
            time_to_reach_queue=INFINITE,
            # A queue that is open to everyone takes it (MS-MQQB 3.1.5.8.3, ST 2); nobody's message it would not.
            sender_identifier_type=SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER,
        )
        is_plain = message.privacy_level == MessagePrivacyLevel.NONE and not message.is_body_encrypted
        if message_class not in WITHOUT_BODY and is_plain:
            acknowledgment.body = message.body
            acknowledgment.body_type = message.body_type
        self.send_own_message(
            destination, acknowledgment, self.sender_of(message), for_others=not self._is_from_here(message)
        )

    def send_own_message(
        self,
        destination: FormatName,
        properties: MessageProperties,
        identity: Identity = SYSTEM,
        *,
        for_others: bool = True,
    ) -> EnqueueStatus | None:
        """A message of the queue manager itself; None if its queue cannot be opened, or the disk is full.

        `for_others`: it answers a message of another computer, which gets only so many outgoing queues for such.
        """
        try:
            # Not the event for applications: a message can also leave while the queue manager starts or stops.
            descriptor = self._open_queue(
                destination, QueueAccessType.SEND, QueueShareMode.DENY_NONE, identity, for_others=for_others
            )
        except InsufficientResources:
            return None  # told of, and not for each message
        except StatusError as error:
            _LOG.info("message %#06x to %s is dropped: %s", properties.message_class, destination, error)
            return None
        try:
            return self._enqueue_to_open_queue(descriptor, properties)
        except StatusError as error:
            _LOG.info("message %#06x to %s is dropped: %s", properties.message_class, destination, error)
            return None
        finally:
            self.close_queue(descriptor)

    def sender_of(self, message: Message) -> Identity:
        """Who asked for an acknowledgment or a report: it may go only where its asker may send.

        Else a message to a queue that is open to all could put its body into one that is not. A SID is
        believed of messages that were sent here, where the engine wrote it.
        """
        if message.sender_identifier_type != SenderIdentifierType.SID or not self._is_from_here(message):
            # The acknowledgment itself is ours: it may go to a queue that is open to everyone.
            return ANONYMOUS_IN_EVERYONE
        sid = Sid.unpack(message.sender_identifier)
        if sid == SYSTEM.sid:
            return SYSTEM
        resolve = self.settings.resolve_identity
        return (resolve(sid) if resolve is not None else None) or Identity(str(sid), sid)

    # Arrivals -----------------------------------------------------------------------------------------------

    def insert_message(
        self,
        queue: Queue | None,
        message: Message,
        sender: Identity | None = ANONYMOUS,
        examination: Examination | None = None,
    ) -> MessageClass:
        """A message from a transfer protocol comes to a local queue: the class of what became of it.

        Anything but ACK_REACH_QUEUE is a refusal: nothing is stored, the negative acknowledgment and the
        dead-letter copy the message asked for are made (MS-MQQB 3.1.5.8.3, 3.1.5.8.8). InsufficientResources: there is no
        room on this computer, and the message has not come. `sender` None: whoever it is could not be found out.
        `examination` is of this message, made by `security.examination.examine` in a thread; without it RSA is done here.
        """
        self._require_ready()
        verdict, kept, detail = self._admission(queue, message, sender, examination)
        if verdict is MessageClass.ACK_REACH_QUEUE and queue is not None:
            if self._is_too_late(message):
                verdict, detail = MessageClass.NACK_REACH_QUEUE_TIMEOUT, self._lateness(message)
            else:
                status = self.enqueue_message(queue, kept)
                if status is EnqueueStatus.OK:
                    return verdict
                if status is EnqueueStatus.QUEUE_MANAGER_QUOTA_EXCEEDED:
                    raise self._quota_exceeded()
                verdict, detail = REFUSALS[status], self._refused_enqueue(status, queue, kept)
        self._refuse(queue, message, verdict, detail)
        return verdict

    def _refused_enqueue(self, status: EnqueueStatus, queue: Queue, message: Message) -> str:
        if status is EnqueueStatus.QUEUE_QUOTA_EXCEEDED:
            return f"quota {queue.quota} KiB, used {queue.total_bytes} bytes, message {len(message.packet)} bytes"
        return self._lateness(message)

    def _refuse(self, queue: Queue | None, message: Message, reason: MessageClass, detail: str) -> None:
        """Discard a message from another queue manager, with the acknowledgment and the dead letter it asked for."""
        if self.events is not None:
            self.events.tell(EventKind.REFUSED, queue, 0, message.packet, reason=reason)
        self._refused(message, reason)
        for subscriber in self.message_refused_subscribers:
            subscriber(queue, message, reason, detail)

    def _is_too_late(self, message: Message) -> bool:
        """Its time ran out on the way (QQB-3.1.1.1.1.4-1); TimeToBeReceived counts from the same moment."""
        shorter = min(message.time_to_reach_queue, message.time_to_be_received)
        return shorter != INFINITE and int(self.clock()) - message.sent_time > shorter

    def _lateness(self, message: Message) -> str:
        age = int(self.clock()) - message.sent_time
        return f"sent {age} s ago, allowed {min(message.time_to_reach_queue, message.time_to_be_received)} s"

    def _quota_exceeded(self) -> InsufficientResources:
        qm = self.queue_manager
        if qm.throttled:
            return InsufficientResources(f"queue manager {qm.computer_name} takes nothing while flow control is on")
        return InsufficientResources(
            f"queue manager {qm.computer_name} is full: quota {qm.queue_manager_quota} KiB, used {qm.total_bytes} bytes"
        )

    def forward_message(self, name: FormatName, message: Message) -> tuple[MessageClass, OutgoingQueue | None]:
        """A message for another queue manager goes on its way (MS-MQQB 3.1.5.8.5): what became of it, and where it is.

        As with `insert_message`, anything but ACK_REACH_QUEUE is a refusal, and InsufficientResources is raised when there
        is no room, also for another outgoing queue.
        """
        self._require_ready()
        verdict, detail = MessageClass.NACK_BAD_DEST_QUEUE, "the queue is here, the packet is for another queue manager"
        try:
            descriptor = self._open_queue(name, QueueAccessType.SEND, QueueShareMode.DENY_NONE, SYSTEM, for_others=True)
        except InsufficientResources:
            raise
        except StatusError as error:
            detail = f"it cannot be passed on: {error.args[0]}"
        else:
            try:
                queue = descriptor.queue
                # A name of a queue here in a packet for somebody else: nobody has checked who may send to it.
                if isinstance(queue, OutgoingQueue):
                    status = self.enqueue_message(queue, message)
                    if status is EnqueueStatus.OK:
                        return MessageClass.ACK_REACH_QUEUE, queue
                    if status is EnqueueStatus.QUEUE_MANAGER_QUOTA_EXCEEDED:
                        raise self._quota_exceeded()
                    verdict, detail = REFUSALS[status], self._refused_enqueue(status, queue, message)
            finally:
                self.close_queue(descriptor)
        self._refuse(None, message, verdict, detail)
        return verdict, None

    def refuse_message(self, message: Message, reason: MessageClass, detail: str) -> None:
        """Discard a message from another queue manager that cannot be passed on, with what it asked for in this case."""
        self._refuse(None, message, reason, detail)

    def _admission(
        self, queue: Queue | None, message: Message, sender: Identity | None, examination: Examination | None
    ) -> tuple[MessageClass, Message, str]:
        """The verdict, the message as it is to be stored, and details of a refusal for an operator."""
        if queue is None:
            return MessageClass.NACK_BAD_DEST_QUEUE, message, "there is no such queue"
        if message.is_transactional and not queue.transactional:
            return MessageClass.NACK_NOT_TRANSACTIONAL_QUEUE, message, ""
        if queue.transactional and not message.is_transactional:
            return MessageClass.NACK_NOT_TRANSACTIONAL_MESSAGE, message, ""
        examination = self.sender_checked(examination or self.examine_message(message))
        if examination.refusal is not None:
            return examination.refusal, message, examination.reason
        # EB tells how the body came (MQMQ-2.2.20.6-5). A PrivacyLevel beside a plain body is a claim, and no queue
        # takes it for more than it is.
        if queue.privacy_level is QueuePrivacyLevel.BODY and not examination.was_encrypted:
            return MessageClass.NACK_BAD_ENCRYPTION, message, "the queue requires an encrypted body"
        if queue.privacy_level is QueuePrivacyLevel.NONE and message.privacy_level != MessagePrivacyLevel.NONE:
            return MessageClass.NACK_BAD_ENCRYPTION, message, "the queue takes no encrypted body"
        if queue.authentication and not examination.authentication_level:
            return MessageClass.NACK_BAD_SIGNATURE, message, "the queue requires a signature"
        if sender is None:
            return MessageClass.NACK_ACCESS_DENIED, message, "the groups of the sender are not known"
        if not self._may_send(queue, sender):
            return MessageClass.NACK_ACCESS_DENIED, message, f"{sender.name} may not send to the queue"
        return MessageClass.ACK_REACH_QUEUE, examination.message, ""

    def _may_send(self, queue: Queue, sender: Identity) -> bool:
        """3.1.5.8.3: whether the queue's descriptor grants MQSEC_WRITE_MESSAGE; a public queue's is the directory's."""
        rights = QUEUE_RIGHTS[QueueAccessType.SEND]
        if queue.queue_type is QueueType.PUBLIC and not queue.parent and not sender.is_system:
            return is_granted(self._published_security(queue), sender, rights)
        try:
            self.check_queue_access(queue, sender, rights)
        except StatusError:
            return False
        return True

    def _published_security(self, queue: Queue) -> bytes | None:
        now = self.monotonic()
        known = self._published_securities.get(queue.number)
        # A change that is made here holds at once.
        if known is not None and known[0] > now and known[1] == queue.security:
            return known[2]
        found = self._read_queue(queue.identifier)
        security = queue.security if found is None or found.security is None else found.security
        self._published_securities[queue.number] = (now + PUBLISHED_SECURITY_LIFETIME, queue.security, security)
        return security
