"""The async sender in an event loop: tasks that share it, are cancelled, or do not wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from lanner.aio import Sender
from lanner.client import Message, Queue, QueueManager
from lanner.model.errors import InvalidHandle
from lanner.transfer.events import Event, UserMessagesReceived
from lanner.transfer.session import Session
from tests.client.peers import PORT, SETTINGS, Script, Server, Wire, arrived, free_address

ORDERS = r"private$\orders"


@pytest.fixture
def address() -> str:
    return free_address()


@pytest.fixture
def orders(start: Callable[..., QueueManager], address: str) -> Queue:
    return start("BETA", bind=address, transfer=SETTINGS).__enter__().create_queue("orders")


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


def test_messages_of_megabytes_are_written_before_the_end(orders: Queue, address: str) -> None:
    async def main() -> None:
        async with Sender(address, port=PORT) as sender:
            await sender.send_many(ORDERS, [bytes([number]) * (3 << 20) for number in range(4)])

    asyncio.run(main())
    # No task waited for an acknowledgment, and still the data has arrived.
    assert [orders.receive(10).body_bytes[:1] for _ in range(4)] == [b"\0", b"\1", b"\2", b"\3"]


def test_tasks_that_wait_outlive_a_lost_connection(orders: Queue, address: str) -> None:
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


def test_messages_are_sent_again_though_no_task_waits() -> None:
    """The event loop reconnects without a waiting task."""
    has_come_twice = threading.Event()

    def take(_session: Session, event: Event) -> bool:
        if not isinstance(event, UserMessagesReceived):
            return True
        if len(script.packets) == 1:
            return False  # the first connection ends
        has_come_twice.set()
        return True

    async def main(server: Server) -> None:
        sender = await Sender(server.address, port=PORT, settings=SETTINGS).__aenter__()
        await sender.send(ORDERS, "express")
        await asyncio.to_thread(has_come_twice.wait)
        assert sender.unacknowledged == 1
        await sender.__aexit__(KeyError, None, None)

    script = Script(take)
    with Server(script) as server:
        asyncio.run(main(server))
        assert server.connections == 2
    assert len(script.packets) == 2
    assert len(set(script.packets)) == 1


def test_a_cancelled_task_leaves_the_others_their_connection(orders: Queue, address: str) -> None:
    """Without a block, the first message connects; it does so for all who wait."""

    async def main() -> None:
        sender = Sender(address, port=PORT)
        first = asyncio.create_task(sender.send(ORDERS, Message(body="given up", recoverable=True)))
        second = asyncio.create_task(sender.send(ORDERS, Message(body="sent", recoverable=True)))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait((first,))
        assert first.cancelled()
        await second
        await sender.close()

    asyncio.run(main())
    assert [message.body for message in orders] == ["sent"]


def test_a_task_that_waits_is_told_of_the_end() -> None:
    async def main(server: Server) -> None:
        sender = await Sender(server.address, port=PORT).__aenter__()
        waiting = asyncio.create_task(sender.send(ORDERS, "x", wait=True))
        await asyncio.sleep(0)
        await sender.__aexit__(KeyError, None, None)
        with pytest.raises(InvalidHandle):
            await waiting

    with Server(Script(lambda _session, _event: None)) as server:
        asyncio.run(main(server))
