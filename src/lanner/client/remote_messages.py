"""Messages of queue managers elsewhere: what is sent to them, and what came from them as a program sees it."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lanner.client.message import Message, ReceivedMessage
from lanner.model.directory_objects import GUID_NULL, Queue
from lanner.model.enums import HashAlgorithm
from lanner.model.errors import IllegalPropertyValue
from lanner.model.live import MessagePosition, Record
from lanner.security.hashing import DEFAULT_HASH_ALGORITHM
from lanner.security.signing import SigningKey, sign_properties
from lanner.services.queue_client_buffers import packet_of
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import PublicFormatName

if TYPE_CHECKING:
    from uuid import UUID

    from lanner.client.names import QueueNames
    from lanner.services.interfaces.mqmp import CACTransferBufferV2
    from lanner.services.remote_read_client import RemoteMessage
    from lanner.wire.format_name import FormatName

# A message from elsewhere lies in no queue of ours.
_ELSEWHERE: Final = Queue()
_PRIORITY_SHIFT: Final = 56


def from_remote_read(remote: RemoteMessage) -> ReceivedMessage:
    """A message of MS-MQQP: SequentialId is the lookup id without its priority (DECISIONS, MS-MQQP 3.1.4.10)."""
    lookup_id = (7 - remote.message.priority) << _PRIORITY_SHIFT | remote.sequential_id
    return _received(remote.message.packet, remote.arrived, lookup_id)


def from_buffer(filled: CACTransferBufferV2) -> ReceivedMessage:
    """A message of MS-MQMP, which tells no lookup id: it is 0."""
    return _received(packet_of(filled), filled.old.p_arrived_time or 0, 0)


def _received(packet: bytes, arrived: int, lookup_id: int) -> ReceivedMessage:
    return ReceivedMessage(MessagePosition(_ELSEWHERE, lookup_id, Record(packet, arrived)))


@dataclass(frozen=True, slots=True)
class Signing:
    """What a signature needs to know of the queue manager that sends."""

    key: SigningKey | None
    source: UUID | None
    destination: FormatName


def to_message(message: Message | ReceivedMessage | bytes | str) -> Message:
    """The message that is meant."""
    if isinstance(message, (bytes, str)):
        return Message(body=message)
    if isinstance(message, ReceivedMessage):
        return message.copy()
    if not isinstance(message, Message):
        raise IllegalPropertyValue(f"a Message, bytes or text can be sent, not {type(message).__name__}")
    return message


def to_properties(message: Message, names: QueueNames, signing: Signing, transaction: UUID | None) -> MessageProperties:
    """A message to send; a value that cannot be sent is refused here, by name."""
    properties = message.properties(names)
    if message.authenticate:
        if signing.key is None or signing.source is None:
            raise IllegalPropertyValue(
                "authenticate: give the queue manager object a signing_key; it makes no certificates for clients"
            )
        chosen = properties.hash_algorithm if message.hash_algorithm is not None else DEFAULT_HASH_ALGORITHM
        properties = sign_properties(
            properties,
            signing.key,
            source=signing.source,
            destination=signing.destination,
            is_transactional=transaction is not None,
            hash_algorithm=HashAlgorithm(chosen),
        )
    return properties


def to_packet(properties: MessageProperties) -> str:
    """A packet that has these properties, for a queue manager of ours, which makes its own of them; in base64."""
    packet = build(properties, source=GUID_NULL, ordinal=0, sent_time=0, destination=PublicFormatName(GUID_NULL))
    return base64.b64encode(packet).decode()
