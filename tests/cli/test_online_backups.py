"""`lanner backup` while `lanner serve` works, and `lanner restore` of what it made."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from lanner.client import Message, QueueManager, connect
from lanner.model.errors import IOTimeout, StoreCorrupt
from lanner.store import Store
from lanner.store.record import MESSAGE_KEY
from lanner.store.verification import verify
from tests.cli.conftest import Run, Served

Key = tuple[int, int]


class Traffic:
    """Two senders, two senders of pairs in transactions, and two receivers.

    Each has a connection of its own.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._over = threading.Event()
        # What was acknowledged; a set only grows, and its copy is taken at once.
        self.sent: set[Key] = set()
        self.paired: set[Key] = set()
        self.received: set[Key] = set()
        self.failures: list[BaseException] = []
        works: list[tuple[Callable[..., None], tuple[int, ...]]] = [
            (self._send, (0,)),
            (self._send, (1,)),
            (self._send_pairs, (2,)),
            (self._send_pairs, (3,)),
            (self._receive, ()),
            (self._receive, ()),
        ]
        self._threads = [threading.Thread(target=self._run, args=(work, *rest)) for work, rest in works]
        for thread in self._threads:
            thread.start()

    def _run(self, work: Callable[..., None], *arguments: int) -> None:
        try:
            with connect(data=self._data) as manager:
                work(manager, *arguments)
        except BaseException as error:  # noqa: BLE001 (told by the test)
            self.failures.append(error)

    def _send(self, manager: QueueManager, writer: int) -> None:
        queue, number = manager.open("orders"), 0
        while not self._over.is_set():
            number += 1
            queue.send(Message(body=f"{writer} {number}", recoverable=True))
            self.sent.add((writer, number))

    def _send_pairs(self, manager: QueueManager, writer: int) -> None:
        left, right, number = manager.open("left"), manager.open("right"), 0
        while not self._over.is_set():
            number += 1
            with manager.transaction() as transaction:
                left.send(f"{writer} {number}", transaction=transaction)
                right.send(f"{writer} {number}", transaction=transaction)
            self.paired.add((writer, number))

    def _receive(self, manager: QueueManager) -> None:
        queue = manager.open("orders")
        while not self._over.is_set():
            try:
                message = queue.receive(timeout=0.2)
            except IOTimeout:
                continue
            self.received.add(_key(message.body))

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        assert self.failures == []


def _key(body: object) -> Key:
    writer, number = str(body).split()
    return int(writer), int(number)


@pytest.fixture
def traffic(run: Run, serve: Callable[..., Served], data: Path) -> Iterator[Traffic]:
    run("queue", "create", "orders", "--name", "alpha")
    for name in ("left", "right"):
        run("queue", "create", name, "--transactional")
    serve("--json").ready()
    working = Traffic(data)
    yield working
    working.stop()


def _check_backups(count: int, run: Run, traffic: Traffic, tmp_path: Path) -> None:
    for number in range(count):
        sent, paired, received = set(traffic.sent), set(traffic.paired), set(traffic.received)
        copy, restored = tmp_path / f"copy{number}", tmp_path / f"restored{number}"
        told = run("backup", copy, "--json").json
        again = run("restore", copy, "--data", restored, "--json").json
        assert told["messages"] == again["messages"]
        with QueueManager(restored) as manager:
            orders = [_key(message.body) for message in manager.open("orders")]
            left = {_key(message.body) for message in manager.open("left")}
            right = {_key(message.body) for message in manager.open("right")}
        assert len(orders) == len(set(orders))
        present = set(orders)
        assert not present & received, "a receive that was acknowledged before is undone"
        assert left == right, "half a transaction"
        assert paired <= left, "an acknowledged transaction is missing"
        later = set(traffic.received)
        assert sent <= present | later, "an acknowledged message is missing"
        for writer in (0, 1):
            numbers = sorted(key[1] for key in present if key[0] == writer)
            gaps = {(writer, one) for one in range(1, (numbers or [0])[-1] + 1)} - present
            # A receive is acknowledged a moment after the copy has it.
            assert len(gaps - later) <= 2, "a hole in the order of one sender"
        shutil.rmtree(copy)
        shutil.rmtree(restored)


def test_a_backup_of_a_working_service_is_one_moment(run: Run, traffic: Traffic, tmp_path: Path) -> None:
    _check_backups(3, run, traffic, tmp_path)


@pytest.mark.soak
def test_a_hundred_backups_of_a_working_service(run: Run, traffic: Traffic, tmp_path: Path) -> None:
    _check_backups(100, run, traffic, tmp_path)


def test_a_restore_goes_into_a_directory_without_a_queue_manager_only(
    run: Run, orders: str, data: Path, tmp_path: Path
) -> None:
    run("send", orders, "kept")
    run("user", "add", "alice", "--password-stdin", stdin="a long word\n")
    copy, restored = tmp_path / "copy", tmp_path / "restored"
    run("backup", copy)
    assert "holds a queue manager already" in run("restore", copy, code=1).err
    assert "is no backup" in run("restore", tmp_path / "none", "--data", restored, code=1).err
    assert "1 message in 1 queue were read and are whole" in run("restore", copy, "--data", restored).out
    assert run("receive", orders, "--data", restored, "--json").json["body"] == "kept"
    assert [one["name"] for one in run("user", "list", "--data", restored, "--json").json] == ["alice"]


def test_a_damaged_backup_is_refused_and_leaves_no_store(run: Run, orders: str, data: Path, tmp_path: Path) -> None:
    run("send", orders, "kept")
    copy, restored = tmp_path / "copy", tmp_path / "restored"
    run("backup", copy)
    with lmdb.open(str(copy), max_dbs=8) as env:
        messages = env.open_db(b"messages")
        with env.begin(write=True) as txn, txn.cursor(messages) as cursor:
            assert cursor.first()
            key, value = cursor.item()
            txn.put(key, value[:-1] + bytes((value[-1] ^ 1,)), db=messages)
    assert "checksum" in run("restore", copy, "--data", restored, code=1).err
    assert not Store.exists(restored)


@pytest.mark.parametrize(
    ("database", "complaint"), [(b"visible", "is not in the index"), (b"messages", "its totals say")]
)
def test_what_is_missing_in_a_copy_is_found(
    run: Run, orders: str, data: Path, tmp_path: Path, database: bytes, complaint: str
) -> None:
    run("send", orders, "kept")
    copy = tmp_path / "copy"
    run("backup", copy)
    assert verify(copy).messages == 1
    with lmdb.open(str(copy), max_dbs=8) as env:
        rows = env.open_db(database)
        with env.begin(write=True) as txn, txn.cursor(rows) as cursor:
            assert cursor.first()
            queue, _, _ = MESSAGE_KEY.unpack(cursor.key())
            assert queue
            assert cursor.delete()
    with pytest.raises(StoreCorrupt, match=complaint):
        verify(copy)
