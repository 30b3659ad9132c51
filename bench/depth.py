"""A deep queue: its memory, and the time from a start to its first message.

    python -m bench.depth fill PATH COUNT    # send, report, then send until told to close or killed
    python -m bench.depth first PATH         # start, receive one message, report

Each command is a process of its own, because memory and start times belong to a process.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

from bench.machine import memory
from bench.ours import FILL_BATCH, WAIT, batches, recoverable
from bench.peers.rabbit import Rabbit
from bench.peers.redis import Redis
from lanner.client import QueueManager

QUEUE = r".\private$\deep"
UNDER_LOAD = 0.3  # seconds of sending before the kill


def fill(path: str, count: int) -> None:
    with QueueManager(path, name="DEEP") as manager:
        queue = manager.open(QUEUE)
        if not queue.exists():
            queue = manager.create_queue(QUEUE)
            # the memory for the first batch is not growth
            queue.send_many(recoverable() for _ in range(FILL_BATCH))
            queue.purge()
        before = memory()
        start = time.perf_counter()
        for size in batches(count, FILL_BATCH):
            queue.send_many(recoverable() for _ in range(size))
        rate = count / (time.perf_counter() - start)
        say({"fill, messages/s": rate} | growth(before, memory()))
        told = threading.Thread(target=sys.stdin.readline, daemon=True)
        told.start()
        while told.is_alive():
            queue.send_many(recoverable() for _ in range(10))


def first(path: str) -> None:
    with QueueManager(path, name="DEEP") as manager:
        manager.open(QUEUE).receive(WAIT)
        say({"VmRSS after restart, MiB": memory()["VmRSS"]})


def growth(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    found = {"VmRSS before, MiB": before["VmRSS"]}
    return found | {f"{name} growth, MiB": after[name] - before[name] for name in before}


def say(what: dict[str, float]) -> None:
    print(json.dumps(what), flush=True)


class Worker:
    """One of the two processes above, as the benchmark sees it."""

    def __init__(self, *arguments: str) -> None:
        self._started = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.depth", *arguments],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def hear(self) -> tuple[dict[str, float], float]:
        """Return its next report, and the seconds since it was started."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        seconds = time.perf_counter() - self._started
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with {self._process.wait()}")
        return json.loads(line), seconds

    def close(self) -> None:
        self._process.communicate("\n")

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()


def deep_lanner(directory: Path, count: int) -> dict[str, float]:
    """Measure: fill, close, start; then send again, kill, start.

    Memory is in MiB, times are in seconds from the start of the process.
    """
    path = str(directory / "deep")
    with Worker("fill", path, str(count)) as worker:
        figures, _ = worker.hear()
        worker.close()
    with Worker("first", path) as worker:
        said, seconds = worker.hear()
        worker.close()
    figures |= {"clean stop to first message, s": seconds} | said
    with Worker("fill", path, "1000") as worker:
        worker.hear()
        time.sleep(UNDER_LOAD)
        worker.kill()
    with Worker("first", path) as worker:
        _, figures["kill -9 to first message, s"] = worker.hear()
        worker.close()
    return figures


def deep_rabbit(rabbit: Rabbit, kind: str, count: int) -> dict[str, float]:
    queue = f"deep-{kind}"
    before = memory(rabbit.pid)
    figures = {"fill, messages/s": rabbit.rate("fill", kind, count, queue=queue, window=2000)}
    return figures | growth(before, memory(rabbit.pid)) | restarts(rabbit, queue)


def deep_redis(redis: Redis, count: int) -> dict[str, float]:
    before = memory(redis.pid)
    figures = {"fill, messages/s": redis.rate("fill", count, key="deep", window=2000)}
    return figures | growth(before, memory(redis.pid)) | restarts(redis, "deep")


def restarts(peer: Rabbit | Redis, queue: str) -> dict[str, float]:
    """Return the seconds from the start of the server to its first message."""
    figures = {}
    for how, number in (("clean stop", signal.SIGTERM), ("kill -9", signal.SIGKILL)):
        peer.stop(number)
        start = time.perf_counter()
        peer.launch()
        peer.wait_for_first(queue)
        figures[f"{how} to first message, s"] = time.perf_counter() - start
        figures["VmRSS after restart, MiB"] = memory(peer.pid)["VmRSS"]
    return figures


if __name__ == "__main__":
    if sys.argv[1] == "first":
        first(sys.argv[2])
    else:
        fill(sys.argv[2], int(sys.argv[3]))
