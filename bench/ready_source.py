"""The floor of the Spark benchmark: a source with ready batches, and a sink that drops rows."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from lanner.spark.columnar.decode import decode_packets
from lanner.spark.columnar.packet_source import BATCH_BYTES, BATCH_ROWS, Facts, Place
from lanner.spark.columnar.schema import RowSchema
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import parse


@lru_cache(maxsize=4)
def ready_batch(columns: str, size: int) -> pa.RecordBatch:
    """Return the batch that the source repeats, as large as those of the Flight service.

    It is made once in each process.
    """
    source, destination = uuid.uuid4(), parse(r"DIRECT=OS:bench\private$\bench")

    def packet(number: int) -> bytes:
        properties = MessageProperties(body=os.urandom(size))
        return build(properties, source=source, ordinal=number, sent_time=1_700_000_000, destination=destination)

    packets = [packet(number) for number in range(min(BATCH_BYTES // len(packet(0)), BATCH_ROWS))]
    numbers = np.arange(len(packets), dtype=np.int64)
    facts = Facts(numbers, numbers, numbers, 0 * numbers, 0 * numbers)
    place = Place(str(source), "BENCH", str(destination), "destination")
    return decode_packets(packets, facts, place, RowSchema.select(columns))


class ReadyReader(DataSourceReader):
    def __init__(self, columns: str, rows: int, size: int) -> None:
        self.columns, self.rows, self.size = columns, rows, size

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self.rows // 2), InputPartition(self.rows - self.rows // 2)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch, left = ready_batch(self.columns, self.size), partition.value
        while left > 0:
            yield batch.slice(0, left)
            left -= len(batch)


class DroppingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class ReadySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return RowSchema.select(self.options.get("columns", "all")).ddl

    def reader(self, schema: StructType) -> ReadyReader:
        del schema
        return ReadyReader(self.options.get("columns", "all"), int(self.options["rows"]), int(self.options["size"]))

    def writer(self, schema: StructType, overwrite: bool) -> DroppingWriter:
        del schema, overwrite
        return DroppingWriter()
