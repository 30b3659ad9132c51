"""The contents of the wheel, and the features of an installation of the core alone."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.specifiers import SpecifierSet

import lanner
from lanner.cli.errors import describe

ROOT = Path(__file__).resolve().parent.parent


def wheel_files() -> set[str]:
    """List the files that a build would put into the wheel, by their paths in it."""
    builder = WheelBuilder(str(ROOT))
    return {file.distribution_path for file in builder.recurse_included_files()}


def test_the_wheel_holds_the_product_and_the_plugin_of_spark() -> None:
    files = wheel_files()
    assert {path.partition("/")[0] for path in files} == {"lanner", "pyspark_msmq"}
    assert {"lanner/spark/source/data_source.py", "pyspark_msmq/__init__.py"} <= files


def test_the_wheel_holds_neither_the_demo_nor_its_generator() -> None:
    names = {Path(path).stem for path in wheel_files()}
    demo = {path.stem for path in (ROOT / "demo").glob("*.py")} - {"__init__", "__main__"}
    assert {"business", "generator", "generated_queues"} <= demo
    assert not names & (demo | {"demo"})


def test_the_locked_packages_run_on_the_python_of_debian() -> None:
    """README.md: Debian 12. A package that needs a later Python cannot be installed there."""
    found = {one.name: one.metadata.json.get("requires_python") for one in distributions()}
    assert len(found) > 50
    refusing = {name: needed for name, needed in found.items() if needed and "3.11.2" not in SpecifierSet(str(needed))}
    assert refusing == {}


# The core install
# --------------------------------------------------------------------------------------------------

# Import names of the packages that only extras bring.
EXTRAS = ("gssapi", "krb5", "numpy", "pandas", "pyarrow", "pyspark")
# Runs the command as if the extras were not installed.
WITHOUT_EXTRAS = f"""
import sys


class Filtered:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {EXTRAS} else self.finder.find_spec(name, path, target)


sys.meta_path[:] = map(Filtered, sys.meta_path)
from lanner.cli import main

main()
"""


def run_without_extras(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_EXTRAS, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def pins(lock: str) -> dict[str, str]:
    """Read the version of each package in a lock file."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE))


def test_the_core_lock_pins_every_dependency_of_the_core_as_the_full_lock_does() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=\[]", each)[0] for each in project["dependencies"]}
    core = pins("requirements-core.lock")
    assert needed <= core.keys()
    assert core.items() <= pins("requirements.lock").items()
    assert not {"krb5", "gssapi", "pyspark", "pyarrow", "numpy", "pytest"} & core.keys()


def test_a_queue_manager_serves_without_any_extra(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    address = "127.0.0.183"
    serve = [sys.executable, "-c", WITHOUT_EXTRAS, "serve", "--data", data, "--bind", address]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(serve, stdout=log, stderr=log) as daemon:
        try:
            deadline = time.monotonic() + 60
            while run_without_extras("status", "--data", data).returncode:
                assert daemon.poll() is None
                assert time.monotonic() < deadline
            for arguments in (["queue", "create", "orders"], ["send", "orders", "hello"], ["receive", "orders"]):
                result = run_without_extras(*arguments, "--data", data)
                assert result.returncode == 0, result.stderr
            assert "hello" in result.stdout
        finally:
            daemon.terminate()


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["export", "orders", "orders.packets", "--data", "data"], "lanner[spark]"),
        (["import", "orders.packets", "orders", "--data", "data"], "lanner[spark]"),
        (["pipeline", "run", "throughput"], "lanner[spark]"),
    ],
)
def test_a_command_that_needs_an_extra_names_it(
    arguments: list[str], extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_without_extras("queue", "create", "orders", "--data", "data")
    (tmp_path / "orders.packets").touch()
    result = run_without_extras(*arguments)
    assert result.returncode == 1
    assert extra in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("package", EXTRAS)
def test_a_missing_package_of_an_extra_is_reported_with_the_extra(package: str) -> None:
    text, hint = describe(ModuleNotFoundError(f"No module named '{package}.x'", name=f"{package}.x"))
    assert package in text
    assert hint is not None
    assert re.search(r"pip install 'lanner\[(kerberos|spark)\]'", hint)


def test_a_missing_package_of_the_core_is_reported_with_the_way_to_mend_it() -> None:
    text, hint = describe(ModuleNotFoundError("No module named 'lmdb'", name="lmdb"))
    assert "lmdb" in text
    assert hint == "install it with `pip install --force-reinstall lanner`"


def test_the_version_is_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/lanner/__init__.py"
    assert re.fullmatch(r"\d+\.\d+\.\d+", lanner.__version__)
    named = set(re.findall(r"lanner-(\d[\w.]*)-py3", (ROOT / "README.md").read_text()))
    assert named == {lanner.__version__}


def test_kerberos_without_its_packages_names_the_extra() -> None:
    program = WITHOUT_EXTRAS.rpartition("from lanner.cli")[0] + (
        "import lanner\n"
        "try:\n"
        "    lanner.connect('127.0.0.1', 'alice', 'secret', authentication='kerberos')\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "lanner[kerberos]" in result.stdout, result


def test_help_of_every_command_needs_no_extra() -> None:
    assert run_without_extras("--help").returncode == 0
    assert run_without_extras("pipeline", "--help").returncode == 0
