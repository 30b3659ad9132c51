"""latency: transfer and waiting times of messages, corrected for clock skew.

A message is sent by one clock and arrives by another. Events record both times in milliseconds, and
are used alone if both exist. Otherwise the packet and its queue have whole seconds; `exact` counts
how many of `messages` are of the first kind.

The table `clock_skew` estimates how far two clocks are apart, for each pair of machines and each
hour. A transfer from A to B takes some time, never less than zero. So the minimum difference (B's
clock less A's) is an upper bound of the skew, and the minimum in the other direction gives a lower
bound. Acknowledgments and reports are messages too, and supply the other direction if the
application does not. The estimate is the middle of the bounds; with one direction it is the bound
(`method` shows which). If the differences of a pair spread over more than half an hour within an
hour, a clock was set (`is_step`), and the estimate is useless.

`latency` has, for each route, queue and hour, the percentiles of delivery (sent to arrived), both
by the clocks (`raw_*`) and with the skew subtracted (never below 0), those of the wait in the queue
(arrived to received, one clock), and the count of negative differences. `latency_by_queue` has the
same for each queue as a whole, without the hours in which a clock was set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import Window

from lanner.spark.jobs.session import Context, Result, submit
from lanner.spark.jobs.state import stored_machine_names
from lanner.spark.jobs.tables import MESSAGES, named, observations, seconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NAME: Final = "latency"
SKEW: Final = "clock_skew"
BY_QUEUE: Final = "latency_by_queue"
# Not in the specification: a longer transfer means that a clock was set.
STEP_SECONDS: Final = 1800
_SHARES: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


def bucket(time: str | Column, length: int) -> Column:
    """Return the beginning of the period that contains a time. `length` is in seconds."""
    return F.timestamp_seconds(F.floor(F.unix_seconds(time) / length) * length)


def samples(observed: DataFrame, messages: DataFrame) -> DataFrame:
    """Return pairs of times by two clocks: from, to, sent_time, arrived_time, is_exact."""
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
    # The sender learns that the message has arrived: the other direction, if no third machine is in
    # between.
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
    """Return how far the clock of machine_b is ahead of that of machine_a.

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
    # Whole seconds would only make the milliseconds less precise.
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
    """Return each message with a known arrival, with the skew subtracted.

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
    """Return percentiles of deliveries and waits, grouped by `keys`."""
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
    names = stored_machine_names(context.lake)
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
