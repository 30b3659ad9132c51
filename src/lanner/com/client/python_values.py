"""Conversion between Python values and VARIANTs, for programs that use objects by name.

The mapping is pywin32's. None is VT_NULL, str VT_BSTR, bool VT_BOOL, int the first of VT_I4, VT_I8
and VT_UI8 that holds it, float VT_R8, Decimal VT_DECIMAL, bytes VT_ARRAY|VT_UI1, datetime VT_DATE,
an object VT_DISPATCH, a list or tuple an array of VARIANTs. A Variant stays as it is.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final

from lanner.com.automation.coercion import DAY_ZERO, date_of
from lanner.com.automation.values import SafeArray, Variant
from lanner.rpc.ndr import Value
from lanner.wire.vartypes import INTEGER_RANGES, VT

_SECONDS_PER_DAY: Final = 86400
_CURRENCY_SCALE: Final = Decimal(10000)
# Windows' own limits for DATE: the years 100 to 9999.
_MIN_DATE: Final = -657434.0
_MAX_DATE: Final = 2958466.0


def to_date(moment: dt.datetime) -> float:
    """Return the DATE of a moment.

    A moment with a time zone is converted to local time, which DATEs use.
    """
    if moment.tzinfo is not None:
        moment = moment.astimezone().replace(tzinfo=None)
    return date_of(moment)


def from_date(date: float) -> dt.datetime:
    """Return the moment of a DATE, without a time zone.

    It is exact to the millisecond, the precision of a DATE.
    """
    if not _MIN_DATE <= date < _MAX_DATE:
        raise ValueError(f"a DATE of {date}")
    days = int(date)
    milliseconds = round(abs(date - days) * _SECONDS_PER_DAY * 1000)
    return DAY_ZERO + dt.timedelta(days=days, milliseconds=milliseconds)


def to_variant(value: object, unwrap: Callable[[object], Value] = lambda _: None) -> Variant:
    """Return the VARIANT of a value. Raise TypeError if it cannot be sent.

    `unwrap` returns the object behind a value, or None if the value is not an object.
    """
    match value:
        case Variant():
            return value
        case None:
            return Variant(VT.NULL)
        case bool():
            return Variant(VT.BOOL, value)
        case int():
            return Variant(_integer_type(value), int(value))
        case str():
            return Variant(VT.BSTR, value)
        case float():
            return Variant(VT.R8, value)
        case bytes() | bytearray() | memoryview():
            return Variant(VT.ARRAY | VT.UI1, bytes(value))
        case dt.datetime():
            return Variant(VT.DATE, to_date(value))
        case Decimal():
            return Variant(VT.DECIMAL, value)
        case list() | tuple():
            elements = tuple([to_variant(each, unwrap) for each in value])
            return Variant(VT.ARRAY | VT.VARIANT, SafeArray.of(VT.VARIANT, elements))
    found = unwrap(value)
    if found is None:
        raise TypeError(f"{type(value).__name__} has no place in a VARIANT")
    return Variant(VT.DISPATCH, found)


def _integer_type(value: int) -> VT:
    for vt in (VT.I4, VT.I8, VT.UI8):
        low, high = INTEGER_RANGES[vt]
        if low <= value <= high:
            return vt
    raise TypeError(f"{value} is too large for a VARIANT")


def from_variant(variant: Variant, wrap: Callable[[Value], Value] = lambda found: found) -> Value:
    """Return the value of a VARIANT; `wrap` converts the objects in it.

    The NULL BSTR is an empty string, as in every COM language.
    """
    if variant.is_array:
        return _from_array(variant.value, wrap)
    return _from_plain(variant.base, variant.value, wrap)


def _from_plain(vt: int, value: Value, wrap: Callable[[Value], Value]) -> Value:
    match vt:
        case VT.BSTR:
            return value or ""
        case VT.DATE:
            return from_date(value)
        case VT.CY:
            return Decimal(value) / _CURRENCY_SCALE
        case VT.VARIANT:
            return None if value is None else from_variant(value, wrap)
        case VT.DISPATCH | VT.UNKNOWN:
            return None if value is None else wrap(value)
    return value


def _from_array(array: SafeArray | bytes | None, wrap: Callable[[Value], Value]) -> Value:
    if array is None or isinstance(array, bytes):
        return array
    if isinstance(array.elements, bytes) and len(array.bounds) == 1:
        return array.elements
    elements = [_from_plain(array.vt, each, wrap) for each in array.elements]
    return _nested(elements, [count for count, _ in array.bounds])


def _nested(elements: Sequence[Value], counts: Sequence[int]) -> tuple[Value, ...]:
    """Nest elements into tuples, one level per dimension.

    The leftmost dimension is the outermost tuple; in the array it varies fastest.
    """
    if len(counts) == 1:
        return tuple(elements)
    step = counts[0]
    return tuple([_nested(elements[start::step], counts[1:]) for start in range(step)])
