"""The view of a packet, and what it refuses: every row on the structure of UserMessage packets."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lanner.model.enums import Acknowledgements, ConnectionStatus, QueueNameType
from lanner.model.errors import RemoteProtocolError
from lanner.wire import layout as at
from lanner.wire.format_name import PrivateFormatName, PublicFormatName, parse
from lanner.wire.layout import MAX_PACKET_SIZE, MINIMUM_SIZE, locate
from lanner.wire.message import Message
from lanner.wire.session_header import SessionHeader
from lanner.wire.user_message import UserMessage
from tests.wire import srmp_packet
from tests.wire.samples import DIRECT, OTHER, QUEUE, SID, SOURCE, full_packet, make, read_everything

FULL = full_packet()
AT = locate(FULL)
# Without such a request no administration queue is sent.
ASKING: dict[str, Any] = {"acknowledgements_requested": Acknowledgements.POS_ARRIVAL}


def with_size(packet: bytes) -> bytes:
    """Return the packet with the correct PacketSize."""
    return packet[:8] + len(packet).to_bytes(4, "little") + packet[12:]


def patch(packet: bytes, offset: int, data: bytes) -> bytes:
    return packet[:offset] + data + packet[offset + len(data) :]


def set_bits(packet: bytes, bits: int, *, clear: int = 0) -> bytes:
    flags = int.from_bytes(packet[60:64], "little") & ~clear | bits
    return patch(packet, 60, flags.to_bytes(4, "little"))


def refused(packet: bytes, match: str) -> None:
    with pytest.raises(RemoteProtocolError, match=match):
        Message.unpack(packet)
    with pytest.raises(RemoteProtocolError):
        UserMessage.unpack(packet)


class TestLaziness:
    def test_nothing_is_decoded_before_it_is_asked_for(self) -> None:
        message = Message(b"not a packet at all")
        assert message.size == 19
        with pytest.raises(RemoteProtocolError):
            _ = message.label

    def test_the_repr_shows_no_content(self) -> None:
        assert repr(Message(FULL)) == f"<Message {SOURCE}\\7 of {len(FULL)} bytes>"

    def test_a_full_packet_reads_back(self) -> None:
        message = Message.unpack(FULL)
        assert message.body == b"body!"
        assert message.body_offset == FULL.index(b"body!")
        assert message.label == "label"
        assert message.extension == b"ext"
        assert message.administration_queue_format_name == PrivateFormatName(OTHER, 0x12)
        assert message.response_queue_format_name == parse(r"DIRECT=TCP:10.0.0.1\answers")
        assert message.soap_header == "head"
        assert message.soap_body == "soap body"
        assert message.sender_identifier == SID
        assert message.symmetric_key == b"key"
        assert message.signature == b"signature"
        assert message.sender_certificate == b"certificate"
        assert message.authentication_provider_name == "provider"
        assert message.multiple_destination_signature == b"signed"
        assert message.application_deadletter_queue == r".\private$\dead"
        assert message.destination_multi_queue_format_name is not None
        assert [str(name) for name in message.destination_multi_queue_format_name.elements] == [
            r"DIRECT=OS:server\private$\orders",
            f"PUBLIC={QUEUE}",
            f"PRIVATE={OTHER}\\00000009",
            f"DL={QUEUE}",
        ]
        assert not message.uses_default_provider


class TestBaseHeader:
    @pytest.mark.spec("MQMQ-2.2.19.1-1")
    def test_fields_lie_where_the_document_puts_them(self) -> None:
        packet = make(time_to_reach_queue=0x01020304)
        version, _, flags, signature, size, time = struct.unpack("<BBHIII", packet[:16])
        assert (version, signature, size, time) == (0x10, 0x524F494C, len(packet), 0x01020304)
        assert flags == 3
        for value in range(256):
            assert Message.unpack(patch(packet, 1, bytes((value,)))).time_to_reach_queue == 0x01020304
        refused(patch(packet, 0, b"\x11"), "VersionNumber")
        refused(patch(packet, 4, b"LIOS"), "Signature")

    @pytest.mark.spec("MQMQ-2.2.19.1-2")
    def test_flag_bits(self) -> None:
        assert (at.PRIORITY_MASK, at.IN, at.BASE_SH, at.DH, at.TR) == (7, 0x0008, 0x0010, 0x0020, 0x0100)
        packet = make(priority=5)
        for bit in (6, 7, 9, 10, 11, 12, 13, 14, 15):
            noisy = patch(packet, 2, (5 | 1 << bit).to_bytes(2, "little"))
            assert read_everything(Message.unpack(noisy)) == read_everything(Message.unpack(packet))

    @pytest.mark.spec("MQMQ-2.2.20-2")
    def test_an_internal_packet_is_no_user_message(self) -> None:
        refused(patch(make(), 2, b"\x0b"), "IN")

    @pytest.mark.spec("MQMQ-2.2.19.1-4")
    def test_tracing_without_debug_header_is_refused(self) -> None:
        refused(patch(make(), 2, b"\x03\x01"), "TR")
        # DH announces the header, so the packet must hold it.
        refused(patch(make(), 2, b"\x23\x00"), "DebugHeader")

    @pytest.mark.spec("MQMQ-2.2.19.1-5")
    def test_packet_size_does_not_count_a_session_header_that_follows(self) -> None:
        packet = make(body=b"x")
        session = SessionHeader(1, 2, 3, 4, 5, 6).pack()
        on_wire = patch(packet, 2, bytes((packet[2] | 0x10,))) + session
        assert int.from_bytes(on_wire[8:12], "little") == len(on_wire) - 16
        assert Message.unpack(on_wire).packet == packet
        for wrong in (on_wire[:-1], on_wire + b"\0", on_wire[:-16]):
            with pytest.raises(RemoteProtocolError):
                Message.unpack(wrong)
        with pytest.raises(RemoteProtocolError, match="PacketSize"):
            Message.unpack(patch(on_wire, 8, len(on_wire).to_bytes(4, "little")))

    @pytest.mark.spec("MQMQ-2.2.19.1-6")
    def test_packet_size_has_a_limit_and_holds_what_it_must(self) -> None:
        largest = make(body=bytes(MAX_PACKET_SIZE - len(make())))
        assert Message.unpack(largest).size == 0x0040_0000
        # One more group of padding would be legal, were there no limit.
        refused(with_size(largest + bytes(4)), "PacketSize")
        packet = make()
        for size in range(len(packet)):
            with pytest.raises(RemoteProtocolError):
                Message.unpack(with_size(packet[:size].ljust(12, b"\0"))[: max(size, 12)])
            with pytest.raises(RemoteProtocolError):
                Message.unpack(patch(packet, 8, size.to_bytes(4, "little")))
        assert MINIMUM_SIZE == 120


class TestUserHeader:
    @pytest.mark.spec("MQMQ-2.2.19.2-1")
    def test_fields_lie_where_the_document_puts_them(self) -> None:
        packet = make(
            PrivateFormatName(OTHER, 0x11223344),
            time_to_be_received=0x55,
            acknowledgements_requested=Acknowledgements.POS_ARRIVAL,
            administration_queue_format_name=PrivateFormatName(SOURCE, 0x66),
            response_queue_format_name=PrivateFormatName(SOURCE, 0x77),
            connector_type_identifier=QUEUE,
        )
        assert packet[16:32] == SOURCE.bytes_le
        assert packet[32:48] == OTHER.bytes_le
        assert struct.unpack("<III", packet[48:60]) == (0x55, 1_700_000_000, 7)
        # Destination, administration and response queue, ConnectorType.
        assert struct.unpack("<III", packet[64:76]) == (0x11223344, 0x66, 0x77)
        assert packet[76:92] == QUEUE.bytes_le

    @pytest.mark.spec("MQMQ-2.2.19.2-2")
    def test_flag_bits(self) -> None:
        flags = 0x0028_1C00  # as captured, MS-MQQB 4.1.7
        assert flags & at.SH
        assert flags & at.MP
        assert flags >> at.DQ_SHIFT & 7 == 7
        assert (at.DM_SHIFT, at.DQ_SHIFT, at.AQ_SHIFT, at.RQ_SHIFT) == (5, 10, 13, 16)
        bits = (at.JN, at.JP, at.SH, at.TH, at.MP, at.CQ, at.MQ, at.AH, at.HH)
        assert [bit.bit_length() - 1 for bit in bits] == [8, 9, 19, 20, 21, 22, 23, 25, 28]
        assert at.RC_MASK == 0x1F

    @pytest.mark.spec("MQMQ-2.2.19.2-3")
    def test_reserved_bits_are_ignored_and_ah_is_not_sent(self) -> None:
        packet = make(body=b"x")
        for sent in (packet, FULL):
            assert not int.from_bytes(sent[60:64], "little") & (at.AH | 0xED00_0080)
        before = read_everything(Message.unpack(packet))
        for bit in (7, 24, 26, 27, 29, 30, 31):
            assert read_everything(Message.unpack(set_bits(packet, 1 << bit))) == before

    @pytest.mark.spec("MQMQ-2.2.19.2-5")
    def test_a_transactional_message_is_never_express(self) -> None:
        packet = make(transaction=1)
        refused(set_bits(packet, 0, clear=3 << 5), "TH")
        # Bit and header come together or not at all.
        assert Message.unpack(packet).is_transactional
        assert not Message.unpack(make()).is_transactional
        assert len(packet) == len(make()) + 20
        without_bit = Message.unpack(set_bits(packet, 0, clear=at.TH))
        assert without_bit.transaction_identifier is None

    def test_delivery_modes_beyond_recoverable_are_refused(self) -> None:
        refused(set_bits(make(), 2 << 5), "DM")
        refused(set_bits(make(), 3 << 5), "DM")

    @pytest.mark.spec("MQMQ-2.2.20-2")
    def test_a_message_without_properties_header_is_refused(self) -> None:
        refused(set_bits(make(), 0, clear=at.MP), "MP")

    @pytest.mark.spec("MQMQ-2.2.19.2-7")
    def test_a_destination_is_private_public_direct_or_none(self) -> None:
        packet = make(PublicFormatName(QUEUE))
        for code in range(8):
            changed = set_bits(packet, code << 10, clear=7 << 10)
            if code in (1, 2, 4, 6):
                refused(changed, "DQ")
        assert Message.unpack(make()).destination_queue_format_name == DIRECT
        assert Message.unpack(packet).destination_queue_format_name == PublicFormatName(QUEUE)
        private = PrivateFormatName(OTHER, 3)
        assert Message.unpack(make(private)).destination_queue_format_name == private
        # No destination at all: DQ 0 takes no bytes.
        bare = with_size(set_bits(packet[:64] + packet[80:], 0, clear=7 << 10))
        assert Message.unpack(bare).destination_queue_format_name is None

    @pytest.mark.spec("MQMQ-2.2.19.2-8")
    def test_each_administration_type_has_its_layout_and_others_are_refused(self) -> None:
        name = PrivateFormatName(SOURCE, 0x66)
        packet = make(PrivateFormatName(OTHER, 1), administration_queue_format_name=name, **ASKING)
        offset = locate(packet).administration
        layouts = {
            0: (b"", None),
            2: (b"\x66\0\0\0", name),
            3: (b"\x66\0\0\0", PrivateFormatName(OTHER, 0x66)),
            5: (QUEUE.bytes_le, PublicFormatName(QUEUE)),
            6: (QUEUE.bytes_le + b"\x66\0\0\0", PrivateFormatName(QUEUE, 0x66)),
            7: (b"\x0e\0" + "OS:a\\q\0".encode("utf-16-le"), parse(r"DIRECT=OS:a\q")),
        }
        for code in range(8):
            changed = set_bits(packet, code << 13, clear=7 << 13)
            if code not in layouts:
                refused(changed, "AQ")
                continue
            data, expected = layouts[code]
            found = Message.unpack(with_size(changed[:offset] + data + changed[offset + 4 :]))
            assert found.administration_queue_format_name == expected

    @pytest.mark.spec("MQMQ-2.2.19.2-10")
    def test_each_response_type_has_its_layout(self) -> None:
        administration = PrivateFormatName(QUEUE, 0x66)
        packet = make(PrivateFormatName(OTHER, 1), administration_queue_format_name=administration, **ASKING)
        offset = locate(packet).administration + 20
        layouts = {
            0: (b"", None),
            1: (b"", administration),
            2: (b"\x77\0\0\0", PrivateFormatName(SOURCE, 0x77)),
            3: (b"\x77\0\0\0", PrivateFormatName(OTHER, 0x77)),
            4: (b"\x77\0\0\0", PrivateFormatName(QUEUE, 0x77)),
            5: (QUEUE.bytes_le, PublicFormatName(QUEUE)),
            6: (OTHER.bytes_le + b"\x77\0\0\0", PrivateFormatName(OTHER, 0x77)),
            7: (b"\x0e\0" + "OS:a\\q\0".encode("utf-16-le"), parse(r"DIRECT=OS:a\q")),
        }
        for code, (data, expected) in layouts.items():
            changed = with_size(set_bits(packet[:offset] + data + packet[offset:], code << 16))
            message = Message.unpack(changed)
            assert message.response_queue_type is QueueNameType(code)
            assert message.response_queue_format_name == expected

    def test_a_response_queue_beside_a_public_administration_queue_has_no_name(self) -> None:
        packet = make(administration_queue_format_name=PublicFormatName(QUEUE), **ASKING)
        offset = locate(packet).administration + 16
        changed = with_size(set_bits(packet[:offset] + b"\x77\0\0\0" + packet[offset:], 4 << 16))
        assert Message.unpack(changed).response_queue_format_name is None

    @pytest.mark.spec("MQMQ-2.2.18.1.5.2-1", "MQMQ-2.1.2-1")
    @pytest.mark.parametrize("queue", ["q", "qu", "que", "queu"])
    def test_a_direct_name_is_counted_with_its_null_and_padded_to_four(self, queue: str) -> None:
        name = parse(f"DIRECT=OS:a\\{queue}")
        packet = make(name, body=b"x")
        text = f"OS:a\\{queue}\0".encode("utf-16-le")
        assert packet[64:66] == len(text).to_bytes(2, "little")
        assert packet[66 : 66 + len(text)] == text
        padding = -(2 + len(text)) % 4
        properties = locate(packet).properties
        assert properties == 66 + len(text) + padding
        # Padding is not counted and may hold anything.
        noisy = patch(packet, 66 + len(text), b"\xee" * padding)
        assert read_everything(Message.unpack(noisy)) == read_everything(Message.unpack(packet))
        # What follows the padding is found.
        in_transaction = make(name, body=b"x", transaction=5, connector_queue_manager_identifier=OTHER)
        message = Message.unpack(patch(in_transaction, 66 + len(text), b"\xee" * padding))
        assert (message.body, message.connector_queue_manager_identifier) == (b"x", OTHER)

    @pytest.mark.parametrize(
        "text", ["OS:a\\q", "OS:a\\q\0\0", "OS:a\0\\q\0", "\0", "FTP:a\\q\0", "OS:aq\0", "OS:\\q\0", "OS:a\\\0"]
    )
    def test_a_direct_name_that_is_none_is_refused(self, text: str) -> None:
        data = text.encode("utf-16-le")
        packet = make(PublicFormatName(QUEUE))
        field = len(data).to_bytes(2, "little") + data
        field += bytes(-len(field) % 4)
        refused(with_size(set_bits(packet[:64] + field + packet[80:], 7 << 10)), ".")

    def test_an_odd_count_is_refused(self) -> None:
        packet = make()
        refused(patch(packet, 64, (packet[64] - 1).to_bytes(2, "little")), "UTF-16")


class TestTransactionHeader:
    @pytest.mark.spec("MQMQ-2.2.20.5-1", "MQMQ-2.2.20.5-2")
    def test_fields_and_flags_lie_where_the_document_puts_them(self) -> None:
        offset = AT.transaction
        flags, ordinal, stamp, number, previous = struct.unpack("<IIIII", FULL[offset : offset + 20])
        assert flags == 0xABCDE << 4 | 1
        assert (ordinal, stamp, number, previous) == (0, 0, 1, 0)
        assert FULL[offset + 20 : offset + 36] == OTHER.bytes_le
        assert AT.security - offset == 36
        plain = make(transaction=2)
        where = locate(plain)
        assert where.properties - where.transaction == 20
        assert (at.CG, at.FA, at.FM, at.LM, at.ID_SHIFT, at.ID_MASK) == (1, 2, 4, 8, 4, 0xFFFFF)
        noisy = patch(plain, where.transaction, struct.pack("<I", 0xFF00_0000 | 2 << 4 | at.FM))
        message = Message.unpack(noisy)
        assert message.transaction_identifier == 2
        assert message.first_in_transaction
        assert not message.last_in_transaction
        assert not message.final_ack_required


class TestSecurityHeader:
    @pytest.mark.spec("MQMQ-2.2.20.6-1", "MQMQ-2.2.20.6-3")
    def test_items_follow_in_order_each_on_a_boundary(self) -> None:
        offset = AT.security
        sizes = struct.unpack("<HHHHII", FULL[offset : offset + 16])
        provider = b"\x18\0\0\0" + "provider\0".encode("utf-16-le")
        assert sizes[1:] == (28, 3, 9, 11, len(provider))
        items = (SID, b"key", b"signature", b"certificate", provider)
        expected = b"".join(item.ljust(len(item) + 3 & ~3, b"\0") for item in items)
        assert FULL[offset + 16 : AT.properties] == expected
        # A missing item takes no space.
        packet = make(sender_identifier=SID, signature=b"sign")
        where = locate(packet)
        assert packet[where.security + 16 : where.properties] == SID + b"sign"

    @pytest.mark.spec("MQMQ-2.2.20.6-3")
    def test_presence_follows_the_sizes_and_one_of_them_is_not_zero(self) -> None:
        packet = make(sender_identifier=SID)
        offset = locate(packet).security
        assert not packet[offset] & at.AI
        assert Message.unpack(patch(packet, offset, bytes((packet[offset] | at.AI,)))).sender_identifier == SID
        empty = packet[: offset + 2] + bytes(14) + packet[offset + 44 :]
        refused(with_size(patch(empty, offset, b"\0\0")), "every size is 0")

    @pytest.mark.spec("MQMQ-2.2.20.6-2")
    def test_flag_bits(self) -> None:
        assert (at.ST_MASK, at.AU, at.EB, at.DE, at.AI, at.AS_MASK) == (0xF, 0x10, 0x20, 0x40, 0x80, 0xF00)
        packet = make(sender_identifier=SID)
        offset = locate(packet).security
        noisy = patch(packet, offset + 1, b"\xf0")
        assert read_everything(Message.unpack(noisy)) == read_everything(Message.unpack(packet))

    @pytest.mark.spec("MQMQ-2.2.20.6-4")
    def test_a_sender_is_nobody_a_sid_or_a_queue_manager(self) -> None:
        packet = make(sender_identifier=SID)
        offset = locate(packet).security
        for code in range(3, 16):
            refused(patch(packet, offset, bytes((code,))), "ST")
        refused(patch(packet, offset, b"\0"), "SenderIdSize")
        refused(patch(packet, offset, b"\2"), "SenderIdSize")

    def test_a_certificate_of_more_than_64_kilobytes_is_refused(self) -> None:
        packet = make(sender_certificate=bytes(0xFFFC))
        offset = locate(packet).security
        assert len(Message.unpack(packet).sender_certificate) == 0xFFFC
        longer = packet[: offset + 16] + bytes(4) + packet[offset + 16 :]
        refused(with_size(patch(longer, offset + 8, (0x1_0000).to_bytes(4, "little"))), "SenderCertSize")

    @pytest.mark.spec("MQMQ-2.2.20.6-7")
    def test_a_provider_has_a_type_and_a_terminated_name(self) -> None:
        message = Message.unpack(FULL)
        assert (message.authentication_provider_type, message.authentication_provider_name) == (24, "provider")
        end = AT.properties - 2  # the name's terminator, before two bytes of padding
        assert FULL[end - 2 : end] == b"\0\0"
        refused(patch(FULL, end - 2, b"x\0"), "ProviderName")


class TestMessagePropertiesHeader:
    @pytest.mark.spec("MQMQ-2.2.19.3-1")
    def test_fields_lie_where_the_document_puts_them(self) -> None:
        packet = make(
            acknowledgements_requested=0x5,
            label="abc",
            message_class=0x0102,
            correlation_identifier=bytes(range(20)),
            body_type=0x11,
            application_tag=0x22,
            body=b"12345",
            allocation_body_size=0x33,
            privacy_level=0x3,
            hash_algorithm=0x8003,
            encryption_algorithm=0x6602,
            extension=b"xy",
        )
        offset = locate(packet).properties
        assert struct.unpack("<BBH20sIIIIIIII", packet[offset : offset + 56]) == (
            0x5, 4, 0x0102, bytes(range(20)), 0x11, 0x22, 5, 0x33, 0x3, 0x8003, 0x6602, 2,
        )  # fmt: skip
        assert packet[offset + 56 : offset + 64] == "abc\0".encode("utf-16-le")

    @pytest.mark.spec("MQMQ-2.2.19.3-2", "MQMQ-2.2.19.3-5/the exact lengths")
    @pytest.mark.parametrize("size", range(5))
    def test_label_extension_and_body_follow_unpadded_and_the_end_is_padded(self, size: int) -> None:
        packet = make(label="ab", extension=b"E" * 3, body=b"B" * size)
        start = locate(packet).properties + 56
        data = "ab\0".encode("utf-16-le") + b"E" * 3 + b"B" * size
        assert packet[start : start + len(data)] == data
        assert len(packet) == start + len(data) + -len(data) % 4
        noisy = packet[: start + len(data)] + b"\xee" * (-len(data) % 4)
        message = Message.unpack(noisy)
        assert (message.label, message.extension, message.body) == ("ab", b"E" * 3, b"B" * size)

    @pytest.mark.spec("MQMQ-2.2.19.3-3")
    def test_four_bits_ask_for_acknowledgments_and_the_others_are_ignored(self) -> None:
        packet = make()
        offset = locate(packet).properties
        for value in range(256):
            found = Message.unpack(patch(packet, offset, bytes((value,)))).acknowledgements_requested
            assert int(found) == value & 0xF
        assert [Acknowledgements.POS_ARRIVAL, Acknowledgements.POS_RECEIVE] == [0x01, 0x02]
        assert [Acknowledgements.NEG_ARRIVAL, Acknowledgements.NEG_RECEIVE] == [0x04, 0x08]

    @pytest.mark.spec("MQMQ-2.2.19.3-4")
    def test_a_label_has_at_most_250_units_and_ends_with_its_null(self) -> None:
        packet = make(label="x" * 249)
        offset = locate(packet).properties
        assert Message.unpack(packet).label == "x" * 249
        refused(patch(packet, offset + 1, b"\xfb"), "LabelLength")
        refused(patch(packet, offset + 1, b"\xf9"), "Label")
        short = make(label="ab")
        where = locate(short).properties
        refused(patch(short, where + 56, b"\0\0"), "Label")
        refused(patch(short, where + 60, b"x\0"), "Label")
        assert len(make(label="")) == len(make()) == locate(make()).properties + 56

    @pytest.mark.spec("MQMQ-2.2.19.3-5/sizes beyond the packet")
    def test_sizes_beyond_the_packet_are_refused(self) -> None:
        packet = make(body=b"12345678", extension=b"1234")
        offset = locate(packet).properties
        assert Message.unpack(packet).body == b"12345678"
        for field, value in ((32, 9), (32, 0xFFFF_FFFF), (52, 5), (52, 0xFFFF_FFFF)):
            refused(patch(packet, offset + field, value.to_bytes(4, "little")), "MessageBody")
        nothing = Message.unpack(make(body=b"", extension=b""))
        assert (nothing.body, nothing.extension) == (b"", b"")


class TestLaterHeaders:
    @pytest.mark.spec("MQMQ-2.2.20.8-1")
    def test_a_debug_header_has_a_public_queue_or_none(self) -> None:
        packet = make(tracing_queue_identifier=QUEUE)
        offset = locate(packet).debug
        assert Message.unpack(packet).tracing_queue_identifier == QUEUE
        for code in (2, 3):
            refused(patch(packet, offset, bytes((code,))), "QT")
        assert Message.unpack(patch(packet, offset, b"\xfd\xff\xff\xff")).tracing_queue_identifier == QUEUE
        refused(with_size(packet[:-4]), "QueueIdentifier")

    @pytest.mark.spec("MQMQ-2.2.20.7-1")
    def test_soap_header_and_body_are_two_sections_with_their_lengths(self) -> None:
        packet = make(soap_header="ab", soap_body="c")
        offset = locate(packet).soap
        expected = struct.pack("<HHI", 0x0320, 0, 3) + "ab\0".encode("utf-16-le")
        expected += struct.pack("<HHI", 0x0384, 0, 2) + "c\0".encode("utf-16-le")
        assert packet[offset : offset + len(expected)] == expected
        message = Message.unpack(packet)
        assert (message.soap_header, message.soap_body) == ("ab", "c")
        refused(patch(packet, offset, b"\x21"), "HeaderSectionID")
        refused(patch(packet, offset + 14, b"\x85"), "BodySectionID")
        refused(patch(packet, offset + 12, b"d\0"), "SoapHeader.Header")
        refused(patch(packet, offset + 18, b"\xff"), "SoapHeader.Body")
        assert Message.unpack(patch(packet, offset + 2, b"\xff\xff")).soap_header == "ab"
        none = with_size(packet[:offset] + struct.pack("<HHIHHI", 0x0320, 0, 0, 0x0384, 0, 0))
        assert Message.unpack(none).soap_header == Message.unpack(none).soap_body == ""

    @pytest.mark.spec("MQMQ-2.2.20-1")
    def test_headers_stand_in_the_documents_order_and_only_where_announced(self) -> None:
        order = [AT.transaction, AT.security, AT.properties, AT.debug, AT.soap, AT.multi_queue, AT.extension]
        assert order == sorted(order)
        assert 0 not in order
        bits = {"transaction": at.TH, "security": at.SH, "soap": at.HH, "multi_queue": at.MQ}
        full_flags = int.from_bytes(FULL[60:64], "little")
        for name, bit in bits.items():
            assert full_flags & bit
            plain = make()
            assert getattr(locate(plain), name) == 0
            # The bit without the header: what follows is read as that header, and it is not there.
            with pytest.raises(RemoteProtocolError):
                Message.unpack(set_bits(plain, bit | 1 << 5))
        assert FULL[2] & at.DH

    def test_bytes_after_the_last_header_are_no_message_of_ours(self) -> None:
        packet = make(body=b"x")
        for tail in (b"1234", b"\xff" * 12, bytes(40)):
            message = Message.unpack(with_size(packet + tail))
            assert message.body == b"x"
            assert message.application_deadletter_queue == ""
            assert message.extensions is None


def outcome(packet: bytes) -> dict[str, object] | None:
    """Everything a packet says, or None when it is refused; any other exception is a bug."""
    try:
        message = Message.unpack(packet)
    except RemoteProtocolError:
        return None
    return read_everything(message)


def accepted_by_headers(packet: bytes) -> bool:
    try:
        UserMessage.unpack(packet)
    except RemoteProtocolError:
        return False
    return True


WHOLE = pytest.mark.parametrize("full", [FULL, srmp_packet.packet()], ids=["full", "over HTTP"])


class TestHostileBytes:
    """Every truncation and single-field corruption raises RemoteProtocolError or is valid."""

    @WHOLE
    def test_every_truncation_is_refused(self, full: bytes) -> None:
        for size in range(len(full)):
            assert outcome(full[:size]) is None

    @WHOLE
    def test_every_truncation_with_a_fitting_size_field(self, full: bytes) -> None:
        whole = outcome(full)
        assert whole is not None
        for size in range(12, len(full)):
            packet = with_size(full[:size])
            found = outcome(packet)
            assert (found is not None) == accepted_by_headers(packet)
            if found is not None:
                # Only what follows the UserMessage proper, or its last padding, can be missing.
                assert size >= locate(full).extension - 2
                assert found["body"] == whole["body"]

    @WHOLE
    def test_every_byte_changed(self, full: bytes) -> None:
        for offset in range(len(full)):
            for value in {full[offset] ^ 1 << bit for bit in range(8)} | {0, 1, 0x7F, 0x80, 0xFF}:
                packet = patch(full, offset, bytes((value,)))
                assert (outcome(packet) is not None) == accepted_by_headers(packet)

    @settings(max_examples=300)
    @given(st.lists(st.tuples(st.integers(0, len(FULL) - 1), st.integers(0, 255)), min_size=1, max_size=6))
    @example([(60, 0)])
    def test_several_bytes_changed(self, changes: list[tuple[int, int]]) -> None:
        packet = bytearray(FULL)
        for offset, value in changes:
            packet[offset] = value
        assert (outcome(bytes(packet)) is not None) == accepted_by_headers(bytes(packet))

    @given(st.binary(max_size=300))
    def test_noise(self, noise: bytes) -> None:
        outcome(noise)
        packet = with_size(make()[:16] + noise)
        assert (outcome(packet) is not None) == accepted_by_headers(packet)

    @given(st.binary(min_size=1, max_size=200), st.integers(64, len(FULL)))
    def test_bytes_inserted(self, noise: bytes, where: int) -> None:
        packet = with_size(FULL[:where] + noise + FULL[where:])
        assert (outcome(packet) is not None) == accepted_by_headers(packet)


@pytest.mark.spec("MQMQ-2.3.12.25-1")
def test_connection_history_statuses_have_the_documents_numbers() -> None:
    assert {status.name: int(status) for status in ConnectionStatus} == {
        "IN_PROCESS": 0,
        "ESTABLISH_PACKET_RECEIVED": 1,
        "ESTABLISHED": 2,
        "UNKNOWN_FAILURE": 0x8000_0000,
        "PING_FAILURE": 0x8000_0001,
        "SOCKET_CREATE_FAILURE": 0x8000_0002,
        "SOCKET_BIND_FAILURE": 0x8000_0003,
        "SOCKET_CONNECT_FAILURE": 0x8000_0004,
        "TCP_NOT_ENABLED": 0x8000_0005,
        "SOCKET_SEND_FAILURE": 0x8000_0006,
        "CONNECTION_NOT_READY": 0x8000_0007,
        "DNS_FAILURE": 0x8000_0008,
        "CERTIFICATE_VALIDATION_FAILURE": 0x8000_0009,
        "CONNECTION_LIMIT_REACHED": 0x8000_000A,
        "CONNECTION_REFUSED": 0x8000_000B,
        "ROUTING_DATA_NOT_AVAILABLE": 0x8000_000C,
        "LOW_RESOURCE": 0x8000_000D,
    }
