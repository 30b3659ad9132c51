"""The life cycle of a queue manager: started on a directory, stopped, restarted.

It never runs twice at once.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import lanner
from lanner.client import Message, Queue, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.host.addresses import host_computer_name
from lanner.model.errors import (
    IllegalQueuePathname,
    LannerError,
    QueueExists,
    QueueNotFound,
    ServiceNotAvailable,
    StatusError,
    StoreLocked,
)
from lanner.store.lock import StoreLock
from lanner.store.table import Table
from tests.client.conftest import no_keys
from tests.client.peers import free_address
from tests.statuses import MQ_ERROR_QUEUE_NOT_FOUND


def test_what_is_recoverable_outlives_the_process(start: Callable[..., QueueManager]) -> None:
    qm = start()
    queue = qm.create_queue("q", label="kept")
    queue.send(Message(body="kept", recoverable=True))
    queue.send("express")
    qm.close()
    queue = start().open("q")
    assert queue.attributes().label == "kept"
    assert [message.body for message in queue] == ["kept"]


def test_a_queue_manager_keeps_its_name_and_identity(start: Callable[..., QueueManager]) -> None:
    qm = start("gamma")
    identifier = runtime_of(qm).engine.queue_manager.identifier
    qm.create_queue("q").send(Message(body="x", recoverable=True))
    assert qm.name == "GAMMA"
    qm.close()
    again = start(None)
    assert (again.name, runtime_of(again).engine.queue_manager.identifier) == ("GAMMA", identifier)
    assert again.open(r"GAMMA\private$\q").receive(0).body == "x"


def test_a_queue_manager_that_is_renamed_keeps_its_queues(start: Callable[..., QueueManager]) -> None:
    qm = start("ALPHA")
    identifier = runtime_of(qm).engine.queue_manager.identifier
    qm.create_queue("q").send(Message(body="x", recoverable=True))
    qm.create_queue(r".\orders")
    qm.close()
    again = start("OMEGA")
    assert (again.name, runtime_of(again).engine.queue_manager.identifier) == ("OMEGA", identifier)
    assert [queue.name for queue in again.queues() if "admin" not in queue.name] == [
        r"OMEGA\private$\q",
        r"OMEGA\orders",
    ]
    assert again.open("q").receive(0).body == "x"
    assert not again.open(r"ALPHA\private$\q").exists()
    with pytest.raises(QueueNotFound):
        again.open(r"ALPHA\private$\q").receive(0)
    again.delete_queue(r".\orders")


def test_a_new_queue_manager_without_a_name_has_that_of_the_host(start: Callable[..., QueueManager]) -> None:
    qm = start(None)
    assert qm.name == host_computer_name()
    qm.create_queue("q").send("x")
    assert qm.open(rf"{qm.name}\private$\q").receive(0).body == "x"


@pytest.mark.parametrize("name", ["", "a\\b", "a b", "x" * 257])
def test_a_name_that_cannot_be_is_refused(start: Callable[..., QueueManager], name: str) -> None:
    with pytest.raises(IllegalQueuePathname):
        start(name)


def test_a_setting_that_does_not_exist_is_a_mistake(start: Callable[..., QueueManager]) -> None:
    with pytest.raises(TypeError, match="qouta"):
        start(qouta=5)
    start()


def test_two_queue_managers_in_one_process(start: Callable[..., QueueManager]) -> None:
    alpha, beta = start("ALPHA", "a"), start("BETA", "b")
    alpha.create_queue("q").send("a")
    beta.create_queue("q").send("b")
    assert [manager.open("q").receive(0).body for manager in (alpha, beta)] == ["a", "b"]


def test_a_directory_has_one_queue_manager(start: Callable[..., QueueManager]) -> None:
    qm = start()
    with pytest.raises(StoreLocked, match="open in process"):
        start()
    qm.create_queue("still-there")


def test_a_directory_has_one_process(start: Callable[..., QueueManager], tmp_path: Path) -> None:
    """The error names the process that has the directory; when it ends, the directory is free."""
    qm = start()
    program = f"""
import os, sys
from lanner.client import QueueManager
from lanner.model.errors import StoreLocked
try:
    QueueManager({str(tmp_path / "data")!r})
except StoreLocked as error:
    sys.exit(0 if str(os.getppid()) in str(error) else 2)
sys.exit(1)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
    qm.create_queue("q")
    qm.close()
    start()


def test_a_with_block_closes(tmp_path: Path) -> None:
    settings: dict[str, object] = {"public_keys": lambda: (b"", b"")}
    with QueueManager(tmp_path / "data", "ALPHA", **settings) as qm:  # type: ignore[arg-type] # EngineSettings'
        qm.create_queue("q")
    with pytest.raises(ServiceNotAvailable):
        qm.create_queue("r")
    with QueueManager(str(tmp_path / "data")) as qm:
        assert qm.open("q").exists()


def test_after_the_close_nothing_is_done(qm: QueueManager, q: Queue) -> None:
    q.send("x")
    cursor = q.cursor()
    cursor.peek(0)
    transaction = qm.transaction()
    lookup_id = q.peek(0).lookup_id
    qm.close()
    qm.close()
    uses: list[Callable[[], object]] = [
        lambda: qm.create_queue("r"),
        lambda: qm.delete_queue("q"),
        lambda: q.send("x"),
        lambda: q.send_many(["x"]),
        lambda: q.receive(0),
        q.receive,
        lambda: q.receive_many(1),
        lambda: q.peek(0),
        lambda: q.peek_by_lookup_id(lookup_id),
        lambda: q.receive_by_lookup_id(lookup_id),
        q.purge,
        lambda: q.set(label="x"),
        lambda: q.cursor().peek(0),
        lambda: q.move(lookup_id, "retry"),
        lambda: list(q),
        lambda: cursor.peek(0),
        lambda: cursor.receive(0),
        qm.transaction,
        transaction.commit,
        qm.open("q", exclusive=True).__enter__,
        lambda: qm.open("q", exclusive=True).receive(0),
    ]
    for number, use in enumerate(uses):
        with pytest.raises(StatusError):
            pytest.fail(f"use {number} worked: {use()!r}")
    cursor.close()
    q.close()


def test_a_queue_manager_stops_while_others_work(qm: QueueManager, q: Queue) -> None:
    """Objects that outlive it do no harm when they are forgotten."""
    other = qm.open("q")
    other.send("x")
    transaction = qm.transaction()
    qm.close()
    del other, transaction
    gc.collect()


def test_errors_have_their_status() -> None:
    for error in StatusError.by_status.values():
        assert issubclass(error, LannerError)
    assert lanner.errors.QueueNotFound.status == MQ_ERROR_QUEUE_NOT_FOUND


def test_the_package_offers_the_api() -> None:
    assert lanner.QueueManager is QueueManager
    assert lanner.Message is Message
    assert set(lanner.__all__) <= set(dir(lanner))
    for name in lanner.__all__:
        assert getattr(lanner, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        lanner.nonsense  # type: ignore[attr-defined] # noqa: B018 (the point)


def test_importing_one_layer_does_not_load_them_all() -> None:
    program = "import sys, lanner.model.errors; sys.exit('lanner.client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


def test_nothing_is_read_without_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may move the snapshot at any time.

    A thread that reads it without the lock at that moment would crash the process.
    """
    locks: list[StoreLock] = []
    unlocked: list[str] = []
    made, ceiling, get = StoreLock.__init__, Table._stored_ceiling, Table.get

    def making(lock: StoreLock) -> None:
        made(lock)
        locks.append(lock)

    def check() -> None:
        if not locks[-1].is_mine:
            unlocked.extend(traceback.format_stack()[-6:-2])

    def stored_ceiling(table: Table, key: bytes) -> bytes | None:
        check()
        return ceiling(table, key)

    def got(table: Table, key: bytes) -> bytes | None:
        check()
        return get(table, key)

    monkeypatch.setattr(StoreLock, "__init__", making)
    monkeypatch.setattr(Table, "_stored_ceiling", stored_ceiling)
    monkeypatch.setattr(Table, "get", got)
    for _ in range(2):
        with QueueManager(tmp_path / "data", "ALPHA", bind=free_address(), events=True, public_keys=no_keys) as manager:
            with suppress(QueueExists):
                manager.create_queue("q")
            manager.open("q").send(Message(body=b"x", recoverable=True))
            assert manager.open("q").receive(0).body == b"x"
    assert not unlocked, "".join(unlocked)
