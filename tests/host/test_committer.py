"""Waiting for the disk: the loop waits for a moment, then a thread does.

The caller gets the outcome either way.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from lanner.host.committer import Committer
from lanner.model.errors import InsufficientResources, LannerError
from lanner.store import Store
from lanner.store.allocation import Allocation
from lanner.store.environment import Environment
from lanner.store.lock import DirectoryLock
from lanner.store.write_ahead_log import LogRecord, WriteAheadLog
from tests.overlay import overlay
from tests.store.conftest import MAP_SIZE, RESERVE, ids, no_room, put


def with_committer(store: Store, work: Callable[[Committer], Awaitable[None]]) -> None:
    async def run() -> None:
        committer = Committer(store, asyncio.get_running_loop())
        try:
            await work(committer)
        finally:
            await asyncio.to_thread(committer.close)

    asyncio.run(run())


class BreakableStore(Store):
    """A store whose write-ahead log can be broken in an unforeseen way."""

    def __init__(
        self,
        environment: Environment,
        write_ahead_log: WriteAheadLog,
        allocation: Allocation,
        directory_lock: DirectoryLock,
    ) -> None:
        self.log = write_ahead_log
        self.is_broken = False
        super().__init__(environment, overlay(write_ahead_log, append=self._append), allocation, directory_lock)

    def _append(self, record: LogRecord) -> None:
        if self.is_broken:
            raise ZeroDivisionError(record)
        self.log.append(record)


@pytest.fixture
def writers(store: Store) -> list[int]:
    """The threads that have made batches durable."""
    found: list[int] = []
    # Called by the thread that has written the batch.
    store.on_synced(lambda _: found.append(threading.get_ident()))
    return found


def test_a_quick_disk_is_waited_for_by_the_loop(store: Store, writers: list[int]) -> None:
    async def work(committer: Committer) -> None:
        for key in (1, 2):
            store._write_ahead_log._seconds = 0.0  # whatever the disk of this machine does
            put(store, key)
            await committer.durable(store.pending_batch())
            assert store.pending_batch() == 0

    with_committer(store, work)
    assert writers == [threading.get_ident()] * 2


def test_the_loop_is_told_at_once_of_what_it_has_written(store: Store) -> None:
    """The report comes before any other work: a caller that waits for the disk continues sooner."""
    order: list[str] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        committer = Committer(store, loop, lambda: order.append(f"written {store.synced}"))
        store._write_ahead_log._seconds = 0.0
        put(store, 1)
        batch = store.pending_batch()
        committer.ask(batch)
        loop.call_soon(order.append, "something else")
        loop.call_soon(lambda: loop.call_soon(order.append, "the next turn"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert order == [f"written {batch}", "something else", "the next turn"]
        store._write_ahead_log._seconds = 0.01
        put(store, 2)
        await committer.durable(store.pending_batch())
        assert len(order) == 3, "the thread wrote it, and the store tells of that"
        await asyncio.to_thread(committer.close)

    asyncio.run(run())


def test_a_batch_is_written_although_a_waiter_of_the_one_before_fails(store: Store) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        failed = asyncio.Event()
        loop.set_exception_handler(lambda *_: failed.set())
        committer = Committer(store, loop, lambda: 1 // 0)  # type: ignore[arg-type]
        store._write_ahead_log._seconds = 0.0
        put(store, 1)
        with store.lock:
            store.prepare()
        put(store, 2)
        # The loop writes the first one itself.
        durable = committer.durable(store.pending_batch())
        await failed.wait()
        async with asyncio.timeout(10):
            await durable
        await asyncio.to_thread(committer.close)

    asyncio.run(run())


@pytest.mark.parametrize("seconds", [0.0, 0.01])
def test_all_callbacks_of_a_batch_are_called_by_the_loop(
    store: Store, caplog: pytest.LogCaptureFixture, seconds: float
) -> None:
    """Also those after one that fails, and one that comes when the batch is already on disk."""
    told: list[tuple[LannerError | None, int]] = []

    def tell(error: LannerError | None) -> None:
        told.append((error, threading.get_ident()))

    async def work(committer: Committer) -> None:
        store._write_ahead_log._seconds = seconds
        put(store, 1)
        batch = store.pending_batch()
        committer.when_durable(batch, lambda _: 1 // 0)  # type: ignore[arg-type]
        committer.when_durable(batch, tell)
        await committer.durable(batch)
        assert told == [(None, threading.get_ident())]
        committer.when_durable(batch, tell)
        assert len(told) == 1, "not before the caller has returned"
        await asyncio.sleep(0)
        assert told == [(None, threading.get_ident())] * 2

    with_committer(store, work)
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


def test_a_callback_of_a_batch_that_was_dropped_gets_the_error(store: Store) -> None:
    told: list[LannerError | None] = []

    async def work(committer: Committer) -> None:
        put(store, 1)
        batch = store.pending_batch()
        committer.when_durable(batch, told.append)
        with no_room(), pytest.raises(InsufficientResources):
            await committer.durable(batch)
        committer.when_durable(batch, told.append)
        await asyncio.sleep(0)

    with_committer(store, work)
    assert [type(error) for error in told] == [InsufficientResources] * 2


def test_a_slow_disk_is_waited_for_by_the_thread(store: Store, writers: list[int]) -> None:
    async def work(committer: Committer) -> None:
        store._write_ahead_log._seconds = 0.01
        put(store, 1)
        await committer.durable(store.pending_batch())
        assert store.pending_batch() == 0

    with_committer(store, work)
    assert len(writers) == 1
    assert writers[0] != threading.get_ident()


def test_all_who_are_ready_in_one_turn_share_a_record(store: Store, writers: list[int]) -> None:
    async def work(committer: Committer) -> None:
        async def one(key: int) -> None:
            put(store, key)
            await committer.durable(store.pending_batch())

        await asyncio.gather(*(one(key) for key in range(20)))

    with_committer(store, work)
    assert len(writers) == 1
    assert ids(store) == list(range(20))


def test_a_big_batch_is_left_to_the_thread(store: Store, writers: list[int]) -> None:
    async def work(committer: Committer) -> None:
        put(store, 1, b"x" * 100_000)
        await committer.durable(store.pending_batch())

    with_committer(store, work)
    assert len(writers) == 1
    assert writers[0] != threading.get_ident()


def test_a_waiter_gets_the_error_of_a_batch_that_could_not_be_written(store: Store) -> None:
    async def work(committer: Committer) -> None:
        put(store, 1)
        future = committer.durable(store.pending_batch())
        with no_room(), pytest.raises(InsufficientResources):
            await future
        put(store, 2)
        await committer.durable(store.pending_batch())
        assert ids(store) == [2]

    with_committer(store, work)


@pytest.mark.parametrize("is_full", [False, True])
def test_a_waiter_gets_the_outcome_of_a_batch_that_another_thread_has_just_ended(store: Store, is_full: bool) -> None:
    """The loop finds nothing to write any more, and nothing to pass to its thread.

    So the loop itself must report the outcome.
    """
    at_once = store.sync_at_once

    def sync() -> None:
        with no_room() if is_full else nullcontext(), suppress(InsufficientResources):
            store.sync(store.pending_batch())

    def late() -> bool:
        elsewhere = threading.Thread(target=sync)
        elsewhere.start()
        elsewhere.join()
        return at_once()

    async def work(committer: Committer) -> None:
        put(store, 1)
        with pytest.raises(InsufficientResources) if is_full else nullcontext():
            async with asyncio.timeout(10):
                await committer.durable(store.pending_batch())

    with_committer(overlay(store, sync_at_once=late), work)
    assert ids(store) == ([] if is_full else [1])


def test_a_late_waiter_gets_the_error_of_a_batch_that_could_not_be_written(store: Store) -> None:
    async def work(committer: Committer) -> None:
        store._write_ahead_log._seconds = 0.01
        put(store, 1)
        batch = store.pending_batch()
        with no_room(), pytest.raises(InsufficientResources):
            await committer.durable(batch)
        # The thread has been asked for this one, and is not asked again.
        with pytest.raises(InsufficientResources):
            async with asyncio.timeout(10):
                await committer.durable(batch)
        put(store, 2)
        await committer.durable(store.pending_batch())
        assert store.synced > batch
        # That a later one is on disk says nothing about it.
        with pytest.raises(InsufficientResources):
            await committer.durable(batch)

    with_committer(store, work)
    assert ids(store) == [2]


def test_waiters_get_the_error_when_the_loop_fails_to_write(
    tmp_path: Path,
) -> None:
    store = BreakableStore.open(tmp_path / "data", map_size=MAP_SIZE, reserve=RESERVE)

    async def work(committer: Committer) -> None:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["exception"]))
        store.log._seconds = 0.0
        put(store, 1)
        store.is_broken = True
        with pytest.raises(InsufficientResources):
            async with asyncio.timeout(10):
                await committer.durable(store.pending_batch())
        store.is_broken = False
        assert [type(error) for error in complaints] == [ZeroDivisionError]
        put(store, 2)
        await committer.durable(store.pending_batch())

    with_committer(store, work)
    assert ids(store) == [2]
    store.close()


def test_asking_under_the_lock_and_from_another_thread(store: Store) -> None:
    async def work(committer: Committer) -> None:
        with store.lock:
            put(store, 1)
            batch = store.pending_batch()
            committer.ask(batch)
            assert store.pending_batch() == batch, "not while somebody has the lock"
        await asyncio.sleep(0)
        assert store.synced == batch
        put(store, 2)
        batch = store.pending_batch()
        synced = threading.Event()
        store.on_synced(lambda number: synced.set() if number >= batch else None)
        await asyncio.to_thread(committer.ask, batch)
        assert await asyncio.to_thread(synced.wait, 10)

    with_committer(store, work)
    assert ids(store) == [1, 2]
