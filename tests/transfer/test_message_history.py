"""MS-MQQB 3.1.1.3 MessageIDHistoryTable: which messages have come already."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.store import Store
from lanner.transfer.deadlines import NEVER
from lanner.transfer.message_history import TABLE, MessageIDHistory
from lanner.transfer.settings import TransferSettings


class Bench:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 1_700_000_000.0
        self.open()

    def open(self, **settings: int) -> None:
        self.store = Store.open(self.path, reserve=1 << 20)
        self.store.lock.acquire()
        self.make(**settings)

    def make(self, **settings: int) -> None:
        self.history = MessageIDHistory(
            self.store.table(TABLE),
            TransferSettings(**settings),  # type: ignore[arg-type]
            clock=lambda: self.now,
            monotonic=lambda: self.now - 1_600_000_000.0,
        )

    def add(self, *numbers: int, is_lasting: bool = True) -> None:
        for number in numbers:
            self.history.add([identifier(number)], is_lasting=is_lasting)
        self.history.write()

    def known(self, upto: int) -> list[int]:
        return [number for number in range(upto) if identifier(number) in self.history]

    def close(self) -> None:
        self.store.lock.release()
        self.store.close()

    def rows(self) -> int:
        return len(list(self.store.table(TABLE).items()))


def identifier(number: int) -> bytes:
    return b"\x17" * 16 + number.to_bytes(4, "little")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "data")
    yield bench
    bench.close()


@pytest.mark.spec("QQB-3.1.1.3-2")
def test_it_starts_empty_holds_identifiers_with_their_time_and_is_bounded(bench: Bench) -> None:
    """The text: "This table MUST be initialized to an empty table".

    Lanner's limit is that of Windows, 10000.
    """
    assert len(bench.history) == 0
    assert TransferSettings().message_id_history_size == 10_000
    with pytest.raises(ValueError, match="message_id_history_size"):
        TransferSettings(message_id_history_size=(1 << 32) + 1)
    bench.add(7)
    assert bench.history.time_stamp(identifier(7)) == 1_700_000_000
    assert (b"\x18" * 16 + identifier(7)[16:]) not in bench.history, "all 20 bytes count"
    # A row holds 24 bytes an entry: identifier and time.
    ((_, row),) = bench.store.table(TABLE).items()
    assert row == identifier(7) + (1_700_000_000).to_bytes(4, "little")
    bench.add(*range(10_000, 21_000))
    assert len(bench.history) == 10_000
    bench.make(message_id_history_size=0)
    bench.add(1)
    assert len(bench.history) == 0


@pytest.mark.spec("QQB-3.1.5.8.2-4")
def test_a_full_table_loses_the_entry_with_the_oldest_time(bench: Bench) -> None:
    bench.make(message_id_history_size=3)
    for number in (1, 2, 3):
        bench.add(number)
        bench.now += 1
    bench.add(1)  # again: now it is the newest
    bench.add(4)
    assert bench.known(10) == [1, 3, 4]
    assert bench.history.time_stamp(identifier(1)) == 1_700_000_003


@pytest.mark.spec("QQB-3.1.1.3-3")
def test_it_is_there_after_a_restart_with_the_newest_times(bench: Bench) -> None:
    """The text asks for a durable table.

    "This value SHOULD survive process and node failures."; that applies to messages that survive
    them.
    """
    bench.add(1, 2)
    bench.add(3, is_lasting=False)
    bench.now += 5
    bench.add(1)
    bench.close()
    bench.open()
    assert bench.known(10) == [1, 2]
    assert bench.history.time_stamp(identifier(1)) == 1_700_000_005
    bench.add(4)  # behind the rows that were there
    bench.close()
    bench.open()
    assert bench.known(10) == [1, 2, 4]


def test_rows_that_hold_nothing_new_enough_go(bench: Bench) -> None:
    """One row for each call, not more of them than the table has entries."""
    bench.make(message_id_history_size=10)
    for number in range(100):
        bench.add(number)
    assert bench.rows() == 10
    bench.add(*range(100, 140))
    assert bench.rows() == 1
    bench.make(message_id_history_size=10)
    assert bench.known(200) == list(range(130, 140))


@pytest.mark.spec("QQB-3.1.2.8-1")
def test_the_cleanup_timer_runs_while_there_are_entries(bench: Bench) -> None:
    """The timer is armed on the first insertion, and at the start if the table is not empty.

    The default is 1800000 ms.
    """
    start = bench.now - 1_600_000_000.0
    assert bench.history.deadline.due == NEVER
    bench.add(1)
    assert bench.history.deadline.due == start + 1800
    bench.now += 60
    bench.add(2)
    assert bench.history.deadline.due == start + 1800, "a timer that runs is left alone"
    bench.make()
    assert bench.history.deadline.due == start + 60 + 1800
    bench.make(message_id_history_cleanup=7)
    assert bench.history.deadline.due == start + 60 + 7


@pytest.mark.spec("QQB-3.1.6.7-1")
def test_cleanup_drops_what_is_older_than_the_timer_and_continues_while_something_is_left(bench: Bench) -> None:
    bench.add(1)
    bench.now += 1
    bench.add(2)
    bench.now += 1799
    due = bench.history.deadline.due
    bench.history.on_timer()
    assert bench.known(10) == [1, 2], "1 is as old as the timer, not older"
    assert due is not None
    assert bench.history.deadline.due == due + 1800
    bench.now += 0.9
    bench.history.on_timer()
    assert bench.known(10) == [1, 2], "it is not due"
    bench.add(3)
    bench.now += 1799.1
    bench.history.on_timer()
    assert bench.known(10) == [3]
    assert bench.rows() == 1
    bench.now += 1801
    bench.history.on_timer()
    assert bench.known(10) == []
    assert bench.rows() == 0
    assert bench.history.deadline.due == NEVER


def test_what_the_store_could_not_write_has_not_come(bench: Bench) -> None:
    """Its message is lost too, and must be accepted when it comes again."""
    bench.add(1)
    bench.history.add([identifier(2)], is_lasting=True)
    bench.history.reload()
    assert bench.known(10) == [1]
    bench.history.write()
    assert bench.rows() == 1


def of(number: int) -> bytes:
    return b"\x18" * 16 + number.to_bytes(4, "little")


def test_an_address_has_only_its_own_forgotten(bench: Bench) -> None:
    """Formerly a message that a flood had evicted was stored twice when it was resent."""
    bench.make(message_id_history_size=10)
    bench.history.begin("192.0.2.7")
    bench.add(1, 2)
    bench.history.begin("192.0.2.66")
    for number in range(100):
        bench.history.add([of(number)], is_lasting=True)
        bench.history.write()
    assert bench.known(10) == [1, 2]
    assert len(bench.history) == 12
    bench.close()
    bench.open(message_id_history_size=10)
    assert bench.known(10) == [1, 2]
    assert len(bench.history) == 12
    # One that comes again from another address is remembered there.
    bench.history.begin("192.0.2.66")
    bench.add(1)
    assert bench.known(10) == [1, 2]
    assert len(bench.history) == 12 + 1 - 1
    bench.now += 1801
    bench.history.on_timer()
    assert (len(bench.history), bench.rows()) == (0, 0)


@pytest.mark.parametrize("flood", ["192.0.2.{}", "2001:db8:0:1::{}", "2001:db8::{}"])
def test_of_too_many_addresses_those_of_the_largest_network_are_forgotten(bench: Bench, flood: str) -> None:
    bench.make(message_id_history_size=10)
    bench.history.begin("2001:db8::3" if ":" in flood else "192.0.2.3")
    bench.add(1)
    numbers = iter(range(1000))
    for host in range(10, 40):
        bench.history.begin(flood.format(host))
        for _ in range(10):
            bench.history.add([of(next(numbers))], is_lasting=True)
        bench.history.write()
    assert bench.known(10) == [1]
    assert len(bench.history) <= 120
    assert bench.rows() <= 12
