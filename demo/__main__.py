r"""Run the demo: two queue managers exchange messages, then every pipeline job runs.

    python -m demo DIRECTORY [--messages 10000]

Both queue managers run in this process, at two loopback addresses, and use the real protocol
between them. The command compares the numbers in the report with what the queue managers did,
prints the path of the report, and ends.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from demo.against_truth import CHECKED, check_report
from demo.business import AHEAD, SHOP, WAREHOUSE, Business, free_addresses
from lanner.client import QueueManager
from lanner.client.runtimes import runtime_of
from lanner.spark.flight import FlightListener, FlightSettings
from lanner.spark.jobs import ALL, JOBS
from lanner.spark.jobs.config import load_config
from lanner.spark.jobs.progress import Progress
from lanner.spark.jobs.session import Context, run_job, start_spark
from lanner.spark.source.connections import PASSWORD_VARIABLE

USER: Final = "pipeline"
_SETTINGS: Final = """
[lake]
path = "lake"

[spark]
master = "local[*]"

# The tables are small, so most of the time would go into compiling queries. With Unix sockets Spark
# prints an error for each idle worker that it ends.
[spark.settings]
"spark.python.unix.domain.socket.enabled" = false
"spark.sql.shuffle.partitions" = 2
"spark.sql.codegen.wholeStage" = false
"spark.sql.codegen.factoryMode" = "NO_CODEGEN"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=160m"

[source]
managers = [{managers}]
user = "{user}"

[ingest]
queues = ["*", "*;*", "system$;*"]

[throughput]
bucket_seconds = 1

[report]
path = "report.html"
title = "Orders between SHOP and WAREHOUSE"
"""


def main(
    directory: Annotated[
        Path, typer.Argument(help="A new directory for the queue managers, the tables and the report.")
    ],
    messages: Annotated[int, typer.Option(min=100, help="About how many messages.")] = 10_000,
) -> None:
    progress = Progress("demo")
    directory.mkdir(parents=True)
    addresses = free_addresses()
    os.environ[PASSWORD_VARIABLE] = secrets.token_urlsafe()
    with ExitStack() as stack:
        managers = []
        for name, address in addresses.items():
            manager = stack.enter_context(QueueManager(directory / name.lower(), name, bind=address, events=True))
            managers.append(manager)
        shop, warehouse = managers
        runtime_of(warehouse).engine.clocks.wall = lambda: time.time() + AHEAD
        progress.say(f"{SHOP} at {addresses[SHOP]} and {WAREHOUSE} at {addresses[WAREHOUSE]} exchange messages")
        business = Business(shop, warehouse, addresses, messages)
        business.run(progress.show)
        progress.say(f"{business.sent} messages were sent, and their acknowledgments came back")
        services = [stack.enter_context(_Flight(manager)) for manager in managers]
        report, tables = _look(directory, services)
        for told in check_report(Path(report), business, tables):
            progress.say(f"checked: {told}")
    sys.stdout.write(f"{report}\n")


class _Flight:
    """The Flight service of a queue manager, and the user as whom the jobs log on."""

    def __init__(self, manager: QueueManager) -> None:
        runtime_of(manager).users.add(USER, os.environ[PASSWORD_VARIABLE], administrator=True)
        self._listener = FlightListener(runtime_of(manager), FlightSettings(port=0))

    def __enter__(self) -> str:
        self._listener.open()
        return self._listener.address

    def __exit__(self, *_: object) -> None:
        self._listener.close()


def _look(directory: Path, services: list[str]) -> tuple[str, dict[str, list[dict[str, Any]]]]:
    """Run all jobs; return the path of the report, and the tables to check."""
    path = directory / "pipeline.toml"
    managers = ", ".join(f'"{address}"' for address in services)
    path.write_text(_SETTINGS.format(managers=managers, user=USER).lstrip(), encoding="utf-8")
    config = load_config(path)
    spark = start_spark(config, "demo")
    try:
        for name in ALL:
            told = Progress(name)
            told.finish(run_job(name, JOBS[name].run, Context(spark, config, told)))
        lake = Context(spark, config, told).lake
        tables = {name: [row.asDict() for row in lake.read(name).collect()] for name in CHECKED}
    finally:
        spark.stop()
    return config.resolve(config.report.path), tables


if __name__ == "__main__":
    typer.run(main)
