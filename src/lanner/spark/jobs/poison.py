"""poison: messages whose receives are aborted repeatedly, and what they have in common.

A message counts if its receive was aborted `poison.aborts` times, or if it is in a subqueue of
`poison.subqueues`. The table has a row for each group: same queue, same label without its numbers,
same kind of body, same sender; the worst first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from lanner.spark.jobs.session import Context, Result, submit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME: Final = "poison"


def poison(messages: DataFrame, aborts: int = 3, subqueues: Sequence[str] = ("poison", "retry")) -> DataFrame:
    """Return groups of poison messages of `lifecycle`."""
    is_put_aside = F.coalesce(F.lower("subqueue").isin([name.lower() for name in subqueues]), F.lit(False))
    found = messages.where((F.col("abort_count") >= aborts) | is_put_aside)
    return (
        found.groupBy(
            "queue",
            F.regexp_replace(F.coalesce("label", F.lit("")), r"\d+", "#").alias("label"),
            "body_type",
            F.hex("sender_id").alias("sender"),
            "source",
        )
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.max("abort_count").alias("most_aborts"),
            F.sum("abort_count").alias("aborts"),
            F.countDistinct("body_sha256").alias("different_bodies"),
            F.min("msg_id").alias("example"),
            F.min("body_sha256").alias("example_body_sha256"),
            F.min("sent_time").alias("first_sent"),
            F.max("sent_time").alias("last_sent"),
        )
        .orderBy(F.desc("aborts"), "queue", "label")
    )


def run(context: Context) -> Result:
    config = context.config.poison
    return {"groups": context.make(NAME, poison(context.lake.read("lifecycle"), config.aborts, config.subqueues))}


def main() -> None:
    submit(NAME, run)


if __name__ == "__main__":
    main()
