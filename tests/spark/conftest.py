from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lanner.client import QueueManager
from lanner.client.runtimes import runtime_of
from lanner.security.users import USER_FILE, UserFile
from lanner.spark.flight.client import FlightQueues
from lanner.spark.flight.server import FlightListener
from lanner.spark.flight.settings import FlightSettings
from tests.client.conftest import no_keys
from tests.spark.jobs.worlds import Ingested, ingested
from tests.spark.small import SPARK_ENVIRONMENT, SPARK_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark for all tests of a run: it takes some ten seconds to start."""
    if shutil.which("java") is None:
        # The environment of `make test` as root has it; others may do without.
        message = "Spark needs Java: install default-jre-headless"
        if os.geteuid() == 0:
            pytest.fail(message)
        pytest.skip(message)
    from pyspark.sql import SparkSession

    place = tmp_path_factory.mktemp("spark")
    # Java, and the workers it starts, keep the environment; other tests need not have it.
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SPARK_ENVIRONMENT.items():
            patch.setenv(name, value)
        builder = SparkSession.builder.master("local[2]").appName("tests")
        settings = SPARK_SETTINGS | {
            "spark.sql.warehouse.dir": str(place / "warehouse"),
            "spark.local.dir": str(place / "local"),
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def business(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ingested:
    """Generated traffic in the table `messages`, and its truth.

    Jobs may add tables of their own.
    """
    return ingested(spark, tmp_path_factory.mktemp("business"))


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
def listener(qm: QueueManager, accounts: Path) -> Iterator[FlightListener]:
    """A Flight service for `qm`, with the users of `accounts`."""
    shutil.copy(accounts, runtime_of(qm).users.path)
    with FlightListener(runtime_of(qm), FlightSettings(port=0)) as listener:
        yield listener


@pytest.fixture
def address(listener: FlightListener) -> str:
    return listener.address


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
