"""Ranges of queues as partitions of Spark: planned by size, read in workers, and checked.

The queue manager plans partitions by bytes. A worker reads a partition, and counts its rows against
the plan.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from lanner.model.errors import LannerError, QueueNotAvailable, QueueNotFound
from lanner.spark.source.ahead import ahead
from lanner.spark.source.connections import Access, Manager
from lanner.spark.source.options import PARTITION_BYTES
from lanner.spark.source.queue_names import at_once

if TYPE_CHECKING:
    import pyarrow as pa

    from lanner.spark.flight.client import Partition

_LOG: Final = logging.getLogger(__name__)

# Not in the specification: how many partitions are enough if the user has not set minPartitions.
# Starting and ending a task, with the garbage collection after it, takes as long as reading ten
# megabytes. The upper limit is Spark's for files (spark.sql.files.maxPartitionBytes).
ENOUGH: Final = 16
MAX_PARTITION_BYTES: Final = 4 * PARTITION_BYTES
# Not in the specification: the size limit of a partition if the user has set minPartitions. It
# limits what is read again when a task fails.
MAX_ASKED_BYTES: Final = 1 << 30
# Not in the specification: the number of pieces per partition if several queues share the requested
# partitions.
_PIECES: Final = 8
# Not in the specification: the memory that a worker keeps between batches. It is enough for several
# batches.
KEPT_BYTES: Final = 64 << 20


# The last column with onManagerDown=skip: the queue managers that were left out, null for none.
SKIPPED: Final = "skipped"


class MessagesVanished(LannerError):
    """Messages that should be read are no longer in their queue."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The range (after, upto] of a queue.

    `messages` is the expected number of messages; None if they were not counted.
    """

    name: str
    number: int
    after: int
    upto: int
    messages: int | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """The requested columns, as for `RowSchema.select`."""

    columns: str | tuple[str, ...]
    include_body: bool
    body_format: str | None = None
    body_schema: str | None = None
    # Whether SKIPPED comes last: the queue managers that were left out.
    has_skipped: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """A range that is read in one stream."""

    queue: str
    part: Partition
    # Whether as many rows are expected as were planned. With conditions there are fewer.
    is_counted: bool = True


class MessagePartition(InputPartition):
    """The ranges of one task, all of one queue manager.

    `value` of the base class is not used and stays None.
    """

    def __init__(self, address: str, pieces: Sequence[Piece]) -> None:
        super().__init__(None)
        self.address = address
        self.pieces = tuple(pieces)
        # The queue managers that were left out of the plan, if rows are to tell.
        self.skipped: tuple[str, ...] | None = None


def vanished(queue: str, after: int, upto: int, planned: int, found: int, *, is_error: bool) -> None:
    """Report messages that are missing, as an error or in the log."""
    text = (
        f"queue {queue}: {planned - found} of {planned} messages with numbers in ({after}, {upto}] are gone: they "
        "were received or purged by others, or have expired"
    )
    if is_error:
        raise MessagesVanished(f"{text}. Set failOnDataLoss to false to go on without them")
    _LOG.warning("%s", text)


def aged_out(manager: str, after: int, count: int, *, is_error: bool) -> None:
    """Report events that were dropped before they were read."""
    text = (
        f"queue manager {manager}: events with numbers in ({after}, {after + count}] are gone: they exceeded "
        "its limits of age or size"
    )
    if is_error:
        raise MessagesVanished(
            f"{text}. Read more often, keep them longer ([events] keep_days, max_mb), or set failOnDataLoss to false"
        )
    _LOG.warning("%s", text)


class Planner:
    """Cuts ranges into partitions."""

    def __init__(
        self,
        columns: Columns,
        min_partitions: int | None,
        *,
        fail_on_data_loss: bool,
        where: Sequence[Sequence[object]] = (),
        limit: int | None = None,
    ) -> None:
        """Plan reads of `columns`.

        `where`: conditions as JSON (`columnar.filters`). `limit`: the number of messages that are
        enough.
        """
        self._columns = columns
        self._asked = min_partitions
        self._fails = fail_on_data_loss
        self._where = list(where)
        self._limit = limit

    def plan(
        self, wanted: Sequence[tuple[Manager, int, Sequence[Wanted]]], skipped: Iterable[str] = ()
    ) -> list[MessagePartition]:
        """Return partitions as `_planned` does. `skipped`: the queue managers that are left out."""
        partitions = self._planned(wanted)
        if self._columns.has_skipped:
            for partition in partitions:
                partition.skipped = tuple(sorted(skipped))
        return partitions

    def _planned(self, wanted: Sequence[tuple[Manager, int, Sequence[Wanted]]]) -> list[MessagePartition]:
        """Return partitions for ranges of queues, given by queue manager and epoch.

        Each has about PARTITION_BYTES, and up to MAX_PARTITION_BYTES if there is much more to read.
        If the user has set minPartitions, there are about that many, of nearly equal size. There
        are more if these would exceed MAX_ASKED_BYTES, and fewer if there are not enough messages.
        """
        if self._limit is not None:
            wanted = self._limited(wanted)
        found = self._found(wanted, PARTITION_BYTES)
        size = sum(piece.part.bytes for _, pieces in found for piece in pieces)
        if self._asked is None:
            return self._packed(found, min(max(size // ENOUGH, PARTITION_BYTES), MAX_PARTITION_BYTES))
        count = max(self._asked, -(-size // MAX_ASKED_BYTES))
        share = max(size // count, 1)
        ranges = sum(len(some) for _, _, some in wanted)
        # One range is cut into equal parts. Several ranges are cut into small pieces, which are
        # combined to nearly equal parts.
        target = share if ranges == 1 else max(share // _PIECES, 1)
        if target < PARTITION_BYTES or ranges == 1:
            found = self._found(wanted, target)
        return self._shared(found, share)

    def _found(
        self, wanted: Sequence[tuple[Manager, int, Sequence[Wanted]]], target: int
    ) -> list[tuple[Manager, list[Piece]]]:
        """Return the pieces at each queue manager. All are queried at the same time."""

        def pieces(one: tuple[Manager, int, Sequence[Wanted]]) -> tuple[Manager, list[Piece]]:
            manager, epoch, ranges = one
            return manager, self._pieces(manager, epoch, ranges, target)

        return at_once(pieces, wanted)

    def _limited(
        self, wanted: Sequence[tuple[Manager, int, Sequence[Wanted]]]
    ) -> list[tuple[Manager, int, Sequence[Wanted]]]:
        """Shorten the ranges so that they have no more messages than the limit in total."""
        left = self._limit or 0
        found: list[tuple[Manager, int, Sequence[Wanted]]] = []
        for manager, epoch, ranges in wanted:
            kept = []
            for one in ranges:
                if not left:
                    break
                request = {"queue_id": one.number, "epoch": epoch, "upto": one.upto, "max_messages": left}
                part = manager.call(
                    lambda queues, one=one, request=request: queues.measure(one.name, one.after, **request)  # type: ignore[misc]
                )
                kept.append(replace(one, upto=part["upto"], messages=None))
                left -= part["messages"]
            found.append((manager, epoch, kept))
        return found

    def _pieces(self, manager: Manager, epoch: int, ranges: Sequence[Wanted], target: int) -> list[Piece]:
        pieces = []
        for wanted in ranges:
            request: dict[str, object] = {
                "queue_id": wanted.number,
                "epoch": epoch,
                "after": wanted.after,
                "upto": wanted.upto,
                "columns": self._columns.columns,
                "include_body": self._columns.include_body,
                "partition_bytes": target,
            }
            for name in ("body_format", "body_schema"):
                if getattr(self._columns, name) is not None:
                    request[name] = getattr(self._columns, name)
            if self._where:
                request["where"] = self._where
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
            pieces += [
                Piece(wanted.name, part, is_counted=not self._where) for part in plan.partitions if part.messages
            ]
        return pieces

    @staticmethod
    def _packed(found: Sequence[tuple[Manager, list[Piece]]], target: int) -> list[MessagePartition]:
        """Combine small pieces of one queue manager, because each task has a fixed cost."""
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

    @staticmethod
    def _shared(found: Sequence[tuple[Manager, list[Piece]]], share: int) -> list[MessagePartition]:
        """Combine pieces into nearly equal partitions, by the position of each piece's middle."""
        partitions = []
        for manager, pieces in found:
            # Each queue manager gets the number of equal parts whose size is nearest to the share.
            size = sum(piece.part.bytes for piece in pieces)
            even = size / max(round(size / share), 1)
            parts: dict[int, list[Piece]] = {}
            begin = 0
            for piece in pieces:
                parts.setdefault(int((begin + piece.part.bytes / 2) / even), []).append(piece)
                begin += piece.part.bytes
            partitions += [MessagePartition(manager.address, part) for part in parts.values()]
        return partitions


def read_partition(access: Access, partition: InputPartition, *, fail_on_data_loss: bool) -> Iterator[pa.RecordBatch]:
    """Return the batches of a partition, in a worker. The next batch is read ahead."""
    # If a plan is empty, Spark makes a partition without a range.
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
            yield batch if partition.skipped is None else _with_skipped(batch, partition.skipped)
        part = piece.part
        if piece.is_counted and found < part.messages:
            vanished(piece.queue, part.after, part.upto, part.messages, found, is_error=fail_on_data_loss)


def _with_skipped(batch: pa.RecordBatch, skipped: Sequence[str]) -> pa.RecordBatch:
    import pyarrow as pa

    text = pa.scalar(", ".join(skipped) or None, pa.string())
    return batch.append_column(pa.field(SKIPPED, pa.string()), pa.repeat(text, len(batch)))


@cache
def _prepare(_process: int) -> None:
    """Prepare a worker for reading, once in each process."""
    # Import these before `gc.freeze`, so that the garbage collector ignores their objects, too.
    import pyarrow.flight  # noqa: F401

    import lanner.spark.flight.near_streams  # noqa: F401
    from lanner.spark.flight.courtesy import keep

    # Spark runs the garbage collector after each task. A worker has some hundred thousand objects,
    # and visiting them takes as long as reading some megabytes of messages.
    gc.freeze()
    keep(KEPT_BYTES)
