"""A record that is not what was written is put aside, and the rest works."""

from __future__ import annotations

import logging
from pathlib import Path

import lmdb
import pytest

from lanner.store import Store
from lanner.store.record import MESSAGE_KEY
from tests.store.conftest import MAP_SIZE, QUEUE, commit, entries, ids, open_store, put


def damage(path: Path, database: bytes, key: bytes, at: int) -> bytes:
    """Flip one bit of a stored value and return the damaged value."""
    with lmdb.open(str(path), map_size=MAP_SIZE, max_dbs=8) as env:
        db = env.open_db(database)
        with env.begin(write=True) as txn:
            value = bytearray(txn.get(key, db=db) or b"")
            value[at] ^= 0x10
            txn.put(key, bytes(value), db=db)
    return bytes(value)


def filled(path: Path) -> None:
    store = open_store(path)
    for key in (1, 2, 3):
        put(store, key, b"message %d" % key)
    store.close()


@pytest.mark.parametrize("at", range(24 + len(b"message 2")))
def test_a_flipped_bit_anywhere_is_found_and_the_record_put_aside(
    tmp_path: Path, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path)
    key = MESSAGE_KEY.pack(QUEUE, 0, 2)
    value = damage(tmp_path, b"messages", key, at)
    store = open_store(tmp_path)
    with caplog.at_level(logging.ERROR):
        assert store.get(QUEUE, 2) is None
    assert f"queue {QUEUE}: message 0x0000000000000002 is corrupt" in caplog.text
    assert ids(store) == [1, 3]
    commit(store)
    assert store.table("quarantine").get(key) == value
    assert store.stats(QUEUE) == (2, 18)
    store.close()
    store = open_store(tmp_path)
    assert ids(store) == [1, 3]
    assert list(store.table("quarantine").items()) == [(key, value)]
    assert len(list(store.scan(QUEUE, 0))) == 2
    store.close()


def test_a_read_of_the_next_message_puts_a_corrupt_one_aside_on_its_way(tmp_path: Path) -> None:
    filled(tmp_path)
    key = MESSAGE_KEY.pack(QUEUE, 0, 2)
    value = damage(tmp_path, b"messages", key, 30)
    store = open_store(tmp_path)
    found = store.read_next(QUEUE, -1, {1})
    assert found is not None
    assert (found[0], found[1].packet) == (3, b"message 3")
    assert store.table("quarantine").get(key) == value
    assert ids(store) == [1, 3]
    assert store.read_next(QUEUE, 1, {3}) is None
    store.close()


def test_a_scan_leaves_a_corrupt_record_out_and_has_it_put_aside(tmp_path: Path) -> None:
    filled(tmp_path)
    damage(tmp_path, b"messages", MESSAGE_KEY.pack(QUEUE, 0, 2), 30)
    store = open_store(tmp_path)
    assert [key for _, key, _ in store.scan(QUEUE, 0)] == [1, 3]
    assert ids(store) == [1, 3]
    commit(store)
    assert (entries(store, "messages"), entries(store, "visible")) == (2, 2)
    store.close()


def test_a_corrupt_published_packet_is_found(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.stage(b"t", QUEUE, [(3, [b"one", b"two"])], 1)
    store.publish(b"k", [b"t"], store.counter("sequential_id").next, 1)
    commit(store)
    with store._environment.env.begin() as txn:
        staged = [bytes(key) for key, _ in txn.cursor(store._environment.staged)]
    store.close()
    damage(tmp_path, b"staged", staged[0], 5)
    store = open_store(tmp_path)
    first, second = ids(store)
    assert store.get(QUEUE, first) is None
    found = store.get(QUEUE, second)
    assert found is not None
    assert found.packet == b"two"
    assert ids(store) == [second]
    assert store.stats(QUEUE) == (1, 3)
    store.close()


def test_a_missing_staged_row_is_found(tmp_path: Path, store: Store) -> None:
    store.stage(b"t", QUEUE, [(3, [b"one"])], 1)
    store.publish(b"k", [b"t"], store.counter("sequential_id").next, 1)
    commit(store)
    with store._environment.write() as txn:
        txn.drop(store._environment.staged, delete=False)
    store._environment.renew()
    assert store.get(QUEUE, ids(store)[0]) is None
    assert ids(store) == []
