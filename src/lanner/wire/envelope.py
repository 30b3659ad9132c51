"""Fields at fixed positions in a packet, for code that handles every message without decoding it.

`Envelope` has the fields that determine how a queue treats a message: BaseHeader (16 bytes) and the
fixed part of UserHeader (MS-MQMQ 2.2.19.1, 2.2.19.2). `event_fields` has the fields that the log of
events records. Where possible, single fields are C callables, because a Python function would cost
a call per message. All of them expect a packet that was checked before.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import itemgetter
from typing import Final, NamedTuple

from lanner.model.enums import INFINITE
from lanner.wire import layout as at
from lanner.wire.queue_names import NAME_SIZES

# BaseHeader: Flags at 2, TimeToReachQueue at 12; UserHeader: TimeToBeReceived at 48, SentTime at
# 52, Flags at 60.
_ENVELOPE = struct.Struct("<2xH8xI32xII4xI")
_TIME_TO_REACH_QUEUE = slice(12, 16)
_TIME_TO_BE_RECEIVED = slice(48, 52)
# From TimeToReachQueue to SentTime. If this is equal in two packets of one source and destination,
# they expire together.
expiry_times: Final[Callable[[bytes], bytes]] = itemgetter(slice(12, 56))
# The fields of `Envelope` as bytes: BaseHeader.Flags; from TimeToReachQueue to SentTime;
# UserHeader.Flags.
envelope_bytes: Final[Callable[[bytes], tuple[bytes, ...]]] = itemgetter(slice(2, 4), slice(12, 56), slice(60, 64))
_NEVER = INFINITE.to_bytes(4, "little")
_FLAGS_0_TO_7, _FLAGS_8_TO_15 = 60, 61  # of UserHeader.Flags
# Like Envelope._make, without its check of the length.
_new = tuple.__new__

_PRIORITY = 0x0007
_NEGATIVE_JOURNALING = 0x0000_0100
_POSITIVE_JOURNALING = 0x0000_0200
_ADMINISTRATION_QUEUE = 0x0000_E000
_TRANSACTION_HEADER = 0x0010_0000

# DM: a message without any of these bits is express.
RECOVERABLE = 0x0000_0060
# A message without any of these needs no journal copy, dead-letter copy or acknowledgment when it
# arrives or leaves.
WANTS_ATTENTION = _NEGATIVE_JOURNALING | _POSITIVE_JOURNALING | _ADMINISTRATION_QUEUE
_ATTENTION_BITS = WANTS_ATTENTION >> 8  # all of them are in the second byte

# UserHeader.MessageID in a tuple of one: the ordinal of the message identifier.
message_ordinal: Final[Callable[[bytes], tuple[int]]] = struct.Struct("<56xI").unpack_from

_fixed = struct.Struct("<52xIII").unpack_from  # UserHeader: SentTime, MessageID, Flags
# MessagePropertiesHeader: Flags, MessageClass, CorrelationID, PrivacyLevel
_properties = struct.Struct("<BxH20s16xI").unpack_from
_u16 = struct.Struct("<H").unpack_from
_security_sizes = struct.Struct("<2xHHHII").unpack_from

_AFTER_COUNT: Final = at.DESTINATION_OFFSET + 2
_SHAPE: Final = at.TH | at.CQ | 7 << at.DQ_SHIFT | 7 << at.AQ_SHIFT | 7 << at.RQ_SHIFT
_DIRECT_ONLY: Final = 7 << at.DQ_SHIFT


class Envelope(NamedTuple):
    """Flags, TimeToReachQueue, TimeToBeReceived, SentTime (seconds), UserHeader.Flags."""

    flags: int
    time_to_reach_queue: int
    time_to_be_received: int
    sent_time: int
    user_flags: int

    @property
    def priority(self) -> int:
        """The priority that determines the place in the queue.

        It is 0 for a transactional message (DMPR-3.1.7.1.9-6).
        """
        return 0 if self.user_flags & _TRANSACTION_HEADER else self.flags & _PRIORITY

    @property
    def is_express(self) -> bool:
        """Whether the message is express (MS-MQMQ 2.2.19.2 DM)."""
        return not self.user_flags & RECOVERABLE

    @property
    def is_transactional(self) -> bool:
        """Whether the message is transactional (MS-MQMQ 2.2.19.2 TH)."""
        return bool(self.user_flags & _TRANSACTION_HEADER)

    def received_by(self) -> int | None:
        """Return the Unix time after which it leaves its destination queue (DMPR-3.1.2.4-2)."""
        return None if self.time_to_be_received == INFINITE else self.sent_time + self.time_to_be_received

    def delivered_by(self) -> int | None:
        """Return the Unix time after which the message leaves an outgoing queue."""
        shorter = min(self.time_to_reach_queue, self.time_to_be_received)
        return None if shorter == INFINITE else self.sent_time + shorter


def read_envelope(packet: bytes) -> Envelope:
    """Decode the fixed fields of a packet."""
    return _new(Envelope, _ENVELOPE.unpack_from(packet))


def is_express(packet: bytes) -> bool:
    """Return whether a message is express (MS-MQMQ 2.2.19.2 DM)."""
    return not packet[_FLAGS_0_TO_7] & RECOVERABLE


def may_expire(packet: bytes, *, in_transit: bool) -> bool:
    """Return whether the lifetime is limited.

    The lifetime is TimeToBeReceived, or TimeToReachQueue in an outgoing queue.
    """
    return packet[_TIME_TO_BE_RECEIVED] != _NEVER or (in_transit and packet[_TIME_TO_REACH_QUEUE] != _NEVER)


def wants_attention(packet: bytes) -> bool:
    """Return whether the message requests journaling, dead-lettering or acknowledgments."""
    return packet[_FLAGS_8_TO_15] & _ATTENTION_BITS != 0


# UserHeader.SentTime, MessageID and Flags; MessagePropertiesHeader.Flags, MessageClass,
# CorrelationID and PrivacyLevel; the offset of SecurityHeader, or 0; and its bytes up to the end of
# the sender identifier.
EventFields = tuple[int, int, int, int, int, bytes, int, int, bytes]


def event_fields(packet: bytes) -> EventFields:
    """Return the fields of a packet that the log of events records."""
    sent_time, ordinal, flags = _fixed(packet)
    security = end = 0
    if flags & _SHAPE == _DIRECT_ONLY:
        # The common shape, a direct name and perhaps a SecurityHeader, is computed here to avoid a
        # call.
        position = _AFTER_COUNT + _u16(packet, at.DESTINATION_OFFSET)[0] + 3 & ~3
        if flags & at.SH:
            security = position
            sender, *others = _security_sizes(packet, position)
            end = position + at.SECURITY_HEADER_SIZE + sender
            position = (end + 3 & ~3) + sum([size + 3 & ~3 for size in others if size])
    else:
        security, position = header_offsets(packet, flags)
        if security:
            end = security + at.SECURITY_HEADER_SIZE + _security_sizes(packet, security)[0]
    acknowledge, message_class, correlation, privacy = _properties(packet, position)
    return sent_time, ordinal, flags, acknowledge, message_class, correlation, privacy, security, packet[security:end]


def sender_of(packet: bytes, security: int) -> tuple[bytes, int, bool]:
    """Return the sender, AuthenticationLevel, and whether there is a signature.

    The sender is one byte of SenderIdentifierType and the identifier, or empty if there is none.
    """
    flags = _u16(packet, security)[0]
    size, _, signature, _, _ = _security_sizes(packet, security)
    begin = security + at.SECURITY_HEADER_SIZE
    sender = bytes((flags & at.ST_MASK,)) + packet[begin : begin + size] if size else b""
    return sender, (flags & at.AS_MASK) >> at.AS_SHIFT, bool(signature)


def header_offsets(packet: bytes, flags: int) -> tuple[int, int]:
    """Return the offsets of SecurityHeader, or 0, and MessagePropertiesHeader.

    `flags` are UserHeader.Flags. `layout.locate` returns the same offsets.
    """
    position = at.DESTINATION_OFFSET
    for shift in (at.DQ_SHIFT, at.AQ_SHIFT, at.RQ_SHIFT):
        step = NAME_SIZES[flags >> shift & 7]
        position = position + step if step >= 0 else position + 2 + _u16(packet, position)[0] + 3 & ~3
    if flags & at.CQ:
        position += 16
    if flags & at.TH:
        position += at.TRANSACTION_HEADER_SIZE + (16 if packet[position] & at.CG else 0)
    if not flags & at.SH:
        return 0, position
    sizes = _security_sizes(packet, position)
    return position, position + at.SECURITY_HEADER_SIZE + sum([size + 3 & ~3 for size in sizes])
