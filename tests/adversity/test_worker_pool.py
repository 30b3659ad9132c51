"""A pool of worker processes on one queue with poison messages and kills.

The queue manager and workers are killed. The effect of a message is a result that is sent in the
transaction that receives it. So there is exactly one result for each good message, whatever was
killed and whenever, including in-doubt commits.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lanner
from lanner.errors import LannerError
from tests.adversity.pool_worker import BAD
from tests.cli.conftest import LANNER, Served, free_address

ROOT = Path(__file__).parents[2]
WORKERS = 4
RETRIES = 3
GOOD = 400
POISON = 6
PASSWORD = "correct horse"
# A pool that needs longer than this is stuck.
LIMIT = 100.0


class Pool:
    """Queue manager and workers, each of which can be killed and started again."""

    def __init__(self, data: Path, log: Path, transport: str) -> None:
        self.data = data
        self.log = log
        self.address = free_address()
        self.target = [str(data)] if transport == "unix" else [self.address, "alice", PASSWORD]
        self.served: Served | None = None
        self.workers: list[subprocess.Popen[str]] = []
        with lanner.QueueManager(data, "ALPHA") as qm:
            for name in ("orders", "results"):
                qm.create_queue(name, transactional=True)
            messages = [lanner.Message(body=str(number), label="good") for number in range(GOOD)]
            # Between the good ones: at the head of the queue when the kills come.
            for number in range(POISON):
                messages.insert(1 + number * GOOD // POISON, lanner.Message(body=f"bad {number}", label=BAD))
            with qm.transaction() as unit:
                qm.open("orders").send_many(messages, transaction=unit)
            self.sent = {message.id: message.label for message in messages}
        subprocess.run(
            [LANNER, "user", "add", "alice", "--administrator", "--password-stdin", "--data", data],
            input=PASSWORD, text=True, check=True, capture_output=True,
        )  # fmt: skip

    def serve(self) -> None:
        self.served = Served("--data", self.data, "--bind", self.address, "--json")
        self.served.ready()

    def kill_server(self) -> None:
        assert self.served is not None
        self.served.process.kill()
        self.served.process.communicate()

    def start_worker(self) -> None:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tests.adversity.pool_worker", self.log, str(RETRIES), *self.target],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.workers.append(worker)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n", worker.communicate()[1]

    def begin(self, *workers: subprocess.Popen[str]) -> None:
        """Have workers begin, at once as far as that is possible."""
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("\n")
            worker.stdin.flush()

    def kill_worker(self) -> None:
        worker = self.workers.pop(0)
        worker.kill()
        worker.communicate()

    def ask(self, work: Callable[[lanner.QueueManager], int]) -> int:
        with lanner.connect(data=self.data) as qm:
            return work(qm)

    def results(self) -> int:
        return self.ask(lambda qm: qm.open("results").count())

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT
        while not is_so():
            assert time.monotonic() < deadline, self.lines()[-20:]
            time.sleep(0.02)

    def finish(self) -> list[dict[str, Any]]:
        """Wait until the queue is empty, end the workers, and return what they report."""
        self.wait_for(lambda: self.ask(lambda qm: qm.open("orders").count()) == 0)
        errors = []
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            _, err = worker.communicate(timeout=60)
            assert worker.returncode == 0, err
            errors.append(err)
        reports = [json.loads(line[2:]) for line in self.lines() if line.startswith("R ")]
        assert len(reports) == len(self.workers)
        return reports

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def failures(self) -> Counter[str]:
        return Counter(line[2:] for line in self.lines() if line.startswith("F "))

    def check(self) -> list[lanner.ReceivedMessage]:
        """Check what is in the queues, and return the poison messages."""
        good = {identifier for identifier, label in self.sent.items() if label != BAD}
        bad = self.sent.keys() - good
        with lanner.connect(data=self.data) as qm:
            results = Counter(message.label for message in qm.open("results"))
            poison = list(qm.open("orders;poison"))
            assert [queue.name for queue in qm.open("orders").subqueues()] == [r"ALPHA\private$\orders;poison"]
        assert results == dict.fromkeys(good, 1)
        assert Counter(message.id for message in poison) == dict.fromkeys(bad, 1)
        assert all(message.abort_count >= RETRIES for message in poison)
        handled = Counter(line[2:] for line in self.lines() if line.startswith("H "))
        assert handled.keys() == good
        return poison

    def close(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
            worker.communicate()
        if self.served is not None and self.served.process.poll() is None:
            self.kill_server()


@pytest.fixture(params=["unix", "tcp"])
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pool]:
    made = Pool(tmp_path / "data", tmp_path / "log", request.param)
    made.serve()
    try:
        for _ in range(WORKERS):
            made.start_worker()
        made.begin(*made.workers)
        yield made
    finally:
        made.close()


def test_a_pool_handles_everything_and_sets_poison_aside(pool: Pool) -> None:
    reports = pool.finish()
    pool.check()
    totals = Counter[str]()
    for report in reports:
        totals.update(report)
    assert totals == {"handled": GOOD, "retried": POISON * RETRIES, "poisoned": POISON, "in_doubt": 0}
    assert set(pool.failures().values()) == {RETRIES}


def test_a_pool_survives_kills_of_the_queue_manager(pool: Pool) -> None:
    for part in (1, 2, 3):
        pool.wait_for(lambda part=part: pool.results() >= part * GOOD // 4)  # type: ignore[misc]
        pool.kill_server()
        pool.serve()
    reports = pool.finish()
    pool.check()
    # An abort that was not durable yet is lost with the queue manager, and then the message is
    # tried once more.
    assert all(count >= RETRIES for count in pool.failures().values())
    handled, in_doubt = (sum(report[name] for report in reports) for name in ("handled", "in_doubt"))
    assert handled <= GOOD <= handled + in_doubt
    assert sum(report["poisoned"] for report in reports) <= POISON


def test_a_pool_survives_kills_of_workers(pool: Pool) -> None:
    """Fewer than `retries`, so that no good message is taken for poison."""
    for part in range(1, RETRIES):
        pool.wait_for(lambda part=part: pool.results() >= part * GOOD // RETRIES)  # type: ignore[misc]
        pool.kill_worker()
        pool.start_worker()
        pool.begin(pool.workers[-1])
    pool.finish()
    pool.check()
    # A killed worker has aborted what it had, without a failure.
    assert all(count <= RETRIES for count in pool.failures().values())


def test_a_pool_continues_when_the_queue_manager_was_stopped(pool: Pool) -> None:
    pool.wait_for(lambda: pool.results() >= GOOD // 2)
    assert pool.served is not None
    pool.served.process.send_signal(signal.SIGTERM)
    pool.served.process.communicate(timeout=60)
    with pytest.raises(LannerError):
        lanner.connect(data=pool.data)
    pool.serve()
    pool.finish()
    pool.check()
