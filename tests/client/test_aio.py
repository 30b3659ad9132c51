"""The awaitable API: the same operations, waited for in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import lanner.aio
from lanner.client import Message
from lanner.client._async.embedded_queue import EmbeddedQueue
from lanner.client.runtimes import operations_of, runtime_of
from lanner.model.enums import QueueAccessType
from lanner.model.errors import (
    IOTimeout,
    OperationCancelled,
    QueueNotFound,
    ServiceNotAvailable,
    SharingViolation,
    StatusError,
    TransactionSequence,
)
from tests.client.conftest import no_keys

Scenario = Callable[[lanner.aio.QueueManager, lanner.aio.Queue], Awaitable[None]]


def play(tmp_path: Path, scenario: Scenario) -> None:
    """Run a scenario with a queue manager and a queue `q`."""

    async def main() -> None:
        async with lanner.aio.QueueManager(tmp_path / "data", "ALPHA", public_keys=no_keys) as qm:
            await asyncio.wait_for(_scenario(qm), 60)

    async def _scenario(qm: lanner.aio.QueueManager) -> None:
        await scenario(qm, await qm.create_queue("q"))

    asyncio.run(main())


async def bodies(queue: lanner.aio.Queue) -> list[object]:
    return [message.body async for message in queue]


async def waiting(qm: lanner.aio.QueueManager, count: int = 1) -> None:
    while True:
        with runtime_of(qm).lock:
            if len(operations_of(qm).find("q").waiting_reads) >= count:
                return
        await asyncio.sleep(0)


def test_messages_go_there_and_back(tmp_path: Path) -> None:
    async def scenario(qm: lanner.aio.QueueManager, q: lanner.aio.Queue) -> None:
        identifier = await q.send(Message(body="1", recoverable=True))
        assert len(await q.send_many(["2", b"3"])) == 2
        assert await bodies(q) == ["1", "2", b"3"]
        assert (await q.peek(0)).id == identifier
        assert (await q.receive(0)).body == "1"
        assert [message.body for message in await q.receive_many(5)] == ["2", b"3"]
        with pytest.raises(IOTimeout):
            await q.receive(0)
        with pytest.raises(IOTimeout):
            await q.peek(0.01)
        assert await q.receive_many(5, timeout=0.01) == []
        assert (qm.name, await q.count(), q.path_name) == ("ALPHA", 0, r"ALPHA\private$\q")

    play(tmp_path, scenario)


def test_a_waiting_task_gets_what_is_sent(tmp_path: Path) -> None:
    async def scenario(qm: lanner.aio.QueueManager, q: lanner.aio.Queue) -> None:
        readers = [asyncio.create_task(q.receive()) for _ in range(3)]
        await waiting(qm, 3)
        await q.send_many(["1", "2", "3"])
        assert [(await reader).body for reader in readers] == ["1", "2", "3"]

    play(tmp_path, scenario)


def test_a_cancelled_task_loses_nothing(tmp_path: Path) -> None:
    """No message is lost, whether the task is cancelled before or after its message arrives.

    In the second case the task has not been told of the message yet.
    """

    async def scenario(qm: lanner.aio.QueueManager, q: lanner.aio.Queue) -> None:
        opened = q._queue
        assert isinstance(opened, EmbeddedQueue)
        handle = await opened.handle(QueueAccessType.SEND)
        for has_come in (False, True):
            reader = asyncio.create_task(q.receive())
            await waiting(qm)
            if has_come:
                # No await: the task must not run in between.
                with runtime_of(qm).lock:
                    operations_of(qm).send(handle, Message(body="x").properties(qm.names), None)
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
            if not has_come:
                await q.send("x")
            assert (await q.receive(0)).body == "x"
        with runtime_of(qm).lock:
            assert not operations_of(qm).find("q").waiting_reads

    play(tmp_path, scenario)


def test_closing_ends_the_wait(tmp_path: Path) -> None:
    async def scenario(qm: lanner.aio.QueueManager, q: lanner.aio.Queue) -> None:
        reader = asyncio.create_task(q.receive())
        await waiting(qm)
        await q.close()
        with pytest.raises(OperationCancelled):
            await reader
        reader = asyncio.create_task(q.receive())
        await waiting(qm)
        await qm.close()
        with pytest.raises(StatusError):
            await reader
        with pytest.raises(ServiceNotAvailable):
            await q.send("x")

    play(tmp_path, scenario)


def test_transactions_are_all_or_nothing(tmp_path: Path) -> None:
    async def scenario(qm: lanner.aio.QueueManager, _q: lanner.aio.Queue) -> None:
        ledger = await qm.create_queue("ledger", transactional=True)
        async with qm.transaction() as transaction:
            await ledger.send("kept", transaction=transaction)
            assert await bodies(ledger) == []
        assert await bodies(ledger) == ["kept"]
        with pytest.raises(TransactionSequence):
            await ledger.send("x", transaction=transaction)

        async def fail() -> None:
            async with qm.transaction() as transaction:
                await ledger.receive(0, transaction=transaction)
                await ledger.send("lost", transaction=transaction)
                raise LookupError

        with pytest.raises(LookupError):
            await fail()
        assert await bodies(ledger) == ["kept"]

    play(tmp_path, scenario)


def test_cursors_lookup_ids_and_subqueues(tmp_path: Path) -> None:
    async def scenario(_qm: lanner.aio.QueueManager, q: lanner.aio.Queue) -> None:
        await q.send_many(["1", "2", "3"])
        async with q.cursor() as cursor:
            first = await cursor.peek(0)
            assert [first.body, (await cursor.peek_next(0)).body] == ["1", "2"]
            assert (await cursor.receive(0)).body == "2"
        await q.move(first.lookup_id, "retry")
        assert await bodies(q.subqueue("retry")) == ["1"]
        assert (await q.peek_by_lookup_id(0, "first")).body == "3"
        assert (await q.receive_by_lookup_id(0, "last")).body == "3"
        assert await q.purge() == 0

    play(tmp_path, scenario)


def test_queues_are_made_found_and_deleted(tmp_path: Path) -> None:
    async def scenario(qm: lanner.aio.QueueManager, q: lanner.aio.Queue) -> None:
        await q.set(label="new")
        assert (await qm.open(r".\private$\Q").attributes()).label == "new"
        assert r"ALPHA\private$\q" in [queue.name for queue in await qm.queues()]
        async with qm.open("q", exclusive=True) as mine:
            await mine.send("x")
            assert (await mine.receive(0)).body == "x"
            with pytest.raises(SharingViolation):
                await q.receive(0)
        await qm.delete_queue("q")
        with pytest.raises(QueueNotFound):
            await q.send("x")
        await qm.open(r"BETA\private$\far").send("x")
        (outgoing,) = await qm.outgoing_queues()
        assert await bodies(outgoing) == ["x"]

    play(tmp_path, scenario)


def test_many_tasks_share_commits(tmp_path: Path) -> None:
    async def scenario(_qm: lanner.aio.QueueManager, q: lanner.aio.Queue) -> None:
        sends = (q.send(Message(body=str(number), recoverable=True)) for number in range(200))
        assert len(set(await asyncio.gather(*sends))) == 200
        received = await asyncio.gather(*(q.receive(5) for _ in range(200)))
        assert sorted(int(str(message.body)) for message in received) == list(range(200))

    play(tmp_path, scenario)
