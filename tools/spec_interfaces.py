"""Detection of rows that are proven only at an interface that the product does not use.

A test proves a row of the shipped product only if the product does what the test does. A function
that no module of src names is called by tests alone. A row whose every test calls such a function
is "proven at an interface, not shipped". Vulture finds the functions. Those that other code calls
(asyncio, a decorator, a library, users) are named in tests/vulture_whitelist.py. Properties do not
count: they show a test the state that shipped code has made.

The calls of a test are read from its source: the names in it, in the fixtures that it takes, and in
the functions of tests/ that it names, transitively. A profiler would see calls as well, but only
those of its own process and thread, and would slow down every test. A name that vulture reports
occurs nowhere else in src, so that name in a test means that function.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Final

from vulture.core import Vulture

_FUNCTIONS: Final = ("function", "method", "class")
# Methods that run implicitly when an object is created or used in a `with` statement.
_IMPLICIT: Final = ("__init__", "__post_init__", "__enter__", "__exit__", "__aenter__", "__aexit__")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def unused_code(package: Path) -> list[tuple[str, str, int]]:
    """Return module, finding ("method get_label") and line of everything that vulture reports."""
    finder = Vulture()
    finder.scavenge([package])
    return [
        (item.filename.relative_to(package).as_posix(), f"{item.typ} {item.name}", item.first_lineno)
        for item in finder.get_unused_code()
    ]


def unshipped(package: Path, called_from_outside: Iterable[Mapping[str, list[str]]]) -> dict[str, str]:
    """Return the functions that only tests can call, by module.

    The patterns are as in the whitelist.
    """
    outside = [(module, name) for group in called_from_outside for module, names in group.items() for name in names]
    return {
        finding.partition(" ")[2]: module
        for module, finding, _ in unused_code(package)
        if finding.startswith(_FUNCTIONS)
        and not any(fnmatchcase(module, each[0]) and fnmatchcase(finding, each[1]) for each in outside)
    }


@dataclass(eq=False)
class TestModule:
    """A test file."""

    path: Path
    tree: ast.Module
    # Other test files that it imports from.
    imported: list[Path] = field(default_factory=list)

    @cached_property
    def definitions(self) -> dict[str, list[Definition]]:
        """Functions, methods and classes at any level, by name."""
        found: dict[str, list[Definition]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, Definition):
                found.setdefault(node.name, []).append(node)
        return found


class Suite:
    """The source of the tests, below the root folder of their imports."""

    def __init__(self, root: Path, folder: str = "tests") -> None:
        self._root = root
        self.modules: dict[Path, TestModule] = {}
        for path in sorted((root / folder).rglob("*.py")):
            self.modules[path] = TestModule(path, ast.parse(path.read_text(encoding="utf-8")))
        for module in self.modules.values():
            module.imported = [path for path in self._imports(module) if path in self.modules]
        self._in_reach: dict[Path, list[TestModule]] = {}

    def _imports(self, module: TestModule) -> Iterator[Path]:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                base = self._root.joinpath(*node.module.split("."))
                yield base.with_suffix(".py")
                yield from ((base / alias.name).with_suffix(".py") for alias in node.names)
        # Fixtures come from the conftest files in the folders above.
        for parent in module.path.parents:
            yield parent / "conftest.py"

    def _reach(self, path: Path) -> list[TestModule]:
        """Return a module and all modules that it imports, transitively."""
        found = self._in_reach.get(path)
        if found is None:
            paths = [path]
            for one in paths:
                paths += [each for each in self.modules[one].imported if each not in paths]
            found = self._in_reach[path] = [self.modules[one] for one in paths]
        return found

    def names_of(self, path: Path, test: str) -> set[str]:
        """Return all names that a test (`test_a` or `TestB::test_a`) may use, transitively."""
        *_, name = test.split("::")
        # A test in a class may be inherited from a base class in another file.
        waiting = [(module, node) for module in self._reach(path) for node in module.definitions.get(name, ())]
        if not waiting:
            raise LookupError(f"there is no {test} in {path}")
        seen = {id(node) for _, node in waiting}
        names: set[str] = set()
        while waiting:
            place, node = waiting.pop()
            new = set(_identifiers(node))
            names |= new
            for identifier in new:
                for other in self._reach(place.path):
                    for found in other.definitions.get(identifier, ()):
                        if id(found) not in seen:
                            seen.add(id(found))
                            waiting.append((other, found))
        return names


def _identifiers(node: Definition) -> Iterator[str]:
    """Yield the names in a function and its parameters, which may be fixtures.

    For a class, only code that runs when an object is created counts: tests that call its methods
    name them.
    """
    parts: Iterable[ast.AST] = [node]
    if isinstance(node, ast.ClassDef):
        parts = [*node.bases, *(one for one in node.body if not isinstance(one, Definition) or one.name in _IMPLICIT)]
    for part in parts:
        for one in ast.walk(part):
            match one:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                    yield name


def tests_of(node_ids: Iterable[str]) -> set[tuple[str, str]]:
    """Return the file and test of node ids, without parameters or duplicates."""
    return {
        (path, test)
        for path, _, test in (re.sub(r"\[.*", "", one, flags=re.DOTALL).partition("::") for one in node_ids)
    }


def at_interface(
    proven: Mapping[str, list[str]], suite: Suite, root: Path, functions: Mapping[str, str]
) -> dict[str, str]:
    """Return the rows whose every test calls one of the functions, with those functions."""
    used: dict[tuple[str, str], list[str]] = {}
    found = {}
    for row_id, node_ids in proven.items():
        calls = []
        for path, test in sorted(tests_of(node_ids)):
            if (path, test) not in used:
                names = suite.names_of(root / path, test)
                used[path, test] = sorted(f"{functions[name]}: {name}" for name in names & functions.keys())
            calls.append(used[path, test])
        if calls and all(calls):
            found[row_id] = ", ".join(dict.fromkeys(name for one in calls for name in one))
    return found
