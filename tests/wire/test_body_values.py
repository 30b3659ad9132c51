"""Values of bodies: the table of known bodies, and hostile ones."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Sequence
from decimal import Decimal, localcontext

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lanner.wire import binary_formatter, xml_bodies
from lanner.wire.body_values import BodyKind, BodyValue, decode_body
from lanner.wire.vartypes import SCALARS, VT
from tests.data.body_values import BINARY_FORMATTER, BODIES, BROKEN, XML, Broken, Sample

NRBF_HEADER = bytes.fromhex("0001000000ffffffff0100000000000000")
NRBF = 0x300
FLAGS = (0, VT.VECTOR, VT.ARRAY)
BODY_TYPES = sorted({0, NRBF, *(flag | kind for flag in FLAGS for kind in VT)})


def parametrized(samples: Sequence[Sample | Broken]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("sample", samples, ids=[f"{each.body_type:#x} {each.name}" for each in samples])


def refused(body: bytes, reason: str) -> None:
    decoded = decode_body(body, 0)
    assert (decoded.value, decoded.kind) == (body, BodyKind.BYTES)
    assert decoded.reason is not None
    assert reason in decoded.reason


@parametrized(BODIES)
def test_a_body_is_decoded(sample: Sample) -> None:
    decoded = decode_body(sample.body, sample.body_type)
    assert (decoded.kind, decoded.value, decoded.type_name) == (sample.kind, sample.value, sample.type_name)
    assert type(decoded.value) is type(sample.value)
    assert (decoded.reason is None) == (sample.name != "a method call")


@parametrized(BROKEN)
def test_a_body_that_is_not_what_its_type_says_is_bytes_with_the_reason(sample: Broken) -> None:
    decoded = decode_body(sample.body, sample.body_type)
    assert (decoded.kind, decoded.value, decoded.type_name) == (BodyKind.BYTES, sample.body, sample.type_name)
    assert decoded.reason is not None
    assert sample.reason in decoded.reason


def test_every_kind_and_every_type_with_a_value_is_in_the_table() -> None:
    assert {sample.kind for sample in BODIES} == set(BodyKind)
    scalars = SCALARS - {VT.VARIANT, VT.RECORD}
    assert {sample.body_type for sample in BODIES} >= scalars
    names = [sample[:2] for sample in BODIES] + [sample[:2] for sample in BROKEN]
    assert len(set(names)) == len(names)


@parametrized(BODIES)
def test_no_truncation_raises(sample: Sample) -> None:
    for size in range(len(sample.body)):
        decoded = decode_body(sample.body[:size], sample.body_type)
        assert isinstance(decoded, BodyValue)
        if decoded.reason is not None:
            assert decoded.value == sample.body[:size]


@parametrized(XML)
def test_xml_that_is_cut_off_is_bytes(sample: Sample) -> None:
    end = len(sample.body.rstrip(b"\0"))
    for size in range(end):
        assert decode_body(sample.body[:size], 0).kind is BodyKind.BYTES


@parametrized([sample for sample in BODIES if sample.body])
def test_no_changed_byte_raises(sample: Sample) -> None:
    for place in range(len(sample.body)):
        for byte in (0, 0x3C, 0x7F, 0x80, 0xFF):
            body = sample.body[:place] + bytes([byte]) + sample.body[place + 1 :]
            assert isinstance(decode_body(body, sample.body_type), BodyValue)


@given(st.binary(max_size=200), st.one_of(st.sampled_from(BODY_TYPES), st.integers(0, 2**32 - 1)))
def test_no_body_raises(body: bytes, body_type: int) -> None:
    decoded = decode_body(body, body_type)
    if decoded.kind is BodyKind.BYTES or decoded.reason is not None:
        assert decoded.value == body


_NAMES = st.sampled_from(
    ["string", "int", "double", "dateTime", "guid", "base64Binary", "ArrayOfInt", "ArrayOfX", "a", "b"]
)
_LEAVES = st.tuples(_NAMES, st.text(alphabet="019.-+:TZeEaf&;#xA \n<>[]!", max_size=12)).map(
    lambda p: f"<{p[0]}>{p[1]}</{p[0]}>"
)
_DOCUMENTS = st.recursive(
    _LEAVES,
    lambda inner: st.tuples(_NAMES, st.lists(inner, max_size=4)).map(lambda p: f"<{p[0]}>{''.join(p[1])}</{p[0]}>"),
)


@given(_DOCUMENTS)
@example("<a>&#xD800;</a>")
@example("<a>\0</a>")
@example("<?xml version='1.0' encoding='unicode_escape'?><a/>")
@example("<?xml version='1.0' encoding='undefined'?><a/>")
@example("<?xml version='1.0' encoding='zip'?><a/>")
@example("<guid>\u06600112233-4455-6677-8899-aabbccddeeff</guid>")
@example("<dateTime>2024-05-06T07:08:09+99:99</dateTime>")
@example("<base64Binary>\u00a0</base64Binary>")
def test_no_document_raises(document: str) -> None:
    assert decode_body(document.encode(), 0).kind in (BodyKind.XML, BodyKind.BYTES)


@given(st.binary(max_size=120), st.sampled_from(BINARY_FORMATTER))
def test_no_serialization_stream_raises(rest: bytes, sample: Sample) -> None:
    for body in (NRBF_HEADER + rest, sample.body[:30] + rest):
        decoded = decode_body(body, NRBF)
        assert (decoded.kind, decoded.value) == (BodyKind.BINARY_FORMATTER, body)


def test_a_real_that_is_no_number_is_decoded() -> None:
    for body, body_type in (
        (struct.pack("<f", math.nan), 4),
        (struct.pack("<d", math.nan), 5),
        (b"<double>NaN</double>", 0),
    ):
        value = decode_body(body, body_type).value
        assert isinstance(value, float)
        assert math.isnan(value)


@pytest.mark.parametrize(
    ("days", "moment"),
    [
        (-657_434.0, (100, 1, 1)),
        # The last millisecond that there is, and the first.
        (2_958_465.99999999, (9999, 12, 31, 23, 59, 59, 999_000)),
        (-657_434.99999999, (100, 1, 1, 23, 59, 59, 999_000)),
        (1 / 86_400_000, (1899, 12, 30, 0, 0, 0, 1_000)),
        # Half a day before the epoch: the fraction counts from midnight of that day, which is the
        # epoch itself.
        (-0.5, (1899, 12, 30, 12)),
    ],
)
def test_dates_have_milliseconds_from_the_year_100_to_9999(days: float, moment: tuple[int, ...]) -> None:
    decoded = decode_body(struct.pack("<d", days), VT.DATE)
    assert decoded.value == dt.datetime(*moment)  # type: ignore[arg-type]  # noqa: DTZ001 (a DATE has no zone)


@pytest.mark.parametrize("days", [-657_435.0, 2_958_466.0, math.nextafter(2_958_466.0, 0), 5e-324, -1e-9])
def test_dates_out_of_range_are_bytes(days: float) -> None:
    body = struct.pack("<d", days)
    assert decode_body(body, VT.DATE).value == body


@given(st.integers(-(2**63), 2**63 - 1))
def test_currency_does_not_depend_on_the_decimal_context(scaled: int) -> None:
    with localcontext(prec=3):
        value = decode_body(struct.pack("<q", scaled), VT.CY).value
    assert isinstance(value, Decimal)
    with localcontext(prec=40):
        assert value * 10_000 == scaled


def test_the_value_is_not_in_the_repr() -> None:
    assert "secret" not in repr(decode_body(b"secret", VT.LPSTR))


# Hostile XML


BILLION_LAUGHS = (
    b'<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY lol "lol">'
    + b"".join(
        b'<!ENTITY lol%d "%s">' % (n, b"&lol%d;" % (n - 1) * 10 if n > 1 else b"&lol;" * 10) for n in range(1, 10)
    )
    + b"]><lolz>&lol9;</lolz>"
)


@pytest.mark.parametrize(
    "body",
    [
        BILLION_LAUGHS,
        b'<!DOCTYPE a [<!ENTITY b "%s">]><a>%s</a>' % (b"x" * 50_000, b"&b;" * 1000),
        b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
        b'<!DOCTYPE a SYSTEM "http://127.0.0.1:1/a.dtd"><a/>',
        b'<!DOCTYPE a [<!ENTITY % b SYSTEM "http://127.0.0.1:1/a.dtd">%b;]><a/>',
        b"<!DOCTYPE string><string>hi</string>",
    ],
)
def test_a_document_type_is_refused(body: bytes) -> None:
    refused(body, "a document type declaration is refused")


def test_an_inclusion_is_an_element_like_any_other() -> None:
    body = b'<a xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="file:///etc/passwd" parse="text"/></a>'
    assert decode_body(body, 0).value == {"include": {"@href": "file:///etc/passwd", "@parse": "text"}}


def test_depth_is_bounded() -> None:
    limit = xml_bodies.MAX_DEPTH
    value = decode_body(b"<a>" * limit + b"</a>" * limit, 0).value
    for _ in range(limit - 1):
        assert isinstance(value, dict)
        value = value["a"]
    assert value == ""
    refused(b"<a>" * (limit + 1) + b"</a>" * (limit + 1), f"elements nested more than {limit} deep")
    refused(b"<a>" * 1_000_000, "deep")
    refused(b"<ArrayOfX>" * 100_000, "deep")


def test_the_number_of_elements_is_bounded() -> None:
    limit = xml_bodies.MAX_ELEMENTS
    value = decode_body(b"<ArrayOfA>" + b"<A/>" * (limit - 1) + b"</ArrayOfA>", 0).value
    assert isinstance(value, list)
    assert len(value) == limit - 1
    refused(b"<ArrayOfA>" + b"<A/>" * limit + b"</ArrayOfA>", f"more than {limit} elements")
    body = bytes(2 * (limit + 1))
    assert decode_body(body[2:], VT.VECTOR | VT.I2).kind is BodyKind.ARRAY
    assert (
        decode_body(body, VT.VECTOR | VT.I2).reason
        == f"VT_VECTOR|VT_I2: {limit + 1} elements, at most {limit} are read"
    )


def test_the_size_is_bounded() -> None:
    room = xml_bodies.MAX_SIZE - len(b"<string></string>")
    assert decode_body(b"<string>" + b"x" * room + b"</string>", 0).value == "x" * room
    refused(b"<string>" + b"x" * (room + 1) + b"</string>", f"at most {xml_bodies.MAX_SIZE} are read")


def test_names_are_bounded() -> None:
    name = b"a" * xml_bodies.MAX_NAME
    assert decode_body(b"<%s/>" % name, 0).type_name == name.decode()
    assert decode_body(b'<b %s="1"/>' % name, 0).value == {f"@{name.decode()}": "1"}
    for body in (b"<%sa/>" % name, b'<b %sa="1"/>' % name):
        refused(body, "a name of 1025 characters")


@pytest.mark.parametrize("name", ["int", "long", "decimal", "double", "char"])
def test_a_number_of_a_million_digits_is_refused(name: str) -> None:
    refused(f"<{name}>{'9' * 1_000_000}</{name}>".encode(), f"<{name}>: {name}: not a")


# Serialization streams


def test_the_root_must_be_the_first_object() -> None:
    body = NRBF_HEADER + bytes.fromhex("06 02000000 01 61 0b")
    decoded = decode_body(body, NRBF)
    assert (decoded.kind, decoded.type_name) == (BodyKind.BINARY_FORMATTER, None)
    assert decoded.reason == "class name: the first object is 2, the root object 1"


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("06 010000", "ObjectId: 4 bytes wanted, 3 left"),
        ("0b", "record of type 11 where the root object begins"),
        ("00 01000000", "record of type 0 where the root object begins"),
        ("05 01000000 05 612e", "ClassInfo.Name: 5 bytes wanted, 2 left"),
        ("05 01000000 ffffffffff07", "a length of more than five bytes"),
        ("05 01000000 ffffffff07", "2147483647 bytes, at most 16384 are read"),
        ("05 01000000 00", "empty, or characters that no name has"),
        ("05 01000000 03 611b62", "empty, or characters that no name has"),
        ("05 01000000 02 ff61", "invalid start byte at byte 0"),
        ("0f 01000000 00000000 12", "PrimitiveTypeEnum 18"),
        ("07 01000000 06 01000000", "BinaryArray: type 6, rank 1"),
        ("07 01000000 02 00000000", "BinaryArray: type 2, rank 0"),
        ("07 01000000 02 21000000", "BinaryArray: type 2, rank 33"),
        ("07 01000000 02 20000000", "Lengths and LowerBounds: 128 bytes wanted, 0 left"),
        ("07 01000000 00 01000000 00000000 08", "BinaryArray: TypeEnum 8"),
    ],
)
def test_a_class_name_that_cannot_be_read_has_a_reason(rest: str, reason: str) -> None:
    body = NRBF_HEADER + bytes.fromhex(rest)
    decoded = decode_body(body, NRBF)
    assert (decoded.kind, decoded.value, decoded.type_name) == (BodyKind.BINARY_FORMATTER, body, None)
    assert decoded.reason is not None
    assert reason in decoded.reason


def test_libraries_before_the_root_are_bounded() -> None:
    library, root = bytes.fromhex("0c 02000000 01 61"), bytes.fromhex("06 01000000 01 61 0b")
    limit = binary_formatter.MAX_LIBRARIES
    assert decode_body(NRBF_HEADER + library * limit + root, NRBF).type_name == "System.String"
    refused_one = decode_body(NRBF_HEADER + library * (limit + 1) + root, NRBF)
    assert refused_one.reason == f"class name: more than {limit} BinaryLibrary records before the root object"
