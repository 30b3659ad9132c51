"""A queue of this process's store as packets and as Arrow batches.

Queues are read by ranges of the visibility sequence. `scans` reads a range batch by batch, here and
in other processes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lanner.engine import Engine
from lanner.engine.queue_kinds import queue_kind, queue_text
from lanner.host.operations import Operations
from lanner.model.directory_objects import Queue
from lanner.model.enums import QueueAccessType
from lanner.model.errors import QueueNotAvailable
from lanner.spark.columnar import packet_source
from lanner.spark.columnar.decode import batches
from lanner.spark.columnar.packet_source import Place
from lanner.spark.columnar.ranges import Range, cut
from lanner.spark.columnar.scans import Begun, ScannedRange
from lanner.spark.columnar.schema import RowSchema
from lanner.wire.path_name import PathName

# Not in the specification: approximate size of one partition.
PARTITION_BYTES: Final = 32 << 20
# Not in the specification: locked messages that a ticket can name. They are few, unless a client
# receives thousands in one transaction.
MAX_HELD: Final = 500


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The location of messages in the database, and the lookup ids that clients were receiving."""

    queue: int
    generation: int
    held: list[int]


class QueueSource:
    """A queue that the caller may read. Methods take the store's lock."""

    def __init__(self, operations: Operations, name: str, access: QueueAccessType = QueueAccessType.PEEK) -> None:
        """Find a queue, and check the rights.

        Raises QueueNotFound, or AccessDenied if the identity of `operations` may not read the
        queue.
        """
        self._store = operations.engine.store
        with operations.engine.store.lock:
            queue = operations.find(name)
            # Opening checks the rights. The queue does not stay open.
            operations.close(operations.open(operations.names.format_name(name), access))
            self._queue = queue
            self.place = _place(operations.engine, queue)

    @property
    def identifier(self) -> int:
        """The number of the queue. It is never reused."""
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
        """Return (after, upto, horizon).

        All visible messages are in (after, upto]. No new message gets a number up to the horizon.
        """
        self._store.checkpoint()
        with self._store.lock:
            after, upto = self._store.visible_bounds(self._queue.number)
            return after, upto, self._store.scan_horizon

    @property
    def horizon(self) -> int:
        """The number up to which no new message will appear."""
        self._store.checkpoint()
        with self._store.lock:
            return self._store.scan_horizon

    @staticmethod
    def lost(_after: int) -> int:
        """Return 0: a queue drops no message because of its age, unlike the event log."""
        return 0

    def measure(self, after: int, upto: int, *, max_messages: int | None = None, max_bytes: int | None = None) -> Range:
        """Return the longest range after `after` within the limits.

        It has at least one message if there is one.
        """
        messages = sys.maxsize if max_messages is None else max_messages
        size = sys.maxsize if max_bytes is None else max_bytes
        return next(cut(self._store, self._queue.number, after, upto, messages, size))

    def split(self, after: int, upto: int, target_bytes: int) -> list[Range]:
        """Cut a range into consecutive parts of about `target_bytes`."""
        return list(cut(self._store, self._queue.number, after, upto, sys.maxsize, target_bytes))

    def range(self, after: int, upto: int) -> ScannedRange:
        """Return the messages with a number in (after, upto]."""
        store, queue = self._store, self._queue

        def begin(after: int) -> Begun:
            store.checkpoint()
            with store.lock:
                if queue.is_deleted:
                    raise QueueNotAvailable(f"queue {queue.pathname} was deleted")
                return store.scan(queue.number, after, upto, packet_source.BATCH_ROWS), list(queue.held_positions)

        return ScannedRange(self.place, after, upto, begin)

    def snapshot(self, after: int, upto: int) -> Snapshot | None:
        """Return what another process needs to read a range from the database.

        Returns None if only this process can read it: the range has express messages, or more
        locked messages than a ticket can name. The caller must have made a checkpoint up to `upto`.
        """
        store, queue = self._store, self._queue
        with store.lock:
            if queue.is_deleted or len(queue.held_positions) > MAX_HELD or store.has_express(queue.number, after, upto):
                return None
            return Snapshot(queue.number, store.generation(queue.number), sorted(queue.held_positions))

    def batches(self, after: int, upto: int, schema: RowSchema) -> Iterator[pa.RecordBatch]:
        """Yield the messages with a number in (after, upto] as Arrow batches."""
        return batches(self.range(after, upto), schema)


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
