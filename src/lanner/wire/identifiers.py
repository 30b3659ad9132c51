"""Identifiers within packets (MS-MQMQ 2.2.5, 2.2.8, 2.2.18.1).

These are MessageIdentifier and OBJECTID, TxSequenceID, and SEQUENCE_INFO.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import total_ordering
from typing import ClassVar
from uuid import UUID

from lanner.wire.reader import Reader, guid_to_bytes

_SEQUENCE_INFO = struct.Struct("<qII")
_TX_SEQUENCE_ID = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class MessageIdentifier:
    """MS-MQMQ 2.2.18.1.3, 20 bytes; OBJECTID (2.2.8) is the same pair under other names."""

    queue_manager_guid: UUID
    ordinal: int

    SIZE: ClassVar[int] = 20

    def pack(self) -> bytes:
        return guid_to_bytes(self.queue_manager_guid) + self.ordinal.to_bytes(4, "little")

    @classmethod
    def unpack(cls, reader: Reader) -> MessageIdentifier:
        return cls(reader.guid("MessageIdentifier.QueueManagerGuid"), reader.u32("MessageIdentifier.Ordinal"))

    def __str__(self) -> str:
        return f"{self.queue_manager_guid}\\{self.ordinal}"


@total_ordering
@dataclass(frozen=True, slots=True)
class TxSequenceID:
    """MS-MQMQ 2.2.18.1.2, 8 bytes; compared as an unsigned 64-bit number with TimeStamp on top."""

    ordinal: int
    time_stamp: int

    SIZE: ClassVar[int] = 8

    @classmethod
    def from_value(cls, value: int) -> TxSequenceID:
        return cls(value & 0xFFFF_FFFF, value >> 32)

    @property
    def value(self) -> int:
        return self.time_stamp << 32 | self.ordinal

    def __lt__(self, other: TxSequenceID) -> bool:
        return self.value < other.value

    def pack(self) -> bytes:
        return _TX_SEQUENCE_ID.pack(self.ordinal, self.time_stamp)

    @classmethod
    def unpack(cls, reader: Reader) -> TxSequenceID:
        return cls(reader.u32("TxSequenceID.Ordinal"), reader.u32("TxSequenceID.TimeStamp"))


NO_SEQUENCE = TxSequenceID(0, 0)


@dataclass(frozen=True, slots=True)
class SequenceInfo:
    """SEQUENCE_INFO (MS-MQMQ 2.2.5.1), 16 bytes."""

    seq_id: int  # signed
    seq_no: int
    prev_no: int

    SIZE: ClassVar[int] = 16

    def pack(self) -> bytes:
        return _SEQUENCE_INFO.pack(self.seq_id, self.seq_no, self.prev_no)

    @classmethod
    def unpack(cls, reader: Reader) -> SequenceInfo:
        return cls(*_SEQUENCE_INFO.unpack(reader.take(_SEQUENCE_INFO.size, "SEQUENCE_INFO")))
