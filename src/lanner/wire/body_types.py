"""Body types: the VARENUM numbers in BodyType (MS-MQMQ 2.2.19.3, MS-OAUT 2.2.7).

MS-MQMQ lists the types of a PROPVARIANT only. Message bodies also have the other types of the
VARENUM enumeration of the Windows SDK (wtypes.h), as the documentation of PROPID_M_BODY_TYPE
states, and one number that .NET adds.
"""

from __future__ import annotations

import enum
from typing import Final


class BodyType(enum.IntEnum):
    """The body types that have a name; VECTOR and ARRAY are or-ed to the type of the elements."""

    EMPTY = 0
    NULL = 1
    I2 = 2
    I4 = 3
    R4 = 4
    R8 = 5
    CY = 6
    DATE = 7
    BSTR = 8
    DISPATCH = 9
    ERROR = 10
    BOOL = 11
    VARIANT = 12
    UNKNOWN = 13
    DECIMAL = 14
    I1 = 16
    UI1 = 17
    UI2 = 18
    UI4 = 19
    I8 = 20
    UI8 = 21
    INT = 22
    UINT = 23
    HRESULT = 25
    LPSTR = 30
    LPWSTR = 31
    FILETIME = 64
    BLOB = 65
    STREAMED_OBJECT = 68
    STORED_OBJECT = 69
    CLSID = 72
    VECTOR = 0x1000
    ARRAY = 0x2000


VT_BSTR: Final = 8
VT_LPSTR: Final = 30
VT_LPWSTR: Final = 31
# No VARENUM: the number that System.Messaging's BinaryMessageFormatter writes.
BINARY_FORMATTER: Final = 0x300
# How the text is written; a VT_BSTR body has no length prefix.
TEXT_BODIES: Final = {VT_BSTR: "utf-16-le", VT_LPSTR: "latin-1", VT_LPWSTR: "utf-16-le"}

_FLAGS: Final = (BodyType.VECTOR, BodyType.ARRAY)
_SCALARS: Final = frozenset(BodyType) - frozenset(_FLAGS)


def element_type(body_type: int) -> int | None:
    """Return the type of the elements of a vector or an array; None for any other type."""
    for flag in _FLAGS:
        if body_type & ~0xFFF == flag:
            return body_type & 0xFFF
    return None


def body_type_name(body_type: int) -> str | None:
    """Return the documented name, such as VT_VECTOR|VT_UI1; None for a number without one."""
    element = element_type(body_type)
    scalar = body_type if element is None else element
    if scalar not in _SCALARS:
        return None
    name = f"VT_{BodyType(scalar).name}"
    return name if element is None else f"VT_{BodyType(body_type & ~0xFFF).name}|{name}"
