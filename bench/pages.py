"""Reading stored messages into the decoder's buffers: the page parser against py-lmdb.

    python -m bench.pages [--messages N] [--size BYTES] [--rounds N]

Every way does the same work on the same data: it finds the next messages of a queue in the index,
reads the stored records, compares their checksums, and puts the packets into one buffer with their
facts beside it. The ways are:

    pages      `columnar.gathering`, which reads the pages of LMDB's file with numpy
    getmulti   `Cursor.getmulti` for the records, a cursor for the index
    iternext   a cursor from record to record; correct only if no other record lies between
    scan       `store.Scan`, one record after the other: the fallback of the product

`getmulti` with `dupfixed_bytes` does not apply: records have different sizes and one value per key.
A transaction with `buffers=True` is slower: it makes a memoryview per row, and the garbage
collector visits each of them. Rounds alternate, each in a process of its own. Ratios are relative
to `pages`, by processor time and by elapsed time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

import lmdb
import numpy as np
import numpy.typing as npt

from bench.decode import packets as made_packets
from bench.machine import facts as machine_facts
from bench.report import print_rows
from lanner.model.lookup_ids import lookup_id_of
from lanner.spark.columnar.checksums import joined_checksum
from lanner.spark.columnar.gathering import _ENTRY, _MESSAGE, gather
from lanner.spark.columnar.packet_source import BATCH_BYTES, BATCH_ROWS, Facts, PacketBatch, first_batch
from lanner.spark.columnar.packets import Packets
from lanner.spark.columnar.scans import stored_packets
from lanner.spark.columnar.vectors import SLACK, Buffer, Scratch
from lanner.store import Record, Store
from lanner.store.checksum import crc32
from lanner.store.record import MESSAGE_KEY
from lanner.store.scan import Scan
from lanner.wire.builder import DEFAULT_PRIORITY

QUEUE = 7
ARRIVED = 1_700_000_000
KEY = MESSAGE_KEY.size
HEAD = _MESSAGE.itemsize - KEY  # bytes of a record before its packet
CHECKSUM = 4
# Bytes of records joined at a time, so that they are still in the cache when their checksum is
# computed.
CHUNK_BYTES = 512 << 10
STORE = {"map_size": 4 << 30, "reserve": 1 << 20}

Way = Callable[[Scan, Scratch], PacketBatch]


def with_pages(scan: Scan, room: Scratch) -> PacketBatch:
    found = gather(scan, BATCH_ROWS, BATCH_BYTES, room)
    if found is None:
        raise RuntimeError("the parser did not read this store")
    return found


def with_scan(scan: Scan, room: Scratch) -> PacketBatch:
    return first_batch(stored_packets(scan), room)


def with_calls(read: Callable[[lmdb.Cursor[bytes], list[bytes]], Sequence[bytes]]) -> Way:
    """Return a way that reads the records with a py-lmdb call."""

    def work(scan: Scan, room: Scratch) -> PacketBatch:
        environment = scan._environment  # noqa: SLF001 (its databases)
        with environment.env.begin() as txn:
            index = txn.cursor(environment.visible)
            index.set_range(scan.prefix + (scan.after + 1).to_bytes(8, "big"))
            rows = b"".join(chain.from_iterable(islice(index.iternext(), BATCH_ROWS)))
            entries = np.frombuffer(rows[: len(rows) // _ENTRY.itemsize * _ENTRY.itemsize], _ENTRY)
            is_ours = (entries["queue"] == np.void(scan.prefix)) & (entries["number"] <= scan.upto)
            count = len(entries) if is_ours.all() else int(np.argmin(is_ours))
            ends = np.cumsum(entries["size"][:count], dtype=np.int64)
            entries = entries[: int(np.searchsorted(ends, BATCH_BYTES)) + 1][:count]
            if not len(entries):
                return PacketBatch(Packets.of([], room), Facts.of([]))
            raw = np.empty(len(entries), [("queue", "V8"), ("lookup_id", ">u8")])
            raw["queue"], raw["lookup_id"] = np.void(scan.prefix), entries["lookup_id"]
            octets = raw.tobytes()
            keys = [octets[at : at + KEY] for at in range(0, len(octets), KEY)]
            return _packed(read(txn.cursor(environment.messages), keys), entries, room)

    return work


def _packed(values: Sequence[bytes], entries: npt.NDArray[np.void], room: Scratch) -> PacketBatch:
    """Copy records into one buffer and compare their checksums.

    Records of equal size are copied without their checksums, because one comparison covers all of
    them. Otherwise the checksums stay in the buffer, between the packets.
    """
    if len(values) != len(entries):
        raise RuntimeError(f"{len(values)} of {len(entries)} records were found")
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    is_one_size = bool((sizes == sizes[0]).all())
    left_out = CHECKSUM if is_one_size else 0
    ends = np.cumsum(sizes - left_out)
    memory = room(int(ends[-1]) + SLACK)
    heads = np.empty((len(values), HEAD), np.uint8)
    checksum = first = done = 0
    while first < len(values):
        end = max(first + 1, int(np.searchsorted(ends, done + CHUNK_BYTES)))
        joined = np.frombuffer(b"".join(values[first:end]), np.uint8)
        target = memory[done : int(ends[end - 1])]
        if is_one_size:
            matrix = joined.reshape(end - first, -1)
            heads[first:end] = matrix[:, :HEAD]
            target.reshape(end - first, -1)[:] = matrix[:, CHECKSUM:]
            checksum = crc32(target, checksum)
        else:
            target[:] = joined
        first, done = end, int(ends[end - 1])
    buffer = Buffer(memory)
    if not is_one_size:
        heads = buffer.block(ends - sizes, HEAD)
    about = heads.view(np.dtype([(name, _MESSAGE[name]) for name in _MESSAGE.names or () if name != "key"]))[:, 0]
    if is_one_size:
        is_right = checksum == joined_checksum(about["checksum"], int(sizes[0]) - CHECKSUM)
    else:
        each = map(slice, (ends - sizes + CHECKSUM).tolist(), ends.tolist())
        is_right = list(map(crc32, map(memory.data.__getitem__, each))) == about["checksum"].tolist()
    if not is_right or (about["visibility"] != entries["number"]).any():
        raise RuntimeError("a record is not what was written")
    packet_sizes = sizes - HEAD
    facts = Facts(
        entries["number"].astype(np.int64),
        entries["lookup_id"].astype(np.int64),
        *(about[name].astype(np.int64) for name in Facts._fields[2:]),
    )
    return PacketBatch(Packets(buffer, ends - packet_sizes, packet_sizes), facts)


def _getmulti(cursor: lmdb.Cursor[bytes], keys: list[bytes]) -> Sequence[bytes]:
    return [value for _, value in cursor.getmulti(keys)]


def _iternext(cursor: lmdb.Cursor[bytes], keys: list[bytes]) -> Sequence[bytes]:
    cursor.set_key(keys[0])
    return list(islice(cursor.iternext(keys=False, values=True), len(keys)))


WAYS: dict[str, Way] = {
    "pages": with_pages,
    "getmulti": with_calls(_getmulti),
    "iternext": with_calls(_iternext),
    "scan": with_scan,
}


def fill(directory: Path, messages: int, size: int, *, is_mixed: bool) -> None:
    """Create a store with one queue; `is_mixed` gives packets of many sizes."""
    [packet] = made_packets(1, size)
    with contextlib.closing(Store.open(directory, **STORE)) as store:
        for first in range(0, messages, 1000):
            with store.lock:
                for number in range(first, min(first + 1000, messages)):
                    # The packets are truncated, but only a decoder would notice.
                    end = len(packet) - number % 97 if is_mixed else len(packet)
                    store.put(
                        QUEUE, lookup_id_of(DEFAULT_PRIORITY, number + 1), Record(packet[:end], ARRIVED), express=False
                    )
                batch = store.pending_batch()
            store.sync(batch)
        store.checkpoint()


def read_all(store: Store, way: Way, room: Scratch) -> Iterator[PacketBatch]:
    """Read the whole queue, as `scans.ScannedRange` does it."""
    after = 0
    while True:
        with store.lock:
            scan = store.scan(QUEUE, after, None, BATCH_ROWS)
        with scan:
            packets, facts = way(scan, room)
        if not len(packets):
            return
        after = int(facts.seq[-1])
        yield PacketBatch(packets, facts)


def measure(directory: Path, name: str, passes: int) -> dict[str, float]:
    """Read the queue several times; the first pass is not counted."""
    with contextlib.closing(Store.open(directory, **STORE)) as store:
        store.checkpoint()
        room, checked = Scratch(), crc32(b"")
        messages = size = 0
        for packets, facts in read_all(store, WAYS[name], room):
            messages += len(packets)
            size += int(packets.sizes.sum())
            for column in (*facts, np.frombuffer(packets.whole().buffers()[2], np.uint8)[: packets.sizes.sum()]):
                checked = crc32(np.ascontiguousarray(column), checked)
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(passes):
            for _ in read_all(store, WAYS[name], room):
                pass
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"messages": messages, "bytes": size, "wall": wall / passes, "cpu": cpu / passes, "checked": checked}


def compare(directory: Path, rounds: int, passes: int) -> list[list[str]]:
    """Measure all ways in alternating rounds; return the rows of a table of medians."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in WAYS}
    for number in range(rounds):
        names = list(WAYS)[number % len(WAYS) :] + list(WAYS)[: number % len(WAYS)]
        for name in names:
            command = [sys.executable, "-m", "bench.pages", "--measure", name, str(directory), "--passes", str(passes)]
            found[name].append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
    if len({(each["messages"], each["checked"]) for some in found.values() for each in some}) != 1:
        raise RuntimeError("the ways do not read the same")
    rows = []
    for name, some in found.items():
        ratios = [
            statistics.median(base[what] / each[what] for base, each in zip(found["pages"], some, strict=True))
            for what in ("cpu", "wall")
        ]
        cpu = statistics.median(1e6 * each["cpu"] / each["messages"] for each in some)
        rate = statistics.median(each["bytes"] / each["wall"] / 1e6 for each in some)
        rows.append([name, f"{cpu:.2f}", f"{rate:,.0f}", *(f"{ratio:.2f}" for ratio in ratios)])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description="Stored messages to buffers.")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=1024, help="of a body")
    parser.add_argument("--mixed", action="store_true", help="packets of many sizes")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--measure", nargs=2, metavar=("WAY", "DIRECTORY"), help="one round, as JSON")
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(Path(given.measure[1]), given.measure[0], given.passes)))
        return
    with tempfile.TemporaryDirectory(prefix="lanner-bench-") as name:
        directory = Path(name) / "store"
        fill(directory, given.messages, given.size, is_mixed=given.mixed)
        for what, value in machine_facts(Path(name)).items():
            print(f"{what}: {value}")
        rows = compare(directory, given.rounds, given.passes)
        print_rows([["", "CPU us/message", "MB/s", "of pages, CPU", "of pages, clock"], *rows], sys.stdout)


if __name__ == "__main__":
    main()
