"""Values of message bodies, in the formats that .NET, Visual Basic and C programs write.

The body type alone determines the format:

- 0 (VT_EMPTY): XML if the body begins like XML and can be parsed (lanner.wire.xml_bodies), else
  bytes. Text is not recognized by its characters, not even with a byte order mark: a program that
  wants its text to be recognized writes a body type.
- A VARENUM number: a value as written by COM's MSMQMessage (MC-MQAC 3.17.4.1.22) and .NET's
  ActiveXMessageFormatter. Numbers are little-endian in their natural size, structures those of
  MS-OAUT 2.2.24 to 2.2.27, GUIDs as in MS-DTYP 2.3.4.2, text without a length. A vector or an array
  has its elements back to back, without a count (MC-MQAC has only arrays of VT_UI1).
- 0x300: a .NET serialization stream. Its root class is determined (lanner.wire.binary_formatter);
  the value stays bytes.

Bodies are hostile input. `decode_body` raises nothing: a body that does not fit its type is
returned as bytes, with the reason.
"""

from __future__ import annotations

import datetime as dt
import enum
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NamedTuple
from uuid import UUID

from lanner.model.errors import RemoteProtocolError
from lanner.wire.binary_formatter import read_header, read_root_name
from lanner.wire.body_types import BINARY_FORMATTER, TEXT_BODIES, body_type_name, element_type
from lanner.wire.reader import Reader
from lanner.wire.vartypes import VT
from lanner.wire.xml_bodies import MAX_ELEMENTS, UndecodableXml, Value, decode_xml, looks_like_xml

__all__ = ["BodyKind", "BodyValue", "Value", "decode_body"]


class BodyKind(enum.StrEnum):
    """The recognized format of a body. The comments give the Python type of the value."""

    BYTES = "bytes"  # bytes; also every body that could not be decoded
    TEXT = "text"  # str
    INTEGER = "integer"  # int
    REAL = "real"  # float
    BOOLEAN = "boolean"  # bool
    DECIMAL = "decimal"  # Decimal; VT_CY and VT_DECIMAL
    DATE = "date"  # datetime; VT_DATE without a zone, VT_FILETIME in UTC
    GUID = "guid"  # UUID
    ERROR = "error"  # int, unsigned; VT_ERROR and VT_HRESULT
    NULL = "null"  # None
    ARRAY = "array"  # list
    XML = "xml"  # see lanner.wire.xml_bodies
    BINARY_FORMATTER = "binary_formatter"  # bytes
    STREAMED_OBJECT = "streamed_object"  # bytes
    STORED_OBJECT = "stored_object"  # bytes


@dataclass(frozen=True, slots=True)
class BodyValue:
    """A decoded body.

    `type_name` is the type as the body names it: VT_I4, the root element of XML, a .NET class, the
    CLSID of an object that was saved to a stream; None if it names none. `reason` is why a body, or
    the name of its class, could not be decoded.
    """

    value: Value
    kind: BodyKind
    type_name: str | None = None
    reason: str | None = None

    def __repr__(self) -> str:
        # Bodies do not belong in logs.
        return f"BodyValue({self.kind}, {self.type_name})"


class _Fixed(NamedTuple):
    """A type of fixed size: its layout, and the function that converts its fields.

    `decode` raises ValueError if the fields are not a valid value.
    """

    kind: BodyKind
    layout: struct.Struct
    decode: Callable[..., Value]


def _same(value: Value) -> Value:
    return value


def _boolean(value: int) -> bool:
    # MS-OAUT 2.2.27 defines only 0xFFFF and 0; MSMQ programs in C also write 1.
    return value != 0


def _currency(scaled: int) -> Decimal:
    """Return a CURRENCY (MS-OAUT 2.2.24)."""
    # Arithmetic would round to the precision of the caller's decimal context.
    return Decimal(f"{scaled}E-4")


def _decimal(_reserved: int, scale: int, sign: int, high: int, low: int) -> Decimal:
    """Return a DECIMAL (MS-OAUT 2.2.26)."""
    if scale > 28 or sign not in (0, 0x80):
        raise ValueError(f"scale {scale}, sign {sign:#04x}; 0 to 28 and 0 or 0x80 expected")
    return Decimal(f"{'-' if sign else ''}{(high << 64) + low}E-{scale}")


_DATE_EPOCH: Final = dt.datetime(1899, 12, 30)  # noqa: DTZ001 (a DATE has no zone)
_DAY: Final = 86_400_000  # milliseconds
# The range of System.DateTime.FromOADate: the years 100 to 9999.
_FIRST_DATE, _END_OF_DATES = -657_435.0, 2_958_466.0


def _date(days: float) -> dt.datetime:
    """Return a DATE (MS-OAUT 2.2.25), rounded to milliseconds as .NET and OLE do.

    Before the epoch, MS-OAUT counts the fraction from the preceding midnight, whereas Windows and
    .NET (DateTime.FromOADate) take its absolute value: -1.25 is 06:00 on 1899-12-29. Programs
    follow the latter.
    """
    if not _FIRST_DATE < days < _END_OF_DATES:
        raise ValueError("not a date of the years 100 to 9999")
    # An 8-byte integer written as a DATE reads as such a number, and would become midnight of the
    # epoch.
    if days and abs(days) * _DAY < 0.5:
        raise ValueError("a fraction of a millisecond, which no program writes as a date")
    milliseconds = math.trunc(days * _DAY + math.copysign(0.5, days))
    whole, rest = divmod(abs(milliseconds), _DAY)
    try:
        return _DATE_EPOCH + dt.timedelta(days=math.copysign(whole, days), milliseconds=rest)
    except OverflowError:
        raise ValueError("rounded up to the year 10000") from None


_FILETIME_EPOCH: Final = dt.datetime(1601, 1, 1, tzinfo=dt.UTC)


def _filetime(ticks: int) -> dt.datetime:
    """Return a FILETIME (MS-DTYP 2.3.3), in units of 100 ns, truncated to microseconds."""
    try:
        return _FILETIME_EPOCH + dt.timedelta(microseconds=ticks // 10)
    except OverflowError:
        raise ValueError("after the year 9999") from None


def _guid(data: bytes) -> UUID:
    return UUID(bytes_le=data)


_FIXED: Final[dict[int, _Fixed]] = {
    VT.I1: _Fixed(BodyKind.INTEGER, struct.Struct("<b"), _same),
    VT.UI1: _Fixed(BodyKind.INTEGER, struct.Struct("<B"), _same),
    VT.I2: _Fixed(BodyKind.INTEGER, struct.Struct("<h"), _same),
    VT.UI2: _Fixed(BodyKind.INTEGER, struct.Struct("<H"), _same),
    VT.I4: _Fixed(BodyKind.INTEGER, struct.Struct("<i"), _same),
    VT.UI4: _Fixed(BodyKind.INTEGER, struct.Struct("<I"), _same),
    VT.I8: _Fixed(BodyKind.INTEGER, struct.Struct("<q"), _same),
    VT.UI8: _Fixed(BodyKind.INTEGER, struct.Struct("<Q"), _same),
    VT.INT: _Fixed(BodyKind.INTEGER, struct.Struct("<i"), _same),
    VT.UINT: _Fixed(BodyKind.INTEGER, struct.Struct("<I"), _same),
    VT.R4: _Fixed(BodyKind.REAL, struct.Struct("<f"), _same),
    VT.R8: _Fixed(BodyKind.REAL, struct.Struct("<d"), _same),
    VT.BOOL: _Fixed(BodyKind.BOOLEAN, struct.Struct("<h"), _boolean),
    VT.CY: _Fixed(BodyKind.DECIMAL, struct.Struct("<q"), _currency),
    VT.DECIMAL: _Fixed(BodyKind.DECIMAL, struct.Struct("<HBBIQ"), _decimal),
    VT.DATE: _Fixed(BodyKind.DATE, struct.Struct("<d"), _date),
    VT.FILETIME: _Fixed(BodyKind.DATE, struct.Struct("<Q"), _filetime),
    VT.CLSID: _Fixed(BodyKind.GUID, struct.Struct("16s"), _guid),
    VT.ERROR: _Fixed(BodyKind.ERROR, struct.Struct("<I"), _same),
    VT.HRESULT: _Fixed(BodyKind.ERROR, struct.Struct("<I"), _same),
}
# Not in the specification: a one-byte VT_BOOL, the size of a System.Boolean, is also accepted.
_SHORT_BOOLEAN: Final = 1
# MC-MQAC uses VT_UNKNOWN and VT_DISPATCH for an object that a program put into a body.
_STREAMED: Final = (VT.STREAMED_OBJECT, VT.UNKNOWN, VT.DISPATCH)
_OCTETS: Final = (VT.BLOB, VT.VECTOR | VT.UI1, VT.ARRAY | VT.UI1)


def decode_body(body: bytes, body_type: int) -> BodyValue:
    """Return the value of a body, or its bytes with the reason why it has none.

    This never raises, whatever the body contains.
    """
    if body_type == VT.EMPTY:
        return _xml(body) if looks_like_xml(body) else BodyValue(body, BodyKind.BYTES)
    if body_type == BINARY_FORMATTER:
        return _binary_formatter(body)
    name = body_type_name(body_type)
    if name is None:
        return BodyValue(body, BodyKind.BYTES, reason=f"body type {body_type:#x} is not known")
    try:
        return _variant(body, body_type, name)
    except ValueError as error:
        return BodyValue(body, BodyKind.BYTES, name, f"{name}: {error}")


def _variant(body: bytes, body_type: int, name: str) -> BodyValue:
    """Return the value of a body with a VARENUM type. Raise ValueError if it does not fit."""
    if body_type in TEXT_BODIES:
        # Programs in C often send the terminator as well.
        return BodyValue(body.decode(TEXT_BODIES[body_type]).removesuffix("\0"), BodyKind.TEXT, name)
    if body_type in _FIXED:
        return BodyValue(_scalar(body, body_type), _FIXED[body_type].kind, name)
    if body_type in _OCTETS:
        return BodyValue(body, BodyKind.BYTES, name)
    if body_type in _STREAMED:
        return _streamed_object(body)
    if body_type == VT.STORED_OBJECT:
        return BodyValue(body, BodyKind.STORED_OBJECT)
    if body_type == VT.NULL:
        if body:
            raise ValueError(f"{len(body)} bytes, none expected")
        return BodyValue(None, BodyKind.NULL, name)
    fixed = _FIXED.get(element_type(body_type) or VT.EMPTY)
    if fixed is None:
        raise ValueError("bodies of this type have no documented form")
    count, rest = divmod(len(body), fixed.layout.size)
    if rest:
        raise ValueError(f"{len(body)} bytes are not whole elements of {fixed.layout.size} bytes")
    if count > MAX_ELEMENTS:
        raise ValueError(f"{count} elements, at most {MAX_ELEMENTS} are read")
    return BodyValue([fixed.decode(*fields) for fields in fixed.layout.iter_unpack(body)], BodyKind.ARRAY, name)


def _scalar(body: bytes, body_type: int) -> Value:
    fixed = _FIXED[body_type]
    if body_type == VT.BOOL and len(body) == _SHORT_BOOLEAN:
        return _boolean(body[0])
    if len(body) != fixed.layout.size:
        raise ValueError(f"{len(body)} bytes, {fixed.layout.size} expected")
    return fixed.decode(*fixed.layout.unpack(body))


def _xml(body: bytes) -> BodyValue:
    try:
        value, root = decode_xml(body)
    except UndecodableXml as error:
        return BodyValue(body, BodyKind.BYTES, reason=f"XML: {error}")
    return BodyValue(value, BodyKind.XML, root)


def _binary_formatter(body: bytes) -> BodyValue:
    reader = Reader(body)
    try:
        root = read_header(reader)
    except RemoteProtocolError as error:
        return BodyValue(body, BodyKind.BYTES, reason=f"binary formatter: {error}")
    try:
        return BodyValue(body, BodyKind.BINARY_FORMATTER, read_root_name(reader, root))
    except RemoteProtocolError as error:
        return BodyValue(body, BodyKind.BINARY_FORMATTER, reason=f"class name: {error}")


def _streamed_object(body: bytes) -> BodyValue:
    """Return an object in the format of OleSaveToStream: its CLSID, then its saved state."""
    if len(body) < 16:
        raise ValueError(f"{len(body)} bytes, at least the 16 of a CLSID expected")
    return BodyValue(body, BodyKind.STREAMED_OBJECT, str(_guid(body[:16])))
