"""A full disk: sends are rejected, receives continue, nothing acknowledged is lost.

The queue manager recovers by itself. RLIMIT_FSIZE simulates the end of the disk: the kernel refuses
to let the file grow, as it would there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SCRIPT = r"""
import resource, sys, time
from lanner.client import Message, QueueManager
from lanner.errors import InsufficientResources

data = sys.argv[1]
body = b"x" * 4000
with QueueManager(data, name="ALPHA") as qm:
    q = qm.create_queue("q")
    express = qm.create_queue("express")
    def send(i):
        q.send(Message(body=body, label=str(i), recoverable=True))
    for i in range(200):
        send(i)
    sent = 200
    size = sum(f.stat().st_blocks * 512 for f in __import__("pathlib").Path(data).iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    refused = None
    while refused is None and sent < 200_000:
        try:
            send(sent)
            sent += 1
        except InsufficientResources as error:
            refused = error
    assert refused is not None, "the disk never became full"
    assert refused.status == 0xC00E0027
    # Receiving goes on, and so do messages that need no disk.
    received = [q.receive(timeout=0).label for _ in range(150)]
    assert received == [str(i) for i in range(150)], received[:5]
    express.send(b"still here")
    assert express.receive(timeout=0).body == b"still here"
    # The disk has room again: no restart is needed.
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    deadline = time.monotonic() + 20
    while True:
        try:
            send(sent)
            break
        except InsufficientResources:
            assert time.monotonic() < deadline, "it does not recover"
            time.sleep(0.2)
    sent += 1
    assert [m.label for m in q] == [str(i) for i in range(150, sent)]
with QueueManager(data) as qm:
    assert [m.label for m in qm.open("q")] == [str(i) for i in range(150, sent)]
    assert qm.open("q").attributes().total_bytes == sum(len(m.packet) for m in qm.open("q"))
print("ok", sent)
"""


def test_a_full_disk_refuses_sends_and_recovers(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path / "data"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok")
