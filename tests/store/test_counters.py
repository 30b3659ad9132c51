"""Counters never issue a value twice, however the process ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanner.model.errors import InsufficientResources
from lanner.store import Store
from tests.store.conftest import commit, no_room, open_store


def crash(store: Store) -> None:
    """End a store as a killed process would: no sync, no counters written back."""
    store._commits.maintenance.stop()
    store._allocation.close()
    store._environment.close()
    assert store._directory_lock is not None
    store._directory_lock.release()
    store._directory_lock = None


def test_a_counter_starts_at_one_and_continues_after_a_clean_close(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    counter = store.counter("c")
    assert counter.last == 0
    assert [counter.next() for _ in range(3)] == [1, 2, 3]
    assert counter.next(10) == 4
    store.close()
    store = open_store(tmp_path)
    assert store.counter("c").next() == 14
    store.close()


@pytest.mark.parametrize("block", [1, 2, 7, 1000])
def test_values_issued_before_a_crash_are_never_issued_again(tmp_path: Path, block: int) -> None:
    issued: set[int] = set()
    for _ in range(4):
        store = open_store(tmp_path)
        counter = store.counter("c", block)
        for count in (1, 2, 3, 20, 1):
            first = counter.next(count)
            values = set(range(first, first + count))
            assert not values & issued
            issued |= values
        crash(store)


def test_the_gap_after_a_crash_is_a_block_or_so(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    last = store.counter("c", 100).next(5) + 4
    crash(store)
    store = open_store(tmp_path)
    assert last < store.counter("c", 100).next() <= last + 201
    store.close()


def test_limits_ride_on_commits_that_happen_anyway(store: Store) -> None:
    store._commits.maintenance.stop()
    counter = store.counter("c", 100)
    counter.next()
    limit = counter._limit
    counter.next(60)
    assert counter._limit == limit
    store.table("t").put(b"k", b"v")
    commit(store)
    assert counter._limit > limit


def test_a_counter_refills_itself_when_nobody_commits(store: Store) -> None:
    """An express-only load never syncs, and still must not run into its limit."""
    with store.lock:
        counter = store.counter("c", 100)
        counter.next()
        limit = counter._limit
        counter.next(60)
    store._commits.maintenance.stop()  # joins the thread, which has work to do
    while store._commits._maintain():
        pass
    assert counter._limit > limit


def test_a_counter_that_cannot_reserve_issues_nothing(store: Store) -> None:
    counter = store.counter("c", 10)
    first = counter.next()
    with no_room(), pytest.raises(InsufficientResources):
        counter.next(1000)
    assert counter.next() == first + 1


def test_a_publication_reserves_numbers_for_the_time_it_takes(store: Store) -> None:
    """A counter cannot reserve during a long commit, and the engine continues to issue numbers."""
    counter = store.counter("c", 10)
    counter.next()
    store.stage(b"t", 1, [(3, [b"packet"])], 1)
    store.publish(b"k", [b"t"], counter.next, 1)
    commit(store)
    assert counter._limit - counter.last > 10 * 512
    limit = counter._limit
    store.stage(b"u", 1, [(3, [b"packet"])], 1)
    store.publish(b"l", [b"u"], counter.next, 1)
    commit(store)
    assert counter._limit == limit


def test_a_counter_that_cannot_reserve_asks_for_a_commit(store: Store) -> None:
    """LMDB may refuse every write until the database is opened again, and a commit does that."""
    store._commits.maintenance.stop()
    with store.lock:
        counter = store.counter("n", 1)
        first = counter.next()
    with store.lock, no_room(), pytest.raises(InsufficientResources):
        counter.next(10)
    assert store._commits.counters.wanting
    with store.lock:
        assert counter.next(10) > first
