"""kill -9 of Spark's Python workers, and of the queue manager under Spark.

Nothing is lost, duplicated or left behind.
"""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lanner.client import QueueManager
from lanner.spark.flight.client import FlightQueues
from tests.client.conftest import no_keys
from tests.spark.flight.test_kill import MESSAGES, check, fill, running
from tests.spark.source.killing_source import POINTS, KillingSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Messages in one batch.
AT_ONCE = 100


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def started(spark: SparkSession, address: str, place: Path, *, is_last: bool, **options: str) -> StreamingQuery:
    """The stream from source to target; the last one ends when it has read everything."""
    given = {"managers": address, "user": "root", **options}
    limits = {"mode": "receive", "reader": "mover", "queues": "source", "maxMessagesPerTrigger": str(AT_ONCE)}
    # A stream whose first batch is done again does not know that it is the one that held the queue.
    reading = {"columns": "body,label", "leaseSeconds": "2"}
    rows = spark.readStream.format("msmq").options(**given, **limits, **reading).load()
    writer = rows.writeStream.format("msmq").options(**given, queue="target")
    writer = writer.option("checkpointLocation", str(place / "checkpoint"))
    return (writer.trigger(availableNow=True) if is_last else writer).start()


def until_dead_or(query: StreamingQuery, is_over: Callable[[], bool]) -> None:
    """Wait until a query has ended, or something is so."""
    deadline = time.monotonic() + 90
    while query.isActive and not is_over():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)


def end(query: StreamingQuery) -> None:
    with contextlib.suppress(Exception):  # what it died of is no matter
        query.stop()


def kill_workers(spark: SparkSession, data: Path, place: Path, points: list[str]) -> None:
    """Kill a worker at each point in turn, and restart from the checkpoint each time."""
    # Under the name that every session knows: Spark looks for a sink in whichever session is the
    # active one.
    session = spark.newSession()
    session.dataSource.register(KillingSource)
    marks = place / "marks"
    marks.mkdir()
    with running(data) as (_, address):
        for point in points:
            mark = marks / point
            mark.touch()
            query = started(session, address, place, is_last=False, marks=str(marks))
            # Where a worker died the query may go on, or fail: it is as good as dead then.
            until_dead_or(query, lambda mark=mark: not mark.exists())  # type: ignore[misc]
            assert not mark.exists(), query.exception()
            mark.with_suffix(".died").unlink()
            end(query)
        query = started(session, address, place, is_last=True, marks=str(marks))
        assert query.awaitTermination(100)
        assert query.exception() is None


@pytest.mark.timeout(300)
def test_workers_are_killed(spark: SparkSession, accounts: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data, accounts)
    kill_workers(spark, data, tmp_path, ["in read", "after stage"])
    check(data)


@pytest.mark.soak
def test_workers_are_killed_at_every_point_again_and_again(spark: SparkSession, accounts: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data, accounts)
    kill_workers(spark, data, tmp_path, random.Random(5).sample([*POINTS] * 5, 20))
    check(data)


def kill_queue_manager(
    spark: SparkSession, data: Path, place: Path, kills: int, wait: Callable[[FlightQueues, int], None]
) -> None:
    """Kill the queue manager while a stream moves messages, and restart it.

    The stream continues or is restarted.
    """
    port = free_port()
    query: StreamingQuery | None = None
    for kill in range(kills + 1):
        with running(data, port) as (process, address):
            is_last = kill == kills
            if query is not None and (is_last or not query.isActive):
                end(query)
                query = None
            if query is None:
                query = started(spark, address, place, is_last=is_last, retrySeconds="60")
            if is_last:
                assert query.awaitTermination(100)
                assert query.exception() is None
            else:
                with FlightQueues(address, user="root", password="secret") as queues:
                    wait(queues, kill)
                process.kill()
                process.wait()


def moved(queues: FlightQueues) -> int:
    return int(queues.bounds("target")["messages"])


@pytest.mark.timeout(300)
def test_the_queue_manager_is_killed(spark: SparkSession, accounts: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data, accounts)

    def wait(queues: FlightQueues, kill: int) -> None:
        """Until some more batches have been moved."""
        before, deadline = moved(queues), time.monotonic() + 60
        while moved(queues) < min(before + (1 + kill) * AT_ONCE, MESSAGES):
            assert time.monotonic() < deadline, "nothing is moved"
            time.sleep(0.02)

    kill_queue_manager(spark, data, tmp_path, 2, wait)
    check(data)


@pytest.mark.soak
def test_the_queue_manager_is_killed_at_twenty_random_moments(
    spark: SparkSession, accounts: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    fill(data, accounts)
    chance, sent = random.Random(5), MESSAGES

    def wait(queues: FlightQueues, kill: int) -> None:
        """For a while in which messages keep coming, so that always something is under way."""
        nonlocal sent
        until, batch = time.monotonic() + chance.uniform(0.5, 4.0), 0
        while time.monotonic() < until:
            bodies = pa.array([b"%d" % number for number in range(sent, sent + 40)], pa.binary())
            rows = pa.RecordBatch.from_pydict({"body": bodies})
            staged = queues.stage([rows], rows.schema, writer=f"sender {kill}", batch=batch, queue="source")
            queues.publish(f"sender {kill}", batch, [staged["token"]])
            sent, batch = sent + 40, batch + 1
            time.sleep(0.1)

    kill_queue_manager(spark, data, tmp_path, 20, wait)
    check(data, sent)


def test_the_helpers_of_this_file_find_what_was_doubled(accounts: Path, tmp_path: Path) -> None:
    """A check that sees nothing proves nothing."""
    data = tmp_path / "data"
    fill(data, accounts)
    with pytest.raises(AssertionError):
        check(data)
    with QueueManager(data, name="ALPHA", public_keys=no_keys, events=True) as manager:
        target = manager.create_queue("target", transactional=True)
        messages = manager.open("source").receive_many(MESSAGES)
        with manager.transaction() as unit:
            target.send_many([message.copy() for message in messages], transaction=unit)
    check(data)
    with QueueManager(data, name="ALPHA", public_keys=no_keys, events=True) as manager, manager.transaction() as unit:
        manager.open("target").send(messages[0].copy(), transaction=unit)
    with pytest.raises(AssertionError):
        check(data)
