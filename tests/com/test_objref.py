"""Object references (MS-DCOM 2.2.14 to 2.2.19)."""

from __future__ import annotations

import contextlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.com.objref import (
    DUALSTRINGARRAY,
    INTERFACE_POINTER,
    RAW_INTERFACE_POINTER,
    DualStringArray,
    ObjRef,
    ObjRefCustom,
    ObjRefExtended,
    ObjRefHandler,
    ObjRefStandard,
    SecurityBinding,
    StdObjRef,
    StringBinding,
    unpack_objref,
)
from lanner.model.errors import RemoteProtocolError
from lanner.wire.reader import Reader
from tests.com.test_orpc import decode, encode

IID = UUID("00020400-0000-0000-c000-000000000046")
IPID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
STD = StdObjRef(0, 5, 0x1122334455667788, 0x99AABBCCDDEEFF00, IPID)
BINDINGS = DualStringArray((StringBinding.tcp("h", 5), StringBinding(15, "x")), (SecurityBinding(10),))
BINDINGS_OCTETS = bytes.fromhex(
    "0e000a00"  # 14 entries, security from the tenth
    "070068005b0035005d000000"  # ncacn_ip_tcp, h[5]
    "0f0078000000"  # another protocol, x
    "0000"
    "0a00ffff0000"  # NTLM, no principal
    "0000"
)
STANDARD = ObjRefStandard(IID, STD, BINDINGS)
STANDARD_OCTETS = (
    bytes.fromhex(
        "4d454f57010000000004020000000000c000000000000046"  # MEOW, standard, the IID
        "0000000005000000"  # flags, cPublicRefs
        "887766554433221100ffeeddccbbaa99"  # OXID, OID
        "0403020106050807090a0b0c0d0e0f10"
    )
    + BINDINGS_OCTETS
)
FORMS: list[ObjRef] = [
    STANDARD,
    ObjRefHandler(IID, STD, UUID(int=7), BINDINGS),
    ObjRefCustom(IID, UUID(int=8), b"opaque data"),
    ObjRefExtended(IID, STD, BINDINGS, UUID(int=9), b"context"),
]
EMPTY = bytes.fromhex("040002000000000000000000")


def test_a_dual_string_array_as_octets() -> None:
    assert BINDINGS.pack() == BINDINGS_OCTETS
    assert DualStringArray.read(Reader(BINDINGS_OCTETS)) == BINDINGS


def test_the_smallest_dual_string_array_is_the_one_of_the_document() -> None:
    """MS-DCOM 2.2.19.1: wNumEntries 4, wSecurityOffset 2, and four zeros."""
    assert DualStringArray().pack() == EMPTY
    assert DualStringArray.read(Reader(EMPTY)) == DualStringArray()


def test_a_dual_string_array_as_ndr() -> None:
    octets = encode(DUALSTRINGARRAY, BINDINGS)
    # A pointer, the conformance, the two counts, the entries.
    assert octets == bytes.fromhex("000002000e000000") + BINDINGS_OCTETS
    assert decode(DUALSTRINGARRAY, octets) == BINDINGS
    assert decode(DUALSTRINGARRAY, encode(DUALSTRINGARRAY, None)) is None


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1[5000]", "127.0.0.1", 5000),
        ("qm1", "qm1", None),
        ("::1[135]", "::1", 135),
        ("qm1[\\pipe\\x]", "qm1", None),
        ("qm1[123456]", "qm1", None),
        ("qm1[\u0665]", "qm1", None),
        ("", "", None),
    ],
)
def test_the_parts_of_a_string_binding(text: str, host: str, port: int | None) -> None:
    binding = StringBinding(7, text)
    assert (binding.host, binding.port) == (host, port)


def test_a_standard_reference_as_octets() -> None:
    assert STANDARD.pack() == STANDARD_OCTETS
    assert unpack_objref(STANDARD_OCTETS) == STANDARD


@pytest.mark.parametrize("objref", FORMS, ids=lambda one: type(one).__name__)
class TestEveryForm:
    def test_both_ways(self, objref: ObjRef) -> None:
        assert unpack_objref(objref.pack()) == objref

    def test_in_an_interface_pointer(self, objref: ObjRef) -> None:
        octets = encode(INTERFACE_POINTER, objref)
        assert decode(INTERFACE_POINTER, octets) == objref
        assert decode(RAW_INTERFACE_POINTER, octets) == objref.pack()

    def test_every_truncation_is_refused(self, objref: ObjRef) -> None:
        packed = objref.pack()
        # Opaque data may be as short as it likes.
        least = len(packed) - len(objref.object_data) if isinstance(objref, ObjRefCustom) else len(packed)
        for size in range(least):
            with pytest.raises(RemoteProtocolError):
                unpack_objref(packed[:size])


@pytest.mark.parametrize("flags", [0, 3, 5, 16, 0xFFFF_FFFF])
def test_a_form_that_is_none_is_refused(flags: int) -> None:
    packed = bytearray(STANDARD_OCTETS)
    packed[4:8] = flags.to_bytes(4, "little")
    with pytest.raises(RemoteProtocolError):
        unpack_objref(bytes(packed))


def test_another_signature_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        unpack_objref(b"WOEM" + STANDARD_OCTETS[4:])


@pytest.mark.parametrize("where", [0, 2])
def test_counts_of_a_dual_string_array_that_point_beyond_it_are_refused(where: int) -> None:
    packed = bytearray(BINDINGS.pack())
    packed[where : where + 2] = b"\xff\xff"
    with pytest.raises(RemoteProtocolError):
        DualStringArray.read(Reader(bytes(packed)))


@given(st.binary(max_size=200))
def test_whatever_comes_is_a_reference_or_refused(data: bytes) -> None:
    for octets in (data, STANDARD_OCTETS[:8] + data, STANDARD_OCTETS[:64] + data):
        with contextlib.suppress(RemoteProtocolError):
            unpack_objref(octets)


@given(
    st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), max_size=5),
    st.lists(st.integers(1, 0xFFFE), max_size=5),
)
def test_any_bindings_both_ways(hosts: list[str], services: list[int]) -> None:
    bindings = DualStringArray(
        tuple([StringBinding(7, host) for host in hosts]), tuple([SecurityBinding(one, "p") for one in services])
    )
    assert DualStringArray.read(Reader(bindings.pack())) == bindings
    assert decode(DUALSTRINGARRAY, encode(DUALSTRINGARRAY, bindings)) == bindings
