"""A UserMessage packet as its headers, for changing whole headers (MS-MQMQ 2.2.20).

Signing and encrypting need that. To read single properties, use `Message`. Both reject the same
bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lanner.model.errors import RemoteProtocolError
from lanner.wire import layout as at
from lanner.wire.base_header import BaseHeader
from lanner.wire.debug_header import DebugHeader
from lanner.wire.message_properties_header import MessagePropertiesHeader
from lanner.wire.multi_queue_format_header import MultiQueueFormatHeader
from lanner.wire.reader import Reader
from lanner.wire.security_header import SecurityHeader
from lanner.wire.soap_header import SoapHeader
from lanner.wire.srmp_headers import CompoundMessageHeader, SrmpEnvelopeHeader
from lanner.wire.transaction_header import TransactionHeader
from lanner.wire.user_header import UserHeader

_OPTIONAL = at.TH | at.SH | at.AH | at.HH | at.MQ


@dataclass(frozen=True, slots=True)
class UserMessage:
    """The headers of a packet without SessionHeader, in their order.

    `extensions` are the bytes after the last header.
    """

    base_header: BaseHeader
    user_header: UserHeader
    message_properties_header: MessagePropertiesHeader
    transaction_header: TransactionHeader | None = None
    security_header: SecurityHeader | None = None
    debug_header: DebugHeader | None = None
    # Either both or neither.
    srmp_envelope_header: SrmpEnvelopeHeader | None = None
    compound_message_header: CompoundMessageHeader | None = None
    soap_header: SoapHeader | None = None
    multi_queue_format_header: MultiQueueFormatHeader | None = None
    extensions: bytes = b""

    def pack(self) -> bytes:
        """Return the packet. Presence bits and PacketSize follow from the headers."""
        present = (
            (at.TH, self.transaction_header),
            (at.SH, self.security_header),
            (at.AH, self.compound_message_header),
            (at.HH, self.soap_header),
            (at.MQ, self.multi_queue_format_header),
        )
        flags = self.user_header.flags & ~_OPTIONAL
        for bit, header in present:
            if header is not None:
                flags |= bit
        ordered = (
            replace(self.user_header, flags=flags),
            self.transaction_header,
            self.security_header,
            self.message_properties_header,
            self.debug_header,
            self.srmp_envelope_header,
            self.compound_message_header,
            self.soap_header,
            self.multi_queue_format_header,
        )
        rest = b"".join(header.pack() for header in ordered if header is not None) + self.extensions
        base_flags = self.base_header.flags & ~at.DH | (at.DH if self.debug_header is not None else 0)
        return replace(self.base_header, flags=base_flags, packet_size=BaseHeader.SIZE + len(rest)).pack() + rest

    @classmethod
    def unpack(cls, data: bytes) -> UserMessage:
        """Parse a packet of exactly PacketSize bytes, as in `Message.packet`."""
        reader = Reader(data)
        base = BaseHeader.unpack(reader)
        if base.packet_size != len(data):
            raise RemoteProtocolError(f"BaseHeader.PacketSize: {base.packet_size} for {len(data)} bytes")
        if base.has_session_header:
            raise RemoteProtocolError("BaseHeader.Flags.SH: set, but the SessionHeader is not part of the message")
        if base.is_internal:
            raise RemoteProtocolError("BaseHeader.Flags.IN: set in a UserMessage")
        if base.is_traced and not base.has_debug_header:
            raise RemoteProtocolError("BaseHeader.Flags.TR: set without DH")
        user = UserHeader.unpack(reader)
        transaction = TransactionHeader.unpack(reader) if user.flags & at.TH else None
        security = SecurityHeader.unpack(reader) if user.flags & at.SH else None
        properties = MessagePropertiesHeader.unpack(reader)
        debug = DebugHeader.unpack(reader) if base.has_debug_header else None
        envelope = SrmpEnvelopeHeader.unpack(reader) if user.flags & at.AH else None
        compound = CompoundMessageHeader.unpack(reader) if user.flags & at.AH else None
        soap = SoapHeader.unpack(reader) if user.flags & at.HH else None
        multi = MultiQueueFormatHeader.unpack(reader) if user.flags & at.MQ else None
        reader.align_or_end(4, 0)
        extensions = reader.take(reader.remaining, "ExtensionHeader")
        return cls(base, user, properties, transaction, security, debug, envelope, compound, soap, multi, extensions)
