"""Sends through open handles: Enqueue Message To An Open Queue (MS-MQDMPR 3.1.7.1.27).

A send builds the packet and puts it into the queue (`arrivals`). Values that are the same for all
messages of a handle are computed once, in `sender`.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from lanner.engine.checks import READY, not_available, not_ready, require_open, require_ready, wrong_access
from lanner.model.directory_objects import GUID_NULL, OutgoingQueue
from lanner.model.enums import (
    EnqueueStatus,
    MessagePrivacyLevel,
    QueueAccessType,
    QueuePrivacyLevel,
    SenderIdentifierType,
)
from lanner.model.errors import (
    IllegalPropertyValue,
    InsufficientResources,
    InvalidParameter,
    MessageNotAuthenticated,
    RemoteProtocolError,
    TransactionUsage,
)
from lanner.security.profile import Profile
from lanner.wire.builder import MessageProperties, build
from lanner.wire.client_packet import Stamp
from lanner.wire.envelope import is_express
from lanner.wire.format_name import PublicFormatName, parse
from lanner.wire.message import Message
from lanner.wire.packet_template import MessageRun, PacketTemplate, Templates, bare
from lanner.wire.sid import Sid

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable, Iterator

    from lanner.engine.application_deadletters import ApplicationDeadletters
    from lanner.engine.arrivals import Arrivals
    from lanner.engine.core import Core
    from lanner.engine.examining import Examiner
    from lanner.engine.names import Names
    from lanner.model.directory_objects import Queue
    from lanner.model.live import OpenQueueDescriptor, Transaction

# Module-level names: they are used for each message, and Python 3.11 looks up members of an
# enumeration slowly.
_OK: Final = EnqueueStatus.OK
_SEND: Final = QueueAccessType.SEND
_SID: Final = SenderIdentifierType.SID
_NO_SENDER: Final = SenderIdentifierType.NONE
# The demands of a queue are checked against this if a message is neither signed nor encrypted.
_PLAIN: Final = MessageProperties()
# Not in the specification: size of the cache of looked-up SIDs.
_MAX_SIDS: Final = 1024
_U32: Final = 0xFFFF_FFFF


class Sending:
    """Messages of programs: built here and put into the queues of open handles."""

    def __init__(
        self,
        core: Core,
        names: Names,
        examiner: Examiner,
        arrivals: Arrivals,
        deadletters: ApplicationDeadletters,
    ) -> None:
        self._queue_manager = core.queue_manager
        self._clocks = core.clocks
        self._numbers = core.numbers
        self._names = names
        self._examiner = examiner
        self._arrivals = arrivals
        self._deadletters = deadletters
        self._long_live_time = core.settings.long_live_time
        self._is_local_account = core.settings.is_local_account
        self._withholds_local_senders = core.settings.profile is Profile.SAFE
        # Per instance: the cached answers depend on the accounts of this queue manager.
        self._means_nothing_elsewhere = lru_cache(maxsize=_MAX_SIDS)(self._read_whether_local)
        self._templates = Templates()
        # The ordinal of the message that was sent last.
        self.last_ordinal = 0

    def enqueue_message_to_an_open_queue(
        self,
        descriptor: OpenQueueDescriptor,
        properties: MessageProperties,
        transaction: Transaction | None = None,
    ) -> EnqueueStatus:
        """3.1.7.1.27 Enqueue Message To An Open Queue.

        Builds one packet for each destination.
        """
        if self._queue_manager.queue_manager_state is not READY:
            raise not_ready(self._queue_manager)
        if properties.time_to_reach_queue > self._long_live_time:
            properties = self._limited(properties)
        return self.sender(descriptor, transaction)(properties)

    def enqueue_messages_to_an_open_queue(
        self,
        descriptor: OpenQueueDescriptor,
        messages: Iterable[MessageRun | MessageProperties],
        ordinals: list[int],
        transaction: Transaction | None = None,
    ) -> EnqueueStatus:
        """Do Enqueue Message To An Open Queue for several messages.

        Adds the ordinal of each message sent to `ordinals`. Returns the status of the first message
        that fails; the messages after it are not tried.
        """
        require_ready(self._queue_manager)
        send = self.sender(descriptor, transaction)
        status = _OK
        for each in messages:
            if isinstance(each, MessageRun) and not descriptor.multiple and not _is_examined(each.properties):
                status = self._send_run(descriptor, transaction, each, ordinals)
            else:
                status = self._send_each(send, each, ordinals)
            if status is not _OK:
                break
        return status

    def enqueue_message_to_each(
        self,
        descriptor: OpenQueueDescriptor,
        properties: MessageProperties,
        transaction: Transaction | None = None,
    ) -> Iterator[EnqueueStatus]:
        """Do Enqueue Message To An Open Queue for a list of queues, one of them in each step.

        Yields the status of each. The caller holds the store's lock in each step.
        """
        require_ready(self._queue_manager)
        if properties.time_to_reach_queue > self._long_live_time:
            properties = self._limited(properties)
        if not properties.sender_identifier:
            properties.sender_identifier = self.sender_identifier(descriptor, properties.sender_identifier_type)
        whole = parse(descriptor.format_name)
        properties = dataclasses.replace(properties, destination_multi_queue_format_name=whole)
        for child in descriptor.children:
            yield self.sender(child, transaction)(properties)

    def _send_each(
        self,
        send: Callable[[MessageProperties], EnqueueStatus],
        messages: MessageRun | MessageProperties,
        ordinals: list[int],
    ) -> EnqueueStatus:
        for properties in messages.each() if isinstance(messages, MessageRun) else (messages,):
            is_limited = properties.time_to_reach_queue > self._long_live_time
            status = send(self._limited(properties) if is_limited else properties)
            if status is not _OK:
                return status
            ordinals.append(self.last_ordinal)
        return _OK

    def enqueue_packets_to_an_open_queue(
        self,
        descriptor: OpenQueueDescriptor,
        octets: memoryview,
        most: int,
        ordinals: list[int],
        transaction: Transaction | None = None,
    ) -> tuple[EnqueueStatus, bool]:
        """Send packets that a program has built, at most `most` of them, concatenated in `octets`.

        Writes the fields into them that only the queue manager can set, and checks the others
        (`wire.client_packet`). Returns the status and whether all packets are express.
        """
        require_ready(self._queue_manager)
        if descriptor.multiple:
            raise InvalidParameter(f"{descriptor.format_name}: packets are built for one destination")
        queue, transaction = self._destination(descriptor, transaction)
        stamp = self.stamp(descriptor, queue, None if transaction is None else transaction.index)
        ordinal = self._numbers.coming_message_ordinal
        runs, error = stamp.stamped_runs(octets, most, ordinal)
        self._numbers.next_message_ordinals(sum(map(len, runs)))
        for packets in runs:
            status = self._enqueue_run(queue, packets, ordinal, ordinals, transaction, descriptor.sender_identifier)
            if status is not _OK:
                return status, False
            ordinal += len(packets)
        if error is not None:
            raise error
        return _OK, all(is_express(packets[0]) for packets in runs)

    def _enqueue_run(
        self,
        queue: Queue,
        packets: list[bytes],
        first: int,
        ordinals: list[int],
        transaction: Transaction | None,
        holder: bytes,
    ) -> EnqueueStatus:
        """Put packets with equal envelopes into a queue; their ordinals begin with `first`."""
        if len(packets) > 1 and self._arrivals.enqueue_run(queue, packets, transaction, holder):
            ordinals += [ordinal & _U32 for ordinal in range(first, first + len(packets))]
            self.last_ordinal = ordinals[-1]
            return _OK
        for ordinal, packet in enumerate(packets, first):
            status = self._arrivals.enqueue(queue, packet, transaction, holder)
            if status is not _OK:
                return status
            # Set last: the arrival may have sent an acknowledgment, which takes an ordinal too.
            self.last_ordinal = ordinal & _U32
            ordinals.append(self.last_ordinal)
        return _OK

    def stamp(
        self, descriptor: OpenQueueDescriptor, queue: Queue, index: int | None, *, is_alone: bool = False
    ) -> Stamp:
        """Return the values that make packets of a program packets of this queue manager.

        `index` is the number of the transaction. If each packet is a transaction of its own, it is
        the number of the first.
        """
        if not isinstance(queue, OutgoingQueue):
            check_demands(queue, _PLAIN)
        name = parse(descriptor.format_name)
        return Stamp(
            source=self._queue_manager.identifier,
            destination=name,
            host=self.host_of(queue, name) if isinstance(name, PublicFormatName) else None,
            sender=self.sender_shown(descriptor),
            transaction=index,
            now=int(self._clocks.wall()),
            longest=self._long_live_time,
            is_alone=is_alone,
        )

    def sender_shown(self, descriptor: OpenQueueDescriptor) -> bytes:
        """Return the SID that an unsigned message names as its sender; empty if it names none."""
        properties = MessageProperties(sender_identifier=descriptor.sender_identifier)
        is_local = not isinstance(descriptor.queue, OutgoingQueue)
        return b"" if not is_local and self.withholds_sender(properties) else descriptor.sender_identifier

    def _limited(self, properties: MessageProperties) -> MessageProperties:
        """Return the properties with TimeToReachQueue set to LongLiveTime, the longest allowed."""
        return dataclasses.replace(properties, time_to_reach_queue=self._long_live_time)

    def sender(
        self, descriptor: OpenQueueDescriptor, transaction: Transaction | None
    ) -> Callable[[MessageProperties], EnqueueStatus]:
        """Return the function that sends messages to an open queue.

        It is valid while the caller holds the store's lock.
        """
        if descriptor.access_type is not _SEND:
            raise wrong_access(descriptor)
        if descriptor.multiple:
            return partial(self._send_to_each, descriptor, transaction)
        queue, transaction = self._destination(descriptor, transaction)
        is_local = not isinstance(queue, OutgoingQueue)
        may_withhold = self._withholds_local_senders and not is_local
        has_demands = is_local and (queue.authentication or queue.privacy_level is not QueuePrivacyLevel.OPTIONAL)
        index = None if transaction is None else transaction.index
        sid = descriptor.sender_identifier
        source = self._queue_manager.identifier
        name = parse(descriptor.format_name)
        host = self.host_of(queue, name) if isinstance(name, PublicFormatName) else None
        now = int(self._clocks.wall())

        def send(properties: MessageProperties) -> EnqueueStatus:
            if not properties.sender_identifier:
                kind = properties.sender_identifier_type
                properties.sender_identifier = sid if kind is _SID else self.sender_identifier(descriptor, kind)
            if properties.application_deadletter_queue:
                self.check_deadletters(descriptor, properties)
            if has_demands:
                check_demands(queue, properties)
            ordinal = self._numbers.next_message_ordinal()
            if host is not None:
                properties = dataclasses.replace(properties, destination_queue_manager_identifier=host)
            is_withheld = may_withhold and self.withholds_sender(properties)
            if is_withheld:
                # Changed in place and restored below: a copy of the properties takes longer.
                properties.sender_identifier_type = _NO_SENDER
            try:
                packet = build(
                    properties, source=source, ordinal=ordinal, sent_time=now, destination=name, transaction=index
                )
            finally:
                if is_withheld:
                    properties.sender_identifier_type = _SID
            if is_local and _is_examined(properties):
                packet = self._examiner.examined_here(queue, Message(packet)).packet
            status = self._arrivals.enqueue(queue, packet, transaction, sid)
            # Set last: the arrival may have sent an acknowledgment, which takes an ordinal too.
            self.last_ordinal = ordinal
            return status

        return send

    def _send_run(
        self, descriptor: OpenQueueDescriptor, transaction: Transaction | None, run: MessageRun, ordinals: list[int]
    ) -> EnqueueStatus:
        """Send messages that differ only in label and body."""
        queue, transaction = self._destination(descriptor, transaction)
        template = self._templates.get(
            self._of_run(run.properties, descriptor, queue),
            source=self._queue_manager.identifier,
            sent_time=int(self._clocks.wall()),
            destination=parse(descriptor.format_name),
            is_transactional=transaction is not None,
        )
        numbers = self._numbers.next_message_ordinals(len(run))
        indexes = [] if transaction is None else [transaction.index] * len(run)
        packets, error = _packed(template, numbers, run, indexes)
        status = self._enqueue_run(queue, packets, numbers.start, ordinals, transaction, descriptor.sender_identifier)
        if status is _OK and error is not None:
            raise error
        return status

    def _of_run(
        self, properties: MessageProperties, descriptor: OpenQueueDescriptor, queue: Queue
    ) -> MessageProperties:
        """Return the properties to build the packets of a run from.

        They include the values that the queue manager adds.
        """
        is_local = not isinstance(queue, OutgoingQueue)
        properties = bare(properties)
        properties.time_to_reach_queue = min(properties.time_to_reach_queue, self._long_live_time)
        if not properties.sender_identifier:
            kind = properties.sender_identifier_type
            properties.sender_identifier = self.sender_identifier(descriptor, kind)
        if properties.application_deadletter_queue:
            self.check_deadletters(descriptor, properties)
        name = parse(descriptor.format_name)
        if isinstance(name, PublicFormatName):
            properties.destination_queue_manager_identifier = self.host_of(queue, name)
        if is_local:
            check_demands(queue, properties)
        elif self.withholds_sender(properties):
            properties.sender_identifier_type = _NO_SENDER
        return properties

    @staticmethod
    def _destination(
        descriptor: OpenQueueDescriptor, transaction: Transaction | None
    ) -> tuple[Queue, Transaction | None]:
        """Return the queue of a handle, and the transaction that messages to it are sent in."""
        if descriptor.access_type is not _SEND:
            raise wrong_access(descriptor)
        queue = descriptor.queue
        if queue is None:
            raise not_available(descriptor)
        if transaction is not None and transaction.is_null:
            transaction = None
        if not isinstance(queue, OutgoingQueue) and queue.transactional != (transaction is not None):
            if queue.transactional:
                message = f"queue {queue.pathname} is transactional: send to it in a transaction"
            else:
                message = f"queue {queue.pathname} is not transactional: send to it outside transactions"
            raise TransactionUsage(message)
        if transaction is not None:
            require_open(transaction)
        return queue, transaction

    def _send_to_each(
        self, descriptor: OpenQueueDescriptor, transaction: Transaction | None, properties: MessageProperties
    ) -> EnqueueStatus:
        each = self.enqueue_message_to_each(descriptor, properties, transaction)
        return next((status for status in each if status is not _OK), _OK)

    def sender_identifier(self, descriptor: OpenQueueDescriptor, kind: SenderIdentifierType) -> bytes:
        """Return SenderIdentifier (MS-MQDMPR 3.1.1.12).

        It is that of the identity that opened the queue, or of this queue manager.
        """
        if kind is _SID:
            return descriptor.sender_identifier
        return self._queue_manager.identifier.bytes_le if kind else b""

    def check_deadletters(self, descriptor: OpenQueueDescriptor, properties: MessageProperties) -> None:
        """Raise AccessDenied if the opener may not send to the dead-letter queue of a message."""
        self._deadletters.check_sender(properties.application_deadletter_queue, descriptor.sender_identifier)

    def withholds_sender(self, properties: MessageProperties) -> bool:
        """Return whether a message to another computer omits its SID (DECISIONS, safe defaults).

        The SID of a local account means nothing on another computer. A signed message keeps it,
        because the receiver uses it to look up the certificate (MS-MQQB 3.1.5.8.3).
        """
        return (
            self._withholds_local_senders
            and properties.sender_identifier_type is _SID
            and not (properties.signature or properties.multiple_destination_signature)
            and self._means_nothing_elsewhere(properties.sender_identifier)
        )

    def _read_whether_local(self, data: bytes) -> bool:
        try:
            sid = Sid.unpack(data)
        except RemoteProtocolError:
            return False
        # SYSTEM, Administrators and Unix users exist on every computer and differ on each.
        return not sid.is_account or (self._is_local_account is not None and self._is_local_account(sid))

    def host_of(self, queue: Queue, name: PublicFormatName) -> uuid.UUID:
        """Return QueueManagerAddress of a public destination (MQMQ-2.2.19.2-6)."""
        if not isinstance(queue, OutgoingQueue):
            return self._queue_manager.identifier
        found = self._names.read_queue(name.identifier)
        return GUID_NULL if found is None or found.queue_manager is None else found.queue_manager.identifier


def _packed(
    template: PacketTemplate, numbers: range, run: MessageRun, indexes: list[int]
) -> tuple[list[bytes], InsufficientResources | None]:
    """Return the packets of messages, up to the first that is too large, and its error."""
    try:
        return template.pack(numbers, run.labels, run.bodies, indexes), None
    except InsufficientResources:
        packets: list[bytes] = []
        for number, label, body in zip(numbers, run.labels, run.bodies, strict=True):
            try:
                packets += template.pack([number], [label], [body], indexes[:1])
            except InsufficientResources as error:
                return packets, error
        raise


def _is_examined(properties: MessageProperties) -> bool:
    """Return whether a local queue checks the signature or the encryption of a message."""
    return bool(properties.signature or properties.multiple_destination_signature or properties.privacy_level)


def check_demands(queue: Queue, properties: MessageProperties) -> None:
    """Check a message against Authentication and PrivacyLevel of a local queue (DMPR-3.1.1.2-3).

    Raises the error of the first demand that the message does not meet.
    """
    if queue.authentication and not (properties.signature or properties.multiple_destination_signature):
        raise MessageNotAuthenticated(f"queue {queue.pathname} takes signed messages only")
    is_encrypted = properties.privacy_level != MessagePrivacyLevel.NONE
    refused = QueuePrivacyLevel.NONE if is_encrypted else QueuePrivacyLevel.BODY
    if queue.privacy_level is refused:
        wanted = "plain" if is_encrypted else "encrypted"
        raise IllegalPropertyValue(f"queue {queue.pathname} takes {wanted} messages only")
