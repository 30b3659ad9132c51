"""Packets that programs build for a queue manager to send: their checks and stamps.

The queue manager trusts none of the fields that it is responsible for: source, identifier, sent
time, destination, sender and transaction are overwritten, or must equal what the queue manager
would write. Fields that a program may set are checked as in a packet from another queue manager.
"""

from __future__ import annotations

import struct
from typing import Final
from uuid import UUID

from lanner.model.enums import SenderIdentifierType
from lanner.model.errors import InvalidParameter, RemoteProtocolError
from lanner.wire import layout as at
from lanner.wire.builder import MessageProperties, sender_header, transaction_header
from lanner.wire.format_name import FormatName, is_relative
from lanner.wire.message import Message
from lanner.wire.packet_runs import stamp_packets, stepped
from lanner.wire.queue_names import NAME_SIZES, encode_destination
from lanner.wire.reader import guid_to_bytes

# BaseHeader and the fixed part of UserHeader, without the fields that are overwritten.
_read_front = struct.Struct("<BxHIII32xI8xI").unpack_from
_FRONT: Final = struct.Struct("<BxHIII16s16sIIII")
# MessagePropertiesHeader: Flags, LabelLength, MessageClass, MessageSize, AllocationBodySize,
# PrivacyLevel, ExtensionSize.
_read_properties = struct.Struct("<BBH28xIII8xI").unpack_from
_flags = struct.Struct("<60xI").unpack_from
_packet_size = struct.Struct("<8xI").unpack_from
_message_size = struct.Struct("<32xI").unpack_from
_u16 = struct.Struct("<H").unpack_from

_RECOVERABLE: Final = 1 << at.DM_SHIFT
_NAMED: Final = 7 << at.AQ_SHIFT | 7 << at.RQ_SHIFT | at.CQ
# The bits of UserHeader.Flags that a program may choose.
_CHOSEN: Final = _RECOVERABLE | at.JN | at.JP | _NAMED
_U32: Final = 0xFFFF_FFFF


def _cut(octets: memoryview, position: int) -> tuple[bytes, int]:
    """Return the packet at a position, and its end.

    Raise RemoteProtocolError if the packet is incomplete.
    """
    left = len(octets) - position
    if left < at.MINIMUM_SIZE:
        raise RemoteProtocolError(f"a packet of {left} octets, at least {at.MINIMUM_SIZE}")
    (size,) = _packet_size(octets, position)
    if not at.MINIMUM_SIZE <= size <= at.MAX_PACKET_SIZE or size > left:
        raise RemoteProtocolError(f"a packet of {size} octets where {left} are left")
    return bytes(octets[position : position + size]), position + size


def check_octets(octets: memoryview, most: int) -> None:
    """Raise RemoteProtocolError unless the octets are at most `most` complete packets."""
    position, count = 0, 0
    while position < len(octets):
        _, position = _cut(octets, position)
        count += 1
        if count > most:
            raise RemoteProtocolError(f"more than {most} packets")


class Stamp:
    """Stamps a program's packets as the queue manager's own.

    One stamp is for one destination, sender and time.
    """

    __slots__ = (
        "_address",
        "_destination",
        "_longest",
        "_middle",
        "_now",
        "_properties",
        "_required",
        "_source",
        "_step",
        "_transaction",
        "_transaction_at",
    )

    def __init__(
        self,
        *,
        source: UUID,
        destination: FormatName,
        host: UUID | None,
        sender: bytes,
        transaction: int | None,
        now: int,
        longest: int,
        is_alone: bool = False,
    ) -> None:
        """Prepare the stamp.

        `host` is the queue manager of a public destination, `sender` a SID, `longest` the limit of
        TimeToReachQueue. With `is_alone`, each packet is a transaction of its own, numbered from
        `transaction` on.
        """
        kind, address, name = encode_destination(destination)
        if address is None:
            address = bytes(16) if host is None else guid_to_bytes(host)
        # Positional arguments, as in `build`: `sender_header` caches its results by them.
        security = sender_header(sender, SenderIdentifierType.SID, False) if sender else b""
        self._source, self._address = guid_to_bytes(source), address
        self._destination = name
        header = MessageProperties(first_in_transaction=is_alone, last_in_transaction=is_alone)
        self._transaction = b"" if transaction is None else transaction_header(header, transaction)
        self._step = int(is_alone)
        self._transaction_at = at.DESTINATION_OFFSET + len(name)
        # In a packet without other names, the bytes between its fixed part and its properties.
        self._middle = security
        self._properties = self._transaction_at + len(self._transaction) + len(security)
        self._required = at.MP | kind << at.DQ_SHIFT
        if security:
            self._required |= at.SH
        if self._transaction:
            self._required |= at.TH | _RECOVERABLE
        self._now, self._longest = now & _U32, longest

    def stamped_runs(
        self, octets: memoryview, most: int, ordinal: int
    ) -> tuple[list[list[bytes]], InvalidParameter | None]:
        """Return consecutive packets, stamped, as runs of equal shape.

        The runs end before the first packet that cannot be sent; its error is returned with them.
        Ordinals begin with `ordinal`. Raise RemoteProtocolError if the packets do not fill the
        octets.
        """
        runs: list[list[bytes]] = []
        count, position, end = 0, 0, len(octets)
        while position < end:
            packet, position = _cut(octets, position)
            try:
                first = self.stamped(packet, ordinal + count, count)
            except InvalidParameter as error:
                check_octets(octets[position:], most - count - 1)
                return runs, error
            transaction_at, properties = self._places(packet)
            more, position = stamp_packets(
                octets,
                position,
                packet,
                transaction_at if self._transaction else -1,
                properties,
                first[: at.DESTINATION_OFFSET],
                stepped(self._transaction, self._step * (count + 1)),
                ordinal + count + 1,
                self._step,
            )
            runs.append([first, *more])
            count += 1 + len(more)
            if count > most:
                raise RemoteProtocolError(f"more than {most} packets")
        return runs, None

    def stamped(self, packet: bytes, ordinal: int, place: int = 0) -> bytes:
        """Return a packet as the queue manager sends it.

        `place` is the number of packets before it. Raise InvalidParameter for a packet that a
        program cannot send.
        """
        size = len(packet)
        version, base_flags, signature, packet_size, reach, received, flags = _read_front(packet)
        if version != at.VERSION_NUMBER or signature != at.SIGNATURE or packet_size != size:
            raise _wrong("its BaseHeader is damaged")
        required = self._required
        if flags & ~_CHOSEN != required & ~_RECOVERABLE or flags & required != required:
            raise _wrong(f"UserHeader.Flags {flags:#010x}, {required:#010x} expected")
        transaction = self._transaction
        if base_flags & ~(0 if transaction else at.PRIORITY_MASK):
            raise _wrong(f"BaseHeader.Flags {base_flags:#06x}")
        if not packet.startswith(self._destination, at.DESTINATION_OFFSET):
            raise _wrong("it is for another destination")
        behind, properties = self._places(packet)
        label = properties + at.PROPERTIES_HEADER_SIZE
        if label > size:
            raise _wrong("it ends before its properties")
        if self._middle and not packet.startswith(self._middle, behind + len(transaction)):
            raise _wrong("it names another sender")
        asked, label_length, message_class, body_size, allocation, privacy, extension = _read_properties(
            packet, properties
        )
        end = label + 2 * label_length
        if (
            message_class
            or privacy
            or asked > at.ACKNOWLEDGE_MASK
            or allocation != body_size
            or label_length > at.MAX_LABEL_LENGTH
            or end + extension + body_size + 3 & ~3 != size
        ):
            raise _wrong("its MessagePropertiesHeader is not one of a message to send")
        # There is one null character, the last (quick_check has the same test).
        if label_length and (packet.find(b"\0\0", label, end) < end - 3 or packet[end - 1]):
            _check_label(packet[label:end])
        if flags & _NAMED:
            _check_names(packet)
        front = _FRONT.pack(
            version,
            base_flags,
            signature,
            size,
            min(reach, self._longest),
            self._source,
            self._address,
            received,
            self._now,
            ordinal & _U32,
            flags,
        )
        if not transaction:
            return front + packet[at.DESTINATION_OFFSET :]
        own = stepped(transaction, self._step * place)
        return b"".join((front, packet[at.DESTINATION_OFFSET : behind], own, packet[behind + len(own) :]))

    def _places(self, packet: bytes) -> tuple[int, int]:
        """Return where the TransactionHeader and the MessagePropertiesHeader begin.

        Both follow the other queue names, if there are any.
        """
        (flags,) = _flags(packet)
        if not flags & _NAMED:
            return self._transaction_at, self._properties
        position, size = self._transaction_at, len(packet)
        for shift in (at.AQ_SHIFT, at.RQ_SHIFT):
            step = NAME_SIZES[flags >> shift & 7]
            if step < 0:
                if position + 2 > size:
                    raise _wrong("it ends in a queue name")
                step = (2 + _u16(packet, position)[0] + 3) & ~3
            position += step
        if flags & at.CQ:
            position += 16
        return position, position + self._properties - self._transaction_at


def body_size(octets: memoryview, index: int) -> int:
    """Return MessageSize of one of several consecutive packets, which were checked before."""
    position = 0
    for _ in range(index):
        position += _packet_size(octets, position)[0]
    packet, _ = _cut(octets, position)
    found: int = _message_size(packet, at.locate(packet).properties)[0]
    return found


def _check_label(data: bytes) -> None:
    units = [data[i : i + 2] for i in range(0, len(data), 2)]
    if b"\0\0" in units[:-1] or units[-1] != b"\0\0":
        raise _wrong("its label does not end with its only null character")


def _check_names(packet: bytes) -> None:
    try:
        message = Message.unpack(packet)
    except RemoteProtocolError as error:
        raise _wrong(str(error)) from None
    for name in (message.administration_queue_format_name, message.response_queue_format_name):
        # "." denotes a different computer on each computer.
        if name is not None and is_relative(name):
            raise _wrong(f"{name} means another queue on each computer")


def _wrong(why: str) -> InvalidParameter:
    return InvalidParameter(f"a packet to send: {why}")
