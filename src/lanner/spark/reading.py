"""A queue as packets and as Arrow batches: what is visible in a range of the visibility sequence.

Each batch is read from a snapshot of its own, which is let go before the batch is handed out: a caller that is slow, or gone, holds
nothing in the store but the batch in its hands. That loses nothing, since a number of the sequence is given once and what has
it only ever goes away.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from lanner.engine import Engine
from lanner.engine.queue_kinds import queue_kind, queue_text
from lanner.host.operations import Operations
from lanner.model.directory_objects import Queue
from lanner.model.enums import QueueAccessType
from lanner.model.errors import QueueNotAvailable
from lanner.spark.decode import Facts, Place, decode
from lanner.spark.gathering import gather
from lanner.spark.packets import Packets
from lanner.spark.ranges import Range, cut
from lanner.spark.schema import RowSchema
from lanner.spark.vectors import Room, Scratch
from lanner.store.scan import Scan
from lanner.wire.path_name import PathName

# Ours: a batch ends when it has so many bytes of packets or so many rows. Each has a price of its own, of some milliseconds.
BATCH_BYTES: Final = 16 << 20
BATCH_ROWS: Final = 1 << 14
# Ours: about how much one partition reads.
PARTITION_BYTES: Final = 32 << 20


# Streams make their batches one after the other: all of them need the interpreter, and two at a time spend a third of their time with handing it
# to each other. What is made is sent without it.
_MAKING: Final = threading.Lock()


class QueueSource:
    """A queue that somebody may read. Methods take the lock themselves."""

    def __init__(self, operations: Operations, name: str, access: QueueAccessType = QueueAccessType.PEEK) -> None:
        """QueueNotFound, or AccessDenied if the identity of `operations` may not read it."""
        self._store = operations.engine.store
        with operations.engine.store.lock:
            queue = operations.find(name)
            # The check of rights is that of opening; nothing stays open.
            operations.close(operations.open(operations.names.format_name(name), access))
            self._queue = queue
            self.place = _place(operations.engine, queue)

    @property
    def identifier(self) -> int:
        """The number of the queue, which no queue that is made later has."""
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
        """(after, upto, horizon): all that is visible is in (after, upto], and nothing more will come up to the horizon."""
        self._store.checkpoint()
        with self._store.lock:
            after, upto = self._store.visible_bounds(self._queue.number)
            return after, upto, self._store.scan_horizon

    @property
    def horizon(self) -> int:
        """The number up to which nothing more will come."""
        self._store.checkpoint()
        with self._store.lock:
            return self._store.scan_horizon

    @staticmethod
    def lost(_after: int) -> int:
        """What left a queue was taken out: nothing is dropped here for its age."""
        return 0

    def measure(self, after: int, upto: int, *, max_messages: int | None = None, max_bytes: int | None = None) -> Range:
        """The longest range from `after` on that keeps to the limits; at least one message, if there is one."""
        messages = sys.maxsize if max_messages is None else max_messages
        size = sys.maxsize if max_bytes is None else max_bytes
        return next(cut(self._store, self._queue.number, after, upto, messages, size))

    def split(self, after: int, upto: int, target_bytes: int) -> list[Range]:
        """Cut a range into such of about `target_bytes`; together they are the range, empty parts and all."""
        return list(cut(self._store, self._queue.number, after, upto, sys.maxsize, target_bytes))

    def pieces(self, after: int, upto: int, room: Room) -> Iterator[tuple[Packets, Facts]]:
        """The messages with a number in (after, upto], in that order, but for those that somebody is receiving.

        The packets of each piece lie in what `room` gave last, which may be the same memory again.
        """
        while after < upto:
            with _MAKING:
                packets, facts, held = self._piece(after, upto, room)
            if not len(packets):
                return
            after = int(facts.seq[-1])
            if held:
                free = ~np.isin(facts.lookup_id, held)
                packets, facts = packets.taken(free), Facts(*(column[free] for column in facts))
            if len(packets):
                yield packets, facts

    def batches(self, after: int, upto: int, schema: RowSchema) -> Iterator[pa.RecordBatch]:
        """The same as Arrow batches."""
        for packets, facts in self.pieces(after, upto, Scratch()):
            with _MAKING:
                batch = decode(packets, facts, self.place, schema)
            yield batch

    def packets(self, after: int, upto: int) -> Iterator[tuple[tuple[int, int, int, int, int], bytes]]:
        """The same one by one: the numbers of `Facts`, and the packet."""
        for packets, facts in self.pieces(after, upto, Scratch()):
            rows = zip(*(column.tolist() for column in facts), strict=True)
            for index, (seq, lookup_id, arrived, aborts, moves) in enumerate(rows):
                yield (seq, lookup_id, arrived, aborts, moves), packets[index]

    def _piece(self, after: int, upto: int, room: Room) -> tuple[Packets, Facts, list[int]]:
        """The first messages of a range, and the lookup ids of those in the queue that are locked.

        What is locked belongs to a receive that has not ended. If that fails the message gets another number.
        """
        queue = self._queue
        self._store.checkpoint()
        with self._store.lock:
            if queue.is_deleted:
                raise QueueNotAvailable(f"queue {queue.pathname} was deleted")
            held = list(queue.held_positions)
            scan = self._store.scan(queue.number, after, upto, BATCH_ROWS)
        with scan:
            packets, facts = gather(scan, BATCH_ROWS, BATCH_BYTES, room) or _one_by_one(scan, room)
            return packets, facts, held


def _one_by_one(scan: Scan, room: Room) -> tuple[Packets, Facts]:
    packets: list[bytes] = []
    rows: list[tuple[int, int, int, int, int]] = []
    size = 0
    for number, lookup_id, record in scan:
        packets.append(record.packet)
        rows.append((number, lookup_id, record.arrived, record.abort_count, record.move_count))
        size += len(record.packet)
        if size >= BATCH_BYTES or len(rows) == BATCH_ROWS:
            break
    return Packets.of(packets, room), Facts.of(rows)


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
