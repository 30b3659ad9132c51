"""From what a program sends to what a packet is built from: one place for all backends."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final, TypeAlias

from lanner.client.message import Message, ReceivedMessage
from lanner.model.enums import HashAlgorithm
from lanner.model.errors import IllegalPropertyValue, InvalidParameter
from lanner.security.hashing import DEFAULT_HASH_ALGORITHM
from lanner.security.signing import sign_properties
from lanner.wire.body_types import TEXT_BODIES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from lanner.security.signing import SigningKey
    from lanner.wire.builder import MessageProperties
    from lanner.wire.format_name import FormatName

_CHANGEABLE: Final = [one.name for one in dataclasses.fields(Message) if one.init]

# What `send` takes.
Sendable: TypeAlias = Message | ReceivedMessage | bytes | str


def to_message(message: Sendable) -> Message:
    """Return the message that is meant."""
    if isinstance(message, Message):
        return message
    if isinstance(message, (bytes, str)):
        return Message(body=message)
    if isinstance(message, ReceivedMessage):
        return message.copy()
    raise IllegalPropertyValue(f"a Message, bytes or text can be sent, not {type(message).__name__}")


def changed(message: ReceivedMessage, changes: Mapping[str, object]) -> Message:
    """Return a message to send with the content of another and some changes. Raises InvalidParameter."""
    edited = message.copy()
    for name, value in changes.items():
        if name not in _CHANGEABLE:
            raise InvalidParameter(f"{name} is no field of a message to send; these are: {', '.join(_CHANGEABLE)}")
        setattr(edited, name, value)
    if isinstance(edited.body, str) and "body_type" not in changes and edited.body_type not in TEXT_BODIES:
        # Text in place of octets: it is written as any other text.
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
    return sign_properties(
        properties,
        key,
        source=source,
        destination=destination,
        is_transactional=is_transactional,
        hash_algorithm=HashAlgorithm(chosen),
    )
