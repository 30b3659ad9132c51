"""Senders that can be told from a few bytes of a packet."""

from __future__ import annotations

import dataclasses
from uuid import UUID

import pytest

from lanner.model.enums import SenderIdentifierType
from lanner.model.errors import RemoteProtocolError
from lanner.transfer.events import UserMessagesReceived
from lanner.transfer.packets import examine
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import FormatName
from lanner.wire.layout import locate
from lanner.wire.plain_sender import plain_sender
from lanner.wire.sid import EVERYONE, Sid

SOURCE = UUID("11111111-2222-3333-4444-555555555555")
ALICE = Sid.parse("S-1-5-21-1-2-3-1001").pack()
QUEUE_MANAGER = SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER
BY_QUEUE_MANAGER = MessageProperties(sender_identifier_type=QUEUE_MANAGER, sender_identifier=SOURCE.bytes_le)


def packet(properties: MessageProperties) -> bytes:
    destination = FormatName.parse(r"DIRECT=OS:alpha\private$\q")
    return build(properties, source=SOURCE, ordinal=1, sent_time=0, destination=destination)


@pytest.mark.parametrize(
    ("properties", "sender"),
    [
        (MessageProperties(), b""),
        (MessageProperties(sender_identifier=ALICE), ALICE),
        (BY_QUEUE_MANAGER, EVERYONE.pack()),
        (dataclasses.replace(BY_QUEUE_MANAGER, signature=b"x"), None),
        (dataclasses.replace(BY_QUEUE_MANAGER, sender_certificate=b"x"), None),
        (dataclasses.replace(BY_QUEUE_MANAGER, privacy_level=1), None),
        (dataclasses.replace(BY_QUEUE_MANAGER, time_to_be_received=1), None),
    ],
)
def test_plain_senders(properties: MessageProperties, sender: bytes | None) -> None:
    """MS-MQQB 3.1.5.8.3: ST 1 is the user, ST 2 S-1-1-0.

    A message that needs any other check is not plain.
    """
    made = packet(properties)
    assert plain_sender(made, int.from_bytes(made[60:64], "little")) == sender
    assert examine(made, SOURCE.bytes_le) is UserMessagesReceived


@pytest.mark.parametrize("kind", [3, 4, 15])
def test_a_sender_of_an_unknown_kind_is_malformed(kind: int) -> None:
    made = bytearray(packet(BY_QUEUE_MANAGER))
    made[locate(bytes(made)).security] = kind
    assert plain_sender(bytes(made), int.from_bytes(made[60:64], "little")) is None
    with pytest.raises(RemoteProtocolError, match="ST"):
        examine(bytes(made), SOURCE.bytes_le)


def test_a_queue_manager_is_a_guid() -> None:
    made = bytearray(packet(MessageProperties(sender_identifier=ALICE)))
    made[locate(bytes(made)).security] = QUEUE_MANAGER
    with pytest.raises(RemoteProtocolError, match="SenderIdSize"):
        examine(bytes(made), SOURCE.bytes_le)
