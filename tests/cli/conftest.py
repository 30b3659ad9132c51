"""The command, run in this process on a temporary data directory, and `lanner serve` beside it."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lanner.cli.app import app
from lanner.security.keys import QueueManagerKeys
from lanner.security.profile import Profile


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str
    raw: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 (JSON)
        """The only document of the output."""
        (document,) = self.lines
        return document

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ran]
LANNER = Path(sys.executable).with_name("lanner")
_numbers = itertools.count()


def free_address() -> str:
    """Return an unused loopback address, on which port 1801 is free."""
    process, number = os.getpid(), next(_numbers)
    return f"127.{100 + process // 250 % 100}.{process % 250}.{1 + number % 250}"


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """Name a directory that is not there yet; a store takes 32 MiB, so nothing stays of it."""
    yield tmp_path / "data"
    shutil.rmtree(tmp_path)


@pytest.fixture
def run(data: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line; the exit code must be the expected one."""
    monkeypatch.setenv("LANNER_DATA", str(data))
    # Wide enough that no text of the framework is wrapped.
    monkeypatch.setenv("TERMINAL_WIDTH", "500")
    monkeypatch.setenv("COLUMNS", "500")

    def run_it(*arguments: object, stdin: str | bytes = b"", code: int = 0) -> Ran:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
        assert result.exit_code == code, (result.exit_code, result.output, result.exception)
        return Ran(result.exit_code, result.stdout, result.stderr, result.stdout_bytes)

    return run_it


@pytest.fixture
def orders(run: Run) -> str:
    """Make a plain queue."""
    run("queue", "create", "orders", "--name", "alpha")
    return "orders"


@pytest.fixture(scope="session", autouse=True)
def _one_set_of_keys() -> Iterator[None]:
    """Make the RSA keys of queue managers once: a hundred of them are born here."""
    keys = {profile: QueueManagerKeys.generate(profile) for profile in Profile}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QueueManagerKeys, "generate", lambda profile=Profile.SAFE: keys[profile])
        yield


class Served:
    """A `lanner serve` that has said it is ready."""

    def __init__(self, *arguments: object) -> None:
        environment = {**os.environ, "PYTHONWARNINGS": "error", "NO_COLOR": "1"}
        self.process = subprocess.Popen(
            [LANNER, "serve", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.out, self.err = self.process.stdout, self.process.stderr

    def ready(self) -> dict[str, Any]:
        line = self.out.readline()
        assert line, self.err.read()
        document: dict[str, Any] = json.loads(line)
        return document

    def line_with(self, text: str) -> str:
        """Wait for a line of the log."""
        for line in self.err:
            if text in line:
                return line
        raise AssertionError(f"{text!r} never came")

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """The exit code, and the rest of the log."""
        self.process.send_signal(number)
        _, rest = self.process.communicate(timeout=30)
        return self.process.returncode, rest


@pytest.fixture
def serve(data: Path) -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def start(*arguments: object) -> Served:
        where = () if "--bind" in arguments else ("--bind", free_address())
        served = Served("--data", data, *where, *arguments)
        started.append(served)
        return served

    yield start
    for served in started:
        if served.process.poll() is None:
            served.process.kill()
        served.process.communicate()
