"""Tables of Delta Lake and Apache Iceberg, for `lake.format`.

Spark writes Parquet data files below the directory of a table. Then one commit adds them to the
table, or replaces all other files with them: an entry in Delta's transaction log, written by
`deltalake`, or an Iceberg snapshot in a catalog, written by `pyiceberg`. Neither needs a jar.

A commit of a stream carries the stream's name and the batch number, as an application transaction
of Delta's protocol, or as a property of the Iceberg table that changes in the same commit. A batch
that is already there is skipped, so the table has each batch once, however often it is written and
wherever the job was killed. Files without a commit are not part of the table.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote

from lanner.model.errors import LannerError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# A batch of a stream: the stream's name, and the number of the batch.
Batch = tuple[str, int]
FORMATS: Final = ("parquet", "delta", "iceberg")
_CATALOG, _NAMESPACE = "lanner", "lake"
_PROPERTY: Final = "lanner.batch."
_BATCH: Final = re.compile(r"/batch=(.*)-\d{8}/")
# The column by which tables are replaced in parts (`lake`).
PART: Final = "part"


class FormatError(LannerError):
    """The packages of a format are not installed, or its catalog cannot be used."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that Spark has written. `partition`: values that are in its path, not in the file."""

    path: str
    size: int
    partition: Mapping[str, str]


class TableFormat(Protocol):
    """All tables of a lake."""

    # Whether data files are partitioned by directories.
    has_partitions: bool

    def files(self, table: str) -> list[str] | None:
        """Return the paths of the files of a table; None if there is no such table."""

    def last_batch(self, table: str, stream: str) -> int:
        """Return the number of the last batch of a stream that is in the table, -1 for none."""

    def streams(self, table: str) -> set[str]:
        """Return the names of the streams that have batches in a table."""

    def spark_schema(self, table: str) -> StructType:
        """Return the columns of a table."""

    def commit(
        self,
        table: str,
        schema: pa.Schema,
        files: Sequence[DataFile],
        *,
        batch: Batch | None = None,
        parts: Sequence[str] = (),
    ) -> None:
        """Add a batch of a stream to a table, or replace the rows of `parts`, or everything."""


class DeltaTables:
    """Tables of Delta Lake below a directory or URI."""

    has_partitions = True

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        try:
            import deltalake
        except ImportError:
            raise FormatError('lake.format = "delta" needs packages: pip install "lanner[delta]"') from None
        self._delta: Any = deltalake
        self._root = root
        self._options = dict(options) or None

    def _path(self, table: str) -> str:
        # Only Hadoop uses the scheme s3a.
        return f"{self._root}/{table}".replace("s3a://", "s3://", 1)

    def _open(self, table: str) -> Any:  # noqa: ANN401 (a DeltaTable)
        try:
            return self._delta.DeltaTable(self._path(table), storage_options=self._options)
        except self._delta.exceptions.TableNotFoundError:
            return None

    def files(self, table: str) -> list[str] | None:
        found = self._open(table)
        # The paths as Spark has written them, relative to the table.
        return None if found is None else [f"{self._root}/{table}/{path}" for path in _paths(found)]

    def spark_schema(self, table: str) -> StructType:
        import pyarrow as pa

        return _spark_schema(pa.schema(self._open(table).schema().to_arrow()))

    def last_batch(self, table: str, stream: str) -> int:
        found = self._open(table)
        number = None if found is None else found.transaction_version(stream)
        return -1 if number is None else int(number)

    def streams(self, table: str) -> set[str]:
        names = (_BATCH.search(unquote(path)) for path in self.files(table) or ())
        return {match[1] for match in names if match is not None}

    def commit(
        self,
        table: str,
        schema: pa.Schema,
        files: Sequence[DataFile],
        *,
        batch: Batch | None = None,
        parts: Sequence[str] = (),
    ) -> None:
        from deltalake.transaction import (
            AddAction,
            CommitProperties,
            Transaction,
            create_table_with_add_actions,
        )

        place, now = f"{self._root}/{table}/", int(time.time() * 1000)
        adds = [
            AddAction(file.path.removeprefix(place), file.size, dict(file.partition), now, data_change=True, stats="{}")
            for file in files
        ]
        partitions = [PART] if parts else list(files[0].partition) if files else []
        properties = CommitProperties(app_transactions=[Transaction(*batch)] if batch else None)
        found, delta_schema = self._open(table), self._delta.Schema.from_arrow(schema)
        if found is None:
            create_table_with_add_actions(
                self._path(table),
                delta_schema,
                adds,
                partition_by=partitions or None,
                storage_options=self._options,
                commit_properties=properties,
            )
        elif batch is not None:
            found.create_write_transaction(adds, "append", delta_schema, partitions, commit_properties=properties)
        else:
            found.create_write_transaction(
                adds,
                "overwrite",
                delta_schema,
                partitions,
                partition_filters=[(PART, "in", list(parts))] if parts else None,
                commit_properties=properties,
            )


def _spark_schema(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _paths(table: Any) -> list[str]:  # noqa: ANN401 (a DeltaTable)
    import pyarrow as pa

    actions = pa.table(table.get_add_actions())
    return [str(path) for path in actions.column("path").to_pylist()]


class IcebergTables:
    """Tables of Apache Iceberg in a catalog.

    Without properties of a catalog it is an SQLite file beside the tables.
    """

    has_partitions = False

    def __init__(self, root: str, properties: Mapping[str, str]) -> None:
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError:
            raise FormatError('lake.format = "iceberg" needs packages: pip install "lanner[iceberg]"') from None
        if not properties:
            if "://" in root:
                raise FormatError(
                    f'lake.path {root}: format = "iceberg" needs the properties of a catalog in [lake.options]'
                )
            properties = {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}"}
        self._root = root
        self._catalog: Any = load_catalog(_CATALOG, **dict(properties))

    def _open(self, table: str) -> Any:  # noqa: ANN401 (a Table)
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalog.load_table((_NAMESPACE, table))
        except NoSuchTableError:
            return None

    def files(self, table: str) -> list[str] | None:
        found = self._open(table)
        return None if found is None else [task.file.file_path for task in found.scan().plan_files()]

    def spark_schema(self, table: str) -> StructType:
        return _spark_schema(self._open(table).schema().as_arrow())

    def last_batch(self, table: str, stream: str) -> int:
        found = self._open(table)
        return -1 if found is None else int(found.properties.get(_PROPERTY + stream, -1))

    def streams(self, table: str) -> set[str]:
        found = self._open(table)
        names = () if found is None else found.properties
        return {name.removeprefix(_PROPERTY) for name in names if name.startswith(_PROPERTY)}

    def commit(
        self,
        table: str,
        schema: pa.Schema,
        files: Sequence[DataFile],
        *,
        batch: Batch | None = None,
        parts: Sequence[str] = (),
    ) -> None:
        from pyiceberg.expressions import AlwaysTrue

        found = self._open(table)
        if found is None:
            self._catalog.create_namespace_if_not_exists(_NAMESPACE)
            found = self._catalog.create_table((_NAMESPACE, table), schema, location=self._location(table))
        paths = [self._uri(file.path) for file in files if file.size]
        with found.transaction() as change:
            if batch is None:
                if found.schema().as_arrow() != schema:
                    with change.update_schema() as update:
                        update.union_by_name(schema)
                if found.current_snapshot() is not None:
                    found_in = ", ".join(f"'{part}'" for part in parts)
                    change.delete(f"{PART} in ({found_in})" if parts else AlwaysTrue())
            else:
                change.set_properties({_PROPERTY + batch[0]: str(batch[1])})
            if paths:
                change.add_files(paths, check_duplicate_files=False)

    def _location(self, table: str) -> str:
        return self._uri(f"{self._root}/{table}")

    def _uri(self, path: str) -> str:
        return path if "://" in path else f"file://{path}"
