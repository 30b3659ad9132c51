"""Workloads for `python -m bench --against`, which run with any version of Lanner.

    python -P bench/workloads.py NAME DIRECTORY COUNT

measures the workload NAME with COUNT messages and a new data directory DIRECTORY, and prints its
figure and the path of the `lanner` package that was measured as one line of JSON. PYTHONPATH
selects the version.

The script imports nothing but public names of `lanner` that both versions have, and no other module
of `bench`. Messages have a body of 1 KiB. A durable send or receive is timed until it is on disk.
Opening, filling and a warm-up of a twentieth of the messages are not timed. The default counts take
1 to 3 seconds on two cores of a server; that of "served" takes longer than its consoles' interval.
"""

from __future__ import annotations

import asyncio
import gc
import http
import http.client
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

import lanner
import lanner.aio

BODY = random.Random(1801).randbytes(1024)
BATCH = 100
FILL_BATCH = 1000
SEND_TASKS = 480
RECEIVE_TASKS = 200
WAIT = 10.0  # seconds; a read that waits longer means that messages were lost
TRANSFER_WAIT = 60.0  # seconds
POLL_INTERVAL = 0.002  # seconds
# `lanner serve` sets the same: the transfer's thread must not wait 5 ms for the thread that polls.
SWITCH_INTERVAL = 0.0005  # seconds
QUEUE = r".\private$\bench"
CONSOLES = 5
CONSOLE_INTERVAL = 5.0  # seconds
CONSOLE_USER, CONSOLE_PASSWORD = "alice", "a word for the benchmark"


@dataclass(frozen=True, slots=True)
class Workload:
    """A measurement: what it does, how many messages it takes, and the unit of its figure."""

    what: str
    run: Callable[[Path, int], float]
    count: int
    unit: str = "messages/s"
    is_lower_better: bool = False

    def ratio(self, old: float, new: float) -> float:
        """Return how many times faster the new version is."""
        return old / new if self.is_lower_better else new / old


def durable() -> lanner.Message:
    return lanner.Message(body=BODY, recoverable=True)


def express() -> lanner.Message:
    return lanner.Message(body=BODY)


def warm_up(count: int) -> int:
    return max(1, count // 20)


def batches(count: int, size: int) -> Iterator[int]:
    """Divide a count into batches."""
    for start in range(0, count, size):
        yield min(size, count - start)


def check(messages: list[lanner.ReceivedMessage], expected: int) -> None:
    if len(messages) != expected:
        raise RuntimeError(f"{expected} messages expected, {len(messages)} received")


def rate(work: Callable[[int], object], count: int) -> float:
    """Return the messages per second of `work(count)`, after a warm-up."""
    work(warm_up(count))
    gc.collect()
    start = time.perf_counter()
    work(count)
    return count / (time.perf_counter() - start)


# The blocking API ---------------------------------------------------------------------------------


@contextmanager
def open_queue(
    directory: Path, filled: int = 0, *, transactional: bool = False
) -> Iterator[tuple[lanner.QueueManager, lanner.Queue]]:
    """Open a queue manager with one queue, filled for a measurement and its warm-up."""
    with lanner.QueueManager(directory, name="BENCH") as manager:
        queue = manager.create_queue(QUEUE, transactional=transactional)
        if filled:
            fill(manager, queue, filled + warm_up(filled), transactional=transactional)
        yield manager, queue


def fill(manager: lanner.QueueManager, queue: lanner.Queue, count: int, *, transactional: bool) -> None:
    for size in batches(count, FILL_BATCH):
        messages = [durable() for _ in range(size)]
        if transactional:
            with manager.transaction() as transaction:
                queue.send_many(messages, transaction=transaction)
        else:
            queue.send_many(messages)


def send(directory: Path, count: int, make: Callable[[], lanner.Message] = durable) -> float:
    with open_queue(directory) as (_, queue):

        def work(count: int) -> None:
            for _ in range(count):
                queue.send(make())

        return rate(work, count)


def send_latency(directory: Path, count: int) -> float:
    """Return the median latency of a send in microseconds."""
    with open_queue(directory) as (_, queue):

        def seconds() -> float:
            message = durable()
            start = time.perf_counter()
            queue.send(message)
            return time.perf_counter() - start

        for _ in range(warm_up(count)):
            seconds()
        gc.collect()
        return statistics.median(seconds() for _ in range(count)) * 1e6


def send_many(directory: Path, count: int) -> float:
    with open_queue(directory) as (_, queue):

        def work(count: int) -> None:
            for size in batches(count, BATCH):
                queue.send_many([durable() for _ in range(size)])

        return rate(work, count)


def receive(directory: Path, count: int) -> float:
    with open_queue(directory, count) as (_, queue):

        def work(count: int) -> None:
            for _ in range(count):
                queue.receive(timeout=WAIT)

        return rate(work, count)


def receive_many(directory: Path, count: int) -> float:
    with open_queue(directory, count) as (_, queue):

        def work(count: int) -> None:
            for size in batches(count, BATCH):
                check(queue.receive_many(size, timeout=WAIT), size)

        return rate(work, count)


def send_in_transactions(directory: Path, count: int, per: int) -> float:
    with open_queue(directory, transactional=True) as (manager, queue):

        def work(count: int) -> None:
            for size in batches(count, per):
                with manager.transaction() as transaction:
                    for _ in range(size):
                        queue.send(durable(), transaction=transaction)

        return rate(work, count)


def receive_and_send(directory: Path, count: int) -> float:
    with open_queue(directory, count, transactional=True) as (manager, source):
        target = manager.create_queue(rf"{QUEUE}-target", transactional=True)

        def work(count: int) -> None:
            for _ in range(count):
                with manager.transaction() as transaction:
                    source.receive(timeout=WAIT, transaction=transaction)
                    target.send(durable(), transaction=transaction)

        return rate(work, count)


# The async API ------------------------------------------------------------------------------------


def in_tasks(
    directory: Path,
    count: int,
    *,
    tasks: int,
    operation: Callable[[lanner.aio.Queue], Awaitable[object]],
    is_filled: bool = False,
) -> float:
    """Return the operations per second of tasks that await one operation after the other."""

    async def run() -> float:
        async with lanner.aio.QueueManager(directory, name="BENCH") as manager:
            queue = await manager.create_queue(QUEUE)
            for size in batches(count + warm_up(count) if is_filled else 0, FILL_BATCH):
                await queue.send_many([durable() for _ in range(size)])

            async def work(numbers: Iterator[int]) -> None:
                for _ in numbers:
                    await operation(queue)

            async def together(count: int) -> None:
                numbers = iter(range(count))
                await asyncio.gather(*(work(numbers) for _ in range(tasks)))

            await together(warm_up(count))
            gc.collect()
            start = time.perf_counter()
            await together(count)
            return count / (time.perf_counter() - start)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def send_tasks(directory: Path, count: int) -> float:
    return in_tasks(directory, count, tasks=SEND_TASKS, operation=lambda queue: queue.send(durable()))


def receive_tasks(directory: Path, count: int) -> float:
    return in_tasks(
        directory,
        count,
        tasks=RECEIVE_TASKS,
        operation=lambda queue: queue.receive(timeout=WAIT),
        is_filled=True,
    )


# Between queue managers ---------------------------------------------------------------------------


def own_address() -> str:
    """Return a loopback address of this process alone, made of the 22 bits of its id."""
    pid = os.getpid()
    return f"127.{64 + (pid >> 16)}.{pid >> 8 & 0xFF}.{pid & 0xFF}"


def depth(queue: Any) -> int:  # noqa: ANN401 (versions without `count` have `len` instead)
    """Return the number of messages in a queue."""
    found: int = queue.count() if hasattr(queue, "count") else len(queue)
    return found


def transfer(directory: Path, count: int, *, transactional: bool) -> float:
    """Return the messages per second at which a backlog arrives in this process from a second one.

    The clock starts just before a twentieth has arrived, so connecting is not timed, and stops when
    everything is on disk here.
    """
    sys.setswitchinterval(SWITCH_INTERVAL)
    address = own_address()
    total = count + warm_up(count)
    with lanner.QueueManager(directory / "receiver", name="RECEIVER", bind=address) as manager:
        queue = manager.create_queue(QUEUE, transactional=transactional)
        scratch = manager.create_queue(rf"{QUEUE}-scratch")
        target = rf"DIRECT=TCP:{address}\private$\bench"
        arguments = (str(directory / "sender"), target, str(total), str(int(transactional)))
        with subprocess.Popen(
            [sys.executable, "-P", __file__, "--sender", *arguments], stdin=subprocess.PIPE
        ) as sender:
            before, start = wait_for(queue, total - count, sender)
            wait_for(queue, total, sender)
            # Changes become durable in order: when this message is on disk, all before it are.
            scratch.send(durable())
            end = time.perf_counter()
            sender.communicate()
        if sender.returncode:
            raise RuntimeError(f"the sending queue manager ended with {sender.returncode}")
    return (total - before) / (end - start)


def wait_for(queue: lanner.Queue, count: int, sender: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Wait until `count` messages have arrived.

    Returns the number of messages at the last check before that, and the time of that check.
    """
    deadline = time.perf_counter() + TRANSFER_WAIT
    before, looked_at = 0, time.perf_counter()
    while (found := depth(queue)) < count:
        before, looked_at = found, time.perf_counter()
        if sender.poll() is not None:
            raise RuntimeError(f"the sending queue manager ended with {sender.returncode}; {found} of {count} arrived")
        if looked_at > deadline:
            raise RuntimeError(f"{found} of {count} messages arrived within {TRANSFER_WAIT:.0f} s")
        time.sleep(POLL_INTERVAL)
    return before, looked_at


def run_sender(directory: str, target: str, count: str, transactional: str) -> None:
    """Collect a backlog without a network, then transfer it until standard input is closed."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    with lanner.QueueManager(directory, name="SENDER") as manager:
        fill(manager, manager.open(target), int(count), transactional=bool(int(transactional)))
    with lanner.QueueManager(directory, name="SENDER", bind=own_address()):
        sys.stdin.read()


# A running service -------------------------------------------------------------------------------


def command(*arguments: str) -> list[str]:
    """Return the `lanner` command of the version that is measured."""
    return [sys.executable, "-P", "-c", "from lanner.cli import main; main()", *arguments]


@contextmanager
def ready(what: list[str]) -> Iterator[None]:
    """Run a program that prints a line when it is ready, until the block ends."""
    with subprocess.Popen(what, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            if process.stdout is None or not process.stdout.readline():
                raise RuntimeError(f"{what[-1]} did not start")
            yield
        finally:
            process.terminate()


def served(directory: Path, count: int) -> float:
    """Return the messages per second through `lanner serve`, sent and received in batches.

    In versions that have a console, five are open: each has the stream of the overview, and
    requests its page every five seconds.
    """
    address, data = own_address(), str(directory / "data")
    has_console = importlib.util.find_spec("lanner.http") is not None
    if has_console:
        add = command("user", "add", CONSOLE_USER, "--administrator", "--password-stdin", "--data", data)
        (directory / "data").mkdir(mode=0o700, parents=True)
        subprocess.run(add, input=f"{CONSOLE_PASSWORD}\n", text=True, check=True, stdout=subprocess.DEVNULL)
    with ExitStack() as stack:
        stack.enter_context(ready(command("serve", "--json", "--name", "BENCH", "--bind", address, "--data", data)))
        manager = stack.enter_context(lanner.connect(data=data))
        queue = manager.create_queue(QUEUE)
        if has_console:
            stack.enter_context(ready([sys.executable, "-P", __file__, "--consoles", address]))

        def work(count: int) -> None:
            for size in batches(count, BATCH):
                queue.send_many([durable() for _ in range(size)])
                check(queue.receive_many(size, timeout=WAIT), size)

        return rate(work, count)


def run_consoles(address: str) -> None:
    """Keep consoles open until this process is terminated."""
    form = urllib.parse.urlencode({"user": CONSOLE_USER, "password": CONSOLE_PASSWORD, "next": "/"})

    def connected() -> http.client.HTTPConnection:
        return http.client.HTTPConnection(address, 15801, timeout=60)

    def page(path: str, cookie: str) -> http.client.HTTPResponse:
        connection = connected()
        connection.request("GET", path, headers={"Cookie": cookie})
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"{path}: {answer.status}")
        return answer

    def read(stream: http.client.HTTPResponse) -> None:
        while stream.readline():
            pass

    cookies = []
    for _ in range(CONSOLES):
        connection = connected()
        connection.request("POST", "/login", form, {"Content-Type": "application/x-www-form-urlencoded"})
        answer = connection.getresponse()
        cookies.append((answer.headers["Set-Cookie"] or "").partition(";")[0])
        stream = page("/live", cookies[-1])
        stream.readline()
        threading.Thread(target=read, args=(stream,), daemon=True).start()
    print("ready", flush=True)
    while True:
        for cookie in cookies:
            page("/", cookie).read()
        time.sleep(CONSOLE_INTERVAL)


WORKLOADS = {
    "send": Workload("durable send, one by one", send, 8000),
    "send-latency": Workload("durable send, median", send_latency, 8000, "microseconds", is_lower_better=True),
    "send-many": Workload("send_many(100)", send_many, 80_000),
    "send-tasks": Workload(f"await send, {SEND_TASKS} tasks", send_tasks, 60_000),
    "send-express": Workload("express send, one by one", partial(send, make=express), 100_000),
    "receive": Workload("durable receive, one by one", receive, 9000),
    "receive-many": Workload("receive_many(100)", receive_many, 150_000),
    "receive-tasks": Workload(f"await receive, {RECEIVE_TASKS} tasks", receive_tasks, 100_000),
    "transaction-1": Workload("transactions of 1 send", partial(send_in_transactions, per=1), 7000),
    "transaction-10": Workload("transactions of 10 sends", partial(send_in_transactions, per=10), 36_000),
    "transaction-100": Workload("transactions of 100 sends", partial(send_in_transactions, per=100), 70_000),
    "transaction-move": Workload("transactions of 1 receive and 1 send", receive_and_send, 6000),
    "transfer": Workload("transfer, recoverable", partial(transfer, transactional=False), 40_000),
    "transfer-transactional": Workload("transfer, transactional", partial(transfer, transactional=True), 30_000),
    "served": Workload("through lanner serve, with five consoles open if there are any", served, 100_000),
}


def main() -> None:
    if sys.argv[1] == "--sender":
        run_sender(*sys.argv[2:])
        return
    if sys.argv[1] == "--consoles":
        run_consoles(sys.argv[2])
        return
    name, directory, count = sys.argv[1:]
    figure = WORKLOADS[name].run(Path(directory), int(count))
    print(json.dumps({"figure": figure, "lanner": lanner.__file__}))


if __name__ == "__main__":
    main()
