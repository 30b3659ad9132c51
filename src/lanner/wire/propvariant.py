"""PROPVARIANT: a value with its VARTYPE (MS-MQMQ 2.2.12 to 2.2.17).

A value model only. How a PROPVARIANT is marshalled is the RPC layer's knowledge (NDR), and kept there in one place.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from lanner.model.errors import IllegalPropertyValue, IllegalPropertyVt


class VT(enum.IntEnum):
    """VARENUM (MS-MQMQ 2.2.12). A vector's type is the number VT.VECTOR | VT.<element>."""

    EMPTY = 0
    NULL = 1
    I2 = 2
    I4 = 3
    BOOL = 11
    VARIANT = 12
    I1 = 16
    UI1 = 17
    UI2 = 18
    UI4 = 19
    I8 = 20
    UI8 = 21
    LPWSTR = 31
    BLOB = 65
    CLSID = 72
    VECTOR = 0x1000


# MS-MQMQ 2.2.14
VARIANT_TRUE = 0xFFFF
VARIANT_FALSE = 0x0000

_INTEGERS: dict[int, tuple[int, int]] = {
    VT.I1: (-(1 << 7), (1 << 7) - 1),
    VT.UI1: (0, (1 << 8) - 1),
    VT.I2: (-(1 << 15), (1 << 15) - 1),
    VT.UI2: (0, (1 << 16) - 1),
    VT.I4: (-(1 << 31), (1 << 31) - 1),
    VT.UI4: (0, (1 << 32) - 1),
    VT.I8: (-(1 << 63), (1 << 63) - 1),
    VT.UI8: (0, (1 << 64) - 1),
}
# MS-MQMQ 2.2.13.1: the types that have a counted array.
VECTOR_TYPES = frozenset(
    VT.VECTOR | kind for kind in (VT.UI1, VT.UI2, VT.I4, VT.UI4, VT.UI8, VT.CLSID, VT.LPWSTR, VT.VARIANT)
)
SCALAR_TYPES = frozenset(int(kind) for kind in VT if kind not in (VT.VARIANT, VT.VECTOR))

Value: TypeAlias = "bool | int | str | bytes | UUID | tuple[Value, ...] | PropVariant | None"


def type_name(vt: int) -> str:
    """VT_VECTOR|VT_UI4 for 0x1013, the bare number for a type that no document lists."""
    names = {int(kind): f"VT_{name}" for name, kind in VT.__members__.items()}
    scalar = vt & ~int(VT.VECTOR)
    if scalar not in names:
        return f"{vt:#06x}"
    return f"VT_VECTOR|{names[scalar]}" if vt & VT.VECTOR else names[scalar]


def _check_scalar(vt: int, value: object) -> None:
    if vt in (VT.EMPTY, VT.NULL):
        fits = value is None
    elif vt in _INTEGERS:
        low, high = _INTEGERS[vt]
        fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    elif vt == VT.BOOL:
        fits = isinstance(value, bool)
    elif vt == VT.CLSID:
        fits = value is None or isinstance(value, UUID)
    elif vt == VT.LPWSTR:
        fits = value is None or (isinstance(value, str) and "\0" not in value)
    elif vt == VT.BLOB:
        fits = isinstance(value, bytes)
    else:
        fits = isinstance(value, PropVariant)
    if not fits:
        raise IllegalPropertyValue(f"{value!r} is not a {type_name(vt)}")


@dataclass(frozen=True, slots=True)
class PropVariant:
    """A VARTYPE and a Python value that fits it.

    Nothing for EMPTY and NULL; int, bool, str, UUID; bytes for BLOB and for a vector of UI1; a tuple for any other vector.
    None for an LPWSTR or a CLSID is a NULL pointer: a client may send one.
    """

    vt: int
    value: Value = None

    def __post_init__(self) -> None:
        vt, value = int(self.vt), self.value
        if vt in SCALAR_TYPES:
            _check_scalar(vt, value)
        elif vt not in VECTOR_TYPES:
            raise IllegalPropertyVt(f"{type_name(vt)} is not a PROPVARIANT type")
        elif vt == VT.VECTOR | VT.UI1:
            if not isinstance(value, bytes):
                raise IllegalPropertyValue(f"{value!r} is not a {type_name(vt)}")
        elif not isinstance(value, tuple):
            raise IllegalPropertyValue(f"{value!r} is not a {type_name(vt)}")
        else:
            for element in value:
                _check_scalar(vt & ~int(VT.VECTOR), element)

    @classmethod
    def vector(cls, vt: int, values: Sequence[Value]) -> PropVariant:
        return cls(int(VT.VECTOR) | vt, tuple(values))

    @property
    def is_vector(self) -> bool:
        return bool(self.vt & VT.VECTOR)


EMPTY = PropVariant(VT.EMPTY)
NULL = PropVariant(VT.NULL)
