"""What every test sees: the requirement markers, and the order of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester", "spec_plugin"]

TESTS = Path(__file__).parent

# What runs in one process when several share the work: a file, but for these, which share ports that others have fixed (or
# listen on every address), or a Spark that takes long to start.
TOGETHER = {"interop": "interop", "com/test_listener.py": "interop", "spark": "spark"}

# A broken unit is told in seconds, before the tests that start processes.
LATER = {"test_house.py": 1, "interop": 2, "adversity": 3}


def turn(path: Path) -> int:
    """Say in which part of the run a test file has its turn."""
    return LATER.get(path.relative_to(TESTS).parts[0], 0) if path.is_relative_to(TESTS) else max(LATER.values())


def group(path: Path) -> str:
    """Say with which others a test file runs."""
    name = path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else str(path)
    return TOGETHER.get(name) or TOGETHER.get(name.partition("/")[0], name)


# Before xdist, which looks for the groups in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: turn(item.path))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item.path)))
