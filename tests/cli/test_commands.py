"""The root of the command, whose commands are imported when they are used."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import typer

from lanner.cli.app import COMMANDS, app


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    root: Any = typer.main.get_command(app)
    command = root.get_command(None, name)
    assert command.name == name
    assert " ".join(command.help.split()).startswith(COMMANDS[name][1])


def test_help_imports_no_queue_manager() -> None:
    """`lanner --help` would take several times as long."""
    code = (
        "import sys\nfrom lanner.cli import main\nsys.argv = ['lanner', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sorted(one for one in sys.modules if one.startswith('lanner.')), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "deadletter" in ran.stdout
    loaded = set(ran.stderr.split())
    assert "lanner.cli.app" in loaded
    assert not {
        one for one in loaded if one.startswith(("lanner.engine", "lanner.client", "lanner.store", "lanner.rpc"))
    }


def test_a_command_that_is_none_is_refused() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "from lanner.cli import main; main()", "queues"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, "No such command" in ran.stderr) == (2, True)
