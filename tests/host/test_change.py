"""A change is made under the store's lock and waited for without it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lanner.host.change import Change
from lanner.host.committer import Committer
from lanner.model.errors import InsufficientResources
from lanner.store import Store
from tests.host.conftest import Signal, World
from tests.store.conftest import QUEUE, ids, no_room, packets, record


def change_of(store: Store) -> Change:
    def ask(batch: int) -> None:
        raise AssertionError(f"batch {batch} was asked for")

    return Change(store, ask)


def put(store: Store, key: int, text: bytes = b"packet") -> None:
    assert store.lock.is_mine, "the block runs with the lock held"
    store.put(QUEUE, key, record(text), express=False)


def test_what_was_waited_for_is_on_disk(store: Store, tmp_path: Path) -> None:
    with change_of(store) as change:
        put(store, 1, b"one")
    assert not store.lock.is_mine
    assert change.is_pending
    assert packets(tmp_path / "data") == []
    change.wait()
    assert packets(tmp_path / "data") == [b"one"]


def test_a_block_that_raises_waits_for_nothing_and_releases_the_lock(store: Store, tmp_path: Path) -> None:
    change = change_of(store)

    def refused() -> None:
        with change:
            put(store, 1)
            raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        refused()
    assert not store.lock.is_mine
    assert not change.is_pending
    change.wait()
    change.soon()
    assert packets(tmp_path / "data") == []


def test_nothing_is_waited_for_if_nothing_has_changed(store: Store) -> None:
    with change_of(store) as change:
        assert ids(store) == []
    assert not change.is_pending


def test_a_change_that_is_forgotten_is_not_waited_for(store: Store, tmp_path: Path) -> None:
    with change_of(store) as change:
        put(store, 1)
    change.forget()
    assert not change.is_pending
    change.wait()
    assert packets(tmp_path / "data") == []


def test_a_change_that_cannot_be_written_raises(store: Store) -> None:
    with change_of(store) as change:
        put(store, 1)
    with no_room(), pytest.raises(InsufficientResources):
        change.wait()
    assert ids(store) == []


def test_a_change_made_inside_another_one_has_a_batch_of_its_own(store: Store) -> None:
    with change_of(store) as outer:
        with change_of(store) as inner:
            put(store, 1)
        assert store.lock.is_mine, "the outer block still holds the lock"
        put(store, 2)
    assert inner.is_pending
    assert outer.is_pending
    assert not store.lock.is_mine


def test_an_event_loop_awaits_a_change(store: Store, tmp_path: Path) -> None:
    async def run() -> None:
        committer = Committer(store, asyncio.get_running_loop())
        try:
            with committer.change() as change:
                put(store, 1, b"one")
            await change
            assert packets(tmp_path / "data") == [b"one"]
            with committer.change() as nothing:
                pass
            await nothing
            with committer.change() as dropped:
                put(store, 2)
            with no_room(), pytest.raises(InsufficientResources):
                await dropped
        finally:
            await asyncio.to_thread(committer.close)

    asyncio.run(run())
    assert ids(store) == [1]


def test_a_change_for_threads_cannot_be_awaited(store: Store) -> None:
    with change_of(store) as change:
        put(store, 1)

    async def run() -> None:
        await change

    with pytest.raises(RuntimeError, match=r"use wait\(\)"):
        asyncio.run(run())


def test_a_change_nobody_waits_for_is_written_by_the_committer(store: Store, tmp_path: Path) -> None:
    async def run() -> None:
        committer = Committer(store, asyncio.get_running_loop())
        with committer.change() as change:
            put(store, 1, b"one")
        change.soon()
        # Closing writes what was asked for, and nothing else.
        await asyncio.sleep(0)
        await asyncio.to_thread(committer.close)

    asyncio.run(run())
    assert packets(tmp_path / "data") == [b"one"]


def test_a_change_nobody_waits_for_is_written_by_the_timer_thread(world: World) -> None:
    written = Signal()
    store = world.runtime.store
    with world.runtime.change() as change:
        world.engine.create_queue(world.engine.set_queue_defaults(r".\private$\other"))
        store.on_synced(written)
    assert store.synced < change.batch
    change.soon()
    written.wait()
    assert store.synced >= change.batch
