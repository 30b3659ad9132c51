"""The tables of the lake in each format.

They are replaced atomically and get each batch once, wherever a job is killed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from lanner.spark.jobs import compact
from lanner.spark.jobs.config import ConfigError
from lanner.spark.jobs.formats import FORMATS, IcebergTables, TableFormat
from lanner.spark.jobs.ingest import write_batch
from lanner.spark.jobs.lake import Lake, NoTable
from lanner.spark.jobs.tables import EVENTS, SCHEMAS
from tests.spark.jobs.worlds import context

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Killed(BaseException):
    """An exception that ends a job on the spot: nothing after it is done."""


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Lake:
    (tmp_path / "lake").mkdir()
    return Lake(spark.newSession(), str(tmp_path / "lake"), request.param)


def events(lake: Lake, first: int, count: int) -> DataFrame:
    """Rows of `events`, some of them of another day and queue manager."""
    rows = lake.spark.createDataFrame([], SCHEMAS[EVENTS]).drop("date", "batch", "qm_name", "seq", "event_time")
    numbers = lake.spark.range(first, first + count).select(
        F.col("id").alias("seq"),
        F.when(F.col("id") % 3 == 0, "BETA").otherwise("ALPHA").alias("qm_name"),
        F.timestamp_seconds(F.lit(1_772_440_000.25) + 86_400 * (F.col("id") % 2)).alias("event_time"),
    )
    return numbers.unionByName(rows, allowMissingColumns=True)


def numbers(lake: Lake) -> list[int]:
    return sorted(row["seq"] for row in lake.read(EVENTS).collect())


def test_a_table_is_replaced_when_the_new_one_is_whole(lake: Lake) -> None:
    with pytest.raises(NoTable, match="run the job latency first"):
        lake.read("clock_skew")
    for rows in (5, 3, 0, 3):
        lake.write(lake.spark.range(rows), "acks")
        assert lake.read("acks").count() == rows
    with pytest.raises(PySparkException):
        lake.write(lake.spark.range(9).selectExpr("if(id = 8, raise_error('killed'), id) as id"), "acks")
    assert lake.read("acks").count() == 3
    # A column more, as after an upgrade.
    lake.write(lake.spark.range(7).withColumn("more", F.lit("x")), "acks")
    assert lake.read("acks").where("more = 'x'").count() == 7


class DyingTables:
    """Tables of another format, whose commit ends a job."""

    def __init__(self, tables: TableFormat, lake: DyingLake) -> None:
        self._tables = tables
        self._lake = lake

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever the format has)
        return getattr(self._tables, name)

    def commit(self, *arguments: object, **more: object) -> None:
        self._lake.dying("commit", partial(cast(Callable[..., None], self._tables.commit), *arguments, **more))


@dataclass(frozen=True)
class DyingLake(Lake):
    """A lake in which a job is killed before or after one step."""

    dies_at: str = ""
    dies_before: bool = True

    @classmethod
    def of(cls, lake: Lake, dies_at: str, *, dies_before: bool) -> DyingLake:
        return cls(lake.spark, lake.root, lake.format, lake.options, dies_at, dies_before)

    def dying(self, step: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401 (what the step returns)
        if step == self.dies_at and self.dies_before:
            raise Killed
        result = work()
        if step == self.dies_at:
            raise Killed
        return result

    @cached_property
    def _tables(self) -> Any:  # noqa: ANN401 (DyingTables stands for any format)
        tables = Lake._tables.func(self)  # type: ignore[attr-defined]
        return None if tables is None else DyingTables(tables, self)

    def files(self, table: str, pattern: str = "*") -> list[str]:
        found: list[str] = self.dying("files", partial(Lake.files, self, table, pattern))
        return found

    def touch(self, path: str) -> None:
        self.dying("touch", partial(Lake.touch, self, path))

    def delete(self, path: str) -> None:
        self.dying("delete", partial(Lake.delete, self, path))

    def append(self, rows: DataFrame, table: str, stream: str, number: int) -> bool:
        return bool(self.dying("append", partial(Lake.append, self, rows, table, stream, number)))


@pytest.mark.parametrize("before", [True, False])
def test_a_job_that_is_killed_leaves_the_old_table_or_the_new(lake: Lake, before: bool) -> None:
    lake.write(lake.spark.range(5), "acks")
    # The step that puts the new one in its place; of Parquet all that comes after it is the end of
    # old versions.
    step = ("files" if before else "delete") if lake.format == "parquet" else "commit"
    dying = DyingLake.of(lake, step, dies_before=before)

    def replace_twice() -> None:
        for rows in (6, 7):
            dying.write(dying.spark.range(rows), "acks")

    with pytest.raises(Killed):
        replace_twice()
    found = lake.read("acks").count()
    assert found == (5 if before else 7 if lake.format == "parquet" else 6)
    lake.write(lake.spark.range(8), "acks")
    assert lake.read("acks").count() == 8


def parts_of(lake: Lake, **rows: int) -> DataFrame:
    """Rows of parts: so many of each."""
    frames = [lake.spark.range(count).withColumn("part", F.lit(part)) for part, count in rows.items()]
    return reduce(lambda one, other: one.unionByName(other), frames)


def counted(lake: Lake) -> dict[str, int]:
    return {row["part"]: row["count"] for row in lake.read("lifecycle").groupBy("part").count().collect()}


def test_parts_of_a_table_are_replaced_at_once(lake: Lake) -> None:
    lake.write_parts(parts_of(lake, one=5, two=6), "lifecycle", ["one", "two"])
    assert counted(lake) == {"one": 5, "two": 6}
    # One is replaced, one is new, and one stays; a part may be empty.
    for two, three in ((7, 8), (0, 9)):
        lake.write_parts(parts_of(lake, two=two, three=three), "lifecycle", ["two", "three"])
        assert counted(lake) == {part: rows for part, rows in (("one", 5), ("two", two), ("three", three)) if rows}
    step = "touch" if lake.format == "parquet" else "commit"
    for before, expected in ((True, {"one": 5, "three": 9}), (False, {"one": 1, "two": 2, "three": 9})):
        dying = DyingLake.of(lake, step, dies_before=before)
        with pytest.raises(Killed):
            dying.write_parts(parts_of(dying, one=1, two=2), "lifecycle", ["one", "two"])
        assert counted(lake) == expected
    # What was left lying about is in nobody's way.
    lake.write_parts(parts_of(lake, two=3), "lifecycle", ["two"])
    assert counted(lake) == {"one": 1, "two": 3, "three": 9}


def test_of_a_version_that_is_not_whole_nothing_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """Spark was killed while it wrote: there are files, and no _SUCCESS."""
    lake = Lake(spark.newSession(), str(tmp_path))
    for rows in (5, 6):
        lake.write(lake.spark.range(rows), "acks")
    newest = max((tmp_path / "acks").glob("version=*"))
    (newest / "_SUCCESS").unlink()
    assert lake.read("acks").count() == 5
    lake.write(lake.spark.range(9), "acks")
    assert lake.read("acks").count() == 9


def test_a_batch_is_in_the_table_once(lake: Lake) -> None:
    for stream, number, first in (("a", 0, 0), ("b", 0, 10), ("a", 1, 20), ("a", 1, 20), ("b", 0, 10), ("a", 0, 0)):
        write_batch(events(lake, first, 10), lake, EVENTS, stream, number)
    assert numbers(lake) == list(range(30))
    [row] = lake.read(EVENTS).where("seq = 21").collect()
    assert (row["qm_name"], row["batch"], row["date"]) == ("BETA", "a-00000001", dt.date(2026, 3, 3))
    assert row["event_time"].timestamp() == 1_772_440_000.25 + 86_400


@pytest.mark.parametrize("before", [True, False])
def test_a_batch_that_was_killed_is_in_the_table_once(lake: Lake, before: bool) -> None:
    write_batch(events(lake, 0, 10), lake, EVENTS, "a", 0)
    dying = DyingLake.of(lake, "append" if lake.format == "parquet" else "commit", dies_before=before)
    with pytest.raises(Killed):
        write_batch(events(lake, 10, 10), dying, EVENTS, "a", 1)
    assert numbers(lake) in ([*range(10)], [*range(20)])
    # Its checkpoint does not know it: Spark writes it again.
    write_batch(events(lake, 10, 10), lake, EVENTS, "a", 1)
    assert numbers(lake) == [*range(20)]


def test_others_read_the_tables(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Otherwise Polars asks for a package of its own, with a warning.
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    for name in ("delta", "iceberg"):
        (tmp_path / name).mkdir()
        lake = Lake(spark.newSession(), str(tmp_path / name), name)
        for number in range(2):
            write_batch(events(lake, 10 * number, 10), lake, EVENTS, "a", number)
    delta = DeltaTable(str(tmp_path / "delta" / EVENTS)).to_pyarrow_table()
    assert duckdb.from_arrow(delta).aggregate("count(*), max(seq)").fetchall() == [(20, 19)]
    assert pl.read_delta(str(tmp_path / "delta" / EVENTS)).height == 20
    table = IcebergTables(str(tmp_path / "iceberg"), {})._open(EVENTS)
    assert sorted(pl.scan_iceberg(table).select("seq").collect()["seq"]) == [*range(20)]
    iceberg = table.scan().to_arrow()
    assert duckdb.from_arrow(iceberg).aggregate("count(*), max(seq)").fetchall() == [(20, 19)]


def test_compact_is_for_parquet(spark: SparkSession, tmp_path: Path) -> None:
    job = context(spark, tmp_path, lake={"path": "lake", "format": "delta"})
    with pytest.raises(ConfigError, match="optimize"):
        compact.run(job)
