"""routes: where the traffic flows.

`routes` has a row for each pair of machines between which messages went directly: `kind` is `hop` where trace reports tell it, with the
median of the time from one to the next (the skew of their clocks taken off where it is known), and `route` for the whole way of all
messages, traced or not. `loops` counts messages that came to a machine a second time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from lanner.spark.jobs.session import Context, Result, submit
from lanner.spark.jobs.tables import MESSAGES, machine_names, named, observations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME: Final = "routes"


def hops(messages: DataFrame) -> DataFrame:
    """A row for each step of each message that was traced."""
    visits = F.expr(
        # Whoever reports twice in a row, what it received and what it sent, is one stop, and leaves at the second.
        "filter(hops, (h, i) -> i = size(hops) - 1 or h.by != hops[i + 1].by)"
    )
    stops = messages.where("hops is not null").select("msg_id", "hops", visits.alias("stops"))
    machines = F.transform("stops", lambda stop: stop["by"])
    stepped = stops.select(
        "msg_id",
        (F.size(machines) > F.size(F.array_distinct(machines))).alias("is_loop"),
        F.explode(
            F.expr(
                "transform(sequence(1, greatest(size(stops) - 1, 1)), "
                "i -> struct(stops[i - 1] as at, get(stops, i) as after))"
            )
        ).alias("s"),
    )
    return stepped.where("s.after is not null").select(
        "msg_id",
        "is_loop",
        F.col("s.at.by").alias("source_id"),
        F.col("s.after.by").alias("destination_id"),
        F.col("s.at.next_hop").alias("address"),
        (F.unix_seconds("s.after.time") - F.unix_seconds("s.at.time")).cast("double").alias("seconds"),
    )


def routes(messages: DataFrame, skews: DataFrame | None = None) -> DataFrame:
    """Edges between machines, by their identifiers."""
    steps = hops(messages)
    pair = (F.least("source_id", "destination_id"), F.greatest("source_id", "destination_id"))
    steps = steps.withColumn("machine_a", pair[0]).withColumn("machine_b", pair[1])
    if skews is not None:
        known = (
            skews.where("not is_step")
            .groupBy("machine_a", "machine_b")
            .agg(F.expr("percentile(skew_seconds, 0.5)").alias("skew"))
        )
        steps = steps.join(F.broadcast(known), ["machine_a", "machine_b"], "left")
        ahead = F.coalesce(
            F.when(F.col("source_id") < F.col("destination_id"), F.col("skew")).otherwise(-F.col("skew")), F.lit(0.0)
        )
        steps = steps.withColumn("seconds", F.greatest(F.col("seconds") - ahead, F.lit(0.0)))
    found = steps.groupBy("source_id", "destination_id").agg(
        F.lit("hop").alias("kind"),
        F.countDistinct("msg_id").alias("messages"),
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
            F.lit(None).cast("double").alias("median_seconds"),
            F.lit(None).cast("string").alias("address"),
            F.lit(0).cast("long").alias("loops"),
            F.max("hop_count").alias("most_hops"),
        )
    )
    return found.unionByName(whole)


def run(context: Context) -> Result:
    lake = context.lake
    skews = lake.read("clock_skew") if lake.has("clock_skew") else None
    names = machine_names(observations(lake.read(MESSAGES)))
    found = named(routes(lake.read("lifecycle"), skews), names, "source_id", "source")
    return {"routes": context.make(NAME, named(found, names, "destination_id", "destination"))}


def main() -> None:
    submit(NAME, run)


if __name__ == "__main__":
    main()
