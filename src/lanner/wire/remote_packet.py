"""A message in the form in which MS-MQRR passes it to a remote reader.

MS-MQRR 2.2.5 and 3.1.4.7 (ppPacketSections). The form differs from the stored packet in three
places: TimeToReachQueue is an absolute time, the address field of a direct name no longer contains
the destination, and every packet has the extension headers of MS-MQRR 2.2.5.2 to 2.2.5.5.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import TYPE_CHECKING, NamedTuple

from lanner.model.enums import QueueNameType
from lanner.model.errors import IllegalFormatname, IllegalQueuePathname, RemoteProtocolError
from lanner.wire.extension_headers import DeadLetterHeader, ExtendedAddressHeader, Extensions, SubqueueHeader
from lanner.wire.format_name import FormatName
from lanner.wire.layout import MAX_PACKET_SIZE
from lanner.wire.message import Message
from lanner.wire.path_name import PathName
from lanner.wire.spelling import is_format_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

_INFINITE = 0xFFFF_FFFF
# PacketSize and TimeToReachQueue in the BaseHeader (MS-MQMQ 2.2.19.1).
_SIZE_AND_TIME = struct.Struct("<II")
_SIZE_OFFSET = 8
_MAX_SECTIONS = 2
# Not in the specification: the largest packet that is reassembled, including its extension headers.
MAX_REMOTE_PACKET = MAX_PACKET_SIZE + 0x10000
# AddressLength, AddressType, AddressScope, Address (MS-MQRR 2.2.5.1).
_OVERLAY = struct.Struct("<HHI8s")
_IPV4, _IPV6 = 0x0001, 0x0006
_IPV4_VERSION = 4
# QueueManagerAddress in the UserHeader (MS-MQMQ 2.2.19.2).
_ADDRESS = slice(32, 48)


class Section(NamedTuple):
    """One part of a packet: its octets, and the size of the whole part."""

    octets: bytes
    whole_size: int


def remote_packet(
    packet: bytes, subqueue: SubqueueHeader, address_of: Callable[[UUID], str | None] = lambda _: None
) -> bytes:
    """Return the message packet of MS-MQRR 2.2.5 for a stored packet.

    `address_of` returns the address of the host from which a queue manager's messages come, or None
    if it is unknown; readers then get address type 0.
    """
    message = Message(packet)
    source = _source_address(address_of(message.source_machine_identifier))
    dead_letter = message.application_deadletter_queue
    extensions = Extensions(
        subqueue,
        DeadLetterHeader(dead_letter) if dead_letter else None,
        source,
        is_dead_letter_invalid=bool(dead_letter) and not _names_a_queue(dead_letter),
    ).pack()
    result = bytearray(packet[: message.end_of_headers])
    result += extensions
    _SIZE_AND_TIME.pack_into(result, _SIZE_OFFSET, len(result), _expiry(message))
    if message.destination_queue_type is QueueNameType.DIRECT_QUEUE:
        result[_ADDRESS] = _overlay(source)
    return bytes(result)


def _names_a_queue(text: str) -> bool:
    """Return whether a text can name a dead-letter queue.

    It must be a path name or the format name of one queue.
    """
    try:
        if is_format_name(text):
            return len(FormatName.parse(text).elements) == 1
        return bool(PathName.parse(text).name)
    except (IllegalFormatname, IllegalQueuePathname, ValueError):
        return False


def _source_address(text: str | None) -> ExtendedAddressHeader:
    """Return the header of MS-MQRR 2.2.5.5."""
    if text is None:
        return ExtendedAddressHeader()
    address, _, scope = text.partition("%")
    found = ipaddress.ip_address(address)
    kind = _IPV4 if found.version == _IPV4_VERSION else _IPV6
    number = int(scope) if scope.isdecimal() else 0
    return ExtendedAddressHeader(len(found.packed), kind, number, found.packed.ljust(16, b"\0"))


def _overlay(source: ExtendedAddressHeader) -> bytes:
    """Return the address encoded into the 16 octets after SourceQueueManager (MS-MQRR 2.2.5.1).

    There is room for 8 octets of the address.
    """
    return _OVERLAY.pack(min(source.address_length, 8), source.address_type, source.address_scope, source.address[:8])


def _expiry(message: Message) -> int:
    """Return TimeToReachQueue as an absolute time. A sum that exceeds 32 bits means never."""
    if message.time_to_reach_queue == _INFINITE:
        return _INFINITE
    return min(message.sent_time + message.time_to_reach_queue, _INFINITE)


def sections(packet: bytes, max_body_size: int) -> list[Section]:
    """Return the whole packet, or if its body is longer than the reader wants, two sections.

    The first has the headers and a part of the body, the second the rest. A packet from
    `remote_packet` always has trailers; without any there is no second section.
    """
    message = Message(packet)
    if max_body_size >= message.body_size:
        return [Section(packet, len(packet))]
    # The first section includes the padding after the body, so that the second begins where the
    # first would have ended.
    end = message.end_of_properties
    first = Section(packet[: message.body_offset + max_body_size], end)
    return [first] if end == len(packet) else [first, Section(packet[end:], len(packet) - end)]


def joined(parts: list[Section]) -> bytes:
    """Return the packet that was split into sections; unsent octets of the body are zero.

    Raise RemoteProtocolError if the sections cannot belong to one packet.
    """
    if not 1 <= len(parts) <= _MAX_SECTIONS:
        raise RemoteProtocolError(f"ppPacketSections: {len(parts)} sections")
    first, *rest = parts
    for part in parts:
        if len(part.octets) > part.whole_size or part.whole_size > MAX_REMOTE_PACKET:
            raise RemoteProtocolError(f"SectionSizeAlloc: {part.whole_size} for {len(part.octets)} octets")
    octets = first.octets + bytes(first.whole_size - len(first.octets)) if rest else first.octets
    return b"".join((octets, *(part.octets for part in rest)))


def stored_packet(packet: bytes) -> bytes:
    """Return the stored packet of a message: the inverse of `remote_packet`.

    Extension headers stay. Raise RemoteProtocolError if the packet is malformed.
    """
    Message.unpack(packet)
    message = Message(packet)
    expiry = message.time_to_reach_queue
    if expiry == _INFINITE:
        return packet
    result = bytearray(packet)
    _SIZE_AND_TIME.pack_into(result, _SIZE_OFFSET, len(packet), max(expiry - message.sent_time, 0))
    return bytes(result)
