"""Lanner on a Debian with only python3, python3-venv and make: no compiler, git or extra.

The tests run in their order: the first installs what the others use.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import lanner
from tests.client.peers import free_address
from tests.machines.roots import CHECKOUT, HOME, Machine, make_machine
from tests.test_docs import RUNNABLE, blocks

pytestmark = pytest.mark.machine

PROJECT = f"{HOME}/lanner"
LANNER = f"{PROJECT}/.venv/bin/lanner"
ENVIRONMENT = {"PATH": f"{PROJECT}/.venv/bin:/usr/bin:/bin"}
MEBIBYTE = 1024 * 1024
WHEEL = f"lanner-{lanner.__version__}-py3-none-any.whl"
PATIENCE = 600.0  # seconds; the packages are downloaded

# Imports every module; says of those that cannot be imported which package is missing.
IMPORT_ALL = """
import importlib, json, pkgutil
import lanner
missing = {}
for module in pkgutil.walk_packages(lanner.__path__, "lanner.", onerror=lambda name: None):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        missing[module.name] = error.name
    except Exception as error:
        missing[module.name] = str(error)
print(json.dumps(missing))
"""
# Runs each command without arguments but its name; those that need none but --data get an empty
# directory.
EVERY_HELP = """
import subprocess, sys, typer.main
from lanner.cli.app import app

def commands(group, path):
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "list_commands"):
            yield from commands(command, [*path, name])
        else:
            yield [*path, name]

count = 0
for path in commands(typer.main.get_command(app), []):
    for arguments in ([*path, "--help"], path if path != ["serve"] else ["--version"]):
        result = subprocess.run(["lanner", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        bad = "ModuleNotFoundError" in result.stderr or "Traceback" in result.stderr
        assert not bad and (result.returncode == 0 or "--help" not in arguments), (arguments, result.stderr)
    count += 1
print(count)
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        made = make_machine(Path(name))
        made.add_checkout()
        yield made


def wait_for(text: str, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while text not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


def test_make_run_installs_wheels_only_and_starts(machine: Machine, tmp_path: Path) -> None:
    assert machine.run("command -v gcc cc git || true").strip() == ""
    log = tmp_path / "log"
    # In the network of this machine, because it downloads; so its address must be one that no other
    # service here has.
    run = f"make run BIND={free_address()}"
    with machine.running(run, log, directory=PROJECT, network=True) as process:
        wait_for("What to try next", log)
        assert process.poll() is None
        for command in ("queue create orders", "send orders hello", "receive orders"):
            out = machine.run(f"{LANNER} {command} --data data", directory=PROJECT, network=True)
        assert "hello" in out
    size = sum(file.lstat().st_size for file in machine.path(f"{PROJECT}/.venv").rglob("*") if not file.is_dir())
    assert size < 150 * MEBIBYTE, f"the environment has {size / MEBIBYTE:.0f} MiB"


def test_the_tour_of_the_readme_works(machine: Machine, tmp_path: Path) -> None:
    tour = f"{HOME}/tour"
    machine.run(["mkdir", tour])
    # One shell for all of them, because what one block starts the next one uses.
    script = ["set -euo pipefail"]
    for block in blocks(CHECKOUT / "README.md"):
        if block.language in RUNNABLE and not block.is_excluded:
            file = f"{tour}/block{block.line}.{'py' if block.language == 'python' else 'sh'}"
            text = block.command[-1]
            machine.path(file).write_text(text + "\n")
            script.append(f"python3 {file}" if block.language == "python" else f". {file}")
    assert len(script) > 4
    out = machine.run(["bash", "-c", "\n".join(script)], directory=tour, environment=ENVIRONMENT)
    assert "hello BETA" in out
    assert "from afar" in out


def test_no_command_ends_in_a_missing_module(machine: Machine) -> None:
    """A module that needs an extra may be imported only by a command that names the extra."""
    missing = json.loads(machine.run(["python3", "-c", IMPORT_ALL], environment=ENVIRONMENT).splitlines()[-1])
    extras = {"gssapi", "krb5", "numpy", "opentelemetry", "pandas", "pyarrow", "pyspark"}
    assert set(missing.values()) <= extras, missing
    directory = f"{HOME}/commands"
    machine.run(["mkdir", directory])
    out = machine.run(["python3", "-c", EVERY_HELP], directory=directory, environment=ENVIRONMENT)
    assert int(out.splitlines()[-1]) > 40


def test_pip_installs_the_wheel_and_lanner_serve_works(machine: Machine, tmp_path: Path) -> None:
    machine.run("make wheel", directory=PROJECT)
    other = f"{HOME}/other"
    install = f"python3 -m venv {other} && {other}/bin/pip install --quiet --only-binary :all: {PROJECT}/dist/{WHEEL}"
    machine.run(install, network=True)
    served = f"""
        mkdir {HOME}/served && cd {HOME}/served
        PATH={other}/bin:$PATH
        lanner serve > log 2>&1 & service=$!
        until lanner status > status.log 2>&1; do kill -0 $service || {{ cat log; exit 1; }}; sleep 0.2; done
        lanner queue create orders && lanner send orders hello && lanner receive orders
        kill $service && wait $service
        lanner --version
    """
    out = machine.run(served)
    assert "hello" in out
    assert out.splitlines()[-1] == f"lanner {lanner.__version__}"


def test_make_test_names_the_packages_that_it_needs(machine: Machine) -> None:
    """This machine has no compiler, no headers of Kerberos, no git and no Java."""
    out = machine.run("make test", directory=PROJECT, code=2)
    named = out.partition("Debian packages are missing: ")[2].partition(". ")[0].split()
    assert {"git", "gcc", "python3-dev", "libkrb5-dev", "default-jre-headless"} <= set(named), out
    assert f'sudo apt-get install {" ".join(named)}"' in out
