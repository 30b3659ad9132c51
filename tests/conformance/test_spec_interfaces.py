"""Which functions only tests call, and which tests call them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import spec_interfaces
import spec_rows
from tests.vulture_whitelist import CALLED_FROM_OUTSIDE

ROOT = Path(__file__).resolve().parent.parent.parent

SOURCE = """
def shipped(): ...
def unused(): ...
def registered(): ...
class Peer:
    def speak(self): ...
    @property
    def state(self): ...
shipped(), Peer()
"""


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_functions_that_nothing_calls_are_not_shipped(tmp_path: Path) -> None:
    """The whitelist names the exceptions; properties are read, not called."""
    write(tmp_path, wire__a=SOURCE)
    whitelist = [{"wire/*.py": ["function registered"]}]
    assert spec_interfaces.unshipped(tmp_path, whitelist) == {"unused": "wire/a.py", "speak": "wire/a.py"}
    assert "registered" in spec_interfaces.unshipped(tmp_path, [])


@pytest.mark.parametrize(
    ("test", "calls"),
    [
        ("test_plain", False),
        ("test_direct", True),
        ("test_method", True),
        ("test_helper", True),
        ("test_imported", True),
        ("test_fixture", True),
        ("test_fixture_of_conftest", True),
        ("test_made", True),
        ("TestClass::test_inherited", True),
        ("test_other_helper", False),
    ],
)
def test_what_a_test_calls_is_found_through_what_it_names(tmp_path: Path, test: str, calls: bool) -> None:
    write(
        tmp_path,
        tests__test_a="""
from tests.helpers import Base, Maker, far
def helper(): unused()
def other(): shipped()
@pytest.fixture
def near(): return helper()
def test_plain(): shipped()
def test_direct(): a.unused()
def test_method(peer): peer.speak()
def test_helper(): helper()
def test_imported(): far()
def test_fixture(near): ...
def test_fixture_of_conftest(above): ...
def test_made(): Maker()
def test_other_helper(): other()
class TestClass(Base): ...
""",
        tests__helpers="""
def far(): farther()
def farther(): unused()
class Maker:
    def __init__(self): unused()
    def not_called(self): unused()
class Base:
    def test_inherited(self): unused()
""",
        tests__conftest="def above(): unused()",
    )
    functions = {"unused": "a.py", "speak": "a.py"}
    suite = spec_interfaces.Suite(tmp_path)
    found = spec_interfaces.at_interface({"X-1": [f"tests/test_a.py::{test}[a::b]"]}, suite, tmp_path, functions)
    assert (found != {}) is calls


def test_a_row_with_another_test_is_shipped(tmp_path: Path) -> None:
    write(tmp_path, tests__test_a="def test_a(): unused()\ndef test_b(): shipped()\n")
    suite = spec_interfaces.Suite(tmp_path)
    both = {"X-1": ["tests/test_a.py::test_a", "tests/test_a.py::test_b"], "X-2": ["tests/test_a.py::test_a"]}
    found = spec_interfaces.at_interface(both, suite, tmp_path, {"unused": "a.py"})
    assert found == {"X-2": "a.py: unused"}
    with pytest.raises(LookupError, match="no test_c"):
        suite.names_of(tmp_path / "tests" / "test_a.py", "test_c")


def marked_tests(suite: spec_interfaces.Suite, rows: dict[str, spec_rows.Row]) -> dict[str, list[str]]:
    """The tests whose decorators name a row. `make conformance` knows those that passed."""
    found: dict[str, list[str]] = {}
    for path, module in suite.modules.items():
        for name, nodes in module.definitions.items():
            if name.startswith("test_"):
                decorators = [one for node in nodes for each in node.decorator_list for one in ast.walk(each)]
                named = {
                    one.value for one in decorators if isinstance(one, ast.Constant) and isinstance(one.value, str)
                }
                for row_id in named & rows.keys():
                    found.setdefault(row_id, []).append(f"{path.relative_to(ROOT).as_posix()}::{name}")
    return found


def test_every_row_that_is_proven_at_an_interface_is_listed_by_name() -> None:
    rows = spec_rows.load_rows()
    suite = spec_interfaces.Suite(ROOT)
    functions = spec_interfaces.unshipped(ROOT / "src" / "lanner", CALLED_FROM_OUTSIDE)
    found = spec_interfaces.at_interface(marked_tests(suite, rows), suite, ROOT, functions)
    listed = spec_rows.load_at_interface(rows)
    assert {row_id: found[row_id] for row_id in found.keys() - listed.keys()} == {}
    assert listed.keys() - found.keys() == set(), "their tests call nothing that is not shipped"
