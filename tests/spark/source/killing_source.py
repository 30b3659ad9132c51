"""A source and sink of Spark whose Python workers die by kill -9.

Each dies at its point and once; marks in a directory record which have died.
"""
# ruff: noqa: N802, N803 (Spark names the methods)

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from lanner.spark.source.data_source import MsmqDataSource
from lanner.spark.source.stream_reader import MsmqStreamReader
from lanner.spark.source.writer import MsmqStreamWriter, Staged

# In the worker of a task; in the process that plans and publishes; in the one that returns offsets.
POINTS = ("in read", "after stage", "after publish", "after acknowledge")


class Deaths:
    """Which points are still to come; pickled to wherever they are."""

    def __init__(self, marks: str) -> None:
        self._marks = Path(marks)

    def at(self, point: str) -> None:
        """Die here if the test requests it."""
        mark = self._marks / point
        if mark.exists():
            mark.rename(mark.with_suffix(".died"))
            os.kill(os.getpid(), signal.SIGKILL)


class KillingReader(MsmqStreamReader):
    deaths: Deaths

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        found = super().latestOffset(start, limit)
        if start["managers"] and found != start:
            self.deaths.at("after acknowledge")
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition):
            yield batch
            self.deaths.at("in read")


class KillingWriter(MsmqStreamWriter):
    deaths: Deaths

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        staged = super().write(iterator)
        self.deaths.at("after stage")
        return staged

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        super().commit(messages, batchId)
        self.deaths.at("after publish")


class KillingSource(MsmqDataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._deaths = Deaths(options.pop("marks"))
        super().__init__(options)

    def streamReader(self, schema: StructType) -> KillingReader:
        made = super().streamReader(schema)
        assert isinstance(made, MsmqStreamReader)
        reader = KillingReader(made._options, made._columns)
        reader.deaths = self._deaths
        return reader

    def streamWriter(self, schema: StructType, overwrite: bool) -> KillingWriter:
        made = super().streamWriter(schema, overwrite)
        assert isinstance(made, MsmqStreamWriter)
        writer = KillingWriter(made._options)
        writer.deaths = self._deaths
        return writer
