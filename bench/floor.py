"""The floor of durable operations: what the disk and LMDB achieve on their own."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import lmdb

from bench.ours import batches, wait_until_swept
from bench.workload import BODY, percentiles
from lanner.store import Record, Store

_KEY = struct.Struct(">IQ")
_MAP_SIZE = 1 << 36
_LANE = 4 << 56
_QUEUE = 1
# The store keeps packets: headers and names add about this much to a 1 KiB body.
PACKET = BODY + bytes(176)


def fdatasync(directory: Path, count: int) -> dict[str, float]:
    """Return p50 and p99 of appending 1 KiB and fdatasync."""
    path = directory / "fdatasync"
    seconds = []
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        for _ in range(count):
            start = time.perf_counter()
            os.write(file, BODY)
            os.fdatasync(file)
            seconds.append(time.perf_counter() - start)
    finally:
        os.close(file)
        path.unlink()
    return percentiles(seconds)


class RawLmdb:
    """The least work in py-lmdb: one put of the same bytes into one database."""

    def __init__(self, directory: Path) -> None:
        path = directory / "raw-lmdb"
        path.mkdir()
        self.environment = lmdb.open(str(path), map_size=_MAP_SIZE, readahead=False)
        self._number = 0

    def put(self, count: int, batch: int) -> float:
        """Return the messages per second with one synced commit per batch."""
        start = time.perf_counter()
        for size in batches(count, batch):
            self._commit(size)
        rate = count / (time.perf_counter() - start)
        self._clear()
        return rate

    def put_one(self, count: int) -> dict[str, float]:
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            self._commit(1)
            seconds.append(time.perf_counter() - start)
        self._clear()
        return percentiles(seconds)

    def _commit(self, size: int) -> None:
        with self.environment.begin(write=True) as transaction:
            for _ in range(size):
                self._number += 1
                transaction.put(_KEY.pack(_QUEUE, self._number), PACKET)

    def _clear(self) -> None:
        with self.environment.begin(write=True) as transaction:
            transaction.drop(self.environment.open_db(txn=transaction), delete=False)

    def close(self) -> None:
        self.environment.close()


class BareStore:
    """Lanner's store without the engine."""

    def __init__(self, directory: Path) -> None:
        self.store = Store.open(directory / "bare-store")
        self._numbers = self.store.counter("sequential_id")

    def put(self, count: int, batch: int) -> float:
        """Return the messages per second with one synced commit per batch."""
        store, numbers = self.store, self._numbers
        start = time.perf_counter()
        for size in batches(count, batch):
            with store.lock:
                for _ in range(size):
                    store.put(_QUEUE, _LANE | numbers.next(), Record(PACKET, 1_700_000_000), express=False)
                pending = store.pending_batch()
            store.sync(pending)
        rate = count / (time.perf_counter() - start)
        with store.lock:
            store.drop_queue(_QUEUE)
            pending = store.pending_batch()
        store.sync(pending)
        wait_until_swept(store)
        return rate

    def close(self) -> None:
        self.store.close()
