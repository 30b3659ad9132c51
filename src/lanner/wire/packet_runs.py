"""Runs of UserMessages of equal shape in the bytes of a session.

MS-MQMQ 2.2.20; MS-MQQB 3.1.5.1.3. A program that sends many messages sends packets that differ in
few places: PacketSize, SentTime, MessageID, the TransactionHeader, the sizes, the label and the
body. One of them is checked in full (`quick_check`, `plain_sender`) and becomes the template.
Packets after it are compared with the template; those of the same shape get the same verdict.

Only plain messages (`plain_sender`) that are not acknowledgments have a shape. Every other packet
is a run of one and is checked by itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from lanner.model.enums import MessageClass
from lanner.native import chosen
from lanner.wire import fields
from lanner.wire import layout as at
from lanner.wire.envelope import envelope_bytes
from lanner.wire.plain_sender import plain_sender
from lanner.wire.quick_check import common_offsets

__all__ = ["Shape", "equal_envelopes", "equal_packets", "shape_of", "stamp_packets", "stepped"]

_sizes = struct.Struct("<xB30xI16xI").unpack_from  # LabelLength, MessageSize, ExtensionSize
_asked = struct.Struct("<B31xII").unpack_from  # Flags, MessageSize, AllocationBodySize
_size = _u32 = struct.Struct("<I").unpack_from
# In the BaseHeader: all but PacketSize. In the fixed part of the UserHeader: all but SentTime,
# MessageID and Flags.
_BASE: Final = slice(0, 8)
_FIXED: Final = slice(12, 52)
_FLAGS_OFFSET: Final = 60
_SIZE_OFFSET: Final = 8
# In the MessagePropertiesHeader: MessageClass, PrivacyLevel.
_CLASS: Final = slice(2, 4)
_PRIVACY_LEVEL: Final = slice(40, 44)
_NORMAL: Final = MessageClass.NORMAL.to_bytes(2, "little")


class Shape(NamedTuple):
    """A packet that was checked, and the positions of two of its headers."""

    packet: bytes
    transaction: int  # -1 if there is no TransactionHeader
    properties: int


def shape_of(packet: bytes) -> Shape | None:
    """Return the shape of a packet that `quick_check.check` accepted, or None."""
    offsets = common_offsets(packet)
    if offsets is None or plain_sender(packet, fields.user_flags(packet)[0]) is None:
        return None
    shape = Shape(packet, *offsets)
    return shape if packet[shape.properties + 2 : shape.properties + 4] == _NORMAL else None


def _equal_packets(
    data: bytes | bytearray | memoryview, start: int, template: bytes, transaction: int, properties: int
) -> tuple[list[bytes], int]:
    """Return the packets from `start` on that have the shape of a template.

    The second result is the start of the first other packet. A packet that does not end within
    `data` counts as different.
    """
    packets = list(_of_shape(data, start, template, transaction, properties))
    return packets, start + sum(map(len, packets))


def _of_shape(
    data: bytes | bytearray | memoryview, start: int, template: bytes, transaction: int, properties: int
) -> Iterator[bytes]:
    view = memoryview(data)
    end = len(view)
    label = properties + at.PROPERTIES_HEADER_SIZE
    if transaction < 0:
        equal = [_BASE, _FIXED, slice(_FLAGS_OFFSET, properties)]
    else:
        behind = transaction + at.TRANSACTION_HEADER_SIZE
        equal = [_BASE, _FIXED, slice(_FLAGS_OFFSET, transaction), slice(behind, properties)]
    equal += [slice(properties + each.start, properties + each.stop) for each in (_CLASS, _PRIVACY_LEVEL)]
    wanted = [template[each] for each in equal]
    while end - start >= label:
        size: int = _size(view, start + _SIZE_OFFSET)[0]
        if not label <= size <= min(at.MAX_PACKET_SIZE, end - start):
            break
        packet = view[start : start + size].tobytes()
        if [packet[each] for each in equal] != wanted or not _is_sound(packet, transaction, properties, label):
            break
        yield packet
        start += size


def _stamp_packets(
    data: bytes | bytearray | memoryview,
    start: int,
    template: bytes,
    transaction: int,
    properties: int,
    front: bytes,
    header: bytes,
    ordinal: int,
    step: int,
) -> tuple[list[bytes], int]:
    """Return the packets from `start` on that have the shape of a template, stamped.

    The second result is the start of the first other packet. `front` is their beginning, up to the
    name of the destination; PacketSize and MessageID, which counts from `ordinal`, are filled in.
    `header` is their TransactionHeader, if they have one. The transaction number in it increases by
    `step` with each packet.
    """
    packets: list[bytes] = []
    end = transaction if transaction >= 0 else properties
    behind = end + len(header)
    for packet in _of_shape(data, start, template, transaction, properties):
        size = len(packet)
        asked, body_size, allocation = _asked(packet, properties)
        if asked > at.ACKNOWLEDGE_MASK or allocation != body_size:
            break
        number = (ordinal + len(packets) & 0xFFFF_FFFF).to_bytes(4, "little")
        parts = front[:8], packet[8:12], front[12:56], number, front[60:], packet[len(front) : end]
        packets.append(b"".join((*parts, stepped(header, step * len(packets)), packet[behind:])))
        start += size
    return packets, start


def stepped(header: bytes, step: int) -> bytes:
    """Return a TransactionHeader, or nothing, with its transaction number increased by `step`."""
    if not step or not header:
        return header
    flags: int = _u32(header)[0]
    number = (flags >> at.ID_SHIFT) + step & at.ID_MASK
    return (flags & ~(at.ID_MASK << at.ID_SHIFT) | number << at.ID_SHIFT).to_bytes(4, "little") + header[4:]


def _equal_envelopes(packets: list[bytes]) -> int:
    """Return how many packets at the beginning have the same `wire.envelope.Envelope`.

    Every packet has at least the fixed part of a UserHeader.
    """
    wanted = envelope_bytes(packets[0]) if packets else None
    for index, packet in enumerate(packets):
        if envelope_bytes(packet) != wanted:
            return index
    return len(packets)


def _is_sound(packet: bytes, transaction: int, properties: int, label: int) -> bool:
    """Return whether the varying parts of a packet pass the checks of `quick_check`."""
    if transaction >= 0 and packet[transaction] & at.CG:
        return False
    label_length, message_size, extension_size = _sizes(packet, properties)
    end = label + 2 * label_length
    if label_length > at.MAX_LABEL_LENGTH or end + extension_size + message_size + 3 & ~3 != len(packet):
        return False
    return not label_length or (packet.find(b"\0\0", label, end) >= end - 3 and not packet[end - 1])


equal_packets = chosen(_equal_packets)
stamp_packets = chosen(_stamp_packets)
equal_envelopes = chosen(_equal_envelopes)
