"""Facts about each message from queues and event logs, in a form that can be merged.

Every row of `messages` and of `events` becomes a fact: a row with the message's identifier and with
values in some of the columns of `MERGE`. `merged` makes one row per message from any number of
facts. Each column is merged by an operation that does not depend on order or grouping, so merged
rows are facts themselves. New facts are merged with existing rows, and no fact is read twice.

Columns that begin with `e_` come from events and are exact to the millisecond. The others come from
messages, and from acknowledgments and reports about them; their times are whole seconds.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from lanner.model.enums import MessageClass
from lanner.spark.jobs.bodies import formatter
from lanner.spark.jobs.tables import NEGATIVE, POSITIVE
from lanner.transfer.tracing import parse_report

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

PROPERTIES: Final = (
    "label",
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
    "formatter",
    "sender_id",
    "sender_id_type",
    "authenticated",
    "is_signed",
    "is_encrypted",
)
# Those that events have, too.
_EVENT_PROPERTIES: Final = (
    "sent_time",
    "priority",
    "delivery",
    "acknowledge",
    "is_transactional",
    "sender_id",
    "sender_id_type",
    "authenticated",
    "is_signed",
    "is_encrypted",
    "size",
)
# Kinds of queues in which a message has arrived. In an outgoing queue it is still on its way.
REAL_KINDS: Final = ("destination", "subqueue", "admin", "report", "connector")
_OUTGOING_KINDS: Final = ("outgoing",)
# Events that say where a message is, or how it left its queue.
_IN_QUEUE: Final = ("arrived", "transferred_in", "received", "moved", "expired", "purged", "receive_aborted")

# The operation that merges each column: minimum, maximum (for structs by their first fields), or
# the set of all elements.
MERGE: Final = {
    # From the message itself, where it is or was stored.
    "p": "max",  # struct of rank, qm_id, queue and PROPERTIES
    "seen_at": "max",
    "seen_queue": "max",
    "subqueue": "max",
    "abort_count": "max",
    "move_count": "max",
    "waiting_time": "min",
    "journal_time": "min",
    "journaled_time": "min",
    "is_outgoing": "max",
    "dead_class": "min",
    "dead_time": "min",
    "dead_at_id": "max",
    # From acknowledgments.
    "ack_classes": "set",
    "arrival_told_time": "min",
    "arrival_told_by": "max",
    "receive_told_time": "min",
    "receive_told_by": "max",
    "nack_class": "min",
    "nack_time": "min",
    "told_queue": "max",
    # From reports.
    "reports": "set",
    "target": "max",
    # From events.
    "e_properties": "max",  # struct of rank and _EVENT_PROPERTIES
    "e_sent": "min",  # by the clock of its source
    "e_left": "min",
    "e_out_queue": "max",
    "e_arrived": "min",  # struct of time, qm_id, queue
    # Structs of the last event in a queue in which it had arrived: by time, and by number in the
    # log (`lifecycle` chooses).
    "e_last": "max",
    "e_newest": "max",
    "e_out_failed": "min",
    "e_refused": "min",
    "e_concluded": "max",
    "e_dead": "min",
    "e_journaled": "min",
    "e_stops": "set",
}
_ABOUT_OTHERS: Final = [int(member) for member in (*POSITIVE, *NEGATIVE)]
_INTERNAL: Final = [*_ABOUT_OTHERS, int(MessageClass.REPORT), int(MessageClass.ORDER_ACK)]
_ADDRESSED: Final = "coalesce(p.dest_format_name, e_out_queue, told_queue, target)"
_OWN_QUEUE: Final = "coalesce(seen_queue, e_arrived.queue, regexp_replace(e_last.queue, ';.*$', ''))"
_REPORT: Final = "message string, hop_count int, time timestamp, target string, next_hop string"


def facts(observed: DataFrame, events: DataFrame) -> DataFrame:
    """Return one row per message, from rows of `tables.observations` and from distinct events."""
    return merged(
        _of_messages(observed),
        _of_acknowledgments(observed),
        _of_reports(observed),
        _of_events(events),
        _of_acknowledgment_events(events),
    )


def merged(*found: DataFrame) -> DataFrame:
    """Return one row per message. The arguments are facts, or results of this function."""
    everything, *others = found
    for other in others:
        everything = everything.unionByName(other, allowMissingColumns=True)

    def union(name: str) -> Column:
        return F.array_sort(F.array_distinct(F.flatten(F.collect_list(name))))

    operations: dict[str, Callable[[str], Column]] = {"min": F.min, "max": F.max, "set": union}
    return everything.groupBy("msg_id").agg(*(operations[how](name).alias(name) for name, how in MERGE.items()))


def addressed() -> Column:
    """Return the name that a message has for its queue."""
    return F.expr(_ADDRESSED).alias("addressed")


def own_queue() -> Column:
    """Return the name that the queue of a message has on its own machine."""
    return F.expr(_OWN_QUEUE).alias("own_queue")


def queue_names(found: DataFrame) -> DataFrame:
    """Return the name of each queue on its own machine, by the name that messages have for it."""
    rows = found.select(own_queue(), addressed())
    known = rows.where("own_queue is not null and addressed is not null")
    return known.groupBy("addressed").agg(F.min("own_queue").alias("known_queue"))


def _when(condition: str | Column, value: str | Column) -> Column:
    condition = F.expr(condition) if isinstance(condition, str) else condition
    return F.when(condition, F.col(value) if isinstance(value, str) else value)


# Messages
# --------------------------------------------------------------------------------------------------


def _of_messages(observed: DataFrame) -> DataFrame:
    """Return facts from the contents of queues. The copy at the destination has most details."""
    rank = F.expr("case when role in ('waiting', 'received') then 2 when role = 'dead' then 1 else 0 end")
    here = "role in ('waiting', 'received')"
    seen = observed.where("role in ('waiting', 'received', 'journaled', 'in_transit', 'dead')")
    seen = seen.withColumn("formatter", formatter()).withColumn("is_encrypted", F.expr("priv_level != 0"))
    return seen.select(
        F.col("msg_id_text").alias("msg_id"),
        F.struct(rank.alias("rank"), "qm_id", "queue", *PROPERTIES).alias("p"),
        _when(here, "qm_id").alias("seen_at"),
        _when(here, F.regexp_replace("queue", ";.*$", "")).alias("seen_queue"),
        _when("role = 'waiting'", "subqueue").alias("subqueue"),
        "abort_count",
        "move_count",
        _when("role = 'waiting'", "arrived_time").alias("waiting_time"),
        _when("role = 'received'", "arrived_time").alias("journal_time"),
        _when("role = 'journaled'", "arrived_time").alias("journaled_time"),
        F.expr("role = 'in_transit'").alias("is_outgoing"),
        _when("role = 'dead'", "class").alias("dead_class"),
        _when("role = 'dead'", "arrived_time").alias("dead_time"),
        _when("role = 'dead'", "qm_id").alias("dead_at_id"),
    )


def _of_acknowledgments(observed: DataFrame) -> DataFrame:
    """Return facts from acknowledgments, by the message that they are about."""
    return _told(observed.where("role = 'ack'"), F.col("src_machine_id"), F.col("resp_format_name"))


def _told(found: DataFrame, by: Column, queue: Column) -> DataFrame:
    is_arrival = F.col("class") == int(MessageClass.ACK_REACH_QUEUE)
    is_receive = F.col("class") == int(MessageClass.ACK_RECEIVE)
    is_negative = F.col("class").isin([int(member) for member in NEGATIVE])
    return found.select(
        F.col("correlation_text").alias("msg_id"),
        F.array("class").alias("ack_classes"),
        _when(is_arrival, "sent_time").alias("arrival_told_time"),
        _when(is_arrival, by).alias("arrival_told_by"),
        _when(is_receive, "sent_time").alias("receive_told_time"),
        _when(is_receive, by).alias("receive_told_by"),
        _when(is_negative, "class").alias("nack_class"),
        _when(is_negative, "sent_time").alias("nack_time"),
        queue.alias("told_queue"),
    )


def _read_report(label: str | None, body: bytes | None) -> tuple[str, int, dt.datetime, str, str | None] | None:
    found = parse_report(label or "", bytes(body or b""))
    if found is None:
        return None
    message = f"{found.source_queue_manager}\\{found.message_ordinal}"
    return message, found.hops, found.time, found.target_queue, found.next_hop


def _of_reports(observed: DataFrame) -> DataFrame:
    """Return facts from trace reports: the message, the machine, the time and the next hop."""
    told = F.udf(_read_report, _REPORT, useArrow=False)
    found = observed.where("role = 'report'").select(
        F.col("src_machine_id").alias("by"), told("label", "report_body").alias("t")
    )
    event = F.expr("case when t.next_hop is null then 'received' else 'sent' end")
    told_of = F.struct(
        F.col("t.hop_count").alias("hop_count"), event.alias("event"), F.col("t.time").alias("time"), "by", "t.next_hop"
    )
    return found.where("t is not null").select(
        F.col("t.message").alias("msg_id"), F.array(told_of).alias("reports"), F.col("t.target").alias("target")
    )


# Events
# --------------------------------------------------------------------------------------------------


def of_programs(events: DataFrame) -> DataFrame:
    """Return the events of messages that programs sent.

    Events of acknowledgments, reports and protocol messages are left out, and those of messages
    whose transaction was aborted before they were sent.
    """
    about = ~F.col("class").isin(_INTERNAL) | (F.col("event") == "dead_lettered")
    return events.where(about & F.col("msg_id_text").isNotNull() & (F.col("event") != "send_aborted"))


def _of_events(events: DataFrame) -> DataFrame:
    """Return facts from the event logs about messages that programs sent. `events` are distinct."""
    found = of_programs(events)
    is_source = F.col("qm_id") == F.substring_index("msg_id_text", "\\", 1)
    is_real = F.col("queue_kind").isin(*REAL_KINDS)
    is_outgoing = F.col("queue_kind").isin(*_OUTGOING_KINDS)
    event = F.col("event")
    is_arrival = event.isin("arrived", "transferred_in")
    is_failure = event.isin("expired", "purged")
    own_queue = F.regexp_replace("queue", ";.*$", "")
    rank = F.when(is_real & is_arrival, 3).when(is_source, 2).otherwise(1)
    place = F.coalesce(_when("event = 'moved'", "target"), F.col("queue"))
    what = F.struct(F.col("event_time").alias("time"), "qm_id", "reason")
    is_last = is_real & event.isin(*_IN_QUEUE)
    last = ("event", "qm_id", place.alias("queue"), "reason")
    return found.select(
        F.col("msg_id_text").alias("msg_id"),
        _when(is_arrival | (event == "sent"), F.struct(rank.alias("rank"), *_EVENT_PROPERTIES)).alias("e_properties"),
        F.when(is_real, F.col("abort_count")).alias("abort_count"),
        _when(is_source & event.isin("sent", "arrived"), "event_time").alias("e_sent"),
        _when(is_source & (event == "transferred_out"), "event_time").alias("e_left"),
        _when(is_source & (event == "sent"), "queue").alias("e_out_queue"),
        _when(
            is_real & is_arrival, F.struct(F.col("event_time").alias("time"), "qm_id", own_queue.alias("queue"))
        ).alias("e_arrived"),
        _when(is_last, F.struct(F.col("event_time").alias("time"), "seq", *last)).alias("e_last"),
        _when(is_last, F.struct("seq", F.col("event_time").alias("time"), *last)).alias("e_newest"),
        _when(is_outgoing & is_failure, what).alias("e_out_failed"),
        _when(event == "refused", what).alias("e_refused"),
        _when(event == "concluded", what).alias("e_concluded"),
        _when(event == "dead_lettered", what).alias("e_dead"),
        _when((event == "journaled") & F.lower("queue").contains(r"\system$;"), "event_time").alias("e_journaled"),
        F.when(
            event.isin("sent", "arrived", "transferred_in"),
            F.array(F.struct(F.col("event_time").alias("time"), "qm_id")),
        ).alias("e_stops"),
    )


def _of_acknowledgment_events(events: DataFrame) -> DataFrame:
    """Return facts from arrivals of acknowledgments. Only the event may be left of them."""
    came = events.where(
        F.col("class").isin(_ABOUT_OTHERS)
        & F.col("correlation_text").isNotNull()
        & F.col("event").isin("arrived", "transferred_in")
        & F.col("queue_kind").isin(*REAL_KINDS)
    )
    return _told(came, F.substring_index("msg_id_text", "\\", 1), F.lit(None).cast("string"))
