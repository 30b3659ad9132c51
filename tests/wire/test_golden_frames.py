"""The frames printed in MS-MQQB 4.1.

Their bytes yield the values listed, and the values yield their bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lanner.model.directory_objects import GUID_NULL
from lanner.model.errors import RemoteProtocolError
from lanner.wire import layout as at
from lanner.wire.base_header import BaseHeader
from lanner.wire.format_name import parse
from lanner.wire.internal_header import (
    ConnectionParametersHeader,
    EstablishConnectionHeader,
    InternalHeader,
    PacketType,
)
from lanner.wire.layout import locate
from lanner.wire.message import Message
from lanner.wire.ping_packet import PingPacket
from lanner.wire.reader import Reader
from lanner.wire.user_message import UserMessage

DATA = Path(__file__).parent.parent / "data" / "mqqb_frames.json"
FRAMES: dict[int, dict[str, Any]] = {frame["frame"]: frame for frame in json.loads(DATA.read_text())["frames"]}


def wire_bytes(number: int) -> bytes:
    return bytes.fromhex(FRAMES[number]["hex"])


def braces(guid: object) -> str:
    return f"{{{str(guid).upper()}}}"


def base_values(base: BaseHeader, data: bytes) -> dict[str, object]:
    return {
        "BaseHeader.VersionNumber": data[0],
        "BaseHeader.Reserved": base.reserved,
        "BaseHeader.Flags": base.flags,
        "BaseHeader.Flags.PR": base.priority,
        "BaseHeader.Flags.IN": int(base.is_internal),
        "BaseHeader.Flags.SH": int(base.has_session_header),
        "BaseHeader.Flags.DH": int(base.has_debug_header),
        "BaseHeader.Flags.TR": int(base.is_traced),
        "BaseHeader.Signature": at.SIGNATURE,
        "BaseHeader.PacketSize": base.packet_size,
        "BaseHeader.TimeToReachQueue": base.time_to_reach_queue,
    }


@pytest.mark.parametrize("number", [1, 2])
def test_ping(number: int) -> None:
    data = wire_bytes(number)
    ping = PingPacket.unpack(Reader(data))
    assert {
        "Flags": ping.flags,
        "Flags.RC": int(ping.is_from_client),
        "Flags.RF": int(ping.is_refused),
        "Signature": 0x5548,
        "Cookie": ping.cookie,
        "QMGuid": braces(ping.qm_guid),
    } == FRAMES[number]["decoded"]
    assert ping.pack() == data


@pytest.mark.parametrize("number", [3, 4])
def test_establish_connection(number: int) -> None:
    data = wire_bytes(number)
    reader = Reader(data)
    base = BaseHeader.unpack(reader)
    internal = InternalHeader.unpack(reader)
    header = EstablishConnectionHeader.unpack(reader)
    reader.expect_end("EstablishConnection")
    prefix = "EstablishConnectionHeader."
    assert (
        base_values(base, data)
        | {
            "InternalHeader.Reserved": 0,
            "InternalHeader.Flags": internal.flags,
            "InternalHeader.Flags.PT": internal.packet_type,
            "InternalHeader.Flags.CS": int(internal.is_refused),
            prefix + "ClientGuid": braces(header.client_guid),
            prefix + "ServerGuid": braces(header.server_guid),
            prefix + "TimeStamp": header.time_stamp,
            prefix + "OperatingSystem": header.operating_system,
            prefix + "OperatingSystem.RE": header.operating_system & 0xFF,
            prefix + "OperatingSystem.SE": int(header.was_not_pinged),
            prefix + "OperatingSystem.OS": int(header.is_server),
            prefix + "OperatingSystem.QS": int(header.has_quality_of_service),
            prefix + "Reserved": header.reserved,
            prefix + "Padding.length": len(header.padding),
            prefix + "Padding.all_0x5A": header.padding == b"\x5a" * 512,
        }
        == FRAMES[number]["decoded"]
    )
    assert internal.packet_type is PacketType.ESTABLISH_CONNECTION
    assert base.pack() + internal.pack() + header.pack() == data


@pytest.mark.parametrize("number", [5, 6])
def test_connection_parameters(number: int) -> None:
    data = wire_bytes(number)
    reader = Reader(data)
    base = BaseHeader.unpack(reader)
    internal = InternalHeader.unpack(reader)
    header = ConnectionParametersHeader.unpack(reader)
    reader.expect_end("ConnectionParameters")
    prefix = "ConnectionParametersHeader."
    assert (
        base_values(base, data)
        | {
            "InternalHeader.Reserved": 0,
            "InternalHeader.Flags": internal.flags,
            "InternalHeader.Flags.PT": internal.packet_type,
            "InternalHeader.Flags.CS": int(internal.is_refused),
            prefix + "RecoverableAckTimeout": header.recoverable_ack_timeout,
            prefix + "AckTimeout": header.ack_timeout,
            prefix + "Reserved": 0,
            prefix + "WindowSize": header.window_size,
        }
        == FRAMES[number]["decoded"]
    )
    assert internal.packet_type is PacketType.CONNECTION_PARAMETERS
    assert base.pack() + internal.pack() + header.pack() == data


USER_FLAGS = {
    "RC": (0, 0x1F), "DM": (5, 3), "JN": (8, 1), "JP": (9, 1), "DQ": (10, 7), "AQ": (13, 7), "RQ": (16, 7),
    "SH": (19, 1), "TH": (20, 1), "MP": (21, 1), "CQ": (22, 1), "MQ": (23, 1), "AH": (25, 1), "HH": (28, 1),
}  # fmt: skip


@pytest.mark.spec("MQMQ-2.2.19.2-2")
def test_user_message() -> None:
    data = bytes.fromhex(FRAMES[7]["hex_completed"])
    assert data.startswith(wire_bytes(7))
    found = UserMessage.unpack(data)
    user = found.user_header
    security = found.security_header
    properties = found.message_properties_header
    assert security is not None
    values = base_values(found.base_header, data)
    values |= {
        "UserHeader.SourceQueueManager": braces(user.source_queue_manager),
        "UserHeader.QueueManagerAddress": braces(user.queue_manager_address),
        "UserHeader.TimeToBeReceived": user.time_to_be_received,
        "UserHeader.SentTime": user.sent_time,
        "UserHeader.MessageID": user.message_id,
        "UserHeader.Flags": user.flags,
        "UserHeader.DestinationQueue.Count": data[64],
        "UserHeader.DestinationQueue.DirectFormatName": str(user.destination_queue).removeprefix("DIRECT="),
        "UserHeader.DestinationQueue.padding": 0,
    }
    values |= {f"UserHeader.Flags.{name}": user.flags >> shift & mask for name, (shift, mask) in USER_FLAGS.items()}
    where = locate(data)
    values |= {
        "SecurityHeader.offset": where.security,
        "SecurityHeader.Flags": security.flags,
        "SecurityHeader.Flags.ST": int(security.sender_identifier_type),
        "SecurityHeader.Flags.AU": int(bool(security.flags & at.AU)),
        "SecurityHeader.Flags.EB": int(security.is_body_encrypted),
        "SecurityHeader.Flags.DE": int(security.uses_default_provider),
        "SecurityHeader.Flags.AI": int(bool(security.flags & at.AI)),
        "SecurityHeader.Flags.AS": security.authentication_level,
        "SecurityHeader.SenderIdSize": len(security.security_id),
        "SecurityHeader.EncryptionKeySize": len(security.encryption_key),
        "SecurityHeader.SignatureSize": len(security.signature),
        "SecurityHeader.SenderCertSize": len(security.sender_cert),
        "SecurityHeader.ProviderInfoSize": len(security.provider_info),
        "SecurityHeader.SecurityData.SecurityID.hex": security.security_id.hex(),
    }
    prefix = "MessagePropertiesHeader."
    values |= {
        prefix + "offset": where.properties,
        prefix + "Flags": properties.flags,
        prefix + "Flags.PA": properties.flags & 1,
        prefix + "Flags.PR": properties.flags >> 1 & 1,
        prefix + "Flags.NA": properties.flags >> 2 & 1,
        prefix + "Flags.NR": properties.flags >> 3 & 1,
        prefix + "LabelLength": len(properties.label) + 1,
        prefix + "MessageClass": properties.message_class,
        prefix + "CorrelationID": properties.correlation_id.hex(),
        prefix + "BodyType": properties.body_type,
        prefix + "ApplicationTag": properties.application_tag,
        prefix + "MessageSize": len(properties.message_body),
        prefix + "AllocationBodySize": properties.allocation_body_size,
        prefix + "PrivacyLevel": properties.privacy_level,
        prefix + "HashAlgorithm": properties.hash_algorithm,
        prefix + "EncryptionAlgorithm": properties.encryption_algorithm,
        prefix + "ExtensionSize": len(properties.extension_data),
        prefix + "Label": properties.label,
        prefix + "MessageBody.offset": Message(data).body_offset,
        prefix + "MessageBody.bytes_present_in_dump": len(wire_bytes(7)) - Message(data).body_offset,
        prefix + "padding_required": len(data) - Message(data).body_offset - len(properties.message_body),
    }
    expected = dict(FRAMES[7]["decoded"])
    # The SID's text is the business of the module for SIDs.
    del expected["SecurityHeader.SecurityData.SecurityID"]
    assert values == expected
    assert found.pack() == data


@pytest.mark.spec("MQMQ-2.2.20.6-3")
def test_the_user_message_through_the_lazy_view() -> None:
    data = bytes.fromhex(FRAMES[7]["hex_completed"])
    message = Message.unpack(data)
    assert message.destination_queue_format_name == parse(r"DIRECT=OS:a04bm02\q")
    assert message.destination_queue_manager_identifier == GUID_NULL
    # Presence follows the sizes: AI is clear here, and the SID is there.
    assert message.sender_identifier.hex() == FRAMES[7]["decoded"]["SecurityHeader.SecurityData.SecurityID.hex"]
    # Ack flags without an administration queue are tolerated.
    assert message.acknowledgements_requested == 0xF
    assert message.administration_queue_format_name is None
    assert message.label == "mqsender label"
    assert message.body == "a".encode("utf-16-le") * 1000


def test_the_printed_user_message_is_too_short() -> None:
    with pytest.raises(RemoteProtocolError, match="PacketSize"):
        Message.unpack(wire_bytes(7))


@pytest.mark.parametrize("number", range(1, 8))
def test_every_truncation_is_refused(number: int) -> None:
    frame = FRAMES[number]
    data = bytes.fromhex(frame.get("hex_completed", frame["hex"]))
    kinds: dict[int, Any] = {
        1: PingPacket.unpack,
        3: lambda reader: (
            BaseHeader.unpack(reader),
            InternalHeader.unpack(reader),
            EstablishConnectionHeader.unpack(reader),
        ),
        5: lambda reader: (
            BaseHeader.unpack(reader),
            InternalHeader.unpack(reader),
            ConnectionParametersHeader.unpack(reader),
        ),
        7: lambda reader: UserMessage.unpack(reader.take(reader.remaining, "packet")),
    }
    unpack = kinds[number if number % 2 else number - 1]
    unpack(Reader(data))
    for size in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            unpack(Reader(data[:size]))
