"""Messages as MS-MQRR hands them out, where no message of this computer shows it."""

from __future__ import annotations

import struct

import pytest

from lanner.model.directory_objects import GUID_NULL
from lanner.wire.builder import MessageProperties, build
from lanner.wire.extension_headers import DeadLetterHeader, Extensions, SubqueueHeader
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from lanner.wire.remote_packet import remote_packet, sections
from tests.wire.samples import full_packet

PACKET = full_packet()


def with_times(time_to_reach_queue: int, sent_time: int) -> bytes:
    packet = bytearray(PACKET)
    struct.pack_into("<I", packet, 12, time_to_reach_queue)
    struct.pack_into("<I", packet, 52, sent_time)
    return bytes(packet)


@pytest.mark.spec("MQRR-2.2.5.1-3")
@pytest.mark.spec("MQRR-2.2.5.1-4")
@pytest.mark.parametrize(
    ("relative", "sent", "absolute"),
    [
        (0xFFFF_FFFF, 1_700_000_000, 0xFFFF_FFFF),
        (60, 1_700_000_000, 1_700_000_060),
        (0xF000_0000, 1_700_000_000, 0xFFFF_FFFF),
    ],
)
def test_a_time_beyond_all_times_is_never(relative: int, sent: int, absolute: int) -> None:
    packet = remote_packet(with_times(relative, sent), SubqueueHeader())
    assert Message(packet).time_to_reach_queue == absolute


@pytest.mark.spec("MQRR-2.2.5.2-2")
@pytest.mark.spec("MQRR-2.2.5.2-3")
@pytest.mark.spec("MQRR-2.2.5.4-1")
@pytest.mark.spec("MQRR-2.2.5.4-2")
def test_a_dead_letter_queue_of_the_application_stands_behind_the_subqueue() -> None:
    packet = remote_packet(PACKET, SubqueueHeader())
    octets = packet[Message(packet).end_of_headers :]
    text = ".\\private$\\dead".encode("utf-16-le") + bytes(2)
    text += bytes(-len(text) % 4)
    assert struct.unpack_from("<IIB", octets) == (12, 176 + 4 + len(text), 0x13)
    assert octets[160:-28] == struct.pack("<I", 4 + len(text)) + text


@pytest.mark.spec("MQRR-2.2.5.2-6")
@pytest.mark.parametrize(
    ("name", "is_invalid"), [(".\\private$\\dead", False), ("no queue", True), ("DIRECT=nonsense", True)]
)
def test_a_dead_letter_queue_that_cannot_be_one(name: str, is_invalid: bool) -> None:
    stored = PACKET[: Message(PACKET).end_of_headers] + Extensions(None, DeadLetterHeader(name)).pack()
    packet = bytearray(stored)
    struct.pack_into("<I", packet, 8, len(packet))
    found = remote_packet(bytes(packet), SubqueueHeader())
    flags = found[Message(found).end_of_headers + 8]
    assert bool(flags & 0x08) is is_invalid


@pytest.mark.spec("MQRR-2.2.5.3-2")
def test_the_class_is_in_bits_1_to_16() -> None:
    header = SubqueueHeader(acknowledgement_class=0xC004)
    assert struct.unpack_from("<I", header.pack(), 4)[0] == 0xC004 << 1


@pytest.mark.spec("MQRR-3.1.4.7-64")
def test_a_packet_without_trailers_has_one_section() -> None:
    destination = parse(r"DIRECT=OS:.\private$\q")
    properties = MessageProperties(body=b"0123456789")
    bare = build(properties, source=GUID_NULL, ordinal=1, sent_time=1, destination=destination)
    message = Message(bare)
    assert message.end_of_properties == len(bare)
    (only,) = sections(bare, 1)
    assert only.octets == bare[: message.body_offset + 1]
    assert only.whole_size == len(bare)
