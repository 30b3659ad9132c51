"""kill -9 between writes.

Acknowledged data is there, batches are complete or absent, and numbers are never reused.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.conftest import QUEUE, ids, open_store

# Each batch: two messages, a row that counts the batches, one message of the batch before taken.
# After the sync the batch's number is printed: that is the acknowledgment. The parent kills the
# child in the middle of its work.
CHILD = """
import sys
from lanner.store import Record, Store

store = Store.open(sys.argv[1], map_size=1 << 30, reserve=1 << 20)
numbers = store.counter("sequential_id", 16)
table = store.table("t")
count = int(table.get(b"batches") or b"0")
while True:
    count += 1
    with store.lock:
        previous = store.previous(7, 1 << 64)
        first = numbers.next()
        store.put(7, first, Record(b"%d a" % count, 1), express=False)
        store.put(7, numbers.next(), Record(b"%d b" % count, 1), express=False)
        if previous is not None:
            record = store.get(7, previous)
            store.delete(7, previous, record)
        table.put(b"batches", b"%d" % count)
        batch = store.pending_batch()
    store.sync(batch)
    print(count, first, flush=True)
"""


@pytest.mark.parametrize("acknowledged", [1, 7, 40])
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, acknowledged: int) -> None:
    last_id = 0
    batches = 0
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            try:
                for _ in range(acknowledged):
                    count, first = map(int, child.stdout.readline().split())
                    assert count == batches + 1
                    assert first > last_id
                    batches, last_id = count, first + 1
            finally:
                # Also where the test fails: the child would write until the disk is full.
                child.kill()
            for line in child.stdout.read().splitlines(keepends=True):
                if line.endswith("\n"):  # the last one may be cut short
                    batches, last_id = (int(part) for part in line.split())
                    last_id += 1

        store = open_store(tmp_path)
        done = int(store.table("t").get(b"batches") or b"0")
        assert batches <= done <= batches + 1  # the last one may have been durable before it was told
        found = []
        for key in ids(store):
            message = store.get(QUEUE, key)
            assert message is not None
            found.append(message.packet)
        assert found == [b"%d a" % count for count in range(1, done)] + [b"%d a" % done, b"%d b" % done]
        assert store.stats(QUEUE) == (len(found), sum(map(len, found)))
        assert [message.packet for _, _, message in store.scan(QUEUE, 0)] == found
        batches = done
        last_id = max(last_id, ids(store)[-1])
        # A kill again, in effect: the counter keeps its durable limit, the directory is free.
        store.close()
