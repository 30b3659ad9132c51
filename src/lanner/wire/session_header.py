"""SessionHeader: acknowledgments and window size of one side of a session (MS-MQMQ 2.2.20.4)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

from lanner.wire import layout as at
from lanner.wire.reader import Reader

_LAYOUT = struct.Struct("<HHIHHHH")
DEFAULT_WINDOW_SIZE = 0x0040
# The minimum, which a receiver that is short of memory requests (MS-MQMQ 2.2.20.4, note 15).
SMALLEST_WINDOW_SIZE = 0x0001
# Seconds. Note 15: a sender whose peer lowered the window doubles it at this interval.
WINDOW_RECOVERY_INTERVAL = 30.0
# RecoverableMsgAckFlags has one bit for each.
MAX_RECOVERABLE_ACKS = 32
_NUMBER_MASK = 0xFFFF


def recovered_window(window_size: int, maximum: int = DEFAULT_WINDOW_SIZE) -> int:
    """Return the window after a WINDOW_RECOVERY_INTERVAL in which the peer did not lower it."""
    return min(2 * max(window_size, SMALLEST_WINDOW_SIZE), maximum)


@dataclass(frozen=True, slots=True)
class SessionHeader:
    """The 16 bytes after a UserMessage or in a SessionAck packet.

    The reserved field may have any value and is not kept.
    """

    ack_sequence_number: int
    recoverable_msg_ack_seq_number: int
    recoverable_msg_ack_flags: int  # bit k: number recoverable_msg_ack_seq_number + k is durable
    user_msg_sequence_number: int
    recoverable_msg_seq_number: int
    window_size: int = DEFAULT_WINDOW_SIZE

    SIZE: ClassVar[int] = 16

    def __post_init__(self) -> None:
        """Replace a WindowSize of 0 by 1: such a peer still gets one message at a time."""
        if self.window_size < SMALLEST_WINDOW_SIZE:
            object.__setattr__(self, "window_size", SMALLEST_WINDOW_SIZE)

    @property
    def recoverable_acked_numbers(self) -> tuple[int, ...]:
        """The recoverable sequence numbers, modulo 65536, that this header acknowledges."""
        lowest, flags = self.recoverable_msg_ack_seq_number, self.recoverable_msg_ack_flags
        return tuple(lowest + bit & _NUMBER_MASK for bit in range(MAX_RECOVERABLE_ACKS) if flags >> bit & 1)

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


def attach_session_header(packet: bytes, header: SessionHeader) -> bytes:
    """Return a UserMessage packet with a SessionHeader appended and SH set."""
    return b"".join((packet[:2], bytes((packet[2] | at.BASE_SH,)), packet[3:], header.pack()))


def detach_session_header(packet: bytes) -> tuple[bytes, SessionHeader]:
    """Return a UserMessage packet without its SessionHeader and SH, and the header."""
    header = SessionHeader.unpack(Reader(packet, len(packet) - SessionHeader.SIZE))
    return b"".join((packet[:2], bytes((packet[2] & ~at.BASE_SH,)), packet[3 : -SessionHeader.SIZE])), header
