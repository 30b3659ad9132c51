"""Bodies as text and as hexadecimal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.cli.bodies import hex_dump, json_body, preview, text_of

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
    assert json_body(body, body_type)["body_encoding"] in ("text", "base64")
    assert "\n" not in preview(body, body_type)
    assert isinstance(hex_dump(body), str)


def test_a_preview_is_short() -> None:
    assert preview(b"word " * 100, 0) == "word word word word word word word wo..."
    assert preview(bytes(20), 0) == "[00 00 00 00 00 00 00 00 00 00 00 00 ...]"
