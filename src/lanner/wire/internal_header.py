"""Packets that open and maintain a session: InternalHeader and the headers after it.

MS-MQQB 2.2.1 to 2.2.3 and 2.2.6.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from lanner.model.enums import INFINITE
from lanner.model.errors import RemoteProtocolError
from lanner.wire import layout as at
from lanner.wire.base_header import BaseHeader
from lanner.wire.reader import Reader, guid_from_bytes, guid_to_bytes
from lanner.wire.session_header import DEFAULT_WINDOW_SIZE, SessionHeader

_DEFAULT_PRIORITY = 3
_INTERNAL = struct.Struct("<HH")
_ESTABLISH = struct.Struct("<16s16sIHH512s")
_PARAMETERS = struct.Struct("<IIHH")
# BaseHeader, InternalHeader and SessionHeader together.
_SESSION_ACK = struct.Struct("<BBHIIIHHHHIHHHH")


class PacketType(enum.IntEnum):
    """InternalHeader.Flags.PT (MS-MQQB 2.2.1)."""

    SESSION_ACK = 0x1
    ESTABLISH_CONNECTION = 0x2
    CONNECTION_PARAMETERS = 0x3


@dataclass(frozen=True, slots=True)
class InternalHeader:
    """InternalHeader (MS-MQQB 2.2.1), 4 bytes.

    Unpacking keeps all bits of Flags, including the reserved ones, but not the reserved word.
    """

    flags: int

    SIZE: ClassVar[int] = 4
    PT_MASK: ClassVar[int] = 0x000F
    CS: ClassVar[int] = 0x0010

    @classmethod
    def of(cls, packet_type: PacketType, *, refused: bool = False) -> InternalHeader:
        return cls(packet_type | (cls.CS if refused else 0))

    @property
    def packet_type(self) -> PacketType:
        return PacketType(self.flags & self.PT_MASK)

    @property
    def is_refused(self) -> bool:
        """CS: whether the connection is refused."""
        return bool(self.flags & self.CS)

    def pack(self) -> bytes:
        return _INTERNAL.pack(0, self.flags)

    @classmethod
    def unpack(cls, reader: Reader) -> InternalHeader:
        _, flags = _INTERNAL.unpack(reader.take(cls.SIZE, "InternalHeader"))
        if not PacketType.SESSION_ACK <= flags & cls.PT_MASK <= PacketType.CONNECTION_PARAMETERS:
            raise RemoteProtocolError(f"InternalHeader.Flags.PT: {flags & cls.PT_MASK} is not 1, 2 or 3")
        return cls(flags)


@dataclass(frozen=True, slots=True)
class EstablishConnectionHeader:
    """EstablishConnectionHeader (MS-MQQB 2.2.3.1), 552 bytes."""

    client_guid: UUID
    server_guid: UUID
    time_stamp: int  # milliseconds since the initiator's system started
    operating_system: int
    reserved: int = 0
    padding: bytes = b"\x5a" * 512

    SIZE: ClassVar[int] = 552
    # OperatingSystem: the low byte is reserved and always 0x10.
    RE: ClassVar[int] = 0x0010
    SE: ClassVar[int] = 0x0100
    OS: ClassVar[int] = 0x0200
    QS: ClassVar[int] = 0x0400

    @property
    def was_not_pinged(self) -> bool:
        """SE: whether the initiator sent no ping before this session."""
        return bool(self.operating_system & self.SE)

    @property
    def is_server(self) -> bool:
        """OS: whether the initiator runs a server-class operating system."""
        return bool(self.operating_system & self.OS)

    @property
    def has_quality_of_service(self) -> bool:
        return bool(self.operating_system & self.QS)

    def pack(self) -> bytes:
        return _ESTABLISH.pack(
            guid_to_bytes(self.client_guid),
            guid_to_bytes(self.server_guid),
            self.time_stamp,
            self.operating_system,
            self.reserved,
            self.padding,
        )

    @classmethod
    def unpack(cls, reader: Reader) -> EstablishConnectionHeader:
        client, server, *rest = _ESTABLISH.unpack(reader.take(cls.SIZE, "EstablishConnectionHeader"))
        return cls(guid_from_bytes(client), guid_from_bytes(server), *rest)


@dataclass(frozen=True, slots=True)
class ConnectionParametersHeader:
    """ConnectionParametersHeader (MS-MQQB 2.2.2.1), 12 bytes."""

    recoverable_ack_timeout: int  # milliseconds
    ack_timeout: int  # milliseconds
    window_size: int = DEFAULT_WINDOW_SIZE

    SIZE: ClassVar[int] = 12

    def pack(self) -> bytes:
        return _PARAMETERS.pack(self.recoverable_ack_timeout, self.ack_timeout, 0, self.window_size)

    @classmethod
    def unpack(cls, reader: Reader) -> ConnectionParametersHeader:
        recoverable, plain, _, window = _PARAMETERS.unpack(reader.take(cls.SIZE, "ConnectionParametersHeader"))
        return cls(recoverable, plain, window)


def pack_internal(
    internal_header: InternalHeader,
    content: EstablishConnectionHeader | ConnectionParametersHeader | SessionHeader,
) -> bytes:
    """Return an EstablishConnection, ConnectionParameters or SessionAck packet.

    MS-MQQB 2.2.2, 2.2.3 and 2.2.6. IN is set, the priority is the default, as in the examples of
    the document, and TimeToReachQueue is infinite (MS-MQMQ 2.2.19.1). PacketSize of a SessionAck
    includes its SessionHeader (docs/decisions.md).
    """
    rest = internal_header.pack() + content.pack()
    flags = at.IN | _DEFAULT_PRIORITY | (at.BASE_SH if isinstance(content, SessionHeader) else 0)
    return BaseHeader(flags, BaseHeader.SIZE + len(rest)).pack() + rest


_FLAGS_OF_SESSION_ACK = at.IN | at.BASE_SH | _DEFAULT_PRIORITY


def pack_session_ack(header: SessionHeader) -> bytes:
    """Return the SessionAck packet (MS-MQQB 2.2.6) that `pack_internal` would build."""
    return _SESSION_ACK.pack(
        at.VERSION_NUMBER,
        0,
        _FLAGS_OF_SESSION_ACK,
        at.SIGNATURE,
        _SESSION_ACK.size,
        INFINITE,
        0,
        PacketType.SESSION_ACK,
        header.ack_sequence_number,
        header.recoverable_msg_ack_seq_number,
        header.recoverable_msg_ack_flags,
        header.user_msg_sequence_number,
        header.recoverable_msg_seq_number,
        header.window_size,
        0,
    )


def read_session_ack(packet: bytes) -> SessionHeader | None:
    """Return the SessionHeader of a SessionAck packet.

    `packet` is an internal packet whose BaseHeader the framing code has checked. Return None if it
    is malformed or is not a SessionAck.
    """
    if len(packet) != _SESSION_ACK.size:
        return None
    _, _, base_flags, _, _, _, _, flags, *header, _ = _SESSION_ACK.unpack(packet)
    if not base_flags & at.BASE_SH or flags & (InternalHeader.PT_MASK | InternalHeader.CS) != PacketType.SESSION_ACK:
        return None
    return SessionHeader(*header)
