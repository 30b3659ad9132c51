from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lanner.store import Record, Store

# Small, so that tests on a tmpfs or with a file size limit stay small too.
MAP_SIZE = 1 << 30
RESERVE = 1 << 20

QUEUE = 7


def open_store(path: Path) -> Store:
    return Store.open(path, map_size=MAP_SIZE, reserve=RESERVE)


def lookup_id(priority: int, number: int) -> int:
    return (7 - priority) << 56 | number


def record(text: bytes = b"packet") -> Record:
    return Record(text, arrived=1_700_000_000)


def put(store: Store, key: int, text: bytes = b"packet", *, queue: int = QUEUE, express: bool = False) -> Record:
    message = record(text)
    with store.lock:
        store.put(queue, key, message, express=express)
    return message


def take(store: Store, key: int, *, queue: int = QUEUE) -> Record:
    with store.lock:
        message = store.get(queue, key)
        assert message is not None
        store.delete(queue, key, message)
    return message


def commit(store: Store) -> None:
    with store.lock:
        batch = store.pending_batch()
    store.sync(batch)


def commit_and_checkpoint(store: Store) -> None:
    """Make everything durable and have scans find it."""
    commit(store)
    store.checkpoint()


def crash(path: Path) -> Path:
    """Copy a data directory as a crash of the machine would leave it at this moment."""
    copy = path.with_name(path.name + "+")
    shutil.copytree(path, copy, ignore=shutil.ignore_patterns("lock", "lock.mdb"))
    return copy


def ids(store: Store, queue: int = QUEUE) -> list[int]:
    found, at = [], -1
    with store.lock:
        while (following := store.next(queue, at)) is not None:
            found.append(following)
            at = following
    return found


def ids_backwards(store: Store, queue: int = QUEUE) -> list[int]:
    found, at = [], 1 << 64
    with store.lock:
        while (preceding := store.previous(queue, at)) is not None:
            found.append(preceding)
            at = preceding
    return found


def entries(store: Store, database: str) -> int:
    """Count the rows of one of the store's databases on disk."""
    store.checkpoint()
    with store._environment.env.begin() as txn:
        found = txn.cursor(getattr(store._environment, database)).iternext(values=False)
        # A queue's totals lie among the visibility numbers, in a generation that does not exist.
        return sum(database != "visible" or bytes(key)[4:8] != b"\xff" * 4 for key in found)


@contextmanager
def no_room(size: int = 0) -> Iterator[None]:
    """Let the kernel refuse every write beyond the first bytes of a file.

    It does so on a disk that is full or broken. Python ignores SIGXFSZ, so such a write fails with
    EFBIG where a full disk says ENOSPC.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "data")
    yield opened
    opened.close()


@pytest.fixture
def quiet(tmp_path: Path) -> Store:
    """A store without automatic checkpoints."""
    store = open_store(tmp_path / "data")
    store._commits.maintenance.stop()
    return store


def packets(path: Path) -> list[bytes]:
    """Return the contents of a store that is opened after a crash."""
    store = open_store(crash(path))
    found = []
    for key in ids(store):
        message = store.get(QUEUE, key)
        assert message is not None
        found.append(message.packet)
    assert store.stats(QUEUE) == (len(found), sum(map(len, found)))
    assert [message.packet for _, _, message in store.scan(QUEUE, 0)] == found
    store.close()
    shutil.rmtree(path.with_name(path.name + "+"))
    return found


def on_disk(store: Store) -> int:
    """Messages in the database, without those of the write-ahead log."""
    with store._environment.env.begin() as txn:
        return int(txn.stat(store._environment.messages)["entries"])


def text(key: int) -> bytes:
    return b"message %d" % key


def send(store: Store, *keys: int) -> None:
    """Each in a commit of its own."""
    for key in keys:
        put(store, key, text(key))
        commit(store)
