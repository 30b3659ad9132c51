"""The fields of a packet that decide what a queue does with it, read in one step.

They stand at fixed places in BaseHeader (16 bytes) and the fixed part of UserHeader (MS-MQMQ 2.2.19.1,
2.2.19.2), so the path of a message through a queue decodes nothing else.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from lanner.model.enums import INFINITE

# BaseHeader: Flags at 2, TimeToReachQueue at 12; UserHeader: TimeToBeReceived at 48, SentTime at 52, Flags at 60.
_ENVELOPE = struct.Struct("<2xH8xI32xII4xI")
# What is asked of each message that leaves is asked of its bytes: no structure is made for it.
_TIME_TO_REACH_QUEUE = slice(12, 16)
_TIME_TO_BE_RECEIVED = slice(48, 52)
_NEVER = INFINITE.to_bytes(4, "little")
_FLAGS_0_TO_7, _FLAGS_8_TO_15 = 60, 61  # of UserHeader.Flags
# What Envelope._make does, without its check of the length.
_new = tuple.__new__

_PRIORITY = 0x0007
_DELIVERY_MODE = 0x0000_0060
_NEGATIVE_JOURNALING = 0x0000_0100
_POSITIVE_JOURNALING = 0x0000_0200
_ADMINISTRATION_QUEUE = 0x0000_E000
_TRANSACTION_HEADER = 0x0010_0000

# A message with none of these asks nothing of anybody when it arrives or leaves.
WANTS_ATTENTION = _NEGATIVE_JOURNALING | _POSITIVE_JOURNALING | _ADMINISTRATION_QUEUE
_ATTENTION_BITS = WANTS_ATTENTION >> 8  # all of them in the second byte


class Envelope(NamedTuple):
    """BaseHeader.Flags, TimeToReachQueue, TimeToBeReceived, SentTime (seconds), UserHeader.Flags."""

    flags: int
    time_to_reach_queue: int
    time_to_be_received: int
    sent_time: int
    user_flags: int

    @property
    def priority(self) -> int:
        """Place in the queue: a transactional message counts as priority 0 (DMPR-3.1.7.1.9-6)."""
        return 0 if self.user_flags & _TRANSACTION_HEADER else self.flags & _PRIORITY

    @property
    def is_express(self) -> bool:
        """MS-MQMQ 2.2.19.2 DM."""
        return not self.user_flags & _DELIVERY_MODE

    @property
    def is_transactional(self) -> bool:
        """MS-MQMQ 2.2.19.2 TH."""
        return bool(self.user_flags & _TRANSACTION_HEADER)

    def received_by(self) -> int | None:
        """Unix second after which the message leaves its destination queue (DMPR-3.1.2.4-2)."""
        return None if self.time_to_be_received == INFINITE else self.sent_time + self.time_to_be_received

    def delivered_by(self) -> int | None:
        """Unix second after which the message leaves an outgoing queue."""
        shorter = min(self.time_to_reach_queue, self.time_to_be_received)
        return None if shorter == INFINITE else self.sent_time + shorter


def read_envelope(packet: bytes) -> Envelope:
    """Decode the fixed fields of a packet that has been checked before."""
    return _new(Envelope, _ENVELOPE.unpack_from(packet))


def is_express(packet: bytes) -> bool:
    """MS-MQMQ 2.2.19.2 DM of a packet."""
    return not packet[_FLAGS_0_TO_7] & _DELIVERY_MODE


def may_expire(packet: bytes, *, in_transit: bool) -> bool:
    """Whether TimeToBeReceived, or in an outgoing queue TimeToReachQueue, is limited."""
    return packet[_TIME_TO_BE_RECEIVED] != _NEVER or (in_transit and packet[_TIME_TO_REACH_QUEUE] != _NEVER)


def wants_attention(packet: bytes) -> bool:
    """Whether the message asks for journaling, dead-lettering or acknowledgments."""
    return packet[_FLAGS_8_TO_15] & _ATTENTION_BITS != 0
