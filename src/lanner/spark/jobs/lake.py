"""The lake: the place of the tables, and how jobs read and write them.

`messages`, `events` and `replays` grow: `append` adds a batch of a stream once, however often it is
written. All other tables are replaced: `write` makes the new table beside the old one, and one step
switches to it. Readers see the old or the new table as a whole, even if the job is killed. In the
format `parquet` that step is the file `_SUCCESS`, which Spark writes last, in a directory
`version=N` of the table: the highest N with such a file is current. In `delta` and `iceberg` it is
a commit (`formats`).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from lanner.model.errors import LannerError
from lanner.spark.jobs import JOBS
from lanner.spark.jobs.formats import DataFile, DeltaTables, IcebergTables, TableFormat
from lanner.spark.jobs.tables import EVENTS, MESSAGES, PARTITIONS, SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VERSION: Final = re.compile(r"/version=(\d+)(?:/_SUCCESS)?$")
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
            version = None if schema is not None else self._version(table)
            return reader.parquet(self.path(table) if version is None else self._place(table, version))
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

    def _place(self, table: str, version: int) -> str:
        return f"{self.path(table)}/version={version:08d}"

    def _version(self, table: str) -> int | None:
        """Return the newest complete version."""
        found = [_VERSION.search(path) for path in self.files(table, "version=*/_SUCCESS")]
        return max((int(match[1]) for match in found if match is not None), default=None)

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
        return True

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
    return f"{stream}-{number:08d}"


def _arrow(frame: DataFrame) -> Any:  # noqa: ANN401 (a schema of Arrow)
    from pyspark.sql.pandas.types import to_arrow_schema

    # Nullability may change from one version to the next.
    return to_arrow_schema(frame.schema.toNullable(), timezone="UTC")


def _hadoop(spark: SparkSession) -> Any:  # noqa: ANN401 (Java's)
    return spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr] # noqa: SLF001 (there is no other way to files)


def _file_system(spark: SparkSession, path: Any) -> Any:  # noqa: ANN401 (Java's)
    return path.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
