"""Pytest plugin that records which lines under src each test runs.

With `-p line_coverage --line-coverage FOLDER`, coverage.py traces the run with one context per
test. The plugin writes one record per test file. It contains the tests that passed, each with the
rows that it names and its duration in seconds; and for each line of a module a bit mask of the
tests that ran it (bit 0 is the first test). Lines that run at import belong to no test. Other
processes that a test starts are not traced.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import coverage
import pytest

# The record of a file without a passed test.
EMPTY = '{"failed": false, "tests": {}, "lines": {}}'


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--line-coverage", metavar="FOLDER", type=Path, help="write the lines that each test runs to FOLDER"
    )


def pytest_configure(config: pytest.Config) -> None:
    folder: Path | None = config.getoption("--line-coverage")
    # The xdist controller runs no tests.
    if folder is not None and (hasattr(config, "workerinput") or not config.getoption("numprocesses", None)):
        config.pluginmanager.register(LineCoverage(folder, config.rootpath / "src"), "lines-of-tests")


def file_name(test_file: str) -> str:
    """Return the file name of a test file's record."""
    return test_file.replace("/", "+") + ".json"


class LineCoverage:
    """The tracer of one process."""

    def __init__(self, folder: Path, source: Path) -> None:
        self._folder = folder
        self._source = source
        self._coverage = coverage.Coverage(data_file=None, source=[str(source)], config_file=False)
        self._tests: dict[str, dict[str, Any]] = {}
        self._failed: set[str] = set()
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)
        elif report.when == "call" and report.passed and not hasattr(report, "wasxfail"):
            rows = [value for name, value in report.user_properties if name == "spec"]
            self._tests[report.nodeid] = {"rows": rows, "seconds": round(report.duration, 3)}

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        places: dict[str, tuple[str, int]] = {}
        records: dict[str, dict[str, Any]] = {}
        for test, facts in self._tests.items():
            if test not in self._failed:
                name = test.partition("::")[0]
                tests = records.setdefault(name, json.loads(EMPTY))["tests"]
                places[test] = (name, len(tests))
                tests[test] = facts
        for test in self._failed:
            records.setdefault(test.partition("::")[0], json.loads(EMPTY))["failed"] = True
        data = self._coverage.get_data()
        for path in data.measured_files():
            if not Path(path).exists():
                # Cython names its sources relative to where it was compiled.
                continue
            module = Path(path).relative_to(self._source).as_posix()
            for line, contexts in data.contexts_by_lineno(path).items():
                masks: Counter[str] = Counter()
                for name, number in (places[test] for test in set(contexts) & places.keys()):
                    masks[name] |= 1 << number
                for name, mask in masks.items():
                    records[name]["lines"].setdefault(module, {})[line] = f"{mask:x}"
        self._folder.mkdir(parents=True, exist_ok=True)
        for name, record in records.items():
            (self._folder / file_name(name)).write_text(json.dumps(record), encoding="utf-8")
