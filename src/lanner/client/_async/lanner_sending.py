"""Messages on their way to another Lanner: as packets on its stream, or as documents that it builds packets from."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from lanner.model.errors import StatusError
from lanner.services import stream_entries as entries
from lanner.services.message_documents import properties_to_document
from lanner.wire.builder import build

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanner.client._async.lanner_connection import LannerConnection
    from lanner.client._async.lanner_units import LannerTransaction
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


def is_plain(properties: MessageProperties) -> bool:
    """Return whether a packet can be built here: nothing in it is signed, encrypted or traced."""
    return not (
        properties.privacy_level
        or properties.signature
        or properties.multiple_destination_signature
        or properties.sender_certificate
        or properties.tracing_requested
    )


class Sending:
    """Messages to one queue, and how far they have come."""

    def __init__(self, properties: Sequence[MessageProperties], unit: LannerTransaction | None) -> None:
        self._properties = properties
        self.unit = unit
        # Of the messages that are known to be sent: the first so many.
        self.identifiers: list[str] = []
        # Whether messages were sent of which it is not known whether they have come.
        self.is_under_way = False

    @property
    def next(self) -> MessageProperties:
        """The first message that is not known to be sent."""
        return self._properties[len(self.identifiers)]

    async def in_packets(
        self, connection: LannerConnection, queue: int, transaction: int, destination: FormatName, sender: bytes
    ) -> None:
        """Send messages as packets, several requests at once, up to one that cannot be."""
        under_way: deque[Posted] = deque()
        first = 0
        error: StatusError | None = None
        start, end = len(self.identifiers), len(self._properties)
        try:
            while start < end and error is None and is_plain(self._properties[start]):
                packets: list[bytes] = []
                size = 0
                while start < end and len(packets) < entries.MAX_MESSAGES and size < _MAX_PACKETS:
                    properties = self._properties[start]
                    if not is_plain(properties):
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
                        error = caught
                        break
                    packets.append(packet)
                    size += len(packet)
                    start += 1
                if packets:
                    self.is_under_way = True
                    under_way.append(
                        connection.post(entries.SEND, entries.pack_send(queue, transaction, first), *packets)
                    )
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

    async def _sent(self, connection: LannerConnection, under_way: deque[Posted]) -> None:
        body = await connection.answer(under_way.popleft())
        self.identifiers += connection.identifiers(entries.unpack_ordinals(body))

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
