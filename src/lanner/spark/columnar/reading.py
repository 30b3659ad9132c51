"""A queue of this process's store as packets and as Arrow batches, by ranges of the visibility sequence.

Each batch is read from a snapshot of its own, which is closed before the batch is yielded. So a caller that
is slow, or gone, keeps no page of the store in use. No message is missed between two snapshots: a number of
the sequence is issued once, and a message that has one can only disappear.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from lanner.engine import Engine
from lanner.engine.queue_kinds import queue_kind, queue_text
from lanner.host.operations import Operations
from lanner.model.directory_objects import Queue
from lanner.model.enums import QueueAccessType
from lanner.model.errors import QueueNotAvailable
from lanner.spark.columnar import packet_source
from lanner.spark.columnar.decode import MAKING, batches
from lanner.spark.columnar.gathering import gather
from lanner.spark.columnar.packet_source import Facts, PacketBatch, Place, StoredPacket, first_batch
from lanner.spark.columnar.ranges import Range, cut
from lanner.spark.columnar.schema import RowSchema
from lanner.spark.columnar.vectors import Room
from lanner.store import Store
from lanner.store.scan import Scan
from lanner.wire.path_name import PathName

# Not in the specification: about how much one partition reads.
PARTITION_BYTES: Final = 32 << 20


class QueueSource:
    """A queue that the caller may read. Methods take the store's lock."""

    def __init__(self, operations: Operations, name: str, access: QueueAccessType = QueueAccessType.PEEK) -> None:
        """Raises QueueNotFound, or AccessDenied if the identity of `operations` may not read the queue."""
        self._store = operations.engine.store
        with operations.engine.store.lock:
            queue = operations.find(name)
            # Opening checks the rights. The queue does not stay open.
            operations.close(operations.open(operations.names.format_name(name), access))
            self._queue = queue
            self.place = _place(operations.engine, queue)

    @property
    def identifier(self) -> int:
        """The number of the queue. No later queue gets it."""
        return self._queue.number

    @property
    def message_count(self) -> int:
        return self._queue.message_count

    @property
    def total_bytes(self) -> int:
        return self._queue.total_bytes

    @property
    def is_transactional(self) -> bool:
        return self._queue.transactional

    def bounds(self) -> tuple[int, int, int]:
        """Return (after, upto, horizon). All visible messages are in (after, upto]. No message gets a number up to the horizon any more."""
        self._store.checkpoint()
        with self._store.lock:
            after, upto = self._store.visible_bounds(self._queue.number)
            return after, upto, self._store.scan_horizon

    @property
    def horizon(self) -> int:
        """The number up to which no message will appear any more."""
        self._store.checkpoint()
        with self._store.lock:
            return self._store.scan_horizon

    @staticmethod
    def lost(_after: int) -> int:
        """Return 0: a queue drops no message for its age, as the log of events does."""
        return 0

    def measure(self, after: int, upto: int, *, max_messages: int | None = None, max_bytes: int | None = None) -> Range:
        """Return the longest range from `after` on within the limits, with at least one message if there is one."""
        messages = sys.maxsize if max_messages is None else max_messages
        size = sys.maxsize if max_bytes is None else max_bytes
        return next(cut(self._store, self._queue.number, after, upto, messages, size))

    def split(self, after: int, upto: int, target_bytes: int) -> list[Range]:
        """Cut a range into parts of about `target_bytes`, which together are the range."""
        return list(cut(self._store, self._queue.number, after, upto, sys.maxsize, target_bytes))

    def range(self, after: int, upto: int) -> QueueRange:
        """Return the messages with a number in (after, upto]."""
        return QueueRange(self._store, self._queue, self.place, after, upto)

    def batches(self, after: int, upto: int, schema: RowSchema) -> Iterator[pa.RecordBatch]:
        """Yield the same as Arrow batches."""
        return batches(self.range(after, upto), schema)


@dataclass(frozen=True, slots=True)
class QueueRange:
    """A packet source: the messages of a queue with a number in (after, upto], in the order of their numbers."""

    store: Store
    queue: Queue
    place: Place
    after: int
    upto: int

    def packet_batches(self, room: Room) -> Generator[PacketBatch, None, None]:
        """Yield the messages, except for those that a client is receiving."""
        after = self.after
        while after < self.upto:
            with MAKING:
                batch, held = self._next(after, room)
            if not len(batch.packets):
                return
            after = int(batch.facts.seq[-1])
            if held:
                free = ~np.isin(batch.facts.lookup_id, held)
                facts = Facts(*(column[free] for column in batch.facts))
                batch = PacketBatch(batch.packets.taken(free), facts)
            if len(batch.packets):
                yield batch

    def _next(self, after: int, room: Room) -> tuple[PacketBatch, list[int]]:
        """Return the first messages of the range, and the lookup ids of all locked messages in the queue.

        A locked message belongs to a receive that has not ended. If the receive fails, the message gets another number.
        """
        queue, rows = self.queue, packet_source.BATCH_ROWS
        self.store.checkpoint()
        with self.store.lock:
            if queue.is_deleted:
                raise QueueNotAvailable(f"queue {queue.pathname} was deleted")
            held = list(queue.held_positions)
            scan = self.store.scan(queue.number, after, self.upto, rows)
        with scan:
            batch = gather(scan, rows, packet_source.BATCH_BYTES, room)
            return first_batch(stored_packets(scan), room) if batch is None else batch, held


def stored_packets(scan: Scan) -> Iterator[StoredPacket]:
    """Yield the messages of a scan, which is iterated."""
    for number, lookup_id, record in scan:
        yield StoredPacket(number, lookup_id, record.arrived, record.abort_count, record.move_count, record.packet)


def _place(engine: Engine, queue: Queue) -> Place:
    qm = engine.queue_manager
    kind = queue_kind(qm, queue)
    return Place(
        str(qm.identifier),
        qm.computer_name,
        queue_text(qm, queue),
        kind,
        PathName.parse(queue.pathname).subqueue if kind == "subqueue" else None,
    )
