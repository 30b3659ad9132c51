"""A full disk: sends are rejected, receives continue, nothing acknowledged is lost.

The condition ends when there is room again.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from lanner.store import Store
from lanner.store.store import DEFAULT_RESERVE
from tests.store.conftest import QUEUE, commit, no_room, put, take

# The same story on a file size limit (any machine) and on a small tmpfs (where mounting is
# allowed). `make_room` is what an operator would do: raise the limit, enlarge the file system.
STORY = """
import resource, subprocess, sys, time
from lanner.model.errors import InsufficientResources
from lanner.store import Record, Store

path, kind = sys.argv[1:]
MIB = 1 << 20
BODY = b"x" * 3000

if kind == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 * MIB, resource.RLIM_INFINITY))

def make_room():
    if kind == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 * MIB, resource.RLIM_INFINITY))
    else:
        subprocess.run(["mount", "-o", "remount,size=64m", path], check=True)

store = Store.open(path + "/data", map_size=1 << 30, reserve=MIB)
failed = []
store.on_failed(failed.append)
acknowledged = []
key = 0
while not store.refuses_sends:
    key += 1
    with store.lock:
        for _ in range(20):
            key += 1
            store.put(7, key, Record(BODY, 1), express=False)
        batch = store.pending_batch()
    store.sync(batch)
    acknowledged += range(key - 19, key + 1)
assert acknowledged, "refused before anything was sent"

# Someone sends all the same, more than there is room for.
with store.lock:
    store.put(7, key + 1, Record(b"express", 1), express=True)
    for extra in range(10, 3000):
        store.put(7, key + extra, Record(BODY, 1), express=False)
    batch = store.pending_batch()
try:
    store.sync(batch)
    raise SystemExit("a batch larger than the disk was acknowledged")
except InsufficientResources:
    pass
assert failed[0] == batch

def found():
    keys, at = [], -1
    while (at := store.next(7, at)) is not None:
        keys.append(at)
    return keys

with store.lock:
    assert found() == acknowledged + [key + 1]
    assert store.stats(7) == (len(acknowledged) + 1, len(acknowledged) * len(BODY) + 7)

# Half of it is received, one commit each, inside the reserve.
for taken in acknowledged[: len(acknowledged) // 2]:
    with store.lock:
        store.delete(7, taken, store.get(7, taken))
        batch = store.pending_batch()
    store.sync(batch)
del acknowledged[: len(acknowledged) // 2]

make_room()
store._allocation._retry_at = 0.0  # a second later
assert not store.refuses_sends
with store.lock:
    for _ in range(4000):
        key += 1
        store.put(7, key + 10_000, Record(BODY, 1), express=False)
        acknowledged.append(key + 10_000)
    batch = store.pending_batch()
store.sync(batch)
store.close()

store = Store.open(path + "/data", map_size=1 << 30, reserve=MIB)
assert found() == acknowledged
assert all(store.get(7, at).packet == BODY for at in acknowledged)
store.close()
print("done")
"""


def tell(path: Path, kind: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STORY, str(path), kind], check=False, capture_output=True, text=True, timeout=100
    )
    assert ended.stdout == "done\n", ended.stderr


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    tell(tmp_path, "limit")


def test_a_file_system_that_is_full(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "lanner-test", str(tmp_path)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this machine does not let us mount")
    try:
        tell(tmp_path, "tmpfs")
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_deleted_messages_make_room_inside_the_file(tmp_path: Path) -> None:
    """The disk stays full, but the store's own file has free pages: sends are accepted again."""
    script = (
        STORY[: STORY.index("# Someone sends all the same")]
        + """
for taken in acknowledged:
    with store.lock:
        store.delete(7, taken, store.get(7, taken))
with store.lock:
    batch = store.pending_batch()
store.sync(batch)
assert not store.refuses_sends
with store.lock:
    store.put(7, key + 1, Record(BODY, 1), express=False)
    batch = store.pending_batch()
store.sync(batch)
store.close()
print("done")
"""
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), "limit"], check=False, capture_output=True, text=True, timeout=100
    )
    assert ended.stdout == "done\n", ended.stderr


def test_messages_from_all_over_a_full_disk_can_be_received(tmp_path: Path) -> None:
    """Each message lies on another page.

    The pages of all messages removed since the last checkpoint are rewritten together.
    """
    store = Store.open(tmp_path, map_size=1 << 30, reserve=1 << 20)
    keys = list(range(5000))
    for key in keys:
        put(store, key, b"x" * 1000)
    commit(store)
    size = (tmp_path / "data.mdb").stat().st_size
    random.Random(1).shuffle(keys)
    with no_room(size):
        for key in keys[:3000]:
            take(store, key)
            commit(store)
        store.checkpoint()
    with store.lock:
        assert store.stats(QUEUE) == (2000, 2_000_000)
    # There is room again, and a second later it is known: what is small goes into the write-ahead
    # log.
    store._allocation._retry_at = 0.0
    numbers = []
    for key in keys[:2]:
        numbers.append(store._write_ahead_log.last)
        put(store, key)
        commit(store)
    assert store._write_ahead_log.last == numbers[1] + 1 == numbers[0] + 1
    store.close()


def test_a_small_store_takes_little_room_and_its_reserve_grows_with_it(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    file = tmp_path / "data.mdb"
    assert file.stat().st_blocks * 512 < 3 << 20
    for size in (1 << 20, 4 << 20, 4 << 20, 24 << 20):
        put(store, size, b"x" * size)
        commit(store)
        allocated, used = file.stat().st_blocks * 512, store._environment.used()
        assert allocated >= used + min(DEFAULT_RESERVE, used)
        assert allocated == pytest.approx(file.stat().st_size, abs=1 << 16)
    store.close()


def test_a_disk_that_was_full_is_asked_again_though_there_is_room_enough(store: Store) -> None:
    allocation = store._allocation
    with store.lock:
        with no_room(store._environment.used()):
            allocation.logged(1 << 30 >> 1)
            assert allocation.is_full
            allocation.checkpointed(1 << 30 >> 1)
        assert allocation.is_full
        assert not allocation.refuses_sends
        allocation._retry_at = 0.0
        allocation.wrote(1)
        assert not allocation.is_full
