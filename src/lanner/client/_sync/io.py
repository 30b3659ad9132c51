"""How the blocking client waits. `_async/io.py` has the same names for event loops."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, cast

from lanner.host.uninterrupted import Uninterrupted as Uninterrupted  # noqa: PLC0414 (a name of both colours)
from lanner.model.errors import LannerError

if TYPE_CHECKING:
    from lanner.host.change import Change
    from lanner.host.reads import Read
    from lanner.host.runtime import Runtime
    from lanner.model.live import MessagePosition

T = TypeVar("T")
Item = TypeVar("Item")

Lock: Final = threading.Lock
# The number of calls of one operation under way at once: a thread makes one after the other.
WINDOW: Final = 1
Event: Final = threading.Event
sleep: Final = time.sleep
# Whether handlers may be written with `async def`.
AWAITS: Final = False
# How often `supervise` checks whether it should stop, in seconds.
_TICK: Final = 0.1
# A signal that arrives just before a wait does not interrupt it. Its handler runs after at most
# this many seconds.
_SIGNAL_TICK: Final = 0.5


class Opening(Generic[T]):
    """An object that takes time to open."""

    def __init__(self, work: Callable[[], T], undo: Callable[[T], object]) -> None:
        del undo  # the caller's thread cannot be cancelled meanwhile
        self._work = work

    def result(self) -> T:
        """Open the object."""
        return self._work()


def open_early(opening: Callable[[], object]) -> None:
    """Open the object when it is made, so that it can be used without a `with` block."""
    opening()


class Waiter:
    """Waits for the store of an embedded queue manager in the caller's thread."""

    def __init__(self, runtime: Runtime) -> None:
        self.change = runtime.change
        self._sync = runtime.store.sync

    def durable(self, batch: int) -> None:
        """Wait until a batch is durable."""
        with Uninterrupted():
            self._sync(batch)

    def close(self) -> None:
        """Do nothing: there is no thread to end."""


def durable(change: Change) -> None:
    """Wait until a change is durable."""
    change.wait()


def waited(read: Read, timeout: float | None) -> MessagePosition:
    """Wait for the message of a read."""
    return read.block(timeout)


def taken(read: Read) -> None:
    """Remove a message durably; if the caller is interrupted, the message returns to its queue."""
    try:
        read.take().wait()
    except LannerError:
        raise
    except BaseException:
        # Raised by a signal handler, for example for Ctrl-C.
        read.undo()
        raise


def in_thread(work: Callable[[], T]) -> T:
    """Call a blocking function in this thread."""
    return work()


def spawn(work: Callable[..., object], *arguments: object) -> None:
    """Call a function and ignore its result."""
    work(*arguments)


class _Gathered(Generic[Item, T]):
    """One thread's call."""

    __slots__ = ("item", "outcome", "turn")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.outcome: T | Exception | None = None
        # Released when the outcome is set, or when this thread has to make the gathered calls.
        self.turn = threading.Lock()
        self.turn.acquire()


class Together(Generic[Item, T]):
    """Calls of many threads that are merged into one.

    Calls that arrive while others are being made are merged into the next one.
    """

    def __init__(self, work: Callable[[list[Item]], Sequence[T | Exception]], undo: Callable[[T], object]) -> None:
        """Prepare merging calls; `work` returns a result or an error for each item."""
        del undo  # only the main thread can be interrupted, and it calls for itself
        self._work = work
        self._lock = threading.Lock()
        self._gathered: list[_Gathered[Item, T]] = []
        self._is_led = False

    def call(self, item: Item) -> T:
        """Return the result for an item."""
        if threading.current_thread() is threading.main_thread():
            # A signal handler may raise an exception here, which must not reach the other threads.
            return _unless_error(self._work([item])[0])
        own = _Gathered[Item, T](item)
        with self._lock:
            self._gathered.append(own)
            if not self._is_led:
                self._is_led = True
                own.turn.release()
        own.turn.acquire()
        if own.outcome is None:
            self._lead()
        return _unless_error(cast("T | Exception", own.outcome))

    def _lead(self) -> None:
        with self._lock:
            gathered, self._gathered = self._gathered, []
        try:
            results: Sequence[T | Exception] = self._work([one.item for one in gathered])
        except Exception as error:  # noqa: BLE001 (that of every thread)
            # Copy the error: threads that raise the same instance add to each other's tracebacks.
            results = [copy(error) for _ in gathered]
        with self._lock:
            self._is_led = bool(self._gathered)
            if self._is_led:
                self._gathered[0].turn.release()
        for one, result in zip(gathered, results, strict=True):
            one.outcome = result
            one.turn.release()


def _unless_error(outcome: T | Exception) -> T:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def salvaged(work: Callable[[], T], cancel: Callable[[], None], undo: Callable[[T | None], None]) -> T:
    """Return the result of a call that reserves something elsewhere for its caller.

    If the caller is interrupted, `cancel` requests the end of the call. If the call has ended
    already, its result is unknown, because the RPC client has abandoned it: `undo` gives it back
    without knowing it.
    """
    try:
        return work()
    except KeyboardInterrupt:
        with suppress(LannerError):
            try:
                cancel()
            except LannerError:
                undo(None)
        raise


def unbroken(work: Callable[[], T]) -> T:
    """Run something that must not be left half done.

    Ctrl-C waits for its end; a second one does not.
    """
    with Uninterrupted():
        return work()


def gather(works: Sequence[Callable[[], T]]) -> list[T | BaseException]:
    """Run several functions one after the other, and return their results or errors."""
    results: list[T | BaseException] = []
    for work in works:
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001 (the caller's to look at)
            results.append(error)
    return results


class Closing(Protocol):
    """A connection: closing it ends the calls that wait on it."""

    def close(self) -> object: ...


C = TypeVar("C", bound=Closing)


class _Limit:
    """The connections made under one time limit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: list[Closing] = []
        self.is_over = False

    def add(self, connection: Closing) -> None:
        with self._lock:
            self._connections.append(connection)
            if not self.is_over:
                return
        connection.close()
        raise TimeoutError

    def end(self) -> None:
        with self._lock:
            self.is_over = True
        for connection in self._connections:
            connection.close()


class _Limits(threading.local):
    """The time limits of the current thread."""

    def __init__(self) -> None:
        self.now: list[_Limit] = []


_limits = _Limits()


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError if the block takes longer.

    A thread that waits for an answer cannot be interrupted. Instead, the connections that it has
    made in the block (`limited`) are closed.
    """
    limit = _Limit()
    timer = threading.Timer(seconds, limit.end)
    timer.daemon = True
    timer.start()
    _limits.now.append(limit)
    try:
        yield
    except (LannerError, OSError):
        if limit.is_over:
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()
        _limits.now.pop()


def limited(connection: C) -> C:
    """Return a connection, which is closed when the current time limit passes."""
    for limit in _limits.now:
        limit.add(connection)
    return connection


def pause(end: threading.Event, seconds: float) -> None:
    """Sleep, but no longer than until an event is set."""
    end.wait(seconds)


def call(handler: Callable[..., object], *arguments: object, **named: object) -> None:
    """Call a handler."""
    handler(*arguments, **named)


def supervise(
    works: Sequence[Callable[[], None]],
    stopping: threading.Event,
    is_stopped: Callable[[], bool] | None,
    release: Callable[[], None],
) -> None:
    """Run workers in threads until all have ended, and raise the first error of one.

    `stopping` asks them to end, and `release` ends their waits. That happens when a worker has set
    `stopping`, when one fails, when `is_stopped` returns True, and on Ctrl-C, which then waits for
    the workers. A second Ctrl-C raises KeyboardInterrupt at once.
    """
    errors: list[BaseException] = []
    ended = threading.Event()

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 (raised in the caller's thread)
            errors.append(error)
        finally:
            ended.set()

    # Daemon threads: a program that was interrupted twice does not wait for its handlers.
    threads = [
        threading.Thread(target=run, args=(work,), name=f"consume-{number}", daemon=True)
        for number, work in enumerate(works, 1)
    ]
    is_interrupted = False
    started = 0
    while True:
        try:
            while started < len(threads) and not stopping.is_set():
                started += 1
                threads[started - 1].start()
            if not any(thread.is_alive() for thread in threads[:started]):
                break
            ended.wait(_TICK if stopping.is_set() or is_stopped is not None else _SIGNAL_TICK)
            ended.clear()
            if errors or (is_stopped is not None and is_stopped()):
                stopping.set()
            if stopping.is_set():
                release()
        except KeyboardInterrupt:
            if is_interrupted:
                raise
            is_interrupted = True
            stopping.set()
        except Exception as error:  # noqa: BLE001 (of `is_stopped`; raised when the workers have ended)
            errors.append(error)
            is_stopped = None
            stopping.set()
    if errors:
        raise errors[0]
