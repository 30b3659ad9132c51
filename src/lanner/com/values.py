"""Automation values (MS-OAUT 2.2.7, 2.2.23 to 2.2.30): VARIANTs and SAFEARRAYs as plain Python.

What a Variant holds, by its type: integers, VT_ERROR and VT_CY (scaled by 10,000) int, VT_BOOL bool, VT_R4, VT_R8 and VT_DATE (days
since 1899-12-30) float, VT_BSTR str or None (the NULL BSTR), VT_DECIMAL Decimal, VT_EMPTY and VT_NULL None, VT_DISPATCH and VT_UNKNOWN
an object of ours, a reference to a foreign one or None, VT_ARRAY|VT_UI1 bytes, other arrays SafeArray (or None). Under VT_BYREF it holds the
same, and VT_BYREF|VT_VARIANT another Variant.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from lanner.com.constants import DISP_E_PARAMNOTFOUND


class VT(enum.IntEnum):
    """The types of VARIANTs and of the elements of SAFEARRAYs (MS-OAUT 2.2.7); ARRAY and BYREF are or-ed to one of the others."""

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
    RECORD = 0x0024
    ARRAY = 0x2000
    BYREF = 0x4000


@dataclass(frozen=True, slots=True)
class Variant:
    """A VARIANT: its type, flags included, and what it holds."""

    vt: int = VT.EMPTY
    value: Any = None

    def __repr__(self) -> str:
        # A value may be a body of megabytes, or nobody's business in a log.
        return f"Variant({type_name(self.vt)})"

    @property
    def base(self) -> int:
        """The type without VT_BYREF."""
        return self.vt & ~VT.BYREF

    @property
    def is_array(self) -> bool:
        return bool(self.vt & VT.ARRAY)

    @property
    def is_byref(self) -> bool:
        return bool(self.vt & VT.BYREF)

    def dereferenced(self) -> Variant:
        """The same without VT_BYREF: what it refers to."""
        variant = self
        while variant.vt & VT.BYREF:
            variant = (
                variant.value if variant.vt == VT.BYREF | VT.VARIANT else Variant(variant.vt & ~VT.BYREF, variant.value)
            )
        return variant


@dataclass(frozen=True, slots=True)
class SafeArray:
    """A SAFEARRAY: elements of one type, the leftmost dimension running fastest, and each dimension's count and lower bound."""

    vt: int  # of the elements
    elements: tuple[Any, ...] | bytes
    bounds: tuple[tuple[int, int], ...]  # leftmost dimension first

    @classmethod
    def of(cls, vt: int, elements: Iterable[Any]) -> SafeArray:
        """Make an array of one dimension that counts from 0."""
        elements = bytes(elements) if vt == VT.UI1 else tuple(elements)
        return cls(vt, elements, ((len(elements), 0),))

    def __repr__(self) -> str:
        return f"SafeArray({type_name(self.vt)}, {len(self.elements)})"


@dataclass(frozen=True, slots=True)
class RecordValue:
    """A user-defined type, as octets and a reference to its definition (MS-OAUT 2.2.28): no member here takes one."""

    info: Any
    data: bytes | None


EMPTY: Final = Variant()
NULL: Final = Variant(VT.NULL)
# What stands for an optional argument that was left out (MS-OAUT 3.1.4.4.3).
MISSING: Final = Variant(VT.ERROR, DISP_E_PARAMNOTFOUND)


def is_missing(variant: Variant) -> bool:
    """Tell whether an optional argument was left out."""
    return variant.vt & ~VT.BYREF == VT.ERROR and variant.value == DISP_E_PARAMNOTFOUND


def type_name(vt: int) -> str:
    """Give the name of a type as the document writes it."""
    flags = "".join(f"{flag.name}|" for flag in (VT.BYREF, VT.ARRAY) if vt & flag)
    plain = vt & ~(VT.BYREF | VT.ARRAY)
    return flags + (VT(plain).name if plain in _PLAIN else f"{plain:#06x}")


_PLAIN: Final = frozenset(VT)
