"""Odd arguments, handles of queues that come and go, and errors that must be true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path

import pytest

from lanner import aio
from lanner.client import Message, Queue, QueueManager
from lanner.client._async.embedded_queue import EmbeddedQueue
from lanner.client._async.embedded_units import EmbeddedTransaction
from lanner.client._sync.embedded_queue import EmbeddedQueue as BlockingQueue
from lanner.client.runtimes import operations_of, runtime_of
from lanner.host.committer import Committer
from lanner.host.operations import Operations
from lanner.model.enums import EnqueueStatus, QueueAccessType
from lanner.model.errors import (
    InsufficientResources,
    InvalidHandle,
    InvalidParameter,
    IOTimeout,
    LannerError,
    QueueNotAvailable,
    QueueNotFound,
)
from lanner.model.live import MessagePosition, OpenQueueDescriptor
from lanner.store import Store
from tests.overlay import overlay


@pytest.mark.parametrize("where", ["current", "next", "previous", "first", "last"])
@pytest.mark.parametrize("lookup_id", [-1, 1 << 64, "7", 1.5, None])
def test_a_lookup_id_that_is_none_is_refused_by_name(q: Queue, where: str, lookup_id: int) -> None:
    q.send(b"x")
    for call in (q.peek_by_lookup_id, q.receive_by_lookup_id):
        with pytest.raises(InvalidParameter, match="lookup id"):
            call(lookup_id, where)
    with pytest.raises(InvalidParameter, match="lookup id"):
        q.move(lookup_id, "sub")
    assert q.count() == 1


def test_a_queue_that_is_deleted_and_made_again_leaves_no_handles_behind(qm: QueueManager) -> None:
    queue = qm.open("coming-and-going")
    engine = runtime_of(qm).engine
    qm.create_queue("coming-and-going")
    queue.send(b"x")
    before = len(engine.opening.descriptors)
    for _ in range(3):
        qm.delete_queue("coming-and-going")
        qm.create_queue("coming-and-going")
        queue.send(b"x")
    assert len(engine.opening.descriptors) == before


def queue_with(qm: QueueManager, name: str, **replaced: object) -> BlockingQueue:
    """Return a queue of a queue manager whose engine has some of its methods replaced."""
    engine = overlay(runtime_of(qm).engine, **replaced)
    operations = Operations(engine, runtime_of(qm))
    backend = overlay(qm._backend, engine=engine, operations=operations)
    return BlockingQueue(backend, operations.names.format_name(name), exclusive=False)


def test_the_first_of_many_is_not_lost_with_the_queue(qm: QueueManager, q: Queue) -> None:
    """It is removed when the others are looked for: their error must not swallow it."""
    engine = runtime_of(qm).engine
    dequeue_messages, calls = engine.dequeue_messages, []

    def then_deleted(handle: OpenQueueDescriptor, count: int, size: int, transaction: None) -> list[MessagePosition]:
        calls.append(handle)
        if len(calls) > 1:
            raise QueueNotAvailable
        found = dequeue_messages(handle, count, size, transaction)
        q.send(b"first")
        return found

    queue = queue_with(qm, q.name, dequeue_messages=then_deleted)
    assert [message.body for message in queue.receive_many(5, 1, None)] == [b"first"]
    assert len(calls) == 2


def test_a_refused_copy_of_several_is_not_said_to_fill_the_queue_manager(qm: QueueManager) -> None:
    qm.create_queue("roomy")
    qm.create_queue("small", quota_kb=1)
    both = qm.open(r"DIRECT=OS:.\private$\roomy,DIRECT=OS:.\private$\small")
    with pytest.raises(InsufficientResources, match="one of these queues is full") as caught:
        both.send(Message(body=bytes(2000)))
    assert "queue manager" not in str(caught.value)


def test_a_message_that_was_late_is_not_said_to_fill_anything(qm: QueueManager, q: Queue) -> None:
    late = EnqueueStatus.TIMED_OUT_IN_TRANSIT
    queue = queue_with(qm, q.name, enqueue_message_to_an_open_queue=lambda *_: late)
    with pytest.raises(IOTimeout, match="time_to_reach_queue"):
        queue.send(b"x", None)


def test_an_ended_transaction_and_a_queue_object_that_was_never_used_do_not_wake_the_timers(
    qm: QueueManager,
) -> None:
    """Each wake-up would sync what others are about to sync together."""
    timers = runtime_of(qm)._timers
    # Without its thread the wish for work stays.
    timers.stop()
    with qm.transaction():
        pass
    qm.open("nothing")
    assert not timers._is_work_wanted
    qm.transaction()
    assert timers._is_work_wanted


def test_each_batch_has_an_outcome_of_its_own(tmp_path: Path) -> None:
    """Another thread led batch 1, which failed. The durability of batch 2 does not change that."""

    async def scenario() -> None:
        store = Store.open(tmp_path / "store")
        outcomes = {1: InsufficientResources("batch 1 was dropped"), 2: None}

        def sync(batch: int) -> None:
            if (error := outcomes[batch]) is not None:
                raise error

        committer = Committer(overlay(store, sync=sync), asyncio.get_running_loop())
        told: dict[int, LannerError | None] = {}
        committer._waiting = {number: [partial(told.__setitem__, number)] for number in outcomes}
        committer._resolve(2)
        assert told == outcomes
        committer.close()
        store.close()

    asyncio.run(scenario())


async def handle_of(queue: aio.Queue, access: QueueAccessType) -> OpenQueueDescriptor:
    opened = queue._queue
    assert isinstance(opened, EmbeddedQueue)
    return await opened.handle(access)


def test_a_cancelled_read_in_a_transaction_leaves_its_message_in_the_queue(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with aio.QueueManager(tmp_path / "aio", "ALPHA", public_keys=lambda: (b"", b"")) as qm:
            queue = await qm.create_queue("t", transactional=True)
            await handle_of(queue, QueueAccessType.RECEIVE)
            async with qm.transaction() as tx:
                reading = asyncio.create_task(queue.receive(None, transaction=tx))
                await asyncio.sleep(0)
                async with qm.transaction() as other:
                    await queue.send(b"unseen", transaction=other)
                    # The commit's own step, without a chance for the reader to run in between.
                    unit = other._unit
                    assert isinstance(unit, EmbeddedTransaction)
                    with runtime_of(qm).lock:
                        operations_of(qm).commit(unit.inner)
                    unit.is_over = True
                    reading.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reading
            assert (await queue.receive(0)).body == b"unseen"

    asyncio.run(scenario())


@pytest.mark.parametrize("way", ["receive", "waiting receive", "receive_many", "receive_by_lookup_id", "cursor"])
def test_a_receive_that_is_cancelled_while_the_disk_is_written_leaves_the_message_in_its_place(
    tmp_path: Path, way: str
) -> None:
    async def scenario() -> None:
        async with aio.QueueManager(tmp_path / "aio", "ALPHA", public_keys=lambda: (b"", b"")) as qm:
            queue = await qm.create_queue("q")
            handle = await handle_of(queue, QueueAccessType.SEND)
            # Opening it waits for the disk.
            await handle_of(queue, QueueAccessType.RECEIVE)
            cursor = queue.cursor()
            calls: dict[str, Callable[[], Coroutine[None, None, object]]] = {
                "receive": lambda: queue.receive(0),
                "waiting receive": lambda: queue.receive(None),
                "receive_many": lambda: queue.receive_many(1),
                "receive_by_lookup_id": lambda: queue.receive_by_lookup_id(0, "first"),
                "cursor": lambda: cursor.receive(0),
            }
            messages = [
                Message(body=b"1", recoverable=True, time_to_be_received=600),
                Message(body=b"2", recoverable=True),
            ]
            properties = [message.properties(qm.names) for message in messages]

            def send() -> None:
                sent: list[str] = []
                with runtime_of(qm).lock:
                    operations_of(qm).send_many(handle, properties, sent, None)
                assert len(sent) == 2

            # The disk stands still from here on.
            commit_lock = runtime_of(qm).store._commits._commit_lock
            commit_lock.acquire()
            if way == "waiting receive":
                reading = asyncio.create_task(calls[way]())
                await asyncio.sleep(0)
                send()
            else:
                send()
                reading = asyncio.create_task(calls[way]())
            for _ in range(5):
                await asyncio.sleep(0)
            assert await queue.count() == 1
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            commit_lock.release()
            found = [message async for message in queue]
            assert [message.body for message in found] == [b"1", b"2"]
            assert (await queue.attributes()).total_bytes == sum(len(message.packet) for message in found)
        async with aio.QueueManager(tmp_path / "aio", "ALPHA", public_keys=lambda: (b"", b"")) as qm:
            queue = qm.open("q")
            assert [(await queue.receive(0)).body for _ in range(2)] == [b"1", b"2"]

    asyncio.run(scenario())


def test_opening_that_is_cancelled_lets_go_of_the_data_directory(tmp_path: Path) -> None:
    async def scenario() -> None:
        opening = asyncio.create_task(aio.QueueManager(tmp_path / "aio", "ALPHA").__aenter__())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    asyncio.run(scenario())  # waits for its threads
    QueueManager(tmp_path / "aio", "ALPHA").close()


def test_a_subqueue_that_nobody_has_used_yet_is_empty_and_can_be_listed(qm: QueueManager, q: Queue) -> None:
    """`list` asks for the length first, before the iteration brings the subqueue into being."""
    retry = q.subqueue("retry")
    assert retry.count() == 0
    assert list(retry) == []
    assert retry.exists()
    with pytest.raises(QueueNotFound):
        qm.open("missing;retry").count()


def test_a_closed_cursor_reads_no_more(q: Queue) -> None:
    q.send(b"x")
    with q.cursor() as cursor:
        assert cursor.peek(0).body == b"x"
    for call in (cursor.peek, cursor.peek_next, cursor.receive):
        with pytest.raises(InvalidHandle, match="closed"):
            call(0)
    assert q.count() == 1
