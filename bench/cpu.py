"""The processor time of one message, on a file system in memory.

    python -m bench.cpu [--rounds N] [--directory DIR]

This is the cost that would remain with an infinitely fast disk. The result is the best of several
rounds, in microseconds per message, because other work on the machine disturbs it much less than
rates.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.ours import express, recoverable, run_loop
from bench.report import print_rows
from lanner import aio
from lanner.client import Message, QueueManager

MANY = 10_000  # messages per round in batches
FEW = 1_000  # messages per round one at a time
TASKS = 200

Best = dict[str, float]  # microseconds per message


def timed(best: Best, name: str, count: int, work: Callable[[], object]) -> None:
    start = time.process_time()
    work()
    note(best, name, count, start)


def note(best: Best, name: str, count: int, start: float) -> None:
    cost = (time.process_time() - start) / count * 1e6
    best[name] = min(cost, best.get(name, cost))


def blocking(best: Best, manager: QueueManager, rounds: int) -> None:
    plain = manager.create_queue("plain")
    source, target = (manager.create_queue(name, transactional=True) for name in ("source", "target"))

    def send_many(size: int) -> None:
        for _ in range(MANY // size):
            plain.send_many(recoverable() for _ in range(size))

    def receive_many() -> None:
        for _ in range(MANY // 100):
            plain.receive_many(100)

    def send() -> None:
        for _ in range(FEW):
            plain.send(recoverable())

    def receive() -> None:
        for _ in range(FEW):
            plain.receive(0)

    def transactions(size: int) -> None:
        for _ in range(FEW // size):
            with manager.transaction() as transaction:
                source.send_many((recoverable() for _ in range(size)), transaction=transaction)

    def move() -> None:
        for _ in range(FEW):
            with manager.transaction() as transaction:
                body = source.receive(0, transaction=transaction).body_bytes
                target.send(Message(body=body, recoverable=True), transaction=transaction)

    def in_turn() -> None:
        for _ in range(FEW):
            plain.send(express())
            plain.receive(0)

    for _ in range(rounds):
        timed(best, "send_many(1000)", MANY, lambda: send_many(1000))
        timed(best, "receive_many(100)", MANY, receive_many)
        timed(best, "send", FEW, send)
        timed(best, "receive", FEW, receive)
        timed(best, "transaction of 1 send", FEW, lambda: transactions(1))
        timed(best, "transaction of 1 receive and 1 send", FEW, move)
        timed(best, "transaction of 100 sends", FEW, lambda: transactions(100))
        timed(best, "express send and receive", FEW, in_turn)


async def awaited(best: Best, path: Path, rounds: int) -> None:
    async def in_tasks(name: str, work: Callable[[], Awaitable[object]]) -> None:
        async def repeat() -> None:
            for _ in range(MANY // TASKS):
                await work()

        start = time.process_time()
        await asyncio.gather(*(repeat() for _ in range(TASKS)))
        note(best, name, MANY, start)

    async with aio.QueueManager(path, name="AWAITED") as manager:
        queue = await manager.create_queue("plain")
        for _ in range(rounds):
            await in_tasks(f"await send, {TASKS} tasks", lambda: queue.send(recoverable()))
            await in_tasks(f"await receive, {TASKS} tasks", lambda: queue.receive(0))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cpu", description="Processor time per message.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"), help="a file system in memory")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="lanner-cpu-", dir=arguments.directory))
    best: Best = {}
    try:
        with QueueManager(directory / "blocking", name="BENCH") as manager:
            blocking(best, manager, arguments.rounds)
        run_loop(awaited(best, directory / "awaitable", arguments.rounds))
    finally:
        shutil.rmtree(directory)
    print_rows([["", "us per message"], *([name, f"{cost:.1f}"] for name, cost in best.items())], sys.stdout)


if __name__ == "__main__":
    main()
