"""Automation values as Python values: VARIANT and SAFEARRAY (MS-OAUT 2.2.7, 2.2.23 to 2.2.30).

The value of a Variant by its type: int for integers, VT_ERROR and VT_CY (scaled by 10,000); bool
for VT_BOOL; float for VT_R4, VT_R8 and VT_DATE (days since 1899-12-30); str or None (the NULL BSTR)
for VT_BSTR; Decimal for VT_DECIMAL; None for VT_EMPTY and VT_NULL; for VT_DISPATCH and VT_UNKNOWN
an object of this process, a reference to a remote one, or None; bytes for VT_ARRAY|VT_UI1;
SafeArray or None for other arrays. With VT_BYREF it is the same, and for VT_BYREF|VT_VARIANT
another Variant.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from lanner.com.constants import DISP_E_PARAMNOTFOUND
from lanner.wire.vartypes import VT, type_name


@dataclass(frozen=True, slots=True)
class Variant:
    """A VARIANT: its type, flags included, and what it holds."""

    vt: int = VT.EMPTY
    value: Any = None

    def __repr__(self) -> str:
        # A value may be megabytes long, or must not be in a log.
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
    """Return whether an optional argument was left out."""
    return variant.vt & ~VT.BYREF == VT.ERROR and variant.value == DISP_E_PARAMNOTFOUND
