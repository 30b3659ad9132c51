"""Staged sends: many messages written under a token, made visible together.

No document knows this event; the data pipeline's sink is built on it. A staged message is durable and in
no queue. Publishing puts all messages of some tokens into their queues in one commit, once per key: a
second publication under the same key does nothing. What is not published is dropped when it grows old.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.engine.dispatch import Dispatch
from lanner.engine.envelope import may_expire, read_envelope, wants_attention
from lanner.model.directory_objects import KILOBYTE, OutgoingQueue
from lanner.model.enums import INFINITE, DeliveryGuarantee, EnqueueStatus, QueueAccessType
from lanner.model.errors import InsufficientResources, InvalidParameter, QueueNotAvailable
from lanner.model.live import START, MessagePosition
from lanner.model.lookup_ids import SEQUENTIAL_ID_MASK
from lanner.wire.format_name import FormatName, PublicFormatName
from lanner.wire.packet_template import PacketTemplate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lanner.model.directory_objects import Queue
    from lanner.model.live import OpenQueueDescriptor
    from lanner.wire.packet_template import MessageRun

# A stage that nobody has written to for a day belongs to a job that is gone; ours.
ABANDONED_STAGE = 86_400  # seconds


class Staging(Dispatch):
    """Stage, publish, drop."""

    def stage_messages(self, descriptor: OpenQueueDescriptor, token: bytes, runs: Iterable[MessageRun]) -> None:
        """Write messages under a token. They become recoverable, and transactional where the queue is."""
        queue = self._stageable(descriptor)
        now = int(self.clock())
        packets = []
        for run in runs:
            if not len(run):
                continue
            made = self._pack_run(descriptor, queue, run, now)
            # In these they are all the same.
            first = made[0]
            if may_expire(first, in_transit=isinstance(queue, OutgoingQueue)) or wants_attention(first):
                self._stage_visits_table.put(token, b"")
            packets.append((read_envelope(first).priority, made))
        if self.store.refuses_sends:
            raise self._disk_full()
        self.store.stage(token, queue.number, packets, now)

    def _pack_run(self, descriptor: OpenQueueDescriptor, queue: Queue, run: MessageRun, now: int) -> list[bytes]:
        properties = run.properties
        if not isinstance(queue, OutgoingQueue):
            self._check_demands(queue, properties)
        properties.delivery_guarantee = DeliveryGuarantee.RECOVERABLE
        # To a transactional queue each goes as a transaction of its own.
        is_transactional = queue.transactional
        properties.first_in_transaction = properties.last_in_transaction = is_transactional
        if not properties.sender_identifier:
            properties.sender_identifier = self._sender_identifier(descriptor, properties.sender_identifier_type)
        name = FormatName.parse(descriptor.format_name)
        if isinstance(name, PublicFormatName):
            properties.destination_queue_manager_identifier = self._host_of(queue, name)
        template = PacketTemplate(
            properties,
            source=self.queue_manager.identifier,
            sent_time=now,
            destination=name,
            is_transactional=is_transactional,
        )
        contents = zip(self.next_message_ordinals(len(run)), run.labels, run.bodies, strict=True)
        if is_transactional:
            index = self._next_transaction_index
            return [template.pack(ordinal, label, body, index()) for ordinal, label, body in contents]
        return [template.pack(ordinal, label, body) for ordinal, label, body in contents]

    def _stageable(self, descriptor: OpenQueueDescriptor) -> Queue:
        self._require_ready()
        if descriptor.access_type is not QueueAccessType.SEND:
            raise self._wrong_access(descriptor)
        if descriptor.multiple:
            raise InvalidParameter(f"{descriptor.format_name}: messages are staged for one queue at a time")
        if descriptor.queue is None:
            raise self._not_available(descriptor)
        return descriptor.queue

    def publish_stages(self, key: bytes, tokens: Sequence[bytes]) -> bool:
        """Make the messages of these tokens visible in one commit; False if `key` was published before."""
        self._require_ready()
        if self.store.published(key) is not None:
            return False
        self._check_room(tokens)
        # Messages that expire or ask for acknowledgments must be looked at one by one when they arrive.
        needs_visit = any(self._stage_visits_table.get(token) is not None for token in tokens)
        for token in tokens:
            self._stage_visits_table.delete(token)

        def completed(arrivals: dict[int, int]) -> None:
            for number in arrivals:
                self._published(number, issued, needs_visit=needs_visit)

        issued = self.store.last_number
        tell = None if self.events is None else self.events.published
        return self.store.publish(
            key, tokens, self._sequential_id.next, int(self.clock()), tell=tell, completed=completed
        )

    def _check_room(self, tokens: Sequence[bytes]) -> None:
        for number, (_, size) in self.store.staged(tokens).items():
            queue = self.queue_manager.queue_collection.get(number)
            if queue is None:
                raise QueueNotAvailable(f"messages are staged for queue {number}, which was deleted; drop the stage")
            if self._check_quota(queue, size) is not EnqueueStatus.OK:
                quota = min(queue.quota, self.queue_manager.queue_manager_quota)
                message = (
                    f"queue {queue.pathname} has no room for {size // KILOBYTE} KiB of staged messages: "
                    f"quota {'none' if quota == INFINITE else quota} KiB, used {queue.total_bytes // KILOBYTE} KiB"
                )
                raise InsufficientResources(message)

    def _published(self, number: int, issued: int, *, needs_visit: bool) -> None:
        """The publication is on disk: count it, look at what must be looked at, wake the readers."""
        queue = self.queue_manager.queue_collection.get(number)
        if queue is None:
            return
        before = queue.total_bytes
        self._count(queue)
        self.queue_manager.total_bytes += queue.total_bytes - before
        queue.head_hint = START
        if needs_visit:
            self._visit(queue, issued)
        if isinstance(queue, OutgoingQueue):
            self._tell_of_published(queue)
        while queue.waiting_reads:
            position = self._seek_available_message_position(queue, START, peek=False)
            waiting = len(queue.waiting_reads)
            if position is not None:
                self.message_position_available(queue, position)
            if len(queue.waiting_reads) == waiting:
                return

    def _tell_of_published(self, queue: OutgoingQueue) -> None:
        """Who sends the messages of an outgoing queue looks at each priority from its first message on."""
        after = START
        while (lookup_id := self.store.next(queue.number, after)) is not None:
            after = lookup_id
            record = self.store.get(queue.number, lookup_id)
            if record is not None:
                self.message_position_available(queue, MessagePosition(queue, lookup_id, record))
                after |= SEQUENTIAL_ID_MASK  # the last lookup identifier of this lane

    def _visit(self, queue: Queue, after: int) -> None:
        with self.store.scan(queue.number, after) as scan:
            for _, lookup_id, record in scan:
                position = MessagePosition(queue, lookup_id, record)
                self._arm_expiry(position, read_envelope(record.packet))
                if wants_attention(record.packet):
                    for subscriber in self.position_arrived_subscribers:
                        subscriber(queue, position)

    def drop_stage(self, token: bytes) -> bool:
        """Forget what was staged under a token; False if there is nothing."""
        self._stage_visits_table.delete(token)
        return self.store.drop_stage(token)

    def drop_abandoned_stages(self) -> int:
        """Drop the stages that nobody has written to for a day; how many there were."""
        return self.store.expire_stages(int(self.clock()) - ABANDONED_STAGE)
