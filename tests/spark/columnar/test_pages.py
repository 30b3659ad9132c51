"""LMDB's pages read by numpy.

The result is that of a cursor for databases of all shapes. A file with another layout yields
nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.spark.columnar.pages import Pages, Rows, Unknown
from lanner.store import Store
from lanner.store.scan import Scan

WIDTH = 16


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "store", map_size=1 << 30, reserve=1 << 20)
    yield store
    store.close()


def key(number: int) -> bytes:
    return number.to_bytes(WIDTH, "big")


def fill(store: Store, rows: dict[bytes, bytes], *, gone: list[bytes] | None = None) -> None:
    environment = store._environment
    with environment.write() as txn:
        for name, value in rows.items():
            txn.put(name, value, db=environment.staged)
        for name in gone or []:
            txn.delete(name, db=environment.staged)
    with store.lock:
        environment.renew()


def scan_of(store: Store) -> Scan:
    with store.lock:
        return store.scan(1, 0)


def read(pages: Pages, low: bytes, high: bytes, max_pages: int = 1 << 20) -> tuple[list[tuple[bytes, bytes]], bool]:
    rows = pages.rows("staged", low, high, 0, max_pages)
    return listed(pages, rows), rows.is_whole


def listed(pages: Pages, rows: Rows) -> list[tuple[bytes, bytes]]:
    places = zip(rows.raw, rows.at.tolist(), rows.sizes.tolist(), strict=True)
    return [(octets[8:].tobytes(), bytes(pages.view[at : at + size])) for octets, at, size in places]


def test_rows_are_those_that_a_cursor_finds(store: Store) -> None:
    """The databases have up to four levels of pages, values of all sizes, and gaps."""
    chance = random.Random(5)
    rows: dict[bytes, bytes] = {}
    depths = set()
    for count in (0, 1, 2, 3, 20, 500, 6000, 40_000):
        more = {key(chance.randrange(1 << 20)): chance.randbytes(chance.choice((0, 1, 20, 300))) for _ in range(count)}
        more |= {
            key(chance.randrange(1 << 20)): chance.randbytes(chance.choice((1500, 3000, 9000)))
            for _ in range(count // 100)
        }
        gone = [name for name in rows if chance.random() < 0.5]
        rows = {name: value for name, value in rows.items() if name not in set(gone)} | more
        fill(store, more, gone=[name for name in gone if name not in more])
        expected = sorted(rows.items())
        with scan_of(store) as scan:
            pages = Pages(scan)
            depths.add(int.from_bytes(scan.database("staged")[6:8], "little"))
            assert read(pages, key(0), key(1 << 20)) == (expected, True)
            for _ in range(50):
                low, high = sorted(chance.randrange((1 << 20) + 2) for _ in range(2))
                wanted = [row for row in expected if key(low) <= row[0] <= key(high)]
                assert read(pages, key(low), key(high)) == (wanted, True)
                if wanted:
                    assert read(pages, wanted[0][0], wanted[-1][0]) == (wanted, True)
                found, is_whole = read(pages, key(low), key(high), 3)
                assert found == wanted[: len(found)]
                assert not is_whole or len(found) == len(wanted)
                assert found or not wanted
    assert depths == {0, 1, 2, 3}


@given(
    st.sets(st.binary(min_size=1, max_size=6), max_size=40),
    st.binary(min_size=3, max_size=3),
    st.binary(min_size=3, max_size=3),
)
@settings(deadline=None)
def test_keys_of_other_widths_are_in_the_way_of_nothing_but_their_own_range(
    tmp_path_factory: pytest.TempPathFactory, others: set[bytes], one: bytes, other: bytes
) -> None:
    """A range has one key width.

    Keys of other widths inside it are left to cursors; those outside it are not examined.
    """
    low, high = sorted((one, other))
    store = Store.open(tmp_path_factory.mktemp("pages") / "store", map_size=1 << 30, reserve=1 << 20)
    try:
        fill(store, {name: bytes(1000) + name for name in others})
        with scan_of(store) as scan:
            try:
                found, is_whole = read(Pages(scan), low, high)
            except Unknown:
                assert any(low <= name.ljust(3, b"\0")[:3] <= high for name in others if len(name) != 3)
            else:
                assert is_whole
                assert found == sorted(
                    (name, bytes(1000) + name) for name in others if low <= name <= high and len(name) == 3
                )
    finally:
        store.close()


def test_a_snapshot_stays_as_it_was(store: Store) -> None:
    fill(store, {key(number): b"%d" % number * 50 for number in range(2000)})
    with scan_of(store) as scan:
        pages = Pages(scan)
        before = read(pages, key(0), key(2000))
        for _ in range(3):
            fill(store, {key(number): b"other" * 50 for number in range(0, 2000, 3)}, gone=[key(1)])
            fill(store, {key(1): b"new"})
        assert read(pages, key(0), key(2000)) == before
        assert read(Pages(scan), key(0), key(2000)) == before
    with scan_of(store) as scan:
        assert read(Pages(scan), key(0), key(0)) == ([(key(0), b"other" * 50)], True)


def damaged(store: Store, number: int, place: int, value: bytes) -> None:
    """Write into a page of the file."""
    with store._environment.data_file.open("r+b") as file:
        file.seek(number * 4096 + place)
        file.write(value)


@pytest.mark.parametrize(
    ("what", "place", "value"),
    [
        ("its number", 0, b"\xff"),
        ("what kind of page it is", 10, b"\x04"),
        ("no nodes", 12, b"\x10\0"),
        ("a node behind the file", 16, b"\xff\xff"),
        ("a page behind the file", None, b"\xff\xff\xff\xff\xff\x7f"),
    ],
)
def test_a_page_that_is_not_what_was_written_is_left_to_cursors(
    store: Store, what: str, place: int | None, value: bytes
) -> None:
    """Numbers that point anywhere are no reason to fall."""
    fill(store, {key(number): b"%d" % number * 50 for number in range(2000)})
    with scan_of(store) as scan:
        root = int.from_bytes(scan.database("staged")[40:48], "little")
        page = store._environment.data_file.read_bytes()[root * 4096 : root * 4096 + 4096]
        damaged(store, root, int.from_bytes(page[18:20], "little") if place is None else place, value)
        with pytest.raises(Unknown):
            read(Pages(scan), key(0), key(2000))
        damaged(store, root, 0, page)
        assert len(read(Pages(scan), key(0), key(2000))[0]) == 2000, what


def test_a_file_of_another_layout_is_left_to_cursors(store: Store) -> None:
    with scan_of(store) as scan:
        Pages(scan)
        damaged(store, 0, 20, b"\2")
        with pytest.raises(Unknown):
            Pages(scan)
        damaged(store, 0, 20, b"\1")


def test_the_layout_is_that_of_the_lmdb_that_is_installed(store: Store) -> None:
    """If this fails, scans take the slow way: `pages` must learn the new layout."""
    assert lmdb.version()[:2] == (0, 9)
    with scan_of(store) as scan:
        assert read(Pages(scan), key(0), key(1)) == ([], True)
