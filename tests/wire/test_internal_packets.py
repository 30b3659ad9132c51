"""Whole packets that are no UserMessages (MS-MQQB 2.2.2, 2.2.3, 2.2.6)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lanner.model.directory_objects import GUID_NULL
from lanner.wire.base_header import BaseHeader
from lanner.wire.internal_header import (
    ConnectionParametersHeader,
    EstablishConnectionHeader,
    InternalHeader,
    PacketType,
    pack_internal,
)
from lanner.wire.reader import Reader
from lanner.wire.session_header import SessionHeader
from tests.wire.samples import SOURCE

DATA = Path(__file__).parent.parent / "data" / "mqqb_frames.json"
FRAMES = {frame["frame"]: bytes.fromhex(frame["hex"]) for frame in json.loads(DATA.read_text())["frames"]}

PACKETS: dict[PacketType, EstablishConnectionHeader | ConnectionParametersHeader | SessionHeader] = {
    PacketType.ESTABLISH_CONNECTION: EstablishConnectionHeader(SOURCE, GUID_NULL, 1, EstablishConnectionHeader.RE),
    PacketType.CONNECTION_PARAMETERS: ConnectionParametersHeader(1000, 2000),
    PacketType.SESSION_ACK: SessionHeader(1, 2, 3, 4, 5),
}


@pytest.mark.spec("MQMQ-2.2.19.1-8")
@pytest.mark.parametrize("packet_type", PacketType)
@pytest.mark.parametrize("is_refused", [False, True])
def test_time_to_reach_queue_is_infinite(packet_type: PacketType, is_refused: bool) -> None:
    """MS-MQMQ 2.2.19.1: the value outside a UserMessage Packet.

    "When the BaseHeader is not part of a UserMessage Packet, this value MUST be 0xFFFFFFFF".
    """
    packet = pack_internal(InternalHeader.of(packet_type, refused=is_refused), PACKETS[packet_type])
    assert packet[12:16] == b"\xff\xff\xff\xff"
    base = BaseHeader.unpack(Reader(packet))
    assert base.is_internal
    assert base.packet_size == base.stream_size == len(packet)
    assert base.has_session_header is (packet_type is PacketType.SESSION_ACK)


def test_a_session_ack_has_36_bytes() -> None:
    packet = pack_internal(InternalHeader.of(PacketType.SESSION_ACK), PACKETS[PacketType.SESSION_ACK])
    assert len(packet) == 36
    assert packet.hex() == (
        "10001b00 4c494f52 24000000 ffffffff 00000100 01000200 03000000 04000500 40000000".replace(" ", "")
    )


@pytest.mark.parametrize("number", [3, 4, 5, 6])
def test_the_captured_packets(number: int) -> None:
    """MS-MQQB 4.1.

    The reserved octet, which Windows leaves as it finds it, is the only difference.
    """
    reader = Reader(FRAMES[number])
    BaseHeader.unpack(reader)
    internal = InternalHeader.unpack(reader)
    content: EstablishConnectionHeader | ConnectionParametersHeader
    if internal.packet_type is PacketType.ESTABLISH_CONNECTION:
        content = EstablishConnectionHeader.unpack(reader)
    else:
        content = ConnectionParametersHeader.unpack(reader)
    packet = pack_internal(internal, content)
    assert packet[:1] + packet[2:] == FRAMES[number][:1] + FRAMES[number][2:]
