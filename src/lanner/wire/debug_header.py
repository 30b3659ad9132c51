"""DebugHeader: the destination of trace reports about a message (MS-MQMQ 2.2.20.8)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from lanner.model.errors import RemoteProtocolError
from lanner.wire.reader import Reader, guid_to_bytes

QT_MASK = 0x3


@dataclass(frozen=True, slots=True)
class DebugHeader:
    """Flags.QT is 1 exactly if there is a QueueIdentifier."""

    queue_identifier: UUID | None = None

    def pack(self) -> bytes:
        if self.queue_identifier is None:
            return bytes(4)
        return b"\1\0\0\0" + guid_to_bytes(self.queue_identifier)

    @classmethod
    def unpack(cls, reader: Reader) -> DebugHeader:
        queue_type = reader.u16("DebugHeader.Flags") & QT_MASK
        reader.u16("DebugHeader.Reserved")
        if queue_type > 1:
            raise RemoteProtocolError(f"DebugHeader.Flags.QT: {queue_type} is neither 0 nor 1")
        return cls(reader.guid("DebugHeader.QueueIdentifier") if queue_type else None)
