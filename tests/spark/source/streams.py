"""Spark's use of the source of a stream, in one process and without Spark.

It has batches, a log of offsets, and restarts.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable

from lanner.spark.columnar.schema import RowSchema
from lanner.spark.source.data_source import MsmqDataSource
from lanner.spark.source.stream_reader import MsmqStreamReader


def text_of(offset: dict[str, Any]) -> str:
    return json.dumps(offset)


class Stream:
    """A streaming query.

    `offsets` and `ended` are its checkpoint: what it needs of it survives in another Stream.
    """

    running: ClassVar[list[Stream]] = []

    def __init__(self, address: str, before: Stream | None = None, /, **options: object) -> None:
        given = {"managers": address, "user": "root", "retrySeconds": 0, "columns": "body,seq,queue"} | options
        source = MsmqDataSource(CaseInsensitiveDict({name: str(value) for name, value in given.items()}))
        select = RowSchema.select_events if given.get("mode") == "events" else RowSchema.select
        self.schema = select(str(given["columns"])).arrow
        made = source.streamReader(from_arrow_schema(self.schema))
        assert isinstance(made, MsmqStreamReader)
        self.reader = made
        # What goes to the workers.
        self.remote: MsmqStreamReader = pickle.loads(pickle.dumps(made))
        self.offsets: list[str] = [] if before is None else list(before.offsets)
        self.ended: int = 0 if before is None else before.ended
        self.running.append(self)

    @classmethod
    def stop_all(cls) -> None:
        while cls.running:
            cls.running.pop().reader.stop()

    def start(self) -> dict[str, Any]:
        """Where the next batch begins."""
        found: dict[str, Any] = json.loads(self.offsets[self.ended - 1]) if self.ended else self.reader.initialOffset()
        return json.loads(text_of(found))  # type: ignore[no-any-return]

    def plan(self, *, unlimited: bool = False) -> bool:
        """Write down the end of the next batch; False if there is nothing to read."""
        if self.ended < len(self.offsets):
            return True
        start = self.start()
        limit = ReadAllAvailable() if unlimited else self.reader.getDefaultReadLimit()
        end = text_of(self.reader.latestOffset(start, limit))
        if end == text_of(start):
            return False
        self.offsets.append(end)
        if self.ended:
            self.reader.commit(json.loads(self.offsets[self.ended - 1]))
        return True

    def read(self) -> pa.Table:
        """The rows of the batch that was planned."""
        partitions = self.reader.partitions(self.start(), json.loads(self.offsets[self.ended]))
        parts = pickle.loads(pickle.dumps(partitions))
        return pa.Table.from_batches((batch for part in parts for batch in self.remote.read(part)), self.schema)

    def end(self) -> None:
        """Write down that the batch is done."""
        self.ended += 1

    def batch(self, *, unlimited: bool = False) -> list[bytes] | None:
        """The bodies of one batch; None if there is nothing to read."""
        if not self.plan(unlimited=unlimited):
            return None
        found: list[bytes] = self.read().column("body").to_pylist()
        self.end()
        return found

    def batches(self) -> Iterator[list[bytes]]:
        """All batches until there is nothing new."""
        while (found := self.batch()) is not None:
            yield found
