"""The packet of a message that came over HTTP (MS-MQRR 2.2.5.1.2), laid out by hand."""

from __future__ import annotations

import struct

import pytest

from lanner.model.errors import RemoteProtocolError
from lanner.wire.layout import locate
from lanner.wire.message import Message
from lanner.wire.quick_check import NeverSent, check
from lanner.wire.user_message import UserMessage
from tests.wire import srmp_packet
from tests.wire.srmp_packet import BODY, COMPOUND_MESSAGE, ENVELOPE, compound_header, envelope_header, parts


def packet_of(envelope: bytes | None = None, compound: bytes | None = None) -> bytes:
    return b"".join(parts(envelope, compound))


def refused(packet: bytes, match: str) -> None:
    for unpack in (Message.unpack, UserMessage.unpack):
        with pytest.raises(RemoteProtocolError, match=match):
            unpack(packet)


def test_every_header_is_found() -> None:
    packet = srmp_packet.packet()
    front, middle, _ = parts()
    message = Message.unpack(packet)
    assert (message.soap_envelope, message.soap_compound_message) == (ENVELOPE, COMPOUND_MESSAGE)
    assert (message.body, message.body_size) == (BODY, len(BODY))
    assert packet[message.body_offset :].startswith(BODY)
    assert (message.label, message.soap_header, message.soap_body) == (srmp_packet.LABEL, *srmp_packet.SOAP)
    assert str(message.destination_queue_format_name) == "DIRECT=HTTP://machine2/msmq/private$/simpleq"
    assert message.end_of_properties == locate(packet).envelope
    assert len(front) + len(middle) - message.end_of_compound_message in range(4)
    assert message.extensions is not None
    assert message.extensions.subqueue is not None
    assert message.extensions.subqueue.abort_counter == srmp_packet.ABORTS
    headers = UserMessage.unpack(packet)
    assert UserMessage.unpack(headers.pack()) == headers
    assert headers.compound_message_header is not None
    assert headers.compound_message_header.data == COMPOUND_MESSAGE


def test_the_last_header_of_a_packet_needs_no_padding() -> None:
    front, _, _ = parts(has_soap_header=False)
    size = len(front) + len(compound_header())
    packet = front[:8] + struct.pack("<I", size) + front[12:] + compound_header()
    assert len(COMPOUND_MESSAGE) % 4, "otherwise there is nothing to leave out"
    assert Message.unpack(packet).body == BODY
    assert UserMessage.unpack(packet).extensions == b""


@pytest.mark.parametrize("body", [(0, 0), (len(COMPOUND_MESSAGE), 0), (0, len(COMPOUND_MESSAGE)), (1, 5)])
def test_a_body_anywhere_in_the_data(body: tuple[int, int]) -> None:
    size, offset = body
    assert Message.unpack(packet_of(None, compound_header(body=body))).body == COMPOUND_MESSAGE[offset : offset + size]


def test_an_envelope_of_no_characters() -> None:
    assert Message.unpack(packet_of(struct.pack("<HHI", 0, 0, 0))).soap_envelope == ""


@pytest.mark.spec("MQRR-2.2.5.1.2.1-3", "MQRR-2.2.5.1.2.2-4")
@pytest.mark.parametrize(("identifier", "reserved"), [(0, 0), (0xFFFF, 0xFFFF)])
def test_no_identifier_is_checked(identifier: int, reserved: int) -> None:
    envelope = envelope_header(identifier=identifier, reserved=reserved)
    message = Message.unpack(packet_of(envelope, compound_header(identifier=identifier, reserved=reserved)))
    assert (message.soap_envelope, message.body) == (ENVELOPE, BODY)


@pytest.mark.parametrize(
    "body",
    [(len(COMPOUND_MESSAGE) + 1, 0), (1, len(COMPOUND_MESSAGE)), (0xFFFF_FFFF, 1), (1, 0xFFFF_FFFF), (0, 0xFFFF_FFFF)],
)
def test_a_body_outside_the_data_is_refused(body: tuple[int, int]) -> None:
    refused(packet_of(None, compound_header(body=body)), "CompoundMessageHeader.MsgBodySize")


@pytest.mark.parametrize("size", [0x7FFF_FFFF, 0xFFFF_FFFF])
def test_lengths_beyond_the_packet_are_refused(size: int) -> None:
    refused(packet_of(struct.pack("<HHI", 0, 0, size)), "SRMPEnvelopeHeader")
    refused(packet_of(None, compound_header(size=size)), "CompoundMessageHeader")


def test_an_envelope_without_its_null_is_refused() -> None:
    text = "no null.".encode("utf-16-le")
    refused(packet_of(struct.pack("<HHI", 0, 0, len(text) // 2) + text), "SRMPEnvelopeHeader.Data")
    refused(packet_of(envelope_header("two\0nulls")), "SRMPEnvelopeHeader.Data")


def test_no_such_packet_is_taken_from_another_queue_manager() -> None:
    with pytest.raises(NeverSent, match=r"UserHeader\.Flags\.AH"):
        check(srmp_packet.packet())
