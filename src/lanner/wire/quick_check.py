"""A fast check of arriving UserMessages (MS-MQQB 3.1.5.1.3; MS-MQMQ 2.2.20).

`check` accepts what `Message.unpack` accepts, except for things that no queue manager sends over
TCP 1801: the bit AH, which announces an SRMP envelope, bits 26 and 27, and bytes after the last
header that are not an ExtensionHeader. If these were stored or forwarded, a later parser would
interpret them.

`Message.unpack` takes most of the time spent on a packet. Packets of the common shape are therefore
checked here in one step: a direct destination, no other queue name, perhaps a TransactionHeader and
a sender's identifier. A packet that is not obviously valid is passed to `Message.unpack`.
"""

from __future__ import annotations

import struct
from typing import Final

from lanner.model.errors import RemoteProtocolError
from lanner.wire import fields
from lanner.wire import layout as at
from lanner.wire import queue_names as names
from lanner.wire.extension_headers import Extensions
from lanner.wire.message import Message
from lanner.wire.queue_names import decode_direct
from lanner.wire.reader import Reader

# BaseHeader.Flags, UserHeader.Flags and the Count of a direct destination.
_front = struct.Struct("<2xH56xIH").unpack_from
_security_sizes = struct.Struct("<HHIII").unpack_from
# LabelLength, MessageClass, MessageSize, ExtensionSize.
_properties = struct.Struct("<xBH28xI16xI").unpack_from
# The flags that a packet of the common shape may have besides a direct destination and MP.
_COMMON: Final = at.RC_MASK | 1 << at.DM_SHIFT | at.JN | at.JP | at.TH | at.SH
_NEVER_SENT: Final = {"AH": at.AH, "bits_26_27": at.RESERVED_26_27}
_DIRECT: Final = at.MP | names.DIRECT_QUEUE << at.DQ_SHIFT


class NeverSent(RemoteProtocolError):
    """A UserMessage has something that MS-MQMQ does not allow a queue manager to send."""


def check(packet: bytes) -> int:
    """Return MessageClass of a well-formed UserMessage. Raise RemoteProtocolError for any other.

    `packet` is the part that PacketSize counts. The framing code has checked its BaseHeader and
    cleared SH.
    """
    offsets = common_offsets(packet)
    if offsets is None:
        return _check_thoroughly(packet)
    size, properties = len(packet), offsets[1]
    label = properties + at.PROPERTIES_HEADER_SIZE
    if label > size:
        return _check_thoroughly(packet)
    label_length, message_class, message_size, extension_size = _properties(packet, properties)
    end = label + 2 * label_length
    if label_length > at.MAX_LABEL_LENGTH or end + extension_size + message_size + 3 & ~3 != size:
        return _check_thoroughly(packet)
    decode_direct(fields.destination(packet)[1])
    if label_length:
        # There is one null character, the last: the first two zero bytes are its own, or begin at
        # the last byte of the character before it.
        null = packet.find(b"\0\0", label, end)
        if null < end - 3 or packet[end - 1]:
            return _check_thoroughly(packet)
    return int(message_class)


def common_offsets(packet: bytes) -> tuple[int, int] | None:
    """Return the offsets of TransactionHeader, or -1, and MessagePropertiesHeader.

    Return None if the packet does not have the common shape. Nothing from MessagePropertiesHeader
    on is read.
    """
    base_flags, flags, count = _front(packet)
    if flags & ~_COMMON != _DIRECT or base_flags & (at.IN | at.DH | at.TR):
        return None
    size = len(packet)
    transaction, properties = -1, at.DESTINATION_OFFSET + (count + 5 & ~3)
    if flags & at.TH:
        if properties >= size or packet[properties] & at.CG or not flags & 1 << at.DM_SHIFT:
            return None
        transaction = properties
        properties += at.TRANSACTION_HEADER_SIZE
    if flags & at.SH:
        if properties + at.SECURITY_HEADER_SIZE > size:
            return None
        security_flags, sender, key_and_signature, certificate, provider = _security_sizes(packet, properties)
        kind = security_flags & at.ST_MASK
        if (
            not sender
            or key_and_signature
            or certificate
            or provider
            or not (kind == 1 or (kind == 2 and sender == 16))
        ):
            return None
        properties += at.SECURITY_HEADER_SIZE + (sender + 3 & ~3)
    return transaction, properties


def _check_thoroughly(packet: bytes) -> int:
    # First, so that no packet from the network gets to the code that reads SRMP headers.
    (flags,) = fields.user_flags(packet)
    for name, bits in _NEVER_SENT.items():
        if flags & bits:
            raise NeverSent(f"UserHeader.Flags.{name}: set")
    message = Message.unpack(packet)
    if message.end_of_headers < len(packet):
        _check_tail(packet, message.end_of_headers)
    return message.message_class


def _check_tail(packet: bytes, start: int) -> None:
    """Reject bytes after the last header unless they are the headers of MS-MQRR 2.2.5.2 only."""
    reader = Reader(packet, start)
    try:
        Extensions.unpack_all(reader)
    except RemoteProtocolError as error:
        raise NeverSent(f"UserMessage: {len(packet) - start} bytes after the last header ({error})") from error
