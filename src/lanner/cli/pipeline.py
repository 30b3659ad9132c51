"""`lanner pipeline`: the jobs of the data pipeline, on Spark."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lanner.cli.errors import CommandError, UsageError
from lanner.cli.options import Json
from lanner.cli.output import say, show_table, write_json

if TYPE_CHECKING:
    from lanner.spark.jobs.config import PipelineConfig

app = typer.Typer(help="Jobs on Spark: from queues to tables, and a report.", no_args_is_help=True)

EVERYTHING = "all"
Config = Annotated[
    Path, typer.Option("--config", help="The configuration.", show_default="./pipeline.toml", readable=False)
]
DEFAULT_CONFIG = Path("pipeline.toml")


def _jobs() -> dict[str, Any]:
    if any(importlib.util.find_spec(name) is None for name in ("pyspark", "pyarrow", "numpy")):
        raise CommandError("the data pipeline needs Spark: install it with `pip install 'lanner[spark]'`")
    from lanner.spark.jobs import JOBS

    return JOBS


@app.command("list")
def list_jobs(*, json: Json = False) -> None:
    """List all jobs."""
    jobs = _jobs().values()
    if json:
        for job in jobs:
            found = importlib.util.find_spec(job.module)
            program = None if found is None else found.origin
            write_json({"job": job.name, "text": job.text, "tables": list(job.tables), "program": program})
        return
    rows = [(job.name, ", ".join(job.tables) or "-", job.text) for job in jobs]
    show_table([("JOB", False), ("TABLES", False), ("WHAT IT DOES", False)], rows)


@app.command()
def run(
    jobs: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB...", help="Jobs, in their order; `all`: from ingest to the report.", show_default=False
        ),
    ],
    *,
    config: Config = DEFAULT_CONFIG,
    send: Annotated[bool, typer.Option("--send", help="replay: send the messages instead of listing them.")] = False,
    json: Json = False,
) -> None:
    """Run jobs. Their messages go to standard error, their results to standard output."""
    names = _names(jobs)
    settings = _load(config)
    if send:
        if "replay" not in names:
            raise UsageError("--send is for the job replay")
        settings = settings.model_copy(update={"replay": settings.replay.model_copy(update={"send": True})})
    results = _run(names, settings)
    if json:
        write_json(results)
        return
    for name, result in results.items():
        say(f"{name}: {', '.join(f'{key} {value}' for key, value in result.items())}")


@app.command()
def report(
    *,
    config: Config = DEFAULT_CONFIG,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write it.")] = None,
    json: Json = False,
) -> None:
    """Make the report from the existing tables, and print its path."""
    settings = _load(config)
    if output is not None:
        place = settings.report.model_copy(update={"path": str(output.absolute())})
        settings = settings.model_copy(update={"report": place})
    results = _run(["report"], settings)
    if json:
        write_json(results["report"])
    else:
        say(str(results["report"]["report"]))


def _names(jobs: Sequence[str]) -> list[str]:
    known = _jobs()
    from lanner.spark.jobs import ALL

    names = [name for job in jobs for name in (ALL if job == EVERYTHING else (job,))]
    for name in names:
        if name not in known:
            raise UsageError(f"there is no job {name}; there are {', '.join(known)}, and `all`")
    return names


def _load(config: Path) -> PipelineConfig:
    _jobs()
    from lanner.spark.jobs.config import load_config

    return load_config(config)


def _run(names: Sequence[str], settings: PipelineConfig) -> dict[str, dict[str, Any]]:
    jobs = _jobs()
    from lanner.spark.jobs.progress import Progress
    from lanner.spark.jobs.session import Context, run_job, start_spark

    progress = Progress("pipeline")
    progress.show("starting Spark")
    spark = start_spark(settings, " ".join(names))
    results = {}
    try:
        for name in names:
            told = Progress(name)
            context = Context(spark, settings, told)
            results[name] = run_job(name, jobs[name].run, context)
            told.finish(results[name])
    finally:
        spark.stop()
    return results
