"""A message as MS-MQRR hands it to a remote reader (MS-MQRR 2.2.5, 3.1.4.7 ppPacketSections).

The stored packet differs in three places: TimeToReachQueue becomes an absolute time, the address
field of a direct name no longer means the destination, and the headers of MS-MQRR 2.2.5.2 to
2.2.5.5 follow in every packet.
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
# Not in the specification: the largest packet with its extension headers that is put together.
MAX_REMOTE_PACKET = MAX_PACKET_SIZE + 0x10000
# AddressLength, AddressType, AddressScope, Address (MS-MQRR 2.2.5.1).
_OVERLAY = struct.Struct("<HHI8s")
_IPV4, _IPV6 = 0x0001, 0x0006
_IPV4_VERSION = 4
# QueueManagerAddress in the UserHeader (MS-MQMQ 2.2.19.2).
_ADDRESS = slice(32, 48)


class Section(NamedTuple):
    """One part of a packet: its octets, and how many the whole part has."""

    octets: bytes
    whole_size: int


def remote_packet(
    packet: bytes, subqueue: SubqueueHeader, address_of: Callable[[UUID], str | None] = lambda _: None
) -> bytes:
    """Return the message packet of MS-MQRR 2.2.5 for a stored packet.

    `address_of` returns the address of the host that a queue manager's messages come from, None
    where it is not known; readers then find type 0, which says so.
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
    """Whether a name of a dead-letter queue can be one: a path name, or a format name of one queue."""
    try:
        if is_format_name(text):
            return len(FormatName.parse(text).elements) == 1
        return bool(PathName.parse(text).name)
    except (IllegalFormatname, IllegalQueuePathname, ValueError):
        return False


def _source_address(text: str | None) -> ExtendedAddressHeader:
    """MS-MQRR 2.2.5.5."""
    if text is None:
        return ExtendedAddressHeader()
    address, _, scope = text.partition("%")
    found = ipaddress.ip_address(address)
    kind = _IPV4 if found.version == _IPV4_VERSION else _IPV6
    number = int(scope) if scope.isdecimal() else 0
    return ExtendedAddressHeader(len(found.packed), kind, number, found.packed.ljust(16, b"\0"))


def _overlay(source: ExtendedAddressHeader) -> bytes:
    """MS-MQRR 2.2.5.1: the same in the 16 octets after SourceQueueManager, with room for 8 octets of the address."""
    return _OVERLAY.pack(min(source.address_length, 8), source.address_type, source.address_scope, source.address[:8])


def _expiry(message: Message) -> int:
    """Return TimeToReachQueue as an absolute time; a sum beyond 32 bits means never."""
    if message.time_to_reach_queue == _INFINITE:
        return _INFINITE
    return min(message.sent_time + message.time_to_reach_queue, _INFINITE)


def sections(packet: bytes, max_body_size: int) -> list[Section]:
    """Return the whole packet, or if its body is longer than a reader wants, the headers with a part of it and the rest.

    A packet of `remote_packet` always has trailers; without any there is no rest.
    """
    message = Message(packet)
    if max_body_size >= message.body_size:
        return [Section(packet, len(packet))]
    # The first part counts the padding after the body, so that the second begins where the first
    # would end.
    end = message.end_of_properties
    first = Section(packet[: message.body_offset + max_body_size], end)
    return [first] if end == len(packet) else [first, Section(packet[end:], len(packet) - end)]


def joined(parts: list[Section]) -> bytes:
    """Return the packet that sections were cut from; octets of the body that were not sent are zero.

    RemoteProtocolError for sections that cannot be of one packet.
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
    """Return the packet of a message as it is kept: the inverse of `remote_packet`, but that extension headers stay.

    RemoteProtocolError if it is none.
    """
    Message.unpack(packet)
    message = Message(packet)
    expiry = message.time_to_reach_queue
    if expiry == _INFINITE:
        return packet
    result = bytearray(packet)
    _SIZE_AND_TIME.pack_into(result, _SIZE_OFFSET, len(packet), max(expiry - message.sent_time, 0))
    return bytes(result)
