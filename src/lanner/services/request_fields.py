"""The fields of a request's document, as values with the type that a handler needs.

Requests of a session (`lanner_session`) and requests for documents (`documents` and the modules
that it uses) are objects in JSON that a client has written. Each function here takes one field or
one value and returns it checked, or raises InvalidParameter with the name of the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, TypeVar, cast

from lanner.model.errors import InvalidHandle, InvalidParameter
from lanner.services.sent_batches import NAME_SIZE
from lanner.wire.format_name import FormatName, parse

T = TypeVar("T")
Request: TypeAlias = Mapping[str, Any]

# The maximum of a number that a client chooses, as in the stream. With longer ones it could choose
# many that have the same hash, and each lookup of one of them would go through all of them.
_MAX_NUMBER: Final = 0xFFFF_FFFF_FFFF_FFFF


def text_of(request: Request, key: str) -> str:
    value = request.get(key)
    if not isinstance(value, str):
        raise InvalidParameter(f"a request needs the text `{key}`")
    return value


def texts_of(request: Request, key: str) -> list[str]:
    value = request.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidParameter(f"a request needs the list of texts `{key}`")
    return value


def list_of(request: Request, key: str, longest: int) -> list[Any]:
    """Return a list of at most `longest` values of any type."""
    value = request.get(key)
    if not isinstance(value, list):
        raise InvalidParameter(f"a request needs the list `{key}`")
    if len(value) > longest:
        raise InvalidParameter(f"{len(value)} `{key}` in one request, at most {longest}")
    return value


def number_of(request: Request, key: str) -> int:
    value = request.get(key)
    if not is_number(value):
        raise InvalidParameter(f"a request needs the number `{key}`, of at most 64 bits")
    return cast("int", value)


def is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MAX_NUMBER


def queue_name_of(request: Request) -> FormatName:
    """Return the name of the queue that the request is about."""
    return parse(text_of(request, "name"))


def access_of(value: object) -> Mapping[str, list[str]] | str:
    """Return the access list of a new queue: SDDL, or lists of rights by account."""
    if isinstance(value, dict):
        lists = value.values()
        if all(isinstance(rights, list) and all(isinstance(one, str) for one in rights) for rights in lists):
            return value
    elif isinstance(value, str):
        return value
    raise InvalidParameter("`access` of a new queue: SDDL, or an object with a list of rights for each account")


def client_name_of(value: object) -> bytes:
    """Return the name that a client has given itself."""
    try:
        name = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        name = b""
    if len(name) != NAME_SIZE:
        raise InvalidParameter(f"`client` {value!r}: {NAME_SIZE} octets in hexadecimal expected")
    return name


def read_number_of(value: object) -> int:
    """Return the number that a client has chosen for a read."""
    if not is_number(value):
        raise InvalidParameter(f"read {value!r}: a number expected, of at most 64 bits")
    return cast("int", value)


def lookup_id_of(value: object) -> int:
    if type(value) is not int:
        raise InvalidParameter(f"lookup id {value!r}: a number expected")
    return value


def new_number_of(table: Mapping[int, object], request: Request, key: str) -> int:
    """Return the number that the client has chosen for an object that it opens."""
    chosen = number_of(request, key)
    if chosen in table:
        raise InvalidParameter(f"{key} {chosen} is in use")
    return chosen


def find_open(table: Mapping[int, T], chosen: object, what: str) -> T:
    """Return the object that a client refers to by number; raise InvalidHandle if there is none."""
    found = table.get(chosen) if type(chosen) is int else None
    if found is None:
        raise InvalidHandle(f"there is no {what} {chosen!r} on this connection: it was closed, or has ended")
    return found
