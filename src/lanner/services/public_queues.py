"""Public queues, for clients of ours: their attributes as JSON, and what administrators do with them.

MS-MQMP makes, tells of, changes and deletes private queues only; for public ones clients of Windows turn to the directory.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lanner.engine.queue_properties import COPIED_ATTRIBUTES
from lanner.model.enums import QueuePrivacyLevel, QueueType
from lanner.model.errors import (
    IllegalQueuePathname,
    InvalidParameter,
    PropertyNotallowed,
    UnsupportedFormatnameOperation,
)
from lanner.wire.format_name import FormatName
from lanner.wire.path_name import PathName

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.directory_objects import Queue
    from lanner.security.identity import Identity

Document = dict[str, Any]

# What a client can give; a descriptor is made for the queue.
_GIVEN: Final = tuple(name for name in COPIED_ATTRIBUTES if name not in ("pathname", "security"))
_TOLD: Final = (*_GIVEN, "identifier", "create_time", "modify_time")
_FROM_TEXT: Final = ("type", "identifier")


def to_document(attributes: Mapping[str, object]) -> Document:
    """Attributes of the data model as JSON has them."""
    for name in attributes:
        if name not in _TOLD:
            raise PropertyNotallowed(f"{name} of a public queue cannot be given; these can: {', '.join(_GIVEN)}")
    return {name: str(value) if isinstance(value, uuid.UUID) else value for name, value in attributes.items()}


def from_document(document: Mapping[str, object]) -> Document:
    """The reverse; InvalidParameter names what cannot be."""
    attributes: Document = {}
    for name, value in document.items():
        if name not in _TOLD:
            raise PropertyNotallowed(f"{name} of a public queue cannot be given; these can: {', '.join(_GIVEN)}")
        try:
            if name in _FROM_TEXT:
                attributes[name] = uuid.UUID(str(value))
            else:
                attributes[name] = QueuePrivacyLevel(value) if name == "privacy_level" else value  # type: ignore[arg-type]
        except ValueError:
            raise InvalidParameter(f"{name} of a queue: {value!r}") from None
    return attributes


class PublicQueues:
    """Those of one queue manager. Every method needs the store's lock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def attributes(self, identity: Identity, name: str) -> Document:
        queue = self._engine.get_queue_properties(self._find(name), identity=identity)
        return to_document({attribute: getattr(queue, attribute) for attribute in _TOLD})

    def create(self, identity: Identity, pathname: str, attributes: Mapping[str, object]) -> None:
        path = PathName.parse(pathname)
        if path.queue_type is not QueueType.PUBLIC or path.subqueue is not None:
            raise IllegalQueuePathname(f"{pathname} is not the path name of a public queue")
        request = self._engine.set_queue_defaults(pathname)
        for attribute, value in from_document(attributes).items():
            setattr(request, attribute, value)
        self._engine.create_queue(request, identity=identity)

    def change(self, identity: Identity, name: str, attributes: Mapping[str, object]) -> None:
        self._engine.set_queue_properties(self._find(name), from_document(attributes), identity=identity)

    def delete(self, identity: Identity, name: str) -> None:
        self._engine.delete_queue(self._find(name), identity=identity)

    def _find(self, name: str) -> Queue:
        queue = self._engine.require_queue(FormatName.parse(name))
        if queue.queue_type is not QueueType.PUBLIC or queue.parent:
            raise UnsupportedFormatnameOperation(f"{name} is not a public queue")
        return queue
