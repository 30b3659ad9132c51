"""Blocks of events: numbers, ranges, what a failing disk and a kill leave, dropping the oldest."""

from __future__ import annotations

import time
from pathlib import Path

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.model.errors import InsufficientResources
from lanner.store import Store
from lanner.store.event_log import BLOCK_EVENTS, EVENT, MAX_WAITING
from tests.store.conftest import commit, no_room, open_store, put


def event(number: int, now: int = 0) -> bytes:
    return EVENT.pack(now, number, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, bytes(16), 0, bytes(20))


def add(store: Store, *numbers: int, now: int = 0) -> None:
    with store.lock:
        for number in numbers:
            store.events.add_run([event(number, now)])


def found(store: Store, after: int = 0, upto: int = 1 << 62) -> dict[int, int]:
    """Number of the event: the number that the test gave it."""
    rows: dict[int, int] = {}
    for first, data in store.events.read(after, upto, 1 << 30):
        rows |= {first + index: row[1] for index, row in enumerate(EVENT.iter_unpack(data))}
    return rows


def test_events_are_written_with_the_next_commit(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    add(store, 10, 11)
    assert found(store) == {}
    assert store.pending_batch() == 0
    put(store, 1)
    commit(store)
    assert found(store) == {}
    store.checkpoint()
    assert found(store) == {1: 10, 2: 11}
    assert not store.events.is_waiting
    add(store, 12)
    store.flush_events()
    assert list(found(store).values()) == [10, 11, 12]
    assert store.events.horizon == max(found(store))
    assert store.events.bounds() == (0, 3)
    store.close()


def test_a_run_of_events_has_numbers_in_a_row_across_blocks(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    add(store, 1)
    with store.lock:
        store.events.add_run([event(number) for number in range(2, 2 * BLOCK_EVENTS + 3)])
        store.events.add_run([])
    add(store, 2 * BLOCK_EVENTS + 3)
    store.flush_events()
    assert found(store) == {number: number for number in range(1, 2 * BLOCK_EVENTS + 4)}
    assert [len(data) // EVENT.size for _, data in store.events.read(0, 1 << 62, 1 << 30)] == [
        BLOCK_EVENTS,
        BLOCK_EVENTS,
        3,
    ]
    store.close()


def test_a_store_without_events_has_nothing_of_them(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert not store.has_events
    assert not store.trim_events(1 << 60, 0)
    store.close()
    with lmdb.open(str(tmp_path), max_dbs=8, readonly=True) as env, env.begin() as txn:
        assert txn.get(b"events") is None


def test_what_waits_is_written_at_the_end_and_found_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    add(store, 10)
    store.close()
    store = open_store(tmp_path)
    assert store.has_events
    add(store, 11)
    store.flush_events()
    assert found(store) == {1: 10, 2: 11}
    store.close()


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 30), max_size=6), after=st.integers(0, 120), length=st.integers(0, 120))
def test_ranges(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], after: int, length: int) -> None:
    store = open_store(tmp_path_factory.mktemp("store"))
    model: dict[int, int] = {}
    for size in sizes:
        with store.lock:
            for _ in range(size):
                store.events.add_run([event(len(model) * 3)])
                model[len(model) + 1] = len(model) * 3
            gap = store.events.reserve(2)  # of events that are never written
            model |= {gap: -1, gap + 1: -1}
        store.flush_events()
    wanted = {key: value for key, value in model.items() if after < key <= after + length and value >= 0}
    assert found(store, after, after + length) == wanted
    assert sum(count for _, count in store.events.blocks(after, after + length)) == len(wanted)
    store.close()


def test_a_block_has_an_end(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    add(store, *range(2 * BLOCK_EVENTS + 1))
    store.flush_events()
    assert [count for _, count in store.events.blocks(0, 1 << 40)] == [BLOCK_EVENTS, BLOCK_EVENTS, 1]
    assert list(found(store).values()) == list(range(2 * BLOCK_EVENTS + 1))
    assert len(store.events.read(0, 1 << 40, BLOCK_EVENTS)) == 1
    store.close()


def test_events_that_nobody_commits_do_not_pile_up(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    add(store, *range(MAX_WAITING + BLOCK_EVENTS + 1))
    for _ in range(1000):
        if found(store):
            break
        time.sleep(0.002)
    assert len(found(store)) > MAX_WAITING
    store.close()


def test_a_batch_that_fails_takes_its_events_along(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    add(store, 10)
    put(store, 1)
    commit(store)
    with no_room():
        add(store, 11)
        put(store, 2, bytes(1 << 16))
        with store.lock:
            batch = store.pending_batch()
        with pytest.raises(InsufficientResources):
            store.sync(batch)
    add(store, 12)
    store.flush_events()
    assert list(found(store).values()) == [10, 12]
    assert store.events.horizon == max(found(store)), "the gap is decided, too"
    store.close()


def test_a_block_that_is_not_what_was_written_is_left_out(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in (10, 11, 12):
        add(store, number)
        store.flush_events()
    environment = store._environment
    with environment.env.begin(write=True) as txn:
        key = (2).to_bytes(8, "big")
        raw = bytearray(txn.get(key, db=environment.events) or b"")
        raw[-1] ^= 1
        txn.put(key, bytes(raw), db=environment.events)
    assert found(store) == {1: 10, 3: 12}
    assert store.events.read(0, 3, 10)[1] == (2, b"")
    store.close()


def test_old_events_are_dropped(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for now in (1000, 2000, 3000):
        add(store, now, now + 1, now=now)
        store.flush_events()
    assert store.events.trimmed() == 0
    assert store.trim_events(2001, 1 << 40)
    assert not store.trim_events(2001, 1 << 40)
    assert list(found(store).values()) == [3000, 3001]
    assert store.events.trimmed() == 4
    assert store.events.bounds() == (4, 6)
    store.close()
    store = open_store(tmp_path)
    assert store.events.trimmed() == 4
    while store.trim_events(4000, 1 << 40):
        pass
    assert found(store) == {}
    assert store.events.bounds() == (6, 6)
    add(store, 7)
    store.flush_events()
    assert found(store) == {7: 7}
    store.close()


def test_events_beyond_a_size_are_dropped(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for _ in range(40):
        add(store, *range(BLOCK_EVENTS))
        store.flush_events()
    before = store.events.size()
    assert before > 40 * BLOCK_EVENTS * EVENT.size
    while store.trim_events(0, 1 << 20):
        pass
    assert 1 << 19 < store.events.size() <= 1 << 20
    after, upto = store.events.bounds()
    assert upto == 40 * BLOCK_EVENTS
    assert after == store.events.trimmed() == upto - len(found(store))
    store.close()
