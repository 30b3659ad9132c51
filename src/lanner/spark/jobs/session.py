"""The environment of a running job: its Spark session, its tables, and its output."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lanner.model.errors import LannerError
from lanner.spark.jobs.config import PipelineConfig, load_config
from lanner.spark.jobs.lake import Lake
from lanner.spark.jobs.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = dict[str, Any]
# Defaults of jobs. The configuration, or spark-submit, takes precedence.
DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# A local session does not need 200 shuffle partitions.
_LOCAL_PARTITIONS: Final = "4"
# Set by spark-submit for the program it starts.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"


@dataclass(frozen=True)
class Context:
    """The environment that a job gets."""

    spark: SparkSession
    config: PipelineConfig
    progress: Progress

    @property
    def lake(self) -> Lake:
        lake = self.config.lake
        return Lake(self.spark, self.config.resolve(lake.path), lake.format, lake.options)

    def make(self, table: str, frame: Any) -> int:  # noqa: ANN401 (a DataFrame; Spark is imported late)
        """Replace a table, and return its number of rows."""
        started = time.monotonic()
        self.lake.write(frame, table)
        rows: int = self.lake.read(table).count()
        self.progress.say(f"{table}: {rows} rows, {time.monotonic() - started:.1f} s")
        return rows


def start_spark(config: PipelineConfig, name: str) -> SparkSession:
    """Return the session of a job: from the configuration, or the one of spark-submit."""
    is_submitted = _SUBMITTED in os.environ
    master = config.spark.master
    if not is_submitted:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"lanner {name}")
    settings: dict[str, str] = dict(DEFAULTS)
    if not is_submitted:
        builder = builder.master(master)
        if master.startswith("local"):
            settings["spark.sql.shuffle.partitions"] = _LOCAL_PARTITIONS
            settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings |= {key: _text(value) for key, value in config.spark.settings.items()}
        for key, value in settings.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
    else:
        session = builder.getOrCreate()
        # These settings can still be changed in a running session.
        for key in ("spark.sql.session.timeZone", "spark.sql.sources.partitionColumnTypeInference.enabled"):
            session.conf.set(key, settings[key])
    session.sparkContext.setLogLevel("ERROR")
    return session


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_OURS: Final = re.compile(r"^(?:lanner[\w.]+: )(.*)$", re.MULTILINE)


class JobFailed(LannerError):
    """Spark failed. The message is the innermost known cause."""


def told(error: Exception) -> str:
    """Return the relevant part of an error that Spark wraps in pages of Java."""
    text = str(error)
    ours = _OURS.findall(text)
    return ours[-1] if ours else text.strip().partition("\n")[0]


def run_job(name: str, run: Callable[[Context], Result], context: Context) -> Result:
    """Run a job. Raises JobFailed if Spark fails."""
    from pyspark.errors import PySparkException

    try:
        return run(context)
    except PySparkException as error:
        raise JobFailed(f"{name}: {told(error)}") from error


def submit(name: str, run: Callable[[Context], Result]) -> None:
    """Run a job as the program of its module, for spark-submit, with `--config pipeline.toml`."""

    def program(
        config: Annotated[Path, typer.Option("--config", help="pipeline.toml")] = Path("pipeline.toml"),
    ) -> None:
        progress = Progress(name)
        try:
            settings = load_config(config)
            spark = start_spark(settings, name)
            try:
                result = run_job(name, run, Context(spark, settings, progress))
            finally:
                spark.stop()
        except LannerError as error:
            progress.say(str(error))
            raise typer.Exit(1) from error
        progress.finish(result)

    typer.run(program)
