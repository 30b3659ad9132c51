"""`Queue.consume`: retries, poison messages, stopping and lost connections.

The tests run blocking and async, embedded and served.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import lanner
import lanner.aio
from lanner import errors
from lanner.client._async import consume as async_consume
from lanner.client._async.lanner_connection import LannerConnection as AsyncConnection
from lanner.client._async.lanner_units import LannerTransaction as AsyncTransaction
from lanner.client._sync import consume as sync_consume
from lanner.client._sync.lanner_connection import LannerConnection
from lanner.client._sync.lanner_units import LannerTransaction
from lanner.client.consuming import MAX_PREFETCH, Consumed, Failures, Options, passing
from lanner.client.message import ReceivedMessage
from lanner.rpc.faults import RpcConnectionError
from lanner.services import stream_entries as entries
from tests.cli.conftest import free_address
from tests.client.conftest import no_keys
from tests.client.served import ServedManager

# Pauses are part of no test but those that replace them.
QUICK = (0.0, 0.0)


@dataclass
class World:
    """A queue manager that is reached in one of the four ways."""

    data: Path
    is_async: bool
    served: ServedManager | None

    def manager(self) -> lanner.QueueManager:
        if self.served is not None:
            return lanner.connect(data=self.data)
        return lanner.QueueManager(self.data, "ALPHA", dns_domain="example.com", public_keys=no_keys)

    async def async_manager(self) -> lanner.aio.QueueManager:
        if self.served is not None:
            return await lanner.aio.connect(data=self.data)
        return lanner.aio.QueueManager(self.data, "ALPHA", dns_domain="example.com", public_keys=no_keys)

    @property
    def module(self) -> Any:  # noqa: ANN401 (one of two modules)
        return async_consume if self.is_async else sync_consume

    def send(self, *bodies: str, queue: str = "orders") -> None:
        with self.manager() as qm, qm.transaction() as unit:
            messages = [lanner.Message(body=body, label=f"label of {body}") for body in bodies]
            qm.open(queue).send_many(messages, transaction=unit)

    def consume(self, handler: Callable[..., Any], *, name: str = "orders", **options: Any) -> Consumed:  # noqa: ANN401
        options = {"backoff": QUICK, **options}
        if not self.is_async:
            with self.manager() as qm:
                return qm.open(name).consume(handler, **options)

        async def main() -> Consumed:
            async with await self.async_manager() as qm:
                return await qm.open(name).consume(handler, **options)

        return asyncio.run(main())

    def bodies(self, queue: str = "orders") -> list[str]:
        return [str(message.body) for message in self.messages(queue)]

    def messages(self, queue: str = "orders") -> list[ReceivedMessage]:
        with self.manager() as qm:
            return list(qm.open(queue)) if qm.open(queue).count() else []

    def abort(self, times: int) -> None:
        """Abort the first message that many times, as dying workers do."""
        with self.manager() as qm:
            for _ in range(times):
                unit = qm.transaction()
                qm.open("orders").receive(0, transaction=unit)
                unit.abort()


@contextlib.contextmanager
def a_world(form: str, data: Path) -> Iterator[World]:
    kind, _, colour = form.partition("-")
    served = ServedManager(data, free_address()) if kind == "served" else None
    made = World(data, colour == "async", served)
    with made.manager() as qm:
        for name in ("orders", "results"):
            qm.create_queue(name, transactional=True)
    yield made
    if served is not None:
        served.close()
    shutil.rmtree(data)


@pytest.fixture(params=["embedded-blocking", "embedded-async", "served-blocking", "served-async"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with a_world(request.param, tmp_path / "data") as made:
        yield made


@pytest.fixture(params=["embedded-blocking", "served-blocking"])
def blocking(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with a_world(request.param, tmp_path / "data") as made:
        yield made


@pytest.fixture(params=["embedded-async", "served-async"])
def awaiting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with a_world(request.param, tmp_path / "data") as made:
        yield made


@pytest.fixture(params=["served-blocking", "served-async"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with a_world(request.param, tmp_path / "data") as made:
        yield made


class Handler:
    """Fails for some bodies, the given number of times, and remembers what it saw."""

    def __init__(self, **failures: int) -> None:
        self.left = dict(failures)
        self.seen: list[str] = []
        self.counts: list[int] = []

    def __call__(self, message: ReceivedMessage) -> None:
        body = str(message.body)
        self.seen.append(body)
        self.counts.append(message.abort_count)
        if self.left.get(body, 0):
            self.left[body] -= 1
            raise ValueError(f"{body} is bad")


ALWAYS = 1_000_000


# Retries and poison
# -------------------------------------------------------------------------------------------------


def test_each_message_is_handled_once_and_in_order(world: World) -> None:
    world.send("a", "b", "c")
    handler = Handler()
    assert world.consume(handler, idle=0) == Consumed(handled=3)
    assert handler.seen == ["a", "b", "c"]
    assert world.bodies() == []


def test_a_message_is_retried_until_its_handler_returns(world: World) -> None:
    world.send("a", "b")
    handler = Handler(a=2)
    assert world.consume(handler, idle=0) == Consumed(handled=2, retried=2)
    # The queue manager counts the aborts; the message keeps its place.
    assert list(zip(handler.seen, handler.counts, strict=True)) == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]


def test_a_poison_message_is_moved_after_so_many_failures(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send("a", "bad", "b")
    (bad,) = [message for message in world.messages() if message.body == "bad"]
    handler = Handler(bad=ALWAYS)
    assert world.consume(handler, idle=0, retries=4) == Consumed(handled=2, retried=4, poisoned=1)
    assert Counter(handler.seen) == {"a": 1, "bad": 4, "b": 1}
    assert world.bodies() == []
    (moved,) = world.messages("orders;poison")
    assert (moved.id, moved.lookup_id, moved.abort_count, moved.move_count) == (bad.id, bad.lookup_id, 4, 1)
    warning = caplog.records[-1]
    assert (warning.name, warning.levelname) == ("lanner.consume", "WARNING")
    assert warning.getMessage() == (
        rf"ALPHA\private$\orders: message {bad.id}, label 'label of bad', is poison after 4 failures and was moved to "
        r"ALPHA\private$\orders;poison; last error: ValueError: bad is bad"
    ).replace(r"ALPHA\private$\orders: ", "orders: ")


def test_failures_of_workers_that_died_count(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send("a", "b")
    world.abort(3)
    handler = Handler()
    assert world.consume(handler, idle=0) == Consumed(handled=1, poisoned=1)
    assert handler.seen == ["b"]
    assert world.bodies("orders;poison") == ["a"]
    assert "last error: of another worker, or the worker was killed" in caplog.text


def test_a_poison_message_that_is_waited_for_is_moved(world: World) -> None:
    """Idle workers peek.

    So none of them takes a poison message, and they do not take turns in returning it.
    """
    world.send("bad")
    assert world.consume(Handler(bad=ALWAYS), idle=0.2, concurrency=6).poisoned == 1
    assert world.bodies("orders;poison") == ["bad"]
    assert world.bodies() == []


@pytest.mark.parametrize(
    ("poison", "place", "transactional"),
    [
        ("dead", "dead", True),
        ("plain", "plain", False),
        (";failed", "orders;failed", True),
        ("orders;x", "orders;x", True),
    ],
)
def test_where_poison_goes(world: World, poison: str, place: str, transactional: bool) -> None:
    if ";" not in poison:
        with world.manager() as qm:
            qm.create_queue(poison, transactional=transactional)
    world.send("bad", "a")
    handler = Handler(bad=ALWAYS)
    assert world.consume(handler, idle=0, retries=2, poison=poison) == Consumed(handled=1, retried=2, poisoned=1)
    assert Counter(handler.seen) == {"bad": 2, "a": 1}
    (found,) = world.messages(place)
    assert (found.body, found.label, found.is_transactional) == ("bad", "label of bad", transactional)
    assert world.bodies() == world.bodies("orders;poison") == []


def test_poison_can_be_a_queue_object(world: World) -> None:
    world.send("bad")
    handler = Handler(bad=ALWAYS)
    if world.is_async:

        async def main() -> None:
            async with await world.async_manager() as qm:
                orders = qm.open("orders")
                await orders.consume(handler, idle=0, retries=1, poison=orders.subqueue("aside"), backoff=QUICK)

        asyncio.run(main())
    else:
        with world.manager() as qm:
            orders = qm.open("orders")
            orders.consume(handler, idle=0, retries=1, poison=orders.subqueue("aside"), backoff=QUICK)
    assert world.bodies("orders;aside") == ["bad"]


def test_poison_can_be_discarded(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send("bad", "a")
    assert world.consume(Handler(bad=ALWAYS), idle=0, retries=2, poison="discard") == Consumed(1, 2, 1)
    assert world.bodies() == world.bodies("orders;poison") == []
    assert "label 'label of bad', is poison after 2 failures and was discarded; last error: ValueError" in caplog.text


def test_a_copy_of_a_poison_message_neither_expires_nor_sends_acknowledgments(world: World) -> None:
    with world.manager() as qm:
        qm.create_queue("dead", transactional=True)
        qm.create_queue("admin")
        with qm.transaction() as unit:
            message = lanner.Message(
                body="bad", acknowledge="full_reach_queue", administration_queue="admin", time_to_be_received=3600
            )
            qm.open("orders").send(message, transaction=unit)
    world.consume(Handler(bad=ALWAYS), idle=0, retries=1, poison="dead")
    (copy,) = world.messages("dead")
    assert (copy.body, copy.time_to_be_received) == ("bad", None)
    (reached,) = world.messages("admin")
    assert reached.correlation_id == message.id


def test_a_message_of_a_subqueue_becomes_poison_of_its_queue(world: World) -> None:
    world.send("bad")
    with world.manager() as qm:
        orders = qm.open("orders")
        orders.move(orders.peek(0).lookup_id, "later")
    assert world.consume(Handler(bad=ALWAYS), name="orders;later", idle=0).poisoned == 1
    assert world.bodies("orders;poison") == ["bad"]


def test_what_the_handler_sends_is_part_of_the_transaction(world: World) -> None:
    world.send("a", "b")
    fails = iter([True, False, True])

    if world.is_async:

        async def main() -> Consumed:
            async with await world.async_manager() as qm:

                async def handle(message: ReceivedMessage, transaction: lanner.aio.Transaction) -> None:
                    await qm.open("results").send(f"done {message.body!s}", transaction=transaction)
                    if next(fails, False):
                        raise ValueError("after the send")

                return await qm.open("orders").consume(handle, idle=0, backoff=QUICK)

        result = asyncio.run(main())
    else:
        with world.manager() as qm:

            def handle(message: ReceivedMessage, transaction: lanner.Transaction) -> None:
                qm.open("results").send(f"done {message.body!s}", transaction=transaction)
                if next(fails, False):
                    raise ValueError("after the send")

            result = qm.open("orders").consume(handle, idle=0, backoff=QUICK)
    assert result == Consumed(handled=2, retried=2)
    assert world.bodies("results") == ["done a", "done b"]


def test_a_handler_that_ends_the_transaction_has_failed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send("a")
    handled = 0

    def handle(message: ReceivedMessage, transaction: Any) -> Any:  # noqa: ANN401 (of either form)
        nonlocal handled
        handled += 1
        return transaction.abort()

    assert world.consume(handle, idle=0, retries=2) == Consumed(retried=2, poisoned=1)
    assert handled == 2
    assert "the handler has ended the transaction itself" in caplog.text


# Stopping
# --------------------------------------------------------------------------------------------------


def test_it_ends_after_so_many_messages(world: World) -> None:
    world.send(*"abcdefghij")
    handler = Handler(b=1)
    assert world.consume(handler, count=4, concurrency=3) == Consumed(handled=4, retried=1)
    assert len(world.bodies()) == 6


def test_it_stops_when_a_function_says_so(world: World) -> None:
    world.send("a", "b", "c")
    handler = Handler()
    assert world.consume(handler, stop=lambda: len(handler.seen) == 2) == Consumed(handled=2)
    assert world.bodies() == ["c"]


def test_an_error_of_the_stop_function_is_raised(world: World) -> None:
    def broken() -> bool:
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        world.consume(Handler(), stop=broken)


def test_a_consumer_that_waits_is_stopped_by_its_event(world: World) -> None:
    """Without the event it waits forever; with the event set, all its workers end."""
    if world.is_async:

        async def main() -> Consumed:
            async with await world.async_manager() as qm:
                stop, handled = asyncio.Event(), asyncio.Event()

                async def handle(message: ReceivedMessage) -> None:
                    handled.set()

                task = asyncio.create_task(qm.open("orders").consume(handle, stop=stop, concurrency=3))
                async with qm.transaction() as unit:
                    await qm.open("orders").send("a", transaction=unit)
                await handled.wait()
                stop.set()
                return await task

        assert asyncio.run(main()) == Consumed(handled=1)
        return
    done, asked = threading.Event(), threading.Event()

    def note(message: ReceivedMessage) -> None:
        done.set()

    with world.manager() as qm:
        results: list[Consumed] = []
        orders = qm.open("orders")
        thread = threading.Thread(target=lambda: results.append(orders.consume(note, stop=asked, concurrency=3)))
        thread.start()
        with qm.transaction() as unit:
            qm.open("orders").send("a", transaction=unit)
        assert done.wait(60)
        asked.set()
        thread.join()
    assert results == [Consumed(handled=1)]


def test_a_handler_that_runs_at_the_stop_finishes_and_commits(world: World) -> None:
    world.send("a", "b")
    asked = threading.Event()

    def handle(message: ReceivedMessage) -> None:
        asked.set()

    assert world.consume(handle, stop=asked) == Consumed(handled=1)
    assert world.bodies() == ["b"]


def test_handlers_run_at_once(world: World) -> None:
    """Each of three handlers waits for the other two."""
    world.send("a", "b", "c")
    if world.is_async:
        together = asyncio.Barrier(3)

        async def handle_async(message: ReceivedMessage) -> None:
            await together.wait()

        assert world.consume(handle_async, concurrency=3, idle=0).handled == 3
        return
    barrier = threading.Barrier(3)

    def handle(message: ReceivedMessage) -> None:
        barrier.wait(60)

    assert world.consume(handle, concurrency=3, idle=0).handled == 3


def test_idle_waits_for_what_is_still_being_handled(world: World) -> None:
    """A message that fails while others find the queue empty is still handled to its end."""
    world.send("a", "b")
    if world.is_async:
        first = asyncio.Event()
        seen: list[str] = []

        async def handle_async(message: ReceivedMessage) -> None:
            seen.append(str(message.body))
            if message.body == "a" and message.abort_count == 0:
                await first.wait()
                raise ValueError("once")
            asyncio.get_running_loop().call_later(0.3, first.set)

        assert world.consume(handle_async, concurrency=2, idle=0.1) == Consumed(handled=2, retried=1)
        return
    release = threading.Event()

    def handle(message: ReceivedMessage) -> None:
        if message.body == "a" and message.abort_count == 0:
            release.wait(60)
            raise ValueError("once")
        threading.Timer(0.3, release.set).start()

    assert world.consume(handle, concurrency=2, idle=0.1) == Consumed(handled=2, retried=1)


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Give an event that is set when a blocking consumer begins to stop."""
    begun = threading.Event()
    release = sync_consume.Consumer._release

    def note(consumer: sync_consume.Consumer) -> None:
        release(consumer)
        # Now: a second signal must not find it in the middle of a call.
        begun.set()

    monkeypatch.setattr(sync_consume.Consumer, "_release", note)
    return begun


def test_ctrl_c_lets_the_running_handler_finish(blocking: World, stopping: threading.Event) -> None:
    blocking.send("a", "b")

    def handle(message: ReceivedMessage) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert stopping.wait(60)

    assert blocking.consume(handle) == Consumed(handled=1)
    assert blocking.bodies() == ["b"]


def test_a_second_ctrl_c_does_not_wait(blocking: World, stopping: threading.Event) -> None:
    blocking.send("a")
    release = threading.Event()

    def handle(message: ReceivedMessage) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert stopping.wait(60)
        os.kill(os.getpid(), signal.SIGINT)
        release.wait()

    with blocking.manager() as qm:
        with pytest.raises(KeyboardInterrupt):
            qm.open("orders").consume(handle)
        release.set()
        for thread in threading.enumerate():
            if thread.name.startswith("consume-"):
                thread.join()
    # The program went on, and so did the handler.
    assert blocking.bodies() == []


def test_a_cancelled_consumer_finishes_what_runs(awaiting: World) -> None:
    awaiting.send("a", "b")

    async def main() -> None:
        async with await awaiting.async_manager() as qm:
            running, release = asyncio.Event(), asyncio.Event()

            async def handle(message: ReceivedMessage) -> None:
                running.set()
                await release.wait()

            task = asyncio.create_task(qm.open("orders").consume(handle))
            await running.wait()
            task.cancel()
            await asyncio.sleep(0.05)
            assert not task.done()
            release.set()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert awaiting.bodies() == ["b"]


def test_a_consumer_that_is_cancelled_twice_gives_back_what_runs(awaiting: World) -> None:
    awaiting.send("a")

    async def main() -> None:
        async with await awaiting.async_manager() as qm:
            running = asyncio.Event()

            async def handle(message: ReceivedMessage) -> None:
                running.set()
                await asyncio.Event().wait()

            task = asyncio.create_task(qm.open("orders").consume(handle))
            await running.wait()
            task.cancel()
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await qm.open("orders").peek(5)).abort_count == 1

    asyncio.run(main())


def test_a_time_limit_ends_an_idle_consumer(awaiting: World) -> None:
    async def main() -> None:
        async with await awaiting.async_manager() as qm:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await qm.open("orders").consume(Handler(), concurrency=4)
            # The waits are over: nothing is left that would end with an error.
            assert len(asyncio.all_tasks()) <= 2

    asyncio.run(main())


# Pauses
# --------------------------------------------------------------------------------------------------


class Pauses:
    """Takes the place of the sleep."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: list[float] = []

        def pause(end: object, seconds: float) -> None:
            self.seconds.append(seconds)

        async def async_pause(end: object, seconds: float) -> None:
            self.seconds.append(seconds)

        monkeypatch.setattr(world.module, "pause", async_pause if world.is_async else pause)


def test_a_worker_pauses_longer_with_each_failure_in_a_row(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.send("a", "b", "c")
    pauses = Pauses(world, monkeypatch)
    # The longest that each may be.
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    world.consume(Handler(a=6, c=2), idle=0, retries=10, backoff=(0.5, 10.0))
    assert pauses.seconds == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 1.0, 2.0]


def test_pauses_grow_while_everything_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """When every handler lacks the same resource, all messages fail.

    The pause before the next message is then longer than that before the first.
    """
    with world.manager() as qm:
        qm.create_queue("dead", transactional=True)
    world.send("a", "b", "c")
    pauses = Pauses(world, monkeypatch)
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    world.consume(Handler(a=ALWAYS, b=ALWAYS, c=ALWAYS), idle=0, retries=1, poison="dead", backoff=(1.0, 100.0))
    assert pauses.seconds == [2.0, 4.0, 8.0]


def test_pauses_are_spread(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.send("a")
    pauses = Pauses(world, monkeypatch)
    world.consume(Handler(a=5), idle=0, retries=6, backoff=(1.0, 4.0))
    assert all(1.0 <= seconds <= 4.0 for seconds in pauses.seconds)
    assert len(set(pauses.seconds)) == 5


# Trouble
# --------------------------------------------------------------------------------------------------


def test_a_lost_connection_is_waited_for(
    served: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served.send("a", "b")
    manager = served.served
    assert manager is not None
    start, stop = manager.start, manager.stop
    pauses = Pauses(served, monkeypatch)
    stopped = False

    class Restart(list[float]):
        def append(self, seconds: float) -> None:
            super().append(seconds)
            if len(self) == 3:
                start()

    pauses.seconds = Restart()

    def handle(message: ReceivedMessage) -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            stop()

    result = served.consume(handle, idle=0.1)
    # The queue manager has aborted the first attempt, but no handler failed.
    assert (result.handled + result.in_doubt, result.retried, result.poisoned) == (2 + result.in_doubt, 0, 0)
    assert served.bodies() == []
    texts = [record.getMessage() for record in caplog.records]
    assert sum("trying again until it works" in text for text in texts) == 1
    assert sum("works again" in text for text in texts) == 1


def test_a_commit_in_doubt_is_counted_and_no_failure(
    served: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The commit is done there, and its answer is lost."""
    served.send("a", "b")
    cut = 0
    exchange, async_exchange = LannerConnection.exchange, AsyncConnection.exchange

    def lose(self: LannerConnection, kind: int, *parts: bytes) -> memoryview:
        nonlocal cut
        answer = exchange(self, kind, *parts)
        if kind == entries.COMMIT and not cut:
            cut += 1
            self.close()
            raise RpcConnectionError("cut")
        return answer

    async def async_lose(self: AsyncConnection, kind: int, *parts: bytes) -> memoryview:
        nonlocal cut
        answer = await async_exchange(self, kind, *parts)
        if kind == entries.COMMIT and not cut:
            cut += 1
            await self.close()
            raise RpcConnectionError("cut")
        return answer

    handler = Handler()
    with monkeypatch.context() as patch:
        patch.setattr(LannerConnection, "exchange", lose)
        patch.setattr(AsyncConnection, "exchange", async_lose)
        assert served.consume(handler, idle=0) == Consumed(handled=1, in_doubt=1)
    assert handler.seen == ["a", "b"]
    assert served.bodies() == []
    assert re.search(r"orders: message \S+, label 'label of a': .* whether it is committed is unknown", caplog.text)


# Messages received ahead
# -----------------------------------------------------------------------------------------------


def test_messages_received_ahead_are_handled_once_and_in_order(world: World) -> None:
    sent = [f"message {number}" for number in range(25)]
    world.send(*sent)
    handler = Handler()
    assert world.consume(handler, idle=0, prefetch=10) == Consumed(handled=25)
    assert handler.seen == sent
    assert world.bodies() == []


def test_a_failure_among_messages_received_ahead_is_that_message_s_alone(world: World) -> None:
    world.send("a", "bad", "b", "c")
    counts: dict[str, list[int]] = {}

    def handle(message: ReceivedMessage) -> None:
        counts.setdefault(str(message.body), []).append(message.abort_count)
        if message.body == "bad":
            raise ValueError("bad is bad")

    assert world.consume(handle, idle=0, retries=2, prefetch=50) == Consumed(handled=3, retried=2, poisoned=1)
    assert counts == {"a": [0], "bad": [0, 1], "b": [0], "c": [0]}
    assert world.bodies("orders;poison") == ["bad"]
    assert world.bodies() == []


def test_what_was_received_ahead_and_is_not_wanted_returns(world: World) -> None:
    world.send("a", "b", "c", "d", "e")
    handler = Handler()
    assert world.consume(handler, count=2, prefetch=50) == Consumed(handled=2)
    stopped: list[ReceivedMessage] = []
    assert world.consume(stopped.append, stop=lambda: bool(stopped), prefetch=50) == Consumed(handled=1)
    assert handler.seen == ["a", "b"]
    assert [(message.body, message.abort_count) for message in world.messages()] == [("d", 0), ("e", 0)]


def test_a_failure_returns_also_what_was_asked_for_behind_it(world: World) -> None:
    """While the first half of ten messages is handled, the second half is on its way.

    After a failure, the second half returns uncounted and in order.
    """
    sent = [f"message {number}" for number in range(30)]
    world.send(*sent)
    seen: list[tuple[str, int]] = []

    def handle(message: ReceivedMessage) -> None:
        seen.append((str(message.body), message.abort_count))
        if message.body == "message 7" and not message.abort_count:
            raise ValueError("once")

    assert world.consume(handle, idle=0, retries=2, prefetch=10) == Consumed(handled=30, retried=1)
    assert seen == [*((body, 0) for body in sent[:8]), (sent[7], 1), *((body, 0) for body in sent[8:])]
    assert world.bodies() == []


def test_a_commit_of_several_in_doubt_is_counted_for_each(served: World, monkeypatch: pytest.MonkeyPatch) -> None:
    served.send("a", "b")
    commit, async_commit = LannerTransaction.committed, AsyncTransaction.committed
    lost = errors.CommitInDoubt("the answer was lost")
    cut = 0

    def lose(self: LannerTransaction) -> None:
        nonlocal cut
        commit(self)
        cut += 1
        if cut == 1:
            raise lost

    async def async_lose(self: AsyncTransaction) -> None:
        nonlocal cut
        await async_commit(self)
        cut += 1
        if cut == 1:
            raise lost

    with monkeypatch.context() as patch:
        patch.setattr(LannerTransaction, "committed", lose)
        patch.setattr(AsyncTransaction, "committed", async_lose)
        assert served.consume(Handler(), idle=0, prefetch=4) == Consumed(in_doubt=2)
    assert served.bodies() == []


@pytest.mark.parametrize("prefetch", [0, -1, 1.5, MAX_PREFETCH + 1])
def test_so_many_messages_cannot_be_received_ahead(world: World, prefetch: object) -> None:
    with pytest.raises(ValueError, match=f"prefetch {prefetch}"):
        world.consume(Handler(), prefetch=prefetch)
    assert world.consume(Handler(), idle=0, prefetch=MAX_PREFETCH) == Consumed()


def test_a_full_poison_queue_loses_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with world.manager() as qm:
        qm.create_queue("dead", transactional=True, quota_kb=0)
    world.send("bad")
    pauses = Pauses(world, monkeypatch)
    result = world.consume(Handler(bad=ALWAYS), retries=1, poison="dead", stop=lambda: len(pauses.seconds) > 4)
    assert result.poisoned == 0
    assert world.bodies() == ["bad"]


def test_a_queue_that_does_not_exist_is_an_error(world: World) -> None:
    with pytest.raises(errors.QueueNotFound):
        world.consume(Handler(), name="missing")


@pytest.mark.parametrize("bodies", [["a", "b"], ["a"]], ids=["both-handle", "one-waits"])
def test_a_queue_that_is_deleted_ends_its_consumer(world: World, bodies: list[str]) -> None:
    world.send(*bodies)
    # The other worker waits for a message when the queue is deleted, if there is none for it.
    seconds = 0.1 if len(bodies) == 1 else 0.0

    if world.is_async:

        async def main() -> None:
            async with await world.async_manager() as qm:

                async def handle(message: ReceivedMessage) -> None:
                    await asyncio.sleep(seconds)
                    await qm.delete_queue("orders")

                await qm.open("orders").consume(handle, concurrency=2)

        with pytest.raises(errors.QueueNotFound):
            asyncio.run(main())
        return

    with world.manager() as qm:

        def handle(message: ReceivedMessage) -> None:
            time.sleep(seconds)
            qm.delete_queue("orders")

        with pytest.raises(errors.QueueNotFound):
            qm.open("orders").consume(handle, concurrency=2)


def test_an_embedded_queue_manager_that_is_closed_ends_its_consumer(tmp_path: Path) -> None:
    with a_world("embedded-blocking", tmp_path / "data") as world, world.manager() as qm:
        closing = threading.Timer(0.1, qm.close)
        closing.start()
        with pytest.raises(errors.ServiceNotAvailable):
            qm.open("orders").consume(Handler(), concurrency=2)
        closing.join()


def test_a_handler_that_exits_ends_the_consumer_and_gives_the_message_back(blocking: World) -> None:
    blocking.send("a")

    def handle(message: ReceivedMessage) -> None:
        raise SystemExit(7)

    with pytest.raises(SystemExit):
        blocking.consume(handle)
    assert blocking.messages()[0].abort_count == 1


def test_an_exclusive_queue_can_be_consumed(world: World) -> None:
    world.send("a")
    if world.is_async:

        async def main() -> Consumed:
            async with await world.async_manager() as qm, qm.open("orders", exclusive=True) as orders:
                return await orders.consume(Handler(), idle=0)

        assert asyncio.run(main()).handled == 1
        return
    with world.manager() as qm, qm.open("orders", exclusive=True) as orders:
        assert orders.consume(Handler(), idle=0).handled == 1


def test_without_abort_counts_the_consumer_counts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a queue manager of another maker, which does not say them."""
    with world.manager() as qm:
        qm.create_queue("dead", transactional=True)
    world.send("bad", "a")
    handler = Handler(bad=ALWAYS)
    with monkeypatch.context() as patch:
        patch.setattr(ReceivedMessage, "abort_count", 0)
        result = world.consume(handler, idle=0, poison="dead", concurrency=2)
    assert (result.handled, result.poisoned) == (1, 1)
    assert world.bodies("dead") == ["bad"]


# Arguments
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"retries": 0}, "retries 0: a whole number, 1 or more"),
        ({"retries": True}, "retries True"),
        ({"concurrency": -1}, "concurrency -1: a whole number"),
        ({"count": 1.5}, "count 1.5: a whole number"),
        ({"idle": -1}, "idle -1: seconds"),
        ({"idle": float("nan")}, "idle nan: seconds"),
        ({"backoff": (2, 1)}, "backoff \\(2, 1\\): the shortest and the longest pause"),
        ({"backoff": 5}, "backoff 5: the shortest and the longest pause"),
        ({"backoff": (1, float("inf"))}, "backoff"),
        ({"stop": 5}, "stop 5: an event, or a function"),
        ({"poison": 5}, "poison 5: expected a queue"),
        ({"poison": "orders"}, "cannot stay in the queue they come from"),
        ({"poison": "results;x"}, "only messages of its own queue"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_received(
    world: World, options: dict[str, Any], text: str
) -> None:
    world.send("a")
    handler = Handler()
    with pytest.raises(ValueError, match=text):
        world.consume(handler, **{"idle": 0, **options})
    assert handler.seen == []
    assert world.messages()[0].abort_count == 0


def test_a_poison_queue_that_does_not_exist_is_refused(world: World) -> None:
    world.send("a")
    with pytest.raises(errors.QueueNotFound, match="for poison messages: create it first"):
        world.consume(Handler(), idle=0, poison="missing")


def test_a_dead_letter_queue_has_no_poison_subqueue(world: World) -> None:
    with pytest.raises(ValueError, match="cannot have a subqueue for poison messages"):
        world.consume(Handler(), name="system$;DEADLETTER", idle=0)
    assert world.consume(Handler(), name="system$;DEADLETTER", idle=0, poison="discard") == Consumed()


def test_another_maker_moves_no_messages(served: World) -> None:
    with served.manager() as qm:
        cast("Any", qm)._backend.identifier = None
        with pytest.raises(ValueError, match="moves no messages for other computers"):
            qm.open("orders").consume(Handler(), idle=0)


def test_a_blocking_queue_takes_no_async_handler(blocking: World) -> None:
    async def handle(message: ReceivedMessage) -> None: ...

    with pytest.raises(ValueError, match=r"use a queue of lanner\.aio"):
        blocking.consume(handle, idle=0)


def _one(message: object) -> None: ...
def _two(message: object, tx: object) -> None: ...
def _named(message: object, transaction: object = None) -> None: ...
def _keyword(message: object, *, transaction: object) -> None: ...
def _optional(message: object, limit: int = 3) -> None: ...
def _rest(*arguments: object) -> None: ...
def _none() -> None: ...
def _three(a: object, b: object, c: object) -> None: ...
def _required(message: object, *, limit: int) -> None: ...


@pytest.mark.parametrize(
    ("handler", "expected"),
    [(_one, False), (_two, True), (_named, "keyword"), (_keyword, "keyword"), (_optional, False), (_rest, False),
     (print, False), ([].append, False)],
)  # fmt: skip
def test_a_handler_gets_the_transaction_if_it_has_a_place_for_it(
    handler: Callable[..., object], expected: str | bool
) -> None:
    assert passing(handler, is_awaited=True) == expected


@pytest.mark.parametrize("handler", [_none, _three, _required, 5])
def test_a_handler_that_cannot_be_called_is_refused(handler: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="message"):
        passing(handler, is_awaited=True)


def test_the_failures_that_are_oldest_are_forgotten_first() -> None:
    failures = Failures(limit=2)
    one, two, three = (cast("ReceivedMessage", SimpleNamespace(id=name, abort_count=0)) for name in "abc")
    for message in (one, two, one, three):
        failures.remember(message, failures.count(message) + 1, ValueError("x"))
    assert [failures.count(message) for message in (one, two, three)] == [2, 0, 1]
    failures.forget(one)
    assert failures.count(one) == 0


def test_a_pause_never_exceeds_its_bounds() -> None:
    options = Options.of(retries=1, concurrency=1, backoff=(0.1, 30), stop=None, idle=None, count=None, prefetch=1)
    assert all(0.1 <= options.pause(failures) <= 30 for failures in range(1, 5000))
