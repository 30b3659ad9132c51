"""The packages of the pipeline: their order, and docstrings that list every module."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import lanner.spark

FOLDER = Path(lanner.spark.__file__).parent
# A package, or the module `report`, imports only from itself and from those before it.
ORDER = ["columnar", "flight", "source", "report", "jobs"]


def imported(path: Path) -> Iterator[str]:
    """Yield the part of the pipeline that each import of a file names."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (found[1] for name in names if (found := re.match(r"lanner\.spark\.(\w+)", name)))


def test_each_package_imports_only_from_those_before_it() -> None:
    wrong = [
        f"{path.relative_to(FOLDER)} imports {name}"
        for path in sorted(FOLDER.rglob("*.py"))
        if (own := path.relative_to(FOLDER).parts[0].removesuffix(".py")) != "__init__"
        for name in imported(path)
        if ORDER.index(name) > ORDER.index(own)
    ]
    assert wrong == []


@pytest.mark.parametrize("package", [FOLDER, *(path.parent for path in sorted(FOLDER.glob("*/__init__.py")))])
def test_the_docstring_of_a_package_lists_its_modules(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    listed = re.findall(r"^ {4}(\w+) +\S", docstring, re.MULTILINE)
    modules = {path.stem for path in package.glob("*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    assert sorted(listed) == sorted(modules - {"__init__"})
