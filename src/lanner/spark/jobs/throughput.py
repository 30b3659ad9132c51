"""throughput: traffic per queue and period, the depth of each queue, and when it will be empty.

`throughput` has a row for each queue and each period in which something happened: the messages that
arrived, were received, and failed (expired, purged or became dead letters), their bytes, and
`depth`, the number of known messages in the queue at the end of the period. A message of which only
the receive is known counts as arrived at the same time.
`backlog` has a row for each queue: its depth now, its rates over the last periods, and the minutes
until it is empty at those rates; null if it only grows. Times are by the clock of the queue's
machine. Queues with events are counted from their events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import Window

from lanner.model.enums import MessageClass
from lanner.spark.jobs.latency import bucket
from lanner.spark.jobs.session import Context, Result, submit
from lanner.spark.jobs.tables import EVENTS, each_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME: Final = "throughput"
BACKLOG: Final = "backlog"
# Classes that end a message in its queue.
_ENDED_THERE: Final = (
    MessageClass.NACK_QUEUE_DELETED,
    MessageClass.NACK_QUEUE_PURGED,
    MessageClass.NACK_RECEIVE_TIMEOUT,
    MessageClass.NACK_RECEIVE_REJECTED,
)
# Not in the specification: the number of last periods that determine the rates of a backlog.
_RECENT: Final = 60
# The events for each count. A move within a queue changes nothing.
_EVENTS: Final = {
    "arrived": ("arrived", "transferred_in"),
    "received": ("received",),
    "failed": ("expired", "purged"),
}
_QUEUE_KINDS: Final = ("destination", "subqueue", "admin", "report")


def throughput(messages: DataFrame, length: int = 60) -> DataFrame:
    """Return what happened in each queue, by period."""
    code = F.coalesce("failed_class", "dead_class")
    ended = F.when(
        code.isin([int(member) for member in _ENDED_THERE]) & F.col("arrived_time").isNotNull(),
        F.coalesce("failed_time", "dead_time"),
    )
    events = messages.where("queue is not null").select(
        "queue",
        F.coalesce("body_size", F.lit(0)).alias("bytes"),
        F.explode(
            F.array(
                F.struct(F.lit("arrived").alias("event"), F.coalesce("arrived_time", "received_time").alias("time")),
                F.struct(F.lit("received").alias("event"), F.col("received_time").alias("time")),
                F.struct(F.lit("failed").alias("event"), ended.alias("time")),
            )
        ).alias("e"),
    )
    counted = (
        events.where("e.time is not null")
        .groupBy("queue", bucket(F.col("e.time"), length).alias("period"))
        .agg(
            *(F.count(F.when(F.col("e.event") == name, 1)).alias(name) for name in ("arrived", "received", "failed")),
            F.sum(F.when(F.col("e.event") == "arrived", F.col("bytes")).otherwise(0)).alias("bytes"),
        )
    )
    return _with_depth(counted)


def throughput_of_events(events: DataFrame, length: int = 60) -> DataFrame:
    """Return the same from event logs, without guesses.

    They also have receives that left no copy in a journal, and messages that were never
    acknowledged.
    """
    found = events.where(F.col("queue").isNotNull() & F.col("queue_kind").isin(*_QUEUE_KINDS))
    counted = found.groupBy(
        F.regexp_replace("queue", ";.*$", "").alias("queue"), bucket("event_time", length).alias("period")
    ).agg(
        *(F.count(F.when(F.col("event").isin(*kinds), 1)).alias(name) for name, kinds in _EVENTS.items()),
        F.sum(F.when(F.col("event").isin(*_EVENTS["arrived"]), F.col("size")).otherwise(0)).alias("bytes"),
    )
    return _with_depth(counted.where("arrived + received + failed > 0"))


def _with_depth(counted: DataFrame) -> DataFrame:
    so_far = Window.partitionBy("queue").orderBy("period").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return counted.withColumn("depth", F.sum(F.col("arrived") - F.col("received") - F.col("failed")).over(so_far))


def backlog(found: DataFrame, length: int = 60) -> DataFrame:
    """Return the depth of each queue at the end, and the time until it is empty."""
    minutes = _RECENT * length / 60
    newest = found.groupBy("queue").agg(
        F.max("period").alias("last_period"), F.max_by("depth", "period").alias("depth")
    )
    edge = F.timestamp_seconds(F.unix_seconds("last_period") - _RECENT * length)
    recent = found.join(newest.select("queue", "last_period"), "queue").where(F.col("period") > edge)
    rates = recent.groupBy("queue").agg(
        (F.sum("arrived") / minutes).alias("arrived_per_minute"),
        (F.sum(F.col("received") + F.col("failed")) / minutes).alias("left_per_minute"),
    )
    shrink = F.col("left_per_minute") - F.col("arrived_per_minute")
    drained = F.when(F.col("depth") <= 0, F.lit(0.0)).when(shrink > 0, F.col("depth") / shrink)
    return newest.join(rates, "queue").withColumn("minutes_to_empty", drained)


def run(context: Context) -> Result:
    length = context.config.throughput.bucket_seconds
    found = throughput(context.lake.read("lifecycle"), length)
    if context.lake.has(EVENTS):
        told = throughput_of_events(each_once(context.lake.read(EVENTS)), length)
        # Events are more exact. Queues of other queue managers are counted from messages.
        found = found.join(told.select("queue").distinct(), "queue", "left_anti").unionByName(told)
    rows = context.make(NAME, found)
    context.make(BACKLOG, backlog(context.lake.read(NAME), length))
    return {"rows": rows}


def main() -> None:
    submit(NAME, run)


if __name__ == "__main__":
    main()
