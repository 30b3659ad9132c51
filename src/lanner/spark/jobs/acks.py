"""acks: the outcome of the acknowledgments that senders requested.

`acks` has a row for each message that requested some, with its outcome:

    negative  it failed, by an event, a negative acknowledgment, or a copy in a dead-letter queue
    positive  the requested acknowledgment arrived
    pending   nothing arrived, and nothing is due: the message is on its way or in its queue
    missing   nothing arrived, although it is due
    quiet     only negative acknowledgments were requested, and there is none

`ack_summary` counts them by queue, outcome and reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from lanner.model.enums import Acknowledgements, MessageClass
from lanner.spark.jobs.session import Context, Result, submit
from lanner.spark.jobs.tables import seconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NAME: Final = "acks"
SUMMARY: Final = "ack_summary"


def _asked(bit: Acknowledgements) -> Column:
    return F.col("acknowledge").bitwiseAND(int(bit)) != 0


def _came(number: MessageClass) -> Column:
    return F.coalesce(F.array_contains("ack_classes", int(number)), F.lit(False))


def acks(messages: DataFrame) -> DataFrame:
    """Return each message of `lifecycle` that requested an acknowledgment, with the outcome."""
    wants_receive, wants_arrival = _asked(Acknowledgements.POS_RECEIVE), _asked(Acknowledgements.POS_ARRIVAL)
    has_come = F.when(wants_receive, _came(MessageClass.ACK_RECEIVE)).otherwise(_came(MessageClass.ACK_REACH_QUEUE))
    has_failed = F.col("failed_class").isNotNull() | F.col("dead_class").isNotNull()
    # A message in its queue has arrived. That it was not received yet is no failure.
    is_pending = F.when(wants_receive, F.col("status").isin("waiting", "arrived", "in_transit")).otherwise(
        F.col("status") == "in_transit"
    )
    outcome = (
        F.when(has_failed, "negative")
        .when(~wants_receive & ~wants_arrival, "quiet")
        .when(has_come, "positive")
        .when(is_pending, "pending")
        .otherwise("missing")
    )
    code = F.when(has_failed, F.coalesce("failed_class", "dead_class")).when(
        has_come, F.when(wants_receive, int(MessageClass.ACK_RECEIVE)).otherwise(int(MessageClass.ACK_REACH_QUEUE))
    )
    return (
        messages.where("acknowledge > 0")
        .select(
            "msg_id",
            "source",
            "destination",
            "queue",
            "label",
            "acknowledge",
            "sent_time",
            "status",
            outcome.alias("outcome"),
            code.alias("class"),
            F.col("nack_class").isNotNull().alias("has_nack"),
            seconds("received_time", "sent_at").alias("seconds_to_receive"),
        )
        .withColumn("reason", reason("class"))
    )


def reason(column: str | Column) -> Column:
    """Return the name of a class."""
    pairs = [F.lit(value) for member in MessageClass for value in (int(member), member.name)]
    return F.create_map(*pairs)[F.col(column) if isinstance(column, str) else column]


def summary(found: DataFrame) -> DataFrame:
    """Return the count of each outcome, by queue and reason."""
    return found.groupBy("queue", "outcome", "class", "reason").agg(F.count(F.lit(1)).alias("messages"))


def run(context: Context) -> Result:
    count = context.make(NAME, acks(context.lake.read("lifecycle")))
    context.make(SUMMARY, summary(context.lake.read(NAME)))
    return {"messages": count}


def main() -> None:
    submit(NAME, run)


if __name__ == "__main__":
    main()
