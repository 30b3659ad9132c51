"""spark.read.format("msmq"): the messages that are in queues now, or in a range of them.

Spark plans a DataFrame once and may read it several times. So a batch read only peeks: if it
received, two actions would each get a part of the messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.datasource import Filter as SparkFilter

from lanner.model.errors import InvalidParameter
from lanner.spark.columnar.filters import Filters
from lanner.spark.source.connections import Manager
from lanner.spark.source.offsets import Offset
from lanner.spark.source.options import SKIP, BatchOptions
from lanner.spark.source.partitions import Columns, MessagePartition, Planner, Wanted, read_partition
from lanner.spark.source.pushing import pushed
from lanner.spark.source.queue_names import FoundQueue, KnownManager, ask_all, at_once, find_queues

if TYPE_CHECKING:
    import pyarrow as pa


class MsmqBatchReader(DataSourceReader):
    """The batch reader: it plans in the driver and reads in the workers."""

    def __init__(self, options: BatchOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._where = options.where

    def partitions(self) -> list[MessagePartition]:
        """Find the queues and cut them into partitions."""
        options = self._options
        fleet = ask_all(options.access, is_log=options.is_events, skip=options.on_down == SKIP)
        managers = fleet.managers
        for offset in (options.starting, options.ending):
            if isinstance(offset, Offset):
                check_managers(offset, managers)
        skipped = fleet.skipped if options.on_down == SKIP else None
        found = find_queues(managers, options.queues, is_log=options.is_events, skipped=skipped)
        managers = [known for known in managers if known.manager.address not in fleet.skipped]
        planner = Planner(
            self._columns,
            options.min_partitions,
            fail_on_data_loss=options.fail_on_data_loss,
            where=self._where.to_json(),
            limit=options.limit,
        )

        def ranges(known: KnownManager) -> tuple[Manager, int, list[Wanted]]:
            return known.manager, known.epoch, [self._range(known, queue) for queue in found[known.identifier]]

        return planner.plan(at_once(ranges, managers), fleet.skipped)

    def _range(self, known: KnownManager, queue: FoundQueue) -> Wanted:
        options = self._options
        after, upto = 0, known.horizon
        if isinstance(options.starting, Offset) and (start := options.starting.queue(known.identifier, queue.number)):
            after = start.end
        if options.ending is not None:
            end = options.ending.queue(known.identifier, queue.number)
            upto = after if end is None else max(after, end.end)
        if options.starting_ms is not None:
            after = position(known, queue, options.starting_ms)
        if options.ending_ms is not None:
            upto = max(after, position(known, queue, options.ending_ms))
        return Wanted(queue.name, queue.number, after, upto)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        return read_partition(options.access, partition, fail_on_data_loss=options.fail_on_data_loss)


class FilteringBatchReader(MsmqBatchReader):
    """The batch reader for the option pushFilters.

    It is a class of its own, because Spark 4.3 fails if a reader has this method while Spark's own
    setting is off.
    """

    def pushFilters(self, filters: list[SparkFilter]) -> Iterator[SparkFilter]:  # noqa: N802 (Spark's name)
        """Store the conditions that queue managers evaluate, and yield the others for Spark."""
        taken = list(self._where.all)
        for one in filters:
            found = pushed(one)
            if found is None:
                yield one
            else:
                taken.append(found)
        self._where = Filters(tuple(taken))


def position(known: KnownManager, queue: FoundQueue, time_ms: int) -> int:
    """Return the number before the first message of a queue that arrived at a time or later."""
    request = {"queue": queue.name, "queue_id": queue.number, "epoch": known.epoch, "time_ms": time_ms}
    return int(known.manager.call(lambda flight: flight.act("position", **request))["after"])


def check_managers(offset: Offset, managers: list[KnownManager]) -> None:
    """Refuse offsets of other queue managers, or of another epoch of the same one."""
    from lanner.spark.flight.errors import EpochChanged

    known = {manager.identifier: manager for manager in managers}
    for identifier, one in offset.managers.items():
        if identifier not in known:
            names = ", ".join(f"{manager.name} ({manager.identifier})" for manager in managers)
            raise InvalidParameter(f"the offsets are those of queue manager {identifier}, and the managers are {names}")
        if one.epoch != known[identifier].epoch:
            raise EpochChanged(
                f"queue manager {known[identifier].name} is in epoch {known[identifier].epoch}, and the offsets are "
                f"of epoch {one.epoch}: its store was restored or created again, so older numbers are not "
                "valid; begin with a new checkpoint"
            )
