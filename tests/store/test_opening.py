"""Opening: one process at a time, format versions, epochs, backups."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from lanner.model.errors import StoreLocked, StoreVersion
from lanner.store import Store
from lanner.store import format as store_format
from lanner.store.write_ahead_log import LOG_FILES
from tests.store.conftest import MAP_SIZE, QUEUE, commit, entries, ids, no_room, open_store, put, take


def set_format(path: Path, version: int) -> None:
    with lmdb.open(str(path), map_size=MAP_SIZE, max_dbs=8) as env:
        tables = env.open_db(b"tables")
        with env.begin(write=True) as txn:
            txn.put(store_format._FORMAT_KEY, struct.pack(">Q", version), db=tables)


def test_a_second_process_is_told_who_holds_the_directory(store: Store, tmp_path: Path) -> None:
    script = "import sys; from lanner.store import Store; Store.open(sys.argv[1])"
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "data")], check=False, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    assert "StoreLocked" in ended.stderr
    assert (
        f"is open in process {os.getpid()}: stop that process, or give this one another data directory" in ended.stderr
    )


def test_a_second_store_in_the_same_process_is_refused_too(store: Store, tmp_path: Path) -> None:
    put(store, 1)
    with pytest.raises(StoreLocked):
        open_store(tmp_path / "data")
    commit(store)
    assert ids(store) == [1]


def test_a_closed_store_can_be_opened_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.close()
    store.close()
    open_store(tmp_path).close()


def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, 1)
    store.close()
    set_format(tmp_path, store_format.FORMAT + 1)
    before = (tmp_path / "data.mdb").read_bytes()
    with pytest.raises(
        StoreVersion, match=r"is in store format 3, this version knows formats up to 2: use the newer version"
    ):
        open_store(tmp_path)
    assert (tmp_path / "data.mdb").read_bytes() == before
    set_format(tmp_path, store_format.FORMAT)
    store = open_store(tmp_path)
    assert ids(store) == [1]
    store.close()


def test_an_older_format_is_brought_up_to_date_in_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(tmp_path).close()
    set_format(tmp_path, 1)

    def step(env: lmdb.Environment, txn: lmdb.Transaction[bytes]) -> None:
        txn.put(store_format.table_key("t", b"migrated"), b"yes", db=env.open_db(b"tables", txn=txn))

    monkeypatch.setattr(store_format, "FORMAT", 3)
    monkeypatch.setitem(store_format.MIGRATIONS, 1, step)
    with pytest.raises(StoreVersion, match="from which there is no way to 3"):
        open_store(tmp_path)
    monkeypatch.setitem(store_format.MIGRATIONS, 2, lambda env, txn: None)
    store = open_store(tmp_path)
    assert store.table("t").get(b"migrated") == b"yes"
    store.close()
    monkeypatch.setitem(store_format.MIGRATIONS, 1, None)
    open_store(tmp_path).close()


def test_the_epoch_stays_until_a_backup_is_opened(tmp_path: Path) -> None:
    store = open_store(tmp_path / "data")
    epoch = store.epoch
    assert epoch != 0
    put(store, 1, b"in the backup")
    store.backup(tmp_path / "backup")
    put(store, 2, b"after it")
    store.close()
    store = open_store(tmp_path / "data")
    assert store.epoch == epoch
    assert ids(store) == [1, 2]
    store.close()

    copy = open_store(tmp_path / "backup")
    new_epoch = copy.epoch
    assert new_epoch not in (0, epoch)
    assert ids(copy) == [1]
    assert copy.stats(QUEUE) == (1, 13)
    copy.close()
    copy = open_store(tmp_path / "backup")
    assert copy.epoch == new_epoch
    copy.close()


def test_a_backup_takes_nothing_from_the_write_ahead_log_of_the_store_that_it_was_made_of(tmp_path: Path) -> None:
    """The two stores count their records alike, so only the checksum seed distinguishes them.

    The seed is not a number that readers are told.
    """
    store = open_store(tmp_path / "data")
    put(store, 1, b"in the backup")
    commit(store)
    store.backup(tmp_path / "backup")
    put(store, 2, b"after it")
    commit(store)
    assert store._write_ahead_log._seed not in (0, store.epoch & 0xFFFF_FFFF)
    seed = store._write_ahead_log._seed
    for name in LOG_FILES:
        shutil.copy(tmp_path / "data" / name, tmp_path / "backup" / name)
    store.close()
    copy = open_store(tmp_path / "backup")
    assert ids(copy) == [1]
    assert copy._write_ahead_log._seed not in (0, seed)
    copy.close()


def test_a_backup_never_overwrites(store: Store, tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    with pytest.raises(FileExistsError, match="a backup goes into a new directory"):
        store.backup(tmp_path / "backup")


def test_a_backup_leaves_free_pages_out(store: Store, tmp_path: Path) -> None:
    for key in range(200):
        put(store, key, b"x" * 3000)
    commit(store)
    for key in range(1, 200):
        take(store, key)
    store.backup(tmp_path / "backup")
    assert (tmp_path / "backup" / "data.mdb").stat().st_size < 100_000
    assert entries(store, "messages") == 1


def test_a_store_opens_and_closes_on_a_full_disk(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, 1)
    store.close()
    store = open_store(tmp_path)
    with no_room(64):  # enough for the name of the process in the lock
        store.close()
        store = open_store(tmp_path)
        assert ids(store) == [1]
        store.close()
    store = open_store(tmp_path)
    put(store, 2)
    store.close()


def test_opening_reads_no_messages(tmp_path: Path) -> None:
    """A million messages open at once, because opening reads only a few rows.

    The same holds for the ten thousand of this test.
    """
    store = open_store(tmp_path)
    for key in range(10_000):
        put(store, key, b"x" * 1000)
    store.close()
    before = _pages_read()
    store = open_store(tmp_path)
    assert store.stats(QUEUE) == (10_000, 10_000_000)
    assert store.next(QUEUE, -1) == 0
    assert store.previous(QUEUE, 1 << 64) == 9999
    assert _pages_read() - before < 1 << 20
    store.close()


def _pages_read() -> int:
    """Return the bytes of file-backed memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[2]) * 4096
