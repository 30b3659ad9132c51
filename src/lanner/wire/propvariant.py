"""PROPVARIANT: a value with its VARTYPE (MS-MQMQ 2.2.12 to 2.2.17).

This is only the value. The RPC layer marshals it (NDR).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from lanner.model.errors import IllegalPropertyValue, IllegalPropertyVt
from lanner.wire.vartypes import INTEGER_RANGES, VT, type_name

# MS-MQMQ 2.2.14
VARIANT_TRUE = 0xFFFF
VARIANT_FALSE = 0x0000

# MS-MQMQ 2.2.13.1: the types that have a counted array.
VECTOR_TYPES = frozenset(
    VT.VECTOR | kind for kind in (VT.UI1, VT.UI2, VT.I4, VT.UI4, VT.UI8, VT.CLSID, VT.LPWSTR, VT.VARIANT)
)
# MS-MQMQ 2.2.12, without VARIANT, which is only the type of vector elements.
SCALAR_TYPES = frozenset(
    int(kind)
    for kind in (
        VT.EMPTY,
        VT.NULL,
        VT.I2,
        VT.I4,
        VT.BOOL,
        VT.I1,
        VT.UI1,
        VT.UI2,
        VT.UI4,
        VT.I8,
        VT.UI8,
        VT.LPWSTR,
        VT.BLOB,
        VT.CLSID,
    )
)

Value: TypeAlias = "bool | int | str | bytes | UUID | tuple[Value, ...] | PropVariant | None"


def _check_scalar(vt: int, value: object) -> None:
    if vt in (VT.EMPTY, VT.NULL):
        fits = value is None
    elif vt in INTEGER_RANGES:
        low, high = INTEGER_RANGES[vt]
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
    """A VARTYPE and a Python value of that type.

    None for EMPTY and NULL; int, bool, str, UUID; bytes for BLOB and for a vector of UI1; a tuple
    for any other vector. None for an LPWSTR or a CLSID is a NULL pointer, which a client may send.
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
