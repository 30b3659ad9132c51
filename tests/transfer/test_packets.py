"""UserMessages as they arrive, OrderAcks and FinalAcks.

MS-MQQB 2.2.4, 2.2.5, 3.1.5.1.1 and 3.1.5.1.3.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.enums import INFINITE, MessageClass
from lanner.model.errors import RemoteProtocolError
from lanner.transfer.events import FinalAckReceived, OrderAckReceived, UserMessagesReceived
from lanner.transfer.packets import (
    FinalAckBody,
    OrderAckBody,
    build_order_ack,
    examine,
    is_acknowledgment,
)
from lanner.wire import layout as at
from lanner.wire.builder import set_message_class
from lanner.wire.extension_headers import Extensions
from lanner.wire.format_name import DirectFormatName, FormatName, PrivateFormatName
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.layout import locate
from lanner.wire.message import Message
from lanner.wire.quick_check import NeverSent
from lanner.wire.reader import Reader
from lanner.wire.user_message import UserMessage
from tests.transfer.final_acks import build_final_ack
from tests.transfer.pairs import FRAMES, OURS, THEIRS, message
from tests.wire.samples import SID, full_packet

OWN = THEIRS.bytes_le
SEQUENCE = TxSequenceID(0x0102, 0x0304)
BY_NUMBER = PrivateFormatName(THEIRS, 4)
BY_NAME = DirectFormatName(r"TCP:10.0.0.9\PRIVATE$\order_queue$")
SHAPES = {
    "direct": message(),
    "label": message(label="order"),
    "label that ends in a zero byte's neighbour": message(label="Ā"),
    "empty": message(b""),
    "odd body": message(b"abc", label="x"),
    "extension": message(extension=b"12345"),
    "recoverable": message(recoverable=True),
    "transactional": message(transaction=7),
    "sender": message(sender_identifier=SID, label="order"),
    "transactional with sender": message(transaction=7, sender_identifier=SID, recoverable=True),
    "private": message(destination=PrivateFormatName(THEIRS, 9)),
    "full": full_packet(),
    "captured": FRAMES[7],
}


def verdict(packet: bytes) -> str:
    """Return whether `Message.unpack` accepts a packet whose BaseHeader passed framing.

    A packet with headers that are never sent counts as refused.
    """
    try:
        Message.unpack(packet)
        located = locate(packet)
        if located.end < len(packet):
            Extensions.unpack_all(Reader(packet, located.end))
    except RemoteProtocolError:
        return "refused"
    return "refused" if located.flags & (at.AH | 3 << 26) else "accepted"


def examined(packet: bytes) -> str:
    try:
        examine(packet, OWN)
    except RemoteProtocolError:
        return "refused"
    return "accepted"


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_message_is_accepted(shape: str) -> None:
    assert examine(SHAPES[shape], OWN) is UserMessagesReceived


@pytest.mark.spec("QQB-3.1.5.1.3-1")
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "captured"])
def test_what_is_refused_is_exactly_what_the_structures_forbid(shape: str) -> None:
    """The quick look and the thorough one agree on every single-byte change after the BaseHeader.

    Flag bits one by one; in the body, which has no form, one byte.
    """
    packet = SHAPES[shape]
    body = range(Message(packet).body_offset, Message(packet).body_offset + Message(packet).body_size)
    refused = 0
    for offset in range(16, len(packet)):
        values = {packet[offset] ^ 1 << bit for bit in range(8)} | {0, 0xFF}
        for value in sorted(values)[: 1 if offset in body else None]:
            changed = packet[:offset] + bytes((value,)) + packet[offset + 1 :]
            assert examined(changed) == verdict(changed), (offset, value)
            refused += examined(changed) == "refused"
    assert refused
    # BaseHeader.Flags, but for IN and SH, which framing and the session have dealt with.
    for offset, bit in [(2, 0), (2, 1), (2, 2), (2, 5), (2, 6), (2, 7), *((3, bit) for bit in range(8))]:
        changed = packet[:offset] + bytes((packet[offset] ^ 1 << bit,)) + packet[offset + 1 :]
        assert examined(changed) == verdict(changed), (offset, bit)


@pytest.mark.spec("QQB-3.1.5.1.3-1")
def test_what_is_wrong_by_one_field_alone_is_refused() -> None:
    """A label of 251 characters, in order otherwise; a SecurityHeader with nothing in it."""
    packet = message(b"\0\0" + bytes(100), label="x" * 249)
    offset = Message(packet).body_offset
    packet = packet[: offset - 2] + b"x\0" + packet[offset:]
    length = offset - 500 - 55
    assert packet[length] == 250
    packet = packet[:length] + b"\xfb" + packet[length + 1 :]
    assert (examined(packet), verdict(packet)) == ("refused", "refused")

    packet = message()
    security = 64 + (int.from_bytes(packet[64:66], "little") + 5 & ~3)
    packet = packet[:62] + bytes((packet[62] | 0x08,)) + packet[63:security] + b"\x01" + bytes(15) + packet[security:]
    packet = packet[:8] + len(packet).to_bytes(4, "little") + packet[12:]
    assert (examined(packet), verdict(packet)) == ("refused", "refused")


@pytest.mark.spec("QQB-3.1.5.1.3-1")
@pytest.mark.parametrize("shape", SHAPES)
def test_every_truncation_is_judged_alike(shape: str) -> None:
    """PacketSize matches the data, but the headers inside need more."""
    packet = SHAPES[shape]
    for size in range(120, len(packet)):
        short = packet[:8] + size.to_bytes(4, "little") + packet[12:size]
        assert examined(short) == verdict(short)


@given(st.binary(min_size=120, max_size=300), st.sampled_from(sorted(SHAPES)), st.data())
def test_nothing_but_a_protocol_error_comes_of_noise(noise: bytes, shape: str, data: st.DataObject) -> None:
    front = SHAPES[shape][: data.draw(st.integers(64, 120))]
    packet = (front + noise)[: data.draw(st.integers(120, 300))]
    packet = packet[:8] + len(packet).to_bytes(4, "little") + packet[12:]
    assert examined(packet) == verdict(packet)


@given(st.lists(st.sampled_from([0, 1, 0x41, 0x100, 0xD800, 0xDC00, 0xFF00]), max_size=6))
def test_labels_of_any_characters_are_judged_alike(units: list[int]) -> None:
    label = b"".join(unit.to_bytes(2, "little") for unit in units)
    packet = message(b"", label="x" * (len(units) - 1)) if units else message(b"")
    start = Message(packet).body_offset - len(label)
    changed = packet[:start] + label + packet[start + len(label) :]
    assert examined(changed) == verdict(changed)


# OrderAck


def order_ack(destination: FormatName = BY_NUMBER, number: int = 5) -> bytes:
    return build_order_ack(
        OrderAckBody.of(SEQUENCE, number), source=OURS, ordinal=9, sent_time=0x11223344, destination=destination
    )


@pytest.mark.spec("QQB-2.2.4-1", "QQB-2.2.4-2", "QQB-2.2.4-3", "QQB-2.2.4-4", "QQB-2.2.4.1-1", "QQB-2.2-1")
def test_an_order_ack_byte_by_byte() -> None:
    """2.2.4: each field of an OrderAck.

    BaseHeader.Flags 0, MP and DQ 3 alone, queue 4, "QM Ordering Ack", 0x24 bytes, class 0x00FF,
    VT_EMPTY.
    """
    assert order_ack() == bytes.fromhex(
        # BaseHeader
        "10 00 0000 4c494f52 c0000000 ffffffff"
        # UserHeader: SourceQueueManager, QueueManagerAddress, TimeToBeReceived, SentTime,
        # MessageID, Flags, queue 4
        "11111111222233334444555555555555 aaaaaaaabbbbccccddddeeeeeeeeeeee"
        "ffffffff 44332211 09000000 000c2000 04000000"
        # MessagePropertiesHeader: Flags, LabelLength, MessageClass, CorrelationID
        "00 10 ff00 0000000000000000000000000000000000000000"
        # BodyType, ApplicationTag, MessageSize, AllocationBodySize, PrivacyLevel, algorithms,
        # ExtensionSize
        "00000000 00000000 24000000 24000000 00000000 04800000 01680000 00000000"
        # Label
        "51004d0020004f00720064006500720069006e006700200041006300 6b000000"
        # OrderAck Body: TxSequenceID, TxSequenceNumber, TxPreviousSequenceNumber, Reserved
        "0201000004030000 05000000 04000000 0000000000000000000000000000000000000000".replace(" ", "")
    )


@pytest.mark.spec("QQB-2.2.4-2", "QQB-2.2.4-3")
def test_acknowledgments_by_direct_name() -> None:
    """2.2.4, 2.2.5: DQ 7 and a direct name, whose address is all that says for whom."""
    for packet, flags in ((order_ack(BY_NAME), 7 << 10 | 1 << 21), (final_ack(BY_NAME), 7 << 10 | 1 << 21 | 1 << 5)):
        headers = UserMessage.unpack(packet)
        assert headers.base_header.flags == 0
        assert headers.user_header.flags == flags
        assert headers.user_header.destination_queue == BY_NAME
        assert headers.user_header.queue_manager_address == UUID(int=0)
        assert (headers.transaction_header, headers.security_header, headers.debug_header) == (None, None, None)
        assert not headers.extensions


@pytest.mark.spec("QQB-2.2.4.1-2")
def test_the_previous_number_of_an_order_ack_is_one_less() -> None:
    for number in (1, 2, 0xFFFF_FFFF):
        body = OrderAckBody.of(SEQUENCE, number)
        assert body.pack()[:16] == SEQUENCE.pack() + number.to_bytes(4, "little") + (number - 1).to_bytes(4, "little")
        assert OrderAckBody.from_packet(order_ack(number=number)) == body
    with pytest.raises(ValueError, match="no message 0"):
        OrderAckBody(SEQUENCE, 0, 0).pack()


@pytest.mark.spec("QQB-2.2.4.1-3")
@given(st.binary(min_size=20, max_size=20))
def test_the_reserved_bytes_of_an_order_ack_are_zero_and_ignored(reserved: bytes) -> None:
    packed = OrderAckBody.of(SEQUENCE, 5).pack()
    assert packed[16:] == bytes(20)
    assert OrderAckBody.unpack(Reader(packed[:16] + reserved)) == OrderAckBody.of(SEQUENCE, 5)
    packet = order_ack()
    assert examine(packet[:-20] + reserved, OWN) is OrderAckReceived


@pytest.mark.spec("QQB-3.1.5.1.1-2")
@pytest.mark.parametrize("destination", [BY_NUMBER, BY_NAME, DirectFormatName(r"OS:us\private$\Order_Queue$")])
def test_an_order_ack_is_recognised(destination: FormatName) -> None:
    packet = order_ack(destination)
    assert examine(packet, OWN) is OrderAckReceived
    assert is_acknowledgment(packet)


def altered(packet: bytes, **changes: object) -> bytes:
    headers = UserMessage.unpack(packet)
    base = {name: changes.pop(name) for name in ("flags",) if name in changes}
    user = {name: changes.pop(name) for name in ("queue_manager_address", "destination_queue") if name in changes}
    headers = replace(
        headers,
        base_header=replace(headers.base_header, **base),  # type: ignore[arg-type]
        user_header=replace(headers.user_header, **user),  # type: ignore[arg-type]
        message_properties_header=replace(headers.message_properties_header, **changes),  # type: ignore[arg-type]
    )
    return headers.pack()


@pytest.mark.spec("QQB-3.1.5.1.1-2", "QQB-3.1.5.1.1-4")
@pytest.mark.parametrize(
    "changes",
    [
        {"flags": 1},
        {"destination_queue": 5},
        {"queue_manager_address": OURS},
        {"label": "QM Ordering ack"},
        {"label": ""},
        {"message_body": bytes(35)},
        {"message_body": bytes(37)},
        {"message_class": 0x00FE},
        {"message_class": 0x0100},
        {"message_class": 0x3FFF},
    ],
    ids=str,
)
def test_what_differs_from_an_order_ack_in_anything_is_a_user_message(changes: dict[str, object]) -> None:
    """3.1.5.1.1, each condition separately.

    One for another queue manager is passed on (3.1.1.5).
    """
    assert examine(altered(order_ack(), **changes), OWN) is UserMessagesReceived


def test_order_queue_names_of_other_kinds_are_user_messages() -> None:
    for name in (r"TCP:10.0.0.9\order_queue$", r"TCP:10.0.0.9\private$\order_queue$;sub", r"TCP:10.0.0.9\private$\q"):
        assert examine(order_ack(DirectFormatName(name)), OWN) is UserMessagesReceived


# FinalAck


def final_ack(destination: FormatName = BY_NUMBER, message_class: int = MessageClass.ACK_RECEIVE) -> bytes:
    body = FinalAckBody(SEQUENCE, 7, 4, OURS, 0x0A0B)
    return build_final_ack(body, message_class, source=THEIRS, ordinal=9, sent_time=0x11223344, destination=destination)


def test_a_final_ack_byte_by_byte() -> None:
    """2.2.5: as an OrderAck but for DM, the class and the last 20 bytes of the body."""
    order = order_ack()
    expected = bytearray(order)
    expected[16:32] = THEIRS.bytes_le
    expected[60] |= 0x20
    properties = 68
    expected[properties + 2 : properties + 4] = b"\x00\x40"
    expected[-36:] = bytes.fromhex(
        "0201000004030000 07000000 04000000 11111111222233334444555555555555 0b0a0000".replace(" ", "")
    )
    assert final_ack() == bytes(expected)
    assert FinalAckBody.from_packet(final_ack()) == FinalAckBody(SEQUENCE, 7, 4, OURS, 0x0A0B)


@pytest.mark.spec("QQB-2.2.5.1-2")
@pytest.mark.parametrize(("number", "previous"), [(1, 0), (2, 1), (9, 4)])
def test_a_final_ack_repeats_the_numbers_of_its_message(number: int, previous: int) -> None:
    """3.1.7.17: PreviousTxSequenceNumber as the message has it, also where it bridges a gap."""
    packet = message(
        transaction=3,
        ordinal=77,
        transactional_message_sequence_identifier=SEQUENCE,
        transaction_sequence_number=number,
        transaction_previous_sequence_number=previous,
    )
    body = FinalAckBody.of(packet)
    assert body == FinalAckBody(SEQUENCE, number, previous, OURS, 77)
    assert body.pack()[12:16] == previous.to_bytes(4, "little")
    with pytest.raises(ValueError, match="not transactional"):
        FinalAckBody.of(message())


FINAL_CLASSES = [
    0x4000, 0x8000, 0x8001, 0x8002, 0x8003, 0x8004, 0x8005, 0x8006, 0x8007, 0x8009, 0x800A, 0x800B,
    0xC000, 0xC001, 0xC002, 0xC004,
]  # fmt: skip


@pytest.mark.spec("QQB-2.2.5-3", "QQB-3.1.5.1.1-3")
@pytest.mark.parametrize("message_class", [*FINAL_CLASSES, 0x4001, 0xFFFF], ids=hex)
def test_a_final_ack_of_any_class_from_0x4000_is_recognised(message_class: int) -> None:
    for destination in (BY_NUMBER, BY_NAME):
        packet = final_ack(destination, message_class)
        assert Message(packet).message_class == message_class
        assert Message(packet).time_to_reach_queue == INFINITE
        assert examine(packet, OWN) is FinalAckReceived
        assert is_acknowledgment(packet)


def test_a_final_ack_has_no_class_below_0x4000() -> None:
    with pytest.raises(ValueError, match="0x3fff"):
        final_ack(message_class=0x3FFF)


@pytest.mark.spec("QQB-3.1.5.1.1-3", "QQB-3.1.5.1.1-4")
@pytest.mark.parametrize(
    "changes",
    [{"flags": 3}, {"destination_queue": 5}, {"queue_manager_address": OURS}, {"label": "QM Ordering Nack"}],
    ids=str,
)
def test_what_differs_from_a_final_ack_is_a_user_message(changes: dict[str, object]) -> None:
    assert examine(altered(final_ack(), **changes), OWN) is UserMessagesReceived


def test_a_final_ack_with_another_body_is_malformed() -> None:
    """2.2.5: "MessageSize field MUST be set to 0x00000024"."""
    with pytest.raises(RemoteProtocolError, match=r"MessageSize: 35 of a FinalAck"):
        examine(altered(final_ack(), message_body=bytes(35)), OWN)


@pytest.mark.spec("QQB-3.1.5.1.1-4", "QQB-3.1.5.11-1/not for order_queue$")
@pytest.mark.parametrize("message_class", [*MessageClass])
def test_administration_acks_and_reports_are_user_messages(message_class: int) -> None:
    """3.1.5.1.1 says that the class must be normal.

    Other classes are processed as 3.1.5.8 has it (3.1.5.11).
    """
    packet = set_message_class(message(priority=0, label="QM Ordering Ack"), message_class)
    assert examine(packet, OWN) is UserMessagesReceived
    assert not is_acknowledgment(packet)


@pytest.mark.parametrize("bit", [25, 26, 27])
@pytest.mark.parametrize("shape", ["direct", "private", "full"])
def test_bits_that_announce_what_is_never_sent_here_are_refused(shape: str, bit: int) -> None:
    """AH announces an SRMP envelope, which another parser would read (CVE-2023-21554)."""
    packet = SHAPES[shape]
    flags = int.from_bytes(packet[60:64], "little") | 1 << bit
    with pytest.raises(NeverSent, match=r"UserHeader\.Flags"):
        examine(packet[:60] + flags.to_bytes(4, "little") + packet[64:], OWN)


@pytest.mark.parametrize("tail", [b"\0" * 4, b"more", b"x" * 12, b"\x0c\0\0\0" + bytes(8) + b"more"])
@pytest.mark.parametrize("shape", ["direct", "private"])
def test_bytes_after_the_last_header_are_refused(shape: str, tail: bytes) -> None:
    packet = SHAPES[shape] + tail
    packet = packet[:8] + len(packet).to_bytes(4, "little") + packet[12:]
    with pytest.raises(NeverSent, match="after the last header"):
        examine(packet, OWN)


def test_the_extension_that_we_send_is_accepted() -> None:
    packet = message(application_deadletter_queue=r".\private$\dead", negative_journaling_requested=True)
    assert locate(packet).end < len(packet)
    assert examine(packet, OWN) is UserMessagesReceived
