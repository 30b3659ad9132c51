"""Callers that are interrupted: cancelled tasks, Ctrl-C, forked processes.

Nothing is lost, and the object stays usable.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lanner
import lanner.aio
from lanner import errors
from lanner.client.runtimes import operations_of, runtime_of
from lanner.wire.format_name import parse
from tests.contract.forms import FORMS, Place, blocking, bodies, new_name, new_queue
from tests.contract.service import USERS
from tests.contract.waiting import until_it_waits

ASYNC = pytest.mark.parametrize("form", [form for form in FORMS if form.is_async], ids=str, indirect=True)
BLOCKING = pytest.mark.parametrize("form", [form for form in FORMS if not form.is_async], ids=str, indirect=True)


# Cancelled tasks
# --------------------------------------------------------------------------------------------------


@ASYNC
@pytest.mark.parametrize("read", ["receive", "receive_many", "peek", "cursor", "receiving"])
async def test_a_cancelled_wait_takes_nothing_and_the_object_can_be_used_on(
    qm: lanner.aio.QueueManager, read: str
) -> None:
    q = await new_queue(qm)

    async def wait() -> object:
        if read == "receive_many":
            return await q.receive_many(5, timeout=30)
        if read == "cursor":
            async with q.cursor() as cursor:
                return await cursor.receive(30)
        if read == "receiving":
            async with q.receiving(5, timeout=30) as held:
                return held
        return await (q.receive(30) if read == "receive" else q.peek(30))

    async with until_it_waits(wait()) as waiting:
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    await q.send("x")
    assert await bodies(q) == ["x"]
    assert (await q.receive(0)).body == "x"


@ASYNC
async def test_messages_held_by_a_block_that_is_cancelled_return(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    await q.send_many(["a", "b"])

    async def hold() -> None:
        async with q.receiving(2, 0):
            await asyncio.sleep(60)

    async with until_it_waits(hold()) as holding:
        assert await q.receive_many(2) == []
        holding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holding
    assert await bodies(q) == ["a", "b"]


@ASYNC
@pytest.mark.parametrize("recoverable", [True, False], ids=["recoverable", "express"])
async def test_receives_cancelled_at_random_moments_lose_nothing(
    qm: lanner.aio.QueueManager, *, recoverable: bool
) -> None:
    q = await new_queue(qm)
    chance = random.Random(1)
    sent = [str(number) for number in range(200)]

    async def send() -> None:
        for body in sent:
            await q.send(lanner.Message(body=body, recoverable=recoverable))
            await asyncio.sleep(0.001)

    sending = asyncio.create_task(send())
    received = []
    cancelled = 0
    for _ in sent:
        task = asyncio.create_task(q.receive(30))
        await asyncio.sleep(chance.choice((0, 0, chance.uniform(0, 0.004))))
        task.cancel()
        try:
            received.append((await task).body)
        except asyncio.CancelledError:
            cancelled += 1
    await sending
    assert cancelled > 0
    while len(received) < len(sent):
        received.append((await q.receive(30)).body)
    assert sorted(map(str, received)) == sorted(sent)
    assert await q.count() == 0


@ASYNC
async def test_receives_of_a_transaction_cancelled_at_random_moments_are_not_part_of_it(
    qm: lanner.aio.QueueManager,
) -> None:
    q = await new_queue(qm, transactional=True)
    chance = random.Random(2)
    sent = [str(number) for number in range(100)]
    async with qm.transaction() as tx:
        await q.send_many(sent, transaction=tx)
    received = []
    for _ in sent:
        async with qm.transaction() as tx:
            task = asyncio.create_task(q.receive(30, transaction=tx))
            await asyncio.sleep(chance.choice((0, 0, chance.uniform(0, 0.004))))
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                received.append((await task).body)
    while len(received) < len(sent):
        received.append((await q.receive(30)).body)
    assert sorted(map(str, received)) == sorted(sent)
    assert await q.count() == 0


@ASYNC
async def test_other_calls_cancelled_at_random_moments_leave_the_manager_usable(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    chance = random.Random(3)
    calls: list[Callable[[], Any]] = [
        lambda: q.send(lanner.Message(recoverable=True)),
        lambda: q.send_many([bytes(50_000)] * 20),
        q.count,
        q.attributes,
        lambda: q.receive_many(7),
        q.purge,
        lambda: q.set(label="x"),
    ]
    for number in range(100):
        task = asyncio.create_task(calls[number % len(calls)]())
        await asyncio.sleep(chance.choice((0, chance.uniform(0, 0.004))))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await q.purge()
    await q.send("x")
    assert (await q.receive(10)).body == "x"
    await qm.delete_queue(q.name)


# Ctrl-C
# --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def in_this_thread(place: Place) -> Iterator[lanner.QueueManager]:
    """Give the blocking queue manager itself, to be used in the main thread."""
    if place.service is None:
        manager = blocking(place.form.embedded(place.data))
    elif place.form.where == "unix":
        manager = lanner.connect(data=place.service.data)
    else:
        manager = lanner.connect(place.service.address, "alice", USERS["alice"], port=place.service.port)
    with manager as qm:
        yield qm


def press_ctrl_c(after: float) -> threading.Timer:
    """Send this process the signal of Ctrl-C a little later."""
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


@BLOCKING
@pytest.mark.parametrize("timeout", [30, None], ids=["limited", "unlimited"])
@pytest.mark.parametrize("read", ["receive", "receive_many", "peek", "cursor", "receiving", "transaction"])
def test_ctrl_c_ends_a_wait_and_the_message_sent_afterwards_is_still_there(
    place: Place, read: str, timeout: float | None
) -> None:
    with in_this_thread(place) as qm:
        q = qm.create_queue(new_name())
        cursor = q.cursor()
        transaction = qm.transaction()

        def hold() -> None:
            with q.receiving(5, timeout):
                pytest.fail("nothing is there")

        waits: dict[str, Callable[[], object]] = {
            "receive": lambda: q.receive(timeout),
            "receive_many": lambda: q.receive_many(5, timeout),
            "peek": lambda: q.peek(timeout),
            "cursor": lambda: cursor.receive(timeout),
            "receiving": hold,
            "transaction": lambda: q.receive(timeout, transaction=transaction),
        }
        pressed = press_ctrl_c(0.1)
        with pytest.raises(KeyboardInterrupt):
            waits[read]()
        pressed.join()
        q.send("x")
        assert [message.body for message in q] == ["x"]
        transaction.commit()
        assert q.receive(0).body == "x"


@BLOCKING
def test_ctrl_c_in_the_main_thread_does_not_disturb_other_threads(place: Place) -> None:
    with in_this_thread(place) as qm:
        q, mine = qm.create_queue(new_name()), qm.create_queue(new_name())
        got: list[object] = []
        others = [threading.Thread(target=lambda: got.append(q.receive(30).body)) for _ in range(3)]
        for thread in others:
            thread.start()
        for _ in range(5):
            pressed = press_ctrl_c(0.03)
            with pytest.raises(KeyboardInterrupt):
                mine.receive()
            pressed.join()
        q.send_many(["a", "b", "c"])
        for thread in others:
            thread.join(30)
        assert sorted(map(str, got)) == ["a", "b", "c"]
        mine.send("x")
        assert mine.receive(0).body == "x"


def test_ctrl_c_while_a_batch_is_written_does_not_drop_the_changes_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = os.pwritev

    def pwritev(*arguments: Any) -> int:  # noqa: ANN401 (those of os.pwritev)
        # Once: a second Ctrl-C does end the write.
        monkeypatch.setattr(os, "pwritev", original)
        signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    with lanner.QueueManager(tmp_path / "data", "ALPHA") as qm:
        q, other = qm.create_queue("mine"), qm.create_queue("other")
        q.send("first")  # opens the queue
        with runtime_of(qm).change() as change:
            operations_of(qm).set_attributes(parse(other.format_name), {"label": "in the same batch"})
        monkeypatch.setattr(os, "pwritev", pwritev)
        with pytest.raises(KeyboardInterrupt):
            q.send(lanner.Message(body="x", recoverable=True))
        change.wait()
        with runtime_of(qm).change() as change:
            operations_of(qm).set_attributes(parse(other.format_name), {"label": "in the next batch"})
        monkeypatch.setattr(os, "pwritev", pwritev)
        with pytest.raises(KeyboardInterrupt):
            change.wait()
    with lanner.QueueManager(tmp_path / "data", "ALPHA") as qm:
        assert [message.body for message in qm.open("mine")] == ["x"]
        assert qm.open("other").attributes().label == "in the next batch"


# Forked processes
# --------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], object]) -> str:
    """Run something in a forked process and return the error it ended with."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python warns about forks of processes with threads: the subject of these tests.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)
            try:
                text = f"{work()!r}"
            except BaseException as error:  # noqa: BLE001 (the result)
                text = f"{type(error).__name__}: {error.args[0] if error.args else error}"
            os.write(writing, text.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        text = file.read().decode()
    os.waitpid(child, 0)
    return text.replace(str(child), "CHILD").replace(str(os.getpid()), "PARENT")


async def test_a_forked_process_is_told_that_the_manager_is_not_its_own(
    qm: lanner.aio.QueueManager, place: Place
) -> None:
    q = await new_queue(qm)
    await q.send(lanner.Message(body="x", recoverable=True))
    if place.service is None:
        expected = (
            "ServiceNotAvailable: this queue manager runs in process PARENT, and process CHILD, which was forked "
            "from it, cannot use it: connect to it instead"
        )
    else:
        where = place.service.data if place.form.where == "unix" else place.service.address
        expected = (
            f"InvalidHandle: the connection to {where} was made in process PARENT: connect again in this one, CHILD"
        )
    inner, manager = blocking(q), blocking(qm)
    calls: list[Callable[[], Any]] = [
        lambda: inner.send("y"),
        lambda: inner.receive(0),
        lambda: inner.peek(0),
        inner.count,
        inner.purge,
        lambda: manager.create_queue("child"),
        manager.status,
    ]

    def finished(call: Callable[[], Any]) -> object:
        # A coroutine that waits for something would wait forever in the child.
        result = call()
        return result.send(None) if place.form.is_async else result

    for call in calls:
        assert in_child(lambda call=call: finished(call)) == expected  # type: ignore[misc] # bound at once
    # To close it there does no harm here.
    assert in_child(lambda: _closed(manager, is_async=place.form.is_async)) == "None"
    assert await bodies(q) == ["x"]
    await q.send("after")
    assert [message.body for message in await q.receive_many(5)] == ["x", "after"]


def _closed(manager: Any, *, is_async: bool) -> None:  # noqa: ANN401 (of either kind)
    if is_async:
        with contextlib.suppress(StopIteration):
            manager.close().send(None)
            raise AssertionError("it waits")
    else:
        manager.close()


async def test_a_reader_that_waits_ends_with_the_manager(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    async with until_it_waits(q.receive(30)) as waiting:
        await qm.close()
        with pytest.raises(errors.StatusError):
            await waiting
