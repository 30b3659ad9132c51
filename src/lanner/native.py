"""The choice between the functions of lanner._native and their references in Python.

`lanner._native` is a small extension in C (native/lanner_native.c) for the loops that run once for
each message. It is optional: a wheel that was built without a compiler does not contain it. Every
function of it has a reference of the same name, with an underscore before it, in the module that
uses it. Both return the same bytes, and the same tests run both (tests/test_native.py).
LANNER_NO_NATIVE=1 in the environment selects the references when the process starts.
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
        # Not an import statement: for the type checker that would make one cycle of all packages.
        return importlib.import_module("lanner._native")
    except ImportError:
        return None


_MODULE = _load()
is_native = _MODULE is not None


def chosen(reference: Callable[P, R]) -> Callable[P, R]:
    """Return the compiled function of a reference if there is one, else the reference.

    A build of an older source, in a checkout that was updated since, lacks the functions that are
    new.
    """
    return cast("Callable[P, R]", getattr(_MODULE, reference.__name__.removeprefix("_"), reference))


def description() -> str:
    """Say which functions are in use, for `lanner doctor`."""
    if _MODULE is not None:
        return f"compiled functions are used ({_MODULE.__file__})"
    if os.environ.get("LANNER_NO_NATIVE"):
        return "the functions in Python are used, because LANNER_NO_NATIVE is set"
    return "the functions in Python are used, because lanner._native was not built with this installation"
