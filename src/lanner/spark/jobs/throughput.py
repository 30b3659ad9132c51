"""throughput: what came and went, by queue and minute, how much lay in the queue, and when it will be empty.

`throughput` has a row for each queue and each period in which something happened: arrived, received, failed (expired, purged or dead in the
queue), bytes, and `depth`, what is left at its end of all that was seen. A message of which only the receive is known counts as
arrived then, too. `backlog` has a row for each queue: its depth now, its rates over the last periods, and the minutes until it is
empty at those rates; null if it only grows. Times are by the clock of the queue's machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import Window

from lanner.model.enums import MessageClass
from lanner.spark.jobs.latency import bucket
from lanner.spark.jobs.session import Context, Result, submit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME: Final = "throughput"
BACKLOG: Final = "backlog"
# What ends a message that was in its queue.
_ENDED_THERE: Final = (
    MessageClass.NACK_QUEUE_DELETED,
    MessageClass.NACK_QUEUE_PURGED,
    MessageClass.NACK_RECEIVE_TIMEOUT,
    MessageClass.NACK_RECEIVE_REJECTED,
)
# Ours: the rates of a backlog are those of its last so many periods.
_RECENT: Final = 60


def throughput(messages: DataFrame, minutes: int = 1) -> DataFrame:
    """What happened in each queue, period by period."""
    code = F.coalesce("nack_class", "dead_class")
    ended = F.when(
        code.isin([int(member) for member in _ENDED_THERE]) & F.col("arrived_time").isNotNull(),
        F.coalesce("nack_time", "dead_time"),
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
        .groupBy("queue", bucket(F.col("e.time"), minutes).alias("period"))
        .agg(
            *(F.count(F.when(F.col("e.event") == name, 1)).alias(name) for name in ("arrived", "received", "failed")),
            F.sum(F.when(F.col("e.event") == "arrived", F.col("bytes")).otherwise(0)).alias("bytes"),
        )
    )
    so_far = Window.partitionBy("queue").orderBy("period").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    depth = F.sum(F.col("arrived") - F.col("received") - F.col("failed")).over(so_far)
    return counted.withColumn("depth", depth)


def backlog(found: DataFrame, minutes: int = 1) -> DataFrame:
    """What lies in each queue at the end, and for how long still."""
    newest = found.groupBy("queue").agg(
        F.max("period").alias("last_period"), F.max_by("depth", "period").alias("depth")
    )
    edge = F.timestamp_seconds(F.unix_seconds("last_period") - _RECENT * minutes * 60)
    recent = found.join(newest.select("queue", "last_period"), "queue").where(F.col("period") > edge)
    rates = recent.groupBy("queue").agg(
        (F.sum("arrived") / (_RECENT * minutes)).alias("arrived_per_minute"),
        (F.sum(F.col("received") + F.col("failed")) / (_RECENT * minutes)).alias("left_per_minute"),
    )
    shrink = F.col("left_per_minute") - F.col("arrived_per_minute")
    drained = F.when(F.col("depth") <= 0, F.lit(0.0)).when(shrink > 0, F.col("depth") / shrink)
    return newest.join(rates, "queue").withColumn("minutes_to_empty", drained)


def run(context: Context) -> Result:
    minutes = context.config.throughput.bucket_minutes
    rows = context.make(NAME, throughput(context.lake.read("lifecycle"), minutes))
    context.make(BACKLOG, backlog(context.lake.read(NAME), minutes))
    return {"rows": rows}


def main() -> None:
    submit(NAME, run)


if __name__ == "__main__":
    main()
