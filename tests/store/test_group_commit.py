"""Batches, leaders and followers, and what a failed commit undoes."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lanner.model.errors import InsufficientResources
from lanner.store import Store
from tests.store.conftest import QUEUE, commit, commit_and_checkpoint, entries, ids, no_room, put, record, take


def test_no_batch_is_pending_when_everything_is_durable(store: Store) -> None:
    assert store.pending_batch() == 0
    put(store, 1)
    batch = store.pending_batch()
    assert batch > store.synced
    put(store, 2)
    assert store.pending_batch() == batch
    store.sync(batch)
    assert store.synced == batch
    assert store.pending_batch() == 0
    store.sync(batch)
    store.sync(0)


def test_one_commit_serves_everybody_who_came_meanwhile(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads sync each message before the next.

    There are far fewer commits than messages.
    """
    commits: list[int] = []
    store.on_synced(commits.append)
    write = os.pwritev

    def write_slowly(*arguments: Any) -> int:  # noqa: ANN401 (those of os.pwritev)
        # A write to a disk gives other threads time to fill the next batch; one to memory does not.
        time.sleep(0.001)
        return write(*arguments)

    monkeypatch.setattr(os, "pwritev", write_slowly)
    threads, messages = 8, 25
    start = threading.Barrier(threads)

    def send(lane: int) -> None:
        start.wait()
        for number in range(messages):
            with store.lock:
                store.put(QUEUE, lane << 56 | number, record(), express=False)
                batch = store.pending_batch()
            store.sync(batch)
            assert store.synced >= batch

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(send, range(threads)))
    assert entries(store, "messages") == threads * messages
    assert store.stats(QUEUE) == (threads * messages, threads * messages * 6)
    assert commits == sorted(set(commits))
    assert len(commits) < threads * messages


def test_a_reader_sees_the_batch_in_flight_and_the_one_being_filled(store: Store) -> None:
    for key in (1, 2, 3):
        put(store, key)
    batch = store.pending_batch()
    store.prepare()
    put(store, 4)
    take(store, 2)
    assert ids(store) == [1, 3, 4]
    assert store.pending_batch() == batch + 1
    store._commits._lead()
    assert ids(store) == [1, 3, 4]
    assert entries(store, "messages") == 3
    commit(store)
    assert ids(store) == [1, 3, 4]
    assert entries(store, "messages") == 3


def test_putting_a_record_again_does_not_disturb_the_batch_in_flight(store: Store) -> None:
    """The committed number is the one issued for that batch.

    The object has a new number by then.
    """
    message = put(store, 1)
    store.prepare()
    store.put(QUEUE, 1, message, express=False)
    assert message.visibility == 2
    store._commits._lead()
    store.checkpoint()
    assert [number for number, _, _ in store.scan(QUEUE, 0)] == [1]
    commit_and_checkpoint(store)
    assert [number for number, _, _ in store.scan(QUEUE, 0)] == [2]


def test_callbacks_hear_of_batches_and_cannot_break_a_commit(store: Store) -> None:
    heard: list[int] = []

    def broken(number: int) -> None:
        raise RuntimeError(number)

    store.on_synced(broken)
    store.on_synced(heard.append)
    put(store, 1)
    batch = store.pending_batch()
    commit(store)
    assert heard == [batch]
    assert store.synced == batch


def test_a_failed_commit_undoes_everything_unsynced_and_nothing_else(store: Store) -> None:
    failed: list[int] = []
    store.on_failed(failed.append)
    put(store, 1, b"kept")
    put(store, 2, b"kept too")
    store.table("t").put(b"k", b"old")
    commit(store)
    put(store, 3, b"express", express=True)
    put(store, 4, b"lost")
    take(store, 1)
    store.table("t").put(b"k", b"new")
    batch = store.pending_batch()
    with no_room(), pytest.raises(InsufficientResources, match=f"batch {batch} "):
        store.sync(batch)
    assert ids(store) == [1, 2, 3]
    assert store.stats(QUEUE) == (3, len(b"keptkept tooexpress"))
    assert store.table("t").get(b"k") == b"old"
    assert store.pending_batch() == 0
    assert failed[0] == batch
    with pytest.raises(InsufficientResources):
        store.sync(batch)

    put(store, 5, b"again")
    commit(store)
    assert ids(store) == [1, 2, 3, 5]
    with pytest.raises(InsufficientResources):
        store.sync(batch)


def test_failed_batches_in_a_row_are_remembered_as_one_range(store: Store) -> None:
    batches = []
    for key in range(5):
        put(store, key)
        batches.append(store.pending_batch())
        with no_room(), pytest.raises(InsufficientResources):
            store.sync(batches[-1])
    assert len(store._commits._failed) == 1
    put(store, 9)
    commit(store)
    for batch in batches:
        with pytest.raises(InsufficientResources):
            store.sync(batch)


def test_everybody_who_waits_for_a_failed_batch_is_told(store: Store) -> None:
    answers: list[str] = []
    put(store, 9)
    commit(store)
    start = threading.Barrier(4)

    def send(key: int) -> None:
        with store.lock:
            store.put(QUEUE, key, record(), express=False)
            batch = store.pending_batch()
        start.wait()
        try:
            store.sync(batch)
            answers.append("durable")
        except InsufficientResources:
            answers.append("refused")

    with no_room():
        workers = [threading.Thread(target=send, args=(key,)) for key in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert answers == ["refused"] * 4
    assert ids(store) == [9]


def test_the_store_opens_its_file_again_after_a_fatal_error(store: Store) -> None:
    put(store, 1)
    commit(store)
    put(store, 2)
    with store.lock:
        store._environment.reopen()
    assert ids(store) == [1, 2]
    commit(store)
    assert ids(store) == [1, 2]
    assert entries(store, "messages") == 2
