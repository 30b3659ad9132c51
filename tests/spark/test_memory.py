"""A scan holds a batch or two, never the queue."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lanner.client import QueueManager
from lanner.spark.flight_client import FlightQueues


def memory() -> int:
    """RssAnon in MiB."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) // 1024
    raise AssertionError


def test_memory_stays_flat_over_200_000_messages(qm: QueueManager, root: FlightQueues) -> None:
    """Service and client are in this process; the queue is twice what they may take together, some batches of 8 MiB each."""
    qm.create_queue("deep")
    rows = pa.RecordBatch.from_pydict({"body": pa.array([bytes(1000)] * 10_000, pa.binary())})
    first = 0
    for batch in range(4):
        staged = root.stage([rows] * 5, rows.schema, writer="w", batch=batch, queue="deep")
        root.publish("w", batch, [staged["token"]])
        first = first or memory()
    assert memory() < first + 100, "writing"
    before = count = highest = 0
    for found in root.batches("deep"):
        count += len(found)
        before = before or memory()
        highest = max(highest, memory())
    assert count == 200_000
    assert highest < before + 100, f"reading: {before} MiB after the first batch, {highest} MiB at the most"
