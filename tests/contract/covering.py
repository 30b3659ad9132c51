"""Which members of the public classes a test covers, and with which of their documented errors."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import TypeVar

import lanner
import lanner.aio
from lanner.client._async.enterprise import Enterprise
from lanner.model import errors

F = TypeVar("F", bound=Callable[..., object])

# The public classes in async form; those without one are the same for both.
CLASSES: dict[str, type] = {
    "QueueManager": lanner.aio.QueueManager,
    "Queue": lanner.aio.Queue,
    "Cursor": lanner.aio.Cursor,
    "Transaction": lanner.aio.Transaction,
    "DistributedTransaction": lanner.aio.DistributedTransaction,
    "Enterprise": Enterprise,
    "Message": lanner.Message,
    "ReceivedMessage": lanner.ReceivedMessage,
    "Sender": lanner.aio.Sender,
}
_ERROR = re.compile(r"\b[A-Z][A-Za-z]+\b")
_ATTRIBUTE = re.compile(r"\bself\.([a-z]\w*)(?:: .*)? = ")
# Base classes, which a docstring names to say what kind of error is meant.
_KINDS = {"StatusError", "LannerError", "InDoubt", "ProtocolError"}


def public_members(kind: type) -> set[str]:
    """Return the names of a class that have no leading underscore.

    Attributes that are set when an instance is created are members too.
    """
    names = {name for name in dir(kind) if not name.startswith("_")}
    if dataclasses.is_dataclass(kind):
        return names | {field.name for field in dataclasses.fields(kind)}
    return names | set(_ATTRIBUTE.findall(inspect.getsource(kind.__init__)))  # type: ignore[misc] # of the class, not of an object


def documented_errors(of: object) -> set[str]:
    """Return the errors that a docstring names."""
    words = set(_ERROR.findall(inspect.getdoc(of) or ""))
    return {word for word in words if word in errors.__all__} - _KINDS


def _wanted() -> set[str]:
    found = {"connect", *(f"connect: {error}" for error in documented_errors(lanner.aio.connect)), "distributed"}
    for name, kind in CLASSES.items():
        found |= {f"{name}: {error}" for error in documented_errors(kind)}
        for member in public_members(kind):
            found.add(f"{name}.{member}")
            found |= {
                f"{name}.{member}: {error}" for error in documented_errors(inspect.getattr_static(kind, member, None))
            }
    return found


# "Queue.send" for every member, and "Queue.receive: IOTimeout" for every error that its docstring
# names.
WANTED = _wanted()


def covers(*names: str) -> Callable[[F], F]:
    """Declare what a test covers. A name that does not exist is an error."""
    unknown = sorted(set(names) - WANTED)
    if unknown:
        raise NameError(f"{', '.join(unknown)}: no such public member, or its docstring names no such error")
    return lambda test: test
