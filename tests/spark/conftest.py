from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lanner.client import QueueManager
from lanner.spark.flight import FlightListener, FlightSettings
from lanner.spark.flight_client import FlightQueues
from tests.client.conftest import no_keys


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
def address(qm: QueueManager) -> Iterator[str]:
    """A Flight service for `qm`, with the administrator root and the users alice and bob."""
    qm.runtime.users.add("root", "secret", administrator=True)
    qm.runtime.users.add("alice", "wonder")
    qm.runtime.users.add("bob", "builder")
    listener = FlightListener(qm.runtime, FlightSettings(port=0))
    listener.open()
    yield listener.address
    listener.close()


@pytest.fixture
def connect(address: str) -> Iterator[Callable[..., FlightQueues]]:
    connections: list[FlightQueues] = []

    def connect_as(user: str | None = "root", password: str = "secret") -> FlightQueues:
        connections.append(FlightQueues(address, user=user, password=password))
        return connections[-1]

    yield connect_as
    for connection in connections:
        connection.close()


@pytest.fixture
def root(connect: Callable[..., FlightQueues]) -> FlightQueues:
    return connect()
