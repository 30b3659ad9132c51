"""checks: whether the tables are consistent with each other and with the event logs.

The job fails if a check finds contradictions. The checks:

messages
    `lifecycle` has each message once, and all messages that have events
arrivals, receives
    `throughput` counts as many as there are events
senders
    a message that came from a queue manager whose log was read has an event there, too
lost
    a message that left for a queue manager whose log was read has arrived there, or was refused
clocks
    no message was received before it arrived by the same clock, and no difference of two clocks
    contradicts itself

The table `checks` has a row for each check: `wrong` is the count of rows that contradict it, and
`example` is one of them. The last `GRACE_SECONDS` of a log are left out, because the other log may
have been read a moment earlier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from lanner.spark.jobs.facts import REAL_KINDS, of_programs
from lanner.spark.jobs.session import Context, JobFailed, Result, submit
from lanner.spark.jobs.tables import EVENTS, each_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME: Final = "checks"
GRACE_SECONDS: Final = 60


def checks(messages: DataFrame, events: DataFrame, throughput: DataFrame, skews: DataFrame) -> DataFrame:
    """Return a row for each check: check, wrong, example.

    `events` must be distinct; the others are tables.
    """
    logs = events.groupBy(F.col("qm_id").alias("log")).agg(
        F.min("event_time").alias("first"), F.max("event_time").alias("last")
    )
    grace = F.expr(f"last - interval {GRACE_SECONDS} seconds")
    told = of_programs(events).select(F.col("msg_id_text").alias("msg_id")).distinct()
    twice = messages.groupBy("msg_id").count().where("count > 1").select("msg_id")
    from_logs = messages.join(F.broadcast(logs), F.col("source_id") == F.col("log"))
    unsent = from_logs.where("arrived_by = 'event' and sent_by != 'event'").where(
        (F.col("sent_time") > F.col("first")) & (F.col("sent_time") < grace)
    )
    # A message is lost only if the log of the next queue manager should have it.
    known = logs.select(F.col("log").alias("other"))
    lost = (
        from_logs.where("left_time is not null and arrived_time is null and failed_class is null")
        .where(F.col("left_time") < grace)
        .join(F.broadcast(known), F.col("destination_id") == F.col("other"), "left_semi")
    )
    backwards = messages.where("arrived_by = 'event' and received_by = 'event' and received_time < arrived_time")
    torn = skews.where("uncertainty_seconds < 0 and is_exact and not is_step").select(
        F.concat_ws(" and ", "name_a", "name_b").alias("msg_id")
    )
    return (
        _row("messages", told.join(messages, "msg_id", "left_anti").unionByName(twice))
        .unionByName(_count("arrivals", events, ("arrived", "transferred_in"), throughput, "arrived"))
        .unionByName(_count("receives", events, ("received",), throughput, "received"))
        .unionByName(_row("senders", unsent))
        .unionByName(_row("lost", lost))
        .unionByName(_row("clocks", backwards.select("msg_id").unionByName(torn)))
    )


def _row(name: str, wrong: DataFrame) -> DataFrame:
    return wrong.agg(F.lit(name).alias("check"), F.count(F.lit(1)).alias("wrong"), F.min("msg_id").alias("example"))


def _count(name: str, events: DataFrame, kinds: tuple[str, ...], throughput: DataFrame, column: str) -> DataFrame:
    """Return how far a column of `throughput` is from the count of events, where there are any."""
    seen = events.where(F.col("event").isin(*kinds) & F.col("queue_kind").isin(*REAL_KINDS))
    by_queue = seen.groupBy(F.regexp_replace("queue", ";.*$", "").alias("queue")).count()
    counted = throughput.groupBy("queue").agg(F.sum(column).alias("counted"))
    apart = F.abs(F.col("count") - F.coalesce("counted", F.lit(0)))
    both = by_queue.join(counted, "queue", "left").select(apart.alias("apart"), "queue").where("apart > 0")
    return both.agg(
        F.lit(name).alias("check"), F.coalesce(F.sum("apart"), F.lit(0)).alias("wrong"), F.min("queue").alias("example")
    )


def run(context: Context) -> Result:
    lake = context.lake
    events = each_once(lake.sightings(EVENTS))
    context.make(NAME, checks(lake.read("lifecycle"), events, lake.read("throughput"), lake.read("clock_skew")))
    found = lake.read(NAME).collect()
    wrong = [row for row in found if row["wrong"]]
    if wrong:
        lines = "; ".join(f"{row['check']}: {row['wrong']} wrong, such as {row['example']}" for row in wrong)
        raise JobFailed(f"checks: {lines}. What each means: python -m pydoc lanner.spark.jobs.checks")
    return {"checks": len(found)}


def main() -> None:
    submit(NAME, run)


if __name__ == "__main__":
    main()
