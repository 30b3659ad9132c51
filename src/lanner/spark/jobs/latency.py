"""latency: how long messages were on their way and in their queues, although clocks are wrong.

A message is sent by one clock and comes to its queue by another. Events tell both in milliseconds,
and where they do only they count; else the packet and its queue tell whole seconds, and `exact`
counts how many of `messages` are of the first kind. The table `clock_skew` first estimates how far
two clocks are apart, for each pair of machines and each hour. What comes from A to B takes some
time, never less than none: the least difference (B's clock less A's) is an upper bound for the
skew, and the least one of what goes the other way is a lower bound. Acknowledgments and reports are
messages too, and give the other way where the business does not. The estimate is the middle of the
bounds; with one way alone it is the bound (`method` says which). A pair whose differences lie more
than half an hour apart within an hour has had a clock set (`is_step`): its estimate is worth
nothing.

`latency` then has for each route, queue and hour the percentiles of delivery (sent to arrived), as
the clocks say (`raw_*`) and with the skew taken off (never below 0), of the wait in the queue
(arrived to received, one clock), and how many differences were negative. `latency_by_queue` has the
same for each queue as a whole, without the hours in which a clock was set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import Window

from lanner.spark.jobs.session import Context, Result, submit
from lanner.spark.jobs.tables import EVENTS, MESSAGES, machine_names, named, observations, seconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NAME: Final = "latency"
SKEW: Final = "clock_skew"
BY_QUEUE: Final = "latency_by_queue"
# Ours: no message is on its way for so long that its clocks must have been set.
STEP_SECONDS: Final = 1800
_SHARES: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


def bucket(time: str | Column, length: int) -> Column:
    """The beginning of the period that a time is in; `length` is in seconds."""
    return F.timestamp_seconds(F.floor(F.unix_seconds(time) / length) * length)


def samples(observed: DataFrame, messages: DataFrame) -> DataFrame:
    """Every pair of a time by one clock and a time by another: from, to, sent_time, arrived_time, is_exact."""
    seen = observed.where("role in ('waiting', 'ack', 'report')").select(
        F.col("src_machine_id").alias("from"), F.col("qm_id").alias("to"), "sent_time", "arrived_time"
    )
    told = messages.where("arrived_by in ('acknowledgment', 'report')").select(
        F.col("source_id").alias("from"), F.col("destination_id").alias("to"), "sent_time", "arrived_time"
    )
    whole = seen.unionByName(told).withColumn("is_exact", F.lit(False))
    forth = messages.where("sent_by = 'event' and arrived_by = 'event'").select(
        F.col("source_id").alias("from"),
        F.col("destination_id").alias("to"),
        F.col("sent_at").alias("sent_time"),
        "arrived_time",
        F.lit(True).alias("is_exact"),
    )
    # Its sender learns that it has come: the way back, if no third machine is between.
    back = messages.where("left_time is not null and arrived_by = 'event' and size(stops) = 2").select(
        F.col("destination_id").alias("from"),
        F.col("source_id").alias("to"),
        F.col("arrived_time").alias("sent_time"),
        F.col("left_time").alias("arrived_time"),
        F.lit(True).alias("is_exact"),
    )
    found = whole.unionByName(forth).unionByName(back)
    return found.where("from != to and sent_time is not null and arrived_time is not null")


def clock_skew(pairs: DataFrame, minutes: int = 60) -> DataFrame:
    """How far the clock of machine_b is ahead of that of machine_a.

    Periods are by the clock of machine_b.
    """
    is_forth = F.col("from") < F.col("to")
    delta = seconds("arrived_time", "sent_time")
    found = pairs.select(
        F.least("from", "to").alias("machine_a"),
        F.greatest("from", "to").alias("machine_b"),
        bucket(F.when(is_forth, F.col("arrived_time")).otherwise(F.col("sent_time")), 60 * minutes).alias("period"),
        "is_exact",
        F.when(is_forth, delta).alias("forth"),
        F.when(~is_forth, delta).alias("back"),
    )
    # Whole seconds would only blur what is known in milliseconds.
    pair = Window.partitionBy("machine_a", "machine_b", "period")
    found = found.withColumn("_best", F.max("is_exact").over(pair)).where("is_exact = _best")
    grouped = found.groupBy("machine_a", "machine_b", "period", "is_exact").agg(
        F.count("forth").alias("samples_forth"),
        F.count("back").alias("samples_back"),
        F.min("forth").alias("least_forth"),
        F.min("back").alias("least_back"),
        F.max("forth").alias("most_forth"),
        F.max("back").alias("most_back"),
    )
    upper, lower = F.col("least_forth"), -F.col("least_back")
    spread = F.greatest(
        F.col("most_forth") - F.col("least_forth"),
        F.col("most_back") - F.col("least_back"),
        F.col("most_forth") - lower,
        F.col("most_back") + upper,
        F.lit(0.0),
    )
    has_both = upper.isNotNull() & lower.isNotNull()
    return grouped.select(
        "machine_a",
        "machine_b",
        "period",
        "samples_forth",
        "samples_back",
        F.when(has_both, (upper + lower) / 2).otherwise(F.coalesce(upper, lower)).alias("skew_seconds"),
        F.when(has_both, (upper - lower) / 2).alias("uncertainty_seconds"),
        F.when(has_both, "two-way").otherwise("one-way").alias("method"),
        "is_exact",
        (spread > STEP_SECONDS).alias("is_step"),
    )


def deliveries(messages: DataFrame, skews: DataFrame, minutes: int = 60) -> DataFrame:
    """Each message whose arrival is known, with the skew taken off.

    Periods are by the clock of the destination.
    """
    is_forth = F.col("source_id") < F.col("destination_id")
    by_events = F.expr("arrived_by = 'event' and sent_by = 'event'")
    # Either both in milliseconds or both in whole seconds.
    sent = F.when(F.col("arrived_by") == "event", F.col("sent_at")).otherwise(F.col("sent_time"))
    is_one_clock = F.expr("(arrived_by = 'event') = (received_by = 'event')")
    known = messages.where("arrived_time is not null and sent_time is not null and destination_id is not null")
    timed = known.select(
        "source",
        "destination",
        "queue",
        F.least("source_id", "destination_id").alias("machine_a"),
        F.greatest("source_id", "destination_id").alias("machine_b"),
        # The period of the pair is by the clock of machine_b.
        bucket(F.when(is_forth, F.col("arrived_time")).otherwise(sent), 60 * minutes).alias("pair_period"),
        bucket("arrived_time", 60 * minutes).alias("period"),
        is_forth.alias("is_forth"),
        by_events.alias("is_exact"),
        (F.unix_micros("arrived_time") / 1e6 - F.unix_micros(sent) / 1e6).alias("raw"),
        F.when(is_one_clock, seconds("received_time", "arrived_time")).alias("wait"),
    )
    known = skews.select(
        "machine_a", "machine_b", F.col("period").alias("pair_period"), "skew_seconds", "method", "is_step"
    )
    joined = timed.join(known, ["machine_a", "machine_b", "pair_period"], "left")
    ahead = F.coalesce(F.when(F.col("is_forth"), F.col("skew_seconds")).otherwise(-F.col("skew_seconds")), F.lit(0.0))
    corrected = F.greatest(F.col("raw") - ahead, F.lit(0.0))
    return joined.select("*", ahead.alias("skew"), corrected.alias("delivery"))


def percentiles(rows: DataFrame, *keys: str) -> DataFrame:
    """Percentiles of deliveries and waits, by route, queue, period or whatever they are grouped by."""
    shares = [
        F.percentile(column, share).alias(f"{column}_{name}")
        for column in ("raw", "delivery", "wait")
        for name, share in _SHARES
    ]
    return rows.groupBy(*keys).agg(
        F.count(F.lit(1)).alias("messages"),
        F.count(F.when(F.col("is_exact"), 1)).alias("exact"),
        F.count("wait").alias("received"),
        F.count(F.when(F.col("raw") < 0, 1)).alias("negative"),
        F.avg("skew").alias("skew_seconds"),
        F.max("method").alias("skew_method"),
        F.coalesce(F.max("is_step"), F.lit(False)).alias("is_step"),
        *shares,
        F.max("delivery").alias("delivery_max"),
    )


def run(context: Context) -> Result:
    minutes = context.config.latency.bucket_minutes
    seen, messages = context.lake.sightings(MESSAGES), context.lake.read("lifecycle")
    names = machine_names(seen, context.lake.sightings(EVENTS))
    context.make(SKEW, _with_names(clock_skew(samples(observations(seen), messages), minutes), names))
    rows = deliveries(messages, context.lake.read(SKEW), minutes)
    steady = rows.where("not coalesce(is_step, false)")
    context.make(BY_QUEUE, percentiles(steady, "queue"))
    return {"rows": context.make(NAME, percentiles(rows, "source", "destination", "queue", "period"))}


def _with_names(skews: DataFrame, names: DataFrame) -> DataFrame:
    return named(named(skews, names, "machine_a", "name_a"), names, "machine_b", "name_b")


def main() -> None:
    submit(NAME, run)


if __name__ == "__main__":
    main()
