"""Messages on Lanner's own interface.

The properties of a message to send are a JSON object with the names of `MessageProperties`.
Properties with default values are left out, and the body travels as octets beside the document. A
message that was read is its packet, and a document with the properties that the packet lacks: its
place in the queue, its arrival time, and how often it was aborted and moved.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias
from uuid import UUID

from lanner.model.enums import (
    Acknowledgements,
    DeliveryGuarantee,
    EncryptionAlgorithm,
    HashAlgorithm,
    MessagePrivacyLevel,
    SenderIdentifierType,
)
from lanner.model.errors import IllegalFormatname, InvalidParameter
from lanner.model.live import MessagePosition
from lanner.wire.builder import MessageProperties
from lanner.wire.format_name import FormatName, parse

Document: TypeAlias = dict[str, Any]
_U32: Final = 0xFFFF_FFFF


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _U32:
        raise ValueError
    return value


def _flag(value: object) -> bool:
    if type(value) is not bool:
        raise ValueError
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _octets(value: object) -> bytes:
    return base64.b64decode(_text(value), validate=True)


def _name(value: object) -> FormatName:
    return parse(_text(value))


# Properties that a client may set, and the function that reads each. The queue manager sets all
# others.
_READ: Final[dict[str, Callable[[object], object]]] = {
    "label": _text,
    "priority": _number,
    "delivery_guarantee": lambda value: DeliveryGuarantee(_number(value)),
    "time_to_reach_queue": _number,
    "time_to_be_received": _number,
    "body_type": _number,
    "application_tag": _number,
    "correlation_identifier": _octets,
    "extension": _octets,
    "acknowledgements_requested": lambda value: Acknowledgements(_number(value)),
    "administration_queue_format_name": _name,
    "response_queue_format_name": _name,
    "positive_journaling_requested": _flag,
    "negative_journaling_requested": _flag,
    "tracing_requested": _flag,
    "tracing_queue_identifier": lambda value: UUID(_text(value)),
    "connector_type_identifier": lambda value: UUID(_text(value)),
    "privacy_level": lambda value: MessagePrivacyLevel(_number(value)),
    "hash_algorithm": lambda value: HashAlgorithm(_number(value)),
    "encryption_algorithm": lambda value: EncryptionAlgorithm(_number(value)),
    "sender_identifier_type": lambda value: SenderIdentifierType(_number(value)),
    "sender_identifier": _octets,
    "sender_certificate": _octets,
    "signature": _octets,
    "multiple_destination_signature": _octets,
    "destination_multi_queue_format_name": _name,
}
_DEFAULTS: Final = {one.name: one.default for one in dataclasses.fields(MessageProperties) if one.name in _READ}


def _written(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, bool):
        return value
    # Enumerations are written as numbers, names and identifiers as text.
    return int(value) if isinstance(value, int) else str(value)


def properties_to_document(properties: MessageProperties) -> Document:
    """Return the document of a message that a client sends, without its body."""
    document: Document = {}
    for name, default in _DEFAULTS.items():
        value = getattr(properties, name)
        # Usually only the label is set; for most values the identity check already finds the
        # default.
        if value is not default and value != default:
            document[name] = _written(value)
    return document


def document_to_properties(document: object, body: bytes) -> MessageProperties:
    """Return the properties of a message to send; InvalidParameter names an invalid one."""
    if not isinstance(document, Mapping):
        raise InvalidParameter(f"the properties of a message: an object expected, not {document!r}")
    values: dict[str, Any] = {}
    for name, value in document.items():
        if name not in _READ:
            raise InvalidParameter(f"{name!r} is no property that a client sets")
        try:
            values[name] = _READ[name](value)
        except IllegalFormatname:
            raise
        except (ValueError, TypeError):
            raise InvalidParameter(f"{name} of a message: {value!r}") from None
    return MessageProperties(body, **values)


def position_to_document(position: MessagePosition) -> Document:
    """Return the document of a message that was read, without its packet."""
    record = position.record
    return {
        "lookup_id": position.lookup_id,
        "arrived": record.arrived,
        "abort_count": record.abort_count,
        "move_count": record.move_count,
        "size": len(record.packet),
    }
