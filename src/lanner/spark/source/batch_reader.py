"""spark.read.format("msmq"): the messages that are in some queues now, or in a range of them. Always a peek.

Spark plans a DataFrame once and may read it several times, so nothing is ever received here: two actions would share the messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from lanner.model.errors import InvalidParameter
from lanner.spark.source.offsets import Offset
from lanner.spark.source.options import BatchOptions
from lanner.spark.source.partitions import Columns, MessagePartition, Planner, Wanted, read_partition
from lanner.spark.source.queue_names import FoundQueue, KnownManager, ask_all, find_queues

if TYPE_CHECKING:
    import pyarrow as pa


class MsmqBatchReader(DataSourceReader):
    """Plans in the driver, reads in the workers."""

    def __init__(self, options: BatchOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[MessagePartition]:
        """Look for the queues and cut them."""
        options = self._options
        managers = ask_all(options.access, is_log=options.is_events)
        for offset in (options.starting, options.ending):
            if isinstance(offset, Offset):
                check_managers(offset, managers)
        found = find_queues(managers, options.queues, is_log=options.is_events)
        planner = Planner(self._columns, options.min_partitions, fail_on_data_loss=options.fail_on_data_loss)
        return planner.plan(
            [
                (known.manager, known.epoch, [self._range(known, queue) for queue in found[known.identifier]])
                for known in managers
            ]
        )

    def _range(self, known: KnownManager, queue: FoundQueue) -> Wanted:
        options = self._options
        after, upto = 0, known.horizon
        if isinstance(options.starting, Offset) and (start := options.starting.queue(known.identifier, queue.number)):
            after = start.end
        if options.ending is not None:
            end = options.ending.queue(known.identifier, queue.number)
            upto = after if end is None else max(after, end.end)
        return Wanted(queue.name, queue.number, after, upto)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        return read_partition(options.access, partition, fail_on_data_loss=options.fail_on_data_loss)


def check_managers(offset: Offset, managers: list[KnownManager]) -> None:
    """Refuse offsets of other queue managers, or of another life of the same one."""
    from lanner.spark.flight.errors import EpochChanged

    known = {manager.identifier: manager for manager in managers}
    for identifier, one in offset.managers.items():
        if identifier not in known:
            names = ", ".join(f"{manager.name} ({manager.identifier})" for manager in managers)
            raise InvalidParameter(f"the offsets are those of queue manager {identifier}, and the managers are {names}")
        if one.epoch != known[identifier].epoch:
            raise EpochChanged(
                f"queue manager {known[identifier].name} is in epoch {known[identifier].epoch}, and the offsets are of epoch {one.epoch}: its "
                "store was restored or made anew, and numbers from before mean nothing now; begin with a new checkpoint"
            )
