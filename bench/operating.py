"""Operating costs: start times of commands, console pages of deep queues, open consoles.

    python -m bench.operating [--messages N] [--rounds N] [--seconds S]
                              [--only start|pages|consoles]

All measurements use one `lanner serve` on a loopback address.

    start      `lanner --help` and `lanner queue list`, each in a process of its own,
               compared to `python -c pass`
    pages      the first page of a queue with N messages and of one with 10, requested in turn;
               the ratio of the 95th percentiles
    consoles   durable messages per second with five consoles open and polling, and with none, in
               alternating rounds: each console has the stream of the overview open, and requests
               the overview page every five seconds
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import httpx

import lanner
from bench.machine import facts
from lanner.security.users import USER_FILE, UserFile

ADDRESS = "127.0.4.17"
URL = f"http://{ADDRESS}:15801"
PASSWORD = "a word for the benchmark"
LANNER = Path(sys.executable).with_name("lanner")
CONSOLES = 5
BATCH = 1000
_FEW = 10
_PERCENT_95 = 0.95


@contextlib.contextmanager
def service(data: Path) -> Iterator[lanner.QueueManager]:
    """Run a queue manager; yield a connection to it."""
    data.mkdir(mode=0o700)
    UserFile(data / USER_FILE).add("alice", PASSWORD, administrator=True)
    command = [str(LANNER), "serve", "--json", "--data", str(data), "--name", "BENCH", "--bind", ADDRESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            if process.stdout is None or not process.stdout.readline():
                raise SystemExit("lanner serve does not start")
            with lanner.connect(data=data) as manager:
                yield manager
        finally:
            process.terminate()


def starts(data: Path, rounds: int) -> None:
    """Print the median durations of commands."""
    commands: dict[str, list[str | Path]] = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "lanner --help": [LANNER, "--help"],
        "lanner queue list": [LANNER, "queue", "list", "--data", data],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            begun = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - begun)
    print("\n| Command | median s | 95th percentile s |\n|---|---|---|")
    for name, found in times.items():
        print(f"| `{name}` | {statistics.median(found):.3f} | {percentile(found):.3f} |")


def percentile(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * _PERCENT_95))]


def log_on() -> httpx.Client:
    """Return an HTTP client with a session cookie."""
    # The first request starts the HTTP process.
    form = {"user": "alice", "password": PASSWORD, "next": "/"}
    answer = httpx.post(f"{URL}/login", data=form, trust_env=False, timeout=60.0)
    if answer.status_code != httpx.codes.SEE_OTHER:
        raise SystemExit(f"no log-on: {answer.status_code}")
    return httpx.Client(base_url=URL, cookies=answer.cookies, trust_env=False, timeout=60.0)


def pages(manager: lanner.QueueManager, messages: int, rounds: int) -> None:
    """Print the time for the first page of a deep queue and of a nearly empty one."""
    for name, count in (("deep", messages), ("few", _FEW)):
        queue = manager.create_queue(name)
        for done in range(0, count, BATCH):
            queue.send_many([lanner.Message(body=b"x" * 100, label="filler")] * min(BATCH, count - done))
    times: dict[str, list[float]] = {"few": [], "deep": []}
    with log_on() as client:
        for number in range(rounds):
            for name, found in times.items():
                begun = time.perf_counter()
                answer = client.get("/queue", params={"name": rf"private$\{name}"})
                took = time.perf_counter() - begun
                if answer.status_code != httpx.codes.OK or "filler" not in answer.text:
                    raise SystemExit(f"no page of {name}: {answer.status_code}")
                if number:
                    found.append(took)
    print("\n| First page of a queue with | median ms | 95th percentile ms |\n|---|---|---|")
    for name, count in (("few", _FEW), ("deep", messages)):
        print(
            f"| {count:,} messages | {statistics.median(times[name]) * 1e3:.1f} | {percentile(times[name]) * 1e3:.1f} |"
        )
    print(f"\nRatio of the 95th percentiles: {percentile(times['deep']) / percentile(times['few']):.2f}.")
    for name in times:
        manager.delete_queue(name)


class Consoles:
    """A context manager that keeps consoles open."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.answers = 0

    def __enter__(self) -> Self:
        for work in (self._stream, self._poll):
            for _ in range(CONSOLES):
                thread = threading.Thread(target=work, args=(log_on(),), daemon=True)
                thread.start()
                self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _stream(self, client: httpx.Client) -> None:
        with client, client.stream("GET", "/live") as answer:
            for _ in answer.iter_lines():
                if self._over.is_set():
                    return

    def _poll(self, client: httpx.Client) -> None:
        with client:
            while not self._over.wait(5.0):
                self.answers += client.get("/").status_code == httpx.codes.OK


def consoles(manager: lanner.QueueManager, rounds: int, seconds: float) -> None:
    """Print the rate of durable messages with and without consoles."""
    queue = manager.create_queue("rate")
    rates: dict[bool, list[float]] = {False: [], True: []}
    for number in range(rounds + 1):
        for is_open in (False, True) if number % 2 else (True, False):
            with Consoles() if is_open else contextlib.nullcontext():
                rate = _rate(queue, seconds)
            if number:  # the first round warms up
                rates[is_open].append(rate)
    ratios = [with_them / without for with_them, without in zip(rates[True], rates[False], strict=True)]
    print("\n| Durable messages of 1 KiB, sent and received in batches of 100 | median per s |\n|---|---|")
    for is_open, name in ((False, "no console"), (True, f"{CONSOLES} consoles")):
        print(f"| {name} | {statistics.median(rates[is_open]):,.0f} |")
    print(f"\nMedian of the ratios of {rounds} rounds: {statistics.median(ratios):.3f}.")
    manager.delete_queue("rate")


def _rate(queue: lanner.Queue, seconds: float) -> float:
    count, begun = 0, time.perf_counter()
    while (passed := time.perf_counter() - begun) < seconds:
        queue.send_many([lanner.Message(body=b"x" * 1024, recoverable=True) for _ in range(100)])
        count += len(queue.receive_many(100))
    return count / passed


def main() -> None:
    """Parse the command line and run the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", choices=("start", "pages", "consoles"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        data = Path(name, "data")
        for key, value in facts(Path(name)).items():
            print(f"- {key}: {value}")
        with service(data) as manager:
            if arguments.only in (None, "start"):
                starts(data, max(20, arguments.rounds))
            if arguments.only in (None, "consoles"):
                consoles(manager, arguments.rounds, arguments.seconds)
            if arguments.only in (None, "pages"):
                pages(manager, arguments.messages, 60)


if __name__ == "__main__":
    main()
