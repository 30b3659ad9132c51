"""What every test sees: the requirement markers, and the order of the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

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


def group(name: str) -> str:
    """Say with which others a test file runs."""
    return TOGETHER.get(name) or TOGETHER.get(name.partition("/")[0], name)


class Together(LoadScopeScheduling):  # type: ignore[misc] # it has no types
    """Gives a group of test files to one process, in their order."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid.partition("::")[0].removeprefix("tests/"))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together:
    return Together(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: turn(item.path))
