"""Dropping a queue: it is empty at once, and swept later. A new queue keeps its messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanner.model.errors import InsufficientResources
from lanner.store import Store, maintenance
from tests.store.conftest import QUEUE, commit, commit_and_checkpoint, entries, ids, no_room, open_store, put, take


@pytest.fixture
def quiet(store: Store) -> Store:
    """A store whose sweeping is done by the test."""
    store._commits.maintenance.stop()
    return store


def sweep(store: Store) -> int:
    slices = 0
    while store._commits._maintain():
        slices += 1
    return slices


def test_a_dropped_queue_is_empty_at_once_and_its_number_continues(quiet: Store) -> None:
    put(quiet, 1)
    put(quiet, 2, express=True)
    commit_and_checkpoint(quiet)
    put(quiet, 3)
    put(quiet, 1, queue=QUEUE + 1)
    quiet.drop_queue(QUEUE)
    assert (ids(quiet), quiet.stats(QUEUE)) == ([], (0, 0))
    put(quiet, 1, b"new life")
    commit_and_checkpoint(quiet)
    assert entries(quiet, "messages") == 3
    sweep(quiet)
    assert ids(quiet) == [1]
    assert quiet.stats(QUEUE) == (1, 8)
    assert ids(quiet, QUEUE + 1) == [1]
    assert (entries(quiet, "messages"), entries(quiet, "visible")) == (2, 2)
    assert [message.packet for _, _, message in quiet.scan(QUEUE, 0)] == [b"new life"]


def test_a_drop_while_a_batch_is_in_flight_hides_that_too(quiet: Store) -> None:
    put(quiet, 1)
    quiet.prepare()
    quiet.drop_queue(QUEUE)
    assert ids(quiet) == []
    quiet._commits._lead()
    assert (ids(quiet), quiet.stats(QUEUE)) == ([], (0, 0))
    commit(quiet)
    sweep(quiet)
    assert (entries(quiet, "messages"), entries(quiet, "visible")) == (0, 0)


def test_a_drop_that_cannot_be_written_is_undone(quiet: Store) -> None:
    put(quiet, 1)
    commit(quiet)
    quiet.drop_queue(QUEUE)
    with no_room(), pytest.raises(InsufficientResources):
        commit(quiet)
    assert (ids(quiet), quiet.stats(QUEUE)) == ([1], (1, 6))
    sweep(quiet)
    assert ids(quiet) == [1]


def test_sweeping_is_cut_into_slices_and_continues_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    store._commits.maintenance.stop()
    for key in range(2000):
        put(store, key)
    commit_and_checkpoint(store)
    store.drop_queue(QUEUE)
    commit(store)
    monkeypatch.setattr(maintenance, "_SLICE_SECONDS", 0.0001)
    assert store._commits._maintain()
    assert 0 < entries(store, "messages") < 2000
    store.close()
    monkeypatch.undo()
    store = open_store(tmp_path)  # wakes the sweeper
    thread = store._commits.maintenance._thread
    assert thread is not None
    while entries(store, "messages") or entries(store, "visible"):
        thread.join(0.01)
    assert (ids(store), store.stats(QUEUE)) == ([], (0, 0))
    store.close()


def test_the_store_works_while_it_is_swept(store: Store) -> None:
    for key in range(3000):
        put(store, key)
    commit(store)
    with store.lock:
        store.drop_queue(QUEUE)
    commit(store)
    for key in range(200):
        put(store, key)
        commit(store)
        take(store, key)
    commit(store)
    assert ids(store) == []
