"""Each structure alone.

Bytes from values, values from bytes, every truncation, and one change in each field.
"""

# ruff: noqa: ANN401 - one table holds structures of every type

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.directory_objects import GUID_NULL
from lanner.model.errors import RemoteProtocolError, UnsupportedFormatnameOperation
from lanner.wire import layout as at
from lanner.wire.base_header import BaseHeader
from lanner.wire.debug_header import DebugHeader
from lanner.wire.extension_headers import (
    DeadLetterHeader,
    ExtendedAddressHeader,
    ExtensionHeader,
    Extensions,
    SubqueueHeader,
)
from lanner.wire.format_name import (
    MAX_ELEMENTS,
    MultipleElementFormatName,
    PrivateFormatName,
    PublicFormatName,
    parse,
)
from lanner.wire.identifiers import MessageIdentifier, SequenceInfo, TxSequenceID
from lanner.wire.internal_header import (
    ConnectionParametersHeader,
    EstablishConnectionHeader,
    InternalHeader,
    PacketType,
)
from lanner.wire.message_properties_header import MessagePropertiesHeader
from lanner.wire.multi_queue_format_header import (
    MQFAddressHeader,
    MQFSignatureHeader,
    MultiQueueFormatHeader,
)
from lanner.wire.ping_packet import PingPacket
from lanner.wire.reader import Reader
from lanner.wire.security_header import SecurityHeader, join_provider_info
from lanner.wire.session_header import SessionHeader
from lanner.wire.soap_header import SoapHeader
from lanner.wire.srmp_headers import CompoundMessageHeader, SrmpEnvelopeHeader
from lanner.wire.transaction_header import TransactionHeader
from lanner.wire.user_header import UserHeader
from tests.wire.samples import DIRECT, OTHER, QUEUE, SID, SOURCE, lists

GUID_HEX = "04030201060508070 90a0b0c0d0e0f10".replace(" ", "")
MULTI = MultiQueueFormatHeader.of(DIRECT, PublicFormatName(QUEUE), PrivateFormatName(OTHER, 3), b"sign")

# value, its bytes, and for each field another value that must give other bytes
CASES: list[tuple[Any, str, dict[str, Any]]] = [
    (
        MessageIdentifier(QUEUE, 0x11223344),
        GUID_HEX + "44332211",
        {"queue_manager_guid": OTHER, "ordinal": 1},
    ),
    (TxSequenceID(1, 2), "0100000002000000", {"ordinal": 9, "time_stamp": 9}),
    (
        SequenceInfo(-2, 3, 4),
        "feffffffffffffff0300000004000000",
        {"seq_id": 1, "seq_no": 9, "prev_no": 9},
    ),
    (
        BaseHeader(0x0003, 0x40, 0x54600, 0xC0),
        "10c003004c494f524000000000460500",
        {"flags": 0x0B, "packet_size": 0x44, "time_to_reach_queue": 1, "reserved": 1},
    ),
    (
        UserHeader(QUEUE, GUID_NULL, 1, 2, 3, at.MP | 7 << 10 | 2 << 13 | 5 << 16 | at.CQ, parse(r"DIRECT=OS:a\q"), 4,
                   PublicFormatName(QUEUE), QUEUE),
        GUID_HEX + "00" * 16 + "010000000200000003000000" + "005c6500"
        + "0e004f0053003a0061005c0071000000" + "04000000" + GUID_HEX + GUID_HEX,
        {"source_queue_manager": OTHER, "queue_manager_address": OTHER, "time_to_be_received": 9, "sent_time": 9,
         "message_id": 9, "flags": at.MP | 7 << 10 | 2 << 13 | 5 << 16 | at.CQ | 1,
         "destination_queue": parse(r"DIRECT=OS:b\q"), "admin_queue": 9,
         "response_queue": PublicFormatName(OTHER), "connector_type": OTHER},
    ),
    (
        UserHeader(QUEUE, OTHER, 1, 2, 3, at.MP | 3 << 10 | 6 << 13, 7, PrivateFormatName(QUEUE, 8)),
        GUID_HEX + OTHER.bytes_le.hex() + "010000000200000003000000" + "00cc2000" + "07000000" + GUID_HEX + "08000000",
        {"destination_queue": 9, "admin_queue": PrivateFormatName(QUEUE, 9)},
    ),
    (
        TransactionHeader(0xABCDE << 4 | at.LM, TxSequenceID(1, 2), 3, 4),
        "e8cdab0001000000020000000300000004000000",
        {"flags": 0xABCDE << 4 | at.FM, "tx_sequence_id": TxSequenceID(9, 9), "tx_sequence_number": 9,
         "previous_tx_sequence_number": 9, "connector_qm_guid": QUEUE},
    ),
    (
        TransactionHeader(at.CG | at.FA, TxSequenceID(1, 2), 3, 4, QUEUE),
        "0300000001000000020000000300000004000000" + GUID_HEX,
        {"connector_qm_guid": OTHER},
    ),
    (
        SecurityHeader(0x0061, SID, b"k", b"si", b"cer", join_provider_info(1, "p")),
        "61001c00010002000300000008000000" + SID.hex() + "6b000000" + "73690000" + "63657200" + "0100000070000000",
        {"flags": 1, "security_id": SID[:8], "encryption_key": b"K", "signature": b"SI", "sender_cert": b"",
         "provider_info": b""},
    ),
    (
        MessagePropertiesHeader(5, 0x4000, bytes(range(20)), 1, 2, 3, 4, 5, 6, "ab", b"ex", b"bod"),
        "05030040" + bytes(range(20)).hex() + "01000000020000000300000003000000040000000500000006000000"
        "02000000" + "610062000000" + "6578" + "626f64" + "00",
        {"flags": 1, "message_class": 1, "correlation_id": bytes(20), "body_type": 9, "application_tag": 9,
         "allocation_body_size": 9, "privacy_level": 9, "hash_algorithm": 9, "encryption_algorithm": 9, "label": "",
         "extension_data": b"", "message_body": b"BOD"},
    ),
    (DebugHeader(), "00000000", {"queue_identifier": QUEUE}),
    (DebugHeader(QUEUE), "01000000" + GUID_HEX, {"queue_identifier": OTHER}),
    (
        SoapHeader("h", ""),
        "200300000200000068000000" + "8403000001000000" + "0000" + "0000",
        {"header": "H", "body": "b"},
    ),
    (
        SrmpEnvelopeHeader("<e/>"),
        "00000000" "05000000" + "<e/>\0".encode("utf-16-le").hex() + "0000",
        {"data": "</e>"},
    ),
    (
        CompoundMessageHeader(3, 2, b"abCDEf."),
        "00000000" "07000000" "03000000" "02000000" + b"abCDEf.".hex() + "00",
        {"msg_body_size": 5, "msg_body_offset": 4, "data": b"ABCDE"},
    ),
    (
        SessionHeader(1, 2, 3, 4, 5, 6),
        "01000200030000000400050006000000",
        {"ack_sequence_number": 9, "recoverable_msg_ack_seq_number": 9, "recoverable_msg_ack_flags": 9,
         "user_msg_sequence_number": 9, "recoverable_msg_seq_number": 9, "window_size": 9},
    ),
    (InternalHeader.of(PacketType.ESTABLISH_CONNECTION, refused=True), "00001200", {"flags": 3}),
    (
        EstablishConnectionHeader(QUEUE, OTHER, 1, 0x0310),
        GUID_HEX + OTHER.bytes_le.hex() + "0100000010030000" + "5a" * 512,
        {"client_guid": OTHER, "server_guid": QUEUE, "time_stamp": 9, "operating_system": 9, "reserved": 9,
         "padding": bytes(512)},
    ),
    (
        ConnectionParametersHeader(500, 120_000, 64),
        "f4010000c0d4010000004000",
        {"recoverable_ack_timeout": 9, "ack_timeout": 9, "window_size": 9},
    ),
    (PingPacket(1, 4, QUEUE), "0100485504000000" + GUID_HEX, {"flags": 3, "cookie": 9, "qm_guid": OTHER}),
    (ExtensionHeader(8, 1), "0c0000000800000001000000", {"remaining_headers_size": 9, "flags": 2}),
    (
        SubqueueHeader(0x8000, 1, 2, 3, "sub", "target"),
        "94000000" "00000100" "010000000200000003000000"
        + "sub".encode("utf-16-le").ljust(64, b"\0").hex() + "target".encode("utf-16-le").ljust(64, b"\0").hex(),
        {"acknowledgement_class": 9, "abort_counter": 9, "move_counter": 9, "last_move_time": 9, "subqueue_name": "x",
         "target_subqueue_name": "x"},
    ),
    (DeadLetterHeader("ab"), "0c0000006100620000000000", {"dead_letter_path_name": "c"}),
    (
        ExtendedAddressHeader(4, 1, 0, bytes((10, 0, 0, 1)).ljust(16, b"\0")),
        "1c000000" "04000100" "00000000" "0a000001" + "00" * 12,
        {"address_length": 9, "address_type": 6, "address_scope": 9, "address": bytes(16)},
    ),
    (
        Extensions(SubqueueHeader(), DeadLetterHeader("ab"), ExtendedAddressHeader(), is_dead_letter_invalid=True),
        "0c000000" "bc000000" "1b000000" + SubqueueHeader().pack().hex() + DeadLetterHeader("ab").pack().hex()
        + ExtendedAddressHeader().pack().hex(),
        {"subqueue": None, "dead_letter": None, "extended_address": None, "is_dead_letter_invalid": False},
    ),
    (MQFSignatureHeader(b"sig"), "5e01000003000000736967", {"signature": b""}),
    (
        MULTI,
        "44000000" "64000000" "01000000" "0300" + "OS:server\\private$\\orders\0".encode("utf-16-le").hex() + "0000"
        "20000000" "c8000000" "01000000" "01000000" + GUID_HEX
        + "24000000" "2c010000" "01000000" "02000000" + OTHER.bytes_le.hex() + "03000000"
        "5e010000" "04000000" + b"sign".hex(),
        {"destination": MQFAddressHeader(0x64), "administration": MQFAddressHeader(0xC8),
         "response": MQFAddressHeader(0x12C), "signature": MQFSignatureHeader()},
    ),
]  # fmt: skip
IDS = [f"{index}-{type(value).__name__}" for index, (value, _, _) in enumerate(CASES)]


def unpacker(value: Any) -> Callable[[Reader], Any]:
    found: Callable[[Reader], Any] = type(value).unpack
    return found


@pytest.mark.spec(
    "MQMQ-2.2.5.1-1",
    "MQMQ-2.2.18.1.2-1",
    "MQMQ-2.2.18.1.3-1",
    "MQMQ-2.2.18.1.7.2-1",
    "MQMQ-2.2.20.4-1",
    "MQMQ-2.2.20.3-1",
    "MQMQ-2.2.19.2-1",
    "MQMQ-2.2.20.5-1",
    "MQMQ-2.2.20.6-1",
)
@pytest.mark.parametrize(("value", "wire", "_changes"), CASES, ids=IDS)
def test_pack_and_unpack(value: Any, wire: str, _changes: dict[str, Any]) -> None:
    data = bytes.fromhex(wire)
    assert value.pack().hex() == wire
    reader = Reader(b"\xee" * 4 + data, 4)
    assert unpacker(value)(reader) == value
    reader.expect_end(type(value).__name__)


@pytest.mark.parametrize(("value", "wire", "_changes"), CASES, ids=IDS)
def test_every_truncation_is_refused(value: Any, wire: str, _changes: dict[str, Any]) -> None:
    data = bytes.fromhex(wire)
    # The last padding of a packet's last structure may be missing.
    spare = {SoapHeader: 2, SrmpEnvelopeHeader: 2, CompoundMessageHeader: 1}.get(type(value), 0)
    for size in range(len(data) - spare):
        with pytest.raises(RemoteProtocolError):
            unpacker(value)(Reader(data[:size]))


@pytest.mark.parametrize(("value", "wire", "changes"), CASES, ids=IDS)
def test_a_change_in_each_field_changes_the_bytes(value: Any, wire: str, changes: dict[str, Any]) -> None:
    for name, other in changes.items():
        changed = dataclasses.replace(value, **{name: other})
        data = changed.pack()
        assert data.hex() != wire
        found = unpacker(value)(Reader(data))
        # ConnectorQMGuid brings its flag along.
        assert found == changed or name == "connector_qm_guid"
        assert getattr(found, name) == other


@pytest.mark.parametrize(("value", "wire", "_changes"), CASES, ids=IDS)
def test_every_byte_changed_is_refused_or_read(value: Any, wire: str, _changes: dict[str, Any]) -> None:
    data = bytes.fromhex(wire)
    for offset in range(len(data)):
        for byte in {data[offset] ^ 1 << bit for bit in range(8)} | {0, 0x7F, 0xFF}:
            changed = data[:offset] + bytes((byte,)) + data[offset + 1 :]
            try:
                unpacker(value)(Reader(changed))
            except RemoteProtocolError:
                continue


def test_every_field_of_every_structure_has_a_change() -> None:
    covered: dict[type, set[str]] = {}
    for value, _, changes in CASES:
        covered.setdefault(type(value), set()).update(changes)
    for kind, names in covered.items():
        assert {field.name for field in dataclasses.fields(kind)} == names, kind


class TestIdentifiers:
    @pytest.mark.spec("MQMQ-2.2.18.1.2-1")
    @given(*[st.integers(0, 0xFFFF_FFFF)] * 4)
    def test_sequences_compare_as_one_number_with_the_time_stamp_on_top(self, a: int, b: int, c: int, d: int) -> None:
        left, right = TxSequenceID(a, b), TxSequenceID(c, d)
        assert (left < right) == ((b << 32 | a) < (d << 32 | c))
        assert (left >= right) == ((b << 32 | a) >= (d << 32 | c))
        assert left.value == int.from_bytes(left.pack(), "little")
        assert TxSequenceID.from_value(left.value) == left
        assert TxSequenceID(0xFFFF_FFFF, 1) < TxSequenceID(0, 2)

    def test_a_message_identifier_prints_as_windows_does(self) -> None:
        assert str(MessageIdentifier(SOURCE, 2286)) == f"{SOURCE}\\2286"


class TestBaseHeader:
    @pytest.mark.spec("MQMQ-2.2.19.1-5")
    def test_a_user_message_is_followed_by_its_session_header_and_a_session_ack_contains_it(self) -> None:
        assert BaseHeader(0x0013, 200).stream_size == 216
        assert BaseHeader(0x0003, 200).stream_size == 200
        assert BaseHeader(0x001B, 0x24).stream_size == 0x24

    @pytest.mark.spec("MQMQ-2.2.19.1-6")
    def test_packet_size_limits(self) -> None:
        for size, fits in ((15, False), (16, True), (0x40_0000, True), (0x40_0001, False)):
            reader = Reader(BaseHeader(0, size).pack())
            if fits:
                assert BaseHeader.unpack(reader).packet_size == size
            else:
                with pytest.raises(RemoteProtocolError, match="PacketSize"):
                    BaseHeader.unpack(reader)

    def test_flags(self) -> None:
        header = BaseHeader(0x0131, 16)
        assert (header.priority, header.is_internal, header.has_session_header) == (1, False, True)
        assert header.has_debug_header
        assert header.is_traced


class TestInternalHeader:
    def test_packet_types_that_no_document_knows_are_refused(self) -> None:
        for kind in range(16):
            reader = Reader(InternalHeader(kind).pack())
            if kind in (1, 2, 3):
                assert InternalHeader.unpack(reader).packet_type == kind
            else:
                with pytest.raises(RemoteProtocolError, match="PT"):
                    InternalHeader.unpack(reader)

    def test_the_header_is_refused_only_with_cs(self) -> None:
        assert InternalHeader.of(PacketType.SESSION_ACK).is_refused is False
        assert InternalHeader.of(PacketType.CONNECTION_PARAMETERS, refused=True).is_refused


def test_flags_of_the_smaller_headers() -> None:
    header = TransactionHeader(0xABCDE << 4 | 0xE, TxSequenceID(0, 0), 1, 0)
    assert header.identifier == 0xABCDE
    assert header.is_final_ack_required
    assert header.is_first
    assert header.is_last
    assert repr(MessagePropertiesHeader(message_body=b"secret")).find("secret") < 0


class TestMultiQueueFormatHeader:
    def test_a_list_has_so_many_names_and_no_more(self) -> None:
        """A packet of 4 MB full of the smallest names there are must not take seconds to read."""
        most = MultipleElementFormatName(tuple(parse(f"PUBLIC={UUID(int=n)}") for n in range(MAX_ELEMENTS)))
        data = MultiQueueFormatHeader.of(most, None, None).pack()
        found = MultiQueueFormatHeader.unpack(Reader(data))
        assert found.destination.format_name == most
        more = MultipleElementFormatName((*most.names, PublicFormatName(UUID(int=MAX_ELEMENTS))))
        with pytest.raises(UnsupportedFormatnameOperation, match="1025"):
            MultiQueueFormatHeader.of(more, None, None)
        data = MQFAddressHeader(0x64, more.names).pack() + data[len(found.destination.pack()) :]
        with pytest.raises(RemoteProtocolError, match="ElementCount: 1025"):
            MultiQueueFormatHeader.unpack(Reader(data))

    @pytest.mark.spec("MQMQ-2.2.18.1.4-1", "MQMQ-2.2.18.1.4-2", "MQMQ-2.2.20.2-1")
    def test_elements_lie_on_their_boundaries(self) -> None:
        names = parse(rf"DIRECT=OS:a\q,PUBLIC={QUEUE},PRIVATE={OTHER}\5,DL={QUEUE},DIRECT=OS:bb\q").elements
        data = MQFAddressHeader(0x64, names).pack()
        guid, other = QUEUE.bytes_le, OTHER.bytes_le
        body = b"\3\0" + "OS:a\\q\0".encode("utf-16-le")  # 12 to 28
        body += b"\1\0" + b"\0\0" + guid  # the GUID at 32
        body += b"\2\0" + b"\0\0" + other + b"\5\0\0\0"  # at 52
        body += b"\6\0" + b"\0\0" + guid  # at 76
        body += b"\3\0" + "OS:bb\\q\0".encode("utf-16-le")
        body += bytes(-(12 + len(body)) % 4)
        expected = (12 + len(body)).to_bytes(4, "little") + b"\x64\0\0\0" + b"\5\0\0\0" + body
        assert data == expected
        # Padding may hold anything: two bytes before each GUID, two at the end.
        noisy = bytearray(data)
        for offset in (30, 50, 74):
            noisy[offset : offset + 2] = b"\xee\xee"
        noisy[6:8] = b"\xee\xee"  # Reserved
        assert MQFAddressHeader.unpack(Reader(bytes(noisy)), 0x64).names == names

    def test_a_guid_after_a_direct_name_of_odd_length_needs_no_gap(self) -> None:
        names = parse(rf"DIRECT=OS:aa\q,PUBLIC={QUEUE}").elements
        data = MQFAddressHeader(0x64, names).pack()
        assert data.endswith(b"\1\0" + QUEUE.bytes_le)
        assert MQFAddressHeader.unpack(Reader(data), 0x64).names == names

    @pytest.mark.spec("MQMQ-2.2.18.1.4-1")
    def test_unknown_element_types_are_refused(self) -> None:
        data = MQFAddressHeader(0x64, (PublicFormatName(QUEUE),)).pack()
        for kind in (0, 4, 5, 7, 8, 0xFFFF):
            changed = data[:12] + kind.to_bytes(2, "little") + data[14:]
            with pytest.raises(RemoteProtocolError, match="FormatType"):
                MQFAddressHeader.unpack(Reader(changed), 0x64)

    @pytest.mark.spec("MQMQ-2.2.20.2-1")
    def test_size_identifier_and_count_are_held_to(self) -> None:
        data = MQFAddressHeader(0x64, (PublicFormatName(QUEUE),)).pack()
        assert MQFAddressHeader(0x64).pack() == bytes.fromhex("0c0000006400000000000000")
        for offset, value, match in (
            (0, 11, "HeaderSize"),
            (0, len(data) + 1, "MQFAddressHeader"),
            (4, 0xC8, "HeaderID"),
            (8, 0, "after 0 elements"),
            (8, 2, "FormatType"),
            (8, 0xFFFF_FFFF, "ElementCount"),
        ):
            width = 2 if offset == 4 else 4
            changed = data[:offset] + value.to_bytes(width, "little") + data[offset + width :]
            with pytest.raises(RemoteProtocolError, match=match):
                MQFAddressHeader.unpack(Reader(changed), 0x64)

    @pytest.mark.spec("MQMQ-2.2.20.1-1", "MQMQ-2.2.20.2-1", "MQMQ-2.2.20.3-1")
    def test_three_lists_then_a_signature(self) -> None:
        data = MULTI.pack()
        first = int.from_bytes(data[:4], "little")
        assert first % 4 == 0
        second = first + int.from_bytes(data[first : first + 4], "little")
        third = second + int.from_bytes(data[second : second + 4], "little")
        identifiers = [int.from_bytes(data[start + 4 : start + 6], "little") for start in (0, first, second)]
        assert identifiers == [0x0064, 0x00C8, 0x012C]
        assert data[third:] == bytes.fromhex("5e01000004000000") + b"sign"
        noisy = data[: third + 2] + b"\xff\xff" + data[third + 4 :]
        assert MultiQueueFormatHeader.unpack(Reader(noisy)) == MULTI
        assert MultiQueueFormatHeader.unpack(Reader(MultiQueueFormatHeader().pack())).signature.signature == b""

    def test_a_header_size_without_its_padding_is_read_too(self) -> None:
        names = parse(r"DIRECT=OS:aa\q").elements
        data = MQFAddressHeader(0x64, names).pack()
        shorter = (len(data) - 2).to_bytes(4, "little") + data[4:]
        reader = Reader(shorter)
        assert MQFAddressHeader.unpack(reader, 0x64).names == names
        reader.expect_end("padding was skipped")

    @given(lists, lists, lists, st.binary(max_size=9))
    def test_lists_of_any_names_read_back(
        self, destination: Any, administration: Any, response: Any, signature: bytes
    ) -> None:
        header = MultiQueueFormatHeader.of(destination, administration, response, signature)
        found = MultiQueueFormatHeader.unpack(Reader(header.pack()))
        assert found == header
        assert found.destination.format_name == destination
        assert found.administration.format_name == administration
        assert found.response.format_name == response


class TestExtensions:
    def test_a_subqueue_name_that_fills_its_field_needs_no_null(self) -> None:
        header = SubqueueHeader(subqueue_name="x" * 32)
        assert SubqueueHeader.unpack(Reader(header.pack())) == header

    def test_headers_that_grew_in_a_later_version_are_skipped_by_their_size(self) -> None:
        data = (16).to_bytes(4, "little") + b"\0\0\0\0" + b"\0\0\0\0" + b"new!"
        assert Extensions.unpack(Reader(data)) == Extensions()

    def test_sizes_that_cannot_hold_their_header_are_refused(self) -> None:
        for header in (ExtensionHeader(0, 0), SubqueueHeader(), DeadLetterHeader("a"), ExtendedAddressHeader()):
            data = (5).to_bytes(4, "little") + header.pack()[4:]
            with pytest.raises(RemoteProtocolError, match="HeaderSize"):
                type(header).unpack(Reader(data))
