"""NDR and NDR64 by their own rules.

Each kind of type makes a round trip in every representation, and is compared with known octets.
"""

from __future__ import annotations

import contextlib
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.rpc.interface import In, InOut, Interface, Method, Out
from lanner.rpc.ndr import (
    NULL_HANDLE,
    Adapted,
    BadStub,
    Conformant,
    ConformantVarying,
    ContextHandle,
    Correlation,
    Decoder,
    Encoder,
    Field,
    FixedArray,
    Full,
    Octets,
    Pointed,
    Reference,
    Related,
    String,
    Struct,
    Syntax,
    Type,
    Union,
    Unique,
    Value,
    Varying,
    boolean,
    char,
    enum16,
    enum32,
    guid,
    i8,
    i16,
    i32,
    i64,
    narrow_string,
    pointed,
    representation,
    u8,
    u16,
    u32,
    u64,
    wchar,
    wide_string,
)
from lanner.rpc.ndr.stream import MAX_POINTER_DEPTH, REPRESENTATIONS, ByteOrder, Representation
from tests.rpc.context_handles import context_handles
from tests.rpc.ndr_outcomes import digests

NDR20 = Syntax.NDR20
NDR64 = Syntax.NDR64


@dataclass(frozen=True, slots=True)
class Tower:
    """A conformant structure (C706 appendix L, twr_t)."""

    tower_length: Annotated[int, u32]
    tower_octet_string: Annotated[bytes, Conformant(u8), Related(size_is="tower_length")]


@dataclass(frozen=True, slots=True)
class Boxed:
    """A structure that ends with a conformant one."""

    number: Annotated[int, u64]
    tower: Annotated[Tower, Struct(Tower)]


@dataclass(frozen=True, slots=True)
class Names:
    """Pointers in an array in a structure, and a varying one at the end."""

    first: Annotated[str | None, Unique(wide_string)]
    both: Annotated[tuple[str | None, ...], FixedArray(Unique(wide_string), 2)]
    last: Annotated[tuple[int, ...], ConformantVarying(u16)]


@dataclass(frozen=True, slots=True)
class Mixed:
    """Every size, in an order that needs gaps."""

    a: Annotated[int, i8]
    b: Annotated[int, i64]
    c: Annotated[int, i16]
    d: Annotated[UUID, guid]
    e: Annotated[bool, boolean]
    f: Annotated[int, i32]
    g: Annotated[bytes, Octets(3)]
    h: Annotated[int, enum16]
    i: Annotated[bytes, ContextHandle("HANDLE")]
    j: Annotated[str, Varying(char, 8, is_string=True)]
    k: Annotated[int, enum32]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A union in the middle, so that what follows it begins anywhere."""

    kind: Annotated[int, u16]
    value: Annotated[Value, Union(u16, {0: None, 1: u8, 2: u64, 3: Unique(wide_string)}), Related(switch_is="kind")]
    after: Annotated[int, u8]
    number: Annotated[int, u32]


@dataclass(frozen=True, slots=True)
class Single:
    """One member."""

    target: Annotated[int, Reference(u16)]


TOWER = Struct(Tower)
BOXED = Struct(Boxed)
NAMES = Struct(Names)
MIXED = Struct(Mixed)
CHOSEN = Struct(Chosen)
SINGLE = Struct(Single)


def encode(kind: Type, value: Value, syntax: Syntax = NDR20, order: ByteOrder = "little", *, at: int = 0) -> bytes:
    """Write a value as if it stood at an octet of a stub."""
    encoder = Encoder(representation(syntax, order))
    encoder.write(bytes(at))
    kind.encode(encoder, value)
    return encoder.getvalue()[at:]


def decode(kind: Type, octets: bytes, syntax: Syntax = NDR20, order: ByteOrder = "little", *, at: int = 0) -> Value:
    decoder = Decoder(bytes(at) + octets, representation(syntax, order))
    decoder.position = at
    value = kind.decode(decoder)
    assert decoder.position == decoder.end
    return value


WIDE = st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), max_size=6)
NARROW = st.text(st.characters(min_codepoint=1, max_codepoint=255), max_size=6)
TOWERS = st.binary(max_size=9).map(lambda octets: Tower(len(octets), octets))
CHOICES = st.one_of(
    st.tuples(st.just(0), st.none()),
    st.tuples(st.just(1), st.integers(0, 255)),
    st.tuples(st.just(2), st.integers(0, (1 << 64) - 1)),
    st.tuples(st.just(3), st.none() | WIDE),
)


def numbers(bits: int, *, signed: bool = False) -> st.SearchStrategy[int]:
    half = 1 << (bits - 1)
    return st.integers(-half, half - 1) if signed else st.integers(0, 2 * half - 1)


KINDS: list[tuple[Type, st.SearchStrategy[Value]]] = [
    (i8, numbers(8, signed=True)),
    (u8, numbers(8)),
    (i16, numbers(16, signed=True)),
    (u16, numbers(16)),
    (i32, numbers(32, signed=True)),
    (u32, numbers(32)),
    (i64, numbers(64, signed=True)),
    (u64, numbers(64)),
    (u32.within(3, 5), st.integers(3, 5)),
    (enum16, numbers(15)),
    (enum32, numbers(31)),
    (boolean, st.booleans()),
    (guid, st.uuids()),
    (ContextHandle("HANDLE"), st.binary(min_size=20, max_size=20)),
    (Octets(5), st.binary(min_size=5, max_size=5)),
    (wide_string, WIDE),
    (narrow_string, NARROW),
    (Varying(char, 7, is_string=True), NARROW),
    (Varying(u16, 4), st.lists(numbers(16), max_size=4).map(tuple)),
    (FixedArray(u8, 3), st.binary(min_size=3, max_size=3)),
    (FixedArray(wchar, 3), st.text("ab\0", min_size=3, max_size=3)),
    (FixedArray(u64, 2), st.tuples(numbers(64), numbers(64))),
    (FixedArray(Unique(u8), 2), st.tuples(st.none() | numbers(8), st.none() | numbers(8))),
    (Conformant(u8), st.binary(max_size=9)),
    (Conformant(char), NARROW),
    (Conformant(wchar), st.text("ab\0\U00010000", max_size=5)),
    (Conformant(i64), st.lists(numbers(64, signed=True), max_size=4).map(tuple)),
    (Conformant(guid), st.lists(st.uuids(), max_size=3).map(tuple)),
    (Conformant(Unique(wide_string)), st.lists(st.none() | WIDE, max_size=3).map(tuple)),
    (Conformant(Unique(TOWER)), st.lists(st.none() | TOWERS, max_size=3).map(tuple)),
    (ConformantVarying(u8), st.binary(max_size=9)),
    (
        ConformantVarying(CHOSEN),
        st.lists(
            st.builds(lambda choice, number: Chosen(choice[0], choice[1], number, number), CHOICES, numbers(8)),
            max_size=3,
        ).map(tuple),
    ),
    (Unique(u64), st.none() | numbers(64)),
    (Full(guid), st.none() | st.uuids()),
    (Reference(wide_string), WIDE),
    (Unique(pointed(Unique(u8))), st.none() | st.builds(Pointed, st.none() | numbers(8))),
    (TOWER, TOWERS),
    (BOXED, st.builds(Boxed, numbers(64), TOWERS)),
    (
        NAMES,
        st.builds(
            Names,
            st.none() | WIDE,
            st.tuples(st.none() | WIDE, st.none() | WIDE),
            st.lists(numbers(16), max_size=3).map(tuple),
        ),
    ),
    (SINGLE, st.builds(Single, numbers(16))),
    (
        MIXED,
        st.builds(
            Mixed,
            numbers(8, signed=True),
            numbers(64, signed=True),
            numbers(16, signed=True),
            st.uuids(),
            st.booleans(),
            numbers(32, signed=True),
            st.binary(min_size=3, max_size=3),
            numbers(15),
            st.binary(min_size=20, max_size=20),
            NARROW,
            numbers(31),
        ),
    ),
    (
        CHOSEN,
        st.builds(
            lambda choice, after, number: Chosen(choice[0], choice[1], after, number), CHOICES, numbers(8), numbers(32)
        ),
    ),
    (Union(enum16, {0: None, 1: u8, 2: u64, 3: Unique(wide_string)}), CHOICES),
    (Adapted(u16, ord, chr), st.characters(max_codepoint=0xFFFF)),
]


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=lambda each: repr(each)[:24] if isinstance(each, Type) else "")
@given(data=st.data(), at=st.integers(0, 8), rep=st.sampled_from(REPRESENTATIONS))
@settings(max_examples=60)
def test_there_and_back(
    kind: Type, values: st.SearchStrategy[Value], data: st.DataObject, at: int, rep: Representation
) -> None:
    """Whatever octet a value begins at; and no part of it is a value."""
    value = data.draw(values)
    octets = encode(kind, value, rep.syntax, rep.byte_order, at=at)
    assert decode(kind, octets, rep.syntax, rep.byte_order, at=at) == value
    cut = data.draw(st.integers(0, len(octets) - 1))
    with pytest.raises((BadStub, AssertionError)):
        decode(kind, octets[:cut], rep.syntax, rep.byte_order, at=at)


@given(
    octets=st.binary(max_size=80),
    kind=st.sampled_from([kind for kind, _ in KINDS]),
    rep=st.sampled_from(REPRESENTATIONS),
)
def test_any_octets_give_a_value_or_a_refusal(octets: bytes, kind: Type, rep: Representation) -> None:
    with contextlib.suppress(BadStub):
        kind.decode(Decoder(octets, rep))


def test_a_conformant_structure_has_its_count_in_front() -> None:
    """C706 14.3.7.1; MS-RPCE 2.2.5.3.4.2. The count has its own alignment, then the structure."""
    assert encode(TOWER, Tower(3, b"abc")) == struct.pack("<II", 3, 3) + b"abc"
    assert encode(TOWER, Tower(3, b"abc"), NDR64) == struct.pack("<QI", 3, 3) + b"abc"
    assert encode(BOXED, Boxed(9, Tower(1, b"a"))) == struct.pack("<IxxxxQI", 1, 9, 1) + b"a"
    with pytest.raises(BadStub, match="max count is 2, its correlated value 3"):
        decode(TOWER, struct.pack("<II", 2, 3) + b"abc")


def test_a_structure_is_aligned_and_in_ndr64_filled_up() -> None:
    """C706 14.3.2; MS-RPCE 2.2.5.3.4.1."""

    @dataclass(frozen=True, slots=True)
    class Pair:
        a: int
        b: int

    pair = Struct(Pair, Field("a", u32), Field("b", u8))
    assert encode(pair, Pair(1, 2), at=1) == struct.pack("<3xIB", 1, 2)
    assert encode(pair, Pair(1, 2), NDR64, at=1) == struct.pack("<3xIB3x", 1, 2)
    array = Conformant(pair)
    assert encode(array, (Pair(1, 2), Pair(3, 4))) == struct.pack("<IIB3xIB", 2, 1, 2, 3, 4)
    assert encode(array, (Pair(1, 2), Pair(3, 4)), NDR64) == struct.pack("<QIB3xIB3x", 2, 1, 2, 3, 4)


def test_what_pointers_point_to_comes_after_the_outermost_construction() -> None:
    """C706 14.3.12.3: referents come in the order of their pointers.

    A referent, with everything that it points to, comes before the next referent.
    """
    octets = encode(Conformant(Unique(pointed(Unique(u8)))), (Pointed(7), None, Pointed(9)))
    assert octets == struct.pack("<4I IBxxxIB", 3, 0x20000, 0, 0x20004, 0x20008, 7, 0x2000C, 9)


def test_a_union_in_ndr_and_in_ndr64() -> None:
    """MS-RPCE 2.2.4.5: without ms_union an arm has its own alignment.

    2.2.5.3.4.4: in NDR64 it has the largest of all.
    """
    assert encode(CHOSEN, Chosen(1, 5, 6, 7)) == struct.pack("<HHBBxxI", 1, 1, 5, 6, 7)
    assert encode(CHOSEN, Chosen(2, 5, 6, 7)) == struct.pack("<HHxxxxQBxxxI", 2, 2, 5, 6, 7)
    assert encode(CHOSEN, Chosen(0, None, 6, 7)) == struct.pack("<HHBxxxI", 0, 0, 6, 7)
    assert encode(CHOSEN, Chosen(1, 5, 6, 7), NDR64) == struct.pack("<H6xH6xBBxxI", 1, 1, 5, 6, 7)


def test_a_union_takes_only_its_tags() -> None:
    kind = Union(u16, {0: None, 1: u8})
    with pytest.raises(BadStub, match="no arm"):
        decode(kind, b"\x02\0\0")
    with pytest.raises(BadStub, match="union tag 1, its correlated value 0"):
        kind.decode(Decoder(b"\x01\0\0", REPRESENTATIONS[0]), Correlation(switch=0))
    with pytest.raises(ValueError, match="selects no arm"):
        encode(kind, (2, None))
    with pytest.raises(ValueError, match="empty arm"):
        encode(kind, (0, 1))


@pytest.mark.parametrize(
    ("counts", "octets"),
    [
        ((1, 0, 1), b"a\0"),  # no terminator
        ((3, 0, 3), b"a\0\0\0\0\0"),  # one inside
        ((0, 0, 0), b""),  # not even a terminator
        ((2, 1, 1), b"\0\0"),  # an offset
        ((1, 0, 2), b"a\0\0\0"),  # more than there is room for
        ((0x80000000, 0, 1), b"\0\0"),  # more room than anything may have
    ],
)
def test_strings_that_are_none(counts: tuple[int, int, int], octets: bytes) -> None:
    """C706 14.3.4; MS-RPCE 3.1.1.5.3.2.1.7, .12, 3.1.1.5.3.2.2.1."""
    with pytest.raises(BadStub):
        decode(wide_string, struct.pack("<3I", *counts) + octets)


def test_a_string_may_have_more_room_than_it_needs() -> None:
    assert decode(wide_string, struct.pack("<3I", 9, 0, 2) + b"a\0\0\0") == "a"


def test_a_lone_surrogate_passes() -> None:
    """MS-RPCE 2.2.4.1.1: wchar_t is an unsigned short; its contents are not checked."""
    octets = struct.pack("<3I", 2, 0, 2) + b"\x00\xd8\0\0"
    assert encode(wide_string, decode(wide_string, octets)) == octets


def test_size_is_of_a_string_is_its_room() -> None:
    kind = String(char)
    encoder = Encoder(REPRESENTATIONS[0])
    kind.encode(encoder, "ab", Correlation(size=10))
    assert encoder.getvalue() == struct.pack("<3I", 10, 0, 3) + b"ab\0"
    assert kind.decode(Decoder(encoder.getvalue(), REPRESENTATIONS[0]), Correlation(size=10)) == "ab"
    with pytest.raises(BadStub, match="max count is 10, its correlated value 9"):
        kind.decode(Decoder(encoder.getvalue(), REPRESENTATIONS[0]), Correlation(size=9))
    with pytest.raises(ValueError, match="3 characters where 2 have room"):
        kind.encode(encoder, "ab", Correlation(size=2))


def test_a_varying_array_keeps_to_its_declaration() -> None:
    kind = Varying(u8, 3)
    assert decode(kind, struct.pack("<II", 0, 2) + b"ab") == b"ab"
    for offset, count in [(1, 2), (0, 4)]:
        with pytest.raises(BadStub):
            decode(kind, struct.pack("<II", offset, count) + b"abcd")
    with pytest.raises(BadStub, match="actual count is 2, its correlated value 3"):
        kind.decode(Decoder(struct.pack("<II", 0, 2) + b"ab", REPRESENTATIONS[0]), Correlation(length=3))
    with pytest.raises(ValueError, match="4 elements where 3 belong"):
        encode(kind, b"abcd")


def test_full_pointers_may_be_aliases() -> None:
    """C706 14.3.10.2: what an identifier points to is there once, however often it appears."""

    @dataclass(frozen=True, slots=True)
    class Trio:
        a: int | None
        b: int | None
        c: int | None

    full = Struct(Trio, Field("a", Full(u16)), Field("b", Full(u16)), Field("c", Full(u16)))
    assert decode(full, struct.pack("<IIIHH", 5, 6, 5, 100, 200)) == Trio(100, 200, 100)
    assert decode(full, struct.pack("<IIIH", 0, 6, 6, 100)) == Trio(None, 100, 100)
    unique = Struct(Trio, Field("a", Unique(u16)), Field("b", Unique(u16)), Field("c", Unique(u16)))
    assert decode(unique, struct.pack("<IIIHHH", 5, 6, 5, 100, 200, 300)) == Trio(100, 200, 300)
    inner = Full(u16)
    loop = Full(pointed(inner))
    with pytest.raises(BadStub, match="points into itself"):
        decode(loop, struct.pack("<II", 5, 5))


def test_a_reference_pointer_is_never_null() -> None:
    """MS-RPCE 2.2.5.3.5.1 for NDR64; in NDR its octets say nothing (C706 14.3.11.1)."""
    assert decode(SINGLE, struct.pack("<IH", 0, 7)) == Single(7)
    with pytest.raises(BadStub, match="NULL"):
        decode(SINGLE, struct.pack("<QH", 0, 7), NDR64)
    with pytest.raises(ValueError, match="NULL"):
        encode(Reference(u16), None)


def test_pointers_nest_only_so_deep() -> None:
    kind: Type = u8
    for _ in range(MAX_POINTER_DEPTH):
        kind = Unique(kind)
    assert decode(kind, struct.pack(f"<{MAX_POINTER_DEPTH}IB", *range(1, MAX_POINTER_DEPTH + 1), 7)) == 7
    with pytest.raises(BadStub, match="nested deeper"):
        decode(Unique(kind), struct.pack(f"<{MAX_POINTER_DEPTH + 1}IB", *range(1, MAX_POINTER_DEPTH + 2), 7))


def test_a_context_handle_is_the_same_handle_in_either_byte_order() -> None:
    handle = struct.pack("<I", 1) + UUID("00112233-4455-6677-8899-aabbccddeeff").bytes_le
    kind = ContextHandle("HANDLE")
    assert encode(kind, handle) == handle
    turned = bytes.fromhex("00000001 00112233 4455 6677 8899 aabbccddeeff")
    assert encode(kind, handle, order="big") == turned
    assert decode(kind, turned, order="big") == handle
    assert kind.default() == NULL_HANDLE == bytes(20)
    with pytest.raises(ValueError, match="19 octets"):
        encode(kind, bytes(19))


def test_values_that_do_not_fit() -> None:
    wrong: list[tuple[Type, Value]] = [
        (u32.within(1, 2), 3),
        (Octets(2), b"abc"),
        (FixedArray(u8, 2), b"abc"),
        (FixedArray(u16, 2), (1,)),
        (wide_string, "a\0"),
    ]
    for kind, value in wrong:
        with pytest.raises(ValueError, match=r"."):
            encode(kind, value)


def test_a_declaration_that_contradicts_itself_is_no_declaration() -> None:
    @dataclass(frozen=True, slots=True)
    class Silent:
        a: int

    with pytest.raises(TypeError, match=r"Silent\.a does not say"):
        Struct(Silent)
    with pytest.raises(TypeError, match="no dataclass"):
        Struct(int)
    with pytest.raises(TypeError, match="not the last member"):
        Struct(Tower, Field("tower_octet_string", Conformant(u8)), Field("tower_length", u32))
    with pytest.raises(TypeError, match="which is no member"):
        Struct(Silent, Field("a", Conformant(u8), Related(size_is="b")))
    with pytest.raises(TypeError, match="not conformant"):
        Union(u16, {0: Conformant(u8)})
    with pytest.raises(TypeError, match="is conformant"):
        Adapted(Conformant(u8), bytes, bytes)
    with pytest.raises(TypeError, match="comes before n"):
        Method(0, "M", In("a", Conformant(u8), size_is="n"), In("n", u32))
    method = Method(1, "M")
    for methods in ([method], [Method(0, "M"), method]):
        with pytest.raises(TypeError, match="in the place of opnum"):
            Interface("i", UUID(int=1), (1, 0), methods)


def test_a_response_may_depend_on_the_request() -> None:
    """MS-RPCE 2.2.4.8 and C706 4.2.22: responses that depend on their requests.

    An [in] parameter gives the size or the switch of an [out] one.
    """
    method = Method(
        0,
        "M",
        In("size", u32),
        In("level", u16),
        InOut("count", u32),
        Out("data", ConformantVarying(u8), size_is="size", length_is="count"),
        Out("info", Union(u16, {1: u32, 2: Unique(wide_string)}), switch_is="level"),
    )
    arguments = {"size": 4, "level": 2, "count": 0}
    results = {"count": 2, "data": b"ab", "info": "text"}
    for rep in REPRESENTATIONS:
        octets = method.encode_response(results, arguments, rep.syntax, rep.byte_order)
        assert method.decode_response(octets, arguments, rep.syntax, rep.byte_order) == results
        for change in ({"size": 5}, {"level": 1}):
            with pytest.raises(BadStub, match="correlated value"):
                method.decode_response(octets, arguments | change, rep.syntax, rep.byte_order)
    assert context_handles(method) == {}


def test_defaults_of_what_only_goes_out() -> None:
    method = Method(
        0,
        "M",
        In("n", u32),
        Out("a", u8),
        Out("b", guid),
        Out("c", boolean),
        Out("d", Unique(wide_string)),
        Out("e", Conformant(u16), size_is="n"),
        Out("f", wide_string),
        Out("g", FixedArray(wchar, 2)),
        Out("h", ConformantVarying(u8)),
        Out("i", SINGLE),
        Out("j", Octets(2)),
    )
    assert method.decode_response(method.encode_response({}, {"n": 2}), {"n": 2}) == {
        "a": 0,
        "b": UUID(int=0),
        "c": False,
        "d": None,
        "e": (0, 0),
        "f": "",
        "g": "\0\0",
        "h": b"",
        "i": Single(0),
        "j": bytes(2),
    }
    with pytest.raises(ValueError, match="no value of its own"):
        Method(0, "M", Out("a", Union(u16, {0: None}))).encode_response({}, {})


def test_every_stub_is_read_and_refused_as_before() -> None:
    """The digests cover 70,000 stubs.

    They come from the interpreter that preceded generated codecs.
    """
    expected = json.loads((Path(__file__).parent.parent / "data" / "ndr_outcomes.json").read_text(encoding="utf-8"))
    assert digests() == expected
