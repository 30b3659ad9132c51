"""A message as its packet: a lazy view of one UserMessage (MS-MQMQ 2.2.20).

The table of MS-MQDMPR 3.1.7.1.31 maps the properties to fields. `Message(packet)` is for bytes that
were made or checked here: it decodes nothing until a property is read. `Message.unpack(data)` is
for bytes from elsewhere: it checks everything and raises only RemoteProtocolError.
"""

from __future__ import annotations

import struct
from uuid import UUID

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
from lanner.model.errors import RemoteProtocolError
from lanner.wire import layout as at
from lanner.wire import queue_names as names
from lanner.wire.extension_headers import Extensions
from lanner.wire.format_name import FormatName, PrivateFormatName, PublicFormatName
from lanner.wire.identifiers import MessageIdentifier, TxSequenceID
from lanner.wire.layout import Layout, locate
from lanner.wire.multi_queue_format_header import MultiQueueFormatHeader, unpack_signature
from lanner.wire.reader import Reader, decode_terminated, guid_from_bytes
from lanner.wire.security_header import check_sizes, split_provider_info

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_SECURITY = struct.Struct("<HHHHII")
_TRANSACTION = struct.Struct("<IIIII")
_SECTION = struct.Struct("<H2xI")
# HTTPBodySize, MsgBodySize, MsgBodyOffset.
_COMPOUND = struct.Struct("<4xIII")

_u16 = _U16.unpack_from
_u32 = _U32.unpack_from

# The enumeration member for a number that has one, else the bare number: unknown codes are kept.
_CLASSES: dict[int, int] = {int(member): member for member in MessageClass}
_PRIVACY_LEVELS: dict[int, int] = {int(member): member for member in MessagePrivacyLevel}
_HASHES: dict[int, int] = {int(member): member for member in HashAlgorithm}
_CIPHERS: dict[int, int] = {int(member): member for member in EncryptionAlgorithm}
_AUTHENTICATION_LEVELS: dict[int, int] = {int(member): member for member in AuthenticationLevel}
_GUARANTEES = (DeliveryGuarantee.EXPRESS, DeliveryGuarantee.RECOVERABLE)
_ACKNOWLEDGEMENTS = tuple(Acknowledgements(value) for value in range(16))
_NAME_TYPES = tuple(QueueNameType)
_SENDER_TYPES = tuple(SenderIdentifierType)


class Message:
    """One UserMessage packet, without SessionHeader. `packet` is its entire state."""

    __slots__ = ("_located", "packet")

    packet: bytes
    _located: Layout | None

    def __init__(self, packet: bytes) -> None:
        self.packet = packet
        self._located = None

    @classmethod
    def unpack(cls, data: bytes) -> Message:
        """Check a received UserMessage, including a SessionHeader if BaseHeader.SH is set.

        The packet of the message is the part that PacketSize counts. SessionHeader and SH belong to
        the session instead.
        """
        if len(data) > at.MINIMUM_SIZE and data[2] & at.BASE_SH:
            data = b"".join((data[:2], bytes((data[2] & ~at.BASE_SH,)), data[3:-16]))
        message = cls(data)
        message._located = locate(data)
        message._check()
        return message

    def _layout(self) -> Layout:
        located = self._located
        if located is None:
            located = self._located = locate(self.packet)
        return located

    def _check(self) -> None:
        """Decode every field that has a format of its own, to raise its errors."""
        data = self.packet
        located = self._layout()
        _ = self.destination_queue_format_name
        if located.administration:
            _ = self.administration_queue_format_name
        if located.response:
            _ = self.response_queue_format_name
        _ = self.label
        if located.security:
            sizes = _SECURITY.unpack_from(data, located.security)
            check_sizes(*sizes)
            if sizes[5]:
                _ = self.authentication_provider_name
        if located.envelope:
            _ = self.soap_envelope
        if located.soap:
            _ = self.soap_header
            _ = self.soap_body
        if located.multi_queue:
            _ = self.multi_queue_format_header

    # The packet as a whole

    @property
    def size(self) -> int:
        return len(self.packet)

    @property
    def version_number(self) -> int:
        return self.packet[0]

    @property
    def priority(self) -> int:
        """The priority from 0 to 7.

        0 for a transactional message, whatever PR is (MS-MQDMPR 3.1.7.1.32).
        """
        packet = self.packet
        return 0 if packet[62] & 0x10 else packet[2] & 7

    @property
    def tracing_requested(self) -> bool:
        return bool(self.packet[3] & 1)

    @property
    def time_to_reach_queue(self) -> int:
        """Seconds from sent_time; 0xFFFFFFFF means no limit."""
        value: int = _u32(self.packet, 12)[0]
        return value

    # UserHeader

    @property
    def source_machine_identifier(self) -> UUID:
        return guid_from_bytes(self.packet[16:32])

    @property
    def destination_queue_manager_identifier(self) -> UUID:
        return guid_from_bytes(self.packet[32:48])

    @property
    def time_to_be_received(self) -> int:
        """Seconds from sent_time; 0xFFFFFFFF means no limit."""
        value: int = _u32(self.packet, 48)[0]
        return value

    @property
    def sent_time(self) -> int:
        """Seconds since 1970 UTC."""
        value: int = _u32(self.packet, 52)[0]
        return value

    @property
    def identifier(self) -> MessageIdentifier:
        return MessageIdentifier(guid_from_bytes(self.packet[16:32]), _u32(self.packet, 56)[0])

    @property
    def identifier_bytes(self) -> bytes:
        """The 20 bytes of the identifier, as in a CorrelationID."""
        packet = self.packet
        return packet[16:32] + packet[56:60]

    @property
    def route_count(self) -> int:
        """RC: the number of routing servers that have forwarded the message."""
        return self.packet[60] & at.RC_MASK

    @property
    def delivery_guarantee(self) -> DeliveryGuarantee:
        return _GUARANTEES[self.packet[60] >> 5 & 1]

    @property
    def is_recoverable(self) -> bool:
        return bool(self.packet[60] & 0x20)

    @property
    def is_transactional(self) -> bool:
        return bool(self.packet[62] & 0x10)

    @property
    def positive_journaling_requested(self) -> bool:
        return bool(self.packet[61] & 2)

    @property
    def negative_journaling_requested(self) -> bool:
        return bool(self.packet[61] & 1)

    @property
    def destination_queue_type(self) -> QueueNameType:
        return _NAME_TYPES[self.packet[61] >> 2 & 7]

    @property
    def administration_queue_type(self) -> QueueNameType:
        return _NAME_TYPES[self.packet[61] >> 5]

    @property
    def response_queue_type(self) -> QueueNameType:
        return _NAME_TYPES[self.packet[62] & 7]

    @property
    def destination_queue_format_name(self) -> FormatName | None:
        return self._name(at.DESTINATION_OFFSET, self.packet[61] >> 2 & 7)

    @property
    def administration_queue_format_name(self) -> FormatName | None:
        return self._name(self._layout().administration, self.packet[61] >> 5)

    @property
    def response_queue_format_name(self) -> FormatName | None:
        return self._name(self._layout().response, self.packet[62] & 7)

    def _name(self, offset: int, code: int) -> FormatName | None:
        packet = self.packet
        if code == names.DIRECT_QUEUE:
            return names.decode_direct(packet[offset + 2 : offset + 2 + _u16(packet, offset)[0]])
        if code == names.NONE:
            return None
        if code == names.PUBLIC_QUEUE:
            return PublicFormatName(guid_from_bytes(packet[offset : offset + 16]))
        if code == names.SAME_AS_ADMINISTRATION_QUEUE:
            return self.administration_queue_format_name
        if code == names.PRIVATE_QUEUE_ON_SOURCE:
            host = self.source_machine_identifier
        elif code == names.PRIVATE_QUEUE_ON_DESTINATION:
            host = self.destination_queue_manager_identifier
        elif code == names.PRIVATE_QUEUE_ON_OTHER:
            host = guid_from_bytes(packet[offset : offset + 16])
            offset += 16
        else:
            administration = self.administration_queue_format_name
            if not isinstance(administration, PrivateFormatName):
                # A private queue on the host of another queue whose name does not contain the host.
                # Such a name cannot be resolved.
                return None
            host = administration.queue_manager_identifier
        return PrivateFormatName(host, _u32(packet, offset)[0])

    @property
    def connector_type_identifier(self) -> UUID:
        offset = self._layout().connector
        return guid_from_bytes(self.packet[offset : offset + 16]) if offset else GUID_NULL

    # TransactionHeader, with the defaults of a message without one

    def _transaction_flags(self) -> int:
        offset = self._layout().transaction
        value: int = _u32(self.packet, offset)[0] if offset else 0
        return value

    @property
    def transaction_identifier(self) -> int | None:
        """The sender's 20-bit number of the transaction, or None outside a transaction."""
        offset = self._layout().transaction
        return _u32(self.packet, offset)[0] >> at.ID_SHIFT & at.ID_MASK if offset else None

    @property
    def transaction_identifier_bytes(self) -> bytes | None:
        """The OBJECTID of the transaction (MS-MQMQ 2.2.8).

        It consists of the sender's queue manager and its number of the transaction.
        """
        number = self.transaction_identifier
        return None if number is None else self.packet[16:32] + number.to_bytes(4, "little")

    @property
    def final_ack_required(self) -> bool:
        return bool(self._transaction_flags() & at.FA)

    @property
    def first_in_transaction(self) -> bool:
        return bool(self._transaction_flags() & at.FM)

    @property
    def last_in_transaction(self) -> bool:
        return bool(self._transaction_flags() & at.LM)

    @property
    def transactional_message_sequence_identifier(self) -> TxSequenceID | None:
        offset = self._layout().transaction
        if not offset:
            return None
        _, ordinal, time_stamp, _, _ = _TRANSACTION.unpack_from(self.packet, offset)
        return TxSequenceID(ordinal, time_stamp)

    @property
    def transaction_sequence_number(self) -> int:
        offset = self._layout().transaction
        value: int = _u32(self.packet, offset + at.TX_SEQUENCE_NUMBER_OFFSET)[0] if offset else 0
        return value

    @property
    def transaction_previous_sequence_number(self) -> int:
        offset = self._layout().transaction
        value: int = _u32(self.packet, offset + at.PREVIOUS_TX_SEQUENCE_NUMBER_OFFSET)[0] if offset else 0
        return value

    @property
    def connector_queue_manager_identifier(self) -> UUID:
        offset = self._layout().transaction
        if offset and self.packet[offset] & at.CG:
            return guid_from_bytes(self.packet[offset + 20 : offset + 36])
        return GUID_NULL

    # SecurityHeader

    def _security_flags(self) -> int:
        offset = self._layout().security
        value: int = _u16(self.packet, offset)[0] if offset else 0
        return value

    def _security_data(self, index: int) -> bytes:
        """Return an item of SecurityData.

        0 is SecurityID, 1 EncryptionKey, 2 Signature, 3 SenderCert, 4 ProviderInfo.
        """
        offset = self._layout().security
        if not offset:
            return b""
        sizes = _SECURITY.unpack_from(self.packet, offset)[1:]
        offset += at.SECURITY_HEADER_SIZE + sum(size + 3 & ~3 for size in sizes[:index])
        return self.packet[offset : offset + sizes[index]]

    @property
    def has_security_header(self) -> bool:
        return bool(self.packet[62] & 0x08)

    @property
    def sender_identifier_type(self) -> SenderIdentifierType:
        return _SENDER_TYPES[self._security_flags() & 3]

    @property
    def sender_identifier(self) -> bytes:
        """A SID or a queue manager's GUID, depending on sender_identifier_type.

        It is empty for an anonymous sender.
        """
        return self._security_data(0)

    @property
    def symmetric_key(self) -> bytes:
        return self._security_data(1)

    @property
    def signature(self) -> bytes:
        return self._security_data(2)

    @property
    def sender_certificate(self) -> bytes:
        return self._security_data(3)

    @property
    def authentication_provider_type(self) -> int:
        info = self._security_data(4)
        return split_provider_info(info)[0] if info else 0

    @property
    def authentication_provider_name(self) -> str:
        info = self._security_data(4)
        return split_provider_info(info)[1] if info else ""

    @property
    def authentication_level(self) -> int:
        """AS, which only the receiving queue manager sets, after verification.

        DMPR-3.1.7.1.31-3.
        """
        value = self._security_flags() >> at.AS_SHIFT & 0xF
        return _AUTHENTICATION_LEVELS.get(value, value)

    @property
    def is_marked_authenticated(self) -> bool:
        """AU, which is 0 on the wire and ignored here: use `authentication_level`."""
        return bool(self._security_flags() & at.AU)

    @property
    def is_body_encrypted(self) -> bool:
        return bool(self._security_flags() & at.EB)

    @property
    def uses_default_provider(self) -> bool:
        return bool(self._security_flags() & at.DE)

    # MessagePropertiesHeader

    def _property(self, offset: int) -> int:
        value: int = _u32(self.packet, self._layout().properties + offset)[0]
        return value

    @property
    def acknowledgements_requested(self) -> Acknowledgements:
        return _ACKNOWLEDGEMENTS[self.packet[self._layout().properties] & at.ACKNOWLEDGE_MASK]

    @property
    def message_class(self) -> int:
        value: int = _u16(self.packet, self._layout().properties + 2)[0]
        return _CLASSES.get(value, value)

    @property
    def correlation_identifier(self) -> bytes:
        offset = self._layout().properties + 4
        return self.packet[offset : offset + 20]

    @property
    def correlated_queue_manager(self) -> bytes:
        """The queue manager in the correlation identifier, if that identifies a message."""
        offset = self._layout().properties + 4
        return self.packet[offset : offset + 16]

    @property
    def body_type(self) -> int:
        return self._property(24)

    @property
    def application_tag(self) -> int:
        return self._property(28)

    @property
    def body_size(self) -> int:
        compound = self._layout().compound
        return _COMPOUND.unpack_from(self.packet, compound)[1] if compound else self._property(32)

    @property
    def allocation_body_size(self) -> int:
        return self._property(36)

    @property
    def privacy_level(self) -> int:
        value = self._property(40)
        return _PRIVACY_LEVELS.get(value, value)

    @property
    def hash_algorithm(self) -> int:
        value = self._property(44)
        return _HASHES.get(value, value)

    @property
    def encryption_algorithm(self) -> int:
        value = self._property(48)
        return _CIPHERS.get(value, value)

    @property
    def label_bytes(self) -> bytes:
        """The Label field, including its terminator."""
        offset = self._layout().properties
        start = offset + at.PROPERTIES_HEADER_SIZE
        return self.packet[start : start + 2 * self.packet[offset + 1]]

    @property
    def label(self) -> str:
        data = self.label_bytes
        return decode_terminated(data, "MessagePropertiesHeader.Label") if data else ""

    @property
    def extension(self) -> bytes:
        offset = self._layout().properties
        start = offset + at.PROPERTIES_HEADER_SIZE + 2 * self.packet[offset + 1]
        return self.packet[start : start + _u32(self.packet, offset + 52)[0]]

    @property
    def body(self) -> bytes:
        located, packet = self._layout(), self.packet
        # The body of a message over HTTP is in its CompoundMessageHeader.
        if located.compound:
            start, size = self.body_offset, self.body_size
        else:
            start, size = self._message_body, _u32(packet, located.properties + 32)[0]
        return packet[start : start + size]

    @property
    def body_offset(self) -> int:
        compound = self._layout().compound
        if not compound:
            return self._message_body
        offset: int = _COMPOUND.unpack_from(self.packet, compound)[2]
        return compound + at.COMPOUND_MESSAGE_HEADER_SIZE + offset

    @property
    def _message_body(self) -> int:
        """The offset of MessagePropertiesHeader.MessageBody."""
        offset = self._layout().properties
        packet = self.packet
        start: int = offset + at.PROPERTIES_HEADER_SIZE + 2 * packet[offset + 1] + _u32(packet, offset + 52)[0]
        return start

    @property
    def end_of_properties(self) -> int:
        """The offset after the MessagePropertiesHeader and its padding."""
        return self._message_body + self._property(32) + 3 & ~3

    @property
    def end_of_compound_message(self) -> int:
        """The offset after the CompoundMessageHeader, without padding; 0 if there is none."""
        compound = self._layout().compound
        return at.compound_end(self.packet, compound) if compound else 0

    @property
    def end_of_headers(self) -> int:
        """The offset after the last header of MS-MQMQ. Extension headers may follow."""
        return self._layout().end

    # DebugHeader, SRMP headers, SoapHeader, MultiQueueFormatHeader, extensions

    @property
    def tracing_queue_identifier(self) -> UUID:
        offset = self._layout().debug
        if offset and self.packet[offset] & 3 == 1:
            return guid_from_bytes(self.packet[offset + 4 : offset + 20])
        return GUID_NULL

    @property
    def soap_envelope(self) -> str:
        """The SOAP envelope of a message that came over HTTP; empty for any other."""
        offset = self._layout().envelope
        if not offset:
            return ""
        start = offset + at.SRMP_ENVELOPE_HEADER_SIZE
        end = start + 2 * _u32(self.packet, offset + 4)[0]
        return decode_terminated(self.packet[start:end], "SRMPEnvelopeHeader.Data") if end > start else ""

    @property
    def soap_compound_message(self) -> bytes:
        """The HTTP request that a message came in; empty for any other."""
        compound = self._layout().compound
        if not compound:
            return b""
        return self.packet[compound + at.COMPOUND_MESSAGE_HEADER_SIZE : at.compound_end(self.packet, compound)]

    def _soap_section(self, offset: int, what: str) -> tuple[str, int]:
        length = _SECTION.unpack_from(self.packet, offset)[1]
        end = offset + 8 + 2 * length
        return decode_terminated(self.packet[offset + 8 : end], what) if length else "", end

    @property
    def soap_header(self) -> str:
        offset = self._layout().soap
        return self._soap_section(offset, "SoapHeader.Header")[0] if offset else ""

    @property
    def soap_body(self) -> str:
        offset = self._layout().soap
        if not offset:
            return ""
        offset += 8 + 2 * _SECTION.unpack_from(self.packet, offset)[1]
        return self._soap_section(offset, "SoapHeader.Body")[0]

    @property
    def multi_queue_format_header(self) -> MultiQueueFormatHeader | None:
        offset = self._layout().multi_queue
        return MultiQueueFormatHeader.unpack(Reader(self.packet, offset)) if offset else None

    @property
    def destination_multi_queue_format_name(self) -> FormatName | None:
        header = self.multi_queue_format_header
        return header.destination.format_name if header else None

    @property
    def administration_multi_queue_format_name(self) -> FormatName | None:
        header = self.multi_queue_format_header
        return header.administration.format_name if header else None

    @property
    def response_multi_queue_format_name(self) -> FormatName | None:
        header = self.multi_queue_format_header
        return header.response.format_name if header else None

    @property
    def multiple_destination_signature(self) -> bytes:
        offset = self._layout().multi_queue
        return unpack_signature(Reader(self.packet, offset)) if offset else b""

    @property
    def extensions(self) -> Extensions | None:
        """The headers after the UserMessage proper.

        Bytes that are no ExtensionHeader are ignored.
        """
        offset = self._layout().extension
        if not offset:
            return None
        try:
            return Extensions.unpack(Reader(self.packet, offset))
        except RemoteProtocolError:
            return None

    @property
    def application_deadletter_queue(self) -> str:
        """A path name, or empty if there is none."""
        extensions = self.extensions
        return extensions.dead_letter.dead_letter_path_name if extensions and extensions.dead_letter else ""

    def __repr__(self) -> str:
        return f"<Message {self.identifier} of {self.size} bytes>"
