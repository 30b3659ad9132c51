"""Packets of decrypted messages (MS-MQMQ 2.2.20.6 SecurityHeader, 2.2.19.3).

Only the fields that decryption changes are written. All other octets stay as they arrived, because
the signature covers them.
"""

from __future__ import annotations

import struct
from typing import Final

from lanner.wire import layout as at
from lanner.wire.message import Message

_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_PACKET_SIZE: Final = 8  # in BaseHeader
# In MessagePropertiesHeader.
_MESSAGE_SIZE: Final = 32
_ALLOCATION_BODY_SIZE: Final = 36


def clear_encrypted(packet: bytes) -> bytes:
    """Return the packet with EB cleared.

    The message was to be encrypted, but never left this computer.
    """
    offset = at.locate(packet).security
    if not offset:
        return packet
    (flags,) = _U16.unpack_from(packet, offset)
    return b"".join((packet[:offset], _U16.pack(flags & ~at.EB), packet[offset + 2 :]))


def with_plain_body(message: Message, body: bytes) -> bytes:
    """Return the packet of an encrypted message with an unencrypted body instead."""
    packet = clear_encrypted(message.packet)
    properties = at.locate(packet).properties
    start = message.body_offset
    end = start + message.body_size + 3 & ~3
    front = bytearray(packet[:start])
    _U32.pack_into(front, properties + _MESSAGE_SIZE, len(body))
    _U32.pack_into(front, properties + _ALLOCATION_BODY_SIZE, len(body))
    gap = bytes(-(start + len(body)) & 3)
    _U32.pack_into(front, _PACKET_SIZE, start + len(body) + len(gap) + len(packet) - end)
    return b"".join((front, body, gap, packet[end:]))
