"""VARENUM: the types of PROPVARIANTs, VARIANTs and message bodies (MS-MQMQ 2.2.12, MS-OAUT 2.2.7).

The three kinds of value have different subsets of these types. Each module that defines one of them
lists its own: `propvariant`, `body_types`, and `lanner.com.automation.types`.
"""

from __future__ import annotations

import enum
from typing import Final


class VT(enum.IntEnum):
    """VARENUM.

    VECTOR, ARRAY and BYREF are flags that are or-ed with the type of the elements or of the value.
    """

    EMPTY = 0x0000
    NULL = 0x0001
    I2 = 0x0002
    I4 = 0x0003
    R4 = 0x0004
    R8 = 0x0005
    CY = 0x0006
    DATE = 0x0007
    BSTR = 0x0008
    DISPATCH = 0x0009
    ERROR = 0x000A
    BOOL = 0x000B
    VARIANT = 0x000C
    UNKNOWN = 0x000D
    DECIMAL = 0x000E
    I1 = 0x0010
    UI1 = 0x0011
    UI2 = 0x0012
    UI4 = 0x0013
    I8 = 0x0014
    UI8 = 0x0015
    INT = 0x0016
    UINT = 0x0017
    HRESULT = 0x0019
    LPSTR = 0x001E
    LPWSTR = 0x001F
    RECORD = 0x0024
    FILETIME = 0x0040
    BLOB = 0x0041
    STREAMED_OBJECT = 0x0044
    STORED_OBJECT = 0x0045
    CLSID = 0x0048
    VECTOR = 0x1000
    ARRAY = 0x2000
    BYREF = 0x4000


FLAGS: Final = (VT.BYREF, VT.ARRAY, VT.VECTOR)
SCALARS: Final = frozenset(VT) - frozenset(FLAGS)


def _signed(bits: int) -> tuple[int, int]:
    return -(1 << bits - 1), (1 << bits - 1) - 1


def _unsigned(bits: int) -> tuple[int, int]:
    return 0, (1 << bits) - 1


# The minimum and the maximum of each integer type.
INTEGER_RANGES: Final[dict[int, tuple[int, int]]] = {
    VT.I1: _signed(8),
    VT.UI1: _unsigned(8),
    VT.I2: _signed(16),
    VT.UI2: _unsigned(16),
    VT.I4: _signed(32),
    VT.UI4: _unsigned(32),
    VT.INT: _signed(32),
    VT.UINT: _unsigned(32),
    VT.I8: _signed(64),
    VT.UI8: _unsigned(64),
}
MAX_I4: Final = INTEGER_RANGES[VT.I4][1]

# A dictionary, because looking up an enumeration member by value raises for unknown numbers.
_NAMES: Final = {int(kind): f"VT_{kind.name}" for kind in SCALARS}


def type_name(vt: int) -> str:
    """Return a name such as VT_VECTOR|VT_UI4 for 0x1013, or the number of an unlisted type."""
    flags = [flag for flag in FLAGS if vt & flag]
    scalar = _NAMES.get(vt & ~sum(FLAGS))
    return f"{vt:#06x}" if scalar is None else "|".join([*(f"VT_{flag.name}" for flag in flags), scalar])
