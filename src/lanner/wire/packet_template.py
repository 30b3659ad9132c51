"""Packets of many messages that differ only in label and body.

Their headers are built once and filled in for each message.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final
from uuid import UUID

from lanner.model.errors import InsufficientResources
from lanner.native import chosen
from lanner.wire import layout as at
from lanner.wire.builder import MessageProperties, build, encode_label
from lanner.wire.format_name import FormatName
from lanner.wire.layout import MAX_PACKET_SIZE, locate
from lanner.wire.reader import decode_terminated

__all__ = ["MessageRun", "PacketTemplate", "Templates", "bare"]

_U32: Final = struct.Struct("<I")
# MessagePropertiesHeader: Flags; LabelLength; MessageClass to ApplicationTag; MessageSize;
# AllocationBodySize; the rest.
_PROPERTIES: Final = struct.Struct("<BB30sII16s")
# The varying fields: PacketSize, MessageID, TransactionHeader.Flags if present, LabelLength,
# MessageSize, AllocationBodySize.
_PACKET_SIZE, _MESSAGE_ID = 8, 56
_PADDING: Final = (b"", b"\0", b"\0\0", b"\0\0\0")
# All fields but body and label, which come first.
_BESIDE: Final = attrgetter(*(field.name for field in dataclasses.fields(MessageProperties)[2:]))


def bare(properties: MessageProperties) -> MessageProperties:
    """Return a copy without body and label.

    `dataclasses.replace` takes five times as long.
    """
    return MessageProperties(b"", "", *_BESIDE(properties))


@dataclass(slots=True)
class MessageRun:
    """Messages that differ only in label and body."""

    properties: MessageProperties  # of each; label and body in it are ignored
    labels: Sequence[bytes]  # encoded as in packets; empty if there are no labels
    bodies: Sequence[bytes]

    def each(self) -> Iterator[MessageProperties]:
        """Yield the properties of each message, with its label and body."""
        for label, body in zip(self.labels, self.bodies, strict=True):
            text = decode_terminated(label, "Label") if label else ""
            yield dataclasses.replace(self.properties, label=text, body=body)

    @classmethod
    def of(cls, properties: MessageProperties) -> MessageRun:
        """Return a run of one message."""
        label = properties.label
        return cls(properties, [encode_label(label) if label else b""], [bytes(properties.body)])

    def __len__(self) -> int:
        return len(self.bodies)


class PacketTemplate:
    """Builds the same packets as `build`.

    All have equal properties, destination and time.
    """

    __slots__ = ("_allocation", "_extension", "_front", "_properties_at", "_tail", "_transaction_at")

    def __init__(
        self,
        properties: MessageProperties,
        *,
        source: UUID,
        sent_time: int,
        destination: FormatName,
        is_transactional: bool,
    ) -> None:
        transaction = 0 if is_transactional else None
        sample = build(
            bare(properties),
            source=source,
            ordinal=0,
            sent_time=sent_time,
            destination=destination,
            transaction=transaction,
        )
        found = locate(sample)
        self._properties_at = found.properties
        self._transaction_at = found.transaction if is_transactional else -1
        allocation = _PROPERTIES.unpack_from(sample, found.properties)[4]
        self._allocation = -1 if properties.allocation_body_size is None else allocation
        self._extension = bytes(properties.extension)
        front = found.properties + at.PROPERTIES_HEADER_SIZE
        end = front + len(self._extension)
        self._front = sample[:front]
        self._tail = sample[end + (-len(self._extension) & 3) :]

    def pack(
        self,
        ordinals: Iterable[int],
        labels: Sequence[bytes],
        bodies: Sequence[bytes],
        transactions: Iterable[int] = (),
    ) -> list[bytes]:
        """Return the packets of messages.

        `labels` are encoded as in MessageRun. `transactions` are indexes of transactions, if there
        are any.
        """
        template = self._front, self._transaction_at, self._properties_at, self._extension, self._tail
        contents = list(ordinals), list(labels), list(bodies), [index << at.ID_SHIFT for index in transactions]
        try:
            return pack_packets(*template, self._allocation, MAX_PACKET_SIZE, *contents)
        except OverflowError:
            beside = len(self._front) + len(self._extension) + len(self._tail)
            for label, body in zip(labels, bodies, strict=True):
                packet_size = beside + len(label) + len(body) + (-(len(self._extension) + len(label) + len(body)) & 3)
                if packet_size > MAX_PACKET_SIZE:
                    raise InsufficientResources(
                        f"the message makes a packet of {packet_size} bytes, at most {MAX_PACKET_SIZE} can be sent "
                        f"(body of {len(body)} bytes)"
                    ) from None
            raise


class Templates:
    """A cache of the last template.

    Successive runs often have equal properties and time.
    """

    def __init__(self) -> None:
        self._made: tuple[object, PacketTemplate] | None = None

    def get(
        self,
        properties: MessageProperties,
        *,
        source: UUID,
        sent_time: int,
        destination: FormatName,
        is_transactional: bool,
    ) -> PacketTemplate:
        """Return the template for these arguments of `PacketTemplate`."""
        # Compare values, not the object: its owner may change it.
        key = _BESIDE(properties), source, sent_time, destination, is_transactional
        if self._made is not None and self._made[0] == key:
            return self._made[1]
        template = PacketTemplate(
            properties,
            source=source,
            sent_time=sent_time,
            destination=destination,
            is_transactional=is_transactional,
        )
        self._made = key, template
        return template


def _pack_packets(
    front: bytes,
    transaction_at: int,
    properties_at: int,
    extension: bytes,
    tail: bytes,
    allocation: int,
    highest: int,
    ordinals: list[int],
    labels: list[bytes],
    bodies: list[bytes],
    transactions: list[int],
) -> list[bytes]:
    """Return packets with the headers `front` and the numbers of each message filled in.

    Raise OverflowError if a packet is longer than `highest`. An `allocation` of -1 means the size
    of the body. If `transaction_at` is not -1, the flags there are or-ed with the message's entry
    in `transactions`.
    """
    is_transactional = transaction_at >= 0
    split = transaction_at if is_transactional else properties_at
    first, second, third = front[:_PACKET_SIZE], front[_PACKET_SIZE + 4 : _MESSAGE_ID], front[_MESSAGE_ID + 4 : split]
    rest = front[split + 4 : properties_at] if is_transactional else b""
    of_transaction = _U32.unpack_from(front, split)[0] if is_transactional else 0
    flags, _, before, _, _, after = _PROPERTIES.unpack_from(front, properties_at)
    # One struct packs all headers. Without a transaction, its part is an empty string.
    number = "I" if is_transactional else "0s"
    fill = struct.Struct(f"<8sI44sI{len(third)}s{number}{len(rest)}sBB30sII16s").pack
    fixed = len(front) + len(tail)
    indexes = transactions if is_transactional else [0] * len(bodies)
    packets = []
    for ordinal, label, body, index in zip(ordinals, labels, bodies, indexes, strict=True):
        size = len(body)
        content = len(label) + len(extension) + size
        gap = -content & 3
        packet_size = fixed + content + gap
        if packet_size > highest:
            raise OverflowError(f"a packet of {packet_size} bytes, at most {highest}")
        headers = fill(
            first,
            packet_size,
            second,
            ordinal & 0xFFFF_FFFF,
            third,
            of_transaction | index if is_transactional else b"",
            rest,
            flags,
            len(label) >> 1,
            before,
            size,
            size if allocation < 0 else allocation,
            after,
        )
        packets.append(b"".join((headers, label, extension, body, _PADDING[gap], tail)))
    return packets


pack_packets = chosen(_pack_packets)
