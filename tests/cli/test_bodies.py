"""Bodies as text, as decoded values and as hexadecimal."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.cli.bodies import fields, hex_dump, preview
from lanner.client.bodies import json_body, json_value, text_of
from lanner.wire.body_values import Value
from tests.data.body_values import BODIES, BROKEN, Broken, Sample

VT_BSTR, VT_LPSTR, VT_LPWSTR, VT_ARRAY = 8, 30, 31, 0x1011


@pytest.mark.parametrize(
    ("body", "body_type", "text"),
    [
        ("grüße".encode("utf-16-le"), VT_BSTR, "grüße"),
        ("grüße\0".encode("utf-16-le"), VT_LPWSTR, "grüße"),
        (b"caf\xe9", VT_LPSTR, "café"),
        ("grüße".encode(), 0, "grüße"),
        (b"\xef\xbb\xbf<xml/>", 0, "<xml/>"),
        (b"line\r\n\tnext", 0, "line\r\n\tnext"),
        (b"", 0, ""),
        # Not what the type says, no UTF-8, control characters, an object: bytes.
        (b"odd", VT_BSTR, None),
        (b"\xff\xfe", 0, None),
        (b"a\x00b", 0, None),
        (b"plain", VT_ARRAY, None),
        (b"\x00\x01\x00\x00\x00\xff\xff\xff\xff\x01\x00\x00\x00", 0, None),
    ],
)
def test_the_body_type_and_then_the_bytes_decide_what_is_text(body: bytes, body_type: int, text: str | None) -> None:
    assert text_of(body, body_type) == text


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 1000])
def test_a_dump_shows_the_first_64_bytes(length: int) -> None:
    lines = hex_dump(b"A" * length).splitlines()
    shown = sum(line.count("41 ") for line in lines if line.startswith("00"))
    assert shown == min(length, 64)
    assert (f"... {length} bytes in all; --raw gives them" in lines) == (length > 64)


@given(st.binary(max_size=300), st.sampled_from([0, VT_BSTR, VT_LPSTR, VT_LPWSTR, VT_ARRAY, 77]))
def test_no_body_is_too_strange_to_be_shown(body: bytes, body_type: int) -> None:
    document = json_body(body, body_type)
    assert document["body_encoding"] in ("text", "base64")
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert all("\n" not in value for _, value in fields(body, body_type))
    assert "\n" not in preview(body, body_type)
    assert isinstance(hex_dump(body), str)


def test_a_preview_is_short() -> None:
    assert preview(b"word " * 100, 0) == "word word word word word word word wo..."
    assert preview(bytes(20), 0) == "[00 00 00 00 00 00 00 00 00 00 00 00 ...]"


def test_a_preview_is_the_decoded_value_or_the_name_of_a_class() -> None:
    assert preview(b"\x2a\0\0\0", 3) == "42"
    assert preview(b"\x1b\0\x0e\xc0", 10) == "0xc00e001b"
    assert preview(b"", 1) == "null"
    assert preview(b"<string>two\nlines</string>", 0) == "two lines"
    assert preview(b"<Order><Id>7</Id><Name>pen</Name></Order>", 0) == '{"Id": "7", "Name": "pen"}'
    assert preview(b"<unclosed>", 0) == "<unclosed>"
    stream = bytes.fromhex("0001000000ffffffff01000000000000000601000000")
    assert preview(stream, 768) == "[System.String]"
    assert preview(stream[:17], 768) == "[00 01 00 00 00 ff ff ff ff 01 00 00 ...]"


@pytest.mark.parametrize("sample", BODIES, ids=[f"{each.body_type:#x} {each.name}" for each in BODIES])
def test_every_known_body_is_json(sample: Sample) -> None:
    document = json_body(sample.body, sample.body_type)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert (document["body_kind"], document["body_type_name"]) == (sample.kind, sample.type_name)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2**53, 2**53),
        (2**53 + 1, "9007199254740993"),
        (-(2**53), -(2**53)),
        (-(2**53) - 1, "-9007199254740993"),
        (True, True),
        (0.1, 0.1),
        (math.nan, "NaN"),
        (math.inf, "INF"),
        (-math.inf, "-INF"),
        (Decimal("5.2500"), "5.2500"),
        (Decimal("1E-28"), "0.0000000000000000000000000001"),
        (dt.datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=dt.UTC), "2024-05-06T07:08:09.123456+00:00"),
        (dt.datetime(1899, 12, 30), "1899-12-30T00:00:00"),  # noqa: DTZ001 (a DATE has no zone)
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"\x00\xff", "AP8="),
        ([2**63, None], ["9223372036854775808", None]),
        ({"a": [b"", "x"]}, {"a": ["", "x"]}),
    ],
)
def test_json_holds_every_value_without_loss(value: Value, expected: object) -> None:
    shown = json_value(value)
    assert shown == expected
    assert type(shown) is type(expected)


def test_the_rows_of_a_body_have_its_kind_its_value_and_why_there_is_none() -> None:
    assert fields("hi".encode("utf-16-le"), VT_BSTR) == [("body", "text (VT_BSTR), 4 B")]
    assert fields(b"hi", 0) == [("body", "bytes, 2 B")]
    assert fields(b"hi", VT_ARRAY) == [("body", "bytes (VT_VECTOR|VT_UI1), 2 B")]
    assert fields(b"\xff\xff", 11) == [("body", "boolean (VT_BOOL), 2 B"), ("value", "true")]
    assert fields(b"hi", 77) == [("body", "bytes (type 77), 2 B"), ("not decoded", "body type 0x4d is not known")]
    ((_, name), (_, value)) = fields(b"<%s><b>%s</b></%s>" % (b"a" * 200, b"c" * 200, b"a" * 200), 0)
    assert name == f"xml ({'a' * 97}...), 612 B"
    assert value == '{"b": "' + "c" * 90 + "..."


@pytest.mark.parametrize("sample", BROKEN, ids=[f"{each.body_type:#x} {each.name}" for each in BROKEN])
def test_a_reason_is_one_line(sample: Broken) -> None:
    name, value = fields(sample.body, sample.body_type)[-1]
    assert name == "not decoded"
    assert "\n" not in value
