from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.errors import RemoteProtocolError
from lanner.wire.reader import Reader, decode_terminated, encode_terminated, guid_from_bytes, guid_to_bytes, padding


def test_numbers_are_little_endian() -> None:
    reader = Reader(bytes(range(1, 16)))
    assert reader.u8("a") == 0x01
    assert reader.u16("b") == 0x0302
    assert reader.u32("c") == 0x07060504
    assert reader.u64("d") == 0x0F0E0D0C0B0A0908
    reader.expect_end("all")


def test_guids_are_in_packet_order() -> None:
    """MS-DTYP 2.3.4.2: the first three parts little-endian, the rest in order."""
    guid = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
    data = bytes.fromhex("0403020106050807090a0b0c0d0e0f10")
    assert Reader(data).guid("g") == guid
    assert guid_to_bytes(guid) == data
    assert guid_from_bytes(data) == guid


def test_nothing_is_read_past_the_end() -> None:
    reader = Reader(b"abcdef", 1, 4)
    assert reader.take(2, "x") == b"bc"
    for size in (2, -1, 1 << 40):
        with pytest.raises(RemoteProtocolError, match="field: "):
            reader.take(size, "field")
    assert reader.remaining == 1
    assert reader.position == 3


def test_a_window_is_closed_at_its_end() -> None:
    reader = Reader(b"abcdef")
    inner = reader.window(4, "inner")
    assert inner.take(4, "x") == b"abcd"
    with pytest.raises(RemoteProtocolError):
        inner.u8("y")
    assert reader.take(2, "z") == b"ef"
    with pytest.raises(RemoteProtocolError):
        reader.window(1, "too much")


def test_a_reader_outside_its_bytes_is_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="window"):
        Reader(b"abc", 2, 5)


def test_alignment_counts_from_the_headers_start() -> None:
    reader = Reader(bytes(20), 3)
    reader.take(5, "x")
    reader.align(4, 3, "x")
    assert reader.position == 11
    reader.take(6, "x")
    with pytest.raises(RemoteProtocolError, match="x padding"):
        Reader(bytes(5), 4).align(8, 3, "x")
    reader.align_or_end(8, 3)
    assert reader.position == 19
    reader.take(1, "x")
    reader.align_or_end(4, 3)
    assert reader.remaining == 0


def test_bytes_left_over_are_reported() -> None:
    with pytest.raises(RemoteProtocolError, match="2 bytes left over"):
        Reader(b"ab").expect_end("structure")


@given(st.text(st.characters(exclude_characters="\0")))
def test_text_of_any_characters_reads_back(text: str) -> None:
    data = encode_terminated(text)
    assert decode_terminated(data, "x") == text
    assert Reader(data + b"rest").text_to_null("x") == text
    assert Reader(data + b"rest").text(len(data), "x") == text


@pytest.mark.parametrize("data", [b"", b"a", b"a\0", b"a\0\0\0b\0", b"\0\0\0\0", b"\0\0\0"])
def test_text_without_its_one_null_at_the_end_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="label"):
        decode_terminated(data, "label")


def test_a_null_is_two_bytes_on_a_character_border() -> None:
    # The zero bytes of U+0100 and U+0061 touch without being a null.
    assert Reader("\u0100a\0".encode("utf-16-le")).text_to_null("x") == "\u0100a"
    assert Reader("a\u0100\0".encode("utf-16-le")).text_to_null("x") == "a\u0100"
    with pytest.raises(RemoteProtocolError, match="no terminating null"):
        Reader("\u6100\u6100".encode("utf-16-le") + b"\0").text_to_null("x")


@given(st.integers(0, 1000), st.sampled_from((2, 4, 8)))
def test_padding_reaches_the_next_boundary(size: int, boundary: int) -> None:
    assert (size + padding(size, boundary)) % boundary == 0
    assert padding(size, boundary) < boundary
