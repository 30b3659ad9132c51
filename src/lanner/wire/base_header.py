"""BaseHeader: the first 16 bytes of every packet but a ping (MS-MQMQ 2.2.19.1)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

from lanner.model.enums import INFINITE
from lanner.model.errors import RemoteProtocolError
from lanner.wire import layout as at
from lanner.wire.reader import Reader

_LAYOUT = struct.Struct("<BBHIII")
SESSION_HEADER_SIZE = 16


@dataclass(frozen=True, slots=True)
class BaseHeader:
    """VersionNumber and Signature have only one legal value each and are not kept."""

    flags: int
    packet_size: int  # bytes, without a SessionHeader that follows a UserMessage
    time_to_reach_queue: int = INFINITE  # seconds; INFINITE in every packet but a UserMessage
    reserved: int = 0

    SIZE: ClassVar[int] = at.BASE_HEADER_SIZE

    @property
    def priority(self) -> int:
        return self.flags & at.PRIORITY_MASK

    @property
    def is_internal(self) -> bool:
        return bool(self.flags & at.IN)

    @property
    def has_session_header(self) -> bool:
        return bool(self.flags & at.BASE_SH)

    @property
    def has_debug_header(self) -> bool:
        return bool(self.flags & at.DH)

    @property
    def is_traced(self) -> bool:
        return bool(self.flags & at.TR)

    @property
    def stream_size(self) -> int:
        """The size of the packet in a stream, including the SessionHeader after a UserMessage.

        PacketSize of a stand-alone SessionAck includes its SessionHeader, that of a UserMessage
        does not.
        """
        follows = self.flags & (at.BASE_SH | at.IN) == at.BASE_SH
        return self.packet_size + (SESSION_HEADER_SIZE if follows else 0)

    def pack(self) -> bytes:
        return _LAYOUT.pack(
            at.VERSION_NUMBER, self.reserved, self.flags, at.SIGNATURE, self.packet_size, self.time_to_reach_queue
        )

    @classmethod
    def unpack(cls, reader: Reader) -> BaseHeader:
        version, reserved, flags, signature, size, time = _LAYOUT.unpack(reader.take(cls.SIZE, "BaseHeader"))
        if version != at.VERSION_NUMBER:
            raise RemoteProtocolError(f"BaseHeader.VersionNumber: {version:#04x} is not {at.VERSION_NUMBER:#04x}")
        if signature != at.SIGNATURE:
            raise RemoteProtocolError(f"BaseHeader.Signature: {signature:#010x} is not {at.SIGNATURE:#010x}")
        if not cls.SIZE <= size <= at.MAX_PACKET_SIZE:
            raise RemoteProtocolError(f"BaseHeader.PacketSize: {size} is not in {cls.SIZE} to {at.MAX_PACKET_SIZE}")
        return cls(flags, size, time, reserved)
