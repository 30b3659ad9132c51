"""Putting messages into queues and taking them across (MS-MQDMPR 3.1.7.1.7, 3.1.7.1.9, 3.1.7.1.16, 3.1.7.1.27)."""

from __future__ import annotations

import dataclasses
from functools import cached_property, partial
from typing import TYPE_CHECKING

from lanner.engine.envelope import WANTS_ATTENTION, Envelope, read_envelope
from lanner.engine.examining import Examining
from lanner.engine.positions import DEAD_LETTER
from lanner.engine.reading import RECEIVE_ACCESS
from lanner.model.directory_objects import GUID_NULL, KILOBYTE, OutgoingQueue
from lanner.model.enums import (
    INFINITE,
    EnqueueStatus,
    MessageClass,
    MessagePrivacyLevel,
    MessageSeekAction,
    OperationType,
    PositionState,
    QueueAccessType,
    QueueManagerState,
    QueuePrivacyLevel,
    SenderIdentifierType,
)
from lanner.model.errors import (
    IllegalPropertyValue,
    InsufficientResources,
    InvalidParameter,
    MessageNotAuthenticated,
    TransactionUsage,
)
from lanner.model.events import EventKind
from lanner.model.live import MessagePosition, Record, TransactionalOperation
from lanner.model.lookup_ids import LANE_SHIFT, LOWEST_LANE, SEQUENTIAL_ID_MASK
from lanner.wire.builder import build
from lanner.wire.format_name import FormatName, PublicFormatName
from lanner.wire.message import Message

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable, Iterator

    from lanner.model.directory_objects import Queue
    from lanner.model.live import OpenQueueDescriptor, Transaction
    from lanner.wire.builder import MessageProperties

# By names of their own: each message asks, and an enumeration looks its members up slowly (Python 3.11).
_OK = EnqueueStatus.OK
_SID = SenderIdentifierType.SID


class Sending(Examining):
    """Events that store messages."""

    last_ordinal = 0

    def enqueue_message(self, queue: Queue, message: Message, transaction: Transaction | None = None) -> EnqueueStatus:
        """3.1.7.1.9 Enqueue Message."""
        self._require_ready()
        if transaction is not None and transaction.is_null:
            transaction = None
        self._require_open(transaction)
        return self._enqueue(queue, message.packet, transaction)

    def _enqueue(self, queue: Queue, packet: bytes, transaction: Transaction | None) -> EnqueueStatus:
        """Enqueue Message; the transaction is one that is open."""
        now = int(self.clock())
        envelope = read_envelope(packet)
        status = self._check_quota(queue, len(packet))
        if status is not _OK:
            return status
        ttrq = envelope.time_to_reach_queue
        if ttrq != INFINITE and now - envelope.sent_time > ttrq:
            return EnqueueStatus.TIMED_OUT_IN_TRANSIT
        if self.store.refuses_sends and not envelope.is_express:
            raise self._disk_full()
        position = self._new_position(queue, packet, envelope, now)
        if transaction is None:
            self._arrive(position, envelope)
            return _OK
        position.is_uncommitted_send = True
        position.transaction = transaction
        self._lock(position)
        if envelope.time_to_be_received != INFINITE or isinstance(queue, OutgoingQueue):
            self._arm_expiry(position, envelope)
        transaction.transactional_operations.append(TransactionalOperation(OperationType.ENQUEUE, position))
        return _OK

    def _check_quota(self, queue: Queue, size: int) -> EnqueueStatus:
        """The queue manager's quota comes first (DMPR-3.1.7.1.9-1)."""
        qm = self.queue_manager
        quota = qm.queue_manager_quota
        if qm.throttled or (quota != INFINITE and qm.total_bytes + size > quota * KILOBYTE):
            return EnqueueStatus.QUEUE_MANAGER_QUOTA_EXCEEDED
        quota = queue.quota
        if quota != INFINITE and queue.total_bytes + size > quota * KILOBYTE:
            return EnqueueStatus.QUEUE_QUOTA_EXCEEDED
        return _OK

    def _disk_full(self) -> InsufficientResources:
        return InsufficientResources(
            "the disk of the data directory is full: recoverable messages are refused until there is room; "
            "receiving goes on"
        )

    def _new_position(self, queue: Queue, packet: bytes, envelope: Envelope, now: int) -> MessagePosition:
        """A place at the end of its priority; the bytes count from here on (DECISIONS, TotalBytes)."""
        lane = LOWEST_LANE - envelope.priority
        lookup_id = lane << LANE_SHIFT | self._sequential_id.next() & SEQUENTIAL_ID_MASK
        size = len(packet)
        queue.total_bytes += size
        self.queue_manager.total_bytes += size
        return MessagePosition(queue, lookup_id, Record(packet, now))

    def _arrive(self, position: MessagePosition, envelope: Envelope) -> None:
        """Store a message that comes from outside the queue, tell who asked, wake a reader."""
        self._store(position, envelope)
        if self.events is not None:
            self.events.arrived(position)
        if envelope.user_flags & WANTS_ATTENTION:
            for subscriber in self.position_arrived_subscribers:
                subscriber(position.queue, position)
        self.message_position_available(position.queue, position)

    def restore_message(
        self, queue: Queue, packet: bytes, *, arrived: int, abort_count: int = 0, move_count: int = 0
    ) -> MessagePosition:
        """Ours: put a message into a queue as it was found somewhere else, with its time of arrival and its counts.

        Who waits for a message gets it. But it does not arrive: no quota is checked, nothing is acknowledged, journaled or told as an event, and it
        never expires.
        """
        if isinstance(queue, OutgoingQueue):
            raise InvalidParameter("an outgoing queue sends what is in it: a message cannot be restored there")
        envelope = read_envelope(packet)
        position = self._new_position(queue, packet, envelope, arrived)
        record = position.record
        record.abort_count, record.move_count, record.flags = abort_count, move_count, DEAD_LETTER
        self._store(position, envelope)
        self.message_position_available(queue, position)
        return position

    def enqueue_message_to_an_open_queue(
        self,
        descriptor: OpenQueueDescriptor,
        properties: MessageProperties,
        transaction: Transaction | None = None,
    ) -> EnqueueStatus:
        """3.1.7.1.27 Enqueue Message To An Open Queue: builds the packet, one per destination."""
        self._require_ready()
        return self._sender(descriptor, transaction)(self._limited(properties))

    def _limited(self, properties: MessageProperties) -> MessageProperties:
        """TimeToReachQueue is at most LongLiveTime."""
        longest = self.settings.long_live_time
        if properties.time_to_reach_queue <= longest:
            return properties
        return dataclasses.replace(properties, time_to_reach_queue=longest)

    def enqueue_messages_to_an_open_queue(
        self,
        descriptor: OpenQueueDescriptor,
        messages: Iterable[MessageProperties],
        transaction: Transaction | None = None,
    ) -> Iterator[EnqueueStatus]:
        """Enqueue Message To An Open Queue, again and again; what is the same for all of them is looked at once."""
        self._require_ready()
        send = self._sender(descriptor, transaction)
        for properties in messages:
            yield send(self._limited(properties))

    def _enqueue_to_open_queue(self, descriptor: OpenQueueDescriptor, properties: MessageProperties) -> EnqueueStatus:
        return self._sender(descriptor, None)(properties)

    def _sender(
        self, descriptor: OpenQueueDescriptor, transaction: Transaction | None
    ) -> Callable[[MessageProperties], EnqueueStatus]:
        """What sends messages to an open queue, for as long as the lock is held."""
        if descriptor.access_type is not QueueAccessType.SEND:
            raise self._wrong_access(descriptor)
        if descriptor.multiple:
            return partial(self._send_to_each, descriptor, transaction)
        queue = descriptor.queue
        if queue is None:
            raise self._not_available(descriptor)
        if transaction is not None and transaction.is_null:
            transaction = None
        is_local = not isinstance(queue, OutgoingQueue)
        if is_local and queue.transactional != (transaction is not None):
            if queue.transactional:
                message = f"queue {queue.pathname} is transactional: send to it in a transaction"
            else:
                message = f"queue {queue.pathname} is not transactional: send to it outside transactions"
            raise TransactionUsage(message)
        self._require_open(transaction)
        has_demands = is_local and (queue.authentication or queue.privacy_level is not QueuePrivacyLevel.OPTIONAL)
        index = None if transaction is None else transaction.index
        pack = self._packer(descriptor, queue)
        now = int(self.clock())

        def send(properties: MessageProperties) -> EnqueueStatus:
            if not properties.sender_identifier:
                kind = properties.sender_identifier_type
                properties.sender_identifier = self._sender_identifier(descriptor, kind)
            if has_demands:
                self._check_demands(queue, properties)
            ordinal = self.next_message_ordinal()
            packet = pack(properties, ordinal, now, index)
            if is_local and (
                properties.signature or properties.multiple_destination_signature or properties.privacy_level
            ):
                packet = self._examined_here(queue, Message(packet)).packet
            status = self._enqueue(queue, packet, transaction)
            # Only now: the arrival may have sent an acknowledgment, which is a message too.
            self.last_ordinal = ordinal
            return status

        return send

    def _send_to_each(
        self, descriptor: OpenQueueDescriptor, transaction: Transaction | None, properties: MessageProperties
    ) -> EnqueueStatus:
        if not properties.sender_identifier:
            properties.sender_identifier = self._sender_identifier(descriptor, properties.sender_identifier_type)
        whole = FormatName.parse(descriptor.format_name)
        properties = dataclasses.replace(properties, destination_multi_queue_format_name=whole)
        for child in descriptor.children:
            status = self._sender(child, transaction)(properties)
            if status is not _OK:
                return status
        return _OK

    def _sender_identifier(self, descriptor: OpenQueueDescriptor, kind: SenderIdentifierType) -> bytes:
        """MS-MQDMPR 3.1.1.12 SenderIdentifier: of whoever opened the queue, or of this queue manager."""
        if kind is _SID:
            return descriptor.sender_identifier
        return self.queue_manager.identifier.bytes_le if kind else b""

    def _packer(
        self, descriptor: OpenQueueDescriptor, queue: Queue
    ) -> Callable[[MessageProperties, int, int, int | None], bytes]:
        """What makes packets for one open queue, given properties, ordinal, SentTime and transaction index."""
        source = self.queue_manager.identifier
        name = FormatName.parse(descriptor.format_name)
        host = self._host_of(queue, name) if isinstance(name, PublicFormatName) else None

        def pack(properties: MessageProperties, ordinal: int, now: int, index: int | None) -> bytes:
            if host is not None:
                properties = dataclasses.replace(properties, destination_queue_manager_identifier=host)
            return build(properties, source=source, ordinal=ordinal, sent_time=now, destination=name, transaction=index)

        return pack

    @staticmethod
    def _check_demands(queue: Queue, properties: MessageProperties) -> None:
        """Authentication and PrivacyLevel of a local queue (DMPR-3.1.1.2-3), told to the sender at once."""
        if queue.authentication and not (properties.signature or properties.multiple_destination_signature):
            raise MessageNotAuthenticated(f"queue {queue.pathname} takes signed messages only")
        is_encrypted = properties.privacy_level != MessagePrivacyLevel.NONE
        refused = QueuePrivacyLevel.NONE if is_encrypted else QueuePrivacyLevel.BODY
        if queue.privacy_level is refused:
            wanted = "plain" if is_encrypted else "encrypted"
            raise IllegalPropertyValue(f"queue {queue.pathname} takes {wanted} messages only")

    @property
    def last_message_identifier(self) -> str:
        """The identifier of the message that was sent last."""
        return f"{self._identifier_text}\\{self.last_ordinal}"

    @cached_property
    def _identifier_text(self) -> str:
        return str(self.queue_manager.identifier)

    def _host_of(self, queue: Queue, name: PublicFormatName) -> uuid.UUID:
        """QueueManagerAddress of a public destination (MQMQ-2.2.19.2-6)."""
        if not isinstance(queue, OutgoingQueue):
            return self.queue_manager.identifier
        found = self._read_queue(name.identifier)
        return GUID_NULL if found is None or found.queue_manager is None else found.queue_manager.identifier

    # Move -------------------------------------------------------------------------------------------------

    def move_message(self, position: MessagePosition, target: Queue, transaction: Transaction | None = None) -> None:
        """3.1.7.1.16 Move Message: no Message Position Deleted, so no acknowledgment (DMPR-3.1.7.1.16-5)."""
        if transaction is not None and not transaction.is_null:
            if target.is_system:
                raise TransactionUsage(f"a move to {target.pathname} takes no transaction")
            self._require_open(transaction)
            self._lock(position)
            position.transaction = transaction
            transaction.transactional_operations.append(
                TransactionalOperation(OperationType.MOVE, position, target_queue=target)
            )
        else:
            self._move_now(position, target)

    def _move_now(self, position: MessagePosition, target: Queue) -> None:
        record = position.record
        if self.events is not None:
            self.events.add(EventKind.MOVED, position, target=target)
        self._remove(position.queue, position)
        moved = MessagePosition(
            target,
            position.lookup_id,
            Record(
                record.packet,
                arrived=record.arrived,
                abort_count=record.abort_count,
                move_count=record.move_count + 1,
                flags=record.flags,
            ),
        )
        size = len(record.packet)
        target.total_bytes += size
        self.queue_manager.total_bytes += size
        self._store(moved, read_envelope(record.packet))
        if not target.is_system:
            self.message_position_available(target, moved)

    def undo_receive(self, position: MessagePosition) -> None:
        """Whoever received this went away before its removal was on disk: it stands in its old place again.

        A journal copy or an acknowledgment of the receive stays: they may be on disk by now.
        """
        queue, record = position.queue, position.record
        if self.queue_manager.queue_manager_state is not QueueManagerState.READY or queue.is_deleted:
            return
        if self.store.get(queue.number, position.lookup_id) is not None:
            return  # the removal was not stored, and the message never gone
        size = len(record.packet)
        queue.total_bytes += size
        self.queue_manager.total_bytes += size
        back = MessagePosition(queue, position.lookup_id, dataclasses.replace(record, visibility=0, reference=b""))
        self._store(back, read_envelope(record.packet))
        if self.events is not None:
            self.events.add(EventKind.RECEIVE_ABORTED, back)
        self.message_position_available(queue, back)

    def move_message_by_lookup_identifier(
        self,
        source: OpenQueueDescriptor,
        lookup_id: int,
        target: OpenQueueDescriptor,
        transaction: Transaction | None = None,
    ) -> MessagePosition:
        """Move one message between a queue and its subqueues, both opened with MoveAccess."""
        self._require_ready()
        for descriptor in (source, target):
            if descriptor.queue is None:
                raise self._not_available(descriptor)
            if descriptor.access_type is not QueueAccessType.MOVE:
                raise self._wrong_access(descriptor)
        from_queue, to_queue = source.queue, target.queue
        if from_queue is None or to_queue is None or self._family(from_queue) != self._family(to_queue):
            raise InvalidParameter(f"{source.format_name} and {target.format_name} are not parts of one queue")
        position = self._seek_available_message_position_with_id(
            from_queue, lookup_id, peek=False, action=MessageSeekAction.CURRENT
        )
        self.move_message(position, to_queue, transaction)
        return position

    @staticmethod
    def _family(queue: Queue) -> int:
        return queue.parent or queue.number

    # Purge ------------------------------------------------------------------------------------------------

    def purge_queue(self, queue: Queue, *, limit: int | None = None, newest: int | None = None) -> int:
        """3.1.7.1.7 Purge Queue; how many messages went at once. Uncommitted sends survive (DECISIONS).

        A long queue can be purged in slices of `limit`, so that others are served between two of them; then
        `newest` keeps what came after the purge began: the SequentialID issued last at that time.
        """
        self._require_ready()
        for position in list(queue.held_positions.values()):
            if position.state is PositionState.LOCKED and not position.is_uncommitted_send:
                self._purge_pending(position)
        count = 0
        for position in self._all_positions(queue):
            if count == limit:
                break
            if newest is not None and position.lookup_id & SEQUENTIAL_ID_MASK > newest:
                continue
            if position.state is PositionState.AVAILABLE:
                self.message_position_deleted(queue, position, MessageClass.NACK_QUEUE_PURGED)
                count += 1
        return count

    def purge_open_queue(
        self, descriptor: OpenQueueDescriptor, *, limit: int | None = None, newest: int | None = None
    ) -> int:
        """Purge through a handle, which must allow receiving (DMPR-3.1.1.17-2)."""
        return self.purge_queue(self._readable(descriptor, RECEIVE_ACCESS), limit=limit, newest=newest)

    @property
    def newest_sequential_id(self) -> int:
        """The SequentialID issued last."""
        return self._sequential_id.last
