"""The bytes that are hashed for a message's digital signature (MS-MQMQ 2.5)."""

from __future__ import annotations

import struct

from lanner.model.directory_objects import GUID_NULL
from lanner.wire import layout as at
from lanner.wire.format_name import FormatName
from lanner.wire.message import Message
from lanner.wire.reader import encode_terminated, guid_to_bytes

_U32 = struct.Struct("<I")
_ATTRIBUTES = struct.Struct("<BBBBHI")


def queue_name_bytes(name: FormatName | None) -> bytes:
    """Return the contribution of a queue name to the hash.

    It is the format name's characters and their terminator, or nothing if there is no name. MS-MQMQ
    names the packet field but does not say in what form it is hashed. Only a test with a peer can
    confirm this choice, so it is made in one place.
    """
    return b"" if name is None else encode_terminated(str(name))


def _application_part(message: Message) -> list[bytes]:
    return [
        message.correlation_identifier,
        _U32.pack(message.application_tag),
        message.body,
        message.label_bytes,
        queue_name_bytes(message.response_queue_format_name),
        queue_name_bytes(message.administration_queue_format_name),
    ]


def _system_part(message: Message) -> list[bytes]:
    packet = message.packet
    flags = int.from_bytes(packet[60:64], "little")
    connector = message.connector_type_identifier
    return [
        packet[16:32],
        _ATTRIBUTES.pack(
            flags >> at.DM_SHIFT & 3,
            packet[2] & at.PRIORITY_MASK,
            message.positive_journaling_requested << 1 | message.negative_journaling_requested,
            int(message.acknowledgements_requested),
            int(message.message_class),
            message.body_type,
        ),
        b"" if connector == GUID_NULL else guid_to_bytes(connector),
    ]


def hash_input_10(message: Message) -> bytes:
    """Return the bytes hashed by MSMQ 1.0 (MS-MQMQ 2.5.1)."""
    return b"".join(_application_part(message))


def hash_input_20(message: Message) -> bytes:
    """Return the bytes hashed by MSMQ 2.0 (MS-MQMQ 2.5.2)."""
    parts = _application_part(message) + _system_part(message)
    parts.append(queue_name_bytes(message.destination_queue_format_name))
    return b"".join(parts)


def hash_input_30(message: Message) -> bytes:
    """Return the bytes hashed by MSMQ 3.0 (MS-MQMQ 2.5.3).

    FormatNameList is taken to be the format names of each list in the header, in order.
    """
    parts = _application_part(message)
    parts += [
        message.extension,
        queue_name_bytes(message.destination_multi_queue_format_name),
        queue_name_bytes(message.administration_multi_queue_format_name),
        queue_name_bytes(message.response_multi_queue_format_name),
    ]
    return b"".join(parts + _system_part(message))
