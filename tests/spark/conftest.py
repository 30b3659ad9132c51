from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lanner.client import QueueManager
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
