from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lanner.client import QueueManager
from lanner.security.users import USER_FILE, UserFile
from lanner.spark.flight import FlightListener
from lanner.spark.flight_client import FlightQueues
from lanner.spark.settings import FlightSettings
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


@pytest.fixture(scope="session")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The administrator root and the users alice and bob; hashing a password takes its time."""
    path = tmp_path_factory.mktemp("accounts") / USER_FILE
    users = UserFile(path)
    users.add("root", "secret", administrator=True)
    users.add("alice", "wonder")
    users.add("bob", "builder")
    return path


@pytest.fixture
def address(qm: QueueManager, accounts: Path) -> Iterator[str]:
    """A Flight service for `qm`, with the users of `accounts`."""
    shutil.copy(accounts, qm.runtime.users.path)
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
