"""The write-ahead log: synced data survives any crash, in either file.

What was not synced is not there.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import struct
from pathlib import Path

import pytest

from lanner.model.enums import PositionState
from lanner.model.errors import InsufficientResources, StoreCorrupt
from lanner.store import Record, Store
from lanner.store.event_log import EVENT
from lanner.store.write_ahead_log import LOG_FILES
from tests.store.conftest import (
    QUEUE,
    commit,
    commit_and_checkpoint,
    crash,
    entries,
    ids,
    no_room,
    on_disk,
    open_store,
    packets,
    put,
    record,
    send,
    take,
    text,
)

HEADER = 16
MESSAGES = 5


def record_ends(data: bytes) -> list[int]:
    """Where the records of a file end."""
    ends, at = [], 0
    while at + HEADER <= len(data):
        _, length, number = struct.unpack_from("<IIQ", data, at)
        if not number:
            break
        at += HEADER + length
        ends.append(at)
    return ends


def test_a_small_commit_is_durable_in_the_write_ahead_log_and_reaches_the_database_later(
    quiet: Store, tmp_path: Path
) -> None:
    send(quiet, 1, 2)
    assert on_disk(quiet) == 0
    assert ids(quiet) == [1, 2]
    assert packets(tmp_path / "data") == [text(1), text(2)]
    quiet.checkpoint()
    assert on_disk(quiet) == 2
    assert packets(tmp_path / "data") == [text(1), text(2)]
    quiet.close()


def test_what_comes_and_goes_between_two_checkpoints_never_reaches_the_database(quiet: Store, tmp_path: Path) -> None:
    send(quiet, 1, 2)
    take(quiet, 1)
    commit(quiet)
    assert packets(tmp_path / "data") == [text(2)]
    quiet.checkpoint()
    assert (on_disk(quiet), entries(quiet, "visible")) == (1, 1)
    quiet.close()


def test_a_big_batch_goes_into_the_database_behind_what_is_in_the_write_ahead_log(quiet: Store, tmp_path: Path) -> None:
    send(quiet, 1)
    take(quiet, 1)
    put(quiet, 2, b"x" * 1_000_000)
    commit(quiet)
    assert on_disk(quiet) == 1
    assert packets(tmp_path / "data") == [b"x" * 1_000_000]
    quiet.close()


def test_records_in_both_files_are_done_in_their_order(quiet: Store, tmp_path: Path) -> None:
    """A crash during a checkpoint.

    One file has what the checkpoint was about to write, the other what came meanwhile.
    """
    send(quiet, 1, 2)
    quiet.checkpoint()
    send(quiet, 3)
    take(quiet, 1)
    commit(quiet)
    last = quiet._commits._begin_checkpoint()
    send(quiet, 4)
    take(quiet, 3)
    commit(quiet)
    assert packets(tmp_path / "data") == [text(2), text(4)]
    quiet._commits._write_checkpoint(last)
    send(quiet, 5)
    assert packets(tmp_path / "data") == [text(2), text(4), text(5)]
    quiet.close()


def rows(store: Store) -> dict[str, list[tuple[bytes, bytes]]]:
    """Everything that the database has, but for what differs from one opening to the next."""
    environment = store._environment
    found: dict[str, list[tuple[bytes, bytes]]] = {}
    with environment.env.begin() as txn:
        for name in ("messages", "visible", "tables", "staged", "events"):
            found[name] = list(txn.cursor(getattr(environment, name)).iternext())
    found["tables"] = [row for row in found["tables"] if not row[0].startswith((b"\x08counters", b"\x05store"))]
    return found


def test_opening_after_a_crash_does_what_a_checkpoint_would_have_done(quiet: Store, tmp_path: Path) -> None:
    """To the last row: index entries, totals, tables, events, packets of published messages."""
    locked = Record(b"locked", 1, state=PositionState.LOCKED)
    table = quiet.table("t")
    with quiet.lock:
        log = quiet.events
        quiet.stage(b"token", QUEUE, [(7, [b"published 1", b"published 2"])], 1)
        assert quiet.publish(b"key", [b"token"], lambda _: 100, 1)
        table.put(b"a", b"1")
        table.put(b"b", b"1")
    for key in range(1, 6):
        put(quiet, key, text(key))
    put(quiet, 1, text(1), queue=8)
    commit_and_checkpoint(quiet)
    with quiet.lock:
        quiet.put(QUEUE, 2, locked, express=False)  # its index entry ends
        quiet.put(QUEUE, 6, locked, express=False)
        log.add_run([b"\1" * EVENT.size])
    take(quiet, 3)
    take(quiet, 100)
    put(quiet, 4, b"again, under another number")
    put(quiet, 2, text(2), queue=8)
    commit(quiet)
    with quiet.lock:
        log.add_run([b"\2" * EVENT.size])
        quiet.drop_queue(8)
        table.delete(b"a")
        table.put(b"b", b"2")
        table.put(b"c", b"1")
    put(quiet, 7, text(7))
    put(quiet, 1, text(11), queue=8)
    commit(quiet)
    take(quiet, 7)
    table.delete(b"c")
    take(quiet, 6)
    put(quiet, 8, text(8))
    commit(quiet)
    before = rows(quiet)
    store = Store.open(crash(tmp_path / "data"), map_size=1 << 30)
    store._commits.maintenance.stop()
    quiet.checkpoint()
    written = rows(quiet)
    assert all(before[name] != written[name] for name in written)
    # What was in the write-ahead log of a queue that was dropped is swept with the rest of it.
    while quiet._commits._sweep() or store._commits._sweep():
        pass
    assert rows(store) == rows(quiet)
    store.close()
    quiet.close()


def reopened(path: Path, content: bytes | bytearray, number: int = 0) -> list[bytes]:
    """Return the contents of a store with these octets in one file of its write-ahead log."""
    copy = crash(path)
    (copy / LOG_FILES[number]).write_bytes(content)
    store = open_store(copy)
    found = [(store.get(QUEUE, key) or record(b"")).packet for key in ids(store)]
    store.close()
    shutil.rmtree(copy)
    return found


def test_a_record_that_is_cut_short_anywhere_was_never_there(quiet: Store, tmp_path: Path) -> None:
    """The power failed during the write of a record.

    Any part of it may have reached the disk, over the records of an earlier round.
    """
    path = tmp_path / "data"
    send(quiet, *range(1, 1 + MESSAGES))
    commit_and_checkpoint(quiet)
    send(quiet, 100)
    commit_and_checkpoint(quiet)  # the next records come into the first file again
    send(quiet, 201, 202)
    before = (path / LOG_FILES[0]).read_bytes()
    put(quiet, 203, text(203))
    commit(quiet)
    after = (path / LOG_FILES[0]).read_bytes()
    start, end = (record_ends(data) for data in (before, after))
    at, to = start[1], end[2]
    assert before[:at] == after[:at]
    assert before[at:to] != after[at:to]
    kept = [text(key) for key in (*range(1, 1 + MESSAGES), 100, 201, 202)]
    for cut in range(at, to):
        assert reopened(path, after[:cut] + before[cut:]) == kept, cut
        assert reopened(path, after[:at] + before[at:cut] + after[cut:]) == (kept if cut > at else [*kept, text(203)])
    assert reopened(path, after) == [*kept, text(203)]
    quiet.close()


def test_a_damaged_record_is_put_aside_and_the_others_are_done(
    quiet: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was acknowledged, since there are good ones behind it; that is no cut."""
    path = tmp_path / "data"
    send(quiet, 1, 2, 3)
    data = bytearray((path / LOG_FILES[0]).read_bytes())
    quiet.close()
    shutil.rmtree(path)
    store = open_store(path)
    store._commits.maintenance.stop()
    send(store, 1, 2, 3)
    data = bytearray((path / LOG_FILES[0]).read_bytes())
    first, second = record_ends(bytes(data))[:2]
    data[(first + second) // 2] ^= 0x40
    copy = crash(path)
    (copy / LOG_FILES[0]).write_bytes(data)
    with caplog.at_level(logging.ERROR):
        opened = open_store(copy)
    assert ids(opened) == [1, 3]
    assert "record 2 of the write-ahead log is damaged, put aside" in caplog.text
    assert len(list(opened.table("quarantine").items(b"journal"))) == 1
    opened.close()
    store.close()


def test_a_damaged_record_at_the_end_of_one_file_is_known_by_the_first_of_the_other(
    quiet: Store, tmp_path: Path
) -> None:
    path = tmp_path / "data"
    send(quiet, 1, 2)
    last = quiet._commits._begin_checkpoint()
    send(quiet, 3, 4)
    data = bytearray((path / LOG_FILES[0]).read_bytes())
    data[record_ends(bytes(data))[1] - 1] ^= 1
    assert reopened(path, data) == [text(1), text(3), text(4)]
    quiet._commits._write_checkpoint(last)
    quiet.close()


def test_what_is_behind_a_gap_in_the_write_ahead_log_is_put_aside_for_good(
    quiet: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One file was deleted, or an old database was restored.

    New records must not close the gap.
    """
    path = tmp_path / "data"
    send(quiet, 1, 2)
    last = quiet._commits._begin_checkpoint()
    send(quiet, 3, 4)
    copy = crash(path)
    (copy / LOG_FILES[0]).unlink()
    with caplog.at_level(logging.ERROR):
        store = open_store(copy)
    store._commits.maintenance.stop()
    assert "record 3 of the write-ahead log does not follow on the one before, put aside" in caplog.text
    assert ids(store) == []
    assert len(list(store.table("quarantine").items(b"journal"))) == 2
    send(store, 11, 12)
    assert packets(copy) == [text(11), text(12)]
    store.close()
    quiet._commits._write_checkpoint(last)
    quiet.close()


def test_the_write_ahead_log_of_another_store_is_nothing(tmp_path: Path) -> None:
    here, there = open_store(tmp_path / "here"), open_store(tmp_path / "there")
    send(here, 1)
    send(there, 2, 3)
    assert reopened(tmp_path / "here", (tmp_path / "there" / LOG_FILES[0]).read_bytes()) == []
    here.close()
    there.close()


def test_a_record_that_could_not_be_written_is_not_there_after_a_crash(
    quiet: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the record reached the disk, and then the disk reported an error.

    The caller was told that it failed, so it must not be there.
    """
    send(quiet, 1)
    write, calls = os.pwritev, []

    def failing(descriptor: int, parts: list[bytes], at: int, flags: int) -> int:
        written = write(descriptor, parts, at, flags)
        calls.append(at)
        if len(calls) == 1:
            raise OSError(errno.EIO, "the sync failed")
        return written

    put(quiet, 2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", failing)
        with pytest.raises(InsufficientResources):
            commit(quiet)
    assert packets(tmp_path / "data") == [text(1)]
    send(quiet, 3)
    assert packets(tmp_path / "data") == [text(1), text(3)]
    quiet.close()


@pytest.mark.parametrize("room", [0, 1, HEADER, HEADER + 20])
def test_a_record_of_which_only_a_part_was_written_is_not_there(quiet: Store, tmp_path: Path, room: int) -> None:
    """The first of all, so that others take its place."""
    put(quiet, 1, text(1))
    with no_room(room), pytest.raises(InsufficientResources):
        commit(quiet)
    assert packets(tmp_path / "data") == []
    send(quiet, 2, 3, 4)
    assert packets(tmp_path / "data") == [text(2), text(3), text(4)]
    assert on_disk(quiet) == 1
    quiet.close()


def test_who_is_interrupted_while_a_record_is_written_leaves_none(
    quiet: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwritev

    def interrupted(descriptor: int, parts: list[bytes], at: int, flags: int) -> int:
        monkeypatch.setattr(os, "pwritev", write)
        write(descriptor, parts, at, flags)
        raise KeyboardInterrupt

    put(quiet, 1)
    monkeypatch.setattr(os, "pwritev", interrupted)
    with pytest.raises(KeyboardInterrupt):
        commit(quiet)
    assert ids(quiet) == []
    assert packets(tmp_path / "data") == []
    quiet.close()


def test_what_a_write_has_left_that_never_ended_is_not_the_record_that_came_later(quiet: Store, tmp_path: Path) -> None:
    """Both records have the same number.

    The power failed during the first. The store was opened again, and its next record is in the
    other file.
    """
    path = tmp_path / "data"
    send(quiet, 1)
    quiet.checkpoint()
    send(quiet, 2, 3)  # in the second file
    copy = crash(path)
    second = bytearray((copy / LOG_FILES[1]).read_bytes())
    second[record_ends(bytes(second))[1] - 1] ^= 1
    (copy / LOG_FILES[1]).write_bytes(second)
    store = open_store(copy)
    store._commits.maintenance.stop()
    send(store, 13, 14)
    assert packets(copy) == [text(1), text(2), text(13), text(14)]
    store.close()
    quiet.close()


def test_a_record_that_nobody_was_told_of_is_gone_before_anything_else_is_committed(
    quiet: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reached the disk, the sync failed, and so did taking it away.

    What is committed next would be under the changes, or the number, of it.
    """
    send(quiet, 1)
    write = os.pwritev
    calls: list[int] = []

    def failing(descriptor: int, parts: list[bytes], at: int, flags: int) -> int:
        calls.append(write(descriptor, parts, at, flags) if not calls else 0)
        raise OSError(errno.EIO, "the disk has gone")

    put(quiet, 2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", failing)
        for _ in range(2):
            with pytest.raises(InsufficientResources):
                commit(quiet)
            put(quiet, 3, b"x" * 300_000)  # this one would not go into the write-ahead log
        quiet.checkpoint()
        with pytest.raises(InsufficientResources):
            commit(quiet)
    assert len(calls) == 4
    assert ids(quiet) == [1]
    put(quiet, 4, b"x" * 300_000)
    commit(quiet)
    assert packets(tmp_path / "data") == [text(1), b"x" * 300_000]
    send(quiet, 5, 6)
    assert packets(tmp_path / "data") == [text(1), b"x" * 300_000, text(5), text(6)]
    quiet.close()


def test_a_batch_that_fails_takes_back_what_it_did_to_records_in_the_write_ahead_log(quiet: Store) -> None:
    """The engine puts the same object again, under another state and number."""
    message = put(quiet, 1, text(1))
    commit(quiet)
    number = message.visibility
    with quiet.lock:
        message.state = PositionState.LOCKED
        message.abort_count = 3
        quiet.put(QUEUE, 1, message, express=False)
    with no_room(), pytest.raises(InsufficientResources):
        commit(quiet)
    found = quiet.get(QUEUE, 1)
    assert found is not None
    assert (found.packet, found.state, found.abort_count) == (text(1), PositionState.AVAILABLE, 0)
    assert found.visibility == number
    quiet.close()


def test_a_record_that_the_other_file_has_no_room_for_goes_into_the_database(quiet: Store, tmp_path: Path) -> None:
    """It was made for the first file; then a checkpoint began."""
    send(quiet, 1)
    os.truncate(tmp_path / "data" / LOG_FILES[1], 4096)
    quiet._write_ahead_log._files[1].size = 4096
    put(quiet, 2, b"x" * 5000)
    with quiet.lock:
        quiet.prepare()
        assert quiet._commits._record is not None
    quiet.checkpoint()
    commit(quiet)
    assert packets(tmp_path / "data") == [text(1), b"x" * 5000]
    assert on_disk(quiet) == 2
    quiet.close()


def test_an_operation_of_a_newer_version_is_reported_and_nothing_is_changed(quiet: Store, tmp_path: Path) -> None:
    send(quiet, 1)
    with quiet.lock:
        newer = quiet._write_ahead_log.record([struct.pack("<BHI", 99, 0, 0)])
    assert newer is not None
    quiet._write_ahead_log.append(newer)
    copy = crash(tmp_path / "data")
    before = (copy / "data.mdb").read_bytes()
    held = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(StoreCorrupt, match="operation 99, which this version does not know"):
        open_store(copy)
    assert len(list(Path("/proc/self/fd").iterdir())) == held
    assert (copy / "data.mdb").read_bytes()[: 1 << 14] == before[: 1 << 14]
    (copy / LOG_FILES[0]).write_bytes(b"")
    open_store(copy).close()  # nothing is held
    quiet.close()


def test_the_write_ahead_log_grows_with_its_use_and_a_checkpoint_comes_before_it_is_full(tmp_path: Path) -> None:
    path = tmp_path / "data"
    store = open_store(path)
    sizes = [(path / name).stat().st_size for name in LOG_FILES]
    assert sum(sizes) <= 1 << 20
    for key in range(1500):
        with store.lock:
            store.put(QUEUE, key, Record(b"x" * 1000, 1), express=False)
            batch = store.pending_batch()
        store.sync(batch)
    assert all((path / name).stat().st_size > size for name, size in zip(LOG_FILES, sizes, strict=True))
    assert on_disk(store) > 0
    assert len(packets(path)) == 1500
    assert ids(store) == list(range(1500))
    store.close()


def test_a_store_without_its_write_ahead_log_opens(tmp_path: Path) -> None:
    """Only the database was copied, of a closed store: it has everything."""
    store = open_store(tmp_path)
    send(store, 1)
    store.close()
    for name in LOG_FILES:
        (tmp_path / name).unlink()
    store = open_store(tmp_path)
    assert ids(store) == [1]
    send(store, 2)
    store.close()


def test_a_file_that_was_cut_short_is_made_whole(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.close()
    size = (tmp_path / LOG_FILES[0]).stat().st_size
    os.truncate(tmp_path / LOG_FILES[0], 100)
    store = open_store(tmp_path)
    store._commits.maintenance.stop()
    send(store, 1)
    assert on_disk(store) == 0
    assert (tmp_path / LOG_FILES[0]).stat().st_size == size
    store.close()


def test_nothing_is_left_of_a_message_that_came_and_went_in_the_write_ahead_log(quiet: Store) -> None:
    """Nothing is left when a later batch fails.

    Nor is anything left when another message, which is not visible, takes its place.
    """
    send(quiet, 1)
    take(quiet, 1)
    commit(quiet)
    put(quiet, 2)
    with no_room(), pytest.raises(InsufficientResources):
        commit(quiet)
    assert quiet.get(QUEUE, 1) is None
    quiet.checkpoint()
    assert on_disk(quiet) == 0
    send(quiet, 3, 4)
    take(quiet, 4)
    commit(quiet)
    with quiet.lock:
        quiet.put(QUEUE, 4, Record(b"locked", 1, state=PositionState.LOCKED), express=False)
    commit(quiet)
    assert (entries(quiet, "visible"), on_disk(quiet)) == (1, 2)
    send(quiet, 3)  # in the place of the one in the database
    take(quiet, 3)
    commit(quiet)
    assert (entries(quiet, "visible"), on_disk(quiet)) == (0, 1)
    quiet.close()


def test_a_row_that_is_written_often_in_the_write_ahead_log_goes_when_it_is_deleted(quiet: Store) -> None:
    table = quiet.table("t")
    for value in (b"1", b"2"):
        table.put(b"a", value)
        table.put(b"b", value)
        commit(quiet)
    table.delete(b"a")
    assert list(table.items()) == [(b"b", b"2")]
    commit_and_checkpoint(quiet)
    assert list(table.items()) == [(b"b", b"2")]
    table.put(b"a", b"3")  # where it was known that there is nothing
    commit_and_checkpoint(quiet)
    assert list(table.items()) == [(b"a", b"3"), (b"b", b"2")]
    table.delete(b"a")
    assert table.first() == (b"b", b"2")
    commit_and_checkpoint(quiet)
    table.put(b"a", b"4")
    commit_and_checkpoint(quiet)
    assert table.first() == (b"a", b"4")
    quiet.close()
