"""The lake: the place of the tables, and how jobs read and write them.

`messages`, `events` and `replays` grow: `append` adds a batch of a stream once, however often it is
written. All other tables are replaced: `write` makes the new table beside the old one, and one step
switches to it. Readers see the old or the new table as a whole, even if the job is killed. In the
format `parquet` that step is the file `_SUCCESS`, which is written last, in a directory `version=N`
of the table: the highest N with such a file is current. In `delta` and `iceberg` it is a commit
(`formats`).

`write_parts` replaces only the rows of a table whose column `part` has certain values, again in one
step. In `parquet` the directory of a version then has a directory `part=P` for each of them: of
each P, the one in the highest N with `_SUCCESS` is current.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from pyspark.sql import functions as F  # noqa: N812

from lanner.model.errors import LannerError
from lanner.spark.jobs import JOBS
from lanner.spark.jobs.formats import PART, DataFile, DeltaTables, IcebergTables, TableFormat
from lanner.spark.jobs.tables import EVENTS, MESSAGES, PARTITIONS, SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VERSION: Final = re.compile(r"/version=(\d+)(?:/_SUCCESS)?$")
_PART_PLACE: Final = re.compile(r"/version=(\d+)/part=([^/]*)$")
_MARK: Final = re.compile(r"/_batches/([^/]*)-(\d{8})$")
_PARTITION: Final = re.compile(r"([a-z_]+)=([^/]*)/")
# Readers that have opened the version before the newest may finish.
_KEPT: Final = 1


class NoTable(LannerError):
    """A job needs a table that another job has not made yet."""


@dataclass(frozen=True)
class Lake:
    """The directory of the tables.

    `options` are for the format: storage of `delta`, the catalog of `iceberg`.
    """

    spark: SparkSession
    root: str
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _tables(self) -> TableFormat | None:
        """The commits of formats other than `parquet`."""
        root = self.root.rstrip("/")
        if self.format == "delta":
            return DeltaTables(root, self.options)
        return IcebergTables(root, self.options) if self.format == "iceberg" else None

    def path(self, table: str) -> str:
        return f"{self.root.rstrip('/')}/{table}"

    def checkpoint(self, name: str) -> str:
        """Return the place of a stream's progress, which Spark does not mistake for a table."""
        return self.path(f"_checkpoints/{name}")

    # Reading

    def has(self, table: str) -> bool:
        """Return whether a table has been written."""
        if self._tables is not None:
            return self._tables.files(table) is not None
        if table in SCHEMAS:
            return self._exists(self.path(table))
        return self._version(table) is not None

    def read(self, table: str) -> DataFrame:
        """Return a table as it is now. Raises NoTable, which names the job that makes it."""
        if not self.has(table):
            maker = next((job.name for job in JOBS.values() if table in job.tables), table)
            raise NoTable(f"there is no table {table} in {self.root}: run the job {maker} first")
        reader, schema = self.spark.read, SCHEMAS.get(table)
        if schema is not None:
            reader = reader.schema(schema)
        if self._tables is None:
            if schema is not None:
                return reader.parquet(self.path(table))
            if parts := self._parts(table):
                return reader.option("basePath", self.path(table)).parquet(*parts.values()).drop("version")
            return reader.parquet(self._place(table, self._version(table) or 0))
        paths = self._tables.files(table) or []
        if not paths:
            return self.spark.createDataFrame([], schema or self._tables.spark_schema(table))
        if self._tables.has_partitions:
            reader = reader.option("basePath", self.path(table))
        return reader.parquet(*paths)

    def sightings(self, table: str) -> DataFrame:
        """Return `messages` or `events`. It has no rows if only the other table exists."""
        other = MESSAGES if table == EVENTS else EVENTS
        if not self.has(table) and self.has(other):
            return self.spark.createDataFrame([], SCHEMAS[table])
        return self.read(table)

    def since(self, table: str, seen: Mapping[str, int], upto: Mapping[str, int]) -> DataFrame:
        """Return the rows of batches that came after `seen`, up to `upto`, by stream."""
        ranges = [
            f"batch > '{batch_name(stream, seen.get(stream, -1))}' and batch <= '{batch_name(stream, last)}'"
            for stream, last in sorted(upto.items())
            if last > seen.get(stream, -1)
        ]
        rows = self.sightings(table)
        return rows.where(" or ".join(f"({text})" for text in ranges)) if ranges else rows.limit(0)

    # Writing

    def write(self, frame: DataFrame, table: str) -> None:
        """Replace a table once the new one is complete. A job killed earlier leaves the old one."""
        frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        if self._tables is not None:
            place = f"{self.path(table)}/data/{uuid.uuid4().hex}"
            frame.write.parquet(place)
            self._tables.commit(table, _arrow(frame), self._data_files(table, f"{place}/*.parquet"))
            return
        newest = self._version(table)
        frame.write.mode("overwrite").parquet(self._place(table, 0 if newest is None else newest + 1))
        for path in self.files(table, "version=*"):
            found = _VERSION.search(path)
            if found is not None and newest is not None and int(found[1]) < newest + 1 - _KEPT:
                self.delete(path)

    def write_parts(self, frame: DataFrame, table: str, parts: Sequence[str]) -> None:
        """Replace the rows of a table whose column `part` is one of `parts` by those of `frame`."""
        frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        if self._tables is None:
            newest, before = self._version(table), self._parts(table)
            place = self._place(table, 0 if newest is None else newest + 1)
            self.delete(place)  # of a job that was killed
            for part in parts:
                frame.where(F.col(PART) == part).drop(PART).write.parquet(f"{place}/{PART}={part}")
            self.touch(f"{place}/_SUCCESS")
            # Readers that have opened what was current before may finish.
            kept = {*before.values(), *self._parts(table).values()}
            for path in self.files(table, f"version=*/{PART}=*"):
                if path not in kept:
                    self.delete(path)
            return
        if self._tables.has_partitions:
            pattern = f"{self.path(table)}/{PART}=*/*.parquet"
            present = {path for path, _ in self._listed(pattern)}
            frame.write.mode("append").partitionBy(PART).parquet(self.path(table))
            files = [file for file in self._data_files(table, pattern) if file.path not in present]
        else:
            place = f"{self.path(table)}/data/{uuid.uuid4().hex}"
            for part in parts:
                frame.where(F.col(PART) == part).write.parquet(f"{place}/{part}")
            files = self._data_files(table, f"{place}/*/*.parquet")
        self._tables.commit(table, _arrow(frame), files, parts=parts)

    def parts(self, table: str) -> list[str]:
        """Return the parts that a table has."""
        if self._tables is None:
            return list(self._parts(table))
        if not self.has(table):
            return []
        return sorted(row[PART] for row in self.read(table).select(PART).distinct().collect())

    def _parts(self, table: str) -> dict[str, str]:
        """Return the current directory of each part, in Parquet."""
        whole = self._whole(table)
        newest: dict[str, int] = {}
        for path in self.files(table, f"version=*/{PART}=*"):
            found = _PART_PLACE.search(path)
            if found is not None and int(found[1]) in whole:
                newest[found[2]] = max(newest.get(found[2], 0), int(found[1]))
        return {part: f"{self._place(table, version)}/{PART}={part}" for part, version in sorted(newest.items())}

    def _place(self, table: str, version: int) -> str:
        return f"{self.path(table)}/version={version:08d}"

    def _version(self, table: str) -> int | None:
        """Return the newest complete version."""
        return max(self._whole(table), default=None)

    def _whole(self, table: str) -> set[int]:
        found = [_VERSION.search(path) for path in self.files(table, "version=*/_SUCCESS")]
        return {int(match[1]) for match in found if match is not None}

    def append(self, rows: DataFrame, table: str, stream: str, number: int) -> bool:
        """Add a batch of a stream to a table that is partitioned by PARTITIONS.

        Returns False if the table already has it. The column `batch` of the rows must be
        `batch_name` of the stream and the number. If a batch is written again, its files replace
        the earlier ones.
        """
        rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        tables = self._tables
        if tables is not None and tables.last_batch(table, stream) >= number:
            return False
        name = batch_name(stream, number)
        if tables is not None and not tables.has_partitions:
            place = f"{self.path(table)}/data/{name}"
            rows.write.mode("overwrite").parquet(place)
            pattern = f"{place}/*.parquet"
        else:
            writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy(*PARTITIONS)
            writer.parquet(self.path(table))
            pattern = f"{self.path(table)}/date=*/qm_name=*/batch={name}/*.parquet"
        if tables is not None:
            tables.commit(table, _arrow(rows), self._data_files(table, pattern), batch=(stream, number))
        else:
            self._mark(table, stream, number)
        return True

    def _mark(self, table: str, stream: str, number: int) -> None:
        """Record that a batch is complete, in Parquet. The last mark of each stream stays."""
        self.touch(f"{self.path(table)}/_batches/{batch_name(stream, number)}")
        for path in self.files(table, "_batches/*"):
            found = _MARK.search(path)
            if found is not None and found[1] == stream and int(found[2]) < number:
                self.delete(path)

    def batches(self, table: str) -> dict[str, int]:
        """Return the number of the last complete batch of each stream in `messages` or `events`."""
        if self._tables is not None:
            return {stream: self._tables.last_batch(table, stream) for stream in self._tables.streams(table)}
        found = [_MARK.search(path) for path in self.files(table, "_batches/*")]
        return {match[1]: int(match[2]) for match in found if match is not None}

    def _data_files(self, table: str, pattern: str) -> list[DataFile]:
        found = []
        for path, size in self._listed(pattern):
            inner = path.removeprefix(self.path(table))
            partition = {name: unquote(value) for name, value in _PARTITION.findall(inner)}
            found.append(DataFile(path, size, partition))
        return found

    # Files

    def _exists(self, path: str) -> bool:
        place = _hadoop(self.spark).Path(path)
        return bool(_file_system(self.spark, place).exists(place))

    def files(self, table: str, pattern: str = "*") -> list[str]:
        """Return the paths below a table that match a pattern of Hadoop."""
        return [path for path, _ in self._listed(f"{self.path(table)}/{pattern}")]

    def _listed(self, pattern: str) -> list[tuple[str, int]]:
        """Return paths, spelled like the lake's root, and sizes."""
        place = _hadoop(self.spark).Path(pattern)
        found = _file_system(self.spark, place).globStatus(place)
        is_plain = "://" not in self.root and not self.root.startswith("file:")
        paths = [(str(status.getPath().toString()), int(status.getLen())) for status in found or ()]
        return [(path.removeprefix("file:") if is_plain else path, size) for path, size in paths]

    def touch(self, path: str) -> None:
        """Make an empty file, as a mark."""
        place = _hadoop(self.spark).Path(path)
        _file_system(self.spark, place).create(place, True).close()

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with its contents."""
        place = _hadoop(self.spark).Path(path)
        _file_system(self.spark, place).delete(place, True)


def batch_name(stream: str, number: int) -> str:
    # Names are in the order of numbers; that before the first one has no number.
    return f"{stream}-{number:08d}" if number >= 0 else f"{stream}-"


def _arrow(frame: DataFrame) -> Any:  # noqa: ANN401 (a schema of Arrow)
    from pyspark.sql.pandas.types import to_arrow_schema

    # Nullability may change from one version to the next.
    return to_arrow_schema(frame.schema.toNullable(), timezone="UTC")


def _hadoop(spark: SparkSession) -> Any:  # noqa: ANN401 (Java's)
    return spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr] # noqa: SLF001 (there is no other way to files)


def _file_system(spark: SparkSession, path: Any) -> Any:  # noqa: ANN401 (Java's)
    return path.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
