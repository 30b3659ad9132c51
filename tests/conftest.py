"""Set-up of every test: the requirement markers, and the order of the run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from lanner.security.log_lines import LINES

pytest_plugins = ["pytester", "spec_plugin", "skip_plugin"]

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# A shell has its background jobs, and what they start, ignore SIGINT: tests of Ctrl-C must not
# depend on how they are run.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent


@pytest.fixture(autouse=True)
def _forget_log_lines() -> None:
    """Have each test see all of its lines, however many others have caused in the same minute."""
    LINES._counts.clear()
    LINES._lines = LINES.left_out = 0


# What runs in one process when several share the work: a file, but for these, which share ports
# that others have fixed (or listen on every address), or a Spark that takes long to start.
TOGETHER = {
    "interop": "interop",
    "active_directory": "active_directory",
    "com/server/test_listener.py": "interop",
    "spark": "spark",
    "demo": "spark",
}

# A broken unit is told in seconds, before the tests that start processes.
LATER = {"test_house.py": 1, "interop": 2, "adversity": 3}

# Where several processes share the work what takes minutes comes first: else one would still be at
# it when the others have nothing left.
LONGEST = ("spark", "interop", "adversity", "test_docs.py", "bench")


def turn(path: Path) -> int:
    """Say in which part of the run a test file has its turn."""
    return LATER.get(part(path), 0) if path.is_relative_to(TESTS) else max(LATER.values())


def shared_turn(path: Path) -> int:
    """Say the same where several processes share the work."""
    return LONGEST.index(part(path)) if path.is_relative_to(TESTS) and part(path) in LONGEST else len(LONGEST)


def part(path: Path) -> str:
    return path.relative_to(TESTS).parts[0]


def group(name: str) -> str:
    """Say with which others a test file runs."""
    return TOGETHER.get(name) or TOGETHER.get(name.partition("/")[0], name)


class Together(LoadScopeScheduling):  # type: ignore[misc] # it has no types
    """Gives a group of test files to one process, in their order."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid.partition("::")[0].removeprefix("tests/"))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together:
    # Not by the number of tests: those of Spark are few and long.
    config.option.loadscopereorder = False
    return Together(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    order = shared_turn if hasattr(config, "workerinput") else turn
    items.sort(key=lambda item: order(item.path))


@pytest.fixture(autouse=True)
def keep_the_handler_of_ctrl_c() -> Iterator[None]:
    """Fail a test that leaves another handler of SIGINT to the tests after it."""
    before = signal.getsignal(signal.SIGINT)
    yield
    after = signal.signal(signal.SIGINT, before)
    # An event loop that removes its handler leaves Python's own, where Spark may have set another.
    assert after in (before, signal.default_int_handler)
