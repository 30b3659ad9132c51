"""A disk that cannot be written at all.

Everything unsynced is undone, and every waiting caller gets an error. RLIMIT_FSIZE of 0 makes the
kernel refuse every write of a commit, as a broken disk would.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SCRIPT = """
import contextlib, resource, sys, uuid
from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.errors import InsufficientResources, QueueNotFound
from lanner.host.coordinator import Coordinator

@contextlib.contextmanager
def broken_disk():
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        yield
    except InsufficientResources:
        pass
    else:
        raise AssertionError("the disk was written")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

class HeardCoordinator(Coordinator):
    told = []
    def prepare_request_done(self, i): self.told.append("prepared")
    def commit_request_done(self, i): self.told.append("committed")
    def abort_request_done(self, i): self.told.append("aborted")

def bodies(queue): return [m.body_bytes for m in queue]

with QueueManager(sys.argv[1], name="ALPHA") as qm:
    plain, ledger, express = qm.create_queue("plain"), \
qm.create_queue("ledger", transactional=True), qm.create_queue("express")
    plain.send_many(Message(body=b"%d" % i, recoverable=True) for i in range(3))
    with qm.transaction() as tx:
        for i in range(3):
            ledger.send(b"%d" % i, transaction=tx)
    express.send(b"memory")

    with broken_disk():
        plain.send(Message(body=b"new", recoverable=True))
    with broken_disk():
        plain.receive(timeout=0)
    with broken_disk():
        plain.purge()
    with broken_disk():
        qm.create_queue("never")
    assert not qm.open("never").exists()
    tx = qm.transaction()
    ledger.receive(timeout=0, transaction=tx)
    ledger.send(b"new", transaction=tx)
    with broken_disk():
        tx.commit()
    assert bodies(plain) == [b"0", b"1", b"2"], bodies(plain)
    assert bodies(ledger) == [b"0", b"1", b"2"], bodies(ledger)
    assert bodies(express) == [b"memory"]
    assert (plain.count(), ledger.count()) == (3, 3)
    for queue in (plain, ledger):
        assert queue.attributes().total_bytes == sum(len(m.packet) for m in queue)

    # Two phases: a promise that is not on disk was not made, an outcome that is not on disk was not reached.
    runtime = runtime_of(qm)
    engine = runtime.engine
    with runtime.lock:
        engine.dtc.coordinator = coordinator = HeardCoordinator(runtime.store)
    def event(name, *args, **kw):
        with runtime.lock:
            getattr(engine, name)(*args, **kw)
            batch = runtime.store.pending_batch()
        runtime.store.sync(batch)
    tx = qm.transaction()
    transaction = tx._unit.inner
    identifier = transaction.identifier
    ledger.receive(timeout=0, transaction=tx)
    ledger.send(b"promised", transaction=tx)
    with broken_disk():
        event("dtc_transaction_prepare", identifier, single_phase=False)
    assert coordinator.told == []
    assert not transaction.is_prepared
    event("dtc_transaction_prepare", identifier, single_phase=False)
    assert coordinator.told == ["prepared"]
    with broken_disk():
        event("dtc_transaction_commit", identifier)
    assert coordinator.told == ["prepared"]
    assert bodies(ledger) == [b"1", b"2"], bodies(ledger)
    event("dtc_transaction_commit", identifier)
    assert coordinator.told == ["prepared", "committed"]
    assert bodies(ledger) == [b"1", b"2", b"promised"], bodies(ledger)
    assert ledger.attributes().total_bytes == sum(len(m.packet) for m in ledger)

    # A decision that is not on disk was not made.
    backend, distributed = qm._backend, str(uuid.uuid4())
    backend.distributed("begin distributed", identifier=distributed)
    with broken_disk():
        backend.distributed("decide", identifier=distributed, resources=["far"])
    assert backend.distributed("outcomes", transactions=[distributed]) == {"outcomes": {distributed: "aborted"}}
    assert qm.transactions() == []
    plain.send(Message(body=b"after", recoverable=True))
    qm.create_queue("never")
with QueueManager(sys.argv[1]) as qm:
    assert bodies(qm.open("plain")) == [b"0", b"1", b"2", b"after"]
    assert bodies(qm.open("ledger")) == [b"1", b"2", b"promised"]
print("ok")
"""


def test_what_could_not_be_synced_is_undone(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path / "data"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ok\n"
