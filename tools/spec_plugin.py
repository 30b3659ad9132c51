"""Pytest plugin that reports the rows of the requirement tables that a test run proves.

`@pytest.mark.spec("DMPR-3.1.7.1.10-3", ...)` names the rows that a test proves. A row is proven if
at least one test that names it passed and none that names it failed; a skipped test or an expected
failure proves nothing. A row that is in no table stops the run at collection. A row that is proven
but still listed as deferred or not done fails the run.

A row with several demands can be proven demand by demand: `spec("DMPR-3.1.7.1.10-3/the copy in the
journal")` names the clause after a slash, and the report lists the clauses of the row.

Under xdist the workers only attach the names to their reports; the controller counts.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

import spec_rows

PROPERTY = "spec"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--spec-results", metavar="FILE", help="write the proven rows of conformance/*.csv to FILE")
    parser.addini("spec_tables", "the folder of the requirement tables", default="conformance")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "spec(id, ...): the rows of conformance/*.csv that this test proves")
    folder = config.rootpath / config.getini("spec_tables")
    try:
        rows = spec_rows.load_rows(folder)
        listed = {
            **dict.fromkeys(spec_rows.load_deferred(rows, folder), spec_rows.DEFERRED),
            **dict.fromkeys(spec_rows.load_not_done(rows, folder), spec_rows.NOT_DONE),
        }
    except spec_rows.TableError as error:
        raise pytest.UsageError(str(error)) from error
    config.pluginmanager.register(SpecCoverage(config, rows, listed), "spec-coverage")


class SpecCoverage:
    """Collects the outcome of every test that names a row."""

    def __init__(self, config: pytest.Config, rows: dict[str, spec_rows.Row], listed: dict[str, str]) -> None:
        """Prepare; `listed` are the rows that no test may prove, and the files that list them."""
        self._rows = rows
        self._listed = listed
        self._passed: defaultdict[str, set[str]] = defaultdict(set)
        self._failed: set[str] = set()
        # The clauses of each row, with the tests of each clause.
        self._clauses: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._counts = not hasattr(config, "workerinput")

    # Reported as a collection error, because xdist passes those on to its controller. Deselected
    # tests are checked too.
    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        mistakes = [
            text for node in report.result or () if isinstance(node, pytest.Item) for text in self._attach(node)
        ]
        if mistakes:
            report.outcome = "failed"
            report.longrepr = "\n".join(mistakes)
            report.result = []
        return report

    def _attach(self, item: pytest.Item) -> list[str]:
        """Attach the rows that a test names to its reports; return the mistakes in them."""
        mistakes: list[str] = []
        for marker in item.iter_markers("spec"):
            if not marker.args or marker.kwargs:
                mistakes.append(f"{item.nodeid}: spec() takes one or more row ids")
            for name in marker.args:
                row_id, slash, clause = name.partition("/")
                if slash and not clause.strip():
                    mistakes.append(f"{item.nodeid}: {name!r} names no clause after the slash")
                elif row_id in self._rows:
                    item.user_properties.append((PROPERTY, name))
                else:
                    mistakes.append(f"{item.nodeid}: no row {row_id!r} in the requirement tables")
        return mistakes

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name != PROPERTY:
                continue
            row_id, _, clause = str(value).partition("/")
            if report.failed:
                self._failed.add(row_id)
            elif report.when == "call" and report.passed and not hasattr(report, "wasxfail"):
                self._passed[row_id].add(report.nodeid)
                if clause:
                    self._clauses[row_id][clause].add(report.nodeid)

    def proven(self) -> dict[str, list[str]]:
        """Return the proven rows in table order, with the tests that prove each."""
        return {
            row_id: sorted(self._passed[row_id])
            for row_id in self._rows
            if row_id in self._passed and row_id not in self._failed
        }

    def results(self) -> dict[str, list[str]]:
        """Return the proven rows for the report, each followed by its clauses as "row/clause"."""
        results: dict[str, list[str]] = {}
        for row_id, tests in self.proven().items():
            results[row_id] = tests
            for clause, of_clause in sorted(self._clauses[row_id].items()):
                results[f"{row_id}/{clause}"] = sorted(of_clause)
        return results

    def _conflicts(self) -> list[str]:
        return [row_id for row_id in self.proven() if row_id in self._listed]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self._counts:
            return
        path = session.config.getoption("--spec-results")
        if path:
            Path(path).write_text(json.dumps(self.results(), indent=1) + "\n", encoding="utf-8")
        if self._conflicts() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for row_id in self._conflicts():
            terminalreporter.write_line(
                f"ERROR {self._listed[row_id]}: {row_id} stands there, and {self.proven()[row_id][0]} proves it",
                red=True,
            )
