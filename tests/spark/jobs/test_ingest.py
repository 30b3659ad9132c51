"""ingest: queues and files of packets go into the table `messages`.

Each message gets there once, whatever happens in between.
"""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from demo.generated_queues import fill
from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.errors import LannerError
from lanner.spark.flight.server import FlightListener
from lanner.spark.flight.settings import FlightSettings
from lanner.spark.jobs import compact, ingest, lifecycle, throughput
from lanner.spark.jobs.config import ConfigError
from lanner.spark.jobs.lake import Lake, NoTable
from lanner.spark.jobs.progress import Progress
from lanner.spark.jobs.tables import EVENTS, MESSAGES, observations
from tests.client.conftest import no_keys
from tests.spark.jobs.worlds import Ingested, context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANNER_PASSWORD", "secret")


def test_every_sighting_is_a_row(business: Ingested) -> None:
    frame = business.context.lake.read(MESSAGES)
    world = business.world
    kept = sum(s.machine is world.restored and s.time <= world.backup_at for s in world.sightings)
    assert business.rows == frame.count() == len(world.sightings) + kept
    assert frame.where("packet_error is not null").count() in (world.broken, world.broken + 1, world.broken + 2)
    assert {row.qm_name for row in frame.select("qm_name").distinct().collect()} == {m.name for m in world.machines}


def test_each_message_is_observed_once_in_each_queue_although_a_machine_was_restored(business: Ingested) -> None:
    found = observations(business.context.lake.read(MESSAGES))
    roles = {row["role"]: row["count"] for row in found.groupBy("role").count().collect()}
    messages = business.truth["messages"]
    assert roles == {
        "received": sum("received" in m["known"] for m in messages),
        "journaled": sum("journaled" in m["known"] for m in messages),
        "waiting": sum("waiting" in m["known"] for m in messages),
        "dead": sum("dead" in m["known"] for m in messages),
        "ack": sum(len(m["acks"]) for m in messages),
        "report": sum(len(m["reports"]) for m in messages),
    }


def test_what_was_read_is_not_read_again_and_what_is_new_is(
    spark: SparkSession, tmp_path: Path, business: Ingested
) -> None:
    paths = sorted((business.context.config._base / "packets").glob("*.packets"))[:4]
    packets = tmp_path / "packets"
    packets.mkdir()
    for path in paths[:2]:
        shutil.copy(path, packets)
    made = context(spark, tmp_path, ingest={"packet_files": "packets"})
    first = ingest.run(made)["messages"]
    assert first > 0
    assert ingest.run(made)["messages"] == 0
    shutil.copy(paths[2], packets)
    (packets / "cut.packets").write_bytes(paths[3].read_bytes()[:200])
    second = ingest.run(made)["messages"]
    frame = made.lake.read(MESSAGES)
    assert frame.count() == first + second
    [bad] = frame.where("packet_error like '%cut short%'").select("packet_error").collect()
    assert "cut.packets" in bad.packet_error


def test_a_batch_that_is_written_again_replaces_itself(business: Ingested, tmp_path: Path) -> None:
    rows = business.context.lake.read(MESSAGES).drop("date", "batch").limit(50)
    lake = Lake(rows.sparkSession, str(tmp_path))
    for number in (1, 1, 2):
        ingest.write_batch(rows, lake, MESSAGES, "a", number)
    assert lake.read(MESSAGES).count() == 100


@pytest.mark.parametrize("mode", ["peek", "receive"])
def test_queues_of_a_queue_manager_become_rows_once(
    spark: SparkSession, qm: QueueManager, address: str, tmp_path: Path, mode: str
) -> None:
    orders = qm.create_queue("orders", journal=True)
    qm.create_queue("acks")
    for number in range(20):
        orders.send(
            Message(body=f"{number}", acknowledge="full_receive", administration_queue="acks", recoverable=True)
        )
    orders.receive_many(12)
    orders.send(Message(body="late", time_to_be_received=0, use_dead_letter_queue=True))
    orders.close()  # a pipeline that receives wants the queue to itself
    source = {"managers": [address], "user": "root"}
    made = context(spark, tmp_path, source=source, ingest={"mode": mode, "queues": ["*", "*;journal", "system$;*"]})
    assert ingest.run(made) == {"messages": 8 + 12 + 12 + 1, "events": 0}
    left = 0 if mode == "receive" else 8
    assert orders.count() == left
    orders.send(Message(body="new"))
    # A receive by the pipeline is a receive: it is journaled, and acknowledged, and both are read
    # in their turn.
    assert ingest.run(made)["messages"] == (1 if mode == "peek" else 1 + 8 + 8)
    found = observations(made.lake.read(MESSAGES))
    roles = {row["role"]: row["count"] for row in found.groupBy("role").count().collect()}
    assert (roles["received"], roles["ack"], roles["dead"]) == ((12, 12, 1) if mode == "peek" else (20, 20, 1))
    assert roles["waiting"] == 9


def test_patterns_that_find_nothing_are_reported(
    spark: SparkSession, qm: QueueManager, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead letters that a user may not read must not look like there were none."""
    qm.create_queue("orders").grant("alice", "peek", "get-properties")
    monkeypatch.setenv("PASSWORD_OF_ALICE", "wonder")
    told = {}
    for user, variable in (("alice", "PASSWORD_OF_ALICE"), ("root", "LANNER_PASSWORD")):
        monkeypatch.setenv("LANNER_PASSWORD", "secret")
        source = {"managers": [address], "user": user, "password_env": variable}
        out = io.StringIO()
        job = replace(context(spark, tmp_path, source=source), progress=Progress("ingest", out))
        ingest.manager_stream(job, address, ("*", "*;*", "system$;*", "bills*"), {})
        told[user] = out.getvalue().splitlines()[1:]
    assert told == {
        "alice": [
            "ingest: ALPHA: system$;* finds no queue that alice may read",
            "ingest: ALPHA: bills* finds no queue that alice may read",
        ],
        "root": ["ingest: ALPHA: bills* finds no queue that root may read"],
    }


def test_a_queue_manager_and_files_of_its_packets_give_the_same(
    spark: SparkSession, start: Callable[..., QueueManager], accounts: Path, tmp_path: Path, business: Ingested
) -> None:
    """Journals, dead-letter, administration and report queues: over Flight and from files."""
    name = business.world.machines[0].name
    qm = start(name)
    shutil.copy(accounts, runtime_of(qm).users.path)
    count = fill(business.world, qm)
    with FlightListener(runtime_of(qm), FlightSettings(port=0)) as service:
        made = context(spark, tmp_path, source={"managers": [service.address], "user": "root"})
        assert ingest.run(made) == {"messages": count, "events": 0}
    columns = (
        "role",
        "class",
        "msg_id_text",
        "correlation_text",
        "arrived_time",
        "abort_count",
        "subqueue",
        "body_sha256",
    )
    found = observations(made.lake.read(MESSAGES)).select(*columns).collect()
    told = observations(business.context.lake.read(MESSAGES)).where(f"qm_name = '{name}'").select(*columns).collect()
    assert {tuple(row) for row in found} == {tuple(row) for row in told}
    assert {row["role"] for row in found} >= {"received", "journaled", "dead", "ack", "report"}


def test_a_restored_queue_manager_is_read_again_and_counted_once(
    spark: SparkSession, start: Callable[..., QueueManager], accounts: Path, tmp_path: Path
) -> None:
    qm = start()
    shutil.copy(accounts, runtime_of(qm).users.path)
    qm.create_queue("orders").send_many(Message(body=f"{n}", recoverable=True) for n in range(5))

    def read(manager: QueueManager) -> dict[str, Any]:
        with FlightListener(runtime_of(manager), FlightSettings(port=0)) as service:
            source = {"managers": [service.address], "user": "root"}
            return ingest.run(context(spark, tmp_path, source=source, ingest={"queues": ["orders"]}))

    assert read(qm)["messages"] == 5
    runtime_of(qm).store.backup(tmp_path / "copy")
    shutil.copy(accounts, tmp_path / "copy" / accounts.name)
    qm.open("orders").send(Message(body="lost", recoverable=True))
    assert read(qm)["messages"] == 1
    qm.close()
    with QueueManager(tmp_path / "copy", "ALPHA", dns_domain="example.com", public_keys=no_keys) as restored:
        restored.open("orders").send(Message(body="after", recoverable=True))
        assert read(restored)["messages"] == 6
    assert observations(context(spark, tmp_path).lake.read(MESSAGES)).count() == 7


def test_events_become_rows_and_throughput_knows_what_no_journal_has(
    spark: SparkSession, start: Callable[..., QueueManager], accounts: Path, tmp_path: Path
) -> None:
    qm = start(events=True)
    shutil.copy(accounts, runtime_of(qm).users.path)
    orders = qm.create_queue("orders")
    orders.send_many(Message(body=f"{n}", recoverable=True) for n in range(10))
    orders.receive_many(6)
    orders.move(orders.peek(0).lookup_id, "aside")
    orders.send(Message(body="late", time_to_be_received=0))
    with FlightListener(runtime_of(qm), FlightSettings(port=0)) as service:
        source = {"managers": [service.address], "user": "root"}
        made = context(spark, tmp_path, source=source, ingest={"queues": ["orders", "orders;*"]})
        # 10 and the late one arrived, 6 were received, one was moved, one expired.
        assert ingest.run(made) == {"messages": 4, "events": 11 + 6 + 1 + 1}
        assert ingest.run(made) == {"messages": 0, "events": 0}
    lifecycle.run(made)

    def check() -> None:
        throughput.run(made)
        rows = made.lake.read("throughput").collect()
        assert {row["queue"] for row in rows} == {r"DIRECT=OS:ALPHA\private$\orders"}
        assert [sum(row[name] for row in rows) for name in ("arrived", "received", "failed")] == [11, 6, 1]

    check()
    # A second time what was there: as if compaction had been killed before it deleted the old
    # files.
    events = made.lake.read(EVENTS)
    ingest.write_batch(events.drop("date", "batch").localCheckpoint(), made.lake, EVENTS, "again", 1)
    check()
    # What lifecycle has not read is not compacted.
    few = context(spark, tmp_path, compact={"files": 1})
    assert compact.run(few) == {"rewritten": 0, "deleted": 0}
    lifecycle.run(made)
    assert compact.run(few) == {"rewritten": 1, "deleted": 0}
    assert len(few.lake.files(EVENTS, "date=*/qm_name=*/batch=*/*.parquet")) == 1
    assert few.lake.read(EVENTS).count() == 11 + 6 + 1 + 1
    check()
    [left] = made.lake.read("backlog").collect()
    assert left["depth"] == orders.count() + orders.subqueue("aside").count() == 4


def test_a_clock_that_is_set_back_brings_no_message_back(
    spark: SparkSession, start: Callable[..., QueueManager], accounts: Path, tmp_path: Path
) -> None:
    qm = start(events=True)
    shutil.copy(accounts, runtime_of(qm).users.path)
    orders, bills = qm.create_queue("orders"), qm.create_queue("bills", transactional=True)
    orders.send_many(Message(label=label, recoverable=True) for label in ("received", "purged", "moved"))
    with qm.transaction() as unit:
        bills.send(Message(label="aborted"), transaction=unit)
    runtime_of(qm).engine.clocks.wall = lambda: time.time() - 3600
    assert orders.receive().label == "received"
    unit = qm.transaction()
    bills.receive(transaction=unit)
    unit.abort()
    orders.move(next(message.lookup_id for message in orders if message.label == "moved"), "aside")
    orders.purge()
    with FlightListener(runtime_of(qm), FlightSettings(port=0)) as service:
        source = {"managers": [service.address], "user": "root"}
        made = context(spark, tmp_path, source=source, ingest={"queues": ["orders", "orders;*", "bills"]})
        ingest.run(made)
    lifecycle.run(made)
    rows = made.lake.read("lifecycle").collect()
    assert len(rows) == 4
    assert {(row["status"], row["subqueue"], row["abort_count"]) for row in rows} == {
        ("purged", None, 0),
        ("received", None, 0),
        ("waiting", None, 1),
        ("waiting", "aside", 0),
    }


def test_errors_say_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing to read; give source.managers"):
        ingest.run(context(spark, tmp_path))
    with pytest.raises(NoTable, match="run the job ingest first"):
        context(spark, tmp_path).lake.read(MESSAGES)
    away = {"managers": ["127.0.0.1:1"], "retry_seconds": 0}
    with pytest.raises(LannerError, match=r"127\.0\.0\.1:1"):
        ingest.run(context(spark, tmp_path, source=away))
