# ruff: noqa: DTZ001  a DATE knows no time zone
"""Python values as VARIANTs and back."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.com.automation.values import SafeArray, Variant
from lanner.com.client.python_values import from_date, from_variant, to_date, to_variant
from lanner.wire.vartypes import VT


@pytest.mark.parametrize(
    ("value", "vt"),
    [
        (None, VT.NULL),
        (True, VT.BOOL),
        (-(1 << 31), VT.I4),
        ((1 << 31) - 1, VT.I4),
        (1 << 31, VT.I8),
        (-(1 << 63), VT.I8),
        (1 << 63, VT.UI8),
        (1.5, VT.R8),
        ("text", VT.BSTR),
        ("", VT.BSTR),
        (b"\x00\x01", VT.ARRAY | VT.UI1),
        (Decimal("12.34"), VT.DECIMAL),
        (dt.datetime(2026, 11, 15, 14, 30), VT.DATE),
        ((1, "two", None), VT.ARRAY | VT.VARIANT),
    ],
)
def test_there_and_back(value: object, vt: int) -> None:
    variant = to_variant(value)
    assert variant.vt == vt
    assert from_variant(variant) == value


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1, object(), {}, 1j])
def test_what_has_no_place_in_a_variant(value: object) -> None:
    with pytest.raises(TypeError):
        to_variant(value)


@pytest.mark.parametrize(
    ("date", "moment"),
    [
        # MS-OAUT 2.2.25, and time_t 0.
        (0.0, dt.datetime(1899, 12, 30)),
        (2.25, dt.datetime(1900, 1, 1, 6)),
        (-1.75, dt.datetime(1899, 12, 29, 18)),
        (25569.0, dt.datetime(1970, 1, 1)),
    ],
)
def test_dates(date: float, moment: dt.datetime) -> None:
    assert from_date(date) == moment
    assert to_date(moment) == date


@given(st.datetimes(min_value=dt.datetime(100, 1, 1), max_value=dt.datetime(9999, 12, 31)))
def test_dates_keep_their_milliseconds(moment: dt.datetime) -> None:
    assert abs(from_date(to_date(moment)) - moment) <= dt.timedelta(milliseconds=1)


@pytest.fixture
def two_hours_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "EAST-2")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("two_hours_east")
def test_a_date_with_a_time_zone_becomes_local_time() -> None:
    assert from_date(to_date(dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC))) == dt.datetime(2026, 7, 1, 14)


@pytest.mark.parametrize("date", [float("nan"), float("inf"), 1e9, -1e9])
def test_a_date_beyond_the_calendar(date: float) -> None:
    with pytest.raises(ValueError, match="DATE"):
        from_date(date)


def test_the_null_string_is_empty() -> None:
    assert from_variant(Variant(VT.BSTR, None)) == ""


def test_currency_has_four_decimals() -> None:
    assert from_variant(Variant(VT.CY, 12345)) == Decimal("1.2345")


def test_references_are_followed() -> None:
    assert from_variant(Variant(VT.BYREF | VT.I4, 5)) == 5
    assert from_variant(Variant(VT.BYREF | VT.VARIANT, Variant(VT.BSTR, "x"))) == "x"


def test_an_array_of_two_dimensions() -> None:
    # Two by three: the leftmost index runs fastest.
    array = SafeArray(VT.I4, (11, 21, 12, 22, 13, 23), ((2, 0), (3, 0)))
    assert from_variant(Variant(VT.ARRAY | VT.I4, array)) == ((11, 12, 13), (21, 22, 23))


def test_objects_go_through_the_wrapper() -> None:
    thing = object()
    assert from_variant(Variant(VT.DISPATCH, thing), lambda found: ("wrapped", found)) == ("wrapped", thing)
    assert from_variant(Variant(VT.DISPATCH, None), lambda found: ("wrapped", found)) is None
    assert to_variant(thing, lambda value: "behind" if value is thing else None) == Variant(VT.DISPATCH, "behind")
