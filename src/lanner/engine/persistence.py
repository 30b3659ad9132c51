"""Attributes of model objects as JSON in the store's tables.

A value that JSON lacks is written with its kind: {"guid": ...}, {"bytes": ...}, {"enum": [type, name]}.
An attribute this version does not know is passed over, so an older store opens with defaults.
"""

from __future__ import annotations

import enum
import json
import uuid
from typing import TYPE_CHECKING, Any

from lanner.model import enums
from lanner.model.directory_objects import attributes_of

if TYPE_CHECKING:
    from lanner.model.directory_objects import DirectoryObject

# Found once per class: a start loads thousands of queues.
_LASTING: dict[type, list[str]] = {}


def dump_attributes(directory_object: DirectoryObject) -> bytes:
    """The persistent and directory attributes of an object, with the name of its class."""
    cls = type(directory_object)
    values = {name: _encode(getattr(directory_object, name)) for name in _lasting(cls)}
    return json.dumps({"class": cls.__name__, "attributes": values}, separators=(",", ":")).encode()


def load_attributes(data: bytes) -> tuple[str, dict[str, Any]]:
    """The class name and the attributes that `dump_attributes` wrote."""
    document = json.loads(data)
    return document["class"], {name: _decode(value) for name, value in document["attributes"].items()}


def apply_attributes(directory_object: DirectoryObject, attributes: dict[str, Any]) -> None:
    """Set what the object's class still has."""
    for name in _lasting(type(directory_object)):
        if name in attributes:
            setattr(directory_object, name, attributes[name])


def _lasting(cls: type) -> list[str]:
    names = _LASTING.get(cls)
    if names is None:
        names = _LASTING[cls] = attributes_of(cls, "persistent", "directory")
    return names


def _encode(value: object) -> object:
    if isinstance(value, enum.Enum):
        return {"enum": [type(value).__name__, value.name]}
    if isinstance(value, uuid.UUID):
        return {"guid": str(value)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, list):
        return [_encode(item) for item in value]
    return value


def _decode(value: Any) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "guid":
        return uuid.UUID(content)
    if kind == "bytes":
        return bytes.fromhex(content)
    type_name, name = content
    return getattr(enums, type_name)[name]
