"""lifecycle reads each batch once: many small runs give what one run gives."""

from __future__ import annotations

import dataclasses
import shutil
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from demo.generator import generate
from lanner.spark.jobs import ingest, lifecycle, state
from lanner.spark.jobs.formats import FORMATS
from lanner.spark.jobs.lake import Lake
from lanner.spark.jobs.session import Context
from lanner.spark.jobs.tables import MESSAGES
from tests.spark.jobs.worlds import context

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS = 60
RUNS = 2


class Killed(BaseException):
    """Ends a job on the spot."""


@dataclasses.dataclass(frozen=True)
class DyingLake(Lake):
    """A lake in which a job is killed before the write of one table."""

    dies_before: str = ""

    def write_parts(self, frame: DataFrame, table: str, parts: Any) -> None:  # noqa: ANN401 (as the lake has them)
        if table == self.dies_before:
            raise Killed
        super().write_parts(frame, table, parts)

    def write(self, frame: DataFrame, table: str) -> None:
        if table == self.dies_before:
            raise Killed
        super().write(frame, table)


class DyingContext(Context):
    """The context of a job that is killed."""

    dies_before = ""

    @cached_property
    def lake(self) -> Lake:
        lake = super().lake
        return DyingLake(lake.spark, lake.root, lake.format, lake.options, self.dies_before)


def killed(job: Context, table: str) -> None:
    """Run lifecycle until it is about to write a table."""
    dying = type("Dying", (DyingContext,), {"dies_before": table})(job.spark, job.config, job.progress)
    with pytest.raises(Killed):
        lifecycle.run(dying)


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files of packets of a small business."""
    place = tmp_path_factory.mktemp("packets")
    generate(seed=5, orders=ORDERS).write_files(place)
    return sorted(place.glob("*.packets"))


@pytest.fixture(scope="module")
def at_once(spark: SparkSession, packets: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The rows of one run over everything."""
    job = context(spark, tmp_path_factory.mktemp("once"), ingest={"packet_files": str(packets[0].parent)})
    ingest.run(job)
    lifecycle.run(job)
    return rows(job)


def rows(job: Context) -> dict[str, Any]:
    found = [row.asDict(recursive=True) for row in job.lake.read("lifecycle").collect()]
    made = {row["msg_id"]: {name: value for name, value in row.items() if name != "part"} for row in found}
    assert len(made) == len(found), "a message is there twice"
    return made


@pytest.mark.parametrize("form", FORMATS)
def test_many_runs_give_what_one_gives(
    spark: SparkSession,
    packets: list[Path],
    at_once: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
) -> None:
    """Also those that are killed; and no batch is read a second time."""
    # Parts are small here, so that there are several.
    monkeypatch.setattr(state, "_PART_ROWS", 15)
    lake = {"path": "lake", "format": form}
    job = context(spark, tmp_path, lake=lake, ingest={"packet_files": "packets"})
    for place in ("lake", "packets"):
        (tmp_path / place).mkdir()
    for number in range(RUNS):
        # What belongs to one message comes in different runs.
        for file in packets[number::RUNS]:
            shutil.copy(file, tmp_path / "packets")
        ingest.run(job)
        if number == RUNS - 1 and form == "parquet":
            for table in ("lifecycle", state.FACTS, state.NAMES, state.CONSUMED):
                killed(job, table)
        lifecycle.run(job)
        if form == "parquet":
            for directory in job.lake.files(MESSAGES, "date=*/qm_name=*/batch=*"):
                shutil.rmtree(directory)
    assert rows(job) == at_once
    parts = job.lake.parts("lifecycle")
    assert parts == job.lake.parts(state.FACTS)
    assert len(parts) > 2
    if form == "parquet":
        # A run without news writes nothing.
        before = job.lake.files("lifecycle", "version=*")
        lifecycle.run(job)
        assert job.lake.files("lifecycle", "version=*") == before
        # The table can be made again without the messages.
        job.lake.delete(job.lake.path("lifecycle"))
        lifecycle.run(job)
        assert rows(job) == at_once
