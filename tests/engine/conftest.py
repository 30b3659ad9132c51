from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.harness import Harness


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "data")
    yield harness
    harness.close()
