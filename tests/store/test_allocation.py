"""Room ahead of use: the pages that come next are written with zeros, and those in use are left alone."""

from __future__ import annotations

import os
from pathlib import Path

from lanner.store import Store
from lanner.store.environment import DATA_FILE
from tests.store.conftest import QUEUE, RESERVE, commit, ids, open_store, put

PAGE = 4096
COMMITS = 60


def dirty_reserve(store: Store, path: Path) -> None:
    """Write something into the pages behind the last used one, which is not there for anybody."""
    file = os.open(path / DATA_FILE, os.O_RDWR)
    os.pwrite(file, b"\xaa" * (RESERVE // 2), store._environment.used())
    os.close(file)


def behind(store: Store, path: Path, size: int) -> bytes:
    """What stands behind the last used page."""
    file = os.open(path / DATA_FILE, os.O_RDONLY)
    try:
        return os.pread(file, size, store._environment.used())
    finally:
        os.close(file)


def send_singly(store: Store, first: int, count: int) -> None:
    for key in range(first, first + count):
        put(store, key, b"%d" % key * 100)
        commit(store)


def test_small_commits_find_zeros_ahead(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    dirty_reserve(store, tmp_path)
    send_singly(store, 1, COMMITS)
    assert behind(store, tmp_path, 16 * PAGE) == bytes(16 * PAGE)
    store.close()


def test_zeros_ahead_leave_every_message_alone(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    send_singly(store, 1, 4 * COMMITS)
    store.close()
    store = open_store(tmp_path)
    send_singly(store, 4 * COMMITS + 1, COMMITS)
    assert ids(store) == list(range(1, 5 * COMMITS + 1))
    with store.lock:
        for key in ids(store):
            found = store.get(QUEUE, key)
            assert found is not None
            assert found.packet == b"%d" % key * 100
    store.close()


def test_big_commits_write_no_zeros(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    dirty_reserve(store, tmp_path)
    for key in range(1, 500):
        put(store, key, b"x" * 300)
    commit(store)
    assert b"\xaa" in behind(store, tmp_path, 16 * PAGE)
    store.close()
