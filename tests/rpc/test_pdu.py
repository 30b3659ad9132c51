"""PDUs to bytes and back, in both byte orders; every truncation."""

from __future__ import annotations

import struct
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.errors import RemoteProtocolError
from lanner.rpc.pdu import (
    NDR20,
    NDR64,
    NO_SYNTAX,
    PFC_OBJECT_UUID,
    PFC_WHOLE,
    Auth3,
    Bind,
    BindAck,
    BindNak,
    ContextAnswer,
    ContextElement,
    ContextResult,
    Fault,
    Header,
    PacketType,
    Request,
    Response,
    SecTrailer,
    SyntaxId,
    assemble,
    bind_time_features,
    bind_time_features_syntax,
    pack_empty,
)

QMMGMT = SyntaxId(UUID("41208ee0-e970-11d1-9b9e-00e02c064c39"), 1, 0)

# C706 12.6.4.3: a bind for qmmgmt in NDR 2.0 and for bind time features, as a Windows client lays
# it out.
BIND = bytes.fromhex(
    "05000b0310000000740000000200000" "0d016d0160000000002000000"
    "0000010" "0" "e08e204170e9d1119b9e00e02c064c390100000" "0045d888aeb1cc9119fe808002b10486002000000"
    "0100010" "0" "e08e204170e9d1119b9e00e02c064c390100000" "02c1cb76c12984045030000000000000001000000"
)  # fmt: skip
BIND_VALUE = Bind(
    5840,
    5840,
    0,
    (ContextElement(0, QMMGMT, (NDR20,)), ContextElement(1, QMMGMT, (bind_time_features_syntax(3),))),
)

ACK = bytes.fromhex(
    "05000c03100000005400000002000000d016d01612ab4d7c0500323130330000"
    "02000000" "0000000004" "5d888aeb1cc9119fe80800" "2b10486002000000"
    "03000300" "0000000000000000000000000000000000000000"
)  # fmt: skip
ACK_VALUE = BindAck(
    5840,
    5840,
    0x7C4DAB12,
    "2103",
    (
        ContextAnswer(ContextResult.ACCEPTANCE, transfer_syntax=NDR20),
        ContextAnswer(ContextResult.NEGOTIATE_ACK, 3, NO_SYNTAX),
    ),
)

FAULT = bytes.fromhex("0500032310000000200000000700000020000000000000000b00011c00000000")
NAK = bytes.fromhex("05000d031000000018000000010000000000010500000000")


def test_bind_unpack() -> None:
    assert Bind.unpack(BIND, Header.unpack(BIND)) == BIND_VALUE


def test_bind_pack_gives_the_same_bytes() -> None:
    assert BIND_VALUE.pack(PacketType.BIND, PFC_WHOLE, 2) == BIND


def test_bind_ack_unpack() -> None:
    assert BindAck.unpack(ACK, Header.unpack(ACK)) == ACK_VALUE


def test_bind_ack_pack_gives_the_same_bytes() -> None:
    assert ACK_VALUE.pack(PacketType.BIND_ACK, PFC_WHOLE, 2) == ACK


def test_bind_nak_pack_and_unpack() -> None:
    """C706 12.6.4.5: the reason, then the versions that the server supports.

    The PDU is padded to a multiple of four.
    """
    assert BindNak(0).pack(1) == NAK
    assert BindNak.unpack(NAK, Header.unpack(NAK)) == BindNak(0, ((5, 0),))


def test_fault_pack_and_unpack() -> None:
    """MS-RPCE 2.2.2.8: no stub data."""
    fault = Fault(0x1C01000B)
    assert fault.pack(PFC_WHOLE | 0x20, 7) == FAULT
    assert Fault.unpack(FAULT, Header.unpack(FAULT)) == fault


def test_a_trailer_is_found_from_the_end() -> None:
    """MS-RPCE 2.2.2.11: it begins at frag_length - auth_length - 8."""
    trailer = SecTrailer(10, 6, 79231, b"token", 0)
    pdu = Auth3(trailer).pack(PFC_WHOLE, 3)
    assert Auth3.unpack(pdu, Header.unpack(pdu)).trailer == trailer
    padded = pdu[:20] + bytes(4) + pdu[20:22] + b"\x04" + pdu[23:]
    assert Auth3.unpack(padded, Header.unpack(pdu)).trailer == replace(trailer, auth_pad_length=4)
    with pytest.raises(RemoteProtocolError, match="auth_pad_length 5"):
        Auth3.unpack(padded[:26] + b"\x05" + padded[27:], Header.unpack(pdu))


def test_auth3_needs_a_token() -> None:
    """MS-RPCE 2.2.2.10: auth_length MUST be greater than zero."""
    pdu = assemble(PacketType.AUTH3, PFC_WHOLE, 1, bytes(4))
    with pytest.raises(RemoteProtocolError, match="without a token"):
        Auth3.unpack(pdu, Header.unpack(pdu))


def test_request_with_an_object() -> None:
    target = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
    front = Request(4, 1, 9, target).pack_front()
    pdu = assemble(PacketType.REQUEST, PFC_WHOLE | PFC_OBJECT_UUID, 5, front + b"stub")
    found = Request.unpack(pdu, Header.unpack(pdu))
    assert found == Request(4, 1, 9, target, 40)
    assert pdu[found.stub_start :] == b"stub"


def test_response_pack_and_unpack() -> None:
    pdu = assemble(PacketType.RESPONSE, PFC_WHOLE, 5, Response(4, 1).pack_front() + b"stub")
    assert Response.unpack(pdu, Header.unpack(pdu)) == Response(4, 1)


@pytest.mark.parametrize("kind", [PacketType.CO_CANCEL, PacketType.ORPHANED, PacketType.SHUTDOWN])
def test_pdus_of_a_header_only(kind: PacketType) -> None:
    pdu = pack_empty(kind, 77)
    header = Header.unpack(pdu)
    assert (len(pdu), header.packet_type, header.call_id, header.frag_length) == (16, kind, 77, 16)


def big(pdu: bytes) -> bytes:
    """Turn a bind into big-endian: drep says so, and every integer is the other way around."""
    header = struct.unpack_from("<BBBBIHHI", pdu)
    out = struct.pack(">BBBBIHHI", *header[:4], 0, *header[5:])
    out += struct.pack(">HHI", *struct.unpack_from("<HHI", pdu, 16)) + pdu[24:28]
    position = 28
    while position < len(pdu):
        out += struct.pack(">H", *struct.unpack_from("<H", pdu, position)) + pdu[position + 2 : position + 4]
        for start in (position + 4, position + 24):
            out += UUID(bytes_le=pdu[start : start + 16]).bytes
            out += struct.pack(">I", *struct.unpack_from("<I", pdu, start + 16))
        position += 44
    return out


def test_big_endian_binds_are_read() -> None:
    """C706 14.2.5: the receiver makes it right."""
    pdu = big(BIND)
    header = Header.unpack(pdu)
    assert (header.is_little, header.frag_length, header.call_id) == (False, len(BIND), 2)
    assert Bind.unpack(pdu, header) == BIND_VALUE


@pytest.mark.parametrize("size", range(16, len(BIND)))
def test_every_truncation_of_a_bind_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError):
        Bind.unpack(BIND[:size], Header.unpack(BIND))


@pytest.mark.parametrize("size", range(16, len(ACK)))
def test_every_truncation_of_a_bind_ack_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError):
        BindAck.unpack(ACK[:size], Header.unpack(ACK))


@pytest.mark.parametrize("size", range(16))
def test_a_short_header_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError):
        Header.unpack(BIND[:size])


@given(st.binary(min_size=16, max_size=200))
def test_any_bytes_are_a_pdu_or_refused(data: bytes) -> None:
    header = Header.unpack(data)
    for kind in (Bind, BindAck, BindNak, Auth3, Request, Response, Fault):
        try:
            kind.unpack(data, header)
        except RemoteProtocolError:
            continue


def test_bind_time_features_are_no_transfer_syntax() -> None:
    """MS-RPCE 3.3.1.5.3: the prefix 6CB71C2C-9812-4540, version 1.0, then the bitmask."""
    assert bind_time_features(bind_time_features_syntax(3)) == 3
    assert bind_time_features(NDR20) is None
    assert bind_time_features(NDR64) is None
    assert bind_time_features(SyntaxId(bind_time_features_syntax(3).uuid, 2)) is None
