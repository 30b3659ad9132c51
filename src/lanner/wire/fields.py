"""Single fields of a packet, read in place (MS-MQMQ 2.2.19.1 BaseHeader, 2.2.19.2 UserHeader).

These callables are for code that handles every message and needs only one or two of its fields. The
general way to read a packet is `Message`. The bytes must have been checked before. Most callables
are implemented in C, so reading a field costs no Python call. To test a flag, apply its mask to the
byte or bytes that the callable returns.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final

from lanner.wire import layout as at
from lanner.wire import queue_names as names

# BaseHeader
# --------------------------------------------------------------------------------------------------

# VersionNumber, Flags, Signature, PacketSize, from a buffer at an offset.
base_header: Final = struct.Struct("<BxHII").unpack_from
base_flags: Final[Callable[[bytes], bytes]] = itemgetter(slice(2, 4))
base_flags_low: Final[Callable[[bytes], int]] = itemgetter(2)
base_flags_high: Final[Callable[[bytes], int]] = itemgetter(3)
NO_BASE_FLAGS: Final = b"\0\0"
TR_IN_BASE_FLAGS_HIGH: Final = at.TR >> 8

# UserHeader
# --------------------------------------------------------------------------------------------------

source_queue_manager: Final[Callable[[bytes], bytes]] = itemgetter(slice(16, 32))
queue_manager_address: Final[Callable[[bytes], bytes]] = itemgetter(slice(32, 48))
sent_time: Final[Callable[[bytes], bytes]] = itemgetter(slice(52, 56))
message_id: Final[Callable[[bytes], bytes]] = itemgetter(slice(56, 60))
# The QueueManagerAddress of a message for the receiving queue manager.
NO_QUEUE_MANAGER: Final = bytes(16)

# BaseHeader.TimeToReachQueue, UserHeader.SentTime.
lifetime: Final = struct.Struct("<12xI36xI").unpack_from
# BaseHeader.Flags, UserHeader.SourceQueueManager, QueueManagerAddress, MessageID, Flags.
arrival: Final = struct.Struct("<2xH12x16s16s8x4sI").unpack_from
# UserHeader.Flags, in a tuple of one.
user_flags: Final = struct.Struct("<60xI").unpack_from
# The bytes of UserHeader.Flags, and masks for them.
user_flags_0: Final[Callable[[bytes], int]] = itemgetter(60)
user_flags_1: Final[Callable[[bytes], int]] = itemgetter(61)
user_flags_2: Final[Callable[[bytes], int]] = itemgetter(62)
DM_IN_USER_FLAGS_0: Final = 1 << at.DM_SHIFT
JOURNALING_IN_USER_FLAGS_1: Final = (at.JN | at.JP) >> 8
DQ_IN_USER_FLAGS_1: Final = 7 << at.DQ_SHIFT - 8
SH_IN_USER_FLAGS_2: Final = at.SH >> 16
TH_IN_USER_FLAGS_2: Final = at.TH >> 16
# Masks for all of UserHeader.Flags.
DM: Final = 1 << at.DM_SHIFT
DQ: Final = 7 << at.DQ_SHIFT
RQ: Final = 7 << at.RQ_SHIFT
DIRECT_DQ: Final = names.DIRECT_QUEUE << at.DQ_SHIFT
_NAMES: Final = DQ | 7 << at.AQ_SHIFT | RQ | at.CQ

_count = struct.Struct("<64xH").unpack_from  # of a DirectFormatName in DestinationQueue
_transaction = struct.Struct("<4xQII").unpack_from


def destination(packet: bytes) -> tuple[int, bytes]:
    """Return DQ and the bytes of DestinationQueue, without Count and padding."""
    kind = packet[61] >> 2 & 7
    if kind == names.DIRECT_QUEUE:
        return kind, packet[66 : 66 + _count(packet)[0]]
    return kind, packet[64 : 64 + names.NAME_SIZES[kind]]


def transactions(packets: Sequence[bytes], flags: int) -> list[tuple[int, int, int]]:
    """Return the TransactionHeader fields of packets of equal shape.

    They are TxSequenceID as one number, TxSequenceNumber and PreviousTxSequenceNumber. All packets
    have a TransactionHeader; `flags` are their UserHeader.Flags.
    """
    if flags & _NAMES == DIRECT_DQ:
        offset = at.DESTINATION_OFFSET + (int(_count(packets[0])[0]) + 5 & ~3)
    else:
        offset = at.locate(packets[0]).transaction
    return [_transaction(packet, offset) for packet in packets]
