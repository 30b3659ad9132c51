"""Attributes of queues and of the queue manager as JSON in the store's tables.

A value of a type that JSON lacks is written with its kind: {"guid": ...}, {"bytes": ...}, {"enum":
[type, name]}. Unknown attributes are ignored, and missing ones get their defaults, so stores of
other versions open.
"""

from __future__ import annotations

import enum
import json
import uuid
from typing import TYPE_CHECKING, Any

from lanner.engine.tables import EPOCH, EPOCH_KEY, QUEUE_KEY, QUEUE_MANAGER_KEY, QUEUES, SETTINGS
from lanner.model import enums
from lanner.model.directory_objects import attributes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lanner.model.directory_objects import DirectoryObject, Queue, QueueManager
    from lanner.store import Store

# Computed once per class: a start loads thousands of queues.
_LASTING: dict[type, list[str]] = {}


class AttributeTables:
    """The stored attributes of the queue manager and its queues."""

    def __init__(self, store: Store, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager
        self._queues = store.table(QUEUES)
        self._settings = store.table(SETTINGS)

    def save_queue_manager(self) -> None:
        """Write the queue manager's persistent attributes."""
        self._settings.put(QUEUE_MANAGER_KEY, dump_attributes(self._queue_manager))

    def load_queue_manager(self) -> bool:
        """Set the queue manager's attributes; return False if the store has none yet."""
        stored = self._settings.get(QUEUE_MANAGER_KEY)
        if stored is None:
            return False
        apply_attributes(self._queue_manager, load_attributes(stored)[1])
        return True

    def save_queue(self, queue: Queue) -> None:
        """Write a queue's persistent attributes here. The directory is not informed."""
        self._queues.put(QUEUE_KEY.pack(queue.number), dump_attributes(queue))

    def delete_queue(self, queue: Queue) -> None:
        """Delete a queue's attributes."""
        self._queues.delete(QUEUE_KEY.pack(queue.number))

    def queue_numbers(self) -> set[int]:
        """Return the numbers of all queues that are stored."""
        return {QUEUE_KEY.unpack(key)[0] for key, _ in self._queues.items()}

    def queues(self) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Yield the number, the class name and the attributes of each stored queue."""
        for key, value in self._queues.items():
            yield QUEUE_KEY.unpack(key)[0], *load_attributes(value)

    def replace_epoch(self, epoch: int) -> int | None:
        """Write the epoch of the store.

        Returns the previous one; None if there was none.
        """
        known = self._settings.get(EPOCH_KEY)
        if known is not None and EPOCH.unpack(known)[0] == epoch:
            return epoch
        self._settings.put(EPOCH_KEY, EPOCH.pack(epoch))
        return None if known is None else int(EPOCH.unpack(known)[0])


def dump_attributes(directory_object: DirectoryObject) -> bytes:
    """Return the persistent and directory attributes of an object, with the name of its class."""
    cls = type(directory_object)
    values = {name: _encode(getattr(directory_object, name)) for name in _lasting(cls)}
    return json.dumps({"class": cls.__name__, "attributes": values}, separators=(",", ":")).encode()


def load_attributes(data: bytes) -> tuple[str, dict[str, Any]]:
    """Return the class name and the attributes that `dump_attributes` wrote."""
    document = json.loads(data)
    return document["class"], {name: _decode(value) for name, value in document["attributes"].items()}


def apply_attributes(directory_object: DirectoryObject, attributes: dict[str, Any]) -> None:
    """Set the attributes that the object's class still has."""
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
