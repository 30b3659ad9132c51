"""Every example of the README and the guides runs.

The blocks of a page run in order in one temporary directory: ```python as a program each,
```console as one shell script of its `$` lines, and of the `>` lines that go on with one. A block
that cannot run here is named in EXCLUDED.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.postgresql import postgresql
from tests.spark.small import SUBMIT_ENVIRONMENT

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUNNABLE = ("python", "console")

# The page whose reader has a PostgreSQL.
WITH_POSTGRESQL = "exactly-once.md"
# Page and first line of a block, and why it is not run.
EXCLUDED = {
    (
        "README.md",
        "$ make run     # a queue manager on 127.0.0.1, its data in ./data",
    ): "does not end, and builds .venv",
    (
        "README.md",
        "$ python3 -m venv lanner && . lanner/bin/activate",
    ): "does not end, and downloads; tests/machines/test_bare.py does it",
    ("operator-guide.md", "$ lanner serve --config lanner.toml"): "does not end; tests/cli/test_serving.py does it",
    (
        "operator-guide.md",
        "$ sudo useradd --system --user-group --no-create-home lanner",
    ): "changes the machine; tests/test_unit.py runs the unit",
    (
        "operator-guide.md",
        "$ sudo lanner serve --user lanner --config /etc/lanner/lanner.toml --data /var/lib/lanner",
    ): "does not end; tests/test_privileges.py does it",
    (
        "exactly-once.md",
        "$ psql -c 'ALTER SYSTEM SET max_prepared_transactions = 20'",
    ): "needs an administrator; tests/postgresql.py has it in its settings",
    (
        "operator-guide.md",
        "$ lanner certificate add alice alice.pem --data data",
    ): "needs a certificate; tests/cli/test_users.py has one",
}


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def is_excluded(self) -> bool:
        return (self.page.name, self.text.partition("\n")[0]) in EXCLUDED

    @property
    def command(self) -> list[str]:
        if self.language == "python":
            return [sys.executable, "-c", self.text]
        lines = self.text.splitlines()
        typed = (line[2:] for line in lines if line.startswith(("$ ", "> ")) or line == ">")
        return ["bash", "-euo", "pipefail", "-c", "\n".join(typed)]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2]) for match in _BLOCK.finditer(text)]


def run(block: Block, directory: Path, environment: dict[str, str], sessions: list[int]) -> tuple[int, str]:
    """Run a block in its own session, in which it may leave a process for the next block."""
    with subprocess.Popen(
        block.command,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        sessions.append(process.pid)
        out, _ = process.communicate(timeout=180)
        return process.returncode, out


# Spark, which some examples start, has its own idea of time on a busy machine.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_example_runs(page: Path, tmp_path: Path) -> None:
    scripts = str(Path(sys.executable).parent)
    environment = os.environ | SUBMIT_ENVIRONMENT
    # An example of docs/pipeline.md imports the package `demo`, which is not installed.
    python_path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    environment |= {
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "PYTHONPATH": python_path,
        "PYTHONWARNINGS": "error",
    }
    environment.pop("LANNER_DATA", None)
    if shutil.which("curl") is None and any("curl " in block.text for block in blocks(page)):
        pytest.skip("the Debian package curl is not installed")
    sessions: list[int] = []
    stack = contextlib.ExitStack()
    if page.name == WITH_POSTGRESQL:
        directory = str(stack.enter_context(postgresql()).directory)
        environment |= {"PGHOST": directory, "PGUSER": "tester", "PGDATABASE": "postgres"}
    try:
        for block in blocks(page):
            if block.language in RUNNABLE and not block.is_excluded:
                code, out = run(block, tmp_path, environment, sessions)
                assert code == 0, f"{block.name}\n{block.text}\n{out}"
    finally:
        for session in sessions:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(session, signal.SIGKILL)
        stack.close()
    shutil.rmtree(tmp_path)


def test_every_exclusion_excludes_a_block() -> None:
    excluded = {(block.page.name, block.text.partition("\n")[0]) for page in PAGES for block in blocks(page)}
    assert set(EXCLUDED) <= excluded


def test_every_command_line_of_a_console_block_has_its_dollar() -> None:
    """A block whose lines are not marked would run nothing and pass."""
    for page in PAGES:
        for block in blocks(page):
            assert block.language != "console" or block.text.startswith("$ "), block.name
