"""A queue's attributes as a JSON document, for clients in other processes.

Attributes keep the names of the data model (MS-MQDMPR 3.1.1.2 and 3.1.1.3). Identifiers are
strings, and octets are base64. Attributes that only the queue manager itself can use (positions,
descriptors) are left out.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from lanner.engine.queue_properties import COPIED_ATTRIBUTES, check_value
from lanner.model.directory_objects import OutgoingQueue, Queue
from lanner.model.enums import OutgoingState, QueuePrivacyLevel, QueueScope, QueueType
from lanner.model.errors import InvalidParameter

Document: TypeAlias = dict[str, Any]


def _octets(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


_PLAIN: Final = (
    "label",
    "create_time",
    "modify_time",
    "pathname",
    "qualified_pathname",
    "private_queue_number",
    "journaling",
    "quota",
    "journal_quota",
    "authentication",
    "transactional",
    "multicast_address",
    "base_priority",
    "full_path",
    "directory_path",
    "number",
    "parent",
    "ends_when_unused",
    "total_bytes",
    "message_count",
)
_OUTGOING: Final = ("destination_format_name", "multicast", "is_for_others", "next_hops")
_KNOWN: Final = frozenset({*_PLAIN, *_OUTGOING})
# Attributes whose type JSON lacks, and the parser for each.
_READ: Final[dict[str, Callable[[Any], object]]] = {
    "identifier": uuid.UUID,
    "type": uuid.UUID,
    "privacy_level": QueuePrivacyLevel,
    "queue_type": QueueType,
    "scope": QueueScope,
    "security": _octets,
    "state": OutgoingState,
    "former_identifiers": lambda values: [uuid.UUID(value) for value in values],
}


def _written(value: object) -> object:
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [_written(one) for one in value]
    return getattr(value, "value", value)


def to_document(queue: Queue) -> Document:
    """Return the document of a queue, with its journal and its subqueues."""
    names = [*_PLAIN, "identifier", "type", "privacy_level", "queue_type", "scope", "security", "former_identifiers"]
    if isinstance(queue, OutgoingQueue):
        names += [*_OUTGOING, "state"]
    document: Document = {name: _written(getattr(queue, name)) for name in names}
    if queue.journal_queue is not None:
        document["journal_queue"] = to_document(queue.journal_queue)
    document["subqueues"] = {name: to_document(subqueue) for name, subqueue in queue.subqueues.items()}
    return document


def from_document(document: Mapping[str, Any]) -> Queue:
    """Return a queue with the attributes of a document.

    Attributes of a newer version are ignored.
    """
    queue: Queue = OutgoingQueue() if "destination_format_name" in document else Queue()
    for name, value in document.items():
        if name == "journal_queue":
            queue.journal_queue = from_document(value)
        elif name == "subqueues":
            queue.subqueues = {key: from_document(one) for key, one in value.items()}
        elif name in _READ:
            setattr(queue, name, _READ[name](value))
        elif name in _KNOWN:
            setattr(queue, name, value)
    return queue


def write_attributes(attributes: Mapping[str, object]) -> Document:
    """Return the attributes that a client sets on a queue, in the form of JSON.

    A value of a wrong type is refused here, because as JSON it might look valid.
    """
    document: Document = {}
    for name, value in attributes.items():
        if name in COPIED_ATTRIBUTES:
            document[name] = _written(value if value is None else check_value(name, value))
        else:
            # The queue manager decides which names it knows.
            document[name] = None
    return document


def read_attributes(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of such a document.

    Invalid names and values are left to the engine, whose errors list the valid ones.
    """
    attributes: dict[str, Any] = {}
    for name, value in document.items():
        try:
            attributes[name] = _READ[name](value) if name in _READ else value
        except (ValueError, TypeError, AttributeError, binascii.Error):
            attributes[name] = value
    return attributes


def check_document(value: object, what: str) -> Document:
    """Return a JSON object. Raises InvalidParameter if the value is none."""
    if not isinstance(value, dict):
        raise InvalidParameter(f"{what}: an object expected, not {value!r}")
    return value
