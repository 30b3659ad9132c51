"""Spark reading from and writing to queues, against ready batches and a sink that drops rows.

    python -m bench.spark [--messages N] [--size BYTES] [--rounds N] [--only PIECE]

The pieces are reads, writes, receive, transfer (a backlog goes to another queue manager, once
undisturbed and once while Spark reads as fast as it can), and long, which is left out unless it is
asked for: the memory during a read of the whole queue, and its last hundred messages by `seq` and
by time. `--only long --messages 10000000 --size 128` is a queue of ten million.

Everything shares one machine: Spark (local[2]), the queue manager (`lanner serve` in a process of
its own, with its reader processes), and the disk. Messages are read over the port of the reader
processes, which is checked. Each round of a read ends in Spark's `noop` sink; a write is timed
until its messages are published. The processor time is that of the queue manager and its reader
processes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
from pyspark.sql import DataFrame, SparkSession

from bench.machine import facts
from bench.peers.process import BUILD, Server
from bench.ready_source import ReadySource
from bench.report import Writer, print_rows
from lanner.client import Message, QueueManager, connect
from lanner.client.runtimes import runtime_of
from lanner.model.errors import ServiceNotAvailable
from lanner.spark.flight import FlightQueues

ROOT = Path(__file__).resolve().parent.parent
PASSWORD = "bench"  # of the user created for the run
FILL_BATCH = 5000
# Written messages stay in the queue, and a million rows are an eighth of a queue manager's
# capacity.
WRITE_ROUNDS = 3
WARM_UP = 20_000  # messages of the first stream that receives
PIECES = ("reads", "writes", "receive", "transfer")
IDLE_READS = 3
LAST, ROUNDS_OF_LAST = 100, 20
MARKS = 12  # seconds
# What must be reached: ratios, and rows per second.
READ, WRITTEN, RECEIVED, TRANSFERRED, READ_BESIDE = (
    "read of all columns, of the rate of ready batches",
    "write, rows/s",
    "receive to Parquet, rows/s",
    "transfer while Spark reads, of its own rate",
    "read beside the transfer, of its own rate",
)
GOALS = {READ: 0.6, WRITTEN: 100_000, RECEIVED: 60_000, TRANSFERRED: 0.85, READ_BESIDE: 0.5}
# Separate addresses, because the ports are the usual ones. ALONE and BESIDE are the destinations of
# the backlogs.
ADDRESS = "127.0.0.68"
ALONE, BESIDE = "127.0.0.69", "127.0.0.70"


@contextmanager
def spark_session(directory: Path) -> Iterator[SparkSession]:
    os.environ |= {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "LANNER_PASSWORD": PASSWORD,
    }
    builder = SparkSession.builder.master("local[2]").appName("bench")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(ReadySource)
    try:
        yield session
    finally:
        session.stop()


def fill(data: Path, pieces: Sequence[str], messages: int, size: int) -> None:
    """Create the data directory: a user, and the queues and backlogs of the pieces."""
    body = os.urandom(size)
    wanted = {"read": messages} if {"reads", "transfer", "long"} & set(pieces) else {}
    if "receive" in pieces:
        wanted |= {"received": messages // 2, "warm-up": WARM_UP}
    if "transfer" in pieces:
        wanted |= dict.fromkeys(map(backlog_name, (ALONE, BESIDE)), messages // 4)
    with QueueManager(data, "BENCH") as manager:
        runtime_of(manager).users.add("bench", PASSWORD, administrator=True)
        for name, count in wanted.items():
            if not name.startswith("DIRECT="):
                manager.create_queue(name)
            queue = manager.open(name)
            for start in range(0, count, FILL_BATCH):
                many = min(FILL_BATCH, count - start)
                queue.send_many(Message(body=body, recoverable=True) for _ in range(many))


def backlog_name(address: str) -> str:
    return rf"DIRECT=TCP:{address}\private$\in"


def transfer_rate(directory: Path, address: str, messages: int) -> float:
    """Return the messages per second at which a backlog arrives at an address.

    The clock starts when a tenth of it has arrived.
    """
    data = directory / address
    with QueueManager(data, "TARGET") as embedded:
        embedded.create_queue("in")
    with serve(data, address) as (_, manager):
        queue = manager.open("in")
        began, before = 0.0, 0
        while (count := queue.count()) < messages:
            if not before and count >= messages // 10:
                began, before = time.perf_counter(), count
            time.sleep(0.01)
        manager.close()
        return (messages - before) / (time.perf_counter() - began) if before else 0.0


@contextmanager
def serve(data: Path, address: str = ADDRESS) -> Iterator[tuple[Server, QueueManager]]:
    """Run a queue manager on a data directory; yield its server and a connection."""
    lanner = str(Path(sys.executable).with_name("lanner"))
    server = Server([lanner, "serve", "--data", str(data.resolve()), "--bind", address], data.parent)
    try:
        yield server, connected(server, data)
    finally:
        server.stop()


def connected(server: Server, data: Path) -> QueueManager:
    while True:
        try:
            return connect(data=data)
        except ServiceNotAvailable:
            server.check()
            time.sleep(0.1)


class Bench:
    """The ways to read and write, each as a function that does it once."""

    def __init__(self, spark: SparkSession, manager: QueueManager, messages: int, size: int) -> None:
        self._spark = spark
        self._manager = manager
        self._messages = messages
        self._size = size
        self._written = 0

    def _ready(self, columns: str) -> None:
        options = {"rows": str(self._messages), "size": str(self._size), "columns": columns}
        _drain(self._spark.read.format("ready").options(**options).load())

    def check_readers(self) -> None:
        """Raise AssertionError if the queue manager itself would serve reads."""
        with FlightQueues(f"grpc://{ADDRESS}:1810", user="bench", password=PASSWORD) as queues:
            if not all(partition.locations for partition in queues.plan("read").partitions):
                raise AssertionError("no reader process serves the queue")

    def read(self, columns: str) -> None:
        options = {"managers": ADDRESS, "user": "bench", "queues": "read", "columns": columns}
        _drain(self._spark.read.format("msmq").options(**options, minPartitions="2").load())

    def reads(self) -> dict[str, Callable[[], None]]:
        return {
            "ready batches, all columns": lambda: self._ready("all"),
            "Lanner, all columns": lambda: self.read("all"),
            "ready batches, core columns": lambda: self._ready("core"),
            "Lanner, core columns": lambda: self.read("core"),
        }

    def _rows(self) -> DataFrame:
        frame = self._spark.range(0, self._messages, 1, 2)
        return frame.selectExpr(
            f"cast(lpad(cast(id as string), {self._size}, 'x') as binary) as body", "concat('order ', id) as label"
        )

    def _drop(self) -> None:
        self._rows().write.format("ready").mode("append").save()

    def _write(self) -> None:
        name = f"written{self._written}"
        self._written += 1
        self._manager.create_queue(name)
        writer = self._rows().write.format("msmq").options(managers=ADDRESS, user="bench", queue=name)
        writer.mode("append").save()
        if self._manager.open(name).count() != self._messages:
            raise AssertionError("messages were lost, or are there twice")
        # The queue stays: its cleanup would slow down the next round.

    def receive(self, directory: Path, queue: str, count: int) -> float:
        """Return the rows per second of a stream that receives a queue into Parquet."""
        options = {"managers": ADDRESS, "user": "bench", "mode": "receive", "reader": "bench"}
        stream = self._spark.readStream.format("msmq").options(**options).load(queue)
        place = directory / "parquet" / queue
        began = time.perf_counter()
        writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{place}-checkpoint")
        writer.trigger(availableNow=True).start(str(place)).awaitTermination()
        took = time.perf_counter() - began
        if self._spark.read.parquet(str(place)).count() != count or self._manager.open(queue).count():
            raise AssertionError("messages were lost, or are there twice")
        return count / took

    def send_last(self, count: int) -> None:
        """Send some more messages to the queue that is read."""
        body = bytes(self._size)
        self._manager.open("read").send_many(Message(body=body, recoverable=True) for _ in range(count))

    @contextmanager
    def reading(self, rates: list[float]) -> Iterator[None]:
        """Read repeatedly in the background; append the rows per second of each read.

        A read that is still running at the end counts only if it is the first.
        """
        is_over = threading.Event()

        def read() -> None:
            while not is_over.is_set():
                began = time.perf_counter()
                self.read("all")
                if not is_over.is_set() or not rates:
                    rates.append(self._messages / (time.perf_counter() - began))

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def writes(self) -> dict[str, Callable[[], None]]:
        return {"dropping sink": self._drop, "Lanner, durable queue": self._write}


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


class Cost(NamedTuple):
    """Medians of the rounds of one way to read or write."""

    rate: float  # rows per second
    us: float  # of processor time of the queue manager, for each row


def costs(
    ways: dict[str, Callable[[], None]], messages: int, rounds: int, warm_up: int, process: psutil.Process
) -> dict[str, Cost]:
    """Measure alternating rounds, after warm-up rounds.

    Java needs the warm-up, because it compiles what runs often.
    """
    found: dict[str, list[Cost]] = {name: [] for name in ways}
    for current in range(-warm_up, rounds):
        for name, work in ways.items():
            used, began = processor_time(process), time.perf_counter()
            work()
            took, used = time.perf_counter() - began, processor_time(process) - used
            if current >= 0:
                found[name].append(Cost(messages / took, 1_000_000 * used / messages))
    return {name: Cost(*map(statistics.median, zip(*some, strict=True))) for name, some in found.items()}


class Memory:
    """The resident memory of a queue manager and its reader processes, in MiB, sampled in a thread.

    What is mapped from files is left out: the database is, and its pages are the system's.
    """

    def __init__(self, process: psutil.Process) -> None:
        self._processes = [process, *process.children(recursive=True)]
        self.samples: list[int] = []
        self._is_over = threading.Event()

    def now(self) -> int:
        found = (process.memory_info() for process in self._processes)
        return sum(each.rss - each.shared for each in found) >> 20

    @contextmanager
    def watched(self) -> Iterator[None]:
        def watch() -> None:
            while not self._is_over.wait(0.5):
                self.samples.append(self.now())

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()


def long_queue(bench: Bench, process: psutil.Process, messages: int, out: Writer) -> None:
    """Print how memory grows during a read of everything, and what the last hundred cost."""
    memory = Memory(process)
    before = memory.now()
    began = time.perf_counter()
    with memory.watched():
        bench.read("all")
    took = time.perf_counter() - began
    half = len(memory.samples) // 2
    first, second = (max(part, default=before) for part in (memory.samples[:half], memory.samples[half:]))
    print(
        f"{messages:,} messages were read in {took:.0f} s, {messages / took:,.0f} rows/s. Memory of the queue manager "
        f"and its reader processes: {before} MiB before, at most {first} MiB in the first half, {second} MiB in the "
        f"second, {memory.now()} MiB after.\n",
        file=out,
    )
    # Arrival times are known to within ten seconds.
    time.sleep(MARKS)
    bench.send_last(LAST)
    with FlightQueues(f"grpc://{ADDRESS}:1810", user="bench", password=PASSWORD) as queues:
        last = queues.bounds("read")["upto"] - LAST
        [moment] = queues.table("read", where=[["seq", "=", last + 1]], columns=["arrived_time"])["arrived_time"]
        rows = [["the last hundred", "rows", "ms", "ms of the queue manager's processors"]]
        since = int(moment.as_py().timestamp() * 1_000_000)
        for name, where in (("by seq", ["seq", ">", last]), ("by time", ["arrived_time", ">=", since])):
            walls, costs, found = [], [], 0
            for _ in range(ROUNDS_OF_LAST):
                cost, began = processor_time(process), time.perf_counter()
                found = queues.table("read", where=[where], columns="core").num_rows
                walls.append(time.perf_counter() - began)
                costs.append(processor_time(process) - cost)
            rows.append(
                [name, f"{found:,}", f"{1000 * statistics.median(walls):.1f}", f"{1000 * statistics.mean(costs):.1f}"]
            )
    print_rows(rows, out)


def processor_time(process: psutil.Process) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in (process, *process.children(recursive=True)))


def spark(
    directory: Path, messages: int, size: int, rounds: int, out: Writer, pieces: Sequence[str] = PIECES
) -> dict[str, float]:
    """Run the pieces; return the median rates by name."""
    data = directory / "spark-data"
    fill(data, pieces, messages, size)
    found: dict[str, Cost] = {}
    reached: dict[str, float] = {}
    print(f"## Spark reads and writes {messages:,} messages of {size} bytes\n", file=out)
    with spark_session(directory) as session, serve(data) as (server, manager):
        process = psutil.Process(server.process.pid)
        bench = Bench(session, manager, messages, size)
        memory = Memory(process)
        before = memory.now()
        if {"reads", "transfer", "long"} & set(pieces):
            bench.check_readers()
        if "reads" in pieces:
            found |= costs(bench.reads(), messages, rounds, 2, process)
            reached[READ] = found["Lanner, all columns"].rate / found["ready batches, all columns"].rate
        after = memory.now()
        if "writes" in pieces:
            found |= costs(bench.writes(), messages, WRITE_ROUNDS, 1, process)
            reached[WRITTEN] = found["Lanner, durable queue"].rate
        _print_costs(found, out)
        if "reads" in pieces:
            print(f"Memory of the queue manager and its reader processes: {before} MiB before the reads, {after} MiB "
                  "after.\n", file=out)  # fmt: skip
        if "receive" in pieces:
            bench.receive(directory, "warm-up", WARM_UP)
            used = processor_time(process)
            reached[RECEIVED] = bench.receive(directory, "received", messages // 2)
            us = 2_000_000 * (processor_time(process) - used) / messages
            print(f"A stream that receives into Parquet: {reached[RECEIVED]:,.0f} rows/s, {us:.1f} us of the queue "
                  "manager's processors for each.\n", file=out)  # fmt: skip
        if "long" in pieces:
            long_queue(bench, process, messages, out)
        manager.close()
        if "transfer" in pieces:
            reached |= _transfer(bench, directory, messages, out)
    _print_goals(reached, out)
    return {name: cost.rate for name, cost in found.items()}


def _print_costs(found: dict[str, Cost], out: Writer) -> None:
    against = {
        "Lanner, all columns": "ready batches, all columns",
        "Lanner, core columns": "ready batches, core columns",
        "Lanner, durable queue": "dropping sink",
    }
    rows = [["", "rows/s", "ratio", "us each"]]
    for name, cost in found.items():
        is_ours = name in against
        ratio = f"{cost.rate / found[against[name]].rate:.2f}" if is_ours else ""
        rows.append([name, f"{cost.rate:,.0f}", ratio, f"{cost.us:.1f}" if is_ours else ""])
    if found:
        print_rows(rows, out)


def _print_goals(reached: dict[str, float], out: Writer) -> None:
    rows = [["goal", "must", "reached", ""]]
    for name, figure in reached.items():
        told = [f"{number:,.0f}" if GOALS[name] > 1 else f"{number:.2f}" for number in (GOALS[name], figure)]
        rows.append([name, *told, "met" if figure >= GOALS[name] else "missed"])
    if reached:
        print_rows(rows, out)


def _transfer(bench: Bench, directory: Path, messages: int, out: Writer) -> dict[str, float]:
    """Print the rates of a transfer and of reads, alone and together; return how both compare."""
    bench.read("all")
    idle = []
    for _ in range(IDLE_READS):
        began = time.perf_counter()
        bench.read("all")
        idle.append(messages / (time.perf_counter() - began))
    alone = transfer_rate(directory, ALONE, messages // 4)
    reads: list[float] = []
    with bench.reading(reads):
        beside = transfer_rate(directory, BESIDE, messages // 4)
    if not alone:
        return {}
    rate, undisturbed = statistics.median(reads), statistics.median(idle)
    print(f"Transfer: {alone:,.0f} messages/s alone, {beside:,.0f} while Spark reads.\n", file=out)
    print(f"Reads of all columns: {undisturbed:,.0f} rows/s alone, {rate:,.0f} beside the transfer.\n", file=out)
    return {TRANSFERRED: beside / alone, READ_BESIDE: rate / undisturbed}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description="Spark reads and writes a queue.")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=1024, help="of a body")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=(*PIECES, "long"), action="append", help="one of the pieces; all but long")
    arguments = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="spark-", dir=BUILD))
    try:
        for name, fact in facts(directory).items():
            print(f"- {name}: {fact}")
        print(f"\nMedians of {arguments.rounds} rounds of reading and {WRITE_ROUNDS} of writing.\n")
        spark(directory, arguments.messages, arguments.size, arguments.rounds, sys.stdout, arguments.only or PIECES)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
