"""Construction of UserMessage packets, and changes of single fields in finished ones.

MS-MQDMPR 3.1.7.1.30 and 3.1.7.1.32. `build` writes the packet in one pass, without an object per
header, because it runs once for every message sent.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from functools import lru_cache
from uuid import UUID

from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import (
    INFINITE,
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
)
from lanner.wire import layout as at
from lanner.wire.extension_headers import DeadLetterHeader, Extensions
from lanner.wire.format_name import FormatName
from lanner.wire.identifiers import NO_SEQUENCE, TxSequenceID
from lanner.wire.layout import MAX_PACKET_SIZE, locate
from lanner.wire.multi_queue_format_header import MultiQueueFormatHeader
from lanner.wire.queue_names import encode_administration, encode_destination, encode_response
from lanner.wire.reader import encode_terminated, guid_from_bytes, guid_to_bytes, padding
from lanner.wire.security_header import MAX_SENDER_CERT_SIZE

# MS-MQDMPR 3.1.1.12: "MUST NOT exceed 249 characters", which are UTF-16 units on the wire.
MAX_LABEL_CHARACTERS = at.MAX_LABEL_LENGTH - 1
# MS-MQDMPR 3.1.1.12 TimeToReachQueue: four days, in seconds.
DEFAULT_TIME_TO_REACH_QUEUE = 345_600
DEFAULT_PRIORITY = 3
MAX_PRIORITY = 7
# MS-MQMQ 2.2.19.2 RC: "MUST be in the range from 0x00 to 0x1D".
MAX_ROUTE_COUNT = 0x1D
NO_CORRELATION = bytes(20)

_FIXED = struct.Struct("<BxHIII16s16sIIII")
_PROPERTIES = struct.Struct("<BBH20sIIIIIIII")
_TRANSACTION = struct.Struct("<IIIII")
_SECURITY = struct.Struct("<HHHHII")
_SECTION = struct.Struct("<HHI")
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_SEQUENCE = struct.Struct("<IIII")
_GUID_NULL_BYTES = bytes(16)
_PADDING = (b"", b"\0", b"\0\0", b"\0\0\0")
# Fields of every packet, as names of this module: looking them up costs half as much here.
_VERSION_NUMBER, _SIGNATURE = at.VERSION_NUMBER, at.SIGNATURE
_MP, _SH, _DQ_SHIFT, _RECOVERABLE = at.MP, at.SH, at.DQ_SHIFT, 1 << at.DM_SHIFT
# UserHeader.Flags: which names, and whether a ConnectorType, precede the TransactionHeader.
_NAMES = 7 << at.DQ_SHIFT | 7 << at.AQ_SHIFT | 7 << at.RQ_SHIFT | at.CQ


@dataclass(slots=True)
class MessageProperties:
    """The properties that a sender may set, with the defaults of MS-MQDMPR 3.1.1.12."""

    body: bytes | bytearray | memoryview = b""
    label: str = ""
    priority: int = DEFAULT_PRIORITY
    delivery_guarantee: DeliveryGuarantee = DeliveryGuarantee.EXPRESS
    time_to_reach_queue: int = DEFAULT_TIME_TO_REACH_QUEUE  # seconds
    time_to_be_received: int = INFINITE  # seconds
    message_class: int = MessageClass.NORMAL
    body_type: int = 0
    application_tag: int = 0
    correlation_identifier: bytes = NO_CORRELATION
    extension: bytes = b""
    acknowledgements_requested: Acknowledgements = Acknowledgements.NONE
    # sent only with acknowledgements_requested
    administration_queue_format_name: FormatName | None = None
    response_queue_format_name: FormatName | None = None
    positive_journaling_requested: bool = False
    negative_journaling_requested: bool = False
    application_deadletter_queue: str = ""  # a path name
    tracing_requested: bool = False
    tracing_queue_identifier: UUID = GUID_NULL
    connector_type_identifier: UUID = GUID_NULL
    # Required for a public destination, whose name does not contain its queue manager.
    destination_queue_manager_identifier: UUID = GUID_NULL
    privacy_level: int = MessagePrivacyLevel.NONE
    hash_algorithm: int = HashAlgorithm.SHA1
    encryption_algorithm: int = EncryptionAlgorithm.RC4
    allocation_body_size: int | None = None  # None: the size of the body
    # The sender is identified only if there is an identifier.
    sender_identifier_type: SenderIdentifierType = SenderIdentifierType.SID
    sender_identifier: bytes = b""
    sender_certificate: bytes = b""
    symmetric_key: bytes = b""
    signature: bytes = b""
    authentication_provider_type: int = 0
    authentication_provider_name: str = ""  # not empty: the application signed with this provider
    final_ack_required: bool = False
    first_in_transaction: bool = False
    last_in_transaction: bool = False
    # The sending queue manager sets it when it transfers the message. Until then the message is the
    # first of no sequence.
    transactional_message_sequence_identifier: TxSequenceID = NO_SEQUENCE
    transaction_sequence_number: int = 1
    transaction_previous_sequence_number: int = 0
    connector_queue_manager_identifier: UUID = GUID_NULL
    destination_multi_queue_format_name: FormatName | None = None
    administration_multi_queue_format_name: FormatName | None = None
    response_multi_queue_format_name: FormatName | None = None
    multiple_destination_signature: bytes = b""
    soap_header: str = ""
    soap_body: str = ""

    def __repr__(self) -> str:
        """Return the properties that differ from the defaults, without bodies and keys."""
        changed = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                shown = f"{len(value)} bytes" if isinstance(value, (bytes, bytearray, memoryview)) else repr(value)
                changed.append(f"{field.name}={shown}")
        return f"MessageProperties({', '.join(changed)})"


def build(
    properties: MessageProperties,
    *,
    source: UUID,
    ordinal: int,
    sent_time: int,
    destination: FormatName,
    transaction: int | None = None,
) -> bytes:
    """Return the packet of a new message.

    `source` and `ordinal` identify it, `sent_time` is in seconds since 1970, `transaction` is the
    sender's 20-bit number of its transaction. Raise a StatusError if the packet cannot hold a
    value.
    """
    priority = properties.priority
    if not 0 <= priority <= MAX_PRIORITY:
        raise IllegalPropertyValue(f"priority {priority} is not in 0 to {MAX_PRIORITY}")
    correlation = properties.correlation_identifier
    if len(correlation) != 20:
        raise IllegalPropertySize(f"correlation identifier of {len(correlation)} bytes, 20 are needed")
    acknowledgements = properties.acknowledgements_requested
    if acknowledgements > 0xF:
        raise IllegalPropertyValue(f"acknowledgements {int(acknowledgements):#x} are more than the four there are")
    text = properties.label
    label = encode_label(text) if text else b""
    body = properties.body
    extension = properties.extension
    queue_type, address, name = encode_destination(destination)
    if address is None:
        address = guid_to_bytes(properties.destination_queue_manager_identifier)

    flags = _MP | queue_type << _DQ_SHIFT
    if properties.delivery_guarantee:
        flags |= _RECOVERABLE
    if properties.positive_journaling_requested:
        flags |= at.JP
    if properties.negative_journaling_requested:
        flags |= at.JN
    front = [b"", name]
    # MS-MQMQ 2.2.19.2 AdminQueue: present exactly if an acknowledgment is requested.
    administration = properties.administration_queue_format_name if acknowledgements else None
    response = properties.response_queue_format_name
    if administration is not None or response is not None:
        host = guid_from_bytes(address)
        queue_type, name = encode_administration(administration, source, host)
        flags |= queue_type << at.AQ_SHIFT
        front.append(name)
        queue_type, name = encode_response(response, administration, source, host)
        flags |= queue_type << at.RQ_SHIFT
        front.append(name)
    connector = properties.connector_type_identifier
    if connector is not GUID_NULL and connector != GUID_NULL:
        flags |= at.CQ
        front.append(guid_to_bytes(connector))

    base_flags = priority
    try:
        if transaction is not None:
            # A transactional packet has PR 0 and is always recoverable (MS-MQMQ 2.2.19.1,
            # 2.2.19.2).
            base_flags = 0
            flags |= at.TH | _RECOVERABLE
            front.append(transaction_header(properties, transaction))
        sender = properties.sender_identifier
        if sender and not (
            properties.signature
            or properties.symmetric_key
            or properties.sender_certificate
            or properties.authentication_provider_name
        ):
            # Only the sender is identified: the bytes are the same for every message of that
            # sender.
            security = sender_header(sender, properties.sender_identifier_type, bool(properties.privacy_level))
        else:
            security = _security_header(properties)
        if security:
            flags |= _SH
            front.append(security)
        size = len(body)
        allocation = properties.allocation_body_size
        front.append(
            _PROPERTIES.pack(
                acknowledgements,
                len(label) >> 1,
                properties.message_class,
                correlation,
                properties.body_type,
                properties.application_tag,
                size,
                size if allocation is None else allocation,
                properties.privacy_level,
                properties.hash_algorithm,
                properties.encryption_algorithm,
                len(extension),
            )
        )
        if label:
            front.append(label)
        if extension:
            front.append(extension)
        front.append(body)  # type: ignore[arg-type]  # join takes any buffer
        gap = -(len(label) + len(extension) + size) & 3
        if gap:
            front.append(_PADDING[gap])
        if properties.tracing_requested:
            base_flags |= at.TR
        if (
            properties.tracing_requested
            or properties.destination_multi_queue_format_name is not None
            or properties.tracing_queue_identifier is not GUID_NULL
            or properties.soap_header
            or properties.soap_body
            or properties.application_deadletter_queue
        ):
            bits, user_bits, parts = _tail(properties)
            base_flags |= bits
            flags |= user_bits
            front += parts

        packet_size = 64 + sum(map(len, front))
        if packet_size > MAX_PACKET_SIZE:
            raise InsufficientResources(
                f"the message makes a packet of {packet_size} bytes, at most {MAX_PACKET_SIZE} can be sent "
                f"(body of {size} bytes)"
            )
        front[0] = _FIXED.pack(
            _VERSION_NUMBER,
            base_flags,
            _SIGNATURE,
            packet_size,
            properties.time_to_reach_queue,
            guid_to_bytes(source),
            address,
            properties.time_to_be_received,
            sent_time & 0xFFFF_FFFF,
            ordinal & 0xFFFF_FFFF,
            flags,
        )
    except struct.error as error:
        raise IllegalPropertyValue(f"{properties!r}: a value does not fit its field ({error})") from None
    return b"".join(front)


def encode_label(label: str) -> bytes:
    """Return the Label field: UTF-16 with its terminator."""
    data = encode_terminated(label)
    if len(data) > 2 * at.MAX_LABEL_LENGTH:
        raise LabelTooLong(f"label of {len(data) // 2 - 1} characters, at most {MAX_LABEL_CHARACTERS}")
    if "\0" in label:
        raise IllegalPropertyValue("a label cannot contain a null character")
    return data


def _encode_text(text: str, what: str) -> bytes:
    if "\0" in text:
        raise IllegalPropertyValue(f"a {what} cannot contain a null character")
    return encode_terminated(text)


def transaction_header(properties: MessageProperties, transaction: int) -> bytes:
    if not 0 <= transaction <= at.ID_MASK:
        raise IllegalPropertyValue(f"transaction number {transaction:#x} does not fit 20 bits")
    flags = transaction << at.ID_SHIFT
    if properties.final_ack_required:
        flags |= at.FA
    if properties.first_in_transaction:
        flags |= at.FM
    if properties.last_in_transaction:
        flags |= at.LM
    connector = properties.connector_queue_manager_identifier
    guid = b""
    if connector != GUID_NULL:
        flags |= at.CG
        guid = guid_to_bytes(connector)
    sequence = properties.transactional_message_sequence_identifier
    return (
        _TRANSACTION.pack(
            flags,
            sequence.ordinal,
            sequence.time_stamp,
            properties.transaction_sequence_number,
            properties.transaction_previous_sequence_number,
        )
        + guid
    )


@lru_cache(maxsize=256)
def sender_header(sender: bytes, sender_type: SenderIdentifierType, is_private: bool) -> bytes:
    return _security_header(
        MessageProperties(
            sender_identifier=sender,
            sender_identifier_type=sender_type,
            privacy_level=MessagePrivacyLevel.BASE if is_private else MessagePrivacyLevel.NONE,
        )
    )


def _security_header(properties: MessageProperties) -> bytes:
    sender = properties.sender_identifier if properties.sender_identifier_type else b""
    signature = properties.signature
    privacy = properties.privacy_level
    provider = properties.authentication_provider_name
    # MS-MQDMPR 3.1.7.1.30 requires the header for a signed message, but a message that is encrypted
    # or identifies its sender needs it as well. The header is never empty (MS-MQMQ 2.2.20.6): a
    # message without a sender that is still to be encrypted gets it together with its key.
    if not (sender or signature or provider or properties.symmetric_key or properties.sender_certificate):
        return b""
    if len(properties.sender_certificate) > MAX_SENDER_CERT_SIZE:
        raise IllegalPropertyValue(
            f"certificate of {len(properties.sender_certificate)} bytes, at most {MAX_SENDER_CERT_SIZE}"
        )
    if (
        sender
        and properties.sender_identifier_type == SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER
        and len(sender) != 16
    ):
        raise IllegalPropertyValue(f"queue manager identifier of {len(sender)} bytes, 16 are needed")
    # AU and AS belong to the receiver. AI stays clear even though data follow, as in Windows
    # (MS-MQQB 4.1.7).
    flags = int(properties.sender_identifier_type) if sender else 0
    if privacy:
        flags |= at.EB
    info = b""
    if provider:
        info = _U32.pack(properties.authentication_provider_type) + _encode_text(provider, "provider name")
    elif signature:
        flags |= at.DE
    items = (sender, properties.symmetric_key, signature, properties.sender_certificate, info)
    parts = [_SECURITY.pack(flags, *map(len, items))]
    for item in items:
        if item:
            parts.append(item)
            parts.append(_PADDING[-len(item) & 3])
    return b"".join(parts)


def _tail(properties: MessageProperties) -> tuple[int, int, list[bytes]]:
    """Return the headers after MessagePropertiesHeader, which few messages have.

    The result is the base flags, the user flags, and the headers as bytes.
    """
    tracing = properties.tracing_queue_identifier
    has_debug = properties.tracing_requested or tracing != GUID_NULL
    multi = properties.destination_multi_queue_format_name
    base_flags = flags = 0
    parts = []
    if has_debug:
        base_flags |= at.DH
        parts.append(b"\0\0\0\0" if tracing == GUID_NULL else b"\1\0\0\0" + guid_to_bytes(tracing))
    if properties.soap_header or properties.soap_body:
        flags |= at.HH
        header = _encode_text(properties.soap_header, "SOAP header")
        content = _encode_text(properties.soap_body, "SOAP body")
        soap = b"".join(
            (
                _SECTION.pack(at.SOAP_HEADER_SECTION, 0, len(header) >> 1),
                header,
                _SECTION.pack(at.SOAP_BODY_SECTION, 0, len(content) >> 1),
                content,
            )
        )
        parts.append(soap + bytes(padding(len(soap))))
    if multi is not None:
        flags |= at.MQ
        parts.append(
            MultiQueueFormatHeader.of(
                multi,
                properties.administration_multi_queue_format_name,
                properties.response_multi_queue_format_name,
                properties.multiple_destination_signature,
            ).pack()
        )
    if properties.application_deadletter_queue:
        _encode_text(properties.application_deadletter_queue, "dead-letter queue's name")
        parts.append(Extensions(dead_letter=DeadLetterHeader(properties.application_deadletter_queue)).pack())
    return base_flags, flags, parts


# Changes of single fields in finished packets. Each returns new bytes: a message never changes
# while others read it.


def set_route_count(packet: bytes, count: int) -> bytes:
    """Return the packet with RC changed."""
    if not 0 <= count <= MAX_ROUTE_COUNT:
        raise ValueError(f"route count {count} is not in 0 to {MAX_ROUTE_COUNT}")
    return b"".join((packet[:60], bytes((packet[60] & ~at.RC_MASK | count,)), packet[61:]))


def set_message_class(packet: bytes, message_class: int) -> bytes:
    """Return the packet with MessageClass changed.

    In a dead-letter queue, the class is the reason why the message is there.
    """
    offset = locate(packet).properties + 2
    return b"".join((packet[:offset], message_class.to_bytes(2, "little"), packet[offset + 2 :]))


def _transaction_offset(packet: bytes) -> int:
    flags = _U32.unpack_from(packet, 60)[0]
    if not flags & at.TH:
        raise ValueError("the message is not transactional")
    if flags & _NAMES == QueueNameType.DIRECT_QUEUE << at.DQ_SHIFT:
        # The only name is the destination, a direct one, so the rest of the packet need not be
        # parsed.
        return 64 + (int.from_bytes(packet[64:66], "little") + 5 & ~3)
    return locate(packet).transaction


def set_transaction_flags(packet: bytes, first: bool, last: bool) -> bytes:
    """Return the packet with FM and LM changed, as a commit does."""
    offset = _transaction_offset(packet)
    flags = packet[offset] & ~(at.FM | at.LM) | (at.FM if first else 0) | (at.LM if last else 0)
    return b"".join((packet[:offset], bytes((flags,)), packet[offset + 1 :]))


def set_sequence(packet: bytes, tx_sequence_id: TxSequenceID, number: int, previous: int) -> bytes:
    """Return the packet with its place in a transactional sequence.

    Numbers begin at 1; `previous` is 0 for the first message.
    """
    if not 1 <= number <= 0xFFFF_FFFF or not 0 <= previous < number:
        raise ValueError(f"sequence number {number} after {previous}")
    offset = _transaction_offset(packet)
    sequence = _SEQUENCE.pack(tx_sequence_id.ordinal, tx_sequence_id.time_stamp, number, previous)
    return b"".join((packet[: offset + 4], sequence, packet[offset + 20 :]))


def read_sequence(packet: bytes) -> tuple[TxSequenceID, int]:
    """Return the sequence and number that `set_sequence` wrote, without parsing the rest."""
    ordinal, time_stamp, number, _ = _SEQUENCE.unpack_from(packet, _transaction_offset(packet) + 4)
    return TxSequenceID(ordinal, time_stamp), number


def set_authentication(packet: bytes, level: AuthenticationLevel) -> bytes:
    """Return the packet with AS changed.

    In AS, a receiving queue manager records the level that it has verified.
    """
    offset = locate(packet).security
    if not offset:
        if level:
            raise ValueError("the message has no SecurityHeader to hold an authentication level")
        return packet
    (flags,) = _U16.unpack_from(packet, offset)
    new = flags & ~(at.AS_MASK | at.AU) | level << at.AS_SHIFT
    if new == flags:
        return packet
    return b"".join((packet[:offset], _U16.pack(new), packet[offset + 2 :]))
