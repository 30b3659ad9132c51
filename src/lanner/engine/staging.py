"""Staged sends: many messages written under a token and made visible together.

Not in the specification; the sink of the data pipeline is built on it. A staged message is durable
but in no queue. Publishing puts all messages of some tokens into their queues in one commit, once
per key: a second publication under the same key does nothing. A stage that is not published is
dropped a day after its last write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.engine.arrivals import disk_full
from lanner.engine.checks import not_available, require_ready, wrong_access
from lanner.engine.sending import check_demands
from lanner.engine.tables import STAGE_VISITS
from lanner.model.directory_objects import KILOBYTE, OutgoingQueue
from lanner.model.enums import INFINITE, DeliveryGuarantee, EnqueueStatus, QueueAccessType, SenderIdentifierType
from lanner.model.errors import InsufficientResources, InvalidParameter, QueueNotAvailable, RemoteProtocolError
from lanner.model.live import START, MessagePosition
from lanner.model.lookup_ids import SEQUENTIAL_ID_MASK
from lanner.wire.envelope import is_express, may_expire, read_envelope, wants_attention
from lanner.wire.format_name import FormatName, PublicFormatName
from lanner.wire.packet_template import PacketTemplate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lanner.engine.arrivals import Arrivals
    from lanner.engine.core import Core
    from lanner.engine.positions import Positions
    from lanner.engine.sending import Sending
    from lanner.model.directory_objects import Queue
    from lanner.model.live import OpenQueueDescriptor
    from lanner.wire.packet_template import MessageRun

# Not in the specification: a stage that was not written to for a day belongs to a job that no
# longer runs.
ABANDONED_STAGE = 86_400  # seconds


class Staging:
    """Stage, publish, drop."""

    def __init__(self, core: Core, positions: Positions, arrivals: Arrivals, sending: Sending) -> None:
        self._store = core.store
        self._queue_manager = core.queue_manager
        self._clocks = core.clocks
        self._numbers = core.numbers
        self._recorder = core.recorder
        self._positions = positions
        self._expiry = positions.expiry
        self._arrivals = arrivals
        self._sending = sending
        # Tokens of stages whose messages must be examined one by one when they are published.
        self._visits = core.store.table(STAGE_VISITS)

    def stage_messages(self, descriptor: OpenQueueDescriptor, token: bytes, runs: Iterable[MessageRun]) -> None:
        """Write messages under a token.

        They become recoverable, and transactional if the queue is.
        """
        queue = self._stageable(descriptor)
        now = int(self._clocks.wall())
        packed = [self._pack_run(descriptor, queue, run, now) for run in runs if len(run)]
        self._stage(queue, token, packed, now)

    def stage_terms(self, descriptor: OpenQueueDescriptor) -> tuple[bytes, bool]:
        """Return the values that packets for `stage_packets` must contain.

        These are the SID of their sender (empty: none) and whether they are transactional.
        """
        queue = self._stageable(descriptor)
        return self._sending.sender_shown(descriptor), queue.transactional

    def stage_packets(
        self, descriptor: OpenQueueDescriptor, token: bytes, octets: memoryview, count: int
    ) -> list[list[bytes]]:
        """Write `count` messages under a token, from concatenated packets that a program has built.

        Sets the fields that only the queue manager can set, and checks the others
        (`wire.client_packet`). All are staged, or none. Returns the packets, in runs of equal
        headers.
        """
        queue = self._stageable(descriptor)
        numbers = self._numbers
        index = numbers.coming_transaction_index if queue.transactional else None
        stamp = self._sending.stamp(descriptor, queue, index, is_alone=queue.transactional)
        try:
            runs, error = stamp.stamped_runs(octets, count, numbers.coming_message_ordinal)
        except RemoteProtocolError as broken:
            raise InvalidParameter(str(broken)) from None
        found = sum(map(len, runs))
        if error is not None:
            raise InvalidParameter(f"message {found} of {count}: {error.args[0]}")
        if found != count:
            raise InvalidParameter(f"{found} packets, {count} expected")
        if any(is_express(run[0]) for run in runs):
            raise InvalidParameter("a packet is express, and only recoverable packets can be staged")
        numbers.next_message_ordinals(count)
        if index is not None:
            numbers.skip_transaction_indexes(count)
        self._stage(queue, token, runs, int(self._clocks.wall()))
        return runs

    def _stage(self, queue: Queue, token: bytes, runs: list[list[bytes]], now: int) -> None:
        for run in runs:
            # Flags and times are the same in all packets of a run.
            first = run[0]
            if may_expire(first, in_transit=isinstance(queue, OutgoingQueue)) or wants_attention(first):
                self._visits.put(token, b"")
        if self._store.refuses_sends:
            raise disk_full()
        if self._recorder is not None:
            for run in runs:
                self._recorder.staged(run)
        self._store.stage(token, queue.number, [(read_envelope(run[0]).priority, run) for run in runs], now)

    def _pack_run(self, descriptor: OpenQueueDescriptor, queue: Queue, run: MessageRun, now: int) -> list[bytes]:
        properties = run.properties
        self._sending.check_deadletters(descriptor, properties)
        if not isinstance(queue, OutgoingQueue):
            check_demands(queue, properties)
        properties.delivery_guarantee = DeliveryGuarantee.RECOVERABLE
        # Each message to a transactional queue is a transaction of its own.
        is_transactional = queue.transactional
        properties.first_in_transaction = properties.last_in_transaction = is_transactional
        if not properties.sender_identifier:
            properties.sender_identifier = self._sending.sender_identifier(
                descriptor, properties.sender_identifier_type
            )
        if isinstance(queue, OutgoingQueue) and self._sending.withholds_sender(properties):
            properties.sender_identifier_type = SenderIdentifierType.NONE
            properties.sender_identifier = b""
        name = FormatName.parse(descriptor.format_name)
        if isinstance(name, PublicFormatName):
            properties.destination_queue_manager_identifier = self._sending.host_of(queue, name)
        template = PacketTemplate(
            properties,
            source=self._queue_manager.identifier,
            sent_time=now,
            destination=name,
            is_transactional=is_transactional,
        )
        ordinals = self._numbers.next_message_ordinals(len(run))
        index = self._numbers.next_transaction_index
        transactions = [index() for _ in ordinals] if is_transactional else []
        return template.pack(ordinals, run.labels, run.bodies, transactions)

    def _stageable(self, descriptor: OpenQueueDescriptor) -> Queue:
        require_ready(self._queue_manager)
        if descriptor.access_type is not QueueAccessType.SEND:
            raise wrong_access(descriptor)
        if descriptor.multiple:
            raise InvalidParameter(f"{descriptor.format_name}: messages are staged for one queue at a time")
        if descriptor.queue is None:
            raise not_available(descriptor)
        return descriptor.queue

    def publish_stages(self, key: bytes, tokens: Sequence[bytes]) -> bool:
        """Make the messages of these tokens visible in one commit.

        Returns False if `key` was published before.
        """
        require_ready(self._queue_manager)
        if self._store.published(key) is not None:
            return False
        self._check_room(tokens)
        # Messages that expire or request acknowledgments must be examined one by one when they
        # arrive.
        needs_visit = any(self._visits.get(token) is not None for token in tokens)
        for token in tokens:
            self._visits.delete(token)

        def completed(arrivals: dict[int, int]) -> None:
            for number in arrivals:
                self._published(number, issued, needs_visit=needs_visit)

        issued = self._store.last_number
        tell = None if self._recorder is None else self._recorder.published
        return self._store.publish(
            key, tokens, self._numbers.sequential_id.next, int(self._clocks.wall()), tell=tell, completed=completed
        )

    def _check_room(self, tokens: Sequence[bytes]) -> None:
        for number, (_, size) in self._store.staged(tokens).items():
            queue = self._queue_manager.queue_collection.get(number)
            if queue is None:
                raise QueueNotAvailable(f"messages are staged for queue {number}, which was deleted; drop the stage")
            if self._arrivals.check_quota(queue, size) is not EnqueueStatus.OK:
                quota = min(queue.quota, self._queue_manager.queue_manager_quota)
                message = (
                    f"queue {queue.pathname} has no room for {size // KILOBYTE} KiB of staged messages: "
                    f"quota {'none' if quota == INFINITE else quota} KiB, used {queue.total_bytes // KILOBYTE} KiB"
                )
                raise InsufficientResources(message)

    def _published(self, number: int, issued: int, *, needs_visit: bool) -> None:
        """Count a durable publication, visit its messages if necessary, and serve waiting reads."""
        queue = self._queue_manager.queue_collection.get(number)
        if queue is None:
            return
        before = queue.total_bytes
        self._positions.count(queue)
        self._queue_manager.total_bytes += queue.total_bytes - before
        queue.head_hint = START
        if needs_visit:
            self._visit(queue, issued)
        if isinstance(queue, OutgoingQueue):
            self._tell_of_published(queue)
        while queue.waiting_reads:
            position = self._positions.seek_forward(queue, START)
            waiting = len(queue.waiting_reads)
            if position is not None:
                self._positions.message_position_available(queue, position)
            if len(queue.waiting_reads) == waiting:
                return

    def _tell_of_published(self, queue: OutgoingQueue) -> None:
        """Raise Message Position Available for the first message of each priority.

        The transfer continues from there by itself.
        """
        after = START
        while (lookup_id := self._store.next(queue.number, after)) is not None:
            after = lookup_id
            record = self._store.get(queue.number, lookup_id)
            if record is not None:
                self._positions.message_position_available(queue, MessagePosition(queue, lookup_id, record))
                after |= SEQUENTIAL_ID_MASK  # the last lookup identifier of this priority

    def _visit(self, queue: Queue, after: int) -> None:
        with self._store.scan(queue.number, after) as scan:
            for _, lookup_id, record in scan:
                position = MessagePosition(queue, lookup_id, record)
                self._expiry.arm(position, read_envelope(record.packet))
                if wants_attention(record.packet):
                    self._arrivals.tell_arrived(position)

    def drop_stage(self, token: bytes) -> bool:
        """Drop the messages of a token; return False if there are none."""
        self._visits.delete(token)
        return self._store.drop_stage(token)

    def drop_abandoned_stages(self) -> int:
        """Drop the stages that were not written to for a day; return how many there were."""
        return self._store.expire_stages(int(self._clocks.wall()) - ABANDONED_STAGE)
