"""Gathering thousands of stored messages.

It yields what a scan yields one by one, and never data that was not written.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lanner.spark.columnar.decode import decode
from lanner.spark.columnar.gathering import gather
from lanner.spark.columnar.packet_source import Place
from lanner.spark.columnar.schema import RowSchema
from lanner.spark.columnar.vectors import SLACK, Octets, fresh
from lanner.store import Record, Store
from lanner.store.checksum import crc32
from lanner.store.record import HEADER, MESSAGE_KEY

QUEUE = 7
ARRIVED = 1_700_000_000

Row = tuple[int, int, int, int, int, bytes]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "store", map_size=1 << 30, reserve=1 << 20)
    yield store
    store.close()


def lookup_id(priority: int, number: int) -> int:
    return (7 - priority) << 56 | number


def put(store: Store, key: int, packet: bytes, *, express: bool = False, aborts: int = 0) -> None:
    record = Record(packet, ARRIVED + len(packet), abort_count=aborts, move_count=3 * aborts)
    with store.lock:
        store.put(QUEUE, key, record, express=express)


def commit_and_checkpoint(store: Store) -> None:
    with store.lock:
        batch = store.pending_batch()
    store.sync(batch)
    store.checkpoint()


def scanned(store: Store) -> list[Row]:
    with store.lock:
        scan = store.scan(QUEUE, 0)
    return [(number, key, one.arrived, one.abort_count, one.move_count, one.packet) for number, key, one in scan]


def gathered(
    store: Store,
    after: int = 0,
    upto: int | None = None,
    rows: int = 1000,
    size: int = 1 << 20,
) -> list[Row] | None:
    with store.lock:
        scan = store.scan(QUEUE, after, upto)
    with scan:
        found = gather(scan, rows, size)
        if found is None:
            return None
        packets, facts = found
        columns = [column.tolist() for column in facts]
        return list(zip(*columns, [packets[index] for index in range(len(packets))], strict=True))


def all_gathered(store: Store, **limits: int) -> list[Row]:
    found: list[Row] = []
    while some := gathered(store, found[-1][0] if found else 0, **limits):
        found += some
    assert some is not None
    return found


def test_gathering_gives_what_a_scan_gives(store: Store) -> None:
    """The messages are in key order or not, and some are published. The pieces have any size."""
    chance = random.Random(3)
    for number in range(5000, 5900):
        put(store, lookup_id(3, number), b"%d" % number * chance.randrange(1, 20), aborts=number % 5)
    for number in range(5900, 6500):
        put(store, lookup_id(chance.randrange(8), number), b"%d" % number * chance.randrange(1, 20))
    store.stage(b"token", QUEUE, [(3, [b"staged %d" % n * chance.randrange(1, 9) for n in range(700)])], 1)
    commit_and_checkpoint(store)
    store.publish(b"key", [b"token"], lambda _: 6500, 1)
    commit_and_checkpoint(store)
    put(store, lookup_id(0, 9999), b"last")
    commit_and_checkpoint(store)
    expected = scanned(store)
    assert len(expected) == 2201
    for limits in ({}, {"rows": 7}, {"rows": 256}, {"size": 100}, {"size": 5000}, {"rows": 300, "size": 4000}):
        assert all_gathered(store, **limits) == expected
    assert gathered(store, 10, 20) == expected[10:20]
    assert gathered(store, 2201) == []


@pytest.mark.parametrize("sizes", [range(1000, 1001), range(400, 1400)])
def test_messages_of_one_size_and_of_many_are_found_where_they_lie(store: Store, sizes: range) -> None:
    """More of them than are copied at a time."""
    chance = random.Random(4)
    for number in range(1800):
        put(store, lookup_id(3, number), chance.randbytes(chance.choice(sizes)))
    commit_and_checkpoint(store)
    assert gathered(store, rows=5000, size=1 << 30) == scanned(store)


def test_packets_that_end_early_have_something_behind_them(store: Store) -> None:
    for size in (5, 5, 5, 90):
        put(store, lookup_id(3, 100 - size), b"x" * size)
        commit_and_checkpoint(store)
        with store.lock:
            scan = store.scan(QUEUE, 0)
        with scan:
            found = gather(scan, 1000, 1 << 20)
        assert found is not None
        batch = decode(*found, Place(), RowSchema())
        assert None not in batch.column("packet_error").to_pylist()


def test_where_packets_are_handed_out_nothing_else_is_put(store: Store) -> None:
    """The recipient of that memory may write to it, and must not get another user's data."""
    store.stage(b"token", QUEUE, [(3, [b"staged %d" % n for n in range(10)])], 1)
    commit_and_checkpoint(store)
    store.publish(b"key", [b"token"], store.counter("ids").next, 1)
    commit_and_checkpoint(store)
    wanted: list[int] = []

    def room(size: int) -> Octets:
        wanted.append(size)
        return fresh(size)

    with store.lock:
        scan = store.scan(QUEUE, 0)
    with scan:
        assert gather(scan, 1000, 1 << 20, room) is not None
    assert wanted == [len(b"staged 0") * 10 + SLACK]


def test_a_number_that_is_not_that_of_the_index_is_left_to_the_scan(store: Store) -> None:
    """Otherwise a reader would continue from there."""
    for number in range(1, 4):
        put(store, lookup_id(3, number), b"%d" % number)
    commit_and_checkpoint(store)
    environment = store._environment
    for place, wrong in ((1, 0), (2, 1), (2, 3), (3, 4)):
        key = MESSAGE_KEY.pack(QUEUE, 0, lookup_id(3, place))
        with environment.write() as txn:
            raw = bytearray(txn.get(key, db=environment.messages) or b"")
            right = bytes(raw)
            raw[12:20] = wrong.to_bytes(8, "little")
            txn.put(key, signed(bytes(raw)), db=environment.messages)
        with store.lock:
            environment.renew()
        assert gathered(store, 0, 3) is None
        with environment.write() as txn:
            txn.put(key, right, db=environment.messages)
        with store.lock:
            environment.renew()
        assert gathered(store, 0, 3) == scanned(store)


def test_a_gap_in_the_queue_is_no_message(store: Store) -> None:
    for number in range(1, 20):
        put(store, lookup_id(3, number), b"%d" % number)
    commit_and_checkpoint(store)
    with store.lock:
        for number in (1, 5, 6, 19):
            record = store.get(QUEUE, lookup_id(3, number))
            assert record is not None
            store.delete(QUEUE, lookup_id(3, number), record)
        # It comes again under a new number: in the queue it stands where it stood.
        record = store.get(QUEUE, lookup_id(3, 9))
        assert record is not None
        store.put(QUEUE, lookup_id(3, 9), record, express=False)
    commit_and_checkpoint(store)
    expected = scanned(store)
    assert [packet for *_, packet in expected][-2:] == [b"18", b"9"]
    assert all_gathered(store) == expected
    assert all_gathered(store, rows=3) == expected


def test_messages_that_lie_far_apart_are_left_to_the_scan(store: Store) -> None:
    """All pages between the first and the last would be read for a few messages."""
    for number in (1, *range(3, 600), 2, 600):
        put(store, lookup_id(3, number), bytes(1000))
    commit_and_checkpoint(store)
    expected = scanned(store)
    assert all_gathered(store) == expected
    assert gathered(store, 597, rows=2) is None
    assert gathered(store, 599, rows=2) == expected[599:]


def test_large_messages_lie_on_pages_of_their_own(store: Store) -> None:
    chance = random.Random(1)
    for number in range(300):
        put(store, lookup_id(3, number), chance.randbytes(chance.choice((10, 1000, 1990, 2030, 4000, 4096, 9000))))
    commit_and_checkpoint(store)
    assert all_gathered(store, rows=70) == scanned(store)


def test_it_ends_at_its_limits(store: Store) -> None:
    for number in range(10):
        put(store, lookup_id(3, number), bytes(100))
    commit_and_checkpoint(store)
    for rows, size, count in (
        (3, 10_000, 3),
        (100, 200, 2),
        (100, 201, 3),
        (100, 250, 3),
        (100, 1, 1),
        (1, 1, 1),
        (100, 1000, 10),
        (100, 10_000, 10),
    ):
        found = gathered(store, rows=rows, size=size)
        assert found is not None
        assert len(found) == count


def test_express_messages_are_left_to_the_scan(store: Store) -> None:
    put(store, lookup_id(3, 1), b"durable")
    commit_and_checkpoint(store)
    put(store, lookup_id(3, 2), b"express", express=True)
    assert gathered(store) is None
    assert gathered(store, 0, 1) == scanned(store)[:1]


def signed(raw: bytes) -> bytes:
    return crc32(raw[4:]).to_bytes(4, "little") + raw[4:]


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("the last bit", lambda raw: raw[:-1] + bytes([raw[-1] ^ 1])),
        ("the checksum", lambda raw: bytes([raw[0] ^ 0x80]) + raw[1:]),
        ("the header", lambda raw: raw[:9] + b"?" + raw[10:]),
        ("cut short", lambda raw: raw[:-1]),
        ("no packet", lambda raw: raw[: HEADER.size]),
        ("no header", lambda raw: raw[: HEADER.size - 1]),
        ("no whole header, but a checksum of it", lambda raw: signed(raw[: HEADER.size - 1])),
        ("nearly nothing", lambda raw: b"\0"),
        ("a format that nobody knows", lambda raw: signed(raw[:4] + b"\3" + raw[5:])),
        ("longer", lambda raw: raw + b"\0"),
    ],
)
@pytest.mark.parametrize("place", [0, 4, 9])
def test_a_record_that_is_not_what_was_written_is_left_to_the_scan(
    store: Store, what: str, change: Callable[[bytes], bytes], place: int
) -> None:
    for number in range(10):
        put(store, lookup_id(3, number), b"packet %d" % number)
    commit_and_checkpoint(store)
    expected = scanned(store)
    key = MESSAGE_KEY.pack(QUEUE, 0, lookup_id(3, place))
    environment = store._environment
    with environment.write() as txn:
        txn.put(key, change(txn.get(key, db=environment.messages) or b""), db=environment.messages)
    with store.lock:
        environment.renew()
    found = gathered(store)
    if what == "a format that nobody knows" and place:
        assert found == expected[:place]
        found = gathered(store, place)
    assert found is None, what
    del expected[place]
    assert scanned(store) == expected


@pytest.mark.parametrize("change", ["deleted", "broken", "cut"])
@pytest.mark.parametrize("place", [0, 2])
def test_a_staged_row_that_is_not_what_was_written_is_left_to_the_scan(store: Store, change: str, place: int) -> None:
    store.stage(b"token", QUEUE, [(3, [b"staged %d" % n for n in range(3)])], 1)
    commit_and_checkpoint(store)
    store.publish(b"key", [b"token"], store.counter("ids").next, 1)
    commit_and_checkpoint(store)
    expected = scanned(store)
    assert gathered(store) == expected
    environment = store._environment
    with environment.write() as txn:
        key, raw = next(row for row in txn.cursor(environment.staged) if row[1].endswith(b"staged %d" % place))
        if change == "deleted":
            txn.delete(key, db=environment.staged)
        else:
            txn.put(key, raw[:-1] + b"?" if change == "broken" else raw[:3], db=environment.staged)
    with store.lock:
        environment.renew()
    assert gathered(store) is None
    assert scanned(store) == expected[:place] + expected[place + 1 :]
