"""What every test sees: the requirement markers, and the order of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester", "spec_plugin"]

TESTS = Path(__file__).parent

# A broken unit is told in seconds, before the tests that start processes.
LATER = {"test_house.py": 1, "interop": 2, "adversity": 3}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LATER.get(item.path.relative_to(TESTS).parts[0], 0))
