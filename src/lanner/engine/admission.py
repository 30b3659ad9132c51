"""Admission: messages from other queue managers are stored, forwarded or refused.

MS-MQQB 3.1.5.8.3, 3.1.5.8.5, 3.1.5.8.8.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lanner.engine.checks import READY, not_ready, require_ready
from lanner.model.directory_objects import KILOBYTE, OutgoingQueue
from lanner.model.enums import (
    INFINITE,
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
from lanner.security.identity import ANONYMOUS, EVERYONE_ALONE, SYSTEM
from lanner.wire.sid import ANONYMOUS_LOGON

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.engine.acknowledgments import Acknowledger
    from lanner.engine.arrivals import Arrivals
    from lanner.engine.core import Core
    from lanner.engine.examining import Examiner
    from lanner.model.directory_objects import Queue
    from lanner.security.examination import Examination
    from lanner.security.identity import Identity
    from lanner.wire.format_name import FormatName
    from lanner.wire.message import Message

    # The queue (if there is one), the message, the class, and details for an operator.
    MessageRefused = Callable[[Queue | None, Message, MessageClass, str], None]

# Not in the specification: seconds for which the descriptor of a public queue from the directory is
# cached.
PUBLISHED_SECURITY_LIFETIME: Final = 60.0

REFUSALS: Final = {
    EnqueueStatus.QUEUE_QUOTA_EXCEEDED: MessageClass.NACK_QUEUE_EXCEED_QUOTA,
    EnqueueStatus.TIMED_OUT_IN_TRANSIT: MessageClass.NACK_REACH_QUEUE_TIMEOUT,
}
_ACK_REACH_QUEUE: Final = MessageClass.ACK_REACH_QUEUE
_OK: Final = EnqueueStatus.OK


class Admission:
    """Decides whether to store, forward or refuse a message of another queue manager."""

    def __init__(self, core: Core, examiner: Examiner, arrivals: Arrivals, acknowledger: Acknowledger) -> None:
        self._queue_manager = core.queue_manager
        self._clocks = core.clocks
        self._access = core.access
        self._recorder = core.recorder
        self._trusts_unsigned_sid = core.settings.trusts_unsigned_sid
        self._examiner = examiner
        self._arrivals = arrivals
        self._acknowledger = acknowledger
        self._opening = acknowledger.opening
        self._names = acknowledger.opening.names
        # Descriptors of public queues, by queue number: end of validity, local descriptor,
        # descriptor in the directory.
        self._published_securities: dict[int, tuple[float, bytes | None, bytes | None]] = {}
        self.refused_subscribers: list[MessageRefused] = []

    def insert_message(
        self,
        queue: Queue | None,
        message: Message,
        sender: Identity | None = ANONYMOUS,
        examination: Examination | None = None,
    ) -> MessageClass:
        """Store a message from a transfer protocol in a local queue.

        Returns ACK_REACH_QUEUE or the class of the refusal. A refused message is not stored, and
        the negative acknowledgment and the dead-letter copy that it requests are made (MS-MQQB
        3.1.5.8.3, 3.1.5.8.8). Raises InsufficientResources if this computer has no room; the
        message then counts as not received.

        `sender` is the identity that the message names, or None if it could not be determined.
        Without a verified signature it is only a claim. `examination` is the result of
        `security.examination.examine` for this message, computed in a thread. Without it, RSA is
        computed here.
        """
        if self._queue_manager.queue_manager_state is not READY:
            raise not_ready(self._queue_manager)
        verdict, kept, detail = self._admission(queue, message, sender, examination)
        if verdict is _ACK_REACH_QUEUE and queue is not None:
            if self._is_too_late(message):
                verdict, detail = MessageClass.NACK_REACH_QUEUE_TIMEOUT, self._lateness(message)
            else:
                status = self._arrivals.enqueue(queue, kept.packet, None)
                if status is _OK:
                    return verdict
                verdict, detail = self._refusal(status, queue, kept)
        self._refuse(queue, message, verdict, detail)
        return verdict

    def forward_message(self, name: FormatName, message: Message) -> tuple[MessageClass, OutgoingQueue | None]:
        """Put a message for another queue manager into an outgoing queue (MS-MQQB 3.1.5.8.5).

        Returns the class and the queue. As with `insert_message`, a class other than
        ACK_REACH_QUEUE is a refusal. Raises InsufficientResources if there is no room, or if the
        limit of outgoing queues is reached.
        """
        require_ready(self._queue_manager)
        verdict, detail = MessageClass.NACK_BAD_DEST_QUEUE, "the queue is here, the packet is for another queue manager"
        try:
            descriptor = self._opening.open(
                name, QueueAccessType.SEND, QueueShareMode.DENY_NONE, SYSTEM, for_others=True
            )
        except InsufficientResources:
            raise
        except StatusError as error:
            detail = f"it cannot be passed on: {error.args[0]}"
        else:
            try:
                queue = descriptor.queue
                # A packet for another queue manager may name a queue here, but the sender's rights
                # on that queue were not checked.
                if isinstance(queue, OutgoingQueue):
                    status = self._arrivals.enqueue(queue, message.packet, None)
                    if status is _OK:
                        return _ACK_REACH_QUEUE, queue
                    verdict, detail = self._refusal(status, queue, message)
            finally:
                self._opening.close_queue(descriptor)
        self._refuse(None, message, verdict, detail)
        return verdict, None

    def refuse_message(self, message: Message, reason: MessageClass, detail: str) -> None:
        """Refuse a message from another queue manager that cannot be forwarded."""
        self._refuse(None, message, reason, detail)

    def _refusal(self, status: EnqueueStatus, queue: Queue, message: Message) -> tuple[MessageClass, str]:
        """Return the class and the details of a failed Enqueue Message.

        Raises an error if this computer has no room.
        """
        if status is EnqueueStatus.QUEUE_MANAGER_QUOTA_EXCEEDED:
            raise self._quota_exceeded(len(message.packet))
        if status is EnqueueStatus.QUEUE_QUOTA_EXCEEDED:
            size = len(message.packet)
            quota = (
                f"{queue.quota} KiB"
                if queue.quota != INFINITE
                else f"{self._arrivals.shares.queue_limit} bytes by quota.queue_share"
            )
            detail = f"quota {quota}, used {queue.total_bytes} bytes, message {size} bytes"
        else:
            detail = self._lateness(message)
        return REFUSALS[status], detail

    def _refuse(self, queue: Queue | None, message: Message, reason: MessageClass, detail: str) -> None:
        """Discard a message; make the acknowledgment and the dead letter that it requests."""
        if self._recorder is not None:
            self._recorder.tell(EventKind.REFUSED, queue, 0, message.packet, reason=reason)
        self._acknowledger.refused(message, reason)
        for subscriber in self.refused_subscribers:
            subscriber(queue, message, reason, detail)

    def _is_too_late(self, message: Message) -> bool:
        """Return whether a message's time ran out on the way (QQB-3.1.1.1.1.4-1).

        TimeToBeReceived counts from the same moment.
        """
        shorter = min(message.time_to_reach_queue, message.time_to_be_received)
        return shorter != INFINITE and int(self._clocks.wall()) - message.sent_time > shorter

    def _lateness(self, message: Message) -> str:
        age = int(self._clocks.wall()) - message.sent_time
        return f"sent {age} s ago, allowed {min(message.time_to_reach_queue, message.time_to_be_received)} s"

    def _quota_exceeded(self, size: int) -> InsufficientResources:
        qm = self._queue_manager
        if qm.throttled:
            return InsufficientResources(f"queue manager {qm.computer_name} takes nothing while flow control is on")
        if qm.queue_manager_quota != INFINITE and qm.total_bytes + size <= qm.queue_manager_quota * KILOBYTE:
            return InsufficientResources(self._arrivals.shares.explain())
        return InsufficientResources(
            f"queue manager {qm.computer_name} is full: quota {qm.queue_manager_quota} KiB, used {qm.total_bytes} bytes"
        )

    def _admission(
        self, queue: Queue | None, message: Message, sender: Identity | None, examination: Examination | None
    ) -> tuple[MessageClass, Message, str]:
        """Return the verdict, the message to be stored, and details of a refusal."""
        if queue is None:
            return MessageClass.NACK_BAD_DEST_QUEUE, message, "there is no such queue"
        if message.is_transactional and not queue.transactional:
            return MessageClass.NACK_NOT_TRANSACTIONAL_QUEUE, message, ""
        if queue.transactional and not message.is_transactional:
            return MessageClass.NACK_NOT_TRANSACTIONAL_MESSAGE, message, ""
        examination = self._examiner.sender_checked(examination or self._examiner.examine_message(message))
        if examination.refusal is not None:
            return examination.refusal, message, examination.reason
        # EB states whether the body was encrypted (MQMQ-2.2.20.6-5). A PrivacyLevel with a plain
        # body is only a claim.
        if queue.privacy_level is QueuePrivacyLevel.BODY and not examination.was_encrypted:
            return MessageClass.NACK_BAD_ENCRYPTION, message, "the queue requires an encrypted body"
        if queue.privacy_level is QueuePrivacyLevel.NONE and message.privacy_level != MessagePrivacyLevel.NONE:
            return MessageClass.NACK_BAD_ENCRYPTION, message, "the queue takes no encrypted body"
        if queue.authentication and not examination.authentication_level:
            return MessageClass.NACK_BAD_SIGNATURE, message, "the queue requires a signature"
        if self._is_claim(message, sender, examination):
            if not self._may_claimant_send(queue, sender or EVERYONE_ALONE):
                name = "a sender without a signature" if sender is None else f"{sender.name} without a signature"
                return MessageClass.NACK_ACCESS_DENIED, message, f"{name} may not send to the queue"
            return _ACK_REACH_QUEUE, examination.message, ""
        if sender is None:
            return MessageClass.NACK_ACCESS_DENIED, message, "the groups of the sender are not known"
        if not self._may_send(queue, sender):
            return MessageClass.NACK_ACCESS_DENIED, message, f"{sender.name} may not send to the queue"
        return _ACK_REACH_QUEUE, examination.message, ""

    def _is_claim(self, message: Message, sender: Identity | None, examination: Examination) -> bool:
        """Return whether the SID that a message names as its sender is unproven.

        The sender SYSTEM means this queue manager itself; no SID in a packet grants that identity.
        """
        return (
            not examination.authentication_level
            and not self._trusts_unsigned_sid
            and message.sender_identifier_type is SenderIdentifierType.SID
            and (sender is None or not sender.is_system)
        )

    def _may_claimant_send(self, queue: Queue, claimed: Identity) -> bool:
        """Return whether to accept a message from a sender that only claims to be `claimed`.

        The claim gives no rights: Everyone or the anonymous user must have them. But an entry that
        denies them to `claimed` applies.
        """
        if self._may_send(queue, EVERYONE_ALONE) and self._may_send(queue, claimed):
            return True
        unnamed = replace(claimed, groups=claimed.groups | {ANONYMOUS_LOGON})
        return self._may_send(queue, ANONYMOUS) and self._may_send(queue, unnamed)

    def _may_send(self, queue: Queue, sender: Identity) -> bool:
        """Return whether the queue's descriptor grants MQSEC_WRITE_MESSAGE (3.1.5.8.3).

        The descriptor of a public queue is read from the directory.
        """
        rights = QUEUE_RIGHTS[QueueAccessType.SEND]
        if queue.queue_type is QueueType.PUBLIC and not queue.parent and not sender.is_system:
            return is_granted(self._published_security(queue), sender, rights)
        try:
            self._access.check_queue_access(queue, sender, rights)
        except StatusError:
            return False
        return True

    def _published_security(self, queue: Queue) -> bytes | None:
        now = self._clocks.monotonic()
        known = self._published_securities.get(queue.number)
        # A change made on this computer takes effect at once.
        if known is not None and known[0] > now and known[1] == queue.security:
            return known[2]
        found = self._names.read_queue(queue.identifier)
        security = queue.security if found is None or found.security is None else found.security
        self._published_securities[queue.number] = (now + PUBLISHED_SECURITY_LIFETIME, queue.security, security)
        return security
