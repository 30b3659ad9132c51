"""lifecycle: a row for each message, from all that queues and event logs record about it.

Times from events are in milliseconds, all others in whole seconds. The columns:

msg_id, label, source(_id), destination(_id), queue
    the message; names of machines, and the queue as its own machine names it
known_by
    the origin of the facts: `events`, `messages` or `both`
sent_time
    from the message, in whole seconds. `sent_time` and `sent_at` are by the clock of the sender,
    all other times by the clock of the machine that observed the event
sent_at, sent_by
    the time in milliseconds and `event`, if an event has it; else `sent_time` and `message`
left_time
    when its sender had transferred it, from an event
hops
    the trace reports, in order: by, event, time, next_hop, hop_count
stops
    the queue managers on its way, its source first: from reports, else from events, else source
    and destination
arrived_time, arrived_by
    in its queue: `event`, else `queue` (seen there), `acknowledgment`, or `report`
received_time, received_by
    `event`, else `journal` of the queue, or `acknowledgment`
journaled_time
    when it was copied into the journal of its sender
failed_class, failed_time, failed_at, failed_by
    why it was not received: refused, expired or purged; `failed_by` is `event` or `acknowledgment`
nack_class, nack_time
    a negative acknowledgment
dead_class, dead_time, dead_at
    when and why it was copied to a dead-letter queue
status
    the last known state: dead_lettered, expired, purged, refused, received, waiting, arrived,
    in_transit or sent
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from lanner.model.enums import MessageClass
from lanner.spark.jobs.facts import PROPERTIES, addressed, own_queue, queue_names
from lanner.spark.jobs.session import Context, Result, submit
from lanner.spark.jobs.tables import named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NAME: Final = "lifecycle"
_TIMEOUTS: Final = tuple(
    int(member)
    for member in (
        MessageClass.NACK_REACH_QUEUE_TIMEOUT,
        MessageClass.NACK_RECEIVE_TIMEOUT,
        MessageClass.NACK_RECEIVE_TIMEOUT_AT_SENDER,
    )
)
_PURGES: Final = tuple(
    int(member)
    for member in (MessageClass.NACK_PURGED, MessageClass.NACK_QUEUE_DELETED, MessageClass.NACK_QUEUE_PURGED)
)
# Events with which a message leaves its queue.
_ENDS: Final = ("received", "expired", "purged")
_STATUS: Final = f"""
    case when dead_class is not null then 'dead_lettered'
         when failed_class in {_TIMEOUTS} then 'expired'
         when failed_class in {_PURGES} then 'purged'
         when failed_class is not null then 'refused'
         when received_time is not null then 'received'
         when is_waiting then 'waiting'
         when arrived_time is not null then 'arrived'
         when is_outgoing then 'in_transit'
         else 'sent' end
"""
COLUMNS: Final = (
    "msg_id",
    "status",
    "known_by",
    "source",
    "destination",
    "queue",
    "subqueue",
    "source_id",
    "destination_id",
    *PROPERTIES,
    "size",
    "abort_count",
    "move_count",
    "sent_at",
    "sent_by",
    "left_time",
    "hops",
    "stops",
    "arrived_time",
    "arrived_by",
    "received_time",
    "received_by",
    "journaled_time",
    "failed_class",
    "failed_time",
    "failed_at",
    "failed_by",
    "ack_classes",
    "nack_class",
    "nack_time",
    "dead_class",
    "dead_time",
    "dead_at",
)


def lifecycle(found: DataFrame, names: DataFrame, known: DataFrame | None = None) -> DataFrame:
    """Return one row for each message of `facts.facts`.

    `names` has the names of machines, from `tables.machine_names`. `known` has the names of queues,
    from `facts.queue_names`; without it, they are computed from `found`.
    """
    rows = found.withColumn("e_last", _last())
    rows = rows.select("*", *_properties(), *_sent(), _hops().alias("hops"))
    rows = rows.withColumns(
        {
            "journaled_time": F.coalesce("e_journaled", "journaled_time"),
            "dead_class": F.coalesce("e_dead.reason", "dead_class"),
            "dead_time": F.coalesce("e_dead.time", "dead_time"),
            "dead_at_id": F.coalesce("e_dead.qm_id", "dead_at_id"),
            "abort_count": F.coalesce("abort_count", F.lit(0)),
        }
    )
    end = F.element_at("hops", -1)
    is_end = (F.size("hops") > 0) & (end["event"] == "received")
    is_local = F.col("e_last").isNotNull()
    is_received = F.col("e_last.event") == "received"
    rows = rows.select(
        "*",
        F.substring_index("msg_id", "\\", 1).alias("source_id"),
        F.coalesce(
            "e_arrived.qm_id",
            "e_last.qm_id",
            "e_refused.qm_id",
            "seen_at",
            "arrival_told_by",
            "receive_told_by",
            F.when(is_end, end["by"]),
        ).alias("destination_id"),
        addressed(),
        *_first("arrived", ("event", "e_arrived.time"), ("queue", "waiting_time"),
                ("acknowledgment", "arrival_told_time"), ("report", F.when(is_end, end["time"]))),
        # The last event in its queue decides: a copy in a journal may come from a receive that was
        # undone.
        *_first("received", ("event", F.when(is_received, F.col("e_last.time"))),
                ("journal", F.when(~is_local, F.col("journal_time"))),
                ("acknowledgment", F.when(~is_local, F.col("receive_told_time")))),
        (F.col("waiting_time").isNotNull() | is_local).alias("is_waiting"),
    )  # fmt: skip
    rows = rows.select("*", _failure().alias("f"))
    rows = _named_queues(rows, queue_names(found) if known is None else known).selectExpr(
        "*", "f.reason as failed_class", "f.time as failed_time", "f.qm_id as failed_at_id", "f.by as failed_by"
    )
    rows = rows.withColumn("status", F.expr(_STATUS)).withColumn("stops", _stops())
    for identifier, name in (
        ("source_id", "source"),
        ("destination_id", "destination"),
        ("dead_at_id", "dead_at"),
        ("failed_at_id", "failed_at"),
    ):
        rows = named(rows, names, identifier, name)
    return rows.select(*COLUMNS)


def _last() -> Column:
    """Return the last event of a message in a queue.

    Numbers of a log are in the right order even if the clock was set back meanwhile. They are not
    if the store was restored, and those of different queue managers cannot be compared. So by
    number a later event counts, unless by time the message has left its queue.
    """
    same = [F.col(f"e_newest.{name}").alias(name) for name in ("time", "seq", "event", "qm_id", "queue", "reason")]
    has_ended = F.col("e_last.event").isin(*_ENDS) | (F.col("e_last.qm_id") != F.col("e_newest.qm_id"))
    return F.when(has_ended | F.col("e_newest").isNull(), F.col("e_last")).otherwise(F.struct(*same))


def _properties() -> list[Column]:
    """Return the properties of the message itself, else those of its first event."""
    by_event = {"sent_time", "priority", "delivery", "acknowledge", "is_transactional"}
    # The signature is verified where the message arrives; a copy in an outgoing queue does not show
    # the result.
    of_sender = {"sender_id", "sender_id_type", "is_signed", "is_encrypted"}
    found = []
    for name in PROPERTIES:
        if name in by_event | of_sender:
            found.append(F.coalesce(f"p.{name}", f"e_properties.{name}").alias(name))
        elif name == "authenticated":
            found.append(F.greatest("p.authenticated", "e_properties.authenticated").alias(name))
        else:
            found.append(F.col(f"p.{name}").alias(name))
    has_event, has_message = F.col("e_properties").isNotNull(), F.col("p").isNotNull()
    known = F.when(has_event & has_message, "both").when(has_event | F.col("e_last").isNotNull(), "events")
    return [*found, F.col("e_properties.size").alias("size"), known.otherwise("messages").alias("known_by")]


def _sent() -> list[Column]:
    by_event = F.col("e_sent").isNotNull()
    return [
        F.coalesce("e_sent", "p.sent_time", "e_properties.sent_time").alias("sent_at"),
        F.when(by_event, "event").when(F.coalesce("p.sent_time", "e_properties.sent_time").isNotNull(), "message")
        .alias("sent_by"),
        F.col("e_left").alias("left_time"),
    ]  # fmt: skip


def _first(name: str, *found: tuple[str, str | Column]) -> list[Column]:
    """Return the first time that is not null, and its origin."""
    times = [(word, F.col(time) if isinstance(time, str) else time) for word, time in found]
    by = F.when(times[0][1].isNotNull(), times[0][0])
    for word, time in times[1:]:
        by = by.when(time.isNotNull(), word)
    return [F.coalesce(*(time for _, time in times)).alias(f"{name}_time"), by.alias(f"{name}_by")]


def _failure() -> Column:
    """Return why a message was not received: time, qm_id, reason, by.

    Null if it was received, or may still be.
    """

    def of(name: str) -> Column:
        return F.struct(
            F.col(f"{name}.time").alias("time"),
            F.col(f"{name}.qm_id").alias("qm_id"),
            F.col(f"{name}.reason").alias("reason"),
            F.lit("event").alias("by"),
        )

    told = F.struct(
        F.col("nack_time").alias("time"),
        F.lit(None).cast("string").alias("qm_id"),
        F.col("nack_class").alias("reason"),
        F.lit("acknowledgment").alias("by"),
    )
    return (
        F.when(F.col("e_last.event").isin("expired", "purged"), of("e_last"))
        # It is in its queue, or was received there: nothing else counts.
        .when(F.col("e_last").isNotNull(), F.lit(None))
        .when(F.col("e_refused").isNotNull(), of("e_refused"))
        .when(F.col("e_out_failed").isNotNull(), of("e_out_failed"))
        .when(F.col("nack_class").isNotNull(), told)
        .when(F.col("e_concluded.reason") >= int(MessageClass.NACK_BAD_DEST_QUEUE), of("e_concluded"))
    )


def _hops() -> Column:
    """Return the reports of each message, in travel order.

    Clocks differ, so the order is by hop counts. A router reports both receiving and sending, with
    the same hop count or with one less. At one hop count, a machine that sent comes before a
    machine that only received.
    """
    ordered = F.expr(
        """array_sort(transform(reports, r -> struct(
               r.hop_count as hop_count,
               not exists(reports, o -> o.hop_count = r.hop_count and o.by = r.by and o.event = 'sent') as is_end,
               r.event = 'sent' as is_sent, r.time as time, r.by as by, r.event as event, r.next_hop as next_hop)))"""
    )
    picked = F.transform(
        ordered,
        lambda e: F.struct(e["by"].alias("by"), e["event"], e["time"], e["next_hop"], e["hop_count"]),
    )
    return F.when(F.size("reports") > 0, picked)


def _stops() -> Column:
    """Return the queue managers that a message passed: by, time."""
    # A machine that reports receiving and then sending is one stop, and leaves at the second
    # report.
    reported = F.expr(
        "transform(filter(hops, (h, i) -> i = size(hops) - 1 or h.by != hops[i + 1].by), "
        "h -> struct(h.by as by, h.time as time, h.next_hop as address))"
    )
    first = "struct(source_id as by, sent_at as time, cast(null as string) as address)"
    between = (
        "transform(filter(e_stops, s -> s.qm_id != source_id and s.qm_id != destination_id), "
        "s -> struct(s.qm_id as by, s.time as time, cast(null as string) as address))"
    )
    last = "struct(destination_id as by, arrived_time as time, cast(null as string) as address)"
    whole = F.expr(
        f"case when destination_id is not null and source_id != destination_id "
        f"then concat(array({first}), coalesce({between}, array()), array({last})) end"
    )
    return F.when(F.size("hops") > 1, reported).otherwise(whole)


def _named_queues(rows: DataFrame, known: DataFrame) -> DataFrame:
    """Return rows with one name for each queue: that of its own machine.

    It is also used for messages that were not seen there.
    """
    subqueue = F.when(F.col("e_last.queue").contains(";"), F.substring_index("e_last.queue", ";", -1))
    rows = rows.withColumn("own_queue", own_queue()).withColumn(
        "subqueue", F.when(F.col("e_last").isNotNull(), subqueue).otherwise(F.col("subqueue"))
    )
    # If one queue of a machine has a known name, so have its other queues.
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
        "queue", F.coalesce("own_queue", "known_queue", F.concat("known_host", rest), "addressed")
    ).drop("host", "known_host", "own_queue")


def run(context: Context) -> Result:
    from lanner.spark.jobs.state import advance

    advance(context)
    return {"messages": context.lake.read(NAME).count()}


def main() -> None:
    submit(NAME, run)


if __name__ == "__main__":
    main()
