"""Ranges of queues as partitions of Spark: planned by bytes where the queue is, read in a worker, counted against the plan."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from lanner.model.errors import LannerError, QueueNotAvailable, QueueNotFound
from lanner.spark.source.ahead import ahead
from lanner.spark.source.connections import Access, Manager
from lanner.spark.source.options import PARTITION_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

    from lanner.spark.flight.client import Partition

_LOG: Final = logging.getLogger(__name__)

# Not in the specification: this many partitions are enough if the user has not set minPartitions. A
# task costs as much as reading ten megabytes: its start, its end, and the garbage collection after it. The upper
# limit is that of Spark for files (spark.sql.files.maxPartitionBytes).
ENOUGH: Final = 16
MAX_PARTITION_BYTES: Final = 4 * PARTITION_BYTES
# Not in the specification: the limit if the user has set minPartitions. A task that fails is read again.
MAX_ASKED_BYTES: Final = 1 << 30
# Not in the specification: memory that a worker keeps between batches; some batches.
KEPT_BYTES: Final = 64 << 20


class MessagesVanished(LannerError):
    """Messages that were to be read are no longer in their queue."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """(after, upto] of a queue, and how many messages should be in it, None if they were not counted."""

    name: str
    number: int
    after: int
    upto: int
    messages: int | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """What is asked for, as `RowSchema.select` takes it."""

    columns: str | tuple[str, ...]
    include_body: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """A range that is read in one stream."""

    queue: str
    part: Partition


class MessagePartition(InputPartition):
    """What one task reads, all from one queue manager. `value` stays None, as it is of a partition of nothing."""

    def __init__(self, address: str, pieces: Sequence[Piece]) -> None:
        super().__init__(None)
        self.address = address
        self.pieces = tuple(pieces)


def vanished(queue: str, after: int, upto: int, planned: int, found: int, *, is_error: bool) -> None:
    """Report messages that are no longer there, as an error or in the log."""
    text = (
        f"queue {queue}: {planned - found} of {planned} messages with numbers in ({after}, {upto}] are gone: they were received or purged by "
        "others, or have expired"
    )
    if is_error:
        raise MessagesVanished(f"{text}. Set failOnDataLoss to false to go on without them")
    _LOG.warning("%s", text)


def aged_out(manager: str, after: int, count: int, *, is_error: bool) -> None:
    """Report events that were dropped before they were read."""
    text = (
        f"queue manager {manager}: events with numbers in ({after}, {after + count}] are gone: they were older than its settings keep them, or too "
        "many"
    )
    if is_error:
        raise MessagesVanished(
            f"{text}. Read more often, keep them longer ([events] keep_days, max_mb), or set failOnDataLoss to false"
        )
    _LOG.warning("%s", text)


class Planner:
    """Cuts ranges into partitions."""

    def __init__(self, columns: Columns, min_partitions: int | None, *, fail_on_data_loss: bool) -> None:
        self._columns = columns
        self._asked = min_partitions
        self._fails = fail_on_data_loss

    def plan(self, wanted: Sequence[tuple[Manager, int, Sequence[Wanted]]]) -> list[MessagePartition]:
        """Partitions for ranges of queues, given by queue manager and epoch.

        Each has about PARTITION_BYTES, and up to MAX_PARTITION_BYTES where there is much more. If the user has set
        minPartitions, there are about that many, and not fewer if there are enough messages.
        """
        target = PARTITION_BYTES
        found = [(manager, self._pieces(manager, epoch, ranges, target)) for manager, epoch, ranges in wanted]
        size = sum(piece.part.bytes for _, pieces in found for piece in pieces)
        if self._asked is None:
            return self._packed(found, min(max(size // ENOUGH, target), MAX_PARTITION_BYTES))
        # Pieces stay whole, so that the last partition would be a small one without a bit of room.
        planned = self._packed(found, min(size // self._asked + target // 2, MAX_ASKED_BYTES))
        if len(planned) < self._asked and planned:
            target = max(size // self._asked, 1)
            found = [(manager, self._pieces(manager, epoch, ranges, target)) for manager, epoch, ranges in wanted]
            planned = self._packed(found, target)
        return planned

    def _pieces(self, manager: Manager, epoch: int, ranges: Sequence[Wanted], target: int) -> list[Piece]:
        pieces = []
        for wanted in ranges:
            request = {
                "queue_id": wanted.number,
                "epoch": epoch,
                "after": wanted.after,
                "upto": wanted.upto,
                "columns": self._columns.columns,
                "include_body": self._columns.include_body,
                "partition_bytes": target,
            }
            try:
                plan = manager.call(lambda queues, name=wanted.name, request=request: queues.plan(name, **request))  # type: ignore[misc]
            except (QueueNotFound, QueueNotAvailable) as error:
                if self._fails:
                    raise
                _LOG.warning("%s", error)
                continue
            if plan.about.get("lost") and wanted.after:
                aged_out(manager.address, wanted.after, plan.about["lost"], is_error=self._fails)
            count = sum(part.messages for part in plan.partitions)
            if wanted.messages is not None and count < wanted.messages:
                vanished(wanted.name, wanted.after, wanted.upto, wanted.messages, count, is_error=self._fails)
            pieces += [Piece(wanted.name, part) for part in plan.partitions if part.messages]
        return pieces

    @staticmethod
    def _packed(found: Sequence[tuple[Manager, list[Piece]]], target: int) -> list[MessagePartition]:
        """Small pieces of one queue manager together: a task has its price."""
        partitions = []
        for manager, pieces in found:
            packed: list[Piece] = []
            for piece in pieces:
                if packed and sum(one.part.bytes for one in packed) + piece.part.bytes > target:
                    partitions.append(MessagePartition(manager.address, packed))
                    packed = []
                packed.append(piece)
            if packed:
                partitions.append(MessagePartition(manager.address, packed))
        return partitions


def read_partition(access: Access, partition: InputPartition, *, fail_on_data_loss: bool) -> Iterator[pa.RecordBatch]:
    """The batches of a partition, in a worker; while Spark takes one in, the next is on its way."""
    # Spark makes a partition of its own where a plan has none.
    if not isinstance(partition, MessagePartition):
        return iter(())
    _prepare(os.getpid())
    return ahead(_batches(access, partition, fail_on_data_loss=fail_on_data_loss))


def _batches(
    access: Access, partition: MessagePartition, *, fail_on_data_loss: bool
) -> Generator[pa.RecordBatch, None, None]:
    manager = Manager(access, partition.address)
    for piece in partition.pieces:
        found = 0
        for batch in manager.read(piece.part):
            found += len(batch)
            yield batch
        part = piece.part
        if found < part.messages:
            vanished(piece.queue, part.after, part.upto, part.messages, found, is_error=fail_on_data_loss)


@cache
def _prepare(_process: int) -> None:
    """Prepare a worker for reading, once in each process."""
    # Loaded before the freeze below, so that it covers them.
    import pyarrow.flight  # noqa: F401

    import lanner.spark.flight.near_streams  # noqa: F401
    from lanner.spark.flight.courtesy import keep

    # Spark runs the garbage collector after each task. A worker has loaded some hundred thousand objects, and
    # visiting them takes as long as reading some megabytes of messages.
    gc.freeze()
    keep(KEPT_BYTES)
