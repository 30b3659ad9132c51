"""routes: the paths of the traffic.

`routes` has rows of two kinds for pairs of machines. A row of `kind` `step` combines the steps of
all messages from one machine to the next, with the median of their times (corrected for clock skew
where that is known). A row of `kind` `route` combines the messages from one source to one
destination, whatever their steps. The steps of a message come from trace reports if there are any,
otherwise from events. Without either, only its source and destination are known. `told` counts the
messages whose steps come from reports. `loops` counts the messages of a `step` that came to some
machine a second time; it is 0 for a `route`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from lanner.spark.jobs.session import Context, Result, submit
from lanner.spark.jobs.state import stored_machine_names
from lanner.spark.jobs.tables import named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME: Final = "routes"


def steps(messages: DataFrame) -> DataFrame:
    """Return a row for each step of each message."""
    machines = F.transform("stops", lambda stop: stop["by"])
    stepped = messages.where("size(stops) > 1").select(
        "msg_id",
        (F.size("hops") > 1).alias("is_told"),
        (F.size(machines) > F.size(F.array_distinct(machines))).alias("is_loop"),
        F.explode(
            F.expr("transform(sequence(1, size(stops) - 1), i -> struct(stops[i - 1] as at, stops[i] as after))")
        ).alias("s"),
    )
    return stepped.select(
        "msg_id",
        "is_told",
        "is_loop",
        F.col("s.at.by").alias("source_id"),
        F.col("s.after.by").alias("destination_id"),
        F.col("s.at.address").alias("address"),
        (F.unix_micros("s.after.time") / 1e6 - F.unix_micros("s.at.time") / 1e6).alias("seconds"),
    )


def routes(messages: DataFrame, skews: DataFrame | None = None) -> DataFrame:
    """Return the edges between machines, by identifiers."""
    found = steps(messages)
    pair = (F.least("source_id", "destination_id"), F.greatest("source_id", "destination_id"))
    found = found.withColumn("machine_a", pair[0]).withColumn("machine_b", pair[1])
    if skews is not None:
        known = (
            skews.where("not is_step")
            .groupBy("machine_a", "machine_b")
            .agg(F.expr("percentile(skew_seconds, 0.5)").alias("skew"))
        )
        found = found.join(F.broadcast(known), ["machine_a", "machine_b"], "left")
        ahead = F.coalesce(
            F.when(F.col("source_id") < F.col("destination_id"), F.col("skew")).otherwise(-F.col("skew")), F.lit(0.0)
        )
        found = found.withColumn("seconds", F.greatest(F.col("seconds") - ahead, F.lit(0.0)))
    stepped = found.groupBy("source_id", "destination_id").agg(
        F.lit("step").alias("kind"),
        F.countDistinct("msg_id").alias("messages"),
        F.countDistinct(F.when(F.col("is_told"), F.col("msg_id"))).alias("told"),
        F.expr("percentile(seconds, 0.5)").alias("median_seconds"),
        F.max("address").alias("address"),
        F.countDistinct(F.when(F.col("is_loop"), F.col("msg_id"))).alias("loops"),
        F.lit(None).cast("int").alias("most_hops"),
    )
    whole = (
        messages.where("destination_id is not null and source_id is not null")
        .groupBy("source_id", "destination_id")
        .agg(
            F.lit("route").alias("kind"),
            F.countDistinct("msg_id").alias("messages"),
            F.count(F.when(F.size("hops") > 1, 1)).alias("told"),
            F.lit(None).cast("double").alias("median_seconds"),
            F.lit(None).cast("string").alias("address"),
            F.lit(0).cast("long").alias("loops"),
            F.max("hop_count").alias("most_hops"),
        )
    )
    return stepped.unionByName(whole)


def run(context: Context) -> Result:
    lake = context.lake
    skews = lake.read("clock_skew") if lake.has("clock_skew") else None
    names = stored_machine_names(lake)
    found = named(routes(lake.read("lifecycle"), skews), names, "source_id", "source")
    return {"routes": context.make(NAME, named(found, names, "destination_id", "destination"))}


def main() -> None:
    submit(NAME, run)


if __name__ == "__main__":
    main()
