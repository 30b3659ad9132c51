"""The sender of a message that needs no verification (MS-MQMQ 2.2.20.6; MS-MQQB 3.1.5.8.3).

Most messages between queue managers have a direct destination, a sender's identifier and no
signature. This module reads the identifier of such a message in one step. Every other message is
left to `Message`.
"""

from __future__ import annotations

import struct
from typing import Final

from lanner.model.enums import SenderIdentifierType
from lanner.wire import layout as at
from lanner.wire import queue_names as names
from lanner.wire.sid import EVERYONE

# UserHeader.Flags of a packet that names only its destination, directly, and has no rare headers.
_ONLY: Final = 7 << at.DQ_SHIFT | 7 << at.AQ_SHIFT | 7 << at.RQ_SHIFT | at.CQ | at.MQ | at.HH
_DIRECT: Final = names.DIRECT_QUEUE << at.DQ_SHIFT
_count = struct.Struct("<64xH").unpack_from  # of the DirectFormatName in DestinationQueue
# SecurityHeader: Flags, SecurityIDSize, and the sizes of all other items.
_security = struct.Struct("<HHQI").unpack_from
_PRIVACY_LEVEL: Final = 40  # in MessagePropertiesHeader
_NO_PRIVACY: Final = bytes(4)
_FOR_EVER: Final = b"\xff\xff\xff\xff"
_SID: Final = int(SenderIdentifierType.SID)
_QUEUE_MANAGER_IDENTIFIER: Final = int(SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER)

# The result of `plain_sender` for a message without a sender.
NO_SENDER: Final = b""
# The result for a queue manager: every queue manager has the rights of Everyone.
QUEUE_MANAGER: Final = EVERYONE.pack()


def plain_sender(packet: bytes, user_flags: int) -> bytes | None:
    """Return the SID of a plain message's sender, NO_SENDER or QUEUE_MANAGER.

    Return None if the message is not plain. A plain message has no signature and is not encrypted,
    has no flags that say otherwise, and has no TimeToBeReceived. The packet was checked before;
    `user_flags` are its UserHeader.Flags.
    """
    if user_flags & _ONLY != _DIRECT or packet[48:52] != _FOR_EVER:
        return None
    position = at.DESTINATION_OFFSET + (int(_count(packet)[0]) + 5 & ~3)
    if user_flags & at.TH:
        position += at.TRANSACTION_HEADER_SIZE + 16 * (packet[position] & at.CG)
    sender = NO_SENDER
    if user_flags & at.SH:
        flags, size, key_and_signature_and_certificate, provider = _security(packet, position)
        if key_and_signature_and_certificate or provider:
            return None
        position += at.SECURITY_HEADER_SIZE
        if flags == _SID and size:
            sender = packet[position : position + size]
        elif flags == _QUEUE_MANAGER_IDENTIFIER:
            sender = QUEUE_MANAGER
        else:
            return None
        position += size + 3 & ~3
    position += _PRIVACY_LEVEL
    return sender if packet[position : position + 4] == _NO_PRIVACY else None
