"""Packets of many messages that differ in label and body alone: their headers are made once and filled in for each."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from lanner.model.errors import InsufficientResources
from lanner.wire import layout as at
from lanner.wire.builder import MessageProperties, build, encode_label
from lanner.wire.format_name import FormatName
from lanner.wire.layout import MAX_PACKET_SIZE, locate

__all__ = ["MessageRun", "PacketTemplate"]

_U32: Final = struct.Struct("<I")
# MessagePropertiesHeader: Flags; LabelLength; MessageClass to ApplicationTag; MessageSize; AllocationBodySize; the rest.
_PROPERTIES: Final = struct.Struct("<BB30sII16s")
# What is filled in: PacketSize, MessageID, perhaps TransactionHeader.Flags, LabelLength, MessageSize, AllocationBodySize.
_PACKET_SIZE, _MESSAGE_ID = 8, 56
_PADDING: Final = (b"", b"\0", b"\0\0", b"\0\0\0")


@dataclass(slots=True)
class MessageRun:
    """Messages that have everything but label and body in common."""

    properties: MessageProperties  # of each; its label and body are not looked at
    labels: Sequence[bytes]  # as packets have them; empty: none
    bodies: Sequence[bytes]

    @classmethod
    def of(cls, properties: MessageProperties) -> MessageRun:
        """A run of one message."""
        label = properties.label
        return cls(properties, [encode_label(label) if label else b""], [bytes(properties.body)])

    def __len__(self) -> int:
        return len(self.bodies)


class PacketTemplate:
    """Makes what `build` makes, for messages with the same properties, destination and time."""

    __slots__ = ("_allocation", "_before_transaction", "_extension", "_front", "_pieces", "_tail", "_transaction_flags")

    def __init__(
        self,
        properties: MessageProperties,
        *,
        source: UUID,
        sent_time: int,
        destination: FormatName,
        is_transactional: bool,
    ) -> None:
        bare = dataclasses.replace(properties, label="", body=b"")
        transaction = 0 if is_transactional else None
        sample = build(
            bare, source=source, ordinal=0, sent_time=sent_time, destination=destination, transaction=transaction
        )
        found = locate(sample)
        middle = sample[_MESSAGE_ID + 4 : found.properties]
        split = found.transaction - _MESSAGE_ID - 4 if is_transactional else len(middle)
        self._transaction_flags = _U32.unpack_from(sample, found.transaction)[0] if is_transactional else None
        flags, _, before, _, allocation, after = _PROPERTIES.unpack_from(sample, found.properties)
        self._allocation = None if properties.allocation_body_size is None else allocation
        self._extension = properties.extension
        end = found.properties + at.PROPERTIES_HEADER_SIZE + len(self._extension)
        self._tail = sample[end + (-len(self._extension) & 3) :]
        # One struct for all headers; what a transaction adds is an empty string without one.
        self._before_transaction = middle[:split]
        rest = middle[split + 4 :] if is_transactional else b""
        number = "I" if is_transactional else "0s"
        self._front = struct.Struct(f"<8sI44sI{split}s{number}{len(rest)}sBB30sII16s")
        self._pieces = sample[:_PACKET_SIZE], sample[_PACKET_SIZE + 4 : _MESSAGE_ID], rest, flags, before, after

    def pack(self, ordinal: int, label: bytes, body: bytes, transaction: int = 0) -> bytes:
        """The packet of one message. `label` as MessageRun has it."""
        first, second, rest, flags, before, after = self._pieces
        extension, tail, size = self._extension, self._tail, len(body)
        content = len(label) + len(extension) + size
        gap = -content & 3
        packet_size = self._front.size + content + gap + len(tail)
        if packet_size > MAX_PACKET_SIZE:
            raise InsufficientResources(
                f"the message makes a packet of {packet_size} bytes, at most {MAX_PACKET_SIZE} can be sent (body of {size} bytes)"
            )
        of_transaction = self._transaction_flags
        front = self._front.pack(
            first,
            packet_size,
            second,
            ordinal & 0xFFFF_FFFF,
            self._before_transaction,
            b"" if of_transaction is None else of_transaction | transaction << at.ID_SHIFT,
            rest,
            flags,
            len(label) >> 1,
            before,
            size,
            size if self._allocation is None else self._allocation,
            after,
        )
        return b"".join((front, label, extension, body, _PADDING[gap], tail))
