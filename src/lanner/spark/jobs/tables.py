"""The tables of the pipeline: contents of `messages` and `events`, and guarantees for other jobs.

`lake` reads and writes them. `messages` has a row for each time a message was seen in a queue, with
every column of `lanner.spark.columnar.schema`. It is partitioned by date (of arrival), qm_name and
batch. A batch is written as a whole, under a name that it keeps if it is written again. Even so a
message may appear several times: an aborted receive makes it visible again, a restored queue
manager shows its messages a second time, and a killed compaction leaves the files that it has
rewritten. So jobs that count messages must read `observations`, which has each message once for
each queue it was seen in.

`events` has the event logs of queue managers, partitioned in the same way. Jobs that count events
must read `each_once`. All other tables are made from these two, and replaced by each run of their
job.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 (the usual name)
from pyspark.sql.window import Window

from lanner.model.enums import MessageClass
from lanner.spark.columnar.schema import COLUMNS, EVENT_COLUMNS
from lanner.spark.columnar.schema import Column as SchemaColumn

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MESSAGES: Final = "messages"
EVENTS: Final = "events"
PARTITIONS: Final = ("date", "qm_name", "batch")


def _ddl(columns: Iterable[SchemaColumn]) -> str:
    named = ", ".join(f"`{column.name}` {column.ddl}" for column in columns if column.name != "qm_name")
    return f"{named}, `date` date, `qm_name` string, `batch` string"


# Tables that are never replaced. Their schemas are fixed, not taken from the first file.
SCHEMAS: Final = {MESSAGES: _ddl(COLUMNS), EVENTS: _ddl(EVENT_COLUMNS)}

DEAD_KINDS: Final = ("deadletter", "xact_deadletter")
# Classes of messages about another message; MS-MQMQ 2.2.18.1.6.
POSITIVE: Final = (MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE)
NEGATIVE: Final = tuple(member for member in MessageClass if member >= MessageClass.NACK_BAD_DEST_QUEUE)
# The columns that identify a message in a queue.
KEY: Final = ("qm_id", "queue", "subqueue", "msg_id_text", "class")
# The columns that identify an event. A restored queue manager reuses numbers.
EVENT_KEY: Final = ("qm_id", "seq", "event", "event_time")
# The columns that jobs need, without the body, which is most of a message's size.
_OBSERVED: Final = (
    "qm_id",
    "qm_name",
    "queue",
    "queue_kind",
    "subqueue",
    "seq",
    "msg_id_text",
    "correlation_text",
    "class",
    "class_name",
    "app_specific",
    "label",
    "sent_time",
    "arrived_time",
    "time_to_be_received",
    "priority",
    "delivery",
    "acknowledge",
    "journal",
    "trace",
    "hop_count",
    "abort_count",
    "move_count",
    "dest_format_name",
    "resp_format_name",
    "src_machine_id",
    "sender_id",
    "sender_id_type",
    "authenticated",
    "auth_level",
    "priv_level",
    "body_type",
    "body_size",
)


def each_once(events: DataFrame) -> DataFrame:
    """Return each event once."""
    return events.dropDuplicates(list(EVENT_KEY))


def observations(messages: DataFrame) -> DataFrame:
    """Return each message once for each queue, as it was last seen, with its role.

    Bodies are reduced to their hash. Roles: `waiting` in a queue, `received` (the copy in the
    journal of a queue; its arrived_time is when it was received), `journaled` (the copy at its
    sender), `in_transit`, `dead`; `ack` and `report` are messages about others.
    """
    latest = Window.partitionBy(*KEY).orderBy(F.desc("abort_count"), F.desc("move_count"), F.desc("seq"))
    found = messages.where("packet_error is null and msg_id_text is not null").select(
        *_OBSERVED,
        F.sha2("body", 256).alias("body_sha256"),
        F.substring("body", 1, 9).alias("body_start"),
        F.col("extension").isNotNull().alias("has_extension"),
        F.col("xact_id").isNotNull().alias("is_transactional"),
        F.col("signature").isNotNull().alias("is_signed"),
        F.when(F.col("class") == int(MessageClass.REPORT), F.col("body")).alias("report_body"),
        _role().alias("role"),
    )
    return found.withColumn("_place", F.row_number().over(latest)).where("_place = 1").drop("_place")


def _role() -> Column:
    kind, number = F.col("queue_kind"), F.col("class")
    about_others = number.isin([int(member) for member in (*POSITIVE, *NEGATIVE)])
    is_machine_journal = F.lower("queue").contains(r"\system$;")
    return (
        F.when(kind.isin(*DEAD_KINDS), "dead")
        .when(number == int(MessageClass.REPORT), "report")
        .when(about_others & F.col("correlation_text").isNotNull(), "ack")
        .when(number == int(MessageClass.ORDER_ACK), "internal")
        .when((kind == "journal") & is_machine_journal, "journaled")
        .when(kind == "journal", "received")
        .when(kind == "outgoing", "in_transit")
        .otherwise("waiting")
    )


def machine_names(*read: DataFrame) -> DataFrame:
    """Return the names of the queue managers whose messages or events were read, by identifier."""
    seen, *others = (frame.select("qm_id", "qm_name") for frame in read)
    for other in others:
        seen = seen.unionByName(other)
    return seen.groupBy(F.col("qm_id").alias("machine_id")).agg(F.max("qm_name").alias("machine"))


def named(frame: DataFrame, names: DataFrame, identifier: str, name: str) -> DataFrame:
    """Return the frame with a column for the name of a machine, or its identifier if unknown."""
    joined = frame.join(F.broadcast(names), F.col(identifier) == F.col("machine_id"), "left")
    return joined.withColumn(name, F.coalesce("machine", F.col(identifier))).drop("machine_id", "machine")


def seconds(later: str, earlier: str) -> Column:
    """Return the seconds between two times, as a number."""
    return F.unix_micros(F.col(later)) / 1e6 - F.unix_micros(F.col(earlier)) / 1e6
