"""kill -9 of the queue manager while a pipeline moves messages between two queues.

Nothing is lost or duplicated. The pipeline does what a stream of Spark does: it reads a range,
stages it under a new token, publishes it once per batch, writes the batch into its own log, and
acknowledges what the log says. It dies with the queue manager and begins again with its log.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.client import Message, QueueManager
from lanner.client.runtimes import operations_of, runtime_of
from lanner.errors import LannerError
from lanner.spark.columnar.events import EventSource
from lanner.spark.columnar.schema import RowSchema
from lanner.spark.flight.client import FlightQueues
from tests.client.conftest import no_keys

ROOT = Path(__file__).parents[3]
MESSAGES = 600
BATCH = 25


class Killed(Exception):
    """The queue manager was killed."""


@contextlib.contextmanager
def running(data: Path, port: int = 0) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.flight.killed_service", data, str(port)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().decode().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Pipeline:
    """A stream with a checkpoint.

    It has the offsets of batches that were begun, and the number of those that ended.
    """

    def __init__(self) -> None:
        self.offsets: list[tuple[int, int]] = []
        self.ended = 0

    def run(self, queues: FlightQueues, crash: str, process: subprocess.Popen[bytes]) -> bool:
        """Work until nothing is left, or until the queue manager dies at a crash point."""

        def at(point: str) -> None:
            if point == crash:
                process.send_signal(signal.SIGKILL)
                process.wait()
                raise Killed(point)

        lease = queues.acquire("source", "mover", take_over=True)
        while True:
            start = self.offsets[self.ended - 1][1] if self.ended else lease["start"]
            at("before acknowledge")
            queues.acknowledge("source", "mover", lease["fence"], start, lease["epoch"])
            at("after acknowledge")
            if self.ended == len(self.offsets):
                [part] = queues.poll([{"queue": "source", "after": start, "max_messages": BATCH}])
                if not part["messages"]:
                    return True
                self.offsets.append((start, part["upto"]))
            after, upto = self.offsets[self.ended]
            rows = queues.table("source", after=after, upto=upto, columns="body,label")
            staged = queues.stage(rows.to_batches(), rows.schema, writer="mover", batch=self.ended, queue="target")
            at("after stage")
            queues.publish("mover", self.ended, [staged["token"]])
            at("after publish")
            self.ended += 1


def fill(data: Path, accounts: Path) -> None:
    with QueueManager(data, name="ALPHA", public_keys=no_keys, events=True) as manager:
        shutil.copy(accounts, runtime_of(manager).users.path)
        source = manager.create_queue("source")
        source.send_many(Message(body=b"%d" % number, recoverable=True) for number in range(MESSAGES))


def check_events(manager: QueueManager, sent: int) -> None:
    """Assert that an event is in the log if and only if its change is on disk.

    Each arrival and each receive occurs once.
    """
    source = EventSource(operations_of(manager))
    after, upto, _ = source.bounds()
    rows = [row for batch in source.batches(after, upto, RowSchema.select_events()) for row in batch.to_pylist()]
    found = Counter((row["event"], row["queue"].rpartition("\\")[2], row["msg_id_text"]) for row in rows)
    assert set(found.values()) == {1}, "an event is there twice"
    assert Counter((event, queue) for event, queue, _ in found) == {
        ("arrived", "source"): sent,
        ("received", "source"): sent,
        ("arrived", "target"): sent,
    }
    assert {name for event, queue, name in found if queue == "target"} == {
        str(message.id) for message in manager.open("target")
    }


def check(data: Path, sent: int = MESSAGES) -> None:
    with QueueManager(data, name="ALPHA", public_keys=no_keys, events=True) as manager:
        check_events(manager, sent)
        assert manager.open("source").count() == 0
        moved = [int(message.body_bytes) for message in manager.open("target")]
        assert sorted(moved) == list(range(sent)), "something was lost or doubled"
        assert moved == list(range(sent)), "the order changed"
        with runtime_of(manager).lock:
            assert list(runtime_of(manager).store.table("stages").items()) == []


POINTS = ("before acknowledge", "after acknowledge", "after stage", "after publish")


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_named_point(tmp_path: Path, accounts: Path, point: str) -> None:
    data = tmp_path / "data"
    fill(data, accounts)
    pipeline = Pipeline()
    for crash in (point, "never"):
        with running(data) as (process, address), FlightQueues(address, user="root", password="secret") as queues:
            if crash == "never":
                assert pipeline.run(queues, crash, process)
            else:
                with pytest.raises(Killed):
                    pipeline.run(queues, crash, process)
    check(data)


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.soak)])
def test_killed_at_random_moments(tmp_path: Path, accounts: Path, kills: int) -> None:
    data = tmp_path / "data"
    fill(data, accounts)
    pipeline, chance = Pipeline(), random.Random(5)
    is_done = False
    for life in range(60):
        with running(data) as (process, address):
            timer = threading.Timer(chance.uniform(0.05, 0.35), process.kill)
            if life < kills:
                timer.start()
            try:
                with FlightQueues(address, user="root", password="secret") as queues:
                    is_done = pipeline.run(queues, "never", process)
            except LannerError:
                pass
            finally:
                timer.cancel()
        if is_done:
            break
    assert is_done
    check(data)
