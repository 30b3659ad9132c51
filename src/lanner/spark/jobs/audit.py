"""audit: who sends to which queue, how much is signed, and what the bodies are.

`audit` has a row for each sender, machine and queue, from seen messages and from events: how many
messages there were, and how many were signed, verified on arrival, or encrypted. Messages without a
sender are those of "nobody". `census` has a row for each queue and kind of body, by body type and
first bytes: the input of a migration. Bodies of messages that were gone before they could be read
are `not seen`. `broken` has the packets that could not be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from lanner.model.errors import RemoteProtocolError
from lanner.spark.jobs.session import Context, Result, submit
from lanner.spark.jobs.tables import MESSAGES
from lanner.wire.sid import Sid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME: Final = "audit"
CENSUS: Final = "census"
BROKEN: Final = "broken"
# Messages known only from events or acknowledgments.
NOT_SEEN: Final = "not seen"
# MS-MQMQ 2.2.20.6 ST.
_SID, _QUEUE_MANAGER = 1, 2


def _sid_text(raw: bytes | None) -> str | None:
    try:
        return None if raw is None else str(Sid.unpack(bytes(raw)))
    except RemoteProtocolError:
        return bytes(raw or b"").hex()


def audit(messages: DataFrame) -> DataFrame:
    """Return the senders of the messages of `lifecycle`, with the queues they send to."""
    grouped = (
        messages.where("sender_id_type is not null or sent_time is not null")
        .groupBy("sender_id", "sender_id_type", "source_id", "source", "queue")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.count(F.when(F.col("is_signed"), 1)).alias("signed"),
            F.sum(F.coalesce("authenticated", F.lit(0))).alias("verified"),
            F.count(F.when(F.col("is_encrypted"), 1)).alias("encrypted"),
            F.min("sent_at").alias("first_sent"),
            F.max("sent_at").alias("last_sent"),
        )
    )
    # There are few senders, so a Python function is cheap here.
    name = (
        F.when(F.col("sender_id").isNull(), "nobody")
        .when(F.col("sender_id_type") == _SID, F.udf(_sid_text, "string", useArrow=False)("sender_id"))
        .when(F.col("sender_id_type") == _QUEUE_MANAGER, F.concat(F.lit("queue manager "), F.col("source")))
        .otherwise(F.hex("sender_id"))
    )
    return grouped.withColumn("sender", name).drop("sender_id")


def census(messages: DataFrame) -> DataFrame:
    """Return the kinds of bodies by queue, of the messages of `lifecycle`."""
    return messages.groupBy("queue", F.coalesce("formatter", F.lit(NOT_SEEN)).alias("formatter")).agg(
        F.count(F.lit(1)).alias("messages"), F.sum("body_size").alias("bytes"), F.max("body_size").alias("largest")
    )


def broken(messages: DataFrame) -> DataFrame:
    """Return the unreadable packets, by place and reason."""
    return (
        messages.where("packet_error is not null")
        .groupBy("qm_name", "queue", "packet_error")
        .agg(F.countDistinct(F.coalesce(F.sha2("packet", 256), F.lit(""))).alias("messages"))
    )


def run(context: Context) -> Result:
    messages = context.lake.read("lifecycle")
    rows = context.make(NAME, audit(messages))
    context.make(CENSUS, census(messages))
    return {"rows": rows, "broken": context.make(BROKEN, broken(context.lake.sightings(MESSAGES)))}


def main() -> None:
    submit(NAME, run)


if __name__ == "__main__":
    main()
