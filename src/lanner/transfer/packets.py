"""UserMessages as they arrive: are they well-formed, and which of them are OrderAcks and FinalAcks (MS-MQQB 2.2.4, 2.2.5, 3.1.5.1)."""

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

# 2.2.4: PrivateQueueIdentifier and path of the queue that acknowledgments of sequences go to.
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
    """Refuse a UserMessage that is malformed (3.1.5.1.3), and return which event it is (3.1.5.1.1).

    `packet` is what PacketSize counts, with a BaseHeader that framing has judged and SH cleared;
    `own_guid` in packet order.
    """
    return UserMessagesReceived if check(packet) < _ORDER_ACK else _identify(packet, own_guid)


def _identify(packet: bytes, own_guid: bytes) -> type[UserMessagesReceived]:
    """Return whether a well-formed packet is an OrderAck, a FinalAck or neither (3.1.5.1.1).

    Acknowledgments are end-to-end: one for another queue manager is passed on like any message.
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
        # MessageSize is not among the fields by which 3.1.5.1.1 recognizes a FinalAck, but 2.2.5
        # allows one value.
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
    """An OrderAck or a FinalAck, to whomever: BaseHeader.Flags of these are 0, so no SessionHeader goes with them (2.2.4, 2.2.5)."""
    return (
        fields.base_flags(packet) == fields.NO_BASE_FLAGS
        and _identify(packet, fields.queue_manager_address(packet)) is not UserMessagesReceived
    )


def acknowledges(packet: bytes, guid: UUID) -> bool:
    """Whether a message reports to a queue manager what became of one of its own: a FinalAck or an administration acknowledgment."""
    message = Message(packet)
    if message.message_class == MessageClass.NORMAL:
        return False
    if is_acknowledgment(packet):
        return message.message_class == _ORDER_ACK or FinalAckBody.from_packet(packet).source_guid == guid
    return message.correlated_queue_manager == guid.bytes_le


@dataclass(frozen=True, slots=True)
class OrderAckBody:
    """MS-MQQB 2.2.4.1, 36 bytes: everything of the sequence up to this number has arrived and is on disk."""

    tx_sequence_id: TxSequenceID
    tx_sequence_number: int
    tx_previous_sequence_number: int

    SIZE: ClassVar[int] = ACKNOWLEDGMENT_BODY_SIZE

    @classmethod
    def of(cls, tx_sequence_id: TxSequenceID, tx_sequence_number: int) -> OrderAckBody:
        """TxPreviousSequenceNumber is one less, whatever came before the message (QQB-2.2.4.1-2)."""
        return cls(tx_sequence_id, tx_sequence_number, tx_sequence_number - 1)

    def pack(self) -> bytes:
        """Reserved is written as zeros (QQB-2.2.4.1-3)."""
        if not self.tx_sequence_number:
            raise ValueError("there is no message 0 to acknowledge")
        return _ORDER_ACK_BODY.pack(
            self.tx_sequence_id.pack(), self.tx_sequence_number, self.tx_previous_sequence_number
        )

    @classmethod
    def unpack(cls, reader: Reader) -> OrderAckBody:
        """Number 0, which is not allowed, acknowledges nothing."""
        sequence, number, previous = _ORDER_ACK_BODY.unpack(reader.take(cls.SIZE, "OrderAck Body"))
        return cls(TxSequenceID.unpack(Reader(sequence)), number, previous)

    @classmethod
    def from_packet(cls, packet: bytes) -> OrderAckBody:
        return cls.unpack(Reader(Message(packet).body))


@dataclass(frozen=True, slots=True)
class FinalAckBody:
    """MS-MQQB 2.2.5.1, 36 bytes: which message was received or rejected."""

    tx_sequence_id: TxSequenceID
    tx_sequence_number: int
    tx_previous_sequence_number: int
    source_guid: UUID
    message_id: int

    SIZE: ClassVar[int] = ACKNOWLEDGMENT_BODY_SIZE

    @classmethod
    def of(cls, packet: bytes) -> FinalAckBody:
        """What identifies a transactional message; the previous number is the one it carries (3.1.7.17), not its own less one."""
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
    """The properties of an OrderAck or FinalAck (3.1.7.17), for a caller that sends it through a queue.

    The table of 3.1.7.17 makes both recoverable; an OrderAck goes out express, as 2.2.4 has it
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
    """An OrderAck packet (2.2.4): BaseHeader, UserHeader and MessagePropertiesHeader alone."""
    return build(
        acknowledgment_properties(MessageClass.ORDER_ACK, body),
        source=source,
        ordinal=ordinal,
        sent_time=sent_time,
        destination=destination,
    )
