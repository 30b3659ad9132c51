"""Reading by visibility number: nothing is lost to a reader that remembers only a number."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.enums import PositionState
from lanner.store import Record, Store
from lanner.store.queue_view import ExpressLayer
from tests.store.conftest import QUEUE, commit, commit_and_checkpoint, lookup_id, put, take


def numbers(store: Store, after: int = 0, upto: int | None = None) -> list[int]:
    with store.lock:
        scan = store.scan(QUEUE, after, upto)
    return [number for number, _, _ in scan]


def packets(store: Store, after: int = 0, upto: int | None = None) -> list[bytes]:
    with store.lock:
        scan = store.scan(QUEUE, after, upto)
    return [message.packet for _, _, message in scan]


def test_a_scan_follows_visibility_not_priority(store: Store) -> None:
    put(store, lookup_id(0, 1), b"first")
    put(store, lookup_id(7, 2), b"second")
    put(store, lookup_id(3, 3), b"third", express=True)
    commit_and_checkpoint(store)
    assert packets(store) == [b"first", b"second", b"third"]
    assert packets(store, 1) == [b"second", b"third"]
    assert packets(store, 1, 2) == [b"second"]
    assert packets(store, 3) == []
    assert packets(store, 2, 1) == []


def test_a_message_that_becomes_available_late_comes_late(store: Store) -> None:
    """Its lookup id is lower than those already read, and its number is higher.

    A reader past the others still finds it.
    """
    late = Record(b"late", 1, state=PositionState.LOCKED)
    store.put(QUEUE, 1, late, express=False)
    put(store, 2, b"early")
    commit_and_checkpoint(store)
    assert packets(store) == [b"early"]
    read_up_to = store.visible_bounds(QUEUE)[1]
    late.state = PositionState.AVAILABLE
    store.put(QUEUE, 1, late, express=False)
    commit_and_checkpoint(store)
    assert packets(store, read_up_to) == [b"late"]


def test_an_aborted_receive_shows_the_message_again_under_a_new_number(store: Store) -> None:
    message = put(store, 1, b"back again")
    commit_and_checkpoint(store)
    assert numbers(store) == [1]
    store.put(QUEUE, 1, message, express=False)
    commit_and_checkpoint(store)
    assert numbers(store) == [2]
    assert packets(store, 1) == [b"back again"]


def test_a_scan_sees_what_is_synced_and_its_own_moment(store: Store) -> None:
    put(store, 1)
    commit_and_checkpoint(store)
    put(store, 2)
    take(store, 1)
    scan = store.scan(QUEUE, 0)
    commit_and_checkpoint(store)
    put(store, 3)
    commit_and_checkpoint(store)
    assert [key for _, key, _ in scan] == [1]
    assert [key for _, key, _ in store.scan(QUEUE, 0)] == [2, 3]


def test_an_express_message_waits_for_durable_ones_with_lower_numbers(store: Store) -> None:
    """Otherwise a reader would remember the express one's number and never see the durable one."""
    put(store, 1, b"durable")
    put(store, 2, b"express", express=True)
    assert store.visible_bounds(QUEUE) == (0, 0)
    assert packets(store) == []
    commit_and_checkpoint(store)
    assert store.visible_bounds(QUEUE) == (0, 2)
    assert packets(store) == [b"durable", b"express"]
    put(store, 3, b"express at once", express=True)
    assert packets(store, 2) == [b"express at once"]


def test_the_bounds_of_an_empty_queue_are_where_everything_is_decided(store: Store) -> None:
    assert store.visible_bounds(QUEUE) == (0, 0)
    put(store, 1, queue=QUEUE + 1)
    commit_and_checkpoint(store)
    assert store.visible_bounds(QUEUE) == (1, 1)
    put(store, 1)
    commit_and_checkpoint(store)
    assert store.visible_bounds(QUEUE) == (1, 2)
    take(store, 1)
    commit_and_checkpoint(store)
    assert store.visible_bounds(QUEUE) == (2, 2)


def test_a_scan_stays_in_its_queue(store: Store) -> None:
    for queue in (QUEUE - 1, QUEUE, QUEUE + 1, 0xFFFF_FFFF):
        put(store, 1, b"%d" % queue, queue=queue)
    commit_and_checkpoint(store)
    assert packets(store) == [b"7"]
    assert store.visible_bounds(0xFFFF_FFFF) == (3, 4)
    assert store.visible_bounds(QUEUE) == (1, 2)


def test_a_stream_that_remembers_one_number_misses_nothing(store: Store) -> None:
    """Late transactions, aborted receives, mixed priorities and express messages.

    Everything is seen at least once.
    """
    chance = random.Random(5)
    seen: set[bytes] = set()
    late: list[tuple[int, Record]] = []
    position = 0
    for sequential_id in range(1, 400):
        key = lookup_id(chance.randrange(8), sequential_id)
        message = Record(b"%d" % sequential_id, 1)
        kind = chance.random()
        if kind < 0.2:
            message.state = PositionState.LOCKED
            late.append((key, message))
        store.put(QUEUE, key, message, express=0.2 <= kind < 0.4)
        if late and chance.random() < 0.2:
            key, message = late.pop(chance.randrange(len(late)))
            message.state = PositionState.AVAILABLE
            store.put(QUEUE, key, message, express=False)
        if chance.random() < 0.3:
            commit_and_checkpoint(store)
        if chance.random() < 0.3:
            with store.lock:
                upto = max(position, store.visible_bounds(QUEUE)[1])
                scan = store.scan(QUEUE, position, upto)
            seen |= {message.packet for _, _, message in scan}
            position = upto
    for key, message in late:
        message.state = PositionState.AVAILABLE
        store.put(QUEUE, key, message, express=False)
    commit_and_checkpoint(store)
    seen |= set(packets(store, position))
    assert seen == {b"%d" % sequential_id for sequential_id in range(1, 400)}


def test_a_scan_may_run_in_another_thread_while_the_queue_is_emptied(store: Store) -> None:
    for key in range(500):
        put(store, key)
    commit_and_checkpoint(store)
    with store.lock:
        scan = store.scan(QUEUE, 0)
    found: list[int] = []
    reader = threading.Thread(target=lambda: found.extend(key for _, key, _ in scan))
    reader.start()
    for key in range(500):
        take(store, key)
    commit_and_checkpoint(store)
    reader.join()
    assert found == list(range(500))


def test_a_scan_gives_its_snapshot_back(store: Store) -> None:
    put(store, 1)
    put(store, 2)
    commit_and_checkpoint(store)
    with store.scan(QUEUE, 0) as scan:
        for _ in scan:
            break
    assert scan._txn is None
    left = store.scan(QUEUE, 0)
    assert next(iter(left))[1] == 1  # the iterator is gone, and the snapshot with it
    assert left._txn is None


def test_the_index_tells_numbers_and_sizes_without_reading(store: Store) -> None:
    put(store, lookup_id(3, 1), b"one")
    put(store, lookup_id(7, 2), b"three")
    commit_and_checkpoint(store)
    put(store, lookup_id(0, 3), b"express!", express=True)
    put(store, lookup_id(0, 4), b"not synced")
    assert list(store.index(QUEUE, 0, 100)) == [(1, lookup_id(3, 1), 3), (2, lookup_id(7, 2), 5)]
    commit_and_checkpoint(store)
    expected = [(2, lookup_id(7, 2), 5), (3, lookup_id(0, 3), 8)]
    assert list(store.index(QUEUE, 1, 3)) == expected
    rows = store.index(QUEUE, 0, 100)
    next(rows)
    rows.close()  # type: ignore[attr-defined]  # a generator; the snapshot is let go
    commit_and_checkpoint(store)


def test_what_was_shown_as_decided_stays_so_when_a_commit_begins(store: Store) -> None:
    """Express messages get numbers without a commit.

    A commit that begins afterwards must not hide them again.
    """
    put(store, lookup_id(3, 1), b"durable")
    commit_and_checkpoint(store)
    put(store, lookup_id(3, 2), b"express", express=True)
    assert (store.horizon, store.scan_horizon) == (2, 2)
    put(store, lookup_id(3, 3), b"not synced")
    assert (store.horizon, store.scan_horizon) == (2, 2)
    assert packets(store) == [b"durable", b"express"]
    commit(store)
    assert (store.horizon, store.scan_horizon) == (3, 2)
    store.checkpoint()
    assert store.scan_horizon == 3


def test_a_closed_scan_says_so(store: Store) -> None:
    put(store, 1)
    commit_and_checkpoint(store)
    scan = store.scan(QUEUE, 0)
    scan.close()
    for use in (lambda: scan.database("messages"), lambda: list(scan)):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_a_scan_leaves_out_what_is_not_what_was_written(store: Store) -> None:
    store.stage(b"token", QUEUE, [(3, [b"staged", b"broken"])], 1)
    commit_and_checkpoint(store)
    store.publish(b"key", [b"token"], store.counter("ids").next, 1)
    put(store, lookup_id(3, 9), b"last")
    commit_and_checkpoint(store)
    assert packets(store) == [b"staged", b"broken", b"last"]
    environment = store._environment
    with environment.write() as txn:
        for database, text in ((environment.messages, b"last"), (environment.staged, b"broken")):
            key, raw = next((key, raw) for key, raw in txn.cursor(database) if raw.endswith(text))
            txn.put(key, raw[:-1] + b"?", db=database)
    with store.lock:
        environment.renew()
    assert packets(store) == [b"staged"]


def test_a_scan_of_many_express_messages_lists_no_more_than_are_wanted(store: Store) -> None:
    for key in range(1, 21):
        put(store, key, b"%d" % key, express=key % 4 != 0)
    commit_and_checkpoint(store)
    with store.lock:
        scan = store.scan(QUEUE, 0, None, 6)
    assert (scan.upto, [number for number, _, _ in scan]) == (7, [1, 2, 3, 4, 5, 6, 7])
    with store.lock:
        scan = store.scan(QUEUE, 7, None, 100)
    assert [number for number, _, _ in scan] == list(range(8, 21))


def test_the_index_goes_over_express_messages_bit_by_bit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanner.store.store._EXPRESS_AT_ONCE", 3)
    for key in range(1, 21):
        put(store, key, b"x" * key, express=key % 2 == 0)
    commit_and_checkpoint(store)
    assert list(store.index(QUEUE, 0, 1 << 40)) == [(key, key, key) for key in range(1, 21)]
    assert [number for number, _, _ in store.index(QUEUE, 4, 8)] == [5, 6, 7, 8]
    found = store.index(QUEUE, 0, 20)
    assert next(found)[0] == 1
    take(store, 19)
    take(store, 20)
    commit_and_checkpoint(store)
    assert [number for number, _, _ in found] == list(range(2, 19))


@given(
    steps=st.lists(st.tuples(st.sampled_from(["put", "take", "again"]), st.integers(1, 12)), max_size=60),
    after=st.integers(0, 40),
    length=st.integers(0, 40),
    limit=st.none() | st.integers(1, 5),
)
def test_numbers_of_express_messages_are_found_in_order(
    steps: list[tuple[str, int]], after: int, length: int, limit: int | None
) -> None:
    layer = ExpressLayer(0)
    model: dict[int, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lanner.store.queue_view._MAX_GONE", 3)
        for number, (step, key) in enumerate(steps, 1):
            if step == "take" or key in model:
                model.pop(key, None)
                layer.visible.pop(key, None)
            if step != "take":
                model[key] = number
                layer.number(key, number)
                assert len(layer.order) <= 2 * len(model) + 3
    upto = after + length
    wanted = sorted((number, key) for key, number in model.items() if after < number <= upto)
    assert layer.between(after, upto, limit) == wanted[:limit]
    assert layer.last(upto) == max((number for number in model.values() if number <= upto), default=None)


def test_bounds_with_express_messages(store: Store) -> None:
    for key in (1, 2, 3):
        put(store, key, express=True)
    with store.lock:
        assert store.visible_bounds(QUEUE) == (0, 3)
    take(store, 1)
    take(store, 3)
    with store.lock:
        assert store.visible_bounds(QUEUE) == (1, 2)
    take(store, 2)
    with store.lock:
        assert store.visible_bounds(QUEUE) == (3, 3)
