"""From what a program sends to what a packet is built from: one place for all backends."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from lanner.client.message import Message, ReceivedMessage
from lanner.model.enums import HashAlgorithm
from lanner.model.errors import IllegalPropertyValue
from lanner.security.hashing import DEFAULT_HASH_ALGORITHM
from lanner.security.signing import sign_properties

if TYPE_CHECKING:
    from uuid import UUID

    from lanner.security.signing import SigningKey
    from lanner.wire.builder import MessageProperties
    from lanner.wire.format_name import FormatName

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
