"""Messages that are put, read and deleted many at a time: the same as one by one."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from lanner.model.live import START, Record
from lanner.store import Store
from tests.store.conftest import QUEUE, commit, commit_and_checkpoint, crash, ids, lookup_id, open_store, put, take

LAST = lookup_id(0, 0) | 0xFF_FFFF_FFFF_FFFF


def put_run(store: Store, first: int, *texts: bytes, express: bool = False) -> list[Record]:
    records = [Record(text, 5) for text in texts]
    with store.lock:
        store.put_run(QUEUE, first, records, express=express)
    return records


def read(store: Store, after: int = -1, upto: int = LAST, count: int = 1000, size: int = 1 << 20) -> list[bytes]:
    with store.lock:
        return [record.packet for _, record in store.read_run(QUEUE, after, upto, count, size)]


def test_a_run_has_lookup_ids_and_visibility_numbers_in_a_row(tmp_path: Path) -> None:
    first = lookup_id(3, 7)
    with closing(open_store(tmp_path / "store")) as store:
        before = store.last_number
        records = put_run(store, first, b"a", b"b", b"c")
        assert [record.visibility for record in records] == [before + 1, before + 2, before + 3]
        assert ids(store) == [first, first + 1, first + 2]
        with store.lock:
            assert store.stats(QUEUE) == (3, 3)
        commit(store)
        copy = crash(tmp_path / "store")
    with closing(open_store(copy)) as store:
        assert read(store) == [b"a", b"b", b"c"]


def test_a_run_in_the_place_of_others_replaces_them(store: Store) -> None:
    first = lookup_id(3, 7)
    put(store, first + 1, b"old")
    put_run(store, first, b"a", b"b")
    assert read(store) == [b"a", b"b"]
    with store.lock:
        assert store.stats(QUEUE) == (2, 2)


def test_a_run_is_read_up_to_a_count_a_size_and_an_end(store: Store) -> None:
    first = lookup_id(3, 1)
    put_run(store, first, *(b"%d" % number for number in range(10)))
    put_run(store, lookup_id(1, 50), b"another priority")
    assert read(store, count=3) == [b"0", b"1", b"2"]
    assert read(store, size=4) == [b"0", b"1", b"2", b"3"]
    assert read(store, after=first + 7) == [b"8", b"9", b"another priority"]
    assert read(store, after=first + 7, upto=first + 8) == [b"8"]
    assert read(store, after=LAST - 1) == []


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 4)),
        st.tuples(st.just("express"), st.integers(1, 3)),
        st.tuples(st.just("delete"), st.integers(1, 4)),
        st.tuples(st.just("take"), st.integers(1, 4)),
        st.tuples(st.just("commit"), st.just(0)),
        st.tuples(st.just("checkpoint"), st.just(0)),
    ),
    max_size=25,
)


@given(OPERATIONS, st.data())
def test_runs_are_what_single_steps_are(operations: list[tuple[str, int]], data: st.DataObject) -> None:
    """Whichever layer the messages lie in."""
    with tempfile.TemporaryDirectory() as path, closing(open_store(Path(path) / "store")) as store:
        there: dict[int, Record] = {}
        following = lookup_id(3, 1)
        for name, count in operations:
            if name in ("put", "express"):
                records = put_run(store, following, *[b"%d" % following] * count, express=name == "express")
                there |= dict(enumerate(records, following))
                following += count
            elif name == "delete":
                keys = data.draw(st.lists(st.sampled_from(sorted(there)), max_size=count, unique=True)) if there else []
                rows = [(key, there.pop(key)) for key in keys]
                with store.lock:
                    assert store.delete_run(QUEUE, [*rows, (following + 9, Record(b"none"))]) == rows
            elif name == "take":
                held = set(data.draw(st.lists(st.sampled_from(sorted(there)), max_size=3))) if there else set()
                with store.lock:
                    taken = store.take_run(QUEUE, START, LAST, count, 1 << 20, held)
                assert [key for key, _ in taken] == sorted(there.keys() - held)[:count]
                for key, _ in taken:
                    del there[key]
            elif name == "commit":
                commit(store)
            else:
                commit_and_checkpoint(store)
            after = data.draw(st.integers(lookup_id(3, 0), following))
            room = data.draw(st.integers(1, 10))
            with store.lock:
                found = store.read_run(QUEUE, after, LAST, room, 1 << 20)
                assert [key for key, _ in found] == [key for key in sorted(there) if key > after][:room]
                assert store.stats(QUEUE)[0] == len(there)
        assert ids(store) == sorted(there)


def test_a_corrupt_message_is_put_aside_and_the_others_are_read(tmp_path: Path) -> None:
    first = lookup_id(3, 1)
    with closing(open_store(tmp_path / "store")) as store:
        put_run(store, first, b"good one", b"a bad one, soon", b"good two")
        commit_and_checkpoint(store)
    file = tmp_path / "store" / "data.mdb"
    raw = file.read_bytes()
    assert raw.count(b"a bad one, soon") >= 1
    file.write_bytes(raw.replace(b"a bad one, soon", b"A bad one, soon"))
    with closing(open_store(tmp_path / "store")) as store:
        # What comes before it is given first.
        assert read(store) == [b"good one"]
        assert read(store, after=first) == [b"good two"]
        take(store, first)
        assert read(store) == [b"good two"]
