"""How the async client waits. `_sync/io.py` has the same names for threads."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from lanner.host.committer import Committer
from lanner.model.errors import LannerError

if TYPE_CHECKING:
    from lanner.host.change import Change
    from lanner.host.reads import Read
    from lanner.host.runtime import Runtime
    from lanner.model.live import MessagePosition

T = TypeVar("T")
Item = TypeVar("Item")

Lock: Final = asyncio.Lock
# The number of calls of one operation that are under way at once.
WINDOW: Final = 32
Event: Final = asyncio.Event
sleep: Final = asyncio.sleep
# Whether handlers may be written with `async def`.
AWAITS: Final = True
# The seconds between two checks of `supervise` whether it should stop.
_TICK: Final = 0.1

_background: set[asyncio.Task[Any]] = set()


class Opening(Generic[T]):
    """An object that takes time to open, and is opened in a thread on first request."""

    def __init__(self, work: Callable[[], T], undo: Callable[[T], object]) -> None:
        self._work = work
        self._undo = undo

    async def result(self) -> T:
        """Open the object.

        If the caller is cancelled, the object that the thread opens is closed.
        """
        is_unwanted = threading.Event()
        opened: list[T] = []

        def work() -> T:
            made = self._work()
            opened.append(made)
            if is_unwanted.is_set():
                undo()
            return made

        def undo() -> None:
            # The thread and the cancelled caller may both get here; pop() lets only one of them
            # close it.
            with contextlib.suppress(IndexError):
                self._undo(opened.pop())

        try:
            return await asyncio.to_thread(work)
        except asyncio.CancelledError:
            is_unwanted.set()
            threading.Thread(target=undo).start()
            raise


def open_early(opening: Callable[[], object]) -> None:
    """Do nothing: the `async with` block opens what takes time to open."""
    del opening


class Waiter:
    """Waits for the store of an embedded queue manager on behalf of this event loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._committer = Committer(runtime.store, asyncio.get_running_loop())
        self.change = self._committer.change
        # The operations for every message wait on this directly, without another coroutine.
        self.durable = self._committer.durable

    async def close(self) -> None:
        await asyncio.to_thread(self._committer.close)


async def durable(change: Change) -> None:
    """Wait until a change is durable."""
    await change


async def waited(read: Read, timeout: float | None) -> MessagePosition:  # noqa: ASYNC109 (the engine's)
    """Wait for the message of a read."""
    del timeout  # the engine ends the wait
    return await read.wait()


async def taken(read: Read) -> None:
    """Remove a message durably; if the caller is cancelled, the message returns to its queue."""
    await read.taken(read.take())


async def in_thread(work: Callable[[], T]) -> T:
    """Run a blocking function in a thread."""
    return await asyncio.to_thread(work)


def spawn(work: Callable[..., Coroutine[Any, Any, Any]], *arguments: object) -> None:
    """Run a coroutine function without waiting for it."""
    task = asyncio.ensure_future(work(*arguments))
    _background.add(task)
    task.add_done_callback(_background.discard)


class Together(Generic[Item, T]):
    """Calls of many tasks that are merged into one."""

    def __init__(
        self,
        work: Callable[[list[Item]], Awaitable[Sequence[T | Exception]]],
        undo: Callable[[T], Coroutine[Any, Any, Any]],
    ) -> None:
        """Prepare merging calls.

        `work` returns a result or an error for each item; `undo` reverts the result of a task that
        was cancelled.
        """
        self._work = work
        self._undo = undo
        self._gathered: list[tuple[Item, asyncio.Future[T]]] = []

    async def call(self, item: Item) -> T:
        """Return the result for an item, merged with all calls of this turn of the loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if not self._gathered:
            loop.call_soon(self._begin)
        self._gathered.append((item, future))
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                spawn(self._undo, future.result())
            raise

    def _begin(self) -> None:
        gathered, self._gathered = self._gathered, []
        wanted = [(item, future) for item, future in gathered if not future.done()]
        if wanted:
            spawn(self._run, wanted)

    async def _run(self, wanted: list[tuple[Item, asyncio.Future[T]]]) -> None:
        results: Sequence[T | Exception]
        try:
            results = await self._work([item for item, _ in wanted])
        except Exception as error:  # noqa: BLE001 (that of every task)
            for _, future in wanted:
                if not future.done():
                    # Copy the error: tasks that raise the same instance add to each other's
                    # tracebacks.
                    future.set_exception(copy(error))
            return
        for (_, future), result in zip(wanted, results, strict=True):
            if isinstance(result, Exception):
                if not future.done():
                    future.set_exception(result)
            elif future.done():
                spawn(self._undo, result)
            else:
                future.set_result(result)


async def salvaged(
    work: Callable[[], Awaitable[T]],
    cancel: Callable[[], Awaitable[None]],
    undo: Callable[[T | None], Awaitable[None]],
) -> T:
    """Return the result of a call that reserves something elsewhere for its caller.

    A cancelled caller ends at once. In the background, `cancel` requests the end of the call; if
    the call has a result nevertheless, `undo` gives it back.
    """
    task = asyncio.ensure_future(work())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        spawn(_salvage, task, cancel, undo)
        raise


async def _salvage(
    task: asyncio.Future[T], cancel: Callable[[], Awaitable[None]], undo: Callable[[T | None], Awaitable[None]]
) -> None:
    with suppress(LannerError):
        await cancel()
    with suppress(LannerError):
        await undo(await task)


async def unbroken(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run something that must not be left half done.

    If the caller is cancelled, it continues in the background.
    """
    task = asyncio.ensure_future(work())
    _background.add(task)
    task.add_done_callback(_background.discard)
    return await asyncio.shield(task)


async def gather(works: Sequence[Callable[[], Awaitable[T]]]) -> list[T | BaseException]:
    """Run several functions concurrently and return their results or errors."""
    return await asyncio.gather(*(work() for work in works), return_exceptions=True)


@asynccontextmanager
async def time_limit(seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError if the block takes longer."""
    async with asyncio.timeout(seconds):
        yield


class Uninterrupted:
    """Do nothing: a cancelled task undoes what it leaves behind."""

    is_interrupted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...


def limited(connection: T) -> T:
    """Return a connection made under a time limit; a task can be cancelled wherever it waits."""
    return connection


async def pause(end: asyncio.Event, seconds: float) -> None:
    """Sleep, but no longer than until an event is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await end.wait()


async def call(handler: Callable[..., object], *arguments: object, **named: object) -> None:
    """Call a handler, and wait for its result if it is awaitable."""
    result = handler(*arguments, **named)
    if inspect.isawaitable(result):
        await result


async def supervise(
    works: Sequence[Callable[[], Coroutine[Any, Any, None]]],
    stopping: asyncio.Event,
    is_stopped: Callable[[], bool] | None,
    release: Callable[[], Awaitable[None]],
) -> None:
    """Run workers concurrently until all have ended, and raise the first error of one.

    `stopping` requests that they end, and `release` ends their waits. That happens when a worker
    has set `stopping`, when one fails, when `is_stopped` returns True, and when the caller is
    cancelled; the caller then waits for the workers. A second cancellation cancels them.
    """
    tasks = [asyncio.ensure_future(work()) for work in works]
    pending = set(tasks)
    errors: list[BaseException] = []
    cancelled: asyncio.CancelledError | None = None
    while pending:
        try:
            is_polled = stopping.is_set() or is_stopped is not None
            done, pending = await asyncio.wait(
                pending, timeout=_TICK if is_polled else None, return_when=asyncio.FIRST_COMPLETED
            )
            errors += [error for task in done if (error := task.exception()) is not None]
            if errors or (is_stopped is not None and is_stopped()):
                stopping.set()
            if stopping.is_set() and pending:
                await release()
        except asyncio.CancelledError as error:
            if cancelled is not None:
                for task in pending:
                    task.cancel()
                await asyncio.wait(pending)
                raise
            cancelled = error
            stopping.set()
        except Exception as error:  # noqa: BLE001 (of `is_stopped`; raised when the workers have ended)
            errors.append(error)
            is_stopped = None
            stopping.set()
    if cancelled is not None:
        raise cancelled
    if errors:
        raise errors[0]
