"""Staging: durable and invisible until published, all at once, once per key."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanner.model.errors import InsufficientResources, InvalidParameter
from lanner.store import Store, staging
from lanner.store.staging import _CHUNK, _LOOK_SECONDS, _PAUSE_SECONDS
from tests.store.conftest import QUEUE, commit, entries, ids, lookup_id, no_room, open_store, put, take

NOW = 1_700_000_000


def stage(store: Store, token: bytes, packets: list[tuple[int, bytes]], queue: int = QUEUE, now: int = NOW) -> None:
    store.stage(token, queue, [(priority, [packet]) for priority, packet in packets], now)
    commit(store)


def publish(store: Store, key: bytes, *tokens: bytes) -> tuple[bool, dict[int, int]]:
    told: dict[int, int] = {}
    is_new = store.publish(key, tokens, store.counter("sequential_id").next, NOW, completed=told.update)
    assert told == {}
    commit(store)
    return is_new, told


def packets(store: Store, queue: int = QUEUE) -> list[bytes]:
    found = []
    for key in ids(store, queue):
        message = store.get(queue, key)
        assert message is not None
        found.append(message.packet)
    return found


def test_staged_messages_are_invisible_until_published(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    stage(store, b"t", [(3, b"one"), (3, b"two")])
    stage(store, b"t", [(3, b"three")])
    assert (ids(store), store.stats(QUEUE), list(store.scan(QUEUE, 0))) == ([], (0, 0), [])
    store.close()
    store = open_store(tmp_path)
    assert publish(store, b"query 1 batch 1", b"t") == (True, {QUEUE: 3})
    assert packets(store) == [b"one", b"two", b"three"]
    assert store.stats(QUEUE) == (3, 11)
    store.close()
    store = open_store(tmp_path)
    assert packets(store) == [b"one", b"two", b"three"]
    assert store.stats(QUEUE) == (3, 11)
    found = store.get(QUEUE, ids(store)[0])
    assert found is not None
    assert (found.arrived, found.visibility, found.abort_count) == (NOW, 1, 0)
    store.close()


def test_a_publication_takes_priority_order_and_sees_earlier_messages(store: Store) -> None:
    put(store, lookup_id(3, store.counter("sequential_id").next()), b"before")
    stage(store, b"t", [(3, b"low"), (7, b"high"), (3, b"low too")])
    publish(store, b"k", b"t")
    assert packets(store) == [b"high", b"before", b"low", b"low too"]
    scanned = list(store.scan(QUEUE, 0))
    assert sorted(number for number, _, _ in scanned) == [1, 2, 3, 4]


def test_many_tokens_and_queues_become_visible_in_one_batch(store: Store) -> None:
    stage(store, b"a", [(3, b"a1")])
    stage(store, b"a", [(3, b"a2")], queue=QUEUE + 1)
    stage(store, b"b", [(3, b"b1"), (3, b"b2")])
    before = store.synced
    assert publish(store, b"k", b"a", b"b", b"a") == (True, {QUEUE: 3, QUEUE + 1: 1})
    assert store.synced == before + 1
    assert packets(store) == [b"a1", b"b1", b"b2"]
    assert packets(store, QUEUE + 1) == [b"a2"]


def test_publishing_again_under_the_same_key_does_nothing(store: Store) -> None:
    stage(store, b"t", [(3, b"one")])
    assert publish(store, b"k", b"t") == (True, {QUEUE: 1})
    assert publish(store, b"k", b"t") == (False, {})
    stage(store, b"u", [(3, b"a retry wrote it again")])
    assert publish(store, b"k", b"u") == (False, {})
    assert packets(store) == [b"one"]
    assert store.published(b"k") == (1, 3, NOW)
    assert store.published(b"other") is None
    store.forget_publication(b"k")
    assert publish(store, b"k", b"u")[0]


def test_publishing_an_unknown_token_is_an_error_and_changes_nothing(store: Store) -> None:
    stage(store, b"t", [(3, b"one")])
    with pytest.raises(InvalidParameter, match=r"stage 75 is unknown"):
        store.publish(b"k", [b"t", b"u"], store.counter("sequential_id").next, NOW)
    commit(store)
    assert ids(store) == []
    assert publish(store, b"k", b"t")[0]


def test_an_empty_stage_can_be_published(store: Store) -> None:
    stage(store, b"t", [])
    assert publish(store, b"k", b"t") == (True, {})
    assert store.published(b"k") == (0, 0, NOW)


@pytest.mark.parametrize("token", [b"", b"x" * 65])
def test_a_token_has_1_to_64_bytes(store: Store, token: bytes) -> None:
    with pytest.raises(InvalidParameter):
        store.stage(token, QUEUE, [], NOW)


def test_stage_and_publish_may_share_a_batch(store: Store) -> None:
    store.stage(b"t", QUEUE, [(3, [b"one"])], NOW)
    publish(store, b"k", b"t")
    assert packets(store) == [b"one"]


def test_a_published_message_can_be_taken_put_back_and_moved(store: Store) -> None:
    stage(store, b"t", [(3, b"one"), (3, b"two"), (3, b"three")])
    publish(store, b"k", b"t")
    one, two, three = ids(store)
    take(store, one)
    again = store.get(QUEUE, two)
    assert again is not None
    again.abort_count += 1
    store.put(QUEUE, two, again, express=False)
    moved = store.get(QUEUE, three)
    assert moved is not None
    store.put(QUEUE + 1, three, moved, express=False)
    store.delete(QUEUE, three, moved)
    commit(store)
    assert packets(store) == [b"two"]
    assert packets(store, QUEUE + 1) == [b"three"]
    assert (store.stats(QUEUE), store.stats(QUEUE + 1)) == ((1, 3), (1, 5))
    assert entries(store, "staged") == 0
    assert (entries(store, "messages"), entries(store, "visible")) == (2, 2)


def test_dropped_and_expired_stages_leave_nothing(store: Store) -> None:
    store._commits.maintenance.stop()
    stage(store, b"old", [(3, b"1")], now=NOW - 100)
    stage(store, b"new", [(3, b"2")])
    stage(store, b"dropped", [(3, b"3")])
    assert store.drop_stage(b"dropped")
    assert not store.drop_stage(b"dropped")
    assert store.expire_stages(NOW) == 1
    assert store.expire_stages(NOW) == 0
    commit(store)
    while store._commits._maintain():
        pass
    assert entries(store, "staged") == 1
    with pytest.raises(InvalidParameter):
        store.publish(b"k", [b"old"], store.counter("sequential_id").next, NOW)
    assert publish(store, b"k", b"new") == (True, {QUEUE: 1})


def test_a_token_written_again_after_it_was_dropped_is_a_new_stage(store: Store) -> None:
    store._commits.maintenance.stop()
    stage(store, b"t", [(3, b"first")])
    store.drop_stage(b"t")
    stage(store, b"t", [(3, b"second")])
    while store._commits._maintain():
        pass
    publish(store, b"k", b"t")
    assert packets(store) == [b"second"]


def test_a_failed_publication_can_be_done_again(store: Store) -> None:
    stage(store, b"t", [(3, b"one")])
    told: dict[int, int] = {}
    assert store.publish(b"k", [b"t"], store.counter("sequential_id").next, NOW, completed=told.update)
    with no_room(), pytest.raises(InsufficientResources):
        store.sync(store.pending_batch())
    assert (told, ids(store), store.stats(QUEUE)) == ({}, [], (0, 0))
    assert publish(store, b"k", b"t") == (True, {QUEUE: 1})
    assert packets(store) == [b"one"]


def test_a_publication_into_a_queue_that_is_dropped_meanwhile_is_dropped_too(store: Store) -> None:
    store._commits.maintenance.stop()
    stage(store, b"t", [(3, b"one")])
    store.publish(b"k", [b"t"], store.counter("sequential_id").next, NOW)
    store.drop_queue(QUEUE)
    commit(store)
    assert (ids(store), store.stats(QUEUE)) == ([], (0, 0))
    while store._commits._maintain():
        pass
    assert (entries(store, "messages"), entries(store, "visible"), entries(store, "staged")) == (0, 0, 0)


def test_thousands_of_messages_are_published_in_chunks_of_one_commit(store: Store) -> None:
    store.stage(b"t", QUEUE, [(3, [b"%d" % number for number in range(5000)])], NOW)
    assert publish(store, b"k", b"t") == (True, {QUEUE: 5000})
    assert packets(store) == [b"%d" % number for number in range(5000)]
    assert len({number for number, _, _ in store.scan(QUEUE, 0)}) == 5000
    taken = take(store, ids(store)[0])
    store.put(QUEUE, lookup_id(3, 1), taken, express=False)
    commit(store)
    assert store.stats(QUEUE)[0] == 5000


@pytest.mark.parametrize(("waited", "sleeps"), [(0.0001, [_LOOK_SECONDS]), (0.005, [_LOOK_SECONDS, _PAUSE_SECONDS])])
def test_a_publication_gives_way_after_each_chunk_and_longer_if_somebody_was_there(
    store: Store, monkeypatch: pytest.MonkeyPatch, waited: float, sleeps: list[float]
) -> None:
    """Who waits for the interpreter has it when the look ends, so that this takes longer."""
    now, slept = [0.0], list[float]()

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now[0]

        @staticmethod
        def sleep(seconds: float) -> None:
            slept.append(seconds)
            now[0] += waited

    monkeypatch.setattr(staging, "time", Clock)
    store.stage(b"t", QUEUE, [(3, [b"x"] * (2 * _CHUNK + 1))], NOW)
    assert publish(store, b"k", b"t")[0]
    assert slept == sleeps * 2
