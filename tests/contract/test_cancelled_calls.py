"""Calls that are cancelled or interrupted: nothing is lost.

This happens between two requests, or while an answer is on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeAlias, TypeVar

import pytest

import lanner
import lanner.aio
from lanner import errors
from lanner.client._async.lanner_connection import LannerConnection as AsyncConnection
from lanner.client._sync.lanner_connection import LannerConnection
from lanner.host.change import Change
from lanner.services import stream_entries as entries
from tests.contract.forms import FORMS, Place, bodies, new_name, new_queue
from tests.contract.test_interruptions import in_this_thread

T = TypeVar("T")
When: TypeAlias = Literal["asked", "answered"]

ASYNC_REMOTE = pytest.mark.parametrize(
    "form", [form for form in FORMS if form.is_async and form.is_remote], ids=str, indirect=True
)
ASYNC_EMBEDDED = pytest.mark.parametrize(
    "form", [form for form in FORMS if form.is_async and not form.is_remote], ids=str, indirect=True
)
BLOCKING_REMOTE = pytest.mark.parametrize(
    "form", [form for form in FORMS if not form.is_async and form.is_remote], ids=str, indirect=True
)
BLOCKING_EMBEDDED = pytest.mark.parametrize(
    "form", [form for form in FORMS if not form.is_async and not form.is_remote], ids=str, indirect=True
)
WHEN = pytest.mark.parametrize("when", ["asked", "answered"])
# More messages than one answer has: a receive of them is three requests, and one that removes them.
MANY = 2500
STEPS = pytest.mark.parametrize(
    ("kind", "number"), [(entries.RECEIVE, 1), (entries.RECEIVE, 2), (entries.RECEIVE, 3), (entries.REMOVE, 1)]
)


def cancel_at(monkeypatch: pytest.MonkeyPatch, kind: int | str, number: int, when: When) -> None:
    """Cancel the task that makes a certain request, before its answer comes or together with it.

    `kind` is that of an entry of the stream, or the name of a request in a call.
    """
    exchange, call, counts = AsyncConnection.exchange, AsyncConnection.call, Counter[int | str]()

    async def observed(this: int | str, work: Callable[[], Awaitable[T]]) -> T:
        counts[this] += 1
        is_it = this == kind and counts[kind] == number
        task = asyncio.current_task()
        assert task is not None
        if is_it and when == "asked":
            task.cancel()
        answer = await work()
        if is_it:
            task.cancel()
            await asyncio.sleep(0)
        return answer

    async def observed_exchange(self: AsyncConnection, this: int, *parts: bytes) -> memoryview:
        return await observed(this, lambda: exchange(self, this, *parts))

    async def observed_call(self: AsyncConnection, request: dict[str, Any], octets: bytes = b"") -> Any:  # noqa: ANN401
        return await observed(request["request"], lambda: call(self, request, octets))

    monkeypatch.setattr(AsyncConnection, "exchange", observed_exchange)
    monkeypatch.setattr(AsyncConnection, "call", observed_call)


async def cancelled(work: Any) -> None:  # noqa: ANN401 (a coroutine)
    task = asyncio.create_task(work)
    with pytest.raises(asyncio.CancelledError):
        await task


@contextlib.asynccontextmanager
async def another(place: Place) -> AsyncIterator[lanner.aio.QueueManager]:
    """Connect as a program beside that which is cancelled."""
    async with await place.connect() as qm:
        yield qm


async def received_in_the_end(q: lanner.aio.Queue, count: int) -> list[object]:
    """Receive messages some of which are only on their way back to the queue."""
    found: list[object] = []
    with contextlib.suppress(errors.IOTimeout):
        while len(found) < count:
            found.append((await q.receive(10)).body)
            found += [message.body for message in await q.receive_many(count)]
    return found


# Several messages
# --------------------------------------------------------------------------------------------------


@ASYNC_REMOTE
@STEPS
@WHEN
async def test_a_cancelled_receive_of_many_loses_nothing(
    qm: lanner.aio.QueueManager,
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    kind: int,
    number: int,
    when: When,
) -> None:
    q = await new_queue(qm)
    sent = [str(number) for number in range(MANY)]
    await q.send_many(sent)
    with contextlib.suppress(errors.MessageNotFound):
        await q.receive_by_lookup_id(1)
    with monkeypatch.context() as patched:
        cancel_at(patched, kind, number, when)
        await cancelled(q.receive_many(MANY, timeout=30))
    async with another(place) as other:
        assert sorted(map(str, await received_in_the_end(other.open(q.name), MANY))) == sorted(sent)
    assert await q.count() == 0


@ASYNC_EMBEDDED
async def test_a_cancelled_receive_of_many_loses_nothing_in_this_process(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    sent = [lanner.Message(body=str(number), recoverable=True) for number in range(5)]
    for turns in itertools.count():
        # Messages that are there are removed at once; others are waited for.
        for is_there in (True, False):
            await q.purge()
            if is_there:
                await q.send_many(sent)
            receiving = asyncio.create_task(q.receive_many(5, timeout=30))
            if not is_there:
                await asyncio.sleep(0)
                await q.send_many(sent)
            for _ in range(turns):
                await asyncio.sleep(0)
            is_too_late = receiving.done()
            receiving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await receiving
            if is_too_late:
                assert turns > 0
                return
            assert await bodies(q) == [message.body for message in sent], turns


@ASYNC_REMOTE
async def test_many_receives_cancelled_together_lose_nothing(
    qm: lanner.aio.QueueManager, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them have removed their messages, and none has the answer."""
    count = 200
    q = await new_queue(qm)
    sent = [str(number) for number in range(count)]
    await q.send_many(sent)
    original, every, answered = AsyncConnection.exchange, asyncio.Event(), asyncio.Event()
    removed: list[int] = []

    async def exchange(self: AsyncConnection, kind: int, *parts: bytes) -> memoryview:
        answer = await original(self, kind, *parts)
        if kind == entries.REMOVE:
            removed.extend(entries.unpack_reads(memoryview(parts[0])))
            if len(removed) == count:
                every.set()
            await answered.wait()
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(AsyncConnection, "exchange", exchange)
        tasks = [asyncio.create_task(q.receive(30)) for _ in sent]
        await every.wait()
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        # No task waits any longer for the answer that they share.
        answered.set()
    assert all(isinstance(end, asyncio.CancelledError) for end in ends)
    async with another(place) as other:
        assert sorted(map(str, await received_in_the_end(other.open(q.name), count))) == sorted(sent)


@ASYNC_REMOTE
async def test_receives_of_many_tasks_share_requests(
    qm: lanner.aio.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task gets a message of its own, and nearly all share one request.

    Tasks that find no message wait separately.
    """
    q = await new_queue(qm)
    await q.send_many([str(number) for number in range(100)])
    original, kinds = AsyncConnection.exchange, Counter[int]()

    async def exchange(self: AsyncConnection, kind: int, *parts: bytes) -> memoryview:
        kinds[kind] += 1
        return await original(self, kind, *parts)

    monkeypatch.setattr(AsyncConnection, "exchange", exchange)
    tasks = [asyncio.create_task(q.receive(30)) for _ in range(102)]
    done, waiting = await asyncio.wait(tasks, timeout=1)
    assert sorted(int(task.result().body) for task in done) == list(range(100))
    # One alone, the others together, and the two for which there was no message.
    assert (kinds[entries.RECEIVE], kinds[entries.REMOVE]) == (4, 2)
    await q.send_many(["x", "y"])
    assert {(await task).body for task in waiting} == {"x", "y"}
    with pytest.raises(errors.IOTimeout):
        await asyncio.gather(*(q.receive(0) for _ in range(3)))
    assert await q.count() == 0


@BLOCKING_REMOTE
def test_receives_of_many_threads_share_requests(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    original, kinds = LannerConnection.exchange, Counter[int]()

    def exchange(self: LannerConnection, kind: int, *parts: bytes) -> memoryview:
        kinds[kind] += 1
        return original(self, kind, *parts)

    with in_this_thread(place) as qm:
        q = qm.create_queue(new_name())
        q.send_many([str(number) for number in range(400)])
        monkeypatch.setattr(LannerConnection, "exchange", exchange)
        with ThreadPoolExecutor(16) as pool:
            found = [int(message.body) for message in pool.map(lambda _: q.receive(30), range(400))]
            assert sorted(found) == list(range(400))
            assert kinds[entries.RECEIVE] < 300
            with pytest.raises(errors.IOTimeout):
                list(pool.map(lambda _: q.receive(0), range(16)))


@BLOCKING_REMOTE
@STEPS
@WHEN
def test_ctrl_c_in_a_receive_of_many_loses_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, kind: int, number: int, when: When
) -> None:
    original, counts = LannerConnection.exchange, Counter[int]()

    def exchange(self: LannerConnection, this: int, *parts: bytes) -> memoryview:
        counts[this] += 1
        is_it = this == kind and counts[kind] == number
        if is_it and when == "asked":
            signal.raise_signal(signal.SIGINT)
        answer = original(self, this, *parts)
        if is_it and when == "answered":
            signal.raise_signal(signal.SIGINT)
        return answer

    with in_this_thread(place) as qm:
        q = qm.create_queue(new_name())
        sent = [str(number) for number in range(MANY)]
        q.send_many(sent)
        with monkeypatch.context() as patched:
            patched.setattr(LannerConnection, "exchange", exchange)
            with pytest.raises(KeyboardInterrupt):
                q.receive_many(MANY, timeout=30)
        assert sorted(str(message.body) for message in q.receive_many(MANY)) == sorted(sent)
        assert q.count() == 0


@BLOCKING_EMBEDDED
@WHEN
def test_ctrl_c_in_a_receive_of_many_loses_nothing_in_this_process(
    place: Place, monkeypatch: pytest.MonkeyPatch, when: When
) -> None:
    original = Change.wait

    def wait(self: Change) -> None:
        if when == "answered":
            original(self)
        signal.raise_signal(signal.SIGINT)

    with in_this_thread(place) as qm:
        q = qm.create_queue(new_name())
        q.send_many([lanner.Message(body=body, recoverable=True) for body in "abc"])
        with pytest.raises(errors.MessageNotFound):
            q.receive_by_lookup_id(1)
        with monkeypatch.context() as patched:
            patched.setattr(Change, "wait", wait)
            with pytest.raises(KeyboardInterrupt):
                q.receive_many(3)
        assert [message.body for message in q.receive_many(5)] == ["a", "b", "c"]


# What a call opens
# --------------------------------------------------------------------------------------------------


@ASYNC_REMOTE
@WHEN
async def test_a_transaction_whose_first_call_is_cancelled_stays_usable(
    qm: lanner.aio.QueueManager, monkeypatch: pytest.MonkeyPatch, when: When
) -> None:
    q = await new_queue(qm, transactional=True)
    async with qm.transaction() as tx:
        await q.send("a", transaction=tx)
    tx = qm.transaction()
    with monkeypatch.context() as patched:
        cancel_at(patched, entries.RECEIVE, 1, when)
        await cancelled(q.receive(30, transaction=tx))
    assert (await q.receive(10, transaction=tx)).body == "a"
    await tx.commit()
    assert await q.count() == 0


@ASYNC_REMOTE
@WHEN
async def test_a_cancelled_open_for_one_reader_keeps_nobody_out_after_the_next_call(
    qm: lanner.aio.QueueManager, place: Place, monkeypatch: pytest.MonkeyPatch, when: When
) -> None:
    name = (await new_queue(qm)).name
    q = qm.open(name, exclusive=True)
    with monkeypatch.context() as patched:
        cancel_at(patched, "open", 1, when)
        await cancelled(q.receive(30))
    await qm.open(name).send("a")
    async with another(place) as other:
        assert (await other.open(name).receive(10)).body == "a"
