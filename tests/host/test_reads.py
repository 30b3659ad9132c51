"""A read is found at once or waited for, then taken or given back."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from uuid import uuid4

import pytest

from lanner.host.committer import Committer
from lanner.host.reads import Read, purge
from lanner.model.enums import INFINITE, QueueAccessType
from lanner.model.errors import (
    InsufficientResources,
    IOTimeout,
    MessageAlreadyReceived,
    OperationCancelled,
    TransactionSequence,
)
from lanner.model.live import Cursor, MessagePosition, OpenQueueDescriptor
from lanner.security.identity import SYSTEM
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from tests.host.conftest import QUEUE, Signal, World
from tests.store.conftest import no_room


def in_loop(world: World, work: Callable[[Committer], Awaitable[None]]) -> None:
    async def run() -> None:
        committer = Committer(world.runtime.store, asyncio.get_running_loop())
        try:
            await work(committer)
        finally:
            await asyncio.to_thread(committer.close)

    asyncio.run(run())


def body(position: MessagePosition) -> bytes:
    return Message(position.record.packet).body


def opened_cursor(world: World, descriptor: OpenQueueDescriptor) -> Cursor:
    with world.runtime.lock:
        cursor = world.engine.open_cursor(descriptor)
    assert cursor is not None
    return cursor


# Found at once
# --------------------------------------------------------------------------------------------------


def test_a_message_that_is_there_is_locked_until_it_is_taken(world: World) -> None:
    world.send(b"one", b"two")
    read = world.receive(world.open())
    assert not read.is_waiting
    assert body(read.position) == b"one"
    assert world.bodies() == [b"two"]
    read.take().wait()
    assert world.bodies() == [b"two"]


def test_a_message_that_is_given_back_is_in_its_place(world: World) -> None:
    world.send(b"one", b"two")
    read = world.receive(world.open())
    read.give_back()
    assert world.bodies() == [b"one", b"two"]
    with pytest.raises(OperationCancelled):
        read.take()


def test_a_peek_has_nothing_to_give_back(world: World) -> None:
    world.send(b"one")
    descriptor = world.open(QueueAccessType.PEEK)
    read = Read(world.engine, world.runtime, descriptor, is_receive=False)
    assert read.begin(lambda on_end: world.engine.peek_message(descriptor, timeout=0, on_end=on_end))
    read.give_back()
    assert world.bodies() == [b"one"]


def test_taking_an_express_message_waits_for_nothing(world: World) -> None:
    world.send(b"one", is_express=True)
    world.send(b"two")
    assert not world.receive(world.open()).take().is_pending
    assert world.receive(world.open()).take().is_pending


def test_a_message_that_was_purged_meanwhile_cannot_be_taken(world: World) -> None:
    world.send(b"one")
    read = world.receive(world.open())
    with world.runtime.lock:
        world.engine.purge_queue(world.engine.require_queue(parse(QUEUE)))
    with pytest.raises(MessageAlreadyReceived):
        read.take()


def test_a_message_of_a_closed_handle_cannot_be_taken(world: World) -> None:
    world.send(b"one")
    read = world.receive(world.open())
    with world.runtime.lock:
        world.engine.close_queue(read.descriptor)
    with pytest.raises(OperationCancelled):
        read.take()
    assert world.bodies() == [b"one"]
    read.give_back()
    assert world.bodies() == [b"one"]


def test_the_error_of_an_event_is_raised(world: World) -> None:
    with pytest.raises(IOTimeout):
        world.receive(world.open(), timeout=0)


# Waiting in a thread
# ---------------------------------------------------------------------------------------------


def test_a_thread_waits_for_a_message(world: World) -> None:
    read = world.receive(world.open())
    assert read.is_waiting
    with ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(read.block, None)
        world.send(b"one", b"two")
        assert body(blocked.result()) == b"one"
    assert world.bodies() == [b"two"]


def test_a_wait_in_a_thread_times_out(world: World) -> None:
    with pytest.raises(IOTimeout):
        world.receive(world.open(), timeout=5).block(0.005)


def test_a_wait_in_a_thread_times_out_without_the_timer_thread(world: World) -> None:
    world.runtime._timers.stop()
    with pytest.raises(IOTimeout):
        world.receive(world.open(), timeout=5).block(0.005)


def test_an_interrupted_wait_is_given_up(world: World) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    read = world.receive(world.open())
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(KeyboardInterrupt):
            read.block(None)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert read.descriptor.waiting_reads == []
    world.send(b"one")
    assert world.bodies() == [b"one"]


def test_closing_the_handle_ends_the_wait(world: World) -> None:
    read = world.receive(world.open())
    with ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(read.block, None)
        with world.runtime.lock:
            world.engine.close_queue(read.descriptor)
        with pytest.raises(OperationCancelled, match="the queue was closed"):
            blocked.result()


def test_a_callback_is_called_when_the_wait_is_over_or_at_once(world: World) -> None:
    early, late = Signal(), Signal()
    read = world.receive(world.open())
    read.when_over(early)
    assert early.calls == 0
    world.send(b"one")
    assert early.calls == 1
    read.when_over(late)
    assert (early.calls, late.calls) == (1, 1)


def test_a_wait_that_was_given_up_calls_nobody(world: World) -> None:
    over = Signal()
    read = world.receive(world.open())
    read.when_over(over)
    read.abandon()
    assert over.calls == 0
    assert not read.is_waiting
    world.send(b"one")
    assert world.bodies() == [b"one"]


# Waiting in an event loop
# ----------------------------------------------------------------------------------------


def test_an_event_loop_waits_for_a_message(world: World) -> None:
    async def work(committer: Committer) -> None:
        read = world.receive(world.open(), changes=committer)
        waiting = asyncio.create_task(read.wait())
        await asyncio.sleep(0)
        threading.Thread(target=world.send, args=(b"one",)).start()
        assert body(await waiting) == b"one"
        await read.taken(read.take())
        assert world.runtime.store.pending_batch() == 0, "the removal is durable"

    in_loop(world, work)
    assert world.bodies() == []


def test_a_wait_in_an_event_loop_times_out(world: World) -> None:
    async def work(committer: Committer) -> None:
        with pytest.raises(IOTimeout):
            await world.receive(world.open(), timeout=5, changes=committer).wait()

    in_loop(world, work)


@pytest.mark.parametrize("has_come", [False, True])
def test_a_cancelled_wait_gives_back_what_it_got(world: World, has_come: bool) -> None:
    """This holds also if the message came in that moment, before the waiting task ran."""

    async def work(committer: Committer) -> None:
        read = world.receive(world.open(), changes=committer)
        waiting = asyncio.create_task(read.wait())
        await asyncio.sleep(0)
        if has_come:
            world.send(b"one")
            assert world.bodies() == [], "the read has it"
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        if not has_come:
            world.send(b"one")
        assert read.descriptor.waiting_reads == []
        assert world.bodies() == [b"one"]

    in_loop(world, work)


def test_a_receive_that_is_cancelled_before_it_is_durable_is_undone(world: World) -> None:
    async def work(committer: Committer) -> None:
        world.send(b"one", b"two")
        read = world.receive(world.open(), changes=committer)
        change = read.take()
        assert world.bodies() == [b"two"]
        taking = asyncio.create_task(read.taken(change))
        await asyncio.sleep(0)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking

    in_loop(world, work)
    assert world.bodies() == [b"one", b"two"]


def test_a_receive_that_cannot_be_written_fails(world: World) -> None:
    async def work(committer: Committer) -> None:
        world.send(b"one")
        with committer.change() as sent:
            pass
        await sent
        read = world.receive(world.open(), changes=committer)
        change = read.take()
        with no_room(), pytest.raises(InsufficientResources):
            await read.taken(change)

    in_loop(world, work)
    assert world.bodies() == [b"one"]


# Cursors and transactions
# ----------------------------------------------------------------------------------------


def test_giving_back_returns_the_cursor_to_its_place(world: World) -> None:
    world.send(b"one", b"two")
    descriptor = world.open()
    cursor = opened_cursor(world, descriptor)
    world.receive(descriptor, cursor=cursor).take()
    before = cursor.position, cursor.parked_after, cursor.state
    read = world.receive(descriptor, cursor=cursor)
    assert body(read.position) == b"two"
    assert (cursor.position, cursor.parked_after, cursor.state) != before
    read.give_back()
    assert (cursor.position, cursor.parked_after, cursor.state) == before
    assert body(world.receive(descriptor, cursor=cursor).position) == b"two"


def test_closing_the_cursor_ends_the_wait(world: World) -> None:
    descriptor = world.open()
    cursor = opened_cursor(world, descriptor)
    read = world.receive(descriptor, cursor=cursor)
    assert read.is_waiting
    with world.runtime.lock:
        world.engine.close_cursor(cursor)
    with pytest.raises(OperationCancelled, match="the cursor was closed"):
        read.block(None)


def test_giving_back_takes_a_read_out_of_its_transaction(world: World) -> None:
    world.send(b"one")
    with world.runtime.lock:
        transaction = world.engine.create_transaction(uuid4())
    read = world.receive(world.open(), transaction=transaction)
    assert len(transaction.transactional_operations) == 1
    read.give_back()
    assert transaction.transactional_operations == []
    assert world.bodies() == [b"one"]
    with world.runtime.change() as change:
        world.engine.transaction_commit(transaction.identifier)
    change.wait()
    assert world.bodies() == [b"one"]


def test_the_end_of_a_transaction_ends_its_waits(world: World) -> None:
    with world.runtime.lock:
        transaction = world.engine.create_transaction(uuid4())
    read = world.receive(world.open(), INFINITE, transaction=transaction)
    assert read.is_waiting
    with world.runtime.lock:
        world.engine.transaction_abort(transaction.identifier)
    with pytest.raises(TransactionSequence):
        read.block(None)


# Purges
# --------------------------------------------------------------------------------------------------


def test_a_purge_in_slices_leaves_what_arrives_meanwhile(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanner.host.reads.PURGE_SLICE", 2)
    world.send(*[b"old"] * 5)

    async def work(committer: Committer) -> None:
        purging = asyncio.create_task(purge(world.engine, committer, world.open(), SYSTEM))
        await asyncio.sleep(0)
        assert world.bodies() == [b"old"] * 3, "others have their turn between two slices"
        world.send(b"new")
        assert await purging == 5

    in_loop(world, work)
    assert world.bodies() == [b"new"]
