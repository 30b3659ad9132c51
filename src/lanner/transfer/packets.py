"""Validation of arriving UserMessages, and recognition of OrderAcks and FinalAcks.

Implements MS-MQQB 2.2.4, 2.2.5 and 3.1.5.1.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from lanner.model.enums import INFINITE, DeliveryGuarantee, MessageClass, QueueType
from lanner.model.errors import RemoteProtocolError
from lanner.transfer.events import FinalAckReceived, OrderAckReceived, UserMessagesReceived
from lanner.wire import fields
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import DirectFormatName, FormatName, PrivateFormatName
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.message import Message
from lanner.wire.quick_check import check
from lanner.wire.reader import Reader, encode_terminated

# 2.2.4: PrivateQueueIdentifier and path of the queue to which acknowledgments of sequences go.
ORDER_QUEUE_NUMBER = 0x0000_0004
ORDER_QUEUE_NAME = "order_queue$"
ACKNOWLEDGMENT_LABEL = "QM Ordering Ack"
# 2.2.4.1, 2.2.5.1: MessageSize.
ACKNOWLEDGMENT_BODY_SIZE = 0x24
# 3.1.5.1.1: "one of the values that is not less than 0x4000".
LOWEST_FINAL_ACK_CLASS = 0x4000

_LABEL = encode_terminated(ACKNOWLEDGMENT_LABEL)
_ORDER_ACK_BODY = struct.Struct("<8sII20x")
_FINAL_ACK_BODY = struct.Struct("<8sII16sI")

_ORDER_ACK = int(MessageClass.ORDER_ACK)


def examine(packet: bytes, own_guid: bytes) -> type[UserMessagesReceived]:
    """Validate a UserMessage (3.1.5.1.3) and return the class of its event (3.1.5.1.1).

    Raises RemoteProtocolError if it is malformed. `packet` comprises PacketSize bytes; framing has
    checked its BaseHeader and cleared SH. `own_guid` is in packet order.
    """
    return UserMessagesReceived if check(packet) < _ORDER_ACK else _identify(packet, own_guid)


def _identify(packet: bytes, own_guid: bytes) -> type[UserMessagesReceived]:
    """Return the class of the event for an OrderAck, a FinalAck or another message (3.1.5.1.1).

    The packet is well-formed. Acknowledgments are end-to-end: one for another queue manager is
    forwarded like any message.
    """
    message = Message(packet)
    message_class = message.message_class
    is_order_ack = message_class == _ORDER_ACK
    if (
        not (is_order_ack or message_class >= LOWEST_FINAL_ACK_CLASS)
        or fields.base_flags(packet) != fields.NO_BASE_FLAGS
        or fields.queue_manager_address(packet) not in (fields.NO_QUEUE_MANAGER, own_guid)
        or not _is_for_order_queue(message)
        or message.label_bytes != _LABEL
    ):
        return UserMessagesReceived
    size = message.body_size
    if is_order_ack:
        return OrderAckReceived if size == ACKNOWLEDGMENT_BODY_SIZE else UserMessagesReceived
    if size != ACKNOWLEDGMENT_BODY_SIZE:
        # 3.1.5.1.1 does not list MessageSize among the fields that identify a FinalAck, but 2.2.5
        # allows only one value.
        raise RemoteProtocolError(
            f"MessagePropertiesHeader.MessageSize: {size} of a FinalAck is not {ACKNOWLEDGMENT_BODY_SIZE}"
        )
    return FinalAckReceived


def _is_for_order_queue(message: Message) -> bool:
    name = message.destination_queue_format_name
    if isinstance(name, PrivateFormatName):
        return name.number == ORDER_QUEUE_NUMBER
    if not isinstance(name, DirectFormatName) or name.queue_part is None:
        return False
    part = name.queue_part
    return part.queue_type is QueueType.PRIVATE and part.subqueue is None and part.name.lower() == ORDER_QUEUE_NAME


def is_acknowledgment(packet: bytes) -> bool:
    """Return whether a packet is an OrderAck or a FinalAck, for any queue manager.

    Their BaseHeader.Flags are 0, so no SessionHeader is attached to them (2.2.4, 2.2.5).
    """
    return (
        fields.base_flags(packet) == fields.NO_BASE_FLAGS
        and _identify(packet, fields.queue_manager_address(packet)) is not UserMessagesReceived
    )


def acknowledges(packet: bytes, guid: UUID) -> bool:
    """Return whether a message informs a queue manager what became of one of its own messages.

    Such a message is a FinalAck or an administration acknowledgment.
    """
    message = Message(packet)
    if message.message_class == MessageClass.NORMAL:
        return False
    if is_acknowledgment(packet):
        return message.message_class == _ORDER_ACK or FinalAckBody.from_packet(packet).source_guid == guid
    return message.correlated_queue_manager == guid.bytes_le


@dataclass(frozen=True, slots=True)
class OrderAckBody:
    """MS-MQQB 2.2.4.1, 36 bytes: the sequence up to this number has arrived and is on disk."""

    tx_sequence_id: TxSequenceID
    tx_sequence_number: int
    tx_previous_sequence_number: int

    SIZE: ClassVar[int] = ACKNOWLEDGMENT_BODY_SIZE

    @classmethod
    def of(cls, tx_sequence_id: TxSequenceID, tx_sequence_number: int) -> OrderAckBody:
        """Return the body for a number.

        TxPreviousSequenceNumber is always one less (QQB-2.2.4.1-2).
        """
        return cls(tx_sequence_id, tx_sequence_number, tx_sequence_number - 1)

    def pack(self) -> bytes:
        """Return the bytes; Reserved is written as zeros (QQB-2.2.4.1-3)."""
        if not self.tx_sequence_number:
            raise ValueError("there is no message 0 to acknowledge")
        return _ORDER_ACK_BODY.pack(
            self.tx_sequence_id.pack(), self.tx_sequence_number, self.tx_previous_sequence_number
        )

    @classmethod
    def unpack(cls, reader: Reader) -> OrderAckBody:
        """Read the bytes. Number 0, which is not allowed, acknowledges nothing."""
        sequence, number, previous = _ORDER_ACK_BODY.unpack(reader.take(cls.SIZE, "OrderAck Body"))
        return cls(TxSequenceID.unpack(Reader(sequence)), number, previous)

    @classmethod
    def from_packet(cls, packet: bytes) -> OrderAckBody:
        return cls.unpack(Reader(Message(packet).body))


@dataclass(frozen=True, slots=True)
class FinalAckBody:
    """MS-MQQB 2.2.5.1, 36 bytes: the message that was received or rejected."""

    tx_sequence_id: TxSequenceID
    tx_sequence_number: int
    tx_previous_sequence_number: int
    source_guid: UUID
    message_id: int

    SIZE: ClassVar[int] = ACKNOWLEDGMENT_BODY_SIZE

    @classmethod
    def of(cls, packet: bytes) -> FinalAckBody:
        """Return the body that identifies a transactional message.

        The previous number is the one in the packet (3.1.7.17), not the message's own number less
        one.
        """
        message = Message(packet)
        sequence = message.transactional_message_sequence_identifier
        if sequence is None:
            raise ValueError("the message is not transactional")
        return cls(
            sequence,
            message.transaction_sequence_number,
            message.transaction_previous_sequence_number,
            message.source_machine_identifier,
            message.identifier.ordinal,
        )

    def pack(self) -> bytes:
        return _FINAL_ACK_BODY.pack(
            self.tx_sequence_id.pack(),
            self.tx_sequence_number,
            self.tx_previous_sequence_number,
            self.source_guid.bytes_le,
            self.message_id,
        )

    @classmethod
    def unpack(cls, reader: Reader) -> FinalAckBody:
        sequence, number, previous, source, message_id = _FINAL_ACK_BODY.unpack(reader.take(cls.SIZE, "FinalAck Body"))
        return cls(TxSequenceID.unpack(Reader(sequence)), number, previous, UUID(bytes_le=source), message_id)

    @classmethod
    def from_packet(cls, packet: bytes) -> FinalAckBody:
        return cls.unpack(Reader(Message(packet).body))


def acknowledgment_properties(message_class: int, body: OrderAckBody | FinalAckBody) -> MessageProperties:
    """Return the properties of an OrderAck or FinalAck that is sent through a queue (3.1.7.17).

    The table of 3.1.7.17 makes both recoverable. An OrderAck is sent express, as in 2.2.4
    (DECISIONS).
    """
    return MessageProperties(
        body=body.pack(),
        label=ACKNOWLEDGMENT_LABEL,
        priority=0,
        delivery_guarantee=DeliveryGuarantee.EXPRESS
        if isinstance(body, OrderAckBody)
        else DeliveryGuarantee.RECOVERABLE,
        time_to_reach_queue=INFINITE,
        message_class=message_class,
    )


def build_order_ack(
    body: OrderAckBody, *, source: UUID, ordinal: int, sent_time: int, destination: FormatName
) -> bytes:
    """Return an OrderAck packet (2.2.4): BaseHeader, UserHeader, MessagePropertiesHeader."""
    return build(
        acknowledgment_properties(MessageClass.ORDER_ACK, body),
        source=source,
        ordinal=ordinal,
        sent_time=sent_time,
        destination=destination,
    )
