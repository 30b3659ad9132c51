"""Writes and streams on a real Spark, also through kill -9 of the whole application.

Nothing is lost, duplicated or left behind.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lanner.client import Message, QueueManager
from tests.spark.flight.test_reading import fill
from tests.spark.small import SPARK_ENVIRONMENT
from tests.spark.source.killed_driver import POINTS, to_files, to_queue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGES = 600


def bodies(qm: QueueManager, name: str) -> list[bytes]:
    return [message.body_bytes for message in qm.open(name)]


def received(spark: SparkSession, address: str, queue: str, **options: str) -> DataFrame:
    given = {"managers": address, "user": "root", "queues": queue, "mode": "receive", "reader": "r"}
    return spark.readStream.format("msmq").options(**given | options).load()


def test_a_dataframe_is_written_and_a_write_with_an_id_once(
    qm: QueueManager, address: str, spark: SparkSession
) -> None:
    qm.create_queue("q", transactional=True)
    frame = spark.range(100).selectExpr("cast(cast(id as string) as binary) as body", "'l' as label", "'q' as queue")
    for _ in range(2):
        writer = frame.write.format("msmq").options(managers=address, user="root", writeId="once")
        writer.mode("append").save()
    assert bodies(qm, "q") == [b"%d" % number for number in range(100)]
    assert {message.label for message in qm.open("q")} == {"l"}
    bad = frame.withColumn("lable", frame.label).write.format("msmq").options(managers=address, user="root")
    with pytest.raises(Exception, match="there is no column 'lable' to write; the nearest is 'label'"):
        bad.mode("append").save()
    with pytest.raises(Exception, match=r'use mode\("append"\)'):
        frame.write.format("msmq").options(managers=address, user="root").mode("overwrite").save()


def test_available_now_to_parquet_leaves_nothing_and_continues_where_it_was(
    qm: QueueManager, address: str, spark: SparkSession, tmp_path: Path
) -> None:
    queue = qm.create_queue("q")
    for first in (0, 250):
        queue.send_many([Message(body=b"%d" % number, recoverable=True) for number in range(first, first + 250)])
        frame = received(spark, address, "q", maxMessagesPerTrigger="100", columns="body,seq")
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        assert query.awaitTermination(100)
        assert query.exception() is None
        assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [100, 100, 50]
        assert queue.count() == 0
    found = spark.read.parquet(str(tmp_path / "out")).orderBy("seq").collect()
    assert [bytes(row.body) for row in found] == [b"%d" % number for number in range(500)]


def test_a_stream_runs_stops_and_runs_again(
    qm: QueueManager, address: str, spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("in", "out"):
        qm.create_queue(name)
    for run in range(2):
        fill(qm, "in", 50)
        writer = received(spark, address, "in").select("body", "label").writeStream.format("msmq")
        options = {"managers": address, "user": "root", "queue": "out", "checkpointLocation": str(tmp_path)}
        query = writer.options(**options).start()
        query.processAllAvailable()
        if run:
            fill(qm, "in", 25)
            query.processAllAvailable()
        query.stop()
        assert query.exception() is None
    assert bodies(qm, "out") == [b"%d" % number for count in (50, 50, 25) for number in range(count)]
    assert qm.open("in").count() == 0


def test_a_stream_that_fails_says_why(qm: QueueManager, address: str, spark: SparkSession, tmp_path: Path) -> None:
    query = received(spark, address, "nowhere").writeStream.format("noop").start()
    with pytest.raises(Exception, match="there is no queue nowhere on ALPHA"):
        query.awaitTermination(60)


# kill -9
# --------------------------------------------------------------------------------------------------


def driver(address: str, directory: Path, point: str) -> subprocess.Popen[bytes]:
    local = directory / "local"
    local.mkdir(exist_ok=True)
    # A killed process does not clean up: all of it goes into the test's directory.
    places = {"SPARK_LOCAL_DIRS": str(local), "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={local}", "TMPDIR": str(local)}
    environment = {**os.environ, **SPARK_ENVIRONMENT, **places}
    command = [sys.executable, "-m", "tests.spark.source.killed_driver", address, str(directory), point]
    return subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def told(errors: bytes) -> str:
    """Return the error, without the places in Java where it occurred."""
    return "\n".join(line for line in errors.decode().splitlines() if not line.strip().startswith("at "))[-6000:]


def send(qm: QueueManager, first: int, last: int) -> None:
    for name in ("first", "second"):
        messages = [Message(body=b"%d" % number, label="l", recoverable=True) for number in range(first, last)]
        qm.open(name).send_many(messages)


def prepare(qm: QueueManager) -> None:
    for name in ("first", "second"):
        qm.create_queue(name)
    qm.create_queue("target", transactional=True)
    send(qm, 0, MESSAGES)


def finish(spark: SparkSession, qm: QueueManager, address: str, directory: Path, sent: int = MESSAGES) -> None:
    """Run both streams to their ends, with the real source, and look."""
    for writer in (to_files, to_queue):
        query = writer(spark, address, directory).trigger(availableNow=True).start()
        assert query.awaitTermination(250)
        assert query.exception() is None
    everything = sorted(b"%d" % number for number in range(sent))
    rows = spark.read.parquet(str(directory / "parquet")).select("body").collect()
    assert sorted(bytes(row.body) for row in rows) == everything, "queue to Parquet: lost or doubled"
    assert sorted(bodies(qm, "target")) == everything, "queue to queue: lost or doubled"
    assert (qm.open("first").count(), qm.open("second").count()) == (0, 0)


def run_until_killed(address: str, directory: Path, point: str) -> None:
    process = driver(address, directory, point)
    _, errors = process.communicate(timeout=110)
    assert process.returncode == -9, told(errors)


@pytest.mark.timeout(300)
def test_killed_at_a_named_point(qm: QueueManager, address: str, spark: SparkSession, tmp_path: Path) -> None:
    """The driver is killed at the point where duplicates are most likely.

    Each run of a driver takes time. The other points are for `make soak`, and for test_kill.py
    without Spark.
    """
    prepare(qm)
    run_until_killed(address, tmp_path, "after publish")
    assert len(bodies(qm, "target")) < MESSAGES, "it was killed on its way"
    finish(spark, qm, address, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("point", POINTS)
def test_killed_again_and_again_at_one_point(
    qm: QueueManager, address: str, spark: SparkSession, tmp_path: Path, point: str
) -> None:
    prepare(qm)
    for _ in range(3):
        run_until_killed(address, tmp_path, point)
    finish(spark, qm, address, tmp_path)


@pytest.mark.soak
def test_killed_at_twenty_random_moments(qm: QueueManager, address: str, spark: SparkSession, tmp_path: Path) -> None:
    prepare(qm)
    chance, sent = random.Random(5), MESSAGES
    for _ in range(20):
        process = driver(address, tmp_path, "never")
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        # Always something under way: a batch takes some tenths of a second.
        until = time.monotonic() + chance.uniform(1, 9)
        while time.monotonic() < until and process.poll() is None:
            send(qm, sent, sent + 40)
            sent += 40
            time.sleep(0.1)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        _, errors = process.communicate()
        assert process.returncode == -9, told(errors)
    finish(spark, qm, address, tmp_path, sent)
