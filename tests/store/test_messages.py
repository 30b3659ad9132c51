"""The store as a reader sees it: order, the newest state, totals."""

from __future__ import annotations

from pathlib import Path

from lanner.model.enums import PositionState
from lanner.store import Record, Store
from tests.store.conftest import (
    QUEUE,
    commit,
    commit_and_checkpoint,
    entries,
    ids,
    ids_backwards,
    lookup_id,
    open_store,
    record,
)


def test_messages_come_by_priority_then_arrival(store: Store) -> None:
    low, first, second, high = lookup_id(0, 1), lookup_id(3, 2), lookup_id(3, 3), lookup_id(7, 4)
    for key in (low, first):
        store.put(QUEUE, key, record(), express=False)
    commit(store)
    store.put(QUEUE, second, record(), express=True)
    store.put(QUEUE, high, record(), express=False)
    assert ids(store) == [high, first, second, low]
    assert ids_backwards(store) == [low, second, first, high]


def test_queues_do_not_see_each_other(store: Store) -> None:
    for queue in (QUEUE - 1, QUEUE, QUEUE + 1):
        store.put(queue, 5, record(b"%d" % queue), express=False)
    commit(store)
    assert ids(store) == [5]
    assert ids_backwards(store) == [5]
    found = store.get(QUEUE, 5)
    assert found is not None
    assert found.packet == b"7"
    assert ids(store, QUEUE + 2) == []
    assert ids_backwards(store, QUEUE + 2) == []


def test_lookup_ids_at_both_ends_are_found(store: Store) -> None:
    for key in (0, (1 << 64) - 1):
        store.put(QUEUE, key, record(), express=False)
    for _ in range(2):
        assert ids(store) == [0, (1 << 64) - 1]
        assert ids_backwards(store) == [(1 << 64) - 1, 0]
        assert store.next(QUEUE, (1 << 64) - 1) is None
        assert store.previous(QUEUE, 0) is None
        commit(store)


def test_a_record_comes_back_as_it_was_put(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put(
        QUEUE, 1, Record(b"p", 12, state=PositionState.LOCKED, abort_count=3, move_count=4, flags=0x8001), express=False
    )
    store.put(QUEUE, 2, Record(b"", 13), express=False)
    store.close()
    store = open_store(tmp_path)
    locked, available = store.get(QUEUE, 1), store.get(QUEUE, 2)
    assert locked is not None
    assert available is not None
    assert (locked.packet, locked.arrived, locked.visibility, locked.state) == (b"p", 12, 0, PositionState.LOCKED)
    assert (locked.abort_count, locked.move_count, locked.flags) == (3, 4, 0x8001)
    assert (available.packet, available.arrived, available.state) == (b"", 13, PositionState.AVAILABLE)
    assert available.visibility == 1
    store.close()


def test_counts_stop_at_their_highest_value(store: Store) -> None:
    store.put(QUEUE, 1, Record(b"p", 12, abort_count=70_000, move_count=70_000), express=False)
    commit_and_checkpoint(store)
    found = store.get(QUEUE, 1)
    assert found is not None
    assert (found.abort_count, found.move_count) == (0xFFFF, 0xFFFF)


def test_a_message_put_and_deleted_in_one_batch_never_reaches_the_disk(store: Store) -> None:
    message = record()
    store.put(QUEUE, 1, message, express=False)
    store.delete(QUEUE, 1, message)
    commit(store)
    assert (entries(store, "messages"), entries(store, "visible")) == (0, 0)
    assert store.stats(QUEUE) == (0, 0)


def test_totals_count_durable_and_express_messages_and_survive(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    messages = {key: record(b"x" * key) for key in (10, 20, 30)}
    store.put(QUEUE, 10, messages[10], express=False)
    store.put(QUEUE, 20, messages[20], express=False)
    store.put(QUEUE, 30, messages[30], express=True)
    assert store.stats(QUEUE) == (3, 60)
    commit(store)
    store.delete(QUEUE, 10, messages[10])
    assert store.stats(QUEUE) == (2, 50)
    store.close()
    store = open_store(tmp_path)
    assert store.stats(QUEUE) == (1, 20)
    assert ids(store) == [20]
    store.close()


def test_putting_again_replaces_and_moves_the_visibility_number(store: Store) -> None:
    first = record(b"old")
    store.put(QUEUE, 1, first, express=False)
    commit(store)
    again = store.get(QUEUE, 1)
    assert again is not None
    assert again.visibility == 1
    again.abort_count += 1
    store.put(QUEUE, 1, again, express=False)
    assert again.visibility == 2
    commit(store)
    assert store.stats(QUEUE) == (1, 3)
    assert entries(store, "visible") == 1
    found = store.get(QUEUE, 1)
    assert found is not None
    assert (found.visibility, found.abort_count) == (2, 1)


def test_a_locked_message_has_no_number_until_it_becomes_available(store: Store) -> None:
    message = Record(b"p", 1, state=PositionState.LOCKED)
    store.put(QUEUE, 1, message, express=False)
    commit(store)
    assert message.visibility == 0
    message.state = PositionState.AVAILABLE
    store.put(QUEUE, 1, message, express=False)
    assert message.visibility == 1
    commit(store)
    found = store.get(QUEUE, 1)
    assert found is not None
    assert found.state is PositionState.AVAILABLE
    assert store.stats(QUEUE) == (1, 1)


def test_a_head_reader_steps_over_what_it_took_once(store: Store) -> None:
    """Ten thousand receives before a sync must not each walk over all that were taken before."""
    for key in range(5000):
        store.put(QUEUE, key, record(), express=False)
    commit(store)
    taken = []
    while (first := store.next(QUEUE, -1)) is not None:
        message = store.get(QUEUE, first)
        assert message is not None
        store.delete(QUEUE, first, message)
        taken.append(first)
    assert taken == list(range(5000))
    assert len(store._commits.queue(QUEUE)._runs) == 1
    commit(store)
    assert store.next(QUEUE, -1) is None
    assert store.stats(QUEUE) == (0, 0)


def test_an_express_message_may_replace_a_durable_one(store: Store) -> None:
    store.put(QUEUE, 1, record(b"durable"), express=False)
    commit(store)
    store.put(QUEUE, 1, record(b"express"), express=True)
    for _ in range(2):
        found = store.get(QUEUE, 1)
        assert found is not None
        assert found.packet == b"express"
        assert ids(store) == [1]
        assert store.stats(QUEUE) == (1, 7)
        commit(store)
