"""Partitions of Spark: few enough to be worth their tasks, and as many as are asked for."""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
from collections.abc import Callable
from typing import cast

import pyarrow as pa
import pytest

from lanner.spark.flight.client import FlightQueues, Partition, Plan
from lanner.spark.source import partitions
from lanner.spark.source.connections import Access, Manager
from lanner.spark.source.partitions import Columns, MessagePartition, Planner, Wanted, read_partition

MIB = 1 << 20


class Queues:
    """Queues of some bytes, cut as a queue manager cuts them."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes

    def plan(self, name: str, *, partition_bytes: int, **_: object) -> Plan:
        size = self.sizes[name]
        parts = [
            Partition(json.dumps([name, at]).encode(), at, at + 1, 1, min(partition_bytes, size - at))
            for at in range(0, size, partition_bytes)
        ]
        return Plan(pa.schema([]), parts, {})


class KnownManager:
    address = "grpc://alpha:1810"

    def __init__(self, sizes: dict[str, int]) -> None:
        self._queues = Queues(sizes)

    def call(self, work: Callable[[FlightQueues], Plan]) -> Plan:
        return work(cast("FlightQueues", self._queues))


def planned(sizes: dict[str, int], least: int | None = None) -> list[list[int]]:
    """The bytes of the pieces of each partition."""
    manager = cast("Manager", KnownManager(sizes))
    wanted = [Wanted(name, number, 0, 1 << 40) for number, name in enumerate(sizes)]
    planner = Planner(Columns("all", include_body=True), least, fail_on_data_loss=True)
    return [[piece.part.bytes for piece in part.pieces] for part in planner.plan([(manager, 1, wanted)])]


@pytest.mark.parametrize(
    ("mebibytes", "count", "largest"),
    [(1, 1, 1), (32, 1, 32), (33, 2, 32), (512, 16, 32), (1024, 16, 64), (2048, 16, 128), (8192, 64, 128)],
)
def test_partitions_grow_with_the_queue_up_to_a_limit(mebibytes: int, count: int, largest: int) -> None:
    found = planned({"q": mebibytes * MIB})
    assert (len(found), max(map(sum, found))) == (count, largest * MIB)
    assert sum(map(sum, found)) == mebibytes * MIB
    assert max(map(max, found)) <= 32 * MIB


@pytest.mark.parametrize(
    ("mebibytes", "asked", "count", "largest"),
    [
        (1200, 1, 2, 600), (1200, 2, 2, 600), (1200, 3, 3, 400),
        (2048, 16, 16, 128), (2048, 64, 64, 32), (4096, 2, 4, 1024),
    ],
)  # fmt: skip
def test_about_as_many_as_are_asked_for(mebibytes: int, asked: int, count: int, largest: int) -> None:
    """A task has its price, so not more; but what is lost with one should not be too much."""
    found = planned({"q": mebibytes * MIB}, asked)
    assert (len(found), max(map(sum, found))) == (count, largest * MIB)


def test_partitions_of_several_queues_are_nearly_even() -> None:
    found = planned({"a": 10 * MIB, "b": 90 * MIB, "c": 100 * MIB, "d": MIB}, 4)
    assert len(found) == 4
    assert max(map(sum, found)) - min(map(sum, found)) <= 13 * MIB


def test_never_fewer_than_are_asked_for() -> None:
    for asked in (1, 16, 17, 40, 64, 100):
        for size in (100, 40 * MIB, 2048 * MIB):
            found = planned({"q": size}, asked)
            assert len(found) >= asked
            assert sum(map(sum, found)) == size
    assert len(planned({"q": 100}, 10)) == 10


def test_small_queues_share_a_partition() -> None:
    assert planned({"a": MIB, "b": MIB, "c": 31 * MIB}) == [[MIB, MIB], [31 * MIB]]
    assert planned({}) == []


def test_a_process_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: done.append("frozen"))
    monkeypatch.setattr("lanner.spark.flight.courtesy.keep", lambda size: done.append(f"keeps {size >> 20}"))
    partitions._prepare.cache_clear()
    for _ in range(2):
        assert list(read_partition(Access(()), MessagePartition("", []), fail_on_data_loss=True)) == []
    assert done == ["frozen", "keeps 64"]
    monkeypatch.setattr("os.getpid", lambda: -1)
    list(read_partition(Access(()), MessagePartition("", []), fail_on_data_loss=True))
    assert len(done) == 4
    partitions._prepare.cache_clear()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="glibc only")
def test_memory_that_is_kept_needs_no_pages_of_the_system() -> None:
    """Blocks of a megabyte are freed and allocated again.

    Each of their pages is requested once from the system; without `keep`, again and again.
    """
    code = """
import ctypes, resource, sys
from lanner.spark.flight.courtesy import keep
if sys.argv[1] == "keep":
    keep(64 << 20)
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    blocks = [libc.malloc(100_000) for _ in range(80)]
    for block in blocks:
        ctypes.memset(block, 1, 100_000)
    for block in reversed(blocks):
        libc.free(block)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    faults = {
        way: int(subprocess.run([sys.executable, "-c", code, way], capture_output=True, check=True, text=True).stdout)
        for way in ("keep", "not")
    }
    assert faults["keep"] < 5000 < faults["not"], faults
