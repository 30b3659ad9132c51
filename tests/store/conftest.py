from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.store import Store

# Small, so that tests on a tmpfs or with a file size limit stay small too.
MAP_SIZE = 1 << 30


def open_store(path: Path) -> Store:
    return Store.open(path, map_size=MAP_SIZE, reserve=1 << 20)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "data")
    yield opened
    opened.close()
