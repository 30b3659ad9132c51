"""UserHeader: source and destination, and which headers follow (MS-MQMQ 2.2.19.2)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID

from lanner.wire import layout as at
from lanner.wire import queue_names as names
from lanner.wire.format_name import DirectFormatName, FormatName, PrivateFormatName, PublicFormatName
from lanner.wire.reader import Reader, guid_from_bytes, guid_to_bytes

_LAYOUT = struct.Struct("<16s16sIIII")
_U32 = struct.Struct("<I")

# A PrivateQueueFormatNameId is only a number; the type code in Flags determines its queue manager.
QueueName = int | FormatName | None


def _unpack_name(reader: Reader, code: int, start: int, what: str) -> QueueName:
    if code == names.DIRECT_QUEUE:
        name = names.decode_direct(reader.take(reader.u16(f"{what}.Count"), f"{what}.DirectFormatName"))
        reader.align(4, start, what)
        return name
    if code == names.PUBLIC_QUEUE:
        return PublicFormatName(reader.guid(what))
    if code == names.PRIVATE_QUEUE_ON_OTHER:
        return PrivateFormatName(
            reader.guid(f"{what}.SourceQueueManager"), reader.u32(f"{what}.PrivateQueueIdentifier")
        )
    if code in (names.NONE, names.SAME_AS_ADMINISTRATION_QUEUE):
        return None
    return reader.u32(what)


def _pack_name(name: QueueName) -> bytes:
    if name is None:
        return b""
    if isinstance(name, int):
        return _U32.pack(name)
    if isinstance(name, DirectFormatName):
        return names.encode_direct(name)
    if isinstance(name, PublicFormatName):
        return guid_to_bytes(name.identifier)
    if isinstance(name, PrivateFormatName):
        return guid_to_bytes(name.queue_manager_identifier) + _U32.pack(name.number)
    raise TypeError(f"{name} has no form in a UserHeader")


@dataclass(frozen=True, slots=True)
class UserHeader:
    """The caller must set the type codes DQ, AQ and RQ in `flags` to match the names."""

    source_queue_manager: UUID
    queue_manager_address: UUID  # all zero for a direct destination
    time_to_be_received: int  # seconds
    sent_time: int  # seconds since 1970 UTC
    message_id: int
    flags: int
    destination_queue: QueueName = None
    admin_queue: QueueName = None
    response_queue: QueueName = None
    connector_type: UUID | None = None

    def pack(self) -> bytes:
        return b"".join(
            (
                _LAYOUT.pack(
                    guid_to_bytes(self.source_queue_manager),
                    guid_to_bytes(self.queue_manager_address),
                    self.time_to_be_received,
                    self.sent_time,
                    self.message_id,
                    self.flags,
                ),
                _pack_name(self.destination_queue),
                _pack_name(self.admin_queue),
                _pack_name(self.response_queue),
                b"" if self.connector_type is None else guid_to_bytes(self.connector_type),
            )
        )

    @classmethod
    def unpack(cls, reader: Reader) -> UserHeader:
        start = reader.position
        source, address, time_to_be_received, sent_time, message_id, flags = _LAYOUT.unpack(
            reader.take(_LAYOUT.size, "UserHeader")
        )
        at.check_flags(0, flags)
        return cls(
            guid_from_bytes(source),
            guid_from_bytes(address),
            time_to_be_received,
            sent_time,
            message_id,
            flags,
            _unpack_name(reader, flags >> at.DQ_SHIFT & 7, start, "UserHeader.DestinationQueue"),
            _unpack_name(reader, flags >> at.AQ_SHIFT & 7, start, "UserHeader.AdminQueue"),
            _unpack_name(reader, flags >> at.RQ_SHIFT & 7, start, "UserHeader.ResponseQueue"),
            reader.guid("UserHeader.ConnectorType") if flags & at.CQ else None,
        )
