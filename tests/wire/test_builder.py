from __future__ import annotations

import dataclasses
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given

from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import (
    Acknowledgements,
    AuthenticationLevel,
    DeliveryGuarantee,
    EncryptionAlgorithm,
    HashAlgorithm,
    MessageClass,
    MessagePrivacyLevel,
    QueueNameType,
    SenderIdentifierType,
)
from lanner.model.errors import (
    IllegalPropertySize,
    IllegalPropertyValue,
    InsufficientResources,
    LabelTooLong,
    StatusError,
    UnsupportedFormatnameOperation,
)
from lanner.wire import layout as at
from lanner.wire.builder import (
    MAX_ROUTE_COUNT,
    MessageProperties,
    build,
    set_authentication,
    set_route_count,
    set_sequence,
    set_transaction_flags,
)
from lanner.wire.format_name import FormatName, PrivateFormatName, PublicFormatName, parse
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.layout import MAX_PACKET_SIZE
from lanner.wire.message import Message
from lanner.wire.user_message import UserMessage
from tests.wire.samples import (
    DIRECT,
    MULTI,
    OTHER,
    QUEUE,
    SENT_TIME,
    SID,
    SOURCE,
    TRANSACTIONAL,
    full_packet,
    make,
    sendable,
    sent,
)


def user_flags(packet: bytes) -> int:
    return int.from_bytes(packet[60:64], "little")


def base_flags(packet: bytes) -> int:
    return int.from_bytes(packet[2:4], "little")


class TestDefaults:
    @pytest.mark.spec("DMPR-3.1.1.12-14", "DMPR-3.1.7.1.31-1")
    def test_a_message_with_nothing_set_has_the_defaults_of_the_data_model(self) -> None:
        message = Message.unpack(make())
        assert message.tracing_requested is False
        assert message.tracing_queue_identifier == GUID_NULL
        assert message.connector_type_identifier == GUID_NULL
        assert message.response_queue_format_name is None
        assert message.administration_queue_format_name is None
        assert message.response_queue_type is QueueNameType.NONE
        assert message.administration_queue_type is QueueNameType.NONE
        assert (message.application_tag, message.body_type) == (0, 0)
        assert (message.body, message.label, message.extension) == (b"", "", b"")
        assert message.priority == 3
        assert message.delivery_guarantee is DeliveryGuarantee.EXPRESS
        assert message.message_class is MessageClass.NORMAL
        assert message.time_to_reach_queue == 345_600
        assert message.time_to_be_received == 0xFFFF_FFFF
        assert message.acknowledgements_requested is Acknowledgements.NONE
        assert not message.positive_journaling_requested
        assert not message.negative_journaling_requested
        assert message.privacy_level is MessagePrivacyLevel.NONE
        assert message.hash_algorithm is HashAlgorithm.SHA1
        assert message.encryption_algorithm is EncryptionAlgorithm.RC4
        # Headers that are absent: their attributes keep their defaults.
        assert not message.is_transactional
        assert message.transaction_identifier is None
        assert message.transactional_message_sequence_identifier is None
        assert message.transaction_sequence_number == message.transaction_previous_sequence_number == 0
        assert not message.first_in_transaction
        assert not message.last_in_transaction
        assert not message.final_ack_required
        assert message.connector_queue_manager_identifier == GUID_NULL
        assert not message.has_security_header
        assert message.sender_identifier_type is SenderIdentifierType.NONE
        assert message.authentication_level is AuthenticationLevel.NONE
        assert (
            message.sender_identifier == message.sender_certificate == message.symmetric_key == message.signature == b""
        )
        assert (message.authentication_provider_type, message.authentication_provider_name) == (0, "")
        assert message.soap_header == message.soap_body == message.application_deadletter_queue == ""
        assert message.destination_multi_queue_format_name is None
        assert message.multiple_destination_signature == b""

    def test_identity_comes_from_the_arguments(self) -> None:
        message = Message(make(ordinal=42))
        assert message.source_machine_identifier == SOURCE
        assert message.identifier.queue_manager_guid == SOURCE
        assert message.identifier.ordinal == 42
        assert message.identifier.pack() == message.identifier_bytes
        assert message.sent_time == SENT_TIME

    def test_the_repr_of_properties_shows_no_content(self) -> None:
        text = repr(MessageProperties(body=b"secret", label="order", symmetric_key=b"k3y"))
        assert "secret" not in text
        assert "k3y" not in text
        assert "order" in text


class TestLimits:
    @pytest.mark.spec("DMPR-3.1.1.12-16", "MQMQ-2.2.19.3-4")
    def test_a_label_of_249_characters_is_accepted_and_one_of_250_refused(self) -> None:
        packet = make(label="x" * 249)
        message = Message.unpack(packet)
        assert message.label == "x" * 249
        assert packet[message._layout().properties + 1] == 0xFA
        with pytest.raises(LabelTooLong, match="250 characters"):
            make(label="x" * 250)

    def test_a_label_counts_utf_16_units(self) -> None:
        assert Message(make(label="\U0001f985" * 124)).label == "\U0001f985" * 124
        with pytest.raises(LabelTooLong):
            make(label="\U0001f985" * 125)

    @pytest.mark.spec("DMPR-3.1.1.12-10")
    def test_priority_ranges_from_0_to_7_with_default_3(self) -> None:
        assert [Message(make(priority=priority)).priority for priority in range(8)] == list(range(8))
        assert Message(make()).priority == 3
        for priority in (-1, 8, 255):
            with pytest.raises(IllegalPropertyValue, match="priority"):
                make(priority=priority)

    def test_a_packet_of_four_megabytes_is_the_largest(self) -> None:
        room = MAX_PACKET_SIZE - len(make())
        assert len(make(body=bytes(room))) == MAX_PACKET_SIZE
        with pytest.raises(InsufficientResources, match="4194304"):
            make(body=bytes(room + 1))

    def test_a_correlation_identifier_has_20_bytes(self) -> None:
        for size in (0, 19, 21):
            with pytest.raises(IllegalPropertySize):
                make(correlation_identifier=bytes(size))

    @pytest.mark.parametrize(
        "properties",
        [
            {"application_tag": -1},
            {"application_tag": 1 << 32},
            {"message_class": 1 << 16},
            {"time_to_reach_queue": 1 << 32},
            {"time_to_be_received": -1},
            {"acknowledgements_requested": 0x10},
            {"label": "a\0b"},
            {"soap_header": "a\0b"},
            {"application_deadletter_queue": "a\0"},
            {"authentication_provider_name": "a\0b"},
            {"sender_certificate": bytes(0x1_0000)},
            {"signature": bytes(0x1_0000)},
            {"sender_identifier_type": SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER, "sender_identifier": b"short"},
        ],
    )
    def test_a_value_that_the_packet_cannot_carry_is_refused(self, properties: dict[str, Any]) -> None:
        with pytest.raises(StatusError):
            make(**properties)

    def test_a_transaction_number_has_20_bits(self) -> None:
        assert Message(make(transaction=0xF_FFFF)).transaction_identifier == 0xF_FFFF
        with pytest.raises(IllegalPropertyValue):
            make(transaction=0x10_0000)

    def test_the_body_may_be_any_buffer(self) -> None:
        assert make(body=bytearray(b"abc")) == make(body=memoryview(b"abc")) == make(body=b"abc")

    @pytest.mark.parametrize(
        "name",
        [
            f"DL={QUEUE}",
            "MULTICAST=224.1.2.3:1801",
            f"CONNECTOR={QUEUE}",
            f"MACHINE={QUEUE};JOURNAL",
            f"PUBLIC={QUEUE};JOURNAL",
            f"PUBLIC={QUEUE},PUBLIC={OTHER}",
        ],
    )
    def test_a_name_without_packet_form_is_refused(self, name: str) -> None:
        with pytest.raises(UnsupportedFormatnameOperation):
            make(destination=parse(name))
        with pytest.raises(UnsupportedFormatnameOperation):
            make(administration_queue_format_name=parse(name), acknowledgements_requested=Acknowledgements.POS_ARRIVAL)
        with pytest.raises(UnsupportedFormatnameOperation):
            make(response_queue_format_name=parse(name))


class TestPresence:
    @pytest.mark.spec("DMPR-3.1.7.1.30-1")
    def test_transaction_and_multi_queue_headers_are_present_exactly_when_asked_for(self) -> None:
        for transaction in (None, 5):
            for names in (None, parse(f"PUBLIC={QUEUE},PUBLIC={OTHER}")):
                packet = make(transaction=transaction, destination_multi_queue_format_name=names)
                found = UserMessage.unpack(packet)
                assert bool(user_flags(packet) & at.TH) is (transaction is not None)
                assert (found.transaction_header is not None) is (transaction is not None)
                assert bool(user_flags(packet) & at.MQ) is (names is not None)
                assert (found.multi_queue_format_header is not None) is (names is not None)

    @pytest.mark.spec("DMPR-3.1.7.1.30-2")
    @pytest.mark.parametrize(
        "properties",
        [
            {"signature": b"signature"},
            {"privacy_level": MessagePrivacyLevel.BASE, "symmetric_key": b"key"},
            {"sender_identifier": SID},
        ],
    )
    def test_a_security_header_is_present_for_signed_encrypted_and_identified_messages(
        self, properties: dict[str, Any]
    ) -> None:
        packet = make(**properties)
        assert user_flags(packet) & at.SH
        assert UserMessage.unpack(packet).security_header is not None
        assert not user_flags(make()) & at.SH
        assert UserMessage.unpack(make()).security_header is None

    @pytest.mark.spec("DMPR-3.1.7.1.30-3", "MQMQ-2.2.20-2")
    def test_the_properties_header_is_always_there(self) -> None:
        for properties in ({}, {"body": b"x"}, {"label": "x"}, {"extension": b"x"}, {"application_tag": 1}):
            packet = make(**properties)
            assert user_flags(packet) & at.MP
            assert not base_flags(packet) & at.IN
            UserMessage.unpack(packet)

    @pytest.mark.spec("DMPR-3.1.7.1.30-4", "DMPR-3.1.7.1.32-2", "MQMQ-2.2.19.1-4", "MQMQ-2.2.20.8-1")
    def test_a_debug_header_is_present_when_tracing_is_requested_or_its_queue_given(self) -> None:
        for requested in (False, True):
            for queue in (GUID_NULL, QUEUE):
                packet = make(tracing_requested=requested, tracing_queue_identifier=queue)
                message = Message.unpack(packet)
                present = requested or queue != GUID_NULL
                assert bool(base_flags(packet) & at.TR) is requested
                assert bool(base_flags(packet) & at.DH) is present
                assert len(packet) - len(make()) == (0 if not present else 4 if queue == GUID_NULL else 20)
                if present:
                    assert packet[message._layout().debug] & 3 == (queue != GUID_NULL)
                assert message.tracing_queue_identifier == queue
                assert message.tracing_requested is requested
        # Headers may follow it.
        several = parse(f"PUBLIC={QUEUE},PUBLIC={OTHER}")
        packet = make(tracing_queue_identifier=QUEUE, destination_multi_queue_format_name=several)
        assert Message.unpack(packet).tracing_queue_identifier == QUEUE


class TestSerialisation:
    @pytest.mark.spec("DMPR-3.1.7.1.32-1")
    def test_a_transactional_packet_has_priority_0_and_is_recoverable(self) -> None:
        packet = make(transaction=1, priority=6)
        assert base_flags(packet) & 7 == 0
        assert Message(packet).is_recoverable
        # A receiver ignores PR of transactional packets.
        assert Message.unpack(packet[:2] + b"\x06" + packet[3:]).priority == 0
        assert base_flags(make(priority=6)) & 7 == 6

    @pytest.mark.spec("DMPR-3.1.7.1.32-3")
    def test_sizes_are_those_of_the_data(self) -> None:
        packet = make(label="four", body=b"12345", extension=b"123", sender_certificate=b"1234567")
        found = Message(packet)
        offset = found._layout().properties
        assert packet[offset + 1] == 5  # with its terminator
        assert int.from_bytes(packet[offset + 32 : offset + 36], "little") == 5
        assert int.from_bytes(packet[offset + 52 : offset + 56], "little") == 3
        security = found._layout().security
        assert int.from_bytes(packet[security + 8 : security + 12], "little") == 7
        assert int.from_bytes(packet[8:12], "little") == len(packet)
        empty = make()
        assert empty[Message(empty)._layout().properties + 1] == 0

    @pytest.mark.spec("DMPR-3.1.7.1.32-4", "MQMQ-2.2.20.6-2", "MQMQ-2.2.20.6-7")
    def test_security_flags_say_what_the_sender_did(self) -> None:
        signed = UserMessage.unpack(make(signature=b"s" * 64, sender_identifier=SID)).security_header
        assert signed is not None
        assert signed.flags == at.DE | SenderIdentifierType.SID
        assert signed.provider_info == b""
        alternative = UserMessage.unpack(
            make(signature=b"s", authentication_provider_name="csp", authentication_provider_type=24)
        ).security_header
        assert alternative is not None
        assert not alternative.flags & at.DE
        assert alternative.provider_info == b"\x18\0\0\0" + "csp\0".encode("utf-16-le")
        for level in MessagePrivacyLevel:
            packet = make(privacy_level=level, symmetric_key=b"key")
            assert Message(packet).is_body_encrypted is (level is not MessagePrivacyLevel.NONE)
            header = UserMessage.unpack(packet).security_header
            assert header is not None
            assert header.flags & (at.AU | at.AS_MASK) == 0

    @pytest.mark.spec("DMPR-3.1.7.1.32-5", "MQMQ-2.2.19.2-11")
    def test_journaling_connector_and_delivery_have_their_fields(self) -> None:
        for positive in (False, True):
            for negative in (False, True):
                packet = make(positive_journaling_requested=positive, negative_journaling_requested=negative)
                assert bool(user_flags(packet) & 0x200) is positive
                assert bool(user_flags(packet) & 0x100) is negative
        packet = make(connector_type_identifier=QUEUE)
        assert user_flags(packet) & at.CQ
        assert Message.unpack(packet).connector_type_identifier == QUEUE
        assert packet.count(QUEUE.bytes_le) == 1
        assert len(packet) == len(make()) + 16
        assert not user_flags(make()) & at.CQ
        assert user_flags(make(delivery_guarantee=DeliveryGuarantee.RECOVERABLE)) >> 5 & 3 == 1
        assert user_flags(make(delivery_guarantee=DeliveryGuarantee.EXPRESS)) >> 5 & 3 == 0

    @pytest.mark.spec("MQMQ-2.2.19.2-6")
    def test_the_destination_queue_manager_is_named_unless_the_name_is_direct(self) -> None:
        private = Message.unpack(make(destination=PrivateFormatName(OTHER, 4)))
        assert private.destination_queue_type is QueueNameType.PRIVATE_QUEUE_ON_DESTINATION
        assert private.destination_queue_manager_identifier == OTHER
        public = Message.unpack(make(destination=PublicFormatName(QUEUE), destination_queue_manager_identifier=OTHER))
        assert public.destination_queue_type is QueueNameType.PUBLIC_QUEUE
        assert public.destination_queue_manager_identifier == OTHER
        direct = Message.unpack(make(destination_queue_manager_identifier=OTHER))
        assert direct.destination_queue_type is QueueNameType.DIRECT_QUEUE
        assert direct.packet[32:48] == bytes(16)

    @pytest.mark.spec("MQMQ-2.2.19.2-3", "MQMQ-2.2.19.1-2")
    def test_reserved_bits_and_ah_are_sent_clear(self) -> None:
        packet = full_packet()
        assert user_flags(packet) & (1 << 7 | 1 << 24 | 1 << 25 | 3 << 26 | 7 << 29) == 0
        assert base_flags(packet) & ~(7 | at.DH | at.TR) == 0
        # The others say what is there.
        assert UserMessage.unpack(packet).pack() == packet

    @pytest.mark.spec("DMPR-3.1.7.1.31-7", "MQMQ-2.2.19.2-10")
    @pytest.mark.parametrize(
        ("destination", "administration", "response", "codes", "response_size"),
        [
            (DIRECT, None, None, (7, 0, 0), 0),
            (DIRECT, PrivateFormatName(SOURCE, 1), PrivateFormatName(SOURCE, 1), (7, 2, 1), 0),
            (DIRECT, PrivateFormatName(SOURCE, 1), PrivateFormatName(SOURCE, 2), (7, 2, 2), 4),
            (PrivateFormatName(OTHER, 9), PrivateFormatName(OTHER, 1), PrivateFormatName(OTHER, 2), (3, 3, 3), 4),
            (PublicFormatName(QUEUE), PublicFormatName(OTHER), PublicFormatName(QUEUE), (5, 5, 5), 16),
            (DIRECT, PrivateFormatName(OTHER, 1), PrivateFormatName(OTHER, 2), (7, 6, 4), 4),
            (DIRECT, PrivateFormatName(OTHER, 1), PrivateFormatName(QUEUE, 2), (7, 6, 6), 20),
            (DIRECT, DIRECT, parse(r"DIRECT=OS:b\q"), (7, 7, 7), 16),
        ],
    )
    def test_each_type_code_reads_back_as_the_name_it_was_written_for(
        self,
        destination: FormatName,
        administration: FormatName | None,
        response: FormatName | None,
        codes: tuple[int, int, int],
        response_size: int,
    ) -> None:
        asking: dict[str, Any] = {
            "administration_queue_format_name": administration,
            "acknowledgements_requested": Acknowledgements.FULL_RECEIVE,
        }
        packet = make(destination, response_queue_format_name=response, **asking)
        message = Message.unpack(packet)
        assert (
            message.destination_queue_type,
            message.administration_queue_type,
            message.response_queue_type,
        ) == codes
        assert message.destination_queue_format_name == destination
        assert message.administration_queue_format_name == administration
        assert message.response_queue_format_name == response
        assert len(packet) - len(make(destination, **asking)) == response_size

    @pytest.mark.spec("MQMQ-2.2.19.2-9")
    @pytest.mark.parametrize("requested", range(16))
    @pytest.mark.parametrize("name", [None, DIRECT, PrivateFormatName(SOURCE, 1), PublicFormatName(QUEUE)])
    def test_an_administration_queue_is_sent_exactly_when_an_acknowledgment_is_asked_for(
        self, name: FormatName | None, requested: int
    ) -> None:
        """MS-MQMQ 2.2.19.2 AdminQueue.

        Flags without a name are read all the same, as in the captured frame 7.
        """
        packet = make(
            acknowledgements_requested=Acknowledgements(requested),
            administration_queue_format_name=name,
            # The same queue: without the other name it cannot be RQ 1, "same as the administration
            # queue".
            response_queue_format_name=name,
        )
        message = Message.unpack(packet)
        is_sent = bool(requested) and name is not None
        assert bool(message.administration_queue_type) is is_sent
        assert message.administration_queue_format_name == (name if is_sent else None)
        assert (message.response_queue_type == 1) is is_sent
        assert message.response_queue_format_name == name
        assert message.acknowledgements_requested == requested

    @pytest.mark.spec("DMPR-3.1.7.1.31-7", "MQMQ-2.2.20.6-4")
    def test_sender_identifier_types(self) -> None:
        anonymous = Message.unpack(
            make(sender_identifier_type=SenderIdentifierType.NONE, sender_identifier=SID, signature=b"s")
        )
        assert anonymous.sender_identifier_type is SenderIdentifierType.NONE
        assert anonymous.sender_identifier == b""
        user = Message.unpack(make(sender_identifier=SID))
        assert user.sender_identifier_type is SenderIdentifierType.SID
        assert user.sender_identifier == SID
        manager = Message.unpack(
            make(
                sender_identifier_type=SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER,
                sender_identifier=SOURCE.bytes_le,
            )
        )
        assert manager.sender_identifier_type is SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER
        assert manager.sender_identifier == SOURCE.bytes_le

    @pytest.mark.spec("DMPR-3.1.1.12-4", "DMPR-3.1.7.1.31-4", "MQMQ-2.2.18.1.6-1")
    def test_message_classes_map_both_ways_and_unknown_ones_pass(self) -> None:
        codes = {
            0x0000: MessageClass.NORMAL,
            0x0001: MessageClass.REPORT,
            0x0002: MessageClass.ACK_REACH_QUEUE,
            0x00FF: MessageClass.ORDER_ACK,
            0x4000: MessageClass.ACK_RECEIVE,
            0x8000: MessageClass.NACK_BAD_DEST_QUEUE,
            0x8001: MessageClass.NACK_PURGED,
            0x8002: MessageClass.NACK_REACH_QUEUE_TIMEOUT,
            0x8003: MessageClass.NACK_QUEUE_EXCEED_QUOTA,
            0x8004: MessageClass.NACK_ACCESS_DENIED,
            0x8005: MessageClass.NACK_HOP_COUNT_EXCEEDED,
            0x8006: MessageClass.NACK_BAD_SIGNATURE,
            0x8007: MessageClass.NACK_BAD_ENCRYPTION,
            0x8009: MessageClass.NACK_NOT_TRANSACTIONAL_QUEUE,
            0x800A: MessageClass.NACK_NOT_TRANSACTIONAL_MESSAGE,
            0x800B: MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER,
            0xC000: MessageClass.NACK_QUEUE_DELETED,
            0xC001: MessageClass.NACK_QUEUE_PURGED,
            0xC002: MessageClass.NACK_RECEIVE_TIMEOUT,
            0xC004: MessageClass.NACK_RECEIVE_REJECTED,
        }
        for code, expected in codes.items():
            packet = make(message_class=expected)
            message = Message.unpack(packet)
            offset = message._layout().properties
            assert int.from_bytes(packet[offset + 2 : offset + 4], "little") == code
            assert message.message_class is expected
        for code in (0x8008, 0x01FE, 0xE1FF):
            found = Message.unpack(make(message_class=code)).message_class
            assert found == code
            assert not isinstance(found, MessageClass)
        assert Message.unpack(make()).message_class is MessageClass.NORMAL

    @pytest.mark.spec("DMPR-3.1.7.1.31-5")
    def test_privacy_levels_and_ciphers_map_both_ways(self) -> None:
        for level in MessagePrivacyLevel:
            assert Message(make(privacy_level=level)).privacy_level is level
        assert [int(level) for level in MessagePrivacyLevel] == [0, 1, 3, 5]
        codes = {"RC2": 0x6602, "RC4": 0x6801, "AES128": 0x660E, "AES192": 0x660F, "AES256": 0x6610}
        assert {cipher.name: int(cipher) for cipher in EncryptionAlgorithm} == codes
        for cipher in EncryptionAlgorithm:
            assert Message(make(encryption_algorithm=cipher)).encryption_algorithm is cipher
        assert Message(make(encryption_algorithm=0x6601)).encryption_algorithm == 0x6601

    @pytest.mark.spec("DMPR-3.1.7.1.31-6")
    def test_hashes_map_both_ways(self) -> None:
        codes = {
            "MD2": 0x8001,
            "MD4": 0x8002,
            "MD5": 0x8003,
            "SHA1": 0x8004,
            "SHA_256": 0x800C,
            "SHA_512": 0x800E,
        }
        assert {algorithm.name: int(algorithm) for algorithm in HashAlgorithm} == codes
        for algorithm in HashAlgorithm:
            assert Message(make(hash_algorithm=algorithm)).hash_algorithm is algorithm
        assert Message(make(hash_algorithm=0x8005)).hash_algorithm == 0x8005


def expected_properties(properties: dict[str, Any], transaction: int | None) -> dict[str, Any]:
    """Return what a reader finds: the sent value, or the default of a missing header."""
    expected = dict(properties)
    if transaction is None:
        expected = {name: value for name, value in expected.items() if name not in TRANSACTIONAL}
    else:
        expected["priority"] = 0
        expected["delivery_guarantee"] = DeliveryGuarantee.RECOVERABLE
    if not expected.get("acknowledgements_requested"):
        # MS-MQMQ 2.2.19.2 forbids AdminQueue in a packet that requests no acknowledgment: it would
        # have no use.
        expected.pop("administration_queue_format_name", None)
    if expected.get("destination_multi_queue_format_name") is None:
        expected = {name: value for name, value in expected.items() if name not in MULTI}
    if "authentication_provider_name" not in expected:
        # Provider fields travel only with the application's own provider.
        expected.pop("authentication_provider_type", None)
    if not expected.get("sender_identifier"):
        expected["sender_identifier_type"] = SenderIdentifierType.NONE
    return expected


@pytest.mark.spec("DMPR-3.1.7.1.32-6", "DMPR-3.1.7.1.31-1", "DMPR-3.1.7.1.31-2", "DMPR-3.1.1.12-15")
@given(sent())
def test_what_was_sent_is_what_is_read(case: tuple[dict[str, Any], FormatName, int | None]) -> None:
    properties, destination, transaction = case
    packet = make(destination, transaction, **properties)
    message = Message.unpack(packet)
    assert message.packet == packet
    assert message.destination_queue_format_name == destination
    assert message.transaction_identifier == transaction
    expected = expected_properties(properties, transaction)
    assert {name: getattr(message, name) for name in expected} == expected
    assert message.body_size == len(properties.get("body", b""))


@given(sent())
def test_the_headers_of_a_built_packet_pack_to_the_same_bytes(
    case: tuple[dict[str, Any], FormatName, int | None],
) -> None:
    properties, destination, transaction = case
    packet = make(destination, transaction, **properties)
    assert UserMessage.unpack(packet).pack() == packet


def test_a_message_to_be_encrypted_has_no_empty_security_header() -> None:
    """MS-MQMQ 2.2.20.6: at least one size is not zero."""
    message = Message.unpack(make(privacy_level=MessagePrivacyLevel.BASE))
    assert message.privacy_level is MessagePrivacyLevel.BASE
    assert not message.has_security_header


def test_every_property_that_can_be_set_is_in_the_round_trip() -> None:
    settable = {field.name for field in dataclasses.fields(MessageProperties)}
    assert settable - set(sendable) == {"destination_queue_manager_identifier"}


class TestPatches:
    def test_route_count(self) -> None:
        packet = full_packet()
        changed = set_route_count(packet, MAX_ROUTE_COUNT)
        assert Message.unpack(changed).route_count == 0x1D
        assert set_route_count(changed, 0) == packet
        with pytest.raises(ValueError, match="route count"):
            set_route_count(packet, 0x1E)

    def test_transaction_flags(self) -> None:
        packet = full_packet()
        for first in (False, True):
            for last in (False, True):
                message = Message.unpack(set_transaction_flags(packet, first, last))
                assert (message.first_in_transaction, message.last_in_transaction) == (first, last)
                assert message.transaction_identifier == 0xABCDE
                assert message.connector_queue_manager_identifier == OTHER
        with pytest.raises(ValueError, match="not transactional"):
            set_transaction_flags(make(), first=True, last=True)

    @pytest.mark.spec("MQMQ-2.2.20.5-4")
    def test_sequence_numbers_begin_at_1_and_0_means_no_predecessor(self) -> None:
        packet = make(transaction=5)
        fresh = Message.unpack(packet)
        assert (fresh.transaction_sequence_number, fresh.transaction_previous_sequence_number) == (1, 0)
        message = Message.unpack(set_sequence(packet, TxSequenceID(3, 4), 9, 8))
        assert message.transactional_message_sequence_identifier == TxSequenceID(3, 4)
        assert (message.transaction_sequence_number, message.transaction_previous_sequence_number) == (9, 8)
        assert message.transaction_identifier == 5
        for number, previous in ((0, 0), (1, 1), (5, 6), (1 << 32, 0), (1, -1)):
            with pytest.raises(ValueError, match="sequence number"):
                set_sequence(packet, TxSequenceID(3, 4), number, previous)
        with pytest.raises(ValueError, match="not transactional"):
            set_sequence(make(), TxSequenceID(3, 4), 1, 0)

    @pytest.mark.spec("DMPR-3.1.7.1.31-3")
    def test_authentication_levels_live_in_as(self) -> None:
        packet = full_packet()
        offset = Message(packet)._layout().security
        for number, level in (
            (0x0, AuthenticationLevel.NONE),
            (0x1, AuthenticationLevel.SIG10),
            (0x3, AuthenticationLevel.SIG20),
            (0x5, AuthenticationLevel.SIG30),
        ):
            changed = set_authentication(packet, level)
            assert changed[offset + 1] & 0xF == number
            assert Message.unpack(changed).authentication_level is level
            assert set_authentication(changed, AuthenticationLevel.NONE) == packet
        assert set_authentication(make(), AuthenticationLevel.NONE) == make()
        with pytest.raises(ValueError, match="no SecurityHeader"):
            set_authentication(make(), AuthenticationLevel.SIG30)

    def test_a_level_that_a_peer_wrote_is_overwritten(self) -> None:
        packet = full_packet()
        forged = set_authentication(packet, AuthenticationLevel.SIG30)
        offset = Message(packet)._layout().security
        forged = forged[:offset] + bytes((forged[offset] | at.AU,)) + forged[offset + 1 :]
        assert set_authentication(forged, AuthenticationLevel.NONE) == packet


def test_a_packet_byte_for_byte() -> None:
    """MS-MQMQ 2.2.19: a message with a short body, written out by hand."""
    packet = build(
        MessageProperties(body=b"hello", label="hi", priority=5, delivery_guarantee=DeliveryGuarantee.RECOVERABLE),
        source=UUID("00112233-4455-6677-8899-aabbccddeeff"),
        ordinal=0x01020304,
        sent_time=0x0A0B0C0D,
        destination=parse(r"DIRECT=OS:a\q"),
    )
    lines = (
        "10000500 4c494f52 94000000 00460500",
        "33221100 55447766 8899aabb ccddeeff",
        "00000000 00000000 00000000 00000000",
        "ffffffff 0d0c0b0a 04030201 201c2000",
        "0e004f00 53003a00 61005c00 71000000",
        "00030000 00000000 00000000 00000000 00000000 00000000",
        "00000000 00000000 05000000 05000000 00000000 04800000 01680000 00000000",
        "68006900 00006865 6c6c6f00",
    )
    assert packet.hex(" ", 4) == " ".join(lines)
