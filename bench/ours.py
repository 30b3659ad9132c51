"""Lanner's side of every benchmark: the embedded API, as a program would use it.

Recoverable operations are timed until they are synced. Creating, filling and deleting queues is not
timed.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import uvloop

from bench.workload import BODY, percentiles
from lanner import aio
from lanner.client import Message, Queue, QueueManager, ReceivedMessage
from lanner.client.runtimes import runtime_of
from lanner.store import Store

T = TypeVar("T")
FILL_BATCH = 1000
WAIT = 10.0  # seconds; a read that waits longer means that messages were lost


def recoverable() -> Message:
    return Message(body=BODY, recoverable=True)


def express() -> Message:
    return Message(body=BODY)


def batches(count: int, size: int) -> Iterator[int]:
    """Divide a count into batches."""
    for start in range(0, count, size):
        yield min(size, count - start)


def wait_until_swept(store: Store) -> None:
    """Wait until the background cleanup of deleted queues has ended, so that it disturbs no run."""
    while True:
        with store.lock:
            if store.table("garbage").first() is None:
                return
        time.sleep(0.005)


def in_threads(works: list[Callable[[], object]]) -> float:
    """Run functions in threads; return the seconds from the common start to the last end."""
    ready = threading.Barrier(len(works) + 1)

    def run(work: Callable[[], object]) -> None:
        ready.wait()
        work()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    ready.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


class Ours:
    """A queue manager for the blocking API and another for the async one.

    There are two because a data directory has only one owner.
    """

    def __init__(self, directory: Path) -> None:
        self._awaitable_path = directory / "lanner-aio"
        self.manager = QueueManager(directory / "lanner", name="BENCH")
        self._names = itertools.count(1)

    def close(self) -> None:
        self.manager.close()

    @contextmanager
    def _queue(self, filled: int = 0, *, transactional: bool = False) -> Iterator[Queue]:
        queue = self.manager.create_queue(rf".\private$\bench{next(self._names)}", transactional=transactional)
        for size in batches(filled, FILL_BATCH):
            if transactional:
                with self.manager.transaction() as transaction:
                    queue.send_many((recoverable() for _ in range(size)), transaction=transaction)
            else:
                queue.send_many(recoverable() for _ in range(size))
        try:
            yield queue
        finally:
            self.manager.delete_queue(queue.name)
            wait_until_swept(runtime_of(self.manager).store)

    # Sending

    def send_many(self, count: int, batch: int, threads: int = 1) -> float:
        """Return the messages per second in batches of one commit."""

        def work() -> None:
            for size in batches(count // threads, batch):
                queue.send_many(recoverable() for _ in range(size))

        with self._queue() as queue:
            return count / in_threads([work] * threads)

    def send_threads(self, count: int, threads: int) -> float:
        """Return the messages per second, sent one at a time by threads that wait for each."""

        def work() -> None:
            for _ in range(count // threads):
                queue.send(recoverable())

        with self._queue() as queue:
            return count / in_threads([work] * threads)

    def send_one(self, count: int) -> dict[str, float]:
        """Return p50 and p99 of sending one message at a time."""
        seconds = []
        with self._queue() as queue:
            for _ in range(count):
                start = time.perf_counter()
                queue.send(recoverable())
                seconds.append(time.perf_counter() - start)
        return percentiles(seconds)

    # Receiving

    def receive(self, count: int) -> float:
        """Return the messages per second, each durable before the next is requested."""
        with self._queue(count) as queue:
            start = time.perf_counter()
            for _ in range(count):
                queue.receive(WAIT)
            return count / (time.perf_counter() - start)

    def receive_many(self, count: int, per: int) -> float:
        with self._queue(count) as queue:
            start = time.perf_counter()
            for size in batches(count, per):
                checked(queue.receive_many(size), size)
            return count / (time.perf_counter() - start)

    # Transactions

    def transactions(self, count: int, per: int) -> float:
        """Return the messages per second, sent in transactions of `per` messages."""
        with self._queue(transactional=True) as queue:
            start = time.perf_counter()
            for size in batches(count, per):
                with self.manager.transaction() as transaction:
                    queue.send_many((recoverable() for _ in range(size)), transaction=transaction)
            return count / (time.perf_counter() - start)

    def move(self, count: int, per: int) -> float:
        """Return the messages per second, moved between two queues in transactions of `per`.

        Each message is received from one queue and sent to the other.
        """
        with self._queue(count, transactional=True) as source, self._queue(transactional=True) as target:
            start = time.perf_counter()
            for size in batches(count, per):
                with self.manager.transaction() as transaction:
                    for _ in range(size):
                        message = source.receive(WAIT, transaction=transaction)
                        target.send(Message(body=message.body_bytes, recoverable=True), transaction=transaction)
            return count / (time.perf_counter() - start)

    # Express

    def express_in_turn(self, count: int) -> float:
        """Return the messages per second when each is received before the next is sent."""
        with self._queue() as queue:
            start = time.perf_counter()
            for _ in range(count):
                queue.send(express())
                queue.receive(WAIT)
            return count / (time.perf_counter() - start)

    def express_between_threads(self, count: int, batch: int) -> float:
        """Return the messages per second from a sending to a receiving thread."""

        def send() -> None:
            for size in batches(count, batch):
                queue.send_many(express() for _ in range(size))

        def receive() -> None:
            left = count
            while left:
                left -= checked(queue.receive_many(batch, WAIT), 1)

        with self._queue() as queue:
            return count / in_threads([send, receive])

    # The async API

    def send_tasks(self, count: int, tasks: int) -> float:
        """Return the messages per second, sent one at a time by tasks that await each."""

        async def work(queue: aio.Queue) -> None:
            for _ in range(count // tasks):
                await queue.send(recoverable())

        return self._awaited(count, work, tasks)

    def send_many_tasks(self, count: int, batch: int, tasks: int) -> float:
        async def work(queue: aio.Queue) -> None:
            for size in batches(count // tasks, batch):
                await queue.send_many(recoverable() for _ in range(size))

        return self._awaited(count, work, tasks)

    def receive_tasks(self, count: int, tasks: int, per: int) -> float:
        """Return the messages per second, received `per` at a time by tasks that await each."""

        async def receive(queue: aio.Queue) -> None:
            for _ in range(count // tasks // per):
                if per == 1:
                    await queue.receive(WAIT)
                else:
                    checked(await queue.receive_many(per), per)

        count -= count % (tasks * per)
        return self._awaited(count, receive, tasks, filled=count)

    def express_tasks(self, count: int, batch: int, *, is_many: bool) -> float:
        """Return the messages per second from a sending to a receiving task in one loop.

        The sender sends one at a time or in batches; the receiver takes what is available.
        """

        async def send(queue: aio.Queue) -> None:
            for size in batches(count, batch):
                if is_many:
                    await queue.send_many(express() for _ in range(size))
                else:
                    for _ in range(size):
                        await queue.send(express())
                await asyncio.sleep(0)

        async def receive(queue: aio.Queue) -> None:
            left = count
            while left:
                left -= checked(await queue.receive_many(batch, WAIT), 1)

        async def both(queue: aio.Queue) -> None:
            await asyncio.gather(receive(queue), send(queue))

        return self._awaited(count, both, 1)

    def _awaited(
        self, count: int, work: Callable[[aio.Queue], Awaitable[None]], tasks: int, *, filled: int = 0
    ) -> float:
        async def run() -> float:
            async with aio.QueueManager(self._awaitable_path, name="AWAITED") as manager:
                queue = await manager.create_queue(rf".\private$\bench{next(self._names)}")
                for size in batches(filled, FILL_BATCH):
                    await queue.send_many(recoverable() for _ in range(size))
                start = time.perf_counter()
                await asyncio.gather(*(work(queue) for _ in range(tasks)))
                seconds = time.perf_counter() - start
                await manager.delete_queue(queue.name)
                await asyncio.to_thread(wait_until_swept, runtime_of(manager).store)
            return count / seconds

        return run_loop(run())


def run_loop(work: Coroutine[None, None, T]) -> T:
    """Run a coroutine on uvloop, as the daemon does."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def checked(messages: list[ReceivedMessage], least: int) -> int:
    """Return the number of messages; raise RuntimeError if some were lost."""
    if len(messages) < least:
        raise RuntimeError(f"{least} messages expected, {len(messages)} received")
    return len(messages)
