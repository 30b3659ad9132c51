"""The awaitable sender: the names of the other, in an event loop."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Callable, Iterator

import pytest

from lanner.aio import Sender
from lanner.client import Message, Queue, QueueManager
from lanner.model.errors import (
    InvalidHandle,
    IOTimeout,
    LannerError,
    RemoteMachineNotAvailable,
    ResolveAddress,
    TransactionUsage,
)
from lanner.transfer.events import Event, UserMessageReceived
from lanner.transfer.session import Session
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import FormatName
from tests.client.peers import PEER_GUID, PORT, SETTINGS, Script, Server, Wire, arrived, free_address, never_answer

ORDERS = r"private$\orders"


@pytest.fixture
def address() -> str:
    return free_address()


@pytest.fixture
def beta(start: Callable[..., QueueManager], address: str) -> QueueManager:
    return start("BETA", bind=address, transfer=SETTINGS)


@pytest.fixture
def orders(beta: QueueManager) -> Queue:
    return beta.create_queue("orders")


def test_every_kind_arrives(orders: Queue, address: str) -> None:
    async def main() -> None:
        async with Sender(address, port=PORT) as sender:
            identifier = await sender.send(ORDERS, Message(body="one", label="first", recoverable=True))
            assert len(orders) == 1
            await sender.send(ORDERS, "two", wait=True)
            assert len(orders) == 2
            await sender.send(ORDERS, b"three")
            await sender.send(ORDERS, Message(body="four", recoverable=True), wait=False)
            await sender.flush()
            assert sender.unacknowledged == 0
            first = orders.peek(0)
            assert (first.id, first.label) == (identifier, "first")
            assert first.source_machine == sender.guid
            with pytest.raises(TransactionUsage):
                await sender.send(ORDERS, "x", transaction=object())
        with pytest.raises(InvalidHandle):
            await sender.send(ORDERS, "x")
        await sender.close()

    asyncio.run(main())
    assert [message.body for message in orders] == ["one", "two", b"three", "four"]


def test_thousands_arrive_in_their_order_and_once(orders: Queue, address: str) -> None:
    async def main() -> None:
        async with Sender(address, port=PORT) as sender:
            messages = (Message(body=b"%d" % number, recoverable=bool(number % 3)) for number in range(3000))
            identifiers = await sender.send_many(ORDERS, messages)
            await sender.flush()
            assert identifiers == [message.id for message in orders]

    asyncio.run(main())
    assert [message.body for message in orders] == [b"%d" % number for number in range(3000)]


def test_many_tasks_share_a_sender(orders: Queue, address: str) -> None:
    async def main() -> None:
        async with Sender(address, port=PORT) as sender:
            await asyncio.gather(
                *(
                    sender.send(ORDERS, Message(body=b"%d" % number, recoverable=bool(number % 2)))
                    for number in range(500)
                )
            )
            await asyncio.gather(sender.flush(), sender.flush())
            assert sender.unacknowledged == 0

    asyncio.run(main())
    assert sorted(int(message.body) for message in orders) == list(range(500))


def test_messages_of_megabytes_arrive(orders: Queue, address: str) -> None:
    async def main() -> None:
        async with Sender(address, port=PORT) as sender:
            await sender.send_many(ORDERS, [bytes([number]) * (3 << 20) for number in range(4)])

    asyncio.run(main())
    # Nobody waited for an acknowledgment, and still what was written has come.
    assert [orders.receive(10).body_bytes[:1] for _ in range(4)] == [b"\0", b"\1", b"\2", b"\3"]


def test_what_was_not_acknowledged_is_sent_again_and_its_duplicates_dropped(orders: Queue, address: str) -> None:
    async def main(wire: Wire) -> None:
        async with Sender(wire.address, port=PORT, settings=SETTINGS) as sender:
            wire.is_deaf = True
            tasks = [
                asyncio.create_task(
                    sender.send(ORDERS, Message(body=b"%d" % number, recoverable=bool(number & 1)), wait=True)
                )
                for number in range(20)
            ]
            await asyncio.to_thread(arrived, orders, 20)
            wire.is_deaf = False
            wire.cut()
            await asyncio.gather(*tasks)

    with Wire(address) as wire:
        asyncio.run(main(wire))
        assert wire.connections == 2
    assert [message.body for message in orders] == [b"%d" % number for number in range(20)]


def test_a_sender_outlives_a_restart_of_the_queue_manager(
    start: Callable[..., QueueManager], beta: QueueManager, orders: Queue, address: str
) -> None:
    async def main() -> QueueManager:
        async with Sender(address, port=PORT, settings=SETTINGS) as sender:
            await sender.send(ORDERS, Message(body="before", recoverable=True))
            await asyncio.to_thread(beta.close)
            with pytest.raises(RemoteMachineNotAvailable, match=f"no session with {address}:{PORT}"):
                await sender.send(ORDERS, Message(body="given up", recoverable=True), timeout=0.1)
            assert sender.unacknowledged == 0
            again = await asyncio.to_thread(start, "BETA", bind=address, transfer=SETTINGS)
            await sender.send(ORDERS, Message(body="after", recoverable=True))
            return again

    again = asyncio.run(main())
    assert [message.body for message in again.open("orders")] == ["before", "after"]


def test_whoever_goes_takes_a_message_along_that_was_not_sent(orders: Queue, address: str) -> None:
    async def main() -> None:
        async with Sender(address, port=PORT) as sender:

            def cancelled() -> Iterator[Message]:
                yield Message(body="sent", recoverable=True)
                raise KeyError("the source has failed")

            with pytest.raises(KeyError):
                await sender.send_many(ORDERS, cancelled())
            assert sender.unacknowledged == 0
            await sender.send(ORDERS, "after", wait=True)

    asyncio.run(main())
    assert [message.body for message in orders] == ["after"]


@pytest.mark.parametrize("kind", ["nobody", "no name", "wrong", "mute", "strange"])
def test_a_session_that_cannot_be(beta: QueueManager, address: str, kind: str) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        never_answer(connection)

    async def refused(error: type[LannerError], match: str, host: str, **settings: object) -> None:
        with pytest.raises(error, match=match):
            async with Sender(host, port=PORT, **settings):  # type: ignore[arg-type] # a parameter each
                pass

    if kind == "nobody":
        asyncio.run(
            refused(RemoteMachineNotAvailable, "Connection refused; is a queue manager running there", free_address())
        )
    elif kind == "no name":
        asyncio.run(refused(ResolveAddress, "has no address", "x" * 70))
    elif kind == "wrong":
        asyncio.run(refused(RemoteMachineNotAvailable, "refuses", address, queue_manager=uuid.uuid4()))
    else:
        with Server(never_answer if kind == "mute" else answer) as server:
            match = "no answer within 0.1 s" if kind == "mute" else "BaseHeader"
            asyncio.run(refused(RemoteMachineNotAvailable, match, server.address, timeout=0.1))


def test_a_peer_that_acknowledges_nothing() -> None:
    script = Script(lambda _session, _event: None)

    async def main(server: Server) -> None:
        sender = await Sender(server.address, port=PORT, timeout=0.5).__aenter__()
        await sender.send(ORDERS, "express")
        with pytest.raises(IOTimeout, match="2 messages are unacknowledged"):
            await sender.send(ORDERS, Message(body="recoverable", recoverable=True))
        with pytest.raises(IOTimeout):
            await sender.flush(timeout=0.01)
        with pytest.raises(IOTimeout):
            await sender.close()

    with Server(script) as server:
        asyncio.run(main(server))
        assert len(script.packets) == 2


def test_a_block_that_fails_waits_for_nothing() -> None:
    async def main(server: Server) -> None:
        async with Sender(server.address, port=PORT) as sender:
            await sender.send(ORDERS, Message(body="recoverable", recoverable=True), wait=False)
            raise KeyError

    with Server(Script(lambda _session, _event: None)) as server, pytest.raises(KeyError):
        asyncio.run(main(server))


def test_whoever_waits_hears_that_the_sender_was_closed() -> None:
    async def main(server: Server) -> None:
        sender = await Sender(server.address, port=PORT).__aenter__()
        waiting = asyncio.create_task(sender.send(ORDERS, "x", wait=True))
        await asyncio.sleep(0)
        await sender.__aexit__(KeyError, None, None)
        with pytest.raises(InvalidHandle):
            await waiting

    with Server(Script(lambda _session, _event: None)) as server:
        asyncio.run(main(server))


def test_what_is_sent_to_a_sender_stays_with_the_peer() -> None:
    def send_back(session: Session, event: Event) -> None:
        if isinstance(event, UserMessageReceived) and event.number == 1:
            packet = build(
                MessageProperties(body=b"for another"),
                source=PEER_GUID,
                ordinal=1,
                sent_time=0,
                destination=FormatName.parse(r"DIRECT=OS:alpha\private$\acks"),
            )
            session.send(packet, None)
        if session.total_received:
            session.settle(session.total_received)

    async def main(server: Server) -> None:
        async with Sender(server.address, port=PORT) as sender:
            for number in range(3):
                await sender.send(ORDERS, Message(body=b"%d" % number, recoverable=True))

    script = Script(send_back)
    with Server(script) as server:
        asyncio.run(main(server))
    assert [session.unacked_message_count for session in script.sessions] == [1, 1, 1]
