"""Pytest plugin: `--allowed-skips FILE` fails a run that skips a test for an unlisted reason.

Each line of FILE is a reason as the test gives it, with the wildcards of fnmatch; `#` begins a
comment. An expected failure does not count as a skip.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

_PREFIX = "Skipped: "


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--allowed-skips", metavar="FILE", type=Path, help="fail if a test is skipped for a reason that is not in FILE"
    )


def pytest_configure(config: pytest.Config) -> None:
    path: Path | None = config.getoption("--allowed-skips")
    if path is None or hasattr(config, "workerinput"):
        return
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise pytest.UsageError(f"--allowed-skips: {error}") from error
    reasons = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    config.pluginmanager.register(AllowedSkips(path, reasons), "allowed-skips")


class AllowedSkips:
    """Collects tests skipped for unlisted reasons; under xdist the controller receives them all."""

    def __init__(self, path: Path, reasons: list[str]) -> None:
        self._path = path
        self._reasons = reasons
        self._others: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._judge(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Check a whole module, which `importorskip` skips at its top."""
        if report.skipped:
            self._judge(report)

    def _judge(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        reason = " ".join(reason.removeprefix(_PREFIX).split())
        if not any(fnmatchcase(reason, allowed) for allowed in self._reasons):
            self._others.append(f"{report.nodeid}: {reason}")

    # First, because the terminal's own hook prints the summary after this one.
    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._others and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._others:
            terminalreporter.section(f"skipped for reasons that {self._path} does not allow", red=True)
            for line in sorted(set(self._others)):
                terminalreporter.line(line)
