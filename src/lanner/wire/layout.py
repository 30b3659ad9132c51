"""Positions of the headers in a UserMessage packet (MS-MQMQ 2.2.20, MS-MQRR 2.2.5.1).

One pass reads the fields that determine presence and size. Every size is compared with the end of
the packet before the next header is read. The pass reads no content: that is the second step of
`Message.unpack`.

The header classes in the other modules read the same bytes field by field. This pass exists because
a queue manager needs the offsets once per message. A test checks that both agree.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from lanner.model.errors import RemoteProtocolError
from lanner.wire.queue_names import ADMINISTRATION_TYPES, DESTINATION_TYPES, NAME_SIZES

VERSION_NUMBER = 0x10
SIGNATURE = 0x524F_494C  # "LIOR"
# MS-MQMQ 2.2.19.1: "This field has a maximum value of 0x00400000."
MAX_PACKET_SIZE = 0x0040_0000

BASE_HEADER_SIZE = 16
USER_HEADER_SIZE = 48  # without its variable fields
DESTINATION_OFFSET = BASE_HEADER_SIZE + USER_HEADER_SIZE
TRANSACTION_HEADER_SIZE = 20
SECURITY_HEADER_SIZE = 16
PROPERTIES_HEADER_SIZE = 56
MINIMUM_SIZE = DESTINATION_OFFSET + PROPERTIES_HEADER_SIZE

# BaseHeader.Flags (2.2.19.1)
PRIORITY_MASK = 0x0007
IN = 0x0008
BASE_SH = 0x0010
DH = 0x0020
TR = 0x0100

# UserHeader.Flags (2.2.19.2)
RC_MASK = 0x1F
DM_SHIFT = 5
JN = 1 << 8
JP = 1 << 9
DQ_SHIFT = 10
AQ_SHIFT = 13
RQ_SHIFT = 16
SH = 1 << 19
TH = 1 << 20
MP = 1 << 21
CQ = 1 << 22
MQ = 1 << 23
AH = 1 << 25
# Reserved, like bits 7, 24 and 29 to 31.
RESERVED_26_27 = 3 << 26
HH = 1 << 28

# TransactionHeader (2.2.20.5): offsets after Flags
TX_SEQUENCE_ID_OFFSET = 4
TX_SEQUENCE_NUMBER_OFFSET = 12
PREVIOUS_TX_SEQUENCE_NUMBER_OFFSET = 16

# TransactionHeader.Flags (2.2.20.5)
CG = 1
FA = 2
FM = 4
LM = 8
ID_SHIFT = 4
ID_MASK = 0xF_FFFF

# SecurityHeader.Flags (2.2.20.6)
ST_MASK = 0x000F
AU = 0x0010
EB = 0x0020
DE = 0x0040
AI = 0x0080
AS_SHIFT = 8
AS_MASK = 0x0F00

# MessagePropertiesHeader.Flags (2.2.19.3): the acknowledgments that the sender requests
ACKNOWLEDGE_MASK = 0x0F
# MessagePropertiesHeader (2.2.19.3): "valid range from 0x00 to 0xFA".
MAX_LABEL_LENGTH = 0xFA

# MS-MQRR 2.2.5.1.2: the parts before Data.
SRMP_ENVELOPE_HEADER_SIZE = 8
COMPOUND_MESSAGE_HEADER_SIZE = 16

SOAP_HEADER_SECTION = 0x0320
SOAP_BODY_SECTION = 0x0384
MQF_DESTINATION = 0x0064
MQF_ADMINISTRATION = 0x00C8
MQF_RESPONSE = 0x012C
MQF_SIGNATURE = 0x015E
MQF_ADDRESS_HEADER_SIZE = 12

EXTENSION_HEADER_SIZE = 12

_BASE = struct.Struct("<BxHII")
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_SECURITY_SIZES = struct.Struct("<2xHHHII")
_PROPERTIES_SIZES = struct.Struct("<xB30xI16xI")
_SECTION = struct.Struct("<H2xI")
_COMPOUND_SIZES = struct.Struct("<4xIII")
_MQF_ADDRESS = struct.Struct("<IH2xI")


class Layout(NamedTuple):
    """Offsets from the start of the packet; 0 for an absent header or name."""

    base_flags: int
    flags: int  # of the UserHeader
    administration: int
    response: int
    connector: int
    transaction: int
    security: int
    properties: int
    debug: int
    envelope: int  # SRMPEnvelopeHeader of MS-MQRR 2.2.5.1.2.1
    compound: int  # CompoundMessageHeader of MS-MQRR 2.2.5.1.2.2
    soap: int
    multi_queue: int
    extension: int  # ExtensionHeader of MS-MQRR 2.2.5.2
    end: int  # of the last header of MS-MQMQ


def _short(what: str, end: int, size: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"{what}: ends at byte {end} of a packet of {size}")


def _after_direct(packet: bytes, position: int, what: str) -> int:
    if position + 2 > len(packet):
        raise _short(f"{what}.Count", position + 2, len(packet))
    count: int = _U16.unpack_from(packet, position)[0]
    return position + 2 + count + 3 & ~3


def _after_security(packet: bytes, position: int, size: int) -> int:
    if position + SECURITY_HEADER_SIZE > size:
        raise _short("SecurityHeader", position + SECURITY_HEADER_SIZE, size)
    sender, key, signature, certificate, provider = _SECURITY_SIZES.unpack_from(packet, position)
    # Each item, and the header after them, begins on a 4-byte boundary.
    position += SECURITY_HEADER_SIZE + (sender + 3 & ~3) + (key + 3 & ~3) + (signature + 3 & ~3)
    position += (certificate + 3 & ~3) + (provider + 3 & ~3)
    if position > size:
        raise _short("SecurityHeader.SecurityData", position, size)
    return position


def _after_debug(packet: bytes, position: int, size: int) -> int:
    if position + 4 > size:
        raise _short("DebugHeader", position + 4, size)
    queue_type = packet[position] & 3
    if queue_type > 1:
        raise RemoteProtocolError(f"DebugHeader.Flags.QT: {queue_type} is neither 0 nor 1")
    position += 20 if queue_type else 4
    if position > size:
        raise _short("DebugHeader.QueueIdentifier", position, size)
    return position


def _after_envelope(packet: bytes, position: int, size: int) -> int:
    if position + SRMP_ENVELOPE_HEADER_SIZE > size:
        raise _short("SRMPEnvelopeHeader", position + SRMP_ENVELOPE_HEADER_SIZE, size)
    length: int = _U32.unpack_from(packet, position + 4)[0]
    position += SRMP_ENVELOPE_HEADER_SIZE + 2 * length
    if position > size:
        raise _short("SRMPEnvelopeHeader.Data", position, size)
    return min(position + 3 & ~3, size)


def _after_compound(packet: bytes, position: int, size: int) -> int:
    if position + COMPOUND_MESSAGE_HEADER_SIZE > size:
        raise _short("CompoundMessageHeader", position + COMPOUND_MESSAGE_HEADER_SIZE, size)
    check_compound(*_COMPOUND_SIZES.unpack_from(packet, position))
    position = compound_end(packet, position)
    if position > size:
        raise _short("CompoundMessageHeader.Data", position, size)
    return min(position + 3 & ~3, size)


def check_compound(http_body_size: int, msg_body_size: int, msg_body_offset: int) -> None:
    """Reject a CompoundMessageHeader whose message body is not within its Data."""
    if msg_body_offset + msg_body_size > http_body_size:
        raise RemoteProtocolError(
            f"CompoundMessageHeader.MsgBodySize: {msg_body_size} from {msg_body_offset} is not within {http_body_size}"
        )


def compound_end(packet: bytes, position: int) -> int:
    """Return the offset after the Data of the CompoundMessageHeader, without padding."""
    size: int = _COMPOUND_SIZES.unpack_from(packet, position)[0]
    return position + COMPOUND_MESSAGE_HEADER_SIZE + size


def _after_soap(packet: bytes, position: int, size: int) -> int:
    for name, expected in (("Header", SOAP_HEADER_SECTION), ("Body", SOAP_BODY_SECTION)):
        if position + 8 > size:
            raise _short(f"SoapHeader.{name}SectionID", position + 8, size)
        section, length = _SECTION.unpack_from(packet, position)
        if section != expected:
            raise RemoteProtocolError(f"SoapHeader.{name}SectionID: {section:#06x} is not {expected:#06x}")
        position += 8 + 2 * length
        if position > size:
            raise _short(f"SoapHeader.{name}", position, size)
    # The sections are not padded. The next header begins on a 4-byte boundary (2.2.19.1,
    # PacketSize).
    return min(position + 3 & ~3, size)


def _after_multi_queue(packet: bytes, position: int, size: int) -> int:
    for name, expected in (
        ("Destination", MQF_DESTINATION),
        ("Administration", MQF_ADMINISTRATION),
        ("Response", MQF_RESPONSE),
    ):
        if position + MQF_ADDRESS_HEADER_SIZE > size:
            raise _short(f"MultiQueueFormatHeader.{name}", position + MQF_ADDRESS_HEADER_SIZE, size)
        header_size, header_id, _ = _MQF_ADDRESS.unpack_from(packet, position)
        if header_id != expected:
            raise RemoteProtocolError(
                f"MultiQueueFormatHeader.{name}.HeaderID: {header_id:#06x} is not {expected:#06x}"
            )
        if header_size < MQF_ADDRESS_HEADER_SIZE:
            raise RemoteProtocolError(
                f"MultiQueueFormatHeader.{name}.HeaderSize: {header_size} is below {MQF_ADDRESS_HEADER_SIZE}"
            )
        position += header_size + 3 & ~3
        if position > size:
            raise _short(f"MultiQueueFormatHeader.{name}.FormatNameList", position, size)
    if position + 8 > size:
        raise _short("MultiQueueFormatHeader.Signature", position + 8, size)
    section, length = _SECTION.unpack_from(packet, position)
    if section != MQF_SIGNATURE:
        raise RemoteProtocolError(f"MQFSignatureHeader.ID: {section:#06x} is not {MQF_SIGNATURE:#06x}")
    position += 8 + length
    if position > size:
        raise _short("MQFSignatureHeader.Signature", position, size)
    return min(position + 3 & ~3, size)


def check_flags(base_flags: int, flags: int) -> None:
    """Reject flags that MS-MQMQ 2.2.19 forbids in a UserMessage. Reserved bits are ignored."""
    if base_flags & IN:
        raise RemoteProtocolError("BaseHeader.Flags.IN: set in a UserMessage")
    if base_flags & TR and not base_flags & DH:
        raise RemoteProtocolError("BaseHeader.Flags.TR: set without DH")
    delivery = flags >> DM_SHIFT & 3
    if delivery > 1:
        raise RemoteProtocolError(f"UserHeader.Flags.DM: {delivery} is neither 0 nor 1")
    if flags & TH and not delivery:
        raise RemoteProtocolError("UserHeader.Flags.TH: set on an express message")
    if not flags & MP:
        raise RemoteProtocolError("UserHeader.Flags.MP: clear")
    if flags >> DQ_SHIFT & 7 not in DESTINATION_TYPES:
        raise RemoteProtocolError(f"UserHeader.Flags.DQ: {flags >> DQ_SHIFT & 7} is not 0, 3, 5 or 7")
    if flags >> AQ_SHIFT & 7 not in ADMINISTRATION_TYPES:
        raise RemoteProtocolError(f"UserHeader.Flags.AQ: {flags >> AQ_SHIFT & 7} is not 0, 2, 3, 5, 6 or 7")


def locate(packet: bytes) -> Layout:
    """Find the headers of a UserMessage packet without SessionHeader."""
    size = len(packet)
    if size < MINIMUM_SIZE:
        raise RemoteProtocolError(f"UserMessage: {size} bytes, its headers alone take {MINIMUM_SIZE}")
    version, base_flags, signature, packet_size = _BASE.unpack_from(packet)
    if version != VERSION_NUMBER:
        raise RemoteProtocolError(f"BaseHeader.VersionNumber: {version:#04x} is not {VERSION_NUMBER:#04x}")
    if signature != SIGNATURE:
        raise RemoteProtocolError(f"BaseHeader.Signature: {signature:#010x} is not {SIGNATURE:#010x}")
    if packet_size != size or size > MAX_PACKET_SIZE:
        raise RemoteProtocolError(f"BaseHeader.PacketSize: {packet_size} for {size} bytes, at most {MAX_PACKET_SIZE}")
    (flags,) = _U32.unpack_from(packet, 60)
    # Only MP set, DM 0 or 1, a direct destination and nothing else: the common packet needs no
    # further checks.
    if flags & ~0x3F != MP | 7 << DQ_SHIFT or base_flags & (IN | TR):
        check_flags(base_flags, flags)

    position = DESTINATION_OFFSET
    step = NAME_SIZES[flags >> DQ_SHIFT & 7]
    position = position + step if step >= 0 else _after_direct(packet, position, "UserHeader.DestinationQueue")
    administration = response = connector = transaction = security = debug = envelope = compound = soap = (
        multi_queue
    ) = 0
    if step := NAME_SIZES[flags >> AQ_SHIFT & 7]:
        administration = position
        position = position + step if step > 0 else _after_direct(packet, position, "UserHeader.AdminQueue")
    if step := NAME_SIZES[flags >> RQ_SHIFT & 7]:
        response = position
        position = position + step if step > 0 else _after_direct(packet, position, "UserHeader.ResponseQueue")
    if flags & CQ:
        connector = position
        position += 16
    if flags & TH:
        transaction = position
        position += TRANSACTION_HEADER_SIZE
        if position > size:
            raise _short("TransactionHeader", position, size)
        if packet[transaction] & CG:
            position += 16
    if flags & SH:
        security = position
        position = _after_security(packet, position, size)

    properties = position
    position += PROPERTIES_HEADER_SIZE
    if position > size:
        raise _short("MessagePropertiesHeader", position, size)
    label_length, message_size, extension_size = _PROPERTIES_SIZES.unpack_from(packet, properties)
    if label_length > MAX_LABEL_LENGTH:
        raise RemoteProtocolError(f"MessagePropertiesHeader.LabelLength: {label_length} is above {MAX_LABEL_LENGTH}")
    position = position + 2 * label_length + extension_size + message_size + 3 & ~3
    if position > size:
        raise _short("MessagePropertiesHeader.MessageBody", position, size)
    if base_flags & DH:
        debug = position
        position = _after_debug(packet, position, size)
    if flags & AH:
        envelope = position
        compound = position = _after_envelope(packet, position, size)
        position = _after_compound(packet, position, size)
    if flags & HH:
        soap = position
        position = _after_soap(packet, position, size)
    if flags & MQ:
        multi_queue = position
        position = _after_multi_queue(packet, position, size)
    extension = position if size - position >= EXTENSION_HEADER_SIZE else 0
    return Layout(
        base_flags, flags, administration, response, connector, transaction, security, properties,
        debug, envelope, compound, soap, multi_queue, extension, position,
    )  # fmt: skip
