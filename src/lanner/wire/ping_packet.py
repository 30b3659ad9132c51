"""Ping packet: one UDP datagram each way (MS-MQQB 2.2.7)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from lanner.model.errors import RemoteProtocolError
from lanner.wire.reader import Reader, guid_from_bytes, guid_to_bytes

_LAYOUT = struct.Struct("<HHI16s")
SIGNATURE = 0x5548


@dataclass(frozen=True, slots=True)
class PingPacket:
    """The 24 bytes of a ping. Bits of Flags other than RC and RF may have any value."""

    flags: int
    cookie: int
    qm_guid: UUID

    SIZE: ClassVar[int] = 24
    RC: ClassVar[int] = 0x0001
    RF: ClassVar[int] = 0x0002

    @property
    def is_from_client(self) -> bool:
        """RC: whether the initiator's operating system is not of the server class."""
        return bool(self.flags & self.RC)

    @property
    def is_refused(self) -> bool:
        """RF: whether the acceptor would refuse a session now."""
        return bool(self.flags & self.RF)

    def pack(self) -> bytes:
        return _LAYOUT.pack(self.flags, SIGNATURE, self.cookie, guid_to_bytes(self.qm_guid))

    @classmethod
    def unpack(cls, reader: Reader) -> PingPacket:
        flags, signature, cookie, guid = _LAYOUT.unpack(reader.take(cls.SIZE, "Ping"))
        if signature != SIGNATURE:
            raise RemoteProtocolError(f"Ping.Signature: {signature:#06x} is not {SIGNATURE:#06x}")
        return cls(flags, cookie, guid_from_bytes(guid))
