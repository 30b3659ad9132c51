"""Property values of change notifications (MS-MQCN 2.2.3).

A value does not contain its type: that follows from its identifier (MS-MQMQ 2.3). Values follow
each other without padding.
"""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING, Final, TypeAlias

from lanner.model.errors import RemoteProtocolError
from lanner.wire.property_ids import (
    PREFIXES,
    ManagementMachineProperty,
    ManagementQueueProperty,
    PropertyIdentifier,
)
from lanner.wire.reader import encode_terminated
from lanner.wire.vartypes import VT, type_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanner.wire.reader import Reader

PropertyValue: TypeAlias = int | bool | str | bytes | uuid.UUID | list[int] | list[str] | list[uuid.UUID]

_NUMBERS: Final = {
    VT.I1: struct.Struct("<b"),
    VT.UI1: struct.Struct("<B"),
    VT.I2: struct.Struct("<h"),
    VT.UI2: struct.Struct("<H"),
    VT.I4: struct.Struct("<i"),
    VT.UI4: struct.Struct("<I"),
    VT.I8: struct.Struct("<q"),
    VT.UI8: struct.Struct("<Q"),
}
_TRUE, _FALSE = b"\xff\xff", b"\x00\x00"
_SIZE: Final = struct.Struct("<I")
_GUID_SIZE: Final = 16
# The minimum size of a vector element, so that a count can be checked before anything is read.
_LEAST_SIZES: Final = {VT.UI1: 1, VT.UI4: 4, VT.CLSID: _GUID_SIZE, VT.LPWSTR: 2}

# The identifiers in MS-MQMQ 2.3 that a directory object has. The two kinds of management properties
# share numbers and belong to no object.
_IDENTIFIERS: Final[dict[int, PropertyIdentifier]] = {
    int(member): member
    for kind in PREFIXES
    if kind not in (ManagementMachineProperty, ManagementQueueProperty)
    for member in kind
}


def property_type(identifier: int) -> int:
    """Return the VARTYPE of a property.

    Raise RemoteProtocolError for an identifier that is not in MS-MQMQ 2.3, because the length of
    its value is unknown.
    """
    known = _IDENTIFIERS.get(identifier)
    if known is None:
        raise RemoteProtocolError(f"PROPID {identifier}: MS-MQMQ 2.3 has no such property")
    return known.vt


def pack_value(vt: int, value: object) -> bytes:
    """Return the octets of a value."""
    if vt & VT.VECTOR:
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{type_name(vt)}: a list expected, not {value!r}")
        return _SIZE.pack(len(value)) + b"".join(pack_value(vt & ~VT.VECTOR, element) for element in value)
    number = _NUMBERS.get(VT(vt))
    if number is not None:
        return number.pack(value)
    match vt, value:
        case VT.BOOL, bool():
            return _TRUE if value else _FALSE
        case VT.CLSID, uuid.UUID():
            return value.bytes_le
        case VT.LPWSTR, str():
            return encode_terminated(value)
        case VT.BLOB, bytes():
            return _SIZE.pack(len(value)) + value
    raise TypeError(f"{type_name(vt)}: no such value as {value!r}")


def read_value(reader: Reader, vt: int, what: str) -> PropertyValue:
    """Read a value of a type. Raise RemoteProtocolError if it is truncated."""
    if vt & VT.VECTOR:
        element = vt & ~VT.VECTOR
        count = reader.u32(f"{what} Size")
        least = _LEAST_SIZES.get(VT(element))
        if least is None:
            raise RemoteProtocolError(f"{what}: vectors of {type_name(element)} are not sent")
        if count * least > reader.remaining:
            raise RemoteProtocolError(f"{what} Size {count}: {reader.remaining} bytes follow")
        return [_read_one(reader, element, what) for _ in range(count)]  # type: ignore[return-value]
    return _read_one(reader, vt, what)


def _read_one(reader: Reader, vt: int, what: str) -> PropertyValue:
    number = _NUMBERS.get(VT(vt))
    if number is not None:
        value: int = number.unpack(reader.take(number.size, what))[0]
        return value
    match vt:
        case VT.BOOL:
            return reader.take(len(_TRUE), what) != _FALSE
        case VT.CLSID:
            return reader.guid(what)
        case VT.LPWSTR:
            return reader.text_to_null(what)
        case VT.BLOB:
            return reader.take(reader.u32(f"{what} Size"), what)
    raise RemoteProtocolError(f"{what}: a change notification has no {type_name(vt)}")


def pack_values(identifiers: Sequence[int], values: Sequence[object]) -> bytes:
    """Return the concatenated values of properties."""
    return b"".join(
        pack_value(property_type(identifier), value) for identifier, value in zip(identifiers, values, strict=True)
    )
