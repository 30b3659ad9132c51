"""A generated world in tables, and what its truth says, for the tests of the jobs."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo.generator import World, generate
from lanner.spark.jobs.config import PipelineConfig
from lanner.spark.jobs.progress import Progress
from lanner.spark.jobs.session import Context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = 1200
# Rows are few here: what takes time is the compiler, and files.
SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}


def context(spark: SparkSession, base: Path, **sections: object) -> Context:
    """Return the context of a job, with a lake below `base`."""
    config = PipelineConfig.of({"lake": {"path": "lake"}, **sections}, base)
    session = spark.newSession()
    for name, value in SMALL.items():
        session.conf.set(name, value)
    return Context(session, config, Progress("test", io.StringIO()))


@dataclass
class Ingested:
    """A world whose files of packets are rows of `messages`."""

    world: World
    truth: dict[str, Any]
    context: Context
    rows: int

    @property
    def messages(self) -> dict[str, dict[str, Any]]:
        return {message["msg_id"]: message for message in self.truth["messages"]}


def ingested(spark: SparkSession, base: Path) -> Ingested:
    from lanner.spark.jobs import ingest

    world = generate(seed=11, orders=ORDERS)
    world.write_files(base / "packets")
    made = context(spark, base, ingest={"packet_files": "packets"})
    return Ingested(world, world.truth(), made, ingest.run(made)["messages"])
