"""Automation values as octets: against the documents, and against whatever a hostile peer sends."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.com.automation.types import (
    BSTR,
    DISPPARAMS,
    EXCEPINFO,
    MAX_DIMENSIONS,
    VARIANT,
    VARIANT_BOOL,
    DispParams,
    ExcepInfo,
)
from lanner.com.automation.values import EMPTY, MISSING, NULL, RecordValue, SafeArray, Variant
from lanner.com.constants import DISP_E_PARAMNOTFOUND, IID_IDISPATCH
from lanner.com.objref import DualStringArray, ObjRefStandard, StdObjRef
from lanner.rpc.ndr import BadStub, ByteOrder, Decoder, Encoder, Syntax, Type, Value, guid, representation
from lanner.rpc.ndr.stream import MAX_REQUEST_ELEMENTS
from lanner.wire.vartypes import VT, type_name
from tests.statuses import MQ_ERROR_INVALID_HANDLE, MQ_ERROR_QUEUE_NOT_FOUND

REFERENCE = ObjRefStandard(IID_IDISPATCH, StdObjRef(0, 5, 1, 2, IID_IDISPATCH), DualStringArray())


def packed(kind: Type, value: Value, byte_order: ByteOrder = "little") -> bytes:
    encoder = Encoder(representation(Syntax.NDR20, byte_order))
    kind.encode(encoder, value)
    return encoder.getvalue()


def unpacked(kind: Type, data: bytes, byte_order: ByteOrder = "little") -> Value:
    decoder = Decoder(data, representation(Syntax.NDR20, byte_order), elements=MAX_REQUEST_ELEMENTS)
    value = kind.decode(decoder)
    assert decoder.position == len(data)
    return value


def octets(*fields: str) -> bytes:
    """Join octets that are written field by field."""
    return bytes.fromhex("".join(fields))


# The pointer that a VARIANT is, and the gap to the structure it points to.
POINTER = "00000200 00000000"


# BSTR
# --------------------------------------------------------------------------------------------------

BSTRS = [
    (None, octets("00000200", "00000000", "ffffffff", "00000000")),
    ("", octets("00000200", "00000000", "00000000", "00000000")),
    ("ab", octets("00000200", "02000000", "04000000", "02000000", "6100 6200")),
    ("a\0b", octets("00000200", "03000000", "06000000", "03000000", "6100 0000 6200")),
    ("\ud800", octets("00000200", "01000000", "02000000", "01000000", "00d8")),
]


@pytest.mark.parametrize(("value", "data"), BSTRS)
@pytest.mark.spec("MQAC-2.2.1-1")
def test_bstr_both_ways(value: str | None, data: bytes) -> None:
    """A NULL BSTR has cBytes 0xFFFFFFFF and clSize 0, an empty one 0 and 0."""
    assert packed(BSTR, value) == data
    assert unpacked(BSTR, data) == value


@pytest.mark.parametrize(("value", "data"), BSTRS)
def test_bstrs_are_little_endian_in_a_big_endian_stub(value: str | None, data: bytes) -> None:
    """MS-OAUT 2.2.23.1: regardless of the data representation format label.

    The pointer follows the label.
    """
    big = data[3::-1] + data[4:]
    assert packed(BSTR, value, "big") == big
    assert unpacked(BSTR, big, "big") == value


def test_a_pointer_that_is_null_is_a_null_bstr() -> None:
    assert unpacked(BSTR, bytes(4)) is None


def test_an_odd_octet_is_kept() -> None:
    data = octets("00000200", "02000000", "03000000", "02000000", "61006200")
    assert unpacked(BSTR, data) == "ab"


@pytest.mark.parametrize(
    "data",
    [
        octets("00000200", "02000000", "04000000", "01000000", "61006200"),  # clSize is not the array's
        octets("00000200", "02000000", "06000000", "02000000", "61006200"),  # cBytes is not
        octets("00000200", "01000000", "ffffffff", "01000000", "6100"),  # NULL, but something in it
        octets("00000200", "ffffff7f", "feffffff", "ffffff7f", "6100"),  # huge
        octets("00000200", "ffffffff", "feffffff", "ffffffff", "6100"),
        octets("00000200", "00000000", "ffffffff"),  # cut
        octets("00000200"),
    ],
)
def test_a_bad_bstr_is_a_bad_stub(data: bytes) -> None:
    with pytest.raises(BadStub):
        unpacked(BSTR, data)


# VARIANT
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "data"),
    [
        (EMPTY, octets(POINTER, "03000000 00000000", "0000 0000 0000 0000", "00000000")),
        (
            Variant(VT.I4, 7),
            octets(POINTER, "03000000 00000000", "0300 0000 0000 0000", "03000000", "07000000"),
        ),
        # What is longer than the rest of a quad word begins one.
        (
            Variant(VT.DATE, 25569.0),
            octets(POINTER, "04000000 00000000", "0700 0000 0000 0000", "07000000", "00000000", "0000000040f8d840"),
        ),
        # clSize counts what its pointers point to, and half a quad word for a whole one: 34 octets
        # here.
        (
            Variant(VT.BSTR, "a"),
            octets(
                *(POINTER, "05000000 00000000", "0800 0000 0000 0000", "08000000", "04000200"),
                *("01000000", "02000000", "01000000", "6100"),
            ),
        ),
        (
            Variant(VT.BYREF | VT.I4, 7),
            octets(POINTER, "04000000 00000000", "0340 0000 0000 0000", "03400000", "04000200", "07000000"),
        ),
        (
            Variant(VT.BYREF | VT.VARIANT, Variant(VT.BOOL, value=True)),
            octets(
                *(POINTER, "07000000 00000000", "0c40 0000 0000 0000", "0c400000", "04000200", "08000200"),
                *("00000000", "03000000 00000000", "0b00 0000 0000 0000", "0b000000", "ffff"),
            ),
        ),
    ],
    ids=repr,
)
@pytest.mark.spec("MQAC-2.2.1-4")
def test_variant_octets(variant: Variant, data: bytes) -> None:
    """ClSize in units of 8 octets, rpcReserved 0, vt, and a tag equal to it."""
    assert packed(VARIANT, variant) == data
    assert unpacked(VARIANT, data) == variant


@pytest.mark.spec("MQAC-2.2.1-4")
def test_the_tag_of_arrays_is_one_for_all() -> None:
    """0x2000 when vt has VT_ARRAY, 0x6000 when it has VT_BYREF too."""
    array = SafeArray.of(VT.I4, [1])
    for vt, tag in [(VT.ARRAY | VT.I4, 0x2000), (VT.ARRAY | VT.BYREF | VT.I4, 0x6000)]:
        data = packed(VARIANT, Variant(vt, array))
        assert struct.unpack_from("<IIHHHHI", data, 8)[2::4] == (vt, tag)
        # With the type in its place the union has no such arm.
        with pytest.raises(BadStub):
            unpacked(VARIANT, data[:24] + struct.pack("<I", vt) + data[28:])


@pytest.mark.parametrize(("value", "word"), [(True, "ffff"), (False, "0000"), (1, "ffff"), (None, "0000")])
@pytest.mark.spec("MQAC-2.2.1-2")
def test_variant_bool_is_written_as_ffff_or_0(value: object, word: str) -> None:
    assert packed(VARIANT_BOOL, value) == bytes.fromhex(word)
    assert packed(VARIANT, Variant(VT.BOOL, value))[-2:] == bytes.fromhex(word)


@pytest.mark.spec("MQAC-2.2.1-2")
def test_any_variant_bool_but_0_is_true() -> None:
    assert [unpacked(VARIANT_BOOL, bytes.fromhex(word)) for word in ("0000", "ffff", "0100")] == [False, True, True]


@pytest.mark.spec("MQAC-2.2.1-3")
def test_a_date_is_a_double_of_days_since_the_end_of_1899() -> None:
    """6:00 A.M. on January 4, 1900 is 5.25 (MS-OAUT 2.2.25)."""
    assert packed(VARIANT, Variant(VT.DATE, 5.25))[-8:] == struct.pack("<d", 5.25)
    assert unpacked(VARIANT, packed(VARIANT, Variant(VT.DATE, 5.25))).value == 5.25


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Decimal("-1.25"), "0000 02 80 00000000 7d00000000000000"),
        (Decimal(0), "0000 00 00 00000000 0000000000000000"),
        (Decimal((1 << 96) - 1), "0000 00 00 ffffffff ffffffffffffffff"),
        (Decimal("1E-28"), "0000 1c 00 00000000 0100000000000000"),
    ],
)
def test_decimal_octets(value: Decimal, data: str) -> None:
    assert packed(VARIANT, Variant(VT.DECIMAL, value))[-16:] == bytes.fromhex(data)
    assert unpacked(VARIANT, packed(VARIANT, Variant(VT.DECIMAL, value))).value == value


def test_decimals_of_other_exponents_are_worked_out() -> None:
    assert unpacked(VARIANT, packed(VARIANT, Variant(VT.DECIMAL, Decimal("1.2E+3")))).value == 1200


@pytest.mark.parametrize("value", ["1E+29", "1E+999999", "1E-29", "NaN", "Infinity", str(1 << 96)])
def test_what_is_no_decimal_is_not_written(value: str) -> None:
    with pytest.raises(ValueError, match="DECIMAL"):
        packed(VARIANT, Variant(VT.DECIMAL, Decimal(value)))


@pytest.mark.parametrize("field", ["0000 1d 00", "0000 00 01"])
def test_a_bad_decimal_is_a_bad_stub(field: str) -> None:
    data = packed(VARIANT, Variant(VT.DECIMAL, Decimal(1)))
    with pytest.raises(BadStub):
        unpacked(VARIANT, data[:-16] + bytes.fromhex(field) + data[-12:])


EVERYTHING = [
    EMPTY,
    NULL,
    MISSING,
    Variant(VT.I1, -128),
    Variant(VT.UI1, 255),
    Variant(VT.BOOL, value=False),
    Variant(VT.ERROR, MQ_ERROR_QUEUE_NOT_FOUND),
    Variant(VT.BSTR, None),
    Variant(VT.BSTR, ""),
    Variant(VT.DISPATCH, None),
    Variant(VT.UNKNOWN, REFERENCE),
    Variant(VT.BYREF | VT.I1, -1),
    Variant(VT.BYREF | VT.UI1, 1),
    Variant(VT.BYREF | VT.BOOL, value=True),
    Variant(VT.BYREF | VT.ERROR, 0x8000_4005),
    Variant(VT.BYREF | VT.CY, 1),
    Variant(VT.BYREF | VT.BSTR, None),
    Variant(VT.BYREF | VT.DISPATCH, REFERENCE),
    Variant(VT.BYREF | VT.UNKNOWN, None),
    Variant(VT.BYREF | VT.DECIMAL, Decimal("2.5")),
    Variant(VT.BYREF | VT.VARIANT, Variant(VT.ARRAY | VT.UI1, b"ab")),
    Variant(VT.RECORD, RecordValue(REFERENCE, b"\x08\0\0\0abcd")),
    Variant(VT.RECORD | VT.BYREF, RecordValue(None, None)),
    Variant(VT.RECORD, None),
    Variant(VT.ARRAY | VT.UI1, b""),
    Variant(VT.ARRAY | VT.UI1, b"abc"),
    Variant(VT.ARRAY | VT.UI1, None),
    Variant(VT.ARRAY | VT.BYREF | VT.UI1, b"abc"),
    Variant(VT.ARRAY | VT.UI1, SafeArray(VT.UI1, b"abcdef", ((2, 0), (3, 0)))),
    Variant(VT.ARRAY | VT.I1, SafeArray.of(VT.I1, [-1, 1])),
    Variant(VT.ARRAY | VT.I2, SafeArray.of(VT.I2, [-1, 1])),
    Variant(VT.ARRAY | VT.UI2, SafeArray.of(VT.UI2, [0xFFFF])),
    Variant(VT.ARRAY | VT.BOOL, SafeArray.of(VT.BOOL, [True, False])),
    Variant(VT.ARRAY | VT.I4, SafeArray(VT.I4, (1, 2, 3, 4, 5, 6), ((2, -3), (3, 1)))),
    Variant(VT.ARRAY | VT.ERROR, SafeArray.of(VT.ERROR, [0x8000_4005])),
    Variant(VT.ARRAY | VT.R4, SafeArray.of(VT.R4, [0.5])),
    Variant(VT.ARRAY | VT.I8, SafeArray.of(VT.I8, [-1])),
    Variant(VT.ARRAY | VT.UI8, SafeArray.of(VT.UI8, [1 << 63])),
    Variant(VT.ARRAY | VT.R8, SafeArray.of(VT.R8, [0.25])),
    Variant(VT.ARRAY | VT.DATE, SafeArray.of(VT.DATE, [25569.5])),
    Variant(VT.ARRAY | VT.CY, SafeArray.of(VT.CY, [-52500])),
    Variant(VT.ARRAY | VT.BSTR, SafeArray.of(VT.BSTR, ["a", None, ""])),
    Variant(VT.ARRAY | VT.BSTR, SafeArray.of(VT.BSTR, [])),
    Variant(VT.ARRAY | VT.VARIANT, SafeArray.of(VT.VARIANT, [Variant(VT.I4, 1), Variant(VT.BSTR, "x"), EMPTY])),
    Variant(VT.ARRAY | VT.DISPATCH, SafeArray.of(VT.DISPATCH, [REFERENCE, None])),
    Variant(VT.ARRAY | VT.UNKNOWN, SafeArray.of(VT.UNKNOWN, [None, REFERENCE])),
    Variant(VT.ARRAY | VT.RECORD, SafeArray(VT.RECORD, (RecordValue(REFERENCE, b"\x05\0\0\0a"),), ((1, 0),))),
]


@pytest.mark.parametrize("variant", EVERYTHING, ids=repr)
@pytest.mark.parametrize("byte_order", ["little", "big"])
def test_whatever_is_written_is_read_again(variant: Variant, byte_order: ByteOrder) -> None:
    assert unpacked(VARIANT, packed(VARIANT, variant, byte_order), byte_order) == variant


@pytest.mark.parametrize("variant", EVERYTHING, ids=repr)
def test_every_truncation_is_a_bad_stub(variant: Variant) -> None:
    data = packed(VARIANT, variant)
    for size in range(len(data)):
        with pytest.raises(BadStub):
            unpacked(VARIANT, data[:size])


@pytest.mark.parametrize(
    "variant",
    [
        Variant(VT.I4, "text"),
        Variant(VT.I4, 1 << 40),
        Variant(VT.BSTR, 5),
        Variant(VT.R4, 1e300),
        Variant(VT.ARRAY | VT.I4, SafeArray.of(VT.I2, [1])),
        Variant(VT.ARRAY | VT.I4, SafeArray(VT.I4, (1,), ((2, 0),))),
        Variant(VT.VARIANT, EMPTY),
        Variant(0x1B, None),
    ],
    ids=repr,
)
def test_what_cannot_be_written_is_a_value_error(variant: Variant) -> None:
    with pytest.raises(ValueError, match=r"VARIANT|SafeArray"):
        packed(VARIANT, variant)


@pytest.mark.parametrize(
    "vt",
    [VT.VARIANT, 0x18, 0x1B, 0x1E, 0x1F, 0x25, VT.BYREF, VT.BYREF | VT.NULL, 0x8003, VT.ARRAY, 0xFFFF],
    ids=hex,
)
def test_types_that_no_variant_has_are_bad_stubs(vt: int) -> None:
    """MS-OAUT 2.2.7: VT_VARIANT occurs only by reference.

    A missing value cannot be by reference, and the types of type libraries do not occur.
    """
    tag = vt & 0x6000 if vt & VT.ARRAY else vt
    data = octets(POINTER, "05000000 00000000") + struct.pack("<HHHHI", vt, 0, 0, 0, tag) + bytes(64)
    with pytest.raises(BadStub):
        unpacked(VARIANT, data)


def test_a_variant_that_is_null_is_empty() -> None:
    assert unpacked(VARIANT, bytes(4)) == EMPTY


def test_what_the_recipient_ignores() -> None:
    """clSize, rpcReserved and three more (MS-OAUT 2.2.29.1): impacket always says 5."""
    data = octets(POINTER, "ffffffff ffffffff", "0300 ffff ffff ffff", "03000000", "07000000")
    assert unpacked(VARIANT, data) == Variant(VT.I4, 7)


def test_null_by_reference_is_a_bad_stub() -> None:
    data = octets(POINTER, "04000000 00000000", "0340 0000 0000 0000", "03400000", "00000000")
    with pytest.raises(BadStub, match="NULL"):
        unpacked(VARIANT, data)


def nested(depth: int) -> Variant:
    variant = Variant(VT.I4, 7)
    for _ in range(depth):
        variant = Variant(VT.BYREF | VT.VARIANT, variant)
    return variant


def test_variants_nest_so_deep_and_no_deeper() -> None:
    assert unpacked(VARIANT, packed(VARIANT, nested(15))) == nested(15)
    with pytest.raises(BadStub, match="nested"):
        unpacked(VARIANT, packed(VARIANT, nested(16)))


def test_a_thousand_nested_variants_are_a_bad_stub() -> None:
    # Written by hand: what each one adds is the same, and the first is shorter.
    level = "00000000 05000000 00000000 0c40 0000 0000 0000 0c400000 04000200 08000200"
    with pytest.raises(BadStub, match="nested"):
        unpacked(VARIANT, octets("00000200", level * 1000))


def test_arrays_of_variants_nest_no_deeper_either() -> None:
    variant = Variant(VT.I4, 7)
    for _ in range(40):
        variant = Variant(VT.ARRAY | VT.VARIANT, SafeArray.of(VT.VARIANT, [variant]))
    with pytest.raises(BadStub, match="nested"):
        unpacked(VARIANT, packed(VARIANT, variant))


# SAFEARRAY
# --------------------------------------------------------------------------------------------------


def array(
    vt: int,
    *,
    dims: int = 1,
    announced: int | None = None,
    features: int = 0x0080,
    size: int = 1,
    locks: int | None = None,
    form: int = 0x10,
    total: int = 3,
    pointer: int = 0x2000C,
    bounds: list[tuple[int, int]] | None = None,
    count: int | None = None,
    elements: bytes = b"abc",
) -> bytes:
    """A VARIANT with a SAFEARRAY, as MS-OAUT 2.2.30.10 has it unless told otherwise."""
    bounds = [(total, 0)] if bounds is None else bounds
    head = struct.pack("<IHHIII", dims if announced is None else announced, dims, features, size, 0, form)
    head = head[:12] + struct.pack("<I", vt << 16 if locks is None else locks) + head[16:]
    return (
        octets(POINTER, "09000000 00000000")
        + struct.pack("<HHHHI", VT.ARRAY | vt, 0, 0, 0, VT.ARRAY)
        + octets("04000200", "08000200")
        + head
        + struct.pack("<II", total, pointer)
        + b"".join(struct.pack("<Ii", *bound) for bound in bounds)
        + struct.pack("<I", total if count is None else count)
        + elements
    )


@pytest.mark.spec("MQAC-2.2.1-5")
def test_a_byte_array_as_octets() -> None:
    """Vt 0x2011: SF_I1, cbElements 1, FADF_HAVEVARTYPE 0x0080 and high word of cLocks 0x0011."""
    assert packed(VARIANT, Variant(VT.ARRAY | VT.UI1, b"abc")) == octets(
        *(POINTER, "09000000 00000000", "1120 0000 0000 0000", "00200000", "04000200", "08000200"),
        *("01000000", "0100", "8000", "01000000", "00001100", "10000000", "03000000", "0c000200"),
        *("03000000 00000000", "03000000", "616263"),
    )
    assert array(VT.UI1) == packed(VARIANT, Variant(VT.ARRAY | VT.UI1, b"abc"))
    assert unpacked(VARIANT, array(VT.UI1)).value == b"abc"


@pytest.mark.spec("MQAC-2.2.1-6")
def test_a_string_array_as_octets() -> None:
    """Vt 0x2008: sfType SF_BSTR 8 and FADF_BSTR 0x0100; zero strings marshal without a fault."""
    head = "04000200 08000200 01000000 0100 8001 04000000 00000800 08000000"
    one = Variant(VT.ARRAY | VT.BSTR, SafeArray.of(VT.BSTR, ["a"]))
    assert packed(VARIANT, one) == octets(
        *(POINTER, "0b000000 00000000", "0820 0000 0000 0000", "00200000", head, "01000000", "0c000200"),
        *("01000000 00000000", "01000000", "10000200", "01000000 02000000 01000000 6100"),
    )
    none = Variant(VT.ARRAY | VT.BSTR, SafeArray.of(VT.BSTR, []))
    assert packed(VARIANT, none) == octets(
        *(POINTER, "09000000 00000000", "0820 0000 0000 0000", "00200000", head, "00000000", "0c000200"),
        *("00000000 00000000", "00000000"),
    )
    assert unpacked(VARIANT, packed(VARIANT, none)) == none


def test_bounds_are_in_reverse_order() -> None:
    """MS-OAUT 2.2.30.10: bounds are stored in reverse order.

    For an array [0:5][0:2][0:10] the bounds would be (10, 0), (2, 0), (5, 0).
    """
    made = SafeArray(VT.UI1, bytes(100), ((5, 0), (2, 0), (10, 0)))
    data = packed(VARIANT, Variant(VT.ARRAY | VT.UI1, made))
    assert struct.pack("<IiIiIi", 10, 0, 2, 0, 5, 0) in data
    assert unpacked(VARIANT, data).value == made


def test_hypers_are_aligned_behind_their_count() -> None:
    data = packed(VARIANT, Variant(VT.ARRAY | VT.I8, SafeArray.of(VT.I8, [-1])))
    # The pointer, the VARIANT and the array's head are 72 octets, its count 4.
    assert data[72:] == octets("01000000", "00000000", "ffffffffffffffff")


def test_what_other_writers_may_do_differently() -> None:
    """Without FADF_HAVEVARTYPE only the VARIANT states the type.

    The low word of cLocks and some features have no meaning.
    """
    assert unpacked(VARIANT, array(VT.UI1, features=0, locks=0)).value == b"abc"
    assert unpacked(VARIANT, array(VT.UI1, features=0x0097, locks=0x0011_0007)).value == b"abc"
    assert unpacked(VARIANT, array(VT.UI1, total=0, pointer=0, elements=b"")[:-4]).value == b""
    # VB counts from 1 if asked to: octets are octets.
    assert unpacked(VARIANT, array(VT.UI1, bounds=[(3, 1)])).value == b"abc"


def test_arrays_with_an_interface_of_their_own() -> None:
    """SF_HAVEIID: the IID of the elements stands behind the pointer."""
    plain = packed(VARIANT, Variant(VT.ARRAY | VT.DISPATCH, SafeArray.of(VT.DISPATCH, [REFERENCE])))
    wanted = struct.pack("<HHIIIII", 1, 0x0440, 4, 0, 0x800D, 1, 0x2000C)
    iid = packed(guid, IID_IDISPATCH)
    assert unpacked(VARIANT, plain[:40] + wanted + iid + plain[64:]).value == SafeArray.of(VT.DISPATCH, [REFERENCE])


@pytest.mark.parametrize(
    "data",
    [
        array(VT.UI1, dims=0, bounds=[]),
        array(VT.UI1, announced=2),
        array(VT.UI1, dims=2, bounds=[(3, 0)]),
        array(VT.UI1, dims=MAX_DIMENSIONS + 1, bounds=[(1, 0)] * (MAX_DIMENSIONS + 1), total=1, elements=b"a"),
        array(VT.UI1, dims=0xFFFF, announced=0xFFFF),
        # What a signed count would take for negative, and what multiplied is so.
        array(VT.UI1, total=0xFFFF_FFFF),
        array(VT.UI1, total=0xFFFF_FFFF, count=3),
        array(VT.UI1, total=0x8000_0000, bounds=[(0x8000_0000, -0x8000_0000)]),
        array(VT.UI1, dims=2, bounds=[(0x10000, 0), (0x10000, 0)], total=0, elements=b""),
        array(VT.UI1, dims=2, bounds=[(0x8000_0001, 0), (3, 0)], total=3),
        array(VT.UI1, bounds=[(2, 0)]),
        array(VT.UI1, bounds=[(3, 0x7FFF_FFFE)]),
        array(VT.UI1, count=2),
        array(VT.UI1, pointer=0),
        # Form, features, size and type do not go together.
        array(VT.UI1, form=0x02),
        array(VT.UI1, form=0x0A),
        array(VT.UI1, form=0),
        array(VT.UI1, size=2),
        array(VT.UI1, locks=0x0002_0000),
        array(VT.UI1, locks=0x7FFF_0000),
        array(VT.I2),
        array(VT.BSTR),
        array(VT.BSTR, form=8, features=0x0080),
        array(VT.BSTR, form=8, features=0),
        array(VT.VARIANT, form=0xC, features=0x0080),
        array(VT.RECORD, form=0x24, features=0x0020, total=3),
        array(VT.DECIMAL, form=0xE, size=16),
        array(VT.EMPTY, form=0),
        array(VT.NULL, form=1),
    ],
)
def test_a_bad_array_is_a_bad_stub(data: bytes) -> None:
    with pytest.raises(BadStub):
        unpacked(VARIANT, data)


def test_as_many_dimensions_as_there_may_be() -> None:
    data = array(VT.UI1, dims=MAX_DIMENSIONS, bounds=[(1, 0)] * MAX_DIMENSIONS, total=1, elements=b"a")
    assert unpacked(VARIANT, data).value.elements == b"a"


def test_elements_that_point_are_bounded_in_number() -> None:
    strings = SafeArray.of(VT.BSTR, [None] * MAX_REQUEST_ELEMENTS)
    assert unpacked(VARIANT, packed(VARIANT, Variant(VT.ARRAY | VT.BSTR, strings))).value == strings
    more = SafeArray.of(VT.BSTR, [None] * (MAX_REQUEST_ELEMENTS + 1))
    with pytest.raises(BadStub, match="too many"):
        unpacked(VARIANT, packed(VARIANT, Variant(VT.ARRAY | VT.BSTR, more)))


# DISPPARAMS and EXCEPINFO
# --------------------------------------------------------------------------------------------


def test_no_arguments_are_two_null_pointers() -> None:
    assert packed(DISPPARAMS, DispParams.of(())) == bytes(16)
    assert unpacked(DISPPARAMS, bytes(16)) == DispParams.of(())


def test_excep_info_is_read_again() -> None:
    info = ExcepInfo(bstr_source="MSMQQueue", bstr_description="closed", scode=MQ_ERROR_INVALID_HANDLE)
    assert unpacked(EXCEPINFO, packed(EXCEPINFO, info)) == info


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<IIII", 0, 0, 1, 0),
        struct.pack("<IIII", 0, 0, 0, 1),
        struct.pack("<IIIII", 1, 0, 0xFFFF_FFFF, 0, 0xFFFF_FFFF),
        struct.pack("<IIIII", 1, 0, 2, 0, 1) + bytes(4),
        struct.pack("<IIIII", 0, 1, 0, 0x7FFF_FFFF, 0x7FFF_FFFF),
    ],
)
def test_bad_disp_params_are_a_bad_stub(data: bytes) -> None:
    with pytest.raises(BadStub):
        unpacked(DISPPARAMS, data)


# Anything
# --------------------------------------------------------------------------------------------------


def integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)


texts = st.none() | st.text(max_size=8)
plain: dict[int, st.SearchStrategy[Any]] = {
    VT.I1: integers(8, signed=True),
    VT.UI1: integers(8, signed=False),
    VT.I2: integers(16, signed=True),
    VT.UI2: integers(16, signed=False),
    VT.I4: integers(32, signed=True),
    VT.UI4: integers(32, signed=False),
    VT.I8: integers(64, signed=True),
    VT.UI8: integers(64, signed=False),
    VT.INT: integers(32, signed=True),
    VT.UINT: integers(32, signed=False),
    VT.ERROR: integers(32, signed=False),
    VT.CY: integers(64, signed=True),
    VT.BOOL: st.booleans(),
    VT.R4: st.floats(width=32, allow_nan=False),
    VT.R8: st.floats(allow_nan=False),
    VT.DATE: st.floats(allow_nan=False),
    VT.BSTR: texts,
}
scalars = st.one_of([st.builds(Variant, st.just(vt), values) for vt, values in plain.items()])
arrays = st.one_of(
    [
        st.builds(Variant, st.just(VT.ARRAY | vt), st.builds(SafeArray.of, st.just(vt), st.lists(values, max_size=4)))
        for vt, values in plain.items()
        if vt != VT.UI1
    ]
    + [st.builds(Variant, st.just(VT.ARRAY | VT.UI1), st.binary(max_size=9))]
)
variants = st.recursive(
    scalars | arrays | st.just(EMPTY) | st.just(NULL),
    lambda inner: (
        st.builds(Variant, st.just(VT.BYREF | VT.VARIANT), inner)
        | st.builds(
            Variant,
            st.just(VT.ARRAY | VT.VARIANT),
            st.builds(SafeArray.of, st.just(VT.VARIANT), st.lists(inner, max_size=3)),
        )
    ),
    max_leaves=8,
)


@given(variants)
def test_any_variant_is_read_again(variant: Variant) -> None:
    assert unpacked(VARIANT, packed(VARIANT, variant)) == variant


@given(variants, st.data())
def test_a_damaged_variant_is_read_or_a_bad_stub(variant: Variant, data: st.DataObject) -> None:
    octets = bytearray(packed(VARIANT, variant))
    for _ in range(data.draw(st.integers(1, 4))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(
            st.sampled_from([0, 1, 2, 0x20, 0x40, 0x80, 0xFF])
        )
    decoder = Decoder(bytes(octets), representation(Syntax.NDR20), elements=MAX_REQUEST_ELEMENTS)
    try:
        read = VARIANT.decode(decoder)
    except BadStub:
        return
    assert isinstance(read, Variant)
    assert decoder.position <= len(octets)


@given(st.binary(max_size=200))
def test_any_octets_are_read_or_a_bad_stub(data: bytes) -> None:
    for kind in (VARIANT, BSTR, DISPPARAMS, EXCEPINFO):
        try:
            kind.decode(Decoder(b"\1\0\0\0" + data, representation(Syntax.NDR20)))
        except BadStub:
            continue


def test_types_have_names_for_people() -> None:
    assert type_name(VT.BYREF | VT.ARRAY | VT.UI1) == "VT_BYREF|VT_ARRAY|VT_UI1"
    assert type_name(0x1B) == "0x001b"
    assert repr(Variant(VT.BSTR, "secret")) == "Variant(VT_BSTR)"
    assert "secret" not in repr(SafeArray.of(VT.BSTR, ["secret"]))
    assert math.isclose(Variant(VT.R8, 0.5).value, 0.5)
    assert MISSING.value == DISP_E_PARAMNOTFOUND
