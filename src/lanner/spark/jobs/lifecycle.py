"""lifecycle: a row for each message, from all the places where something of it was seen.

| column | what |
|---|---|
| msg_id, label, source(_id), destination(_id), queue | which message; names of machines, and the queue as its own machine names it |
| sent_time | by the clock of its sender; all other times are by the clock of whoever saw it |
| hops | the reports of its way, in order: by, event, time, next_hop, hop_count |
| arrived_time, arrived_by | in its queue: seen there, told by an acknowledgment, or by a report |
| received_time, received_by | seen in the journal of the queue, or told by an acknowledgment |
| journaled_time | copied into the journal of its sender |
| nack_class, nack_time | a negative acknowledgment |
| dead_class, dead_time, dead_at | seen in a dead-letter queue |
| status | dead_lettered, refused, received, waiting, arrived, in_transit or sent: the last thing that is known |
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import Window

from lanner.model.enums import MessageClass
from lanner.spark.jobs.session import Context, Result, submit
from lanner.spark.jobs.tables import MESSAGES, NEGATIVE, machine_names, named, observations
from lanner.transfer.tracing import parse_report

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NAME: Final = "lifecycle"
_PROPERTIES: Final = (
    "label",
    "src_machine_id",
    "dest_format_name",
    "sent_time",
    "time_to_be_received",
    "priority",
    "delivery",
    "acknowledge",
    "journal",
    "trace",
    "hop_count",
    "is_transactional",
    "body_type",
    "body_size",
    "body_sha256",
    "sender_id",
    "authenticated",
)
_REPORT: Final = "message string, hop_count int, time timestamp, target string, next_hop string"
_EVENTS: Final = "hop_count, not is_sender as is_end, event = 'sent' as is_sent, time, by, event, next_hop"
_STATUS: Final = """
    case when dead_class is not null then 'dead_lettered'
         when nack_class is not null then 'refused'
         when received_time is not null then 'received'
         when waiting_time is not null then 'waiting'
         when arrived_time is not null then 'arrived'
         when is_outgoing then 'in_transit'
         else 'sent' end
"""


def lifecycle(observed: DataFrame) -> DataFrame:
    """One row for each message that was seen, or that another one tells of."""
    messages = _messages(observed)
    acknowledgments = _acknowledgments(observed)
    trails = _trails(reports(observed))
    joined = messages.join(acknowledgments, "msg_id", "full_outer").join(trails, "msg_id", "full_outer")
    end = F.element_at("hops", -1)
    is_end = (F.size("hops") > 0) & (end["event"] == "received")
    rows = joined.select(
        "*",
        F.coalesce("src_machine_id", F.substring_index("msg_id", "\\", 1)).alias("source_id"),
        F.coalesce("seen_at", "arrival_told_by", "receive_told_by", F.when(is_end, end["by"])).alias("destination_id"),
        F.coalesce("dest_format_name", "told_queue", "target").alias("addressed"),
        F.coalesce("waiting_time", "arrival_told_time", F.when(is_end, end["time"])).alias("arrived_time"),
        F.when(F.col("waiting_time").isNotNull(), "queue")
        .when(F.col("arrival_told_time").isNotNull(), "acknowledgment")
        .when(is_end, "report")
        .alias("arrived_by"),
        F.coalesce("journal_time", "receive_told_time").alias("received_time"),
        F.when(F.col("journal_time").isNotNull(), "journal")
        .when(F.col("receive_told_time").isNotNull(), "acknowledgment")
        .alias("received_by"),
    )
    rows = _named_queues(rows).withColumn("status", F.expr(_STATUS))
    names = machine_names(observed)
    for identifier, name in (("source_id", "source"), ("destination_id", "destination"), ("dead_at_id", "dead_at")):
        rows = named(rows, names, identifier, name)
    return rows.select(
        "msg_id",
        "status",
        "source",
        "destination",
        "queue",
        "subqueue",
        "source_id",
        "destination_id",
        *(name for name in _PROPERTIES if name != "src_machine_id"),
        "abort_count",
        "move_count",
        "hops",
        "arrived_time",
        "arrived_by",
        "received_time",
        "received_by",
        "journaled_time",
        "ack_classes",
        "nack_class",
        "nack_time",
        "dead_class",
        "dead_time",
        "dead_at",
    )


def _when(role: str, column: str) -> Column:
    return F.when(F.col("role") == role, F.col(column))


def _messages(observed: DataFrame) -> DataFrame:
    """What the queues themselves hold. The copy at the destination knows most of the way."""
    rank = F.when(F.col("role").isin("waiting", "received"), 2).when(F.col("role") == "dead", 1).otherwise(0)
    here = F.col("role").isin("waiting", "received")
    own_queue = F.regexp_replace("queue", ";.*$", "")
    seen = observed.where("role in ('waiting', 'received', 'journaled', 'in_transit', 'dead')")
    grouped = seen.groupBy(F.col("msg_id_text").alias("msg_id")).agg(
        F.max_by(F.struct(*_PROPERTIES), F.struct(rank, F.col("qm_id"), F.col("queue"))).alias("p"),
        F.max(F.when(here, F.col("qm_id"))).alias("seen_at"),
        F.max(F.when(here, own_queue)).alias("seen_queue"),
        F.max(_when("waiting", "subqueue")).alias("subqueue"),
        F.max("abort_count").alias("abort_count"),
        F.max("move_count").alias("move_count"),
        F.min(_when("waiting", "arrived_time")).alias("waiting_time"),
        F.min(_when("received", "arrived_time")).alias("journal_time"),
        F.min(_when("journaled", "arrived_time")).alias("journaled_time"),
        F.max(F.col("role") == "in_transit").alias("is_outgoing"),
        F.min(_when("dead", "class")).alias("dead_class"),
        F.min(_when("dead", "arrived_time")).alias("dead_time"),
        F.max(_when("dead", "qm_id")).alias("dead_at_id"),
    )
    return grouped.select("*", "p.*").drop("p")


def _acknowledgments(observed: DataFrame) -> DataFrame:
    """What acknowledgments tell, by the message that they are about."""

    def of(number: MessageClass, column: str) -> Column:
        return F.when(F.col("class") == int(number), F.col(column))

    is_negative = F.col("class").isin([int(member) for member in NEGATIVE])
    return (
        observed.where("role = 'ack'")
        .groupBy(F.col("correlation_text").alias("msg_id"))
        .agg(
            F.sort_array(F.collect_set("class")).alias("ack_classes"),
            F.min(of(MessageClass.ACK_REACH_QUEUE, "sent_time")).alias("arrival_told_time"),
            F.max(of(MessageClass.ACK_REACH_QUEUE, "src_machine_id")).alias("arrival_told_by"),
            F.min(of(MessageClass.ACK_RECEIVE, "sent_time")).alias("receive_told_time"),
            F.max(of(MessageClass.ACK_RECEIVE, "src_machine_id")).alias("receive_told_by"),
            F.min(F.when(is_negative, F.col("class"))).alias("nack_class"),
            F.min(F.when(is_negative, F.col("sent_time"))).alias("nack_time"),
            F.max("resp_format_name").alias("told_queue"),
        )
    )


def _read_report(label: str | None, body: bytes | None) -> tuple[str, int, dt.datetime, str, str | None] | None:
    found = parse_report(label or "", bytes(body or b""))
    if found is None:
        return None
    message = f"{found.source_queue_manager}\\{found.message_ordinal}"
    return message, found.hops, found.time, found.target_queue, found.next_hop


def reports(observed: DataFrame) -> DataFrame:
    """The trace reports: which message, where, when, and where it went next."""
    told = F.udf(_read_report, _REPORT, useArrow=False)
    found = observed.where("role = 'report'").select(
        F.col("src_machine_id").alias("by"), told("label", "report_body").alias("t")
    )
    event = F.when(F.col("t.next_hop").isNull(), "received").otherwise("sent")
    return (
        found.where("t is not null")
        .select("by", "t.*", event.alias("event"))
        .withColumnRenamed("message", "msg_id")
        .dropDuplicates(["msg_id", "by", "event", "hop_count", "time"])
    )


def _trails(told: DataFrame) -> DataFrame:
    """The reports of each message in the order of its way.

    Clocks differ, so hops are what counts. A router reports what it received and what it sent with the same number of hops, or
    with one less: whoever sends at a number comes before whoever only received.
    """
    here = Window.partitionBy("msg_id", "hop_count", "by")
    events = told.withColumn("is_sender", F.max(F.col("event") == "sent").over(here))
    listed = F.sort_array(F.collect_list(F.expr(f"struct({_EVENTS})")))
    picked = F.transform(
        listed,
        lambda e: F.struct(e["by"].alias("by"), e["event"], e["time"], e["next_hop"], e["hop_count"]),
    )
    return events.groupBy("msg_id").agg(picked.alias("hops"), F.max("target").alias("target"))


def _named_queues(rows: DataFrame) -> DataFrame:
    """One name for each queue: that of its own machine, also for messages that were not seen there."""
    known = (
        rows.where("seen_queue is not null and addressed is not null")
        .groupBy("addressed")
        .agg(F.min("seen_queue").alias("known_queue"))
    )
    # A machine that is known by one of its queues is known by the others, too.
    host = F.substring_index("addressed", "\\", 1)
    hosts = (
        known.select(host.alias("host"), F.substring_index("known_queue", "\\", 1).alias("known_host"))
        .groupBy("host")
        .agg(F.min("known_host").alias("known_host"))
    )
    joined = rows.join(F.broadcast(known), "addressed", "left").withColumn("host", host)
    joined = joined.join(F.broadcast(hosts), "host", "left")
    rest = F.expr("substring(addressed, length(host) + 1)")
    return joined.withColumn(
        "queue", F.coalesce("seen_queue", "known_queue", F.concat("known_host", rest), "addressed")
    ).drop("host", "known_host")


def run(context: Context) -> Result:
    observed = observations(context.lake.read(MESSAGES))
    return {"messages": context.make(NAME, lifecycle(observed))}


def main() -> None:
    submit(NAME, run)


if __name__ == "__main__":
    main()
