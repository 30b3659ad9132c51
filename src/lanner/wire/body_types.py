"""Body types: the VARENUM numbers in BodyType (MS-MQMQ 2.2.19.3, MS-OAUT 2.2.7).

MS-MQMQ lists the types of a PROPVARIANT only. Message bodies also have the other types of the
VARENUM enumeration of the Windows SDK (wtypes.h), as the documentation of PROPID_M_BODY_TYPE
states, and one number that .NET adds.
"""

from __future__ import annotations

from typing import Final

from lanner.wire.vartypes import SCALARS, VT, type_name

# Plain numbers: they are compared for every message.
VT_BSTR: Final = VT.BSTR.value
VT_LPSTR: Final = VT.LPSTR.value
VT_LPWSTR: Final = VT.LPWSTR.value
# Not a VARENUM: the number that System.Messaging's BinaryMessageFormatter writes.
BINARY_FORMATTER: Final = 0x300
# The encodings of text. A VT_BSTR body has no length prefix.
TEXT_BODIES: Final = {VT_BSTR: "utf-16-le", VT_LPSTR: "latin-1", VT_LPWSTR: "utf-16-le"}

# A body is neither a VT_RECORD nor a reference.
_FLAGS: Final = (VT.VECTOR, VT.ARRAY)
_SCALARS: Final = SCALARS - {VT.RECORD}


def element_type(body_type: int) -> int | None:
    """Return the element type of a vector or an array; None for any other type."""
    for flag in _FLAGS:
        if body_type & ~0xFFF == flag:
            return body_type & 0xFFF
    return None


def body_type_name(body_type: int) -> str | None:
    """Return the documented name, such as VT_VECTOR|VT_UI1, or None if there is none."""
    element = element_type(body_type)
    scalar = body_type if element is None else element
    return type_name(body_type) if scalar in _SCALARS else None
