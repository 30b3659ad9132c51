"""The Spark application that is killed.

One driver runs a stream from a queue to Parquet and one from a queue to a queue. Run as `python -m
tests.spark.source.killed_driver ADDRESS DIRECTORY POINT`. At the crash point one of its processes
kills the driver and its Java machine; with the point `never` it works until it is killed from
outside.
"""
# ruff: noqa: N802, N803 (Spark names the methods)

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from lanner.spark.source.data_source import MsmqDataSource
from lanner.spark.source.offsets import Offset
from lanner.spark.source.stream_reader import MsmqStreamReader
from lanner.spark.source.writer import MsmqStreamWriter, Staged
from tests.spark.small import SPARK_SETTINGS

POINTS = (
    "before acknowledge",
    "after acknowledge",
    "in read",
    "after stage",
    "before publish",
    "after publish",
)
AT_ONCE = 100  # messages in one batch
# The first batch has no past to be mixed up with.
FIRST = 1


def crash(point: str) -> None:
    """Kill driver and Java machine, which are one group of processes; the workers end with them."""
    wanted, _, group = os.environ.get("CRASH_AT", "").partition("@")
    if wanted == point:
        os.killpg(int(group), signal.SIGKILL)
        os._exit(9)


class CrashingReader(MsmqStreamReader):
    def _acknowledging(self, offset: dict[str, Any]) -> bool:
        queues = [queue for one in Offset.from_dict(offset).managers.values() for queue in one.queues.values()]
        return any(queue.messages >= FIRST * AT_ONCE for queue in queues)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if self._acknowledging(start):
            crash("before acknowledge")
            self.driver.acknowledge(Offset.from_dict(start))
            crash("after acknowledge")
        return super().latestOffset(start, limit)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition):
            yield batch
            if any(piece.part.after >= FIRST * AT_ONCE for piece in getattr(partition, "pieces", ())):
                crash("in read")


class CrashingWriter(MsmqStreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        staged = super().write(iterator)
        if staged.batch >= FIRST:
            crash("after stage")
        return staged

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if batchId >= FIRST:
            crash("before publish")
        super().commit(messages, batchId)
        if batchId >= FIRST:
            crash("after publish")


class CrashingSource(MsmqDataSource):
    def streamReader(self, schema: StructType) -> CrashingReader:
        made = super().streamReader(schema)
        assert isinstance(made, MsmqStreamReader)
        return CrashingReader(made._options, made._columns)

    def streamWriter(self, schema: StructType, overwrite: bool) -> CrashingWriter:
        made = super().streamWriter(schema, overwrite)
        assert isinstance(made, MsmqStreamWriter)
        return CrashingWriter(made._options)


def stream(spark: SparkSession, address: str, queue: str) -> DataFrame:
    options = {"managers": address, "user": "root", "queues": queue, "mode": "receive", "reader": "pipeline"}
    limits = {"maxMessagesPerTrigger": str(AT_ONCE), "columns": "body,label,seq"}
    return spark.readStream.format("msmq").options(**options, **limits).load()


def to_files(spark: SparkSession, address: str, directory: Path) -> DataStreamWriter:
    writer = stream(spark, address, "first").writeStream.format("parquet").option("path", str(directory / "parquet"))
    return writer.option("checkpointLocation", str(directory / "first"))


def to_queue(spark: SparkSession, address: str, directory: Path) -> DataStreamWriter:
    writer = stream(spark, address, "second").select("body", "label").writeStream.format("msmq")
    options = {"managers": address, "user": "root", "queue": "target"}
    return writer.options(**options).option("checkpointLocation", str(directory / "second"))


def main() -> None:
    address, directory, point = sys.argv[1:]
    os.environ["CRASH_AT"] = f"{point}@{os.getpgid(0)}"
    builder = SparkSession.builder.master("local[2]").appName("killed")
    for name, value in SPARK_SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    queries = []
    for writer in (to_files, to_queue):
        # All queries of a source share the map with the environment of its workers, and Spark
        # changes it while it serialises tasks (it then fails with OptionalDataException): so each
        # has a source of its own.
        session = spark.newSession()
        session.dataSource.register(CrashingSource)
        queries.append(writer(session, address, Path(directory)).start())
    sys.stdout.write("started\n")
    sys.stdout.flush()
    while all(query.isActive for query in queries):
        time.sleep(0.1)
    sys.stderr.write("\n".join(str(query.exception()) for query in queries))
    sys.exit(3)


if __name__ == "__main__":
    main()
