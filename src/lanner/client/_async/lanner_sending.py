"""Sends to another Lanner: as packets on its stream, or as documents to build packets from."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from lanner.model.errors import RemoteMachineNotAvailable, StatusError
from lanner.services import stream_entries as entries
from lanner.services.message_documents import properties_to_document
from lanner.wire.builder import build
from lanner.wire.packet_template import MessageRun, PacketTemplate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from lanner.client._async.lanner_connection import LannerConnection
    from lanner.client._async.lanner_units import LannerTransaction
    from lanner.client.send_numbers import SendNumbers
    from lanner.rpc.async_client import Posted
    from lanner.services.interfaces.lanner import Document
    from lanner.wire.builder import MessageProperties
    from lanner.wire.format_name import FormatName

# The maximum number of octets of bodies in one document request. A larger body is sent alone.
_MAX_BODIES: Final = 0x0010_0000
# The maximum number of octets of packets in one request on the stream. The queue manager stores one
# request while the next is built.
_MAX_PACKETS: Final = 0x0002_0000
# The approximate number of octets of a packet besides its body.
_HEADERS: Final = 200
# The maximum number of requests of one send that are under way.
_WINDOW: Final = 8
# The number of consecutive connections that may be lost while the same messages are sent.
_MAX_LOSSES: Final = 3


def is_plain(properties: MessageProperties) -> bool:
    """Return whether the client can build the packet: not signed, encrypted or traced."""
    return not (
        properties.privacy_level
        or properties.signature
        or properties.multiple_destination_signature
        or properties.sender_certificate
        or properties.tracing_requested
    )


def _properties(run: MessageRun | MessageProperties) -> MessageProperties:
    """Return the properties that the messages of a run share."""
    return run.properties if isinstance(run, MessageRun) else run


def _count(run: MessageRun | MessageProperties) -> int:
    return len(run) if isinstance(run, MessageRun) else 1


class _Part(NamedTuple):
    """Packets that were sent but not answered yet.

    `number` is the number of the send, or 0 in a transaction.
    """

    number: int
    packets: list[bytes]


class Sending:
    """Messages to one queue, and the progress of sending them."""

    def __init__(
        self, runs: Sequence[MessageRun | MessageProperties], unit: LannerTransaction | None, numbers: SendNumbers
    ) -> None:
        # The runs of messages, and the index of each run's first message.
        self._runs = runs
        self._firsts = list(accumulate((_count(each) for each in runs), initial=0))
        self.unit = unit
        # Cached template of the run whose packets were built last, as (key, template); the key is
        # the parameters it was built for.
        self._template: tuple[object, PacketTemplate] | None = None
        self._numbers = numbers
        # Identifiers of the messages known to be sent so far. They are always a prefix of the list.
        self.identifiers: list[str] = []
        # Whether messages were sent whose outcome is unknown.
        self.is_under_way = False
        # Requests sent but not answered, and the id of the queue manager's record of numbered sends
        # when they were sent.
        self._parts: deque[_Part] = deque()
        self._memory: str | None = None
        self._losses = 0
        # The connection was lost, and the queue is not yet open on another one.
        self.is_repeating = False

    @property
    def next(self) -> MessageProperties:
        """The first message that is not known to be sent."""
        return _properties(self._runs[self._run_at(len(self.identifiers))])

    def _run_at(self, index: int) -> int:
        return bisect_right(self._firsts, index) - 1

    @property
    def count(self) -> int:
        """The number of messages."""
        return self._firsts[-1]

    def may_repeat(self) -> bool:
        """Return whether unanswered messages can be resent and still be stored only once.

        They are resent on a new connection.
        """
        self._losses += 1
        is_numbered = bool(self._parts) and self._memory is not None and self.unit is None
        self.is_repeating = is_numbered and self._losses <= _MAX_LOSSES
        return self.is_repeating

    def end(self) -> None:
        """Give up on the unanswered requests."""
        for part in self._parts:
            self._numbers.end(part.number)
        self._parts.clear()

    async def in_packets(
        self, connection: LannerConnection, queue: int, transaction: int, destination: FormatName, sender: bytes
    ) -> None:
        """Send messages as packets, several requests at once, up to one that cannot be sent so."""
        again = list(self._parts)
        if again and connection.memory != self._memory:
            self._losses = _MAX_LOSSES
            raise RemoteMachineNotAvailable("the queue manager was started again, or has forgotten what it was sent")
        self._memory = connection.memory
        self.is_repeating = False
        under_way: deque[Posted] = deque()
        first = 0
        error: StatusError | None = None
        start, end = len(self.identifiers), self.count
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
        """Return the packets of one request.

        Stop before the first message that cannot be sent as a packet or that is invalid; in the
        latter case also return the error.
        """
        packets: list[bytes] = []
        size = 0
        for number in range(self._run_at(start), len(self._runs)):
            run = self._runs[number]
            properties = _properties(run)
            room = entries.MAX_MESSAGES - len(packets)
            if size >= _MAX_PACKETS or not room or not is_plain(properties):
                break
            properties.sender_identifier = sender
            try:
                if isinstance(run, MessageRun):
                    made = self._packed(
                        number, start + len(packets), room, connection.identifier, destination, bool(transaction)
                    )
                else:
                    packet = build(
                        run,
                        source=connection.identifier,
                        ordinal=0,
                        sent_time=0,
                        destination=destination,
                        transaction=0 if transaction else None,
                    )
                    made = [packet]
            except StatusError as caught:
                # Still send the messages before the faulty one, as a local queue manager would.
                return packets, caught
            packets += made
            size += sum(map(len, made))
        return packets, None

    def _packed(
        self, number: int, start: int, room: int, source: UUID, destination: FormatName, is_transactional: bool
    ) -> list[bytes]:
        """Return packets of a run, from a given message on, as many as fit into a request."""
        run = self._runs[number]
        assert isinstance(run, MessageRun)  # noqa: S101 (the caller asked)
        key = number, source, destination, is_transactional, run.properties.sender_identifier
        if self._template is None or self._template[0] != key:
            template = PacketTemplate(
                run.properties,
                source=source,
                sent_time=0,
                destination=destination,
                is_transactional=is_transactional,
            )
            self._template = key, template
        first = start - self._firsts[number]
        bodies = run.bodies[first : first + room]
        sizes = accumulate(len(body) + _HEADERS for body in bodies)
        count = next((index for index, size in enumerate(sizes, 1) if size >= _MAX_PACKETS), len(bodies))
        zeros = [0] * count
        transactions = zeros if is_transactional else []
        return self._template[1].pack(zeros, run.labels[first : first + count], bodies[:count], transactions)

    async def _sent(self, connection: LannerConnection, under_way: deque[Posted]) -> None:
        try:
            body = await connection.answer(under_way.popleft())
        except RemoteMachineNotAvailable:
            raise
        except StatusError:
            # The request was refused, and those after it were not processed. Another attempt is a
            # new send.
            self.end()
            raise
        self._numbers.end(self._parts.popleft().number)
        self.identifiers += connection.identifiers(entries.unpack_ordinals(body))
        self._losses = 0

    def _each(self, start: int) -> Iterator[MessageProperties]:
        """Yield the messages from an index on."""
        number = self._run_at(start)
        skipped = start - self._firsts[number]
        runs = (run.each() if isinstance(run, MessageRun) else (run,) for run in self._runs[number:])
        return islice(chain.from_iterable(runs), skipped, None)

    async def in_documents(self, connection: LannerConnection, queue: int, transaction: int) -> None:
        """Send messages as documents, until one can be sent as a packet or the request is full."""
        request: Document = {"request": "send", "queue": queue}
        if transaction:
            request["transaction"] = transaction
        batch: list[MessageProperties] = []
        size = 0
        for properties in self._each(len(self.identifiers)):
            size += len(properties.body)
            if batch and (size > _MAX_BODIES or len(batch) == entries.MAX_MESSAGES or is_plain(properties)):
                break
            batch.append(properties)
        request["messages"] = [{**properties_to_document(one), "size": len(one.body)} for one in batch]
        self.is_under_way = True
        document, _ = await connection.call(request, b"".join(bytes(one.body) for one in batch))
        self.is_under_way = False
        self.identifiers.extend(document["ids"])
