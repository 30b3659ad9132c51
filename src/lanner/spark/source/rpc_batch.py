"""spark.read with transport=rpc: the messages in queues of any MSMQ computer.

One task reads each queue. It only peeks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from lanner.model.errors import QueueNotFound
from lanner.spark.source.options import BatchOptions
from lanner.spark.source.partitions import Columns
from lanner.spark.source.rpc_reading import RpcManager, managers, walk

if TYPE_CHECKING:
    import pyarrow as pa

    from lanner.client import QueueManager


class RpcQueue(InputPartition):
    """The partition of one queue."""

    def __init__(self, manager: RpcManager, queue: str) -> None:
        super().__init__(None)
        self.manager = manager
        self.queue = queue


class RpcBatchReader(DataSourceReader):
    def __init__(self, options: BatchOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[RpcQueue]:
        """Find the computers that have each queue. Raises QueueNotFound if no computer has one."""
        found = []
        for name in self._options.queues:
            places = [manager for manager in managers(self._options.access) if _has(manager, name)]
            if not places:
                where = ", ".join(self._options.access.managers)
                raise QueueNotFound(f"option queues: there is no queue {name} on {where}")
            found += [RpcQueue(manager, name) for manager in places]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes a partition of its own if a plan is empty.
        if not isinstance(partition, RpcQueue):
            return
        from lanner.spark.source.rpc_columns import read_batches

        manager = partition.manager.call(_itself)
        with manager.open(partition.queue) as queue:
            yield from read_batches(manager, queue, walk(queue), self._columns)


def _itself(manager: QueueManager) -> QueueManager:
    return manager


def _has(manager: RpcManager, name: str) -> bool:
    """Return whether a queue exists. Raises an error if the user may not read it."""

    def look(connected: QueueManager) -> bool:
        with connected.open(name) as queue:
            try:
                next(walk(queue), None)
            except QueueNotFound:
                return False
            return True

    return manager.call(look)
