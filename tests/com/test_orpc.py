"""ORPCTHIS and ORPCTHAT (MS-DCOM 2.2.13)."""

from __future__ import annotations

from uuid import UUID

import pytest

from lanner.com.orpc import (
    ORPCTHAT,
    ORPCTHIS,
    OUR_VERSION,
    ComVersion,
    OrpcExtent,
    OrpcExtentArray,
    OrpcThat,
    OrpcThis,
)
from lanner.rpc.ndr import BadStub, Decoder, Encoder, Syntax, Type, Value, representation

CID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
THIS = OrpcThis(ComVersion(5, 7), 0, 0, CID, None)
THIS_OCTETS = bytes.fromhex("05000700 00000000 00000000 04030201 0605 0807 090a0b0c0d0e0f10 00000000".replace(" ", ""))
EXTENT = OrpcExtent.of(UUID(int=3), b"abcde")
LOADED = OrpcThis(ComVersion(5, 6), 0, 0, CID, OrpcExtentArray.of(EXTENT))
LOADED_OCTETS = bytes.fromhex(
    "05000600 00000000 00000000 04030201 0605 0807 090a0b0c0d0e0f10 00000200"  # extensions: a pointer
    "01000000 00000000 04000200"  # one extent, reserved, a pointer to the array
    "02000000 08000200 00000000"  # of two pointers, the second of them NULL
    "08000000 00000000 0000 0000 0000000000000003 05000000 6162636465000000".replace(" ", "")
)


def encode(kind: Type, value: Value) -> bytes:
    encoder = Encoder(representation(Syntax.NDR20))
    kind.encode(encoder, value)
    return encoder.getvalue()


def decode(kind: Type, data: bytes) -> Value:
    return kind.decode(Decoder(data, representation(Syntax.NDR20)))


@pytest.mark.parametrize(("value", "octets"), [(THIS, THIS_OCTETS), (LOADED, LOADED_OCTETS)])
def test_orpcthis_both_ways(value: OrpcThis, octets: bytes) -> None:
    assert encode(ORPCTHIS, value) == octets
    assert decode(ORPCTHIS, octets) == value


def test_orpcthat_both_ways() -> None:
    assert encode(ORPCTHAT, OrpcThat()) == bytes(8)
    assert decode(ORPCTHAT, bytes(8)) == OrpcThat()


@pytest.mark.parametrize("size", range(len(LOADED_OCTETS)))
def test_every_truncation_is_refused(size: int) -> None:
    with pytest.raises(BadStub):
        decode(ORPCTHIS, LOADED_OCTETS[:size])


@pytest.mark.parametrize("size", [0, 9, 16, 0xFFFF_FFFF])
def test_an_extent_whose_size_is_not_the_one_of_its_array_is_refused(size: int) -> None:
    octets = LOADED_OCTETS[:-12] + size.to_bytes(4, "little") + LOADED_OCTETS[-8:]
    with pytest.raises(BadStub):
        decode(ORPCTHIS, octets)


@pytest.mark.parametrize(
    ("version", "is_served"),
    [((5, 1), True), ((5, 6), True), ((5, 7), True), ((5, 8), False), ((4, 7), False), ((6, 0), False)],
)
def test_a_client_of_our_major_version_and_no_higher_minor_one_is_served(
    version: tuple[int, int], is_served: bool
) -> None:
    """MS-DCOM 1.7."""
    assert ComVersion(*version).is_served is is_served


def test_a_new_call_has_our_version_and_no_flags() -> None:
    this = OrpcThis.of(CID)
    assert (this.version, this.flags, this.extensions) == (OUR_VERSION, 0, None)
