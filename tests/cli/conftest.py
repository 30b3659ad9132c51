"""The command, run in this process on a data directory of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lanner.cli.app import app
from lanner.security.keys import QueueManagerKeys


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
    keys = QueueManagerKeys.generate()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QueueManagerKeys, "generate", lambda: keys)
        yield
