"""Automation values as Python values: VARIANT and SAFEARRAY (MS-OAUT 2.2.7, 2.2.23 to 2.2.30).

The type of a Variant determines its value: int for integers, VT_ERROR and VT_CY (scaled by 10,000);
bool for VT_BOOL; float for VT_R4, VT_R8 and VT_DATE (days since 1899-12-30); str or None (the NULL
BSTR) for VT_BSTR; Decimal for VT_DECIMAL; None for VT_EMPTY and VT_NULL; for VT_DISPATCH and
VT_UNKNOWN an object of this process, a reference to a remote one, or None; bytes for
VT_ARRAY|VT_UI1; SafeArray or None for other arrays. VT_BYREF does not change the value, except that
VT_BYREF|VT_VARIANT has another Variant.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from lanner.com.constants import DISP_E_PARAMNOTFOUND
from lanner.wire.vartypes import VT, type_name


@dataclass(frozen=True, slots=True)
class Variant:
    """A VARIANT: its type, including flags, and its value."""

    vt: int = VT.EMPTY
    value: Any = None

    def __repr__(self) -> str:
        # A value may be megabytes long, or must not appear in a log.
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
        """Return the same value without VT_BYREF: the target of the reference."""
        variant = self
        while variant.vt & VT.BYREF:
            variant = (
                variant.value if variant.vt == VT.BYREF | VT.VARIANT else Variant(variant.vt & ~VT.BYREF, variant.value)
            )
        return variant


@dataclass(frozen=True, slots=True)
class SafeArray:
    """A SAFEARRAY: elements of one type, and the count and lower bound of each dimension.

    The leftmost dimension varies fastest.
    """

    vt: int  # of the elements
    elements: tuple[Any, ...] | bytes
    bounds: tuple[tuple[int, int], ...]  # leftmost dimension first

    @classmethod
    def of(cls, vt: int, elements: Iterable[Any]) -> SafeArray:
        """Make an array of one dimension with lower bound 0."""
        elements = bytes(elements) if vt == VT.UI1 else tuple(elements)
        return cls(vt, elements, ((len(elements), 0),))

    def __repr__(self) -> str:
        return f"SafeArray({type_name(self.vt)}, {len(self.elements)})"


@dataclass(frozen=True, slots=True)
class RecordValue:
    """A user-defined type: its octets and a reference to its definition (MS-OAUT 2.2.28).

    No member here accepts one.
    """

    info: Any
    data: bytes | None


EMPTY: Final = Variant()
NULL: Final = Variant(VT.NULL)
# The value of an optional argument that was omitted (MS-OAUT 3.1.4.4.3).
MISSING: Final = Variant(VT.ERROR, DISP_E_PARAMNOTFOUND)


def is_missing(variant: Variant) -> bool:
    """Return whether an optional argument was omitted."""
    return variant.vt & ~VT.BYREF == VT.ERROR and variant.value == DISP_E_PARAMNOTFOUND
