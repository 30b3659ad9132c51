"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from lanner.host.loop_thread import LoopThread
from tests.host.conftest import PATIENCE, Signal


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    thread = LoopThread("lanner-test")
    yield thread
    if thread._thread.is_alive():
        thread.stop()


async def answer(value: int) -> int:
    await asyncio.sleep(0)
    return value


async def thread_name() -> str:
    return threading.current_thread().name


async def fail() -> None:
    raise LookupError("nothing there")


async def for_ever(began: Signal, cancelled: Signal) -> None:
    try:
        began()
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        cancelled()
        raise


def test_a_coroutine_runs_in_the_thread(loop: LoopThread) -> None:
    assert loop.call(answer(7)) == 7
    assert loop.call(thread_name()) == "lanner-test"


def test_an_error_is_the_callers(loop: LoopThread) -> None:
    with pytest.raises(LookupError, match="nothing there"):
        loop.call(fail())
    assert loop.call(answer(7)) == 7


def test_a_call_that_times_out_is_cancelled(loop: LoopThread) -> None:
    began, cancelled = Signal(), Signal()
    with pytest.raises(TimeoutError):
        loop.call(for_ever(began, cancelled), timeout=0.01)
    # It may not have begun by then; one that has ends.
    assert loop.call(answer(7)) == 7
    assert cancelled.calls == began.calls


def test_callers_do_not_wait_for_each_other(loop: LoopThread) -> None:
    gate = loop.call(made_event())

    async def passes() -> int:
        await gate.wait()
        return 1

    async def opens() -> int:
        gate.set()
        return 2

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(loop.call, passes())
        assert loop.call(opens()) == 2
        assert first.result(PATIENCE) == 1


async def made_event() -> asyncio.Event:
    return asyncio.Event()


def test_a_call_from_the_thread_itself_is_refused(loop: LoopThread) -> None:
    async def calls_itself() -> None:
        loop.call(answer(7))

    with pytest.raises(RuntimeError, match="the thread that would answer it"):
        loop.call(calls_itself())


def test_a_stopped_loop_refuses_calls(loop: LoopThread) -> None:
    loop.stop()
    assert not loop._thread.is_alive()
    with pytest.raises(RuntimeError):
        loop.call(answer(7))


def test_an_abandoned_loop_runs_a_last_coroutine_and_ends(loop: LoopThread) -> None:
    last = Signal()

    async def farewell() -> None:
        last()

    loop.abandon(farewell)
    loop._thread.join(PATIENCE)
    assert not loop._thread.is_alive()
    assert last.calls == 1
    loop.abandon(farewell)
    assert last.calls == 1
