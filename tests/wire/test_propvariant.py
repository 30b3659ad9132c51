# ruff: noqa: ANN401 - values of every type, fitting or not

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from lanner.model.errors import IllegalPropertyValue, IllegalPropertyVt
from lanner.wire.propvariant import EMPTY, NULL, SCALAR_TYPES, VECTOR_TYPES, PropVariant
from lanner.wire.vartypes import VT, type_name

GUID = UUID(int=1)


def test_the_numbers_of_the_types() -> None:
    """MS-MQMQ 2.2.12."""
    numbers = {
        "EMPTY": 0, "NULL": 1, "I2": 2, "I4": 3, "BOOL": 11, "I1": 16, "UI1": 17, "UI2": 18, "UI4": 19,
        "I8": 20, "UI8": 21, "LPWSTR": 31, "BLOB": 65, "CLSID": 72,
    }  # fmt: skip
    assert {VT(kind).name: kind for kind in SCALAR_TYPES} == numbers
    assert (VT.VARIANT, VT.VECTOR) == (12, 0x1000)
    assert sorted(VECTOR_TYPES) == [0x1003, 0x100C, 0x1011, 0x1012, 0x1013, 0x1015, 0x101F, 0x1048]
    assert VT.VARIANT not in SCALAR_TYPES


@pytest.mark.parametrize(
    ("vt", "low", "high"),
    [
        (VT.I1, -128, 127),
        (VT.UI1, 0, 255),
        (VT.I2, -32768, 32767),
        (VT.UI2, 0, 65535),
        (VT.I4, -(2**31), 2**31 - 1),
        (VT.UI4, 0, 2**32 - 1),
        (VT.I8, -(2**63), 2**63 - 1),
        (VT.UI8, 0, 2**64 - 1),
    ],
)
def test_integers_have_limits(vt: VT, low: int, high: int) -> None:
    assert PropVariant(vt, low).value == low
    assert PropVariant(vt, high).value == high
    wrong: list[Any] = [low - 1, high + 1, "1", None, True]
    for value in wrong:
        with pytest.raises(IllegalPropertyValue):
            PropVariant(vt, value)


@pytest.mark.parametrize(
    ("vt", "value"),
    [
        (VT.EMPTY, None),
        (VT.NULL, None),
        (VT.BOOL, True),
        (VT.LPWSTR, "text"),
        (VT.BLOB, b"bytes"),
        (VT.CLSID, GUID),
        (VT.VECTOR | VT.UI1, b"bytes"),
        (VT.VECTOR | VT.UI4, (1, 2)),
        (VT.VECTOR | VT.I4, (-1,)),
        (VT.VECTOR | VT.LPWSTR, ("a", "b")),
        (VT.VECTOR | VT.CLSID, (GUID,)),
        (VT.VECTOR | VT.VARIANT, (PropVariant(VT.UI4, 1), PropVariant(VT.VECTOR | VT.UI8, (1,)))),
        (VT.VECTOR | VT.UI8, ()),
    ],
)
def test_values_that_fit(vt: int, value: Any) -> None:
    assert PropVariant(vt, value).value == value


@pytest.mark.parametrize(
    ("vt", "value"),
    [
        (VT.EMPTY, 0),
        (VT.NULL, ""),
        (VT.BOOL, 1),
        (VT.LPWSTR, b"text"),
        (VT.LPWSTR, "a\0b"),
        (VT.BLOB, "bytes"),
        (VT.CLSID, str(GUID)),
        (VT.VECTOR | VT.UI1, (1, 2)),
        (VT.VECTOR | VT.UI4, [1]),
        (VT.VECTOR | VT.UI4, (1, -1)),
        (VT.VECTOR | VT.LPWSTR, "a"),
        (VT.VECTOR | VT.VARIANT, (1,)),
    ],
)
def test_values_that_do_not_fit(vt: int, value: Any) -> None:
    with pytest.raises(IllegalPropertyValue):
        PropVariant(vt, value)


@pytest.mark.parametrize("vt", [VT.VARIANT, VT.VECTOR, VT.VECTOR | VT.BOOL, VT.VECTOR | VT.BLOB, 8, 0x2011])
def test_types_that_are_none(vt: int) -> None:
    with pytest.raises(IllegalPropertyVt):
        PropVariant(vt, None)


def test_names_and_shortcuts() -> None:
    assert type_name(0x1013) == "VT_VECTOR|VT_UI4"
    assert type_name(19) == "VT_UI4"
    assert type_name(99) == "0x0063"
    assert PropVariant.vector(VT.UI4, [1, 2]) == PropVariant(VT.VECTOR | VT.UI4, (1, 2))
    assert PropVariant.vector(VT.UI4, []).is_vector
    assert not NULL.is_vector
    assert EMPTY.value is None
