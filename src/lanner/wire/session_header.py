"""SessionHeader: what one side of a session has received, and how much it wants at once (MS-MQMQ 2.2.20.4)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

from lanner.wire.reader import Reader

_LAYOUT = struct.Struct("<HHIHHHH")
DEFAULT_WINDOW_SIZE = 0x0040


@dataclass(frozen=True, slots=True)
class SessionHeader:
    """16 bytes, after a UserMessage or in a SessionAck packet. Reserved may hold anything and is not kept."""

    ack_sequence_number: int
    recoverable_msg_ack_seq_number: int
    recoverable_msg_ack_flags: int  # bit k: number recoverable_msg_ack_seq_number + k is on disk
    user_msg_sequence_number: int
    recoverable_msg_seq_number: int
    window_size: int = DEFAULT_WINDOW_SIZE

    SIZE: ClassVar[int] = 16

    def pack(self) -> bytes:
        return _LAYOUT.pack(
            self.ack_sequence_number,
            self.recoverable_msg_ack_seq_number,
            self.recoverable_msg_ack_flags,
            self.user_msg_sequence_number,
            self.recoverable_msg_seq_number,
            self.window_size,
            0,
        )

    @classmethod
    def unpack(cls, reader: Reader) -> SessionHeader:
        return cls(*_LAYOUT.unpack(reader.take(cls.SIZE, "SessionHeader"))[:6])
