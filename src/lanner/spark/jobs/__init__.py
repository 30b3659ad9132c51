"""The jobs of the data pipeline: PySpark programs over queues and the tables made from them.

Each job is a module with pure functions from DataFrames to DataFrames, `run` for `lanner pipeline
run`, and `main` for spark-submit. `JOBS` lists them in the order of their dependencies.

    config      reads pipeline.toml
    session     starts Spark and runs a job
    progress    the output of a running job
    lake        the place of the tables, and how jobs read and write them
    formats     tables of Delta Lake and Iceberg
    tables      the contents of `messages` and `events`
    facts       facts about each message from queues and events
    bodies      the program or formatter that wrote a body
    ingest      queues, journals, dead letters and packet files into tables
    lifecycle   one row per message: sent, each hop, arrived, received, dead
    state       the state of lifecycle, which reads only new batches
    acks        acknowledgments: positive, negative, missing
    latency     times between two steps of a message, corrected for wrong clocks
    throughput  messages and bytes per period, and backlogs
    poison      messages whose receives are aborted repeatedly
    routes      traffic between machines
    audit       senders, and kinds of bodies
    report      gathers the data of the report page
    checks      whether the tables are consistent with each other and with events
    replay      sends dead letters again
    migrate     the content of queues to Parquet, a database or Kafka
    compact     merges small files of the tables
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lanner.spark.jobs.session import Context, Result


@dataclass(frozen=True, slots=True)
class Job:
    """A job: its module, its purpose, and the tables it makes."""

    name: str
    text: str
    tables: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        return f"{__name__}.{self.name}"

    @property
    def run(self) -> Callable[[Context], Result]:
        """The function that runs the job. It imports Spark."""
        found: Callable[[Context], Result] = importlib.import_module(self.module).run
        return found


# In the order of their dependencies.
JOBS: Final = {
    job.name: job
    for job in (
        Job("ingest", "queues, journals, dead letters and files of packets into tables", ("messages", "events")),
        Job(
            "lifecycle",
            "one row for each message: sent, each hop, arrived, received, dead",
            ("lifecycle", "facts", "names", "consumed"),
        ),
        Job("acks", "acknowledgments: positive, negative, missing, and why", ("acks", "ack_summary")),
        Job(
            "latency",
            "percentiles by route and queue, and how wrong the clocks are",
            ("latency", "latency_by_queue", "clock_skew"),
        ),
        Job("throughput", "what came and went, depth of queues, when they will be empty", ("throughput", "backlog")),
        Job("poison", "messages that make receivers fail", ("poison",)),
        Job("routes", "where the traffic flows", ("routes",)),
        Job("audit", "who sends what to whom, signed or not; kinds of bodies", ("audit", "census", "broken")),
        Job("report", "a page with the plots of all this"),
        Job("checks", "whether the tables agree with each other and with the events; fails if not", ("checks",)),
        Job(
            "replay",
            "dead letters back to their queues; only reports what it would send, unless --send is given",
            ("replays",),
        ),
        Job("migrate", "the content of queues to Parquet, a database or Kafka"),
        Job("compact", "few large files instead of many small ones; old days deleted", ("messages", "events")),
    )
}
# The jobs of `lanner pipeline run all`.
ALL: Final = ("ingest", "lifecycle", "acks", "latency", "throughput", "poison", "routes", "audit", "report", "checks")
