"""Selection between the functions of lanner._native and their references in Python.

`lanner._native` is a small extension in C (native/lanner_native.c) for the loops that run once per
message, and for the signatures of RPC. It is optional: a wheel that was built without a compiler
does not contain it. Each of its functions has a reference in the module that uses it, with the same
name and a leading underscore; the reference of a class has its name. Both return the same bytes,
and the same tests run both (tests/test_native.py). If LANNER_NO_NATIVE=1 is in the environment when
the process starts, the references are used.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import ParamSpec, TypeVar, cast

__all__ = ["chosen", "description", "is_native"]

P = ParamSpec("P")
R = TypeVar("R")


def _load() -> ModuleType | None:
    if os.environ.get("LANNER_NO_NATIVE"):
        return None
    try:
        # Not an import statement, which would make the type checker see one cycle of all packages.
        return importlib.import_module("lanner._native")
    except ImportError:
        return None


_MODULE = _load()
is_native = _MODULE is not None


def chosen(reference: Callable[P, R]) -> Callable[P, R]:
    """Return the compiled function for a reference, or the reference if there is none.

    An extension that was built from older source, in a checkout that was updated since, lacks new
    functions.
    """
    return cast("Callable[P, R]", getattr(_MODULE, reference.__name__.removeprefix("_"), reference))


def description() -> str:
    """Return which functions are in use, for `lanner doctor`."""
    if _MODULE is not None:
        return f"compiled functions are used ({_MODULE.__file__})"
    if os.environ.get("LANNER_NO_NATIVE"):
        return "the functions in Python are used, because LANNER_NO_NATIVE is set"
    return "the functions in Python are used, because lanner._native was not built with this installation"
