"""The contract is complete.

Every public member and every documented error has a test, in blocking and async form alike.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

import lanner
import lanner.aio
from tests.contract.covering import CLASSES, WANTED, covers, documented_errors, public_members
from tests.contract.forms import TWINS

HERE = Path(__file__).parent

# Members that are the same for every form, because they never reach a queue manager.
OF_NO_FORM = ("Message.", "ReceivedMessage.", "connect")


def covering_tests() -> Iterator[tuple[str, set[str], str]]:
    """Yield what is covered, the arguments of the test, and where it is."""
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or not node.name.startswith("test_"):
                continue
            arguments = {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "covers":
                    for name in decorator.args:
                        yield ast.literal_eval(name), arguments, f"{path.name}::{node.name}"


def test_every_member_and_every_documented_error_has_a_test() -> None:
    covered = {name for name, _, _ in covering_tests()}
    assert sorted(WANTED - covered) == []


def test_every_member_is_covered_in_every_form() -> None:
    """By a test that takes the queue manager of a form."""
    in_forms = {name for name, arguments, _ in covering_tests() if arguments & {"qm", "place", "form"}}
    wanted = {name for name in WANTED if not name.startswith(OF_NO_FORM)}
    assert sorted(wanted - in_forms) == []


def test_a_test_uses_what_it_covers() -> None:
    """The text of the test contains the name of the member and that of the error.

    `unit` stands for `transaction=`.
    """
    unused = []
    for name, _, where in covering_tests():
        file, _, test = where.partition("::")
        (node,) = (one for one in ast.parse((HERE / file).read_text(encoding="utf-8")).body if defines(one, test))
        words = set(re.findall(r"\w+", "\n".join(ast.unparse(line) for line in node.body)))
        of, _, error = name.partition(": ")
        kind, _, member = of.rpartition(".")
        wanted = {error} - {""} | ({member} - {"unit"} if kind else set())
        unused += [f"{where}: {name}" for word in wanted if word not in words]
    assert unused == []


def defines(node: ast.stmt, name: str) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name


def test_every_error_of_the_guide_is_in_the_contract() -> None:
    guide = (HERE.parents[1] / "docs" / "user-guide.md").read_text(encoding="utf-8")
    rows = guide.partition("| Error | When |\n|---|---|\n")[2].partition("\n\n")[0].splitlines()
    documented = {error for row in rows for error in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert {"QueueNotFound", "ReceiveInDoubt"} <= documented
    tested = {
        node.attr
        for path in HERE.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("errors")
    }
    assert sorted(documented - tested) == []


def test_a_name_that_is_no_member_cannot_be_covered() -> None:
    for name in ("Queue.nonsense", "Queue.send: IOTimeout", "Nothing.send"):
        with pytest.raises(NameError, match="no such public member"):
            covers(name)


# The two colours
# --------------------------------------------------------------------------------------------------


PAIRS = [
    pytest.param(kind, twin, id=kind.__name__) for kind, twin in [*TWINS.items(), (lanner.Sender, lanner.aio.Sender)]
]


@pytest.mark.parametrize(("kind", "twin"), PAIRS)
def test_both_colours_have_the_same_members(kind: type, twin: type) -> None:
    assert public_members(kind) == public_members(twin)


@pytest.mark.parametrize(("kind", "twin"), PAIRS)
def test_both_colours_have_the_same_parameters(kind: type, twin: type) -> None:
    for name in sorted(public_members(kind) | {"__init__"}):
        ours, theirs = inspect.getattr_static(kind, name, None), inspect.getattr_static(twin, name, None)
        assert type(ours) is type(theirs), name
        if callable(ours) and callable(theirs):
            assert parameters(ours) == parameters(theirs), name
            assert documented_errors(ours) == documented_errors(theirs), name


def test_both_colours_of_connect_have_the_same_parameters() -> None:
    assert parameters(lanner.connect) == parameters(lanner.aio.connect)


def parameters(of: Callable[..., object]) -> list[tuple[str, object, object]]:
    return [(one.name, one.kind, one.default) for one in inspect.signature(of).parameters.values()]


# Properties
# --------------------------------------------------------------------------------------------------


def properties() -> Iterator[tuple[str, property]]:
    for name, kind in CLASSES.items():
        for member in public_members(kind):
            found = inspect.getattr_static(kind, member, None)
            if isinstance(found, property):
                yield f"{name}.{member}", found


def test_no_property_waits() -> None:
    """A property of the async classes is no coroutine, so it cannot await a backend.

    The blocking classes are generated from the async ones.
    """
    for name, found in properties():
        assert found.fget is not None
        assert not inspect.iscoroutinefunction(found.fget), name
        assert not inspect.isasyncgenfunction(found.fget), name


def test_the_blocking_classes_have_no_other_properties() -> None:
    for kind, twin in TWINS.items():
        for member in public_members(kind):
            is_property = isinstance(inspect.getattr_static(twin, member, None), property)
            assert isinstance(inspect.getattr_static(kind, member, None), property) is is_property, member


def test_every_field_of_a_message_has_a_default() -> None:
    """A message is made by naming what is to be other than usual."""
    for field in dataclasses.fields(lanner.Message):
        assert field.kw_only, field.name
        assert field.default is not dataclasses.MISSING, field.name
