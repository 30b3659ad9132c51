"""Arguments from clients: defaults of optional ones (MC-MQAC 3.1.4.2), and number types.

The document names one type per argument. Scripts pass small numbers as VT_I2, computed ones as
VT_R8, and variables by reference, so these are accepted too.
"""

from __future__ import annotations

import math
import re
from typing import Final
from uuid import UUID

from lanner.com.automation.coercion import change_type
from lanner.com.automation.values import Variant, is_missing
from lanner.com.constants import E_INVALIDARG
from lanner.com.objects import ComError
from lanner.model.errors import IllegalPropertyValue
from lanner.wire.vartypes import VT

_NUMBERS: Final = frozenset((VT.R4, VT.R8, VT.CY, VT.DECIMAL))
INTEGERS: Final = frozenset((VT.I1, VT.UI1, VT.I2, VT.UI2, VT.I4, VT.UI4, VT.INT, VT.UINT, VT.I8, VT.UI8))
_GUID: Final = re.compile(r"(?P<open>\{)?(?P<guid>[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})(?P<close>\})?")
# MS-OAUT 2.2.25: days from 1899-12-30 to 1970-01-01, and seconds in a day.
_UNIX_EPOCH: Final = 25569.0
_DAY: Final = 86400


def dereferenced(variant: Variant) -> Variant:
    """Return the value of a VARIANT, following a reference."""
    if variant.vt == VT.BYREF | VT.VARIANT and isinstance(variant.value, Variant):
        variant = variant.value
    return Variant(variant.base, variant.value) if variant.is_byref else variant


def given(variant: Variant | None) -> Variant | None:
    """Return an optional argument, or None if it was omitted."""
    if variant is None or is_missing(variant):
        return None
    found = dereferenced(variant)
    return None if is_missing(found) else found


def number(variant: Variant | None, default: int, what: str) -> int:
    """Return a number with the sign that the client gave it."""
    found = given(variant)
    if found is None:
        return default
    if found.vt in _NUMBERS:
        try:
            found = change_type(found, VT.I8)
        except ComError:
            raise wrong_type(found, what) from None
    if found.vt not in INTEGERS:
        raise wrong_type(found, what)
    return int(found.value)


def flag(variant: Variant | None, what: str, *, default: bool) -> bool:
    """Return a VARIANT_BOOL. Any number but 0 is true, as in VariantChangeType."""
    found = given(variant)
    if found is None:
        return default
    if found.vt != VT.BOOL and found.vt not in INTEGERS:
        raise wrong_type(found, what)
    return bool(found.value)


def text(variant: Variant | None, what: str) -> str | None:
    """Return a string, or None if it was omitted.

    The NULL string is empty (MS-OAUT 2.2.23).
    """
    found = given(variant)
    if found is None:
        return None
    if found.vt != VT.BSTR:
        raise wrong_type(found, what)
    return found.value or ""


def to_date(seconds: int) -> Variant:
    """Return the VT_DATE of a time in seconds since 1970 UTC (MS-OAUT 2.2.25)."""
    return Variant(VT.DATE, _UNIX_EPOCH + seconds / _DAY)


def from_date(variant: Variant, what: str) -> int:
    """Return the time of a VT_DATE, to the second."""
    if variant.vt not in (VT.DATE, VT.R8) or not math.isfinite(variant.value):
        raise wrong_type(variant, what)
    return round((float(variant.value) - _UNIX_EPOCH) * _DAY)


def to_guid(identifier: UUID) -> str:
    """Return a GUID as text in braces."""
    return f"{{{str(identifier).upper()}}}"


def from_guid(text: str, what: str, *, without_braces: bool = True) -> UUID:
    """Return the GUID of a text. Raise IllegalPropertyValue if it is malformed."""
    match = _GUID.fullmatch(text)
    if match is None or (not match["open"] and not without_braces) or bool(match["open"]) != bool(match["close"]):
        raise IllegalPropertyValue(f"{what}: {text[:64]!r} is no GUID")
    return UUID(match["guid"])


def wrong_type(variant: Variant, what: str) -> ComError:
    return ComError(E_INVALIDARG, f"{what}: {variant!r}")
