"""audit: who sends to what, and how much of it is signed; and what the bodies are.

`audit` has a row for each sender, machine and queue: messages, how many were signed, verified where they arrived, encrypted, or came from
nobody (no sender named). `census` has a row for each queue and kind of body, told by its type and its first bytes: what a migration
will meet. `broken` are the rows that no program could read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from lanner.model.errors import RemoteProtocolError
from lanner.spark.jobs.session import Context, Result, submit
from lanner.spark.jobs.tables import DEAD_KINDS, MESSAGES, machine_names, named, observations
from lanner.wire.sid import Sid

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NAME: Final = "audit"
CENSUS: Final = "census"
BROKEN: Final = "broken"
# MS-MQMQ 2.2.20.6 ST.
_SID, _QUEUE_MANAGER = 1, 2
_SEEN: Final = "role in ('waiting', 'received', 'journaled', 'in_transit', 'dead')"


def _sid_text(raw: bytes | None) -> str | None:
    try:
        return None if raw is None else str(Sid.unpack(bytes(raw)))
    except RemoteProtocolError:
        return bytes(raw or b"").hex()


def audit(observed: DataFrame) -> DataFrame:
    """Senders and what they send to, each message once."""
    rank = F.when(F.col("role").isin("waiting", "received"), 2).when(F.col("role") == "dead", 1).otherwise(0)
    facts = (
        "sender_id",
        "sender_id_type",
        "src_machine_id",
        "dest_format_name",
        "is_signed",
        "priv_level",
        "sent_time",
    )
    # What was verified is known where it arrived.
    seen = observed.where(_SEEN)
    once = seen.groupBy("msg_id_text").agg(
        F.max_by(F.struct(*facts), F.struct(rank, F.col("qm_id"), F.col("queue"))).alias("m"),
        F.max("authenticated").alias("authenticated"),
    )
    grouped = (
        once.select("m.*", "authenticated")
        .groupBy("sender_id", "sender_id_type", "src_machine_id", F.col("dest_format_name").alias("queue"))
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.count(F.when(F.col("is_signed"), 1)).alias("signed"),
            F.sum("authenticated").alias("verified"),
            F.count(F.when(F.col("priv_level") != 0, 1)).alias("encrypted"),
            F.min("sent_time").alias("first_sent"),
            F.max("sent_time").alias("last_sent"),
        )
    )
    # The senders are few, so a function in Python is cheap now.
    name = (
        F.when(F.col("sender_id").isNull(), "nobody")
        .when(F.col("sender_id_type") == _SID, F.udf(_sid_text, "string", useArrow=False)("sender_id"))
        .when(F.col("sender_id_type") == _QUEUE_MANAGER, F.concat(F.lit("queue manager "), F.col("src_machine_id")))
        .otherwise(F.hex("sender_id"))
    )
    return grouped.withColumn("sender", name).drop("sender_id")


def formatter() -> Column:
    """What wrote a body, by its type and how it begins."""
    kind, start = F.col("body_type"), F.hex(F.substring("body", 1, 9))
    text = F.upper(F.hex(F.substring("body", 1, 1)))
    return (
        F.when(F.col("body_size") == 0, "empty")
        .when(kind == 8, "text (VT_BSTR)")
        .when(kind == 31, "text (VT_LPWSTR)")
        .when(kind == 30, "text (VT_LPSTR)")
        .when((kind == 768) | start.startswith("0001000000FFFFFFFF"), ".NET binary")
        .when(
            (kind == 0) & text.isin("3C", "EF"),
            F.when(F.col("extension").isNotNull(), "XML with headers").otherwise("XML"),
        )
        .when(kind == 0, "bytes")
        .otherwise(F.concat(F.lit("VARIANT "), kind.cast("string")))
    )


def census(messages: DataFrame) -> DataFrame:
    """Kinds of bodies by queue, of messages of the business; each message once."""
    normal = messages.where((F.col("class") == 0) | F.col("queue_kind").isin(*DEAD_KINDS)).where("packet_error is null")
    once = normal.dropDuplicates(["msg_id_text"])
    return once.groupBy(F.col("dest_format_name").alias("queue"), formatter().alias("formatter")).agg(
        F.count(F.lit(1)).alias("messages"), F.sum("body_size").alias("bytes"), F.max("body_size").alias("largest")
    )


def broken(messages: DataFrame) -> DataFrame:
    """What could not be read, by place and reason."""
    return (
        messages.where("packet_error is not null")
        .groupBy("qm_name", "queue", "packet_error")
        .agg(F.countDistinct(F.coalesce(F.sha2("packet", 256), F.lit(""))).alias("messages"))
    )


def run(context: Context) -> Result:
    messages = context.lake.read(MESSAGES)
    observed = observations(messages)
    rows = context.make(NAME, named(audit(observed), machine_names(observed), "src_machine_id", "source"))
    context.make(CENSUS, census(messages))
    return {"rows": rows, "broken": context.make(BROKEN, broken(messages))}


def main() -> None:
    submit(NAME, run)


if __name__ == "__main__":
    main()
