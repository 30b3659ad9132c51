"""What clients pass in VARIANTs: optional arguments with their defaults (MC-MQAC 3.1.4.2), and numbers in whatever size a language has.

The document names one type for each argument. Scripts pass small numbers as VT_I2, and variables by reference, so these are taken too.
"""

from __future__ import annotations

from typing import Final

from lanner.com.constants import E_INVALIDARG
from lanner.com.objects import ComError
from lanner.com.values import VT, Variant, is_missing

INTEGERS: Final = frozenset((VT.I1, VT.UI1, VT.I2, VT.UI2, VT.I4, VT.UI4, VT.INT, VT.UINT, VT.I8, VT.UI8))


def dereferenced(variant: Variant) -> Variant:
    """What a VARIANT holds, itself or by reference."""
    if variant.vt == VT.BYREF | VT.VARIANT and isinstance(variant.value, Variant):
        variant = variant.value
    return Variant(variant.base, variant.value) if variant.is_byref else variant


def given(variant: Variant | None) -> Variant | None:
    """An optional argument; None if it was left out."""
    if variant is None or is_missing(variant):
        return None
    found = dereferenced(variant)
    return None if is_missing(found) else found


def number(variant: Variant | None, default: int, what: str) -> int:
    """A number, as the client signed it."""
    found = given(variant)
    if found is None:
        return default
    if found.vt not in INTEGERS:
        raise wrong_type(found, what)
    return int(found.value)


def flag(variant: Variant | None, what: str, *, default: bool) -> bool:
    """A VARIANT_BOOL; in numbers everything but 0 is true, as to VariantChangeType."""
    found = given(variant)
    if found is None:
        return default
    if found.vt != VT.BOOL and found.vt not in INTEGERS:
        raise wrong_type(found, what)
    return bool(found.value)


def text(variant: Variant | None, what: str) -> str | None:
    """A string; None if it was left out. The NULL string is an empty one (MS-OAUT 2.2.23)."""
    found = given(variant)
    if found is None:
        return None
    if found.vt != VT.BSTR:
        raise wrong_type(found, what)
    return found.value or ""


def wrong_type(variant: Variant, what: str) -> ComError:
    return ComError(E_INVALIDARG, f"{what}: {variant!r}")
