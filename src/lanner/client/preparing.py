"""Converts the messages of a program to packet properties, for all backends."""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from lanner.client.message import SHORT_LABEL, Message, ReceivedMessage, encode_text
from lanner.model.enums import HashAlgorithm
from lanner.model.errors import IllegalPropertyValue, InvalidParameter
from lanner.security.hashing import DEFAULT_HASH_ALGORITHM
from lanner.wire.body_types import TEXT_BODIES
from lanner.wire.builder import encode_label
from lanner.wire.packet_template import MessageRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from uuid import UUID

    from lanner.security.signing import SigningKey
    from lanner.wire.builder import MessageProperties
    from lanner.wire.format_name import FormatName

_CHANGEABLE: Final = [one.name for one in dataclasses.fields(Message) if one.init]

# The properties that messages of one run share: the types of body and numbers, and all fields but
# label and body.
_shape: Final = attrgetter(
    "body.__class__",
    "priority.__class__",
    "app_specific.__class__",
    "body_type.__class__",
    *(one for one in _CHANGEABLE if one not in ("body", "label")),
)
_BODIES: Final = (bytes, str)
# The maximum octets or characters of a body in a run: larger bodies gain nothing.
_LARGEST: Final = 0x0001_0000

# The types that `send` accepts.
Sendable: TypeAlias = Message | ReceivedMessage | bytes | str


def to_message(message: Sendable) -> Message:
    """Return the message for an argument of `send`."""
    if isinstance(message, Message):
        return message
    if isinstance(message, (bytes, str)):
        return Message(body=message)
    if isinstance(message, ReceivedMessage):
        return message.copy()
    raise IllegalPropertyValue(f"a Message, bytes or text can be sent, not {type(message).__name__}")


def alike(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Yield groups of consecutive messages that differ only in label and body."""
    start = 0
    while start < len(messages):
        end = _end_of_run(messages, start)
        yield messages[start:end]
        start = end


def together(messages: Sequence[Message], properties: MessageProperties) -> MessageRun | MessageProperties:
    """Return a run for a group of messages; for a single message, its properties.

    `properties` are those of the first message.
    """
    if len(messages) == 1:
        return properties
    bodies = [each.body for each in messages]
    if isinstance(messages[0].body, str):
        bodies = [encode_text(body, properties.body_type) for body in bodies]  # type: ignore[arg-type]  # all are text
    labels = [encode_label(each.label) if each.label else b"" for each in messages]
    return MessageRun(properties, labels, bodies)  # type: ignore[arg-type]  # all are octets now


def _end_of_run(messages: Sequence[Message], start: int) -> int:
    """Return the end index of the messages that can be in one run with the first."""
    if start + 1 == len(messages):
        return start + 1
    first = messages[start]
    shape = _shape(first)
    if not (
        _is_label_plain(first.label)
        and type(first) is Message
        and shape[0] in _BODIES
        and len(first.body) <= _LARGEST
        and not (first.authenticate or first.encrypt or first.sender_certificate)
    ):
        return start + 1
    for index in range(start + 1, len(messages)):
        each = messages[index]
        # A subclass may make its properties in its own way.
        if (
            type(each) is not Message
            or _shape(each) != shape
            or len(each.body) > _LARGEST
            or (each.label and not _is_label_plain(each.label))
        ):
            return index
    return len(messages)


def _is_label_plain(label: str) -> bool:
    """Return whether a label certainly fits; any other is checked with its own message."""
    return type(label) is str and len(label) <= SHORT_LABEL and "\0" not in label


def changed(message: ReceivedMessage, changes: Mapping[str, object]) -> Message:
    """Return a message to send with the content of another and some changes.

    Raises InvalidParameter for an unknown field.
    """
    edited = message.copy()
    for name, value in changes.items():
        if name not in _CHANGEABLE:
            raise InvalidParameter(f"{name} is no field of a message to send; these are: {', '.join(_CHANGEABLE)}")
        setattr(edited, name, value)
    if isinstance(edited.body, str) and "body_type" not in changes and edited.body_type not in TEXT_BODIES:
        # Text replaces octets: encode it like any other text.
        edited.body_type = None
    return edited


def signed(
    message: Message,
    properties: MessageProperties,
    key: SigningKey | None,
    *,
    source: UUID | None,
    destination: FormatName,
    is_transactional: bool,
) -> MessageProperties:
    """Return the properties of a message with `authenticate`, signed."""
    if key is None or source is None:
        raise IllegalPropertyValue(
            "authenticate: give the queue manager object a signing_key; it makes no certificates for clients"
        )
    chosen = properties.hash_algorithm if message.hash_algorithm is not None else DEFAULT_HASH_ALGORITHM
    # Imported here: most programs sign nothing.
    from lanner.security.signing import sign_properties

    return sign_properties(
        properties,
        key,
        source=source,
        destination=destination,
        is_transactional=is_transactional,
        hash_algorithm=HashAlgorithm(chosen),
    )
