"""Messages on their way to another Lanner: as packets on its stream, or as documents that it builds packets from."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from lanner.model.errors import RemoteMachineNotAvailable, StatusError
from lanner.services import stream_entries as entries
from lanner.services.message_documents import properties_to_document
from lanner.wire.builder import build

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanner.client._async.lanner_connection import LannerConnection
    from lanner.client._async.lanner_units import LannerTransaction
    from lanner.client.send_numbers import SendNumbers
    from lanner.rpc.async_client import Posted
    from lanner.services.interfaces.lanner import Document
    from lanner.wire.builder import MessageProperties
    from lanner.wire.format_name import FormatName

# Octets of bodies in one document request: what is larger goes alone.
_MAX_BODIES: Final = 0x0010_0000
# Octets of packets in one request on the stream: the queue manager stores one while the next is built.
_MAX_PACKETS: Final = 0x0002_0000
# Requests of one send that are under way at once.
_WINDOW: Final = 8
# Connections that may be lost one after the other while the same messages are sent.
_MAX_LOSSES: Final = 3


def is_plain(properties: MessageProperties) -> bool:
    """Return whether a packet can be built here: nothing in it is signed, encrypted or traced."""
    return not (
        properties.privacy_level
        or properties.signature
        or properties.multiple_destination_signature
        or properties.sender_certificate
        or properties.tracing_requested
    )


class _Part(NamedTuple):
    """Packets that were sent and not answered; the number is that of the send, 0 in a transaction."""

    number: int
    packets: list[bytes]


class Sending:
    """Messages to one queue, and how far they have come."""

    def __init__(
        self, properties: Sequence[MessageProperties], unit: LannerTransaction | None, numbers: SendNumbers
    ) -> None:
        self._properties = properties
        self.unit = unit
        self._numbers = numbers
        # Of the messages that are known to be sent: the first so many.
        self.identifiers: list[str] = []
        # Whether messages were sent of which it is not known whether they have come.
        self.is_under_way = False
        # What was sent and not answered, and the memory that the queue manager has of it.
        self._parts: deque[_Part] = deque()
        self._memory: str | None = None
        self._losses = 0
        # The connection was lost, and there is not yet another one on which the queue is open.
        self.is_repeating = False

    @property
    def next(self) -> MessageProperties:
        """The first message that is not known to be sent."""
        return self._properties[len(self.identifiers)]

    def may_repeat(self) -> bool:
        """Return whether what was not answered can be sent again on another connection, and is stored once."""
        self._losses += 1
        is_numbered = bool(self._parts) and self._memory is not None and self.unit is None
        self.is_repeating = is_numbered and self._losses <= _MAX_LOSSES
        return self.is_repeating

    def end(self) -> None:
        """Give up what was not answered."""
        for part in self._parts:
            self._numbers.end(part.number)
        self._parts.clear()

    async def in_packets(
        self, connection: LannerConnection, queue: int, transaction: int, destination: FormatName, sender: bytes
    ) -> None:
        """Send messages as packets, several requests at once, up to one that cannot be."""
        again = list(self._parts)
        if again and connection.memory != self._memory:
            self._losses = _MAX_LOSSES
            raise RemoteMachineNotAvailable("the queue manager was started again, or has forgotten what it was sent")
        self._memory = connection.memory
        self.is_repeating = False
        under_way: deque[Posted] = deque()
        first = 0
        error: StatusError | None = None
        start, end = len(self.identifiers), len(self._properties)
        try:
            while (again or start < end) and error is None:
                if again:
                    part = again.pop(0)
                    start += len(part.packets)
                else:
                    packets, error = self._built(connection, start, transaction, destination, sender)
                    if not packets:
                        break
                    start += len(packets)
                    part = _Part(0 if transaction or self._memory is None else self._numbers.begin(), packets)
                    self._parts.append(part)
                self.is_under_way = True
                if part.number:
                    body = entries.pack_send_once(queue, part.number, self._numbers.below, first)
                    under_way.append(connection.post(entries.SEND_ONCE, body, *part.packets))
                else:
                    body = entries.pack_send(queue, transaction, first)
                    under_way.append(connection.post(entries.SEND, body, *part.packets))
                first = first or under_way[0].number
                if len(under_way) == _WINDOW:
                    await self._sent(connection, under_way)
            while under_way:
                await self._sent(connection, under_way)
        finally:
            for posted in under_way:
                connection.forget(posted)
        self.is_under_way = False
        if error is not None:
            raise error

    def _built(
        self, connection: LannerConnection, start: int, transaction: int, destination: FormatName, sender: bytes
    ) -> tuple[list[bytes], StatusError | None]:
        """Return the packets of one request, up to a message that goes in another way, or has an error."""
        packets: list[bytes] = []
        size = 0
        for properties in self._properties[start : start + entries.MAX_MESSAGES]:
            if size >= _MAX_PACKETS or not is_plain(properties):
                break
            properties.sender_identifier = sender
            try:
                packet = build(
                    properties,
                    source=connection.identifier,
                    ordinal=0,
                    sent_time=0,
                    destination=destination,
                    transaction=0 if transaction else None,
                )
            except StatusError as caught:
                # Those before it are sent, as in the process of the queue manager.
                return packets, caught
            packets.append(packet)
            size += len(packet)
        return packets, None

    async def _sent(self, connection: LannerConnection, under_way: deque[Posted]) -> None:
        body = await connection.answer(under_way.popleft())
        self._numbers.end(self._parts.popleft().number)
        self.identifiers += connection.identifiers(entries.unpack_ordinals(body))
        self._losses = 0

    async def in_documents(self, connection: LannerConnection, queue: int, transaction: int) -> None:
        """Send messages as documents, up to one that goes as a packet or has no room any more."""
        request: Document = {"request": "send", "queue": queue}
        if transaction:
            request["transaction"] = transaction
        batch: list[MessageProperties] = []
        size = 0
        for properties in self._properties[len(self.identifiers) :]:
            size += len(properties.body)
            if batch and (size > _MAX_BODIES or len(batch) == entries.MAX_MESSAGES or is_plain(properties)):
                break
            batch.append(properties)
        request["messages"] = [{**properties_to_document(one), "size": len(one.body)} for one in batch]
        self.is_under_way = True
        document, _ = await connection.call(request, b"".join(bytes(one.body) for one in batch))
        self.is_under_way = False
        self.identifiers.extend(document["ids"])
