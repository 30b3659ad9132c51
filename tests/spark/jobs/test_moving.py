"""replay, migrate and compact: messages and rows go to another place, each once."""

from __future__ import annotations

import datetime as dt
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from lanner.client import Message, Queue, QueueManager
from lanner.spark.jobs import compact, ingest, lifecycle, migrate, replay
from lanner.spark.jobs.config import ConfigError, ReplayConfig
from lanner.spark.jobs.lake import Lake
from lanner.spark.jobs.session import Context, JobFailed
from lanner.spark.jobs.tables import EVENTS, MESSAGES, observations
from tests.spark.jobs.worlds import Ingested, context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Made = Callable[..., Context]


@pytest.fixture
def made(spark: SparkSession, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """The context of a job for the queue manager of the test."""
    monkeypatch.setenv("LANNER_PASSWORD", "secret")
    source = {"managers": [address], "user": "root", "retry_seconds": 0}

    def make(**sections: object) -> Context:
        return context(spark, tmp_path, source=source, **sections)

    return make


def bodies(qm: QueueManager, queue: str) -> list[bytes | str]:
    return sorted(message.body for message in qm.open(queue))


def die(qm: QueueManager, queue: str, *texts: str, **properties: Any) -> None:  # noqa: ANN401 (of a message)
    """Create messages that were not received in time, in the dead-letter queue."""
    wanted = qm.dead_letter.count() + len(texts)
    for text in texts:
        qm.open(queue).send(
            Message(body=text, label=f"label {text}", time_to_be_received=0, use_dead_letter_queue=True, **properties)
        )
    expired(qm.dead_letter, wanted)


def expired(dead_letters: Queue, count: int) -> None:
    """Wait for dead letters.

    Messages expire when the timers run, which may be after a commit.
    """
    deadline = time.monotonic() + 30
    while dead_letters.count() < count:
        assert time.monotonic() < deadline, "they have not expired"
        time.sleep(0.005)


# Replay


def test_dead_letters_go_back_by_filter_after_a_dry_run_and_once(qm: QueueManager, made: Made) -> None:
    for name in ("orders", "invoices"):
        qm.create_queue(name)
    die(qm, "orders", "a", "b", "c", app_specific=7)
    die(qm, "invoices", "x")
    wanted = {"destinations": [r"*\orders"], "time_to_be_received": 3600, "classes": ["NACK_RECEIVE_TIMEOUT"]}
    dry = made(replay=wanted)
    assert replay.run(dry) == {"would send": 3, "plans resumed": 0}
    assert bodies(qm, "orders") == []
    assert qm.dead_letter.count() == 4
    send = made(replay=wanted | {"send": True})
    assert replay.run(send)["sent"] == 3
    assert bodies(qm, "orders") == ["a", "b", "c"]
    copy = qm.open("orders").peek(timeout=0)
    assert (copy.label, copy.app_specific, copy.time_to_be_received) == ("label a", 7, 3600)
    assert bodies(qm, "invoices") == []
    # What dies later is sent later, and what was sent stays sent.
    die(qm, "orders", "d")
    assert replay.run(send)["sent"] == 1
    assert (bodies(qm, "orders"), bodies(qm, "invoices")) == (["a", "b", "c", "d"], [])


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, "abc"),
        ({"labels": ["FIRST *"]}, "a"),
        ({"labels": ["first *", "second?"]}, "ab"),
        ({"labels": ["first"]}, ""),
        ({"destinations": ["*;x", r"direct=os:m\q"]}, "ab"),
        ({"classes": ["nack_purged"]}, "b"),
        ({"since": "2026-03-02T10:01:00Z"}, "bc"),
        ({"since": "2026-03-02T10:01:00Z", "until": "2026-03-02T10:02:00Z"}, "b"),
    ],
)
def test_filters(spark: SparkSession, conditions: dict[str, Any], expected: str) -> None:
    rows = [
        ("a", r"DIRECT=OS:M\q", "First one", 0x8000, 0, None),
        ("b", r"DIRECT=OS:M\q", "second2", 0x8001, 1, None),
        ("c", r"DIRECT=OS:M\q2", None, 0x8000, 2, None),
        ("d", None, "First", 0x8000, 0, None),
        ("e", r"DIRECT=OS:M\q", "First", 0x8000, 0, "broken"),
    ]
    values = ", ".join(
        "('"
        + name
        + "', "
        + ("null" if to is None else "r'" + to + "'")
        + ", "
        + ("null" if label is None else f"'{label}'")
        + f", {number}, timestamp '2026-03-02 10:0{minute}:00Z', "
        + ("null" if error is None else f"'{error}'")
        + ")"
        for name, to, label, number, minute, error in rows
    )
    frame = spark.sql(
        f"select * from values {values} as t(name, dest_format_name, label, class, arrived_time, packet_error)"
    )
    found = replay.chosen(frame, ReplayConfig.model_validate(conditions))
    assert "".join(sorted(row["name"] for row in found.collect())) == expected


@pytest.mark.parametrize("point", ["before it was sent", "before it was marked"])
def test_a_replay_that_was_killed_is_ended_by_the_next_run(
    qm: QueueManager, made: Made, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    qm.create_queue("orders", transactional=True)
    with qm.transaction() as unit:
        for text in ("a", "b"):
            message = Message(body=text, time_to_be_received=0, use_dead_letter_queue=True)
            qm.open("orders").send(message, transaction=unit)
    expired(qm.transactional_dead_letter, 2)
    send = made(replay={"send": True, "time_to_be_received": 60})

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if point == "before it was sent":
            patch.setattr("lanner.spark.jobs.replay._Replayer._send", killed)
        else:
            patch.setattr(Lake, "touch", killed)
        with pytest.raises(KeyboardInterrupt):
            replay.run(send)
    assert replay.run(send) == {"sent": 0, "plans resumed": 1}
    assert replay.run(send) == {"sent": 0, "plans resumed": 0}
    assert bodies(qm, "orders") == ["a", "b"]


def test_a_queue_that_is_gone_does_not_stop_the_others(qm: QueueManager, made: Made) -> None:
    for name in ("gone", "orders"):
        qm.create_queue(name)
        die(qm, name, name)
    qm.delete_queue("gone")
    send = made(replay={"send": True, "time_to_be_received": 60})
    with pytest.raises(JobFailed, match=r"(?s)gone.*is tried again by the next run"):
        replay.run(send)
    assert bodies(qm, "orders") == ["orders"]
    qm.create_queue("gone")
    assert replay.run(send) == {"sent": 0, "plans resumed": 1}
    assert bodies(qm, "gone") == ["gone"]


def test_a_class_that_is_none_is_named(qm: QueueManager, made: Made) -> None:
    with pytest.raises(ConfigError, match="there is no class TIMEOUT; there are NACK_BAD_DEST_QUEUE"):
        replay.run(made(replay={"classes": ["TIMEOUT"]}))


# Migrate


@pytest.mark.parametrize("mode", ["peek", "receive"])
def test_a_queue_becomes_files(qm: QueueManager, made: Made, tmp_path: Path, mode: str) -> None:
    qm.create_queue("orders").send_many(Message(body=f"{n}", recoverable=True) for n in range(6))
    target = made(migrate={"queues": ["orders"], "to": "parquet", "path": "archive", "mode": mode})
    assert migrate.run(target) == {"messages": 6}
    assert migrate.run(target) == {"messages": 0}
    rows = target.spark.read.parquet(str(tmp_path / "archive"))
    assert sorted(row["body_text"] for row in rows.collect()) == [f"{n}" for n in range(6)]
    assert qm.open("orders").count() == (6 if mode == "peek" else 0)


def test_a_queue_becomes_a_table_of_a_database_once(qm: QueueManager, made: Made, tmp_path: Path) -> None:
    qm.create_queue("orders").send_many(Message(body=f"{n}", label=f"l{n}", recoverable=True) for n in range(6))
    url = f"jdbc:derby:{tmp_path / 'database'};create=true"
    columns = "msg_id_text,label,body,body_text,sent_time,priority,first_in_xact"
    target = made(migrate={"queues": ["orders"], "to": "jdbc", "url": url, "table": "orders", "columns": columns})
    # The database would write its log where the tests run.
    java: Any = target.spark._jvm
    java.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    assert migrate.run(target) == {"messages": 6}
    # The job was killed after it had written, and before its checkpoint said so.
    [commit] = (tmp_path / "lake" / "_checkpoints" / "migrate").rglob("commits/0")
    commit.unlink()
    qm.open("orders").send(Message(body="late", label="l9", recoverable=True))
    migrate.run(target)
    rows = target.spark.read.format("jdbc").options(url=url, dbtable="orders").load().collect()
    assert sorted(row["label"] for row in rows) == ["l0", "l1", "l2", "l3", "l4", "l5", "l9"]
    assert {bytes(row["body"]).decode("utf-16-le") for row in rows} == {*"012345", "late"}


def test_kafka_says_what_it_needs(qm: QueueManager, made: Made) -> None:
    qm.create_queue("orders")
    with pytest.raises(ConfigError, match=r"give its jar, with spark\.jars\.packages"):
        migrate.run(made(migrate={"queues": ["orders"], "to": "kafka", "servers": "x:9092", "topic": "t"}))


# Compact


def test_many_small_files_become_one_and_old_days_go(spark: SparkSession, business: Ingested, tmp_path: Path) -> None:
    packets = tmp_path / "packets"
    packets.mkdir()
    job = context(spark, tmp_path, ingest={"packet_files": "packets"}, compact={"files": 2, "keep_days": 30})
    machine = business.world.restored.name
    for path in sorted((business.context.config._base / "packets").glob(f"{machine}-*.packets"))[:5]:
        shutil.copy(path, packets)
        ingest.run(job)
    before = {tuple(row) for row in observed(job)}
    assert len(job.lake.files(MESSAGES, "date=*/qm_name=*/batch=*/*.parquet")) == 5
    today = dt.date(2026, 3, 10)
    assert compact.run(job, today) == {"rewritten": 1, "deleted": 0}
    assert len(job.lake.files(MESSAGES, "date=*/qm_name=*/batch=*/*.parquet")) == 1
    assert {tuple(row) for row in observed(job)} == before
    assert job.lake.read(MESSAGES).count() >= len(before)
    assert compact.run(job, today) == {"rewritten": 0, "deleted": 0}
    # A second time what was there: as if it had been killed before it deleted the old files.
    for number in (1, 2):
        ingest.write_batch(job.lake.read(MESSAGES).drop("date", "batch"), job.lake, MESSAGES, "again", number)
    assert {tuple(row) for row in observed(job)} == before
    assert compact.run(job, today) == {"rewritten": 1, "deleted": 0}
    assert {tuple(row) for row in observed(job)} == before
    for day in ("2026-03-02", "2026-04-30"):
        job.lake.touch(f"{job.lake.path(EVENTS)}/date={day}/qm_name=ALPHA/batch=1/part.parquet")
    assert compact.run(job, dt.date(2026, 5, 1)) == {"rewritten": 0, "deleted": 2}
    assert [path.rpartition("=")[2] for path in job.lake.files(EVENTS, "date=*")] == ["2026-04-30"]


# The second path has the name of the table in it, too.
@pytest.mark.parametrize("lake", ["lake", "messages/lake"])
def test_what_is_ingested_while_files_are_compacted_stays(
    spark: SparkSession, business: Ingested, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: str
) -> None:
    job = context(spark, tmp_path, lake={"path": lake}, compact={"files": 1})
    rows = business.context.lake.read(MESSAGES).where("packet_error is null").limit(9).drop("date", "batch")
    rows = rows.withColumns({"qm_name": F.lit("ALPHA"), "arrived_time": F.lit(dt.datetime(2026, 3, 2, tzinfo=dt.UTC))})
    rows = rows.withColumn("msg_id_text", F.concat(F.lit("x\\"), F.monotonically_increasing_id())).localCheckpoint()
    for number in range(2):
        ingest.write_batch(rows.withColumn("queue", F.lit(f"queue {number}")), job.lake, MESSAGES, "batch", number)

    def files(tables: Lake, table: str, pattern: str = "*") -> list[str]:
        monkeypatch.undo()
        ingest.write_batch(rows.withColumn("queue", F.lit("late")), job.lake, MESSAGES, "late", 0)
        return tables.files(table, pattern)

    monkeypatch.setattr(Lake, "files", files)
    assert compact.run(job) == {"rewritten": 1, "deleted": 0}
    counted = {row["queue"]: row["count"] for row in job.lake.read(MESSAGES).groupBy("queue").count().collect()}
    assert counted == {"queue 0": 9, "queue 1": 9, "late": 9}


def test_what_lifecycle_has_not_read_yet_is_not_compacted(
    spark: SparkSession, business: Ingested, tmp_path: Path
) -> None:
    job = context(spark, tmp_path, compact={"files": 1})
    rows = business.context.lake.read(MESSAGES).where("class = 0 and queue_kind = 'destination'")
    rows = rows.drop("date", "batch").limit(1)
    rows = rows.withColumns({"qm_name": F.lit("ALPHA"), "arrived_time": F.lit(dt.datetime(2026, 3, 2, tzinfo=dt.UTC))})

    def write(*numbers: int) -> None:
        for number in numbers:
            one = rows.withColumn("msg_id_text", F.lit(f"x\\{number}"))
            ingest.write_batch(one, job.lake, MESSAGES, "batch", number)

    write(0, 1)
    assert lifecycle.run(job) == {"messages": 2}
    write(2, 3)
    assert compact.run(job) == {"rewritten": 1, "deleted": 0}
    names = {row["batch"].partition("-")[0]: row["count"] for row in batches(job)}
    assert names == {"compact": 2, "batch": 2}
    assert lifecycle.run(job) == {"messages": 4}
    assert compact.run(job) == {"rewritten": 1, "deleted": 0}
    assert {row["batch"].partition("-")[0] for row in batches(job)} == {"compact"}


def batches(job: Context) -> list[Any]:
    kinds = F.substring_index("batch", "-", 1).alias("batch")
    return list(job.lake.read(MESSAGES).groupBy(kinds).count().collect())


def observed(job: Context) -> list[Any]:
    columns = ("qm_id", "queue", "msg_id_text", "class", "seq", "role")
    return list(observations(job.lake.read(MESSAGES)).select(*columns).collect())
