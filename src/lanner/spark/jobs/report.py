"""report: the tables as one HTML page, `report.path`.

A section whose table does not exist yet is left out.
"""

from __future__ import annotations

import datetime as dt
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812

from lanner.spark.jobs.config import ConfigError
from lanner.spark.jobs.lake import Lake
from lanner.spark.jobs.latency import bucket
from lanner.spark.jobs.session import Context, Result, submit
from lanner.spark.jobs.tables import seconds as seconds_between
from lanner.spark.report import ReportData, Rows, render

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME: Final = "report"
# Not in the specification: points of the traffic plot, lines of a list, and messages that are
# listed individually.
_POINTS, _LINES, _LISTED = 180, 12, 5000
# Seconds that one point of the plot may represent.
_LENGTHS: Final = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    21_600,
    43_200,
    86_400,
    604_800,
    1 << 40,
)


def gather(lake: Lake, title: str, seconds: int = 60) -> ReportData:
    """Return the data of the page, aggregated by Spark.

    `seconds` is the length of the periods of `throughput`.
    """
    data = ReportData(title)
    messages = lake.read("lifecycle")
    data.status = {row["status"]: row["count"] for row in messages.groupBy("status").count().collect()}
    data.known_by = {row["known_by"]: row["count"] for row in messages.groupBy("known_by").count().collect()}
    first = messages.agg(
        F.min("sent_at").alias("first"),
        F.max("sent_at").alias("last"),
        F.sum("body_size").alias("bytes"),
        F.size(
            F.array_distinct(F.flatten(F.collect_set(F.array_compact(F.array("source_id", "destination_id")))))
        ).alias("machines"),
    ).collect()[0]
    data.first, data.last, data.bytes, data.machines = (
        first["first"],
        first["last"],
        first["bytes"] or 0,
        first["machines"],
    )
    data.cube_seconds = _length(data.first, data.last, 1)
    cube = messages.groupBy("queue", "status", bucket("sent_at", data.cube_seconds).alias("period"))
    data.cube = _rows(cube.agg(F.count(F.lit(1)).alias("messages")))
    data.messages = _list(messages)
    if lake.has("throughput"):
        data.queue_traffic = _queue_traffic(lake.read("throughput"), seconds)
        data.traffic = _traffic(lake.read("throughput"), seconds)
        data.backlog = _rows(lake.read("backlog").orderBy(F.desc("depth"), "queue").limit(_LINES))
    if lake.has("latency_by_queue"):
        found = lake.read("latency_by_queue").orderBy(F.desc("messages"), "queue")
        data.latency = _rows(found.limit(2 * _LINES))
        data.reference, data.skew = _skew(lake.read("clock_skew"))
        _take_off(data.messages, lake.read("clock_skew"))
    if lake.has("acks"):
        acks = lake.read("ack_summary")
        data.acks = _rows(acks.groupBy("queue", "outcome").agg(F.sum("messages").alias("messages")))
    data.reasons = _reasons(messages)
    if lake.has("routes"):
        data.routes = _routes(lake.read("routes"))
    if lake.has("poison"):
        data.poison = _rows(lake.read("poison").orderBy(F.desc("aborts"), "queue", "label").limit(_LINES))
    if lake.has("audit"):
        data.audit = _senders(lake.read("audit"))
        census = lake.read("census").groupBy("formatter")
        counted = census.agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"))
        data.census = _rows(counted.orderBy(F.desc("messages"), "formatter"))
        data.broken = sum(row["messages"] for row in lake.read("broken").collect())
    return data


def _rows(frame: DataFrame) -> Rows:
    return [row.asDict() for row in frame.collect()]


def _traffic(found: DataFrame, seconds: int) -> Rows:
    """Return the traffic of all queues together, in as many periods as the plot has points."""
    [edges] = found.agg(F.min("period").alias("first"), F.max("period").alias("last")).collect()
    if edges["first"] is None:
        return []
    length = _length(edges["first"], edges["last"], seconds)
    names = ("arrived", "received", "failed")
    grouped = found.groupBy(bucket("period", length).alias("period")).agg(*(F.sum(name).alias(name) for name in names))
    rows = _rows(grouped.orderBy("period"))
    return _filled(rows, length, names)


def _length(first: dt.datetime | None, last: dt.datetime | None, least: int) -> int:
    """Return the length in seconds of the periods that fit into the plot."""
    span = 0.0 if first is None or last is None else (last - first).total_seconds()
    return max(next(length for length in _LENGTHS if span / length <= _POINTS), least)


def _queue_traffic(found: DataFrame, seconds: int) -> Rows:
    """Return the traffic of each queue."""
    [edges] = found.agg(F.min("period").alias("first"), F.max("period").alias("last")).collect()
    period = bucket("period", _length(edges["first"], edges["last"], seconds))
    names = ("arrived", "received", "failed")
    return _rows(found.groupBy("queue", period.alias("period")).agg(*(F.sum(name).alias(name) for name in names)))


def _list(messages: DataFrame) -> Rows:
    """Return the messages that are most likely of interest: the failed ones, then the newest."""
    from lanner.spark.jobs.acks import reason

    has_failed = F.col("failed_class").isNotNull() | F.col("dead_class").isNotNull() | (F.col("abort_count") > 0)
    chosen = messages.orderBy(F.desc(F.coalesce(has_failed, F.lit(False))), F.desc("sent_at"), "msg_id").limit(_LISTED)
    is_one_clock = F.expr("(arrived_by = 'event') = (received_by = 'event')")
    sent = F.when(F.col("arrived_by") == "event", F.col("sent_at")).otherwise(F.col("sent_time"))
    return _rows(
        chosen.select(
            "label",
            "queue",
            "status",
            "source",
            "destination",
            "sent_at",
            (F.unix_micros("arrived_time") / 1e6 - F.unix_micros(sent) / 1e6).alias("way"),
            F.when(is_one_clock, seconds_between("received_time", "arrived_time")).alias("wait"),
            reason(F.coalesce("failed_class", "dead_class")).alias("reason"),
            "abort_count",
            "msg_id",
            F.expr("coalesce(sent_by = 'event' and arrived_by = 'event', false)").alias("is_exact_way"),
            F.expr("coalesce(arrived_by = 'event' and received_by = 'event', false)").alias("is_exact_wait"),
        )
    )


def _take_off(listed: Rows, skews: DataFrame) -> None:
    """Correct the transfer times of listed messages for the clock skew, as `latency` does."""
    ahead: dict[tuple[str, str], list[float]] = {}
    for row in skews.where("not is_step").select("name_a", "name_b", "skew_seconds").collect():
        ahead.setdefault((row["name_a"], row["name_b"]), []).append(row["skew_seconds"])
        ahead.setdefault((row["name_b"], row["name_a"]), []).append(-row["skew_seconds"])
    for message in listed:
        known = ahead.get((message["source"], message["destination"]))
        if known and message["way"] is not None:
            message["way"] = max(message["way"] - statistics.median(known), 0.0)


def _filled(rows: Rows, length: int, names: tuple[str, ...]) -> Rows:
    """Return rows for all periods, with zeros where nothing happened."""
    by_time = {int(row["period"].timestamp()): row for row in rows}
    if len(by_time) < 2 or (max(by_time) - min(by_time)) // length > 10 * _POINTS:
        return rows
    nothing: dict[str, Any] = dict.fromkeys(names, 0)
    return [
        by_time.get(time, {"period": dt.datetime.fromtimestamp(time, dt.UTC), **nothing})
        for time in range(min(by_time), max(by_time) + 1, length)
    ]


def _skew(found: DataFrame) -> tuple[str | None, Rows]:
    """Return the skew of each clock against a reference.

    The reference is the machine that exchanges messages with the most others.
    """
    both = found.selectExpr("name_a as one", "name_b as other", "skew_seconds as skew", "is_step", "method")
    both = both.unionByName(
        found.selectExpr("name_b as one", "name_a as other", "-skew_seconds as skew", "is_step", "method")
    )
    best = both.groupBy("one").agg(F.countDistinct("other").alias("n")).orderBy(F.desc("n"), "one").limit(1).collect()
    if not best:
        return None, []
    reference = best[0]["one"]
    grouped = (
        both.where(F.col("one") == reference)
        .groupBy(F.col("other").alias("machine"))
        .agg(
            F.coalesce(
                F.expr("percentile(skew, 0.5) filter (where not is_step and method = 'two-way')"),
                F.expr("percentile(skew, 0.5) filter (where not is_step)"),
                F.expr("percentile(skew, 0.5)"),
            ).alias("skew_seconds"),
            # If a clock was adjusted, its hourly skew values also differ widely.
            (F.max("is_step") | (F.expr("max(skew) - min(skew)") > 1800)).alias("is_step"),
        )
    )
    return reference, _rows(grouped.orderBy("machine"))


def _reasons(messages: DataFrame) -> Rows:
    from lanner.spark.jobs.acks import reason

    failed = messages.withColumn("class", F.coalesce("failed_class", "dead_class")).where("class is not null")
    named = failed.withColumn("reason", F.coalesce(reason("class"), F.hex("class")))
    return _rows(named.groupBy("reason").agg(F.count(F.lit(1)).alias("messages")).orderBy(F.desc("messages"), "reason"))


def _routes(found: DataFrame) -> Rows:
    """Return the steps of all messages."""
    steps = found.where("kind = 'step'")
    return _rows(steps.orderBy(F.desc("messages"), "source", "destination").limit(5 * _LINES))


def _senders(found: DataFrame) -> Rows:
    grouped = found.groupBy("sender", "source").agg(
        F.countDistinct("queue").alias("queues"),
        *(F.sum(name).alias(name) for name in ("messages", "signed", "verified", "encrypted")),
    )
    return _rows(grouped.orderBy(F.desc(F.col("messages") - F.col("signed")), "sender", "source").limit(_LINES))


def run(context: Context) -> Result:
    config = context.config
    path = config.resolve(config.report.path)
    if "://" in path:
        raise ConfigError(f"report.path {path}: a path on this machine expected")
    page = render(gather(context.lake, config.report.title, config.throughput.bucket_seconds))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(page, encoding="utf-8")
    context.progress.say(f"{path}: {len(page) // 1024} KiB")
    return {"report": path}


def main() -> None:
    submit(NAME, run)


if __name__ == "__main__":
    main()
