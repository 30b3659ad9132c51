from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lanner.client import Queue, QueueManager, Transaction
from lanner.client._sync.embedded_queue import EmbeddedQueue
from lanner.client._sync.embedded_units import EmbeddedTransaction
from lanner.model import live
from lanner.model.enums import QueueAccessType


def no_keys() -> tuple[bytes, bytes]:
    """Making RSA keys takes longer than any test here."""
    return b"", b""


def handle_of(queue: Queue, access: QueueAccessType) -> live.OpenQueueDescriptor:
    """Return the handle that a queue object of an embedded queue manager has open for an access."""
    opened = queue._queue
    assert isinstance(opened, EmbeddedQueue)
    return opened.handle(access)


def inner_of(transaction: Transaction) -> live.Transaction:
    """Return the engine's transaction behind one of an embedded queue manager."""
    unit = transaction._unit
    assert isinstance(unit, EmbeddedTransaction)
    return unit.inner


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., QueueManager]]:
    """Start queue managers on directories below the test's own; they are closed at its end."""
    started: list[QueueManager] = []

    def start_one(name: str | None = "ALPHA", data: str = "data", **settings: object) -> QueueManager:
        settings = {"dns_domain": "example.com", "public_keys": no_keys} | settings
        started.append(QueueManager(tmp_path / data, name, **settings))  # type: ignore[arg-type] # EngineSettings'
        return started[-1]

    yield start_one
    for manager in started:
        manager.close()


@pytest.fixture
def qm(start: Callable[..., QueueManager]) -> QueueManager:
    return start()


@pytest.fixture
def q(qm: QueueManager) -> Queue:
    return qm.create_queue("q")
