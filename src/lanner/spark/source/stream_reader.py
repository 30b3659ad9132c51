"""spark.readStream.format("msmq"): the adapter between Spark and `StreamDriver`.

Spark has two of these objects: one stays in a process of the driver and answers calls about
offsets; the other is pickled for the workers, where it reads partitions.
"""
# ruff: noqa: N802 (Spark names the methods)

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from lanner.spark.source.offsets import Offset
from lanner.spark.source.options import MAX_MESSAGES_PER_TRIGGER, StreamOptions
from lanner.spark.source.partitions import Columns, MessagePartition, read_partition
from lanner.spark.source.stream_driver import Limits, StreamDriver

if TYPE_CHECKING:
    import pyarrow as pa


class MsmqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader. Only the object in the driver uses `driver`."""

    def __init__(self, options: StreamOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._driver: StreamDriver | None = None

    @property
    def driver(self) -> StreamDriver:
        """The stream's driver, made on first use."""
        if self._driver is None:
            self._driver = StreamDriver(self._options, self._columns)
        return self._driver

    def initialOffset(self) -> dict[str, Any]:
        return self.driver.initial().to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one of the two limits, because Spark has one at a time. Both are applied."""
        if self._options.max_messages != MAX_MESSAGES_PER_TRIGGER:
            return ReadMaxRows(self._options.max_messages)
        return ReadMaxBytes(self._options.max_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        has_limits = not isinstance(limit, ReadAllAvailable)
        limits = Limits(self._options.max_messages, self._options.max_bytes) if has_limits else Limits()
        before = Offset.from_dict(start)
        after = self.driver.latest(before, limits)
        # The same object, so that Spark sees that there is nothing new.
        return start if after == before else after.to_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self.driver.latest_known

    def prepareForTriggerAvailableNow(self) -> None:
        self.driver.aim()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[MessagePartition]:
        return self.driver.plan(Offset.from_dict(start), Offset.from_dict(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        return read_partition(options.access, partition, fail_on_data_loss=options.fail_on_data_loss)

    def commit(self, end: dict[str, Any]) -> None:
        self.driver.acknowledge(Offset.from_dict(end))

    def stop(self) -> None:
        """Close the driver after a failed call. Stopping a query ends the process instead."""
        if self._driver is not None:
            self._driver.close()
