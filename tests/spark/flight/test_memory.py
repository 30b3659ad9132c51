"""A scan holds a batch or two, never the queue, and nothing when it has ended."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from lanner.client import QueueManager
from lanner.security.users import USER_FILE
from lanner.spark.flight.client import FlightQueues
from tests.cli.conftest import Served, free_address

MESSAGES = 200_000


@pytest.fixture
def served(tmp_path: Path, accounts: Path) -> Iterator[tuple[int, FlightQueues]]:
    """Run `lanner serve` in its own process, so that its memory can be measured.

    Yield the process id and a connection to its Flight service.
    """
    data = tmp_path / "data"
    with QueueManager(data, "ALPHA") as manager:
        manager.create_queue("deep")
    shutil.copy(accounts, data / USER_FILE)
    served = Served("--data", data, "--bind", free_address(), "--json")
    connection = FlightQueues(served.ready()["listeners"]["flight"], user="root", password="secret")
    yield served.process.pid, connection
    connection.close()
    served.process.kill()
    served.process.communicate()


def memory(pid: int) -> int:
    """Return its own memory and that shared with readers, in MiB, without the store's file."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    found = [int(line.split()[1]) for line in status if line.startswith(("RssAnon", "RssShmem"))]
    assert len(found) == 2
    return sum(found) // 1024


def test_memory_stays_flat_over_200_000_messages(served: tuple[int, FlightQueues]) -> None:
    """The queue has some 250 MB.

    A batch has 16 MiB: near there are two at a time, as packets; through Flight it is there as
    packets and as columns.
    """
    pid, root = served
    rows = pa.RecordBatch.from_pydict({"body": pa.array([bytes(1000)] * 10_000, pa.binary())})
    written = []
    for batch in range(4):
        staged = root.stage([rows] * (MESSAGES // 40_000), rows.schema, writer="w", batch=batch, queue="deep")
        root.publish("w", batch, [staged["token"]])
        written.append(memory(pid))
    assert max(written) < written[0] + 32, written
    for way in ("reader process", "memory", "port"):
        root._is_near = way == "memory"
        while_reading, when_read = [], []
        for _ in range(3):
            count = 0
            for partition in root.plan("deep").partitions:
                assert partition.locations
                for found in root.read(partition if way == "reader process" else partition.ticket):
                    count += len(found)
                    while_reading.append(memory(pid))
            assert count == MESSAGES
            when_read.append(memory(pid))
        assert len(root._idle) == (0 if way == "reader process" else 1)
        assert max(when_read) < when_read[0] + 32, when_read
        if way == "reader process":
            # Its memory is its own: the queue manager has none of it.
            [reader] = psutil.Process(pid).children()
            assert max(while_reading) < written[0] + 32, while_reading
            assert memory(reader.pid) < 260
        assert max(while_reading) < written[0] + 160, while_reading
