"""`lanner.aio.connect`: the same, awaitable; waits that are given up lose nothing."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator

import pytest

import lanner
import lanner.aio
from lanner import errors
from tests.cli.conftest import free_address
from tests.client.served import ServedManager


@pytest.fixture(scope="module")
def alpha(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedManager]:
    data = tmp_path_factory.mktemp("aio") / "data"
    served = ServedManager(data, free_address())
    served.runtime.users.add("alice", "secret", administrator=True)
    yield served
    served.close()
    shutil.rmtree(data)


def connected(alpha: ServedManager, work: Callable[[lanner.aio.QueueManager], Awaitable[None]]) -> None:
    async def main() -> None:
        async with await lanner.aio.connect(data=alpha.data) as qm:
            await work(qm)

    asyncio.run(main())


def test_everything_is_awaited(alpha: ServedManager) -> None:
    async def work(qm: lanner.aio.QueueManager) -> None:
        q = await qm.create_queue("all", label="All", journal=True)
        with pytest.raises(errors.QueueExists):
            await qm.create_queue("all")
        await q.send_many([lanner.Message(body=name, recoverable=True) for name in "abc"])
        assert (await q.attributes()).label == "All"
        assert q.path_name == r"ALPHA\private$\all"
        assert await q.exists()
        assert await q.count() == 3
        assert await q.is_transactional() is False
        assert [message.body async for message in q] == ["a", "b", "c"]
        async with q.cursor() as cursor:
            await cursor.peek(0)
            assert (await cursor.peek_next(0)).body == "b"
            assert (await cursor.receive(0)).body == "b"
        assert [message.body for message in await q.receive_many(1)] == ["a"]
        async with q.receiving(5, 0) as messages:
            assert [message.body for message in messages] == ["c"]
        assert await q.journal.count() == 3
        assert r"ALPHA\private$\all" in [queue.name for queue in await qm.queues()]
        async with q:
            await q.send("d")
            assert (await q.peek(0)).body == "d"
            assert (await q.peek_by_lookup_id(0, "last")).body == "d"
            assert (await q.receive_by_lookup_id(0, "first")).body == "d"
        assert await q.purge() == 0
        assert [queue.name for queue in await q.subqueues()] == []
        await qm.delete_queue("all")

    connected(alpha, work)


def test_a_transaction_commits_and_aborts(alpha: ServedManager) -> None:
    async def work(qm: lanner.aio.QueueManager) -> None:
        tq = await qm.create_queue("tx", transactional=True)
        async with qm.transaction() as tx:
            await tq.send("a", transaction=tx)
        tx = qm.transaction()
        assert (await tq.receive(0, transaction=tx)).body == "a"
        await tx.abort()
        async with qm.transaction() as tx:
            assert [message.body for message in await tq.receive_many(5, transaction=tx)] == ["a"]
        # A receive that was given up has taken nothing, and the transaction goes on.
        tx = qm.transaction()
        waiting = asyncio.create_task(tq.receive(30, transaction=tx))
        await waiting_reads(alpha, "tx", 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await waiting_reads(alpha, "tx", 0)
        async with qm.transaction() as other:
            await tq.send("b", transaction=other)
        await tq.send("c", transaction=tx)
        await tx.commit()
        assert [message.body async for message in tq] == ["b", "c"]
        await qm.delete_queue("tx")

    connected(alpha, work)


async def waiting_reads(alpha: ServedManager, name: str, count: int) -> None:
    """Wait until so many reads wait for messages of a queue."""
    queue = next(one for one in alpha.engine.local_queues() if one.pathname.lower().endswith(f"\\{name}"))
    while len(queue.waiting_reads) != count:  # noqa: ASYNC110 (another thread's)
        await asyncio.sleep(0.001)


def test_a_wait_that_is_given_up_takes_nothing(alpha: ServedManager) -> None:
    async def work(qm: lanner.aio.QueueManager) -> None:
        q = await qm.create_queue("given")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await q.receive()
        await waiting_reads(alpha, "given", 0)
        await q.send("here")
        assert (await q.receive(10)).body == "here"
        waiting = [asyncio.create_task(q.receive(30)) for _ in range(20)]
        await waiting_reads(alpha, "given", 20)
        for task in waiting[::2]:
            task.cancel()
        await q.send_many([str(number) for number in range(10)])
        got = await asyncio.gather(*waiting, return_exceptions=True)
        bodies = [one.body for one in got if isinstance(one, lanner.ReceivedMessage)]
        # Those that were given up have given back what they had got.
        bodies += [message.body for message in await q.receive_many(20, 5)] if len(bodies) < 10 else []
        assert sorted(bodies, key=str) == [str(number) for number in range(10)]
        await qm.delete_queue("given")

    connected(alpha, work)


def test_many_wait_on_one_connection_and_are_served_in_order(alpha: ServedManager) -> None:
    async def work(qm: lanner.aio.QueueManager) -> None:
        q = await qm.create_queue("order")
        waiting = []
        for number in range(50):
            waiting.append(asyncio.create_task(q.receive(30)))
            await waiting_reads(alpha, "order", number + 1)
        await q.send_many([str(number) for number in range(50)])
        got = [message.body for message in await asyncio.gather(*waiting)]
        assert got == [str(number) for number in range(50)]
        await qm.delete_queue("order")

    connected(alpha, work)


def test_by_tcp_with_a_name(alpha: ServedManager) -> None:
    async def main() -> None:
        async with await lanner.aio.connect(alpha.bind, "alice", "secret", port=alpha.port) as qm:
            assert (await qm.status())["name"] == "ALPHA"
        async with await lanner.aio.connect(
            alpha.bind, "alice", "secret", port=alpha.port, authentication="negotiate"
        ) as qm:
            assert (await qm.outgoing()) == []
        with pytest.raises(errors.InvalidHandle):
            await qm.status()
        with pytest.raises(errors.RemoteMachineNotAvailable):
            await lanner.aio.connect(free_address())

    asyncio.run(main())


def test_the_endpoint_mapper_tells_the_port(tmp_path_factory: pytest.TempPathFactory) -> None:
    from lanner.services.listener import RpcSettings

    data = tmp_path_factory.mktemp("mapped") / "data"
    served = ServedManager(data, free_address(), RpcSettings(port=12103, read_port=12105))
    try:
        if 135 not in served.listener.ports:
            pytest.skip("port 135 is not ours to bind")
        served.runtime.users.add("alice", "secret")
        with lanner.connect(served.bind, "alice", "secret") as qm:
            assert qm.name == "ALPHA"
    finally:
        served.close()
    shutil.rmtree(data)


def test_many_are_sent_in_their_order_and_one_that_is_refused_is_reported(alpha: ServedManager) -> None:
    async def work(qm: lanner.aio.QueueManager) -> None:
        q, tq = await qm.create_queue("many"), await qm.create_queue("many-tx", transactional=True)
        messages = [lanner.Message(body=str(number), recoverable=bool(number % 2)) for number in range(200)]
        assert await q.send_many(messages) == [message.id for message in messages]
        async with qm.transaction() as tx:
            await tq.send_many(messages, transaction=tx)
        expected = [str(number) for number in range(200)]
        for queue in (q, tq):
            assert [message.body for message in await queue.receive_many(500)] == expected
        await q.set(quota=1)
        messages = [lanner.Message(body=bytes(300)) for _ in range(10)]
        with pytest.raises(errors.InsufficientResources):
            await q.send_many(messages)
        sent = [message.id for message in messages if message.id is not None]
        assert [message.id for message in await q.receive_many(500)] == sent
        assert 0 < len(sent) < 10
        for queue in (q, tq):
            await qm.delete_queue(queue.name)

    connected(alpha, work)


def test_what_was_begun_is_given_back_when_the_rest_is_given_up(alpha: ServedManager) -> None:
    async def work(qm: lanner.aio.QueueManager) -> None:
        q = await qm.create_queue("begun")
        await q.send_many(["a", "b", "c"])
        entered = asyncio.Event()

        async def hold() -> None:
            async with q.receiving(3, 0):
                entered.set()
                await asyncio.sleep(30)

        task = asyncio.create_task(hold())
        await entered.wait()
        with pytest.raises(errors.IOTimeout):
            await q.receive(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [message.body for message in await q.receive_many(5)] == ["a", "b", "c"]
        await qm.delete_queue("begun")

    connected(alpha, work)
