"""Metadata tables: order, prefixes, limits, and one commit with the messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanner.store import Store
from tests.store.conftest import QUEUE, commit, ids, open_store, put


def test_rows_come_in_key_order_whatever_batch_they_are_in(store: Store) -> None:
    table = store.table("directory")
    table.put(b"b", b"1")
    table.put(b"d", b"2")
    commit(store)
    table.put(b"a", b"3")
    table.put(b"c", b"4")
    table.delete(b"d")
    assert list(table.items()) == [(b"a", b"3"), (b"b", b"1"), (b"c", b"4")]
    assert table.first() == (b"a", b"3")
    assert table.first(b"b") == (b"b", b"1")
    assert table.first(b"d") is None


def test_tables_do_not_see_each_other(store: Store) -> None:
    store.table("a").put(b"k", b"1")
    store.table("aa").put(b"k", b"2")
    store.table("ab").put(b"", b"3")
    commit(store)
    assert list(store.table("a").items()) == [(b"k", b"1")]
    assert store.table("aa").get(b"k") == b"2"
    assert store.table("ab").get(b"") == b"3"
    assert store.table("a").preceding(b"k") is None
    assert store.table("b").first() is None


def test_a_table_may_change_while_it_is_walked(store: Store) -> None:
    table = store.table("t")
    for key in (b"a", b"b", b"c"):
        table.put(key, b"")
    commit(store)
    seen = []
    for key, value in table.items():
        assert value == b""
        seen.append(key)
        table.delete(key)
        if key == b"a":
            table.put(b"bb", b"")
    assert seen == [b"a", b"b", b"bb", b"c"]
    assert list(table.items()) == []


@pytest.mark.parametrize("length", [505, 506])
def test_a_key_has_at_most_511_bytes_with_its_table(store: Store, length: int) -> None:
    table = store.table("queue")
    if length <= 505:
        table.put(b"k" * length, b"v")
        commit(store)
        assert table.get(b"k" * length) == b"v"
    else:
        with pytest.raises(ValueError, match="a key of 506 bytes, at most 505"):
            table.put(b"k" * length, b"v")


def test_large_values_and_messages_share_a_commit(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.table("t").put(b"k", b"x" * 100_000)
    put(store, 1, b"y" * 4_000_000)
    store.close()
    store = open_store(tmp_path)
    assert store.table("t").get(b"k") == b"x" * 100_000
    assert ids(store) == [1]
    assert store.stats(QUEUE) == (1, 4_000_000)
    store.close()
