"""Detection of compressed record batches, from the header in FlightData (Flight.proto).

Arrow decompresses a batch before the server can check it, and some kilobytes may become gigabytes.
So this module reads the headers (Message.fbs, in the format of FlatBuffers) as they arrive, as far
as necessary. Headers that Arrow's verifier refuses need no care: Arrow refuses them.
"""

from __future__ import annotations

import struct
from typing import Final

# Flight.proto: FlightData.data_header.
_DATA_HEADER: Final = 2
# Not in the specification: octets of a header. Other messages have other data in this field: the
# command of a descriptor, the body of an action.
MAX_HEADER: Final = 2 << 20
_MAX_TAG: Final = 0xFFFF_FFFF
_VARINT_BITS: Final = 70
# Message.fbs: fields of Message; members of MessageHeader that have buffers; fields of these.
_HEADER_TYPE, _HEADER = 1, 2
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_DICTIONARY_DATA = 1
_COMPRESSION = 3
# The metadata key that Arrow 0.17 used instead.
_EXPERIMENTAL: Final = b"ARROW:experimental_compression"

_i32 = struct.Struct("<i").unpack_from
_u32 = struct.Struct("<I").unpack_from
_u16 = struct.Struct("<H").unpack_from


class MessageRefused(Exception):
    """A message of a client is too long, compressed, or malformed."""


class Fields:
    """The fields of one protocol buffers message, read in pieces. Errors raise MessageRefused."""

    __slots__ = ("_field", "_is_length", "_is_value", "_kept", "_left", "_shift", "_skipped", "_value", "_wanted")

    def __init__(self, size: int) -> None:
        """Begin a message of `size` octets."""
        self._left = size
        self._skipped = 0
        self._kept = bytearray()
        # Octets of the header that have not arrived.
        self._wanted = 0
        self._value = self._shift = self._field = 0
        # What the next varint is, unless it is a tag.
        self._is_length = self._is_value = False

    def take(self, part: memoryview) -> None:
        at, end = 0, len(part)
        self._left -= end
        while at < end:
            if self._skipped:
                step = min(self._skipped, end - at)
                self._skipped -= step
                at += step
            elif self._wanted:
                step = min(self._wanted, end - at)
                self._kept += part[at : at + step]
                self._wanted -= step
                at += step
                if not self._wanted:
                    self._check_header()
            else:
                octet = part[at]
                at += 1
                self._value |= (octet & 0x7F) << self._shift
                self._shift += 7
                if octet & 0x80:
                    if self._shift >= _VARINT_BITS:
                        raise MessageRefused("a number of more than ten octets")
                    continue
                value, self._value, self._shift = self._value, 0, 0
                self._number(value, self._left + end - at)

    def _number(self, value: int, left: int) -> None:
        """Handle a complete varint. `left` octets of the message follow it."""
        if self._is_value:
            self._is_value = False
        elif self._is_length:
            self._is_length = False
            if value > left:
                raise MessageRefused(f"a field of {value} octets where {left} are left")
            if self._field != _DATA_HEADER:
                self._skipped = value
            elif value > MAX_HEADER:
                raise MessageRefused(f"a header of {value} octets, at most {MAX_HEADER}")
            else:
                self._wanted = value
        else:
            self._tag(value)

    def _tag(self, value: int) -> None:
        # Parsers differ in how they treat larger tags.
        if value > _MAX_TAG:
            raise MessageRefused(f"a tag of {value:#x}")
        self._field = value >> 3
        match value & 7:
            case 0:
                self._is_value = True
            case 1:
                self._skipped = 8
            case 2:
                self._is_length = True
            case 5:
                self._skipped = 4
            case kind:
                raise MessageRefused(f"a field of type {kind}")

    def _check_header(self) -> None:
        header, self._kept = bytes(self._kept), bytearray()
        if is_compressed(header):
            raise MessageRefused("a record batch is compressed: send it without compression (IpcWriteOptions)")


def is_compressed(header: bytes) -> bool:
    """Return whether a Message (Message.fbs) has a batch with compressed buffers.

    Returns False if `header` is not a Message.
    """
    if _EXPERIMENTAL in header:
        return True
    try:
        message = _u32(header)[0]
        kind_at, batch = _field(header, message, _HEADER_TYPE), _table(header, message, _HEADER)
        kind = header[kind_at] if kind_at else 0
        if kind == _DICTIONARY_BATCH and batch:
            batch = _table(header, batch, _DICTIONARY_DATA)
        elif kind != _RECORD_BATCH:
            return False
        return bool(batch) and bool(_field(header, batch, _COMPRESSION))
    except (struct.error, IndexError):
        return False


def _field(data: bytes, table: int, number: int) -> int:
    """Return the position of a field of a table, or 0 if the table does not have it."""
    vtable = table - _i32(data, table)[0]
    if vtable < 0:
        raise IndexError(vtable)
    place = 4 + 2 * number
    if place + 2 > _u16(data, vtable)[0]:
        return 0
    offset = _u16(data, vtable + place)[0]
    return table + offset if offset else 0


def _table(data: bytes, table: int, number: int) -> int:
    """Return the position of the table in a field, or 0 if there is none."""
    place = _field(data, table, number)
    return place + _u32(data, place)[0] if place else 0
