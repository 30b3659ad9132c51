"""The store against LMDB itself: synced puts in several batch sizes, receives, reads, memory.

    python -m bench.store [--messages N] [--directory DIR]

Each figure of the store is compared with py-lmdb doing the minimum of comparable work (one put of
the same bytes into one database, one synced commit per batch), on the same disk in the same run,
alternating.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lmdb

from lanner.store import Record, Store

PACKET = os.urandom(1200)
LANE = 4 << 56
KEY = struct.Struct(">IQ")
ROUNDS = 5


def memory() -> dict[str, int]:
    """Return RssAnon and RssFile in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return {
        name: int(value.split()[0]) // 1024
        for name, value in (line.split(":", 1) for line in lines)
        if name in ("RssAnon", "RssFile")
    }


def timed(work: Callable[..., None], *arguments: int) -> float:
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


class Raw:
    """Plain py-lmdb."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.env = lmdb.open(str(path), map_size=1 << 36, readahead=False)
        self.number = 0
        self.taken = 0

    def put(self, batch: int, batches: int) -> None:
        for _ in range(batches):
            with self.env.begin(write=True) as txn:
                for _ in range(batch):
                    self.number += 1
                    txn.put(KEY.pack(1, LANE | self.number), PACKET)

    def take(self, batch: int, batches: int) -> None:
        for _ in range(batches):
            with self.env.begin(write=True) as txn:
                cursor = txn.cursor()
                for _ in range(batch):
                    cursor.set_range(KEY.pack(1, 0))
                    cursor.value()
                    cursor.delete()


class Ours:
    """The store, used as the engine uses it."""

    def __init__(self, path: Path) -> None:
        self.store = Store.open(path)
        self.numbers = self.store.counter("sequential_id")

    def put(self, batch: int, batches: int) -> None:
        store, numbers = self.store, self.numbers
        for _ in range(batches):
            with store.lock:
                for _ in range(batch):
                    store.put(1, LANE | numbers.next(), Record(PACKET, 1_700_000_000), express=False)
                pending = store.pending_batch()
            store.sync(pending)

    def take(self, batch: int, batches: int) -> None:
        store = self.store
        for _ in range(batches):
            with store.lock:
                for _ in range(batch):
                    lookup_id = store.next(1, -1)
                    record = None if lookup_id is None else store.get(1, lookup_id)
                    if lookup_id is None or record is None:
                        raise RuntimeError("the queue ran dry")
                    store.delete(1, lookup_id, record)
                pending = store.pending_batch()
            store.sync(pending)


def compare(raw: Raw, ours: Ours, messages: int) -> None:
    print(
        f"{'batch':>6} {'LMDB put/s':>12} {'store put/s':>12} {'ratio':>6} "
        f"{'LMDB take/s':>12} {'store take/s':>13} {'ratio':>6}"
    )
    for batch in (1, 10, 100, 1000):
        batches = max(1, min(messages // batch, 2000) // ROUNDS)
        count = batch * batches
        times: dict[str, list[float]] = {"raw put": [], "our put": [], "raw take": [], "our take": []}
        for _ in range(ROUNDS):
            times["raw put"].append(timed(raw.put, batch, batches))
            times["our put"].append(timed(ours.put, batch, batches))
            times["raw take"].append(timed(raw.take, batch, batches))
            times["our take"].append(timed(ours.take, batch, batches))
        rate = {name: count / statistics.median(seconds) for name, seconds in times.items()}
        print(
            f"{batch:>6} {rate['raw put']:>12,.0f} {rate['our put']:>12,.0f} {rate['our put'] / rate['raw put']:>6.2f}"
            f" {rate['raw take']:>12,.0f} {rate['our take']:>13,.0f} {rate['our take'] / rate['raw take']:>6.2f}"
        )


def deep_queue(ours: Ours, messages: int) -> None:
    """Fill one queue, and print the costs of its depth."""
    store = ours.store
    before = memory()
    seconds = timed(ours.put, 1000, messages // 1000)
    after = memory()
    print(f"{messages:,} puts in batches of 1000: {messages / seconds:,.0f}/s, memory {before} -> {after} MiB")
    with store.lock:
        lookup_ids = []
        at = -1
        start = time.perf_counter()
        for _ in range(20_000):
            following = store.next(1, at)
            if following is None:
                break
            lookup_ids.append(following)
            at = following
        nexts = time.perf_counter() - start
        start = time.perf_counter()
        for key in lookup_ids:
            store.get(1, key)
        gets = time.perf_counter() - start
        scan = store.scan(1, 0)
    print(f"next {nexts / len(lookup_ids) * 1e6:.2f} us, get {gets / len(lookup_ids) * 1e6:.2f} us")
    count = 0
    start = time.perf_counter()
    for _ in scan:
        count += 1
    print(f"scan by visibility number: {count / (time.perf_counter() - start):,.0f}/s, memory {memory()} MiB")


def stages(ours: Ours, messages: int) -> None:
    store = ours.store

    def stage() -> None:
        for _ in range(messages // 1000):
            with store.lock:
                store.stage(b"token", 2, [(3, [PACKET] * 1000)], 1)
                pending = store.pending_batch()
            store.sync(pending)

    def publish() -> None:
        with store.lock:
            store.publish(b"bench", [b"token"], ours.numbers.next, 1)
            pending = store.pending_batch()
        store.sync(pending)

    staged, before = timed(stage), memory()
    published = timed(publish)
    print(
        f"staged {messages:,}: {messages / staged:,.0f}/s; published in one commit: {published:.2f} s, "
        f"{messages / published:,.0f}/s, memory {before} -> {memory()} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="The store against plain LMDB.")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--directory", type=Path, help="on the disk to measure; default: the temporary directory")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(dir=arguments.directory))
    try:
        raw, ours = Raw(directory / "raw"), Ours(directory / "store")
        compare(raw, ours, arguments.messages)
        raw.env.close()
        deep_queue(ours, arguments.messages)
        stages(ours, arguments.messages)
        ours.store.close()
        reopened = timed(lambda: Store.open(directory / "store").close())
        print(f"open and close again: {reopened * 1e3:.1f} ms")
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
