"""VARIANTs turned into other types, as VariantChangeType would."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.com.coercion import change_type, date_of
from lanner.com.constants import DISP_E_BADVARTYPE, DISP_E_OVERFLOW, DISP_E_PARAMNOTFOUND, DISP_E_TYPEMISMATCH
from lanner.com.objects import ComError, ComObject
from lanner.com.values import EMPTY, MISSING, NULL, VT, RecordValue, SafeArray, Variant, is_missing

OBJECT = ComObject()


@pytest.mark.parametrize(
    ("variant", "vt", "value"),
    [
        (EMPTY, VT.I4, 0),
        (Variant(VT.I2, -5), VT.I4, -5),
        (Variant(VT.UI4, 5), VT.I2, 5),
        (Variant(VT.BOOL, value=True), VT.I4, -1),
        (Variant(VT.BOOL, value=False), VT.I4, 0),
        # Half goes to the even one.
        (Variant(VT.R8, 2.5), VT.I4, 2),
        (Variant(VT.R8, 3.5), VT.I4, 4),
        (Variant(VT.R8, -2.5), VT.I4, -2),
        (Variant(VT.DATE, 1.6), VT.I4, 2),
        (Variant(VT.CY, 52500), VT.I4, 5),
        (Variant(VT.DECIMAL, Decimal("7.4")), VT.I4, 7),
        (Variant(VT.BSTR, " 42 "), VT.I4, 42),
        (Variant(VT.BSTR, "-1,024.4"), VT.I4, -1024),
        (Variant(VT.BSTR, "1e3"), VT.I4, 1000),
        (Variant(VT.BSTR, "&Hff"), VT.I4, 255),
        (Variant(VT.I4, (1 << 31) - 1), VT.I8, (1 << 31) - 1),
        (Variant(VT.R8, 2.0**63), VT.UI8, 1 << 63),
        (Variant(VT.UI8, 5), VT.INT, 5),
        (EMPTY, VT.BSTR, ""),
        (Variant(VT.I4, -5), VT.BSTR, "-5"),
        (Variant(VT.BOOL, value=True), VT.BSTR, "-1"),
        (Variant(VT.R8, 0.1), VT.BSTR, "0.1"),
        (Variant(VT.R8, 1e20), VT.BSTR, "1E+20"),
        (Variant(VT.R4, 0.5), VT.BSTR, "0.5"),
        (Variant(VT.CY, 52500), VT.BSTR, "5.25"),
        (Variant(VT.CY, 50000), VT.BSTR, "5"),
        (Variant(VT.DECIMAL, Decimal(100)), VT.BSTR, "100"),
        (Variant(VT.DATE, 5.25), VT.BSTR, "1/4/1900 6:00:00 AM"),
        (Variant(VT.DATE, 25569.0), VT.BSTR, "1/1/1970"),
        (Variant(VT.BSTR, "True"), VT.BOOL, True),
        (Variant(VT.BSTR, "#FALSE#"), VT.BOOL, False),
        (Variant(VT.BSTR, "2"), VT.BOOL, True),
        (Variant(VT.I4, 0), VT.BOOL, False),
        (Variant(VT.R8, 0.1), VT.BOOL, True),
        (EMPTY, VT.BOOL, False),
        (Variant(VT.I4, 5), VT.R8, 5.0),
        (Variant(VT.BSTR, "0.5"), VT.R4, 0.5),
        (Variant(VT.BSTR, "5.25"), VT.CY, 52500),
        (Variant(VT.I4, 25569), VT.DATE, 25569.0),
        (Variant(VT.BSTR, "1/4/1900 6:00:00 AM"), VT.DATE, 5.25),
        (Variant(VT.BSTR, "1970-01-01"), VT.DATE, 25569.0),
        (Variant(VT.BSTR, "25569"), VT.DATE, 25569.0),
        (Variant(VT.R8, 0.5), VT.DECIMAL, Decimal("0.5")),
        (Variant(VT.UNKNOWN, OBJECT), VT.DISPATCH, OBJECT),
        (Variant(VT.DISPATCH, OBJECT), VT.UNKNOWN, OBJECT),
        (Variant(VT.I4, 5), VT.EMPTY, None),
        # By reference, once or twice.
        (Variant(VT.BYREF | VT.I2, 5), VT.I4, 5),
        (Variant(VT.BYREF | VT.VARIANT, Variant(VT.BYREF | VT.I2, 5)), VT.I2, 5),
        # What it is already.
        (Variant(VT.ARRAY | VT.UI1, b"a"), VT.ARRAY | VT.UI1, b"a"),
        (Variant(VT.BSTR, None), VT.BSTR, None),
    ],
)
def test_what_can_be_turned(variant: Variant, vt: int, value: Any) -> None:  # noqa: ANN401
    assert change_type(variant, vt) == Variant(vt, value)


@pytest.mark.parametrize(
    ("variant", "vt", "hresult"),
    [
        (NULL, VT.I4, DISP_E_TYPEMISMATCH),
        (NULL, VT.BSTR, DISP_E_TYPEMISMATCH),
        (MISSING, VT.I4, DISP_E_TYPEMISMATCH),
        (Variant(VT.BSTR, ""), VT.I4, DISP_E_TYPEMISMATCH),
        (Variant(VT.BSTR, None), VT.I4, DISP_E_TYPEMISMATCH),
        (Variant(VT.BSTR, "five"), VT.I4, DISP_E_TYPEMISMATCH),
        (Variant(VT.BSTR, "1_000"), VT.I4, DISP_E_TYPEMISMATCH),
        (Variant(VT.BSTR, "&Hxyz"), VT.I4, DISP_E_TYPEMISMATCH),
        (Variant(VT.BSTR, "&H"), VT.I4, DISP_E_TYPEMISMATCH),
        (Variant(VT.BSTR, "nan"), VT.R8, DISP_E_TYPEMISMATCH),
        (Variant(VT.BSTR, "Infinity"), VT.I4, DISP_E_TYPEMISMATCH),
        (Variant(VT.BSTR, "1" * 2000), VT.I4, DISP_E_TYPEMISMATCH),
        (Variant(VT.BSTR, "tomorrow"), VT.DATE, DISP_E_TYPEMISMATCH),
        (Variant(VT.DATE, 1e300), VT.BSTR, DISP_E_TYPEMISMATCH),
        (Variant(VT.DATE, math.inf), VT.BSTR, DISP_E_TYPEMISMATCH),
        (Variant(VT.DISPATCH, OBJECT), VT.I4, DISP_E_TYPEMISMATCH),
        (Variant(VT.I4, 1), VT.DISPATCH, DISP_E_TYPEMISMATCH),
        (Variant(VT.ARRAY | VT.I4, SafeArray.of(VT.I4, [1])), VT.I4, DISP_E_TYPEMISMATCH),
        (Variant(VT.I4, 1), VT.ARRAY | VT.I4, DISP_E_TYPEMISMATCH),
        (Variant(VT.I4, 40000), VT.I2, DISP_E_OVERFLOW),
        (Variant(VT.I4, -1), VT.UI4, DISP_E_OVERFLOW),
        (Variant(VT.R8, 1e10), VT.I4, DISP_E_OVERFLOW),
        (Variant(VT.R8, math.nan), VT.I4, DISP_E_OVERFLOW),
        (Variant(VT.BSTR, "1e999999"), VT.I4, DISP_E_OVERFLOW),
        (Variant(VT.BSTR, "1e999999"), VT.CY, DISP_E_OVERFLOW),
        (Variant(VT.BSTR, "1e999999"), VT.DECIMAL, DISP_E_OVERFLOW),
        (Variant(VT.BSTR, "1e999999"), VT.R8, DISP_E_OVERFLOW),
        (Variant(VT.RECORD, RecordValue(None, b"")), VT.I4, DISP_E_BADVARTYPE),
    ],
)
def test_what_cannot_be_turned(variant: Variant, vt: int, hresult: int) -> None:
    with pytest.raises(ComError) as raised:
        change_type(variant, vt)
    assert raised.value.hresult == hresult


@pytest.mark.spec("MQAC-2.2.1-3")
def test_dates_count_days_from_the_end_of_1899() -> None:
    """MS-OAUT 2.2.25; time_t 0 is 25569.0. Before day zero the fraction still counts up."""
    assert date_of(dt.datetime(1970, 1, 1)) == 25569.0  # noqa: DTZ001
    assert date_of(dt.datetime(1900, 1, 4, 6)) == 5.25  # noqa: DTZ001
    assert date_of(dt.datetime(1899, 12, 29, 6)) == -1.25  # noqa: DTZ001


def test_missing_arguments() -> None:
    assert is_missing(MISSING)
    assert is_missing(Variant(VT.BYREF | VT.ERROR, DISP_E_PARAMNOTFOUND))
    assert not is_missing(Variant(VT.ERROR, DISP_E_TYPEMISMATCH))
    assert not is_missing(EMPTY)


@given(st.text(max_size=20), st.sampled_from([VT.I2, VT.I4, VT.UI8, VT.R8, VT.CY, VT.DECIMAL, VT.DATE, VT.BOOL]))
def test_any_text_is_turned_or_not(text: str, vt: int) -> None:
    try:
        changed = change_type(Variant(VT.BSTR, text), vt)
    except ComError:
        return
    assert changed.vt == vt


@given(st.integers(-(1 << 63), (1 << 64) - 1))
def test_integers_go_to_text_and_back(number: int) -> None:
    vt = VT.I8 if number < 0 else VT.UI8
    assert change_type(change_type(Variant(vt, number), VT.BSTR), vt) == Variant(vt, number)
