"""Conversion of VARIANTs to other types, like VariantChangeType (MS-OAUT 3.1.4.4.4).

A value that cannot be converted raises ComError: DISP_E_OVERFLOW if only the number is too large,
else DISP_E_TYPEMISMATCH. Text uses United States formats: MS-OAUT allows a server to ignore the
caller's locale.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Final, TypeAlias

from lanner.com.automation.values import Variant
from lanner.com.constants import DISP_E_BADVARTYPE, DISP_E_OVERFLOW, DISP_E_TYPEMISMATCH
from lanner.com.objects import ComError
from lanner.rpc.ndr import Value
from lanner.wire.vartypes import INTEGER_RANGES, VT, type_name

Number: TypeAlias = int | Decimal

_CURRENCY_SCALE: Final = 10_000
# MS-OAUT 2.2.25.
DAY_ZERO: Final = dt.datetime(1899, 12, 30)  # noqa: DTZ001 (a DATE has no time zone)
_DATE_FORMATS: Final = (
    "%m/%d/%Y %I:%M:%S %p",
    "%m/%d/%Y %H:%M:%S",
    "%m/%d/%Y %H:%M",
    "%m/%d/%Y",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%d",
)
# Digits written by VarBstrFromR4 and VarBstrFromR8.
_SINGLE_DIGITS: Final = 7
_DOUBLE_DIGITS: Final = 15
# MS-OAUT 2.2.26: 96 bits are 29 digits.
_MAX_MAGNITUDE: Final = 28
# Not in the specification: the maximum number of characters of a number. The longest double has
# about 330.
_MAX_NUMBER_TEXT: Final = 1024


def change_type(variant: Variant, vt: int) -> Variant:
    """Convert a VARIANT to another type. Raise ComError if that is impossible."""
    variant = variant.dereferenced()
    if variant.vt == vt:
        return variant
    if variant.vt == VT.RECORD:
        raise ComError(DISP_E_BADVARTYPE, "a user-defined type")
    return Variant(vt, _changed(variant, vt))


def _changed(variant: Variant, vt: int) -> Value:
    if vt in INTEGER_RANGES:
        return _integer(variant, vt)
    match vt:
        case VT.BSTR:
            return _text(variant, vt)
        case VT.BOOL:
            return _boolean(variant, vt)
        case VT.R4 | VT.R8:
            return _real(_number(variant, vt))
        case VT.CY:
            return _within(VT.I8, _rounded(_bounded(_number(variant, vt)) * _CURRENCY_SCALE))
        case VT.DATE:
            return _date(variant, vt)
        case VT.DECIMAL:
            return _bounded(_number(variant, vt))
        case VT.EMPTY | VT.NULL:
            return None
        case VT.UNKNOWN if variant.vt == VT.DISPATCH:
            return variant.value
        case VT.DISPATCH if variant.vt == VT.UNKNOWN:
            return variant.value
        case _:
            raise _mismatch(variant, vt)


def _mismatch(variant: Variant, vt: int) -> ComError:
    return ComError(DISP_E_TYPEMISMATCH, f"{type_name(variant.vt)} is no {type_name(vt)}")


def _number(variant: Variant, vt: int) -> Number:
    """Return the numeric value of a VARIANT."""
    value = variant.value
    match variant.vt:
        case VT.EMPTY:
            return 0
        case VT.BOOL:
            # MS-OAUT 2.2.27: true is 0xFFFF, and VARIANT_BOOL is signed.
            return -1 if value else 0
        case VT.CY:
            return Decimal(value) / _CURRENCY_SCALE
        case VT.R4 | VT.R8 | VT.DATE:
            if not math.isfinite(value):
                raise ComError(DISP_E_OVERFLOW, "no finite number")
            return Decimal(value)
        case VT.DECIMAL:
            return Decimal(value)
        case VT.BSTR:
            return _parsed(variant, vt)
        case _ if variant.vt in INTEGER_RANGES:
            return int(value)
        case _:
            raise _mismatch(variant, vt)


def _parsed(variant: Variant, vt: int) -> Number:
    text = (variant.value or "").strip()
    if not text or len(text) > _MAX_NUMBER_TEXT or not text.isascii() or "_" in text:
        raise _mismatch(variant, vt)
    try:
        # This is the notation of Basic.
        if text.upper().startswith("&H") and text[2:].isalnum():
            return int(f"0x{text[2:]}", 0)
        number = Decimal(text.replace(",", ""))
    except (ValueError, InvalidOperation):
        raise _mismatch(variant, vt) from None
    if not number.is_finite():
        raise _mismatch(variant, vt)
    return number


def _integer(variant: Variant, vt: int) -> int:
    return _within(vt, _rounded(_number(variant, vt)))


def _rounded(number: Number) -> int:
    """Return the nearest integer, rounding half to even."""
    return number if isinstance(number, int) else int(_bounded(number).to_integral_value(ROUND_HALF_EVEN))


def _bounded(number: Number) -> Decimal:
    """Return the number if an integer type or DECIMAL could hold it.

    Computing all digits of 1E+999999 would take too long.
    """
    number = Decimal(number)
    if number.adjusted() > _MAX_MAGNITUDE:
        raise ComError(DISP_E_OVERFLOW, "the number is too large")
    return number


def _within(vt: int, number: int) -> int:
    low, high = INTEGER_RANGES[vt]
    if not low <= number <= high:
        raise ComError(DISP_E_OVERFLOW, f"{number} is no {type_name(vt)}")
    return number


def _real(number: Number) -> float:
    real = float(number)
    if not math.isfinite(real):
        raise ComError(DISP_E_OVERFLOW, "the number is too large")
    return real


def _boolean(variant: Variant, vt: int) -> bool:
    if variant.vt == VT.BSTR:
        text = (variant.value or "").strip().lower()
        # VarBoolFromStr accepts these names, with or without Basic's number signs.
        if text.strip("#") in ("true", "false"):
            return text.strip("#") == "true"
    return _number(variant, vt) != 0


def _text(variant: Variant, vt: int) -> str:
    match variant.vt:
        case VT.EMPTY:
            return ""
        case VT.BOOL:
            # A Boolean becomes a number, because VariantChangeType is called without
            # VARIANT_ALPHABOOL.
            return "-1" if variant.value else "0"
        case VT.R4:
            return _digits(variant.value, _SINGLE_DIGITS)
        case VT.R8:
            return _digits(variant.value, _DOUBLE_DIGITS)
        case VT.DATE:
            return _date_text(variant)
        case VT.CY | VT.DECIMAL:
            number = Decimal(_number(variant, vt))
            text = f"{number:f}"
            return text.rstrip("0").rstrip(".") if "." in text else text
        case _ if variant.vt in INTEGER_RANGES:
            return str(variant.value)
        case _:
            raise _mismatch(variant, vt)


def _digits(value: float, digits: int) -> str:
    return f"{value:.{digits}G}"


def _date(variant: Variant, vt: int) -> float:
    if variant.vt != VT.BSTR:
        return _real(_number(variant, vt))
    text = (variant.value or "").strip()
    for form in _DATE_FORMATS:
        try:
            moment = dt.datetime.strptime(text, form)  # noqa: DTZ007 (a DATE has no time zone)
        except ValueError:
            continue
        return date_of(moment)
    return _real(_parsed(variant, vt))


def date_of(moment: dt.datetime) -> float:
    """Return the DATE of a moment (MS-OAUT 2.2.25).

    Before day zero the days count down, but the time of day still counts up.
    """
    passed = moment - DAY_ZERO
    fraction = (passed.seconds + passed.microseconds / 1_000_000) / 86_400
    return passed.days + fraction if passed.days >= 0 else passed.days - fraction


def _date_text(variant: Variant) -> str:
    days = math.trunc(variant.value) if math.isfinite(variant.value) else math.inf
    try:
        seconds = round(abs(variant.value - days) * 86_400)
        moment = DAY_ZERO + dt.timedelta(days=days, seconds=seconds)
    except (OverflowError, ValueError):
        raise _mismatch(variant, VT.BSTR) from None
    date = f"{moment.month}/{moment.day}/{moment.year}"
    if not seconds:
        return date
    return f"{date} {moment.hour % 12 or 12}:{moment:%M:%S %p}"
