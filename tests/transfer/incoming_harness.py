"""A peer's messages for tests of arrivals.

They are packets as another queue manager sends them, and a session without a socket.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lanner.model.directory_objects import OutgoingQueue, Queue
from lanner.model.enums import Acknowledgements
from lanner.model.live import START
from lanner.security.identity import SYSTEM, Identity
from lanner.transfer.events import UserMessagesReceived
from lanner.transfer.identities import Standing
from lanner.transfer.incoming import Incoming
from lanner.transfer.settings import TransferSettings
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import FormatName, parse
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.message import Message
from lanner.wire.packet_runs import equal_packets, shape_of
from lanner.wire.sddl import parse_sddl
from lanner.wire.sid import Sid
from tests.engine.harness import Harness

PEER = uuid.UUID("0f0e0d0c-0b0a-0908-0706-050403020100")
OTHER = uuid.UUID("aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee")
PEER_ADDRESS = "192.0.2.7"
SEQUENCE = TxSequenceID(1, 1_600_000_000)
LEDGER = r"DIRECT=OS:ALPHA\private$\ledger"
# Where acknowledgments of what PEER sends to direct names go.
ORDER_QUEUE = rf"DIRECT=TCP:{PEER_ADDRESS}\PRIVATE$\order_queue$"
ADMIN = r"DIRECT=OS:ALPHA\private$\admin"


# Everyone may send, including messages without a named sender.
OPEN_TO_ALL = parse_sddl("O:SYG:SYD:(A;;0x4;;;WD)(A;;0x4;;;AN)").pack()


class FakeLink:
    def __init__(
        self, remote_qm_guid: uuid.UUID = PEER, remote_address: str = PEER_ADDRESS, *, is_router: bool = False
    ) -> None:
        self.remote_qm_guid = remote_qm_guid
        self.remote_address = remote_address
        self.standing = Standing(is_known=True, is_router=is_router)
        self.has_exchanged = False
        self.is_open = True
        self.processed_numbers: list[int] = []
        self.express: list[Message] = []
        self.close_reasons: list[str] = []
        self.received = 0
        self.on_processed: Callable[[], None] | None = None

    def processed(self, number: int) -> None:
        self.processed_numbers.append(number)
        if self.on_processed is not None:
            self.on_processed()

    def send_express(self, packet: bytes) -> None:
        self.express.append(Message.unpack(packet))

    def close(self, reason: str) -> None:
        self.close_reasons.append(reason)
        self.is_open = False

    def events(self, packets: Sequence[bytes]) -> list[UserMessagesReceived]:
        """Return the events that a session makes of packets: equal shapes come together."""
        events: list[UserMessagesReceived] = []
        shape = None
        for packet in packets:
            self.received += 1
            if shape is not None and equal_packets(packet, 0, *shape)[0] == [packet]:
                events[-1].packets.append(packet)
            else:
                events.append(UserMessagesReceived(self.received, [packet]))
                shape = shape_of(packet)
        return events


class IncomingHarness(Harness):
    """`Harness` with `incoming` on its engine; `transfer` are TransferSettings."""

    transfer: TransferSettings

    def __init__(self, path: Path, transfer: TransferSettings | None = None, **settings: object) -> None:
        self.transfer = transfer or TransferSettings()
        self.ordinal = 100
        super().__init__(path, **settings)  # type: ignore[arg-type] # of the engine

    def start(self) -> None:
        super().start()
        self.incoming = Incoming(self.engine, self.transfer)
        self.link = FakeLink()

    def create(self, name: str = "q", *, identity: Identity = SYSTEM, **attributes: object) -> Queue:
        return super().create(name, identity=identity, **{"security": OPEN_TO_ALL} | attributes)

    def packet(
        self,
        body: bytes = b"",
        *,
        to: str = r"DIRECT=OS:ALPHA\private$\q",
        source: uuid.UUID = PEER,
        ordinal: int | None = None,
        sequence: TxSequenceID = SEQUENCE,
        number: int | None = None,
        previous: int | None = None,
        age: int = 0,
        **properties: Any,  # noqa: ANN401 (of MessageProperties)
    ) -> bytes:
        """A packet from elsewhere; with `number` a transactional one."""
        if ordinal is None:
            self.ordinal += 1
            ordinal = self.ordinal
        content: MessageProperties = self.properties(body, **properties)
        if number is not None:
            content.transactional_message_sequence_identifier = sequence
            content.transaction_sequence_number = number
            content.transaction_previous_sequence_number = number - 1 if previous is None else previous
        return build(
            content,
            source=source,
            ordinal=ordinal,
            sent_time=int(self.now) - age,
            destination=parse(to),
            transaction=None if number is None else 7,
        )

    def arrive(self, *packets: bytes, link: FakeLink | None = None) -> None:
        link = link or self.link
        self.incoming.receive(link, link.events(packets))

    def order_acks(self, seconds: float = 0.5) -> list[tuple[int, int]]:
        """Return the OrderAcks sent as time passes: (TxSequenceID as number, TxSequenceNumber)."""
        self.sync()
        before = len(self.link.express)
        self.now += seconds
        self.incoming.on_timer()
        return [order_ack_of(message) for message in self.link.express[before:]]

    def outgoing(self, name: str | FormatName) -> list[Message]:
        """Return the messages of an outgoing queue in order; none if there is no such queue."""
        queue = self.engine.find_outgoing_queue(parse(name) if isinstance(name, str) else name)
        return [] if queue is None else self._messages_in(queue.number)

    def all_outgoing(self) -> dict[str, list[Message]]:
        """Return the messages for other computers, by destination."""
        queues = self.engine.queue_manager.queue_collection.values()
        return {
            queue.destination_format_name: self._messages_in(queue.number)
            for queue in queues
            if isinstance(queue, OutgoingQueue)
        }

    def _messages_in(self, number: int) -> list[Message]:
        found, after = [], START
        while (lookup_id := self.store.next(number, after)) is not None:
            after = lookup_id
            record = self.store.get(number, lookup_id)
            assert record is not None
            found.append(Message(record.packet))
        return found


def order_ack_of(message: Message) -> tuple[int, int]:
    assert message.message_class == 0x00FF
    return int.from_bytes(message.body[:8], "little"), int.from_bytes(message.body[8:12], "little")


def asking(requested: Acknowledgements = Acknowledgements.FULL_REACH_QUEUE, to: str = ADMIN) -> dict[str, Any]:
    return {"acknowledgements_requested": requested, "administration_queue_format_name": parse(to)}


def sent_by(sid: Sid) -> dict[str, Any]:
    return {"sender_identifier": sid.pack()}


def told(h: IncomingHarness) -> list[int]:
    """The classes of what came to the administration queue."""
    return [message.message_class for message in h.messages("admin")]


def final_acks(h: IncomingHarness) -> list[int]:
    """The classes of FinalAcks that wait for their way back."""
    return [message.message_class for message in h.outgoing(ORDER_QUEUE)]
