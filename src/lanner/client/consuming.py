"""The parts of `Queue.consume` that do not wait: its arguments, its result, and known failures.

`_async/consume.py` has the workers.
"""

from __future__ import annotations

import inspect
import math
import random
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from lanner.client.message import ReceivedMessage


class HasIsSet(Protocol):
    """An event of threading, asyncio or multiprocessing."""

    def is_set(self) -> bool: ...


Stop: TypeAlias = HasIsSet | Callable[[], object]

# The maximum of `prefetch`: the number of messages that one receive on the stream can return.
MAX_PREFETCH: Final = 1000
# Not in the specification: the number of messages whose failures one consumer remembers.
_MAX_REMEMBERED: Final = 10_000
# The maximum number of times that the pause doubles. Without a maximum, the float would overflow.
_MAX_DOUBLINGS: Final = 32


@dataclass(slots=True)
class Consumed:
    """The result of `Queue.consume`."""

    # Messages whose handler returned and whose transaction is committed.
    handled: int = 0
    # Handlers that raised an exception; their messages returned to the queue.
    retried: int = 0
    # Messages that were moved to the poison subqueue, copied to the poison queue, or discarded.
    poisoned: int = 0
    # Messages whose commit was under way when the connection was lost.
    in_doubt: int = 0


@dataclass(frozen=True, slots=True)
class Options:
    """The arguments of `Queue.consume`, checked."""

    retries: int
    concurrency: int
    backoff: tuple[float, float]
    idle: float | None
    count: int | None
    is_stopped: Callable[[], bool] | None
    prefetch: int

    @classmethod
    def of(
        cls,
        *,
        retries: int,
        concurrency: int,
        backoff: tuple[float, float],
        stop: Stop | None,
        idle: float | None,
        count: int | None,
        prefetch: int,
    ) -> Options:
        """Return the options; raise ValueError for an argument that is not valid."""
        for name, value in (
            ("retries", retries),
            ("concurrency", concurrency),
            ("count", count),
            ("prefetch", prefetch),
        ):
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"{name} {value!r}: a whole number, 1 or more")
        if idle is not None and not _is_duration(idle):
            raise ValueError(f"idle {idle!r}: seconds, 0 or more, or None")
        if prefetch > MAX_PREFETCH:
            raise ValueError(f"prefetch {prefetch}: at most {MAX_PREFETCH}")
        return cls(retries, concurrency, _bounds(backoff), idle, count, _is_stopped(stop), prefetch)

    def pause(self, failures: int) -> float:
        """Return how many seconds to pause after this many consecutive failures."""
        shortest, longest = self.backoff
        limit = min(longest, shortest * 2 ** min(failures, _MAX_DOUBLINGS))
        # Randomized, so that the workers of a pool do not resume at the same moment.
        return random.uniform(shortest, limit)  # noqa: S311 (no secret)


def _is_duration(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 and math.isfinite(value)


def _bounds(backoff: object) -> tuple[float, float]:
    match backoff:
        case (float() | int() as shortest, float() | int() as longest) if (
            _is_duration(shortest) and _is_duration(longest) and shortest <= longest
        ):
            return shortest, longest
    raise ValueError(f"backoff {backoff!r}: the shortest and the longest pause in seconds, such as (0.1, 30.0)")


def _is_stopped(stop: Stop | None) -> Callable[[], bool] | None:
    if stop is None:
        return None
    found = getattr(stop, "is_set", stop)
    if not callable(found):
        raise ValueError(f"stop {stop!r}: an event, or a function that returns whether to stop")  # noqa: TRY004 (as for other arguments)
    return lambda: bool(found())


def passing(handler: Callable[..., object], *, is_awaited: bool) -> str | bool:
    """Return "keyword" if a handler has a parameter named `transaction`.

    Otherwise return whether it has two required parameters; the second is then the transaction.
    Raises ValueError if the handler cannot be called with a message, or if it is a coroutine
    function and the caller cannot await it.
    """
    if not callable(handler):
        raise ValueError(f"handler {handler!r}: a function of a message, or of a message and its transaction")  # noqa: TRY004 (as for other arguments)
    if not is_awaited and any(map(inspect.iscoroutinefunction, (handler, type(handler).__call__))):
        raise ValueError(f"handler {handler!r} is written with `async def`: use a queue of lanner.aio")
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        # A function written in C that has no signature.
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    has_rest = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    named = [p for p in parameters if p.name == "transaction" and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    needed = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty and p not in named]
    wanted = [p for p in required if p not in named]
    if needed or len(wanted) > 2 or not (positional or has_rest) or (named and len(wanted) > 1):
        raise ValueError(f"handler {handler!r}: it must take a message, or a message and its transaction")
    return "keyword" if named else len(wanted) == 2


class Failures:
    """The failures that one consumer has seen, by message id: their number and the last error.

    The queue manager counts aborted receives, for all workers. This count is used with queue
    managers of other vendors, which do not report theirs. The errors are for the log. The messages
    whose failures are oldest are forgotten first.
    """

    def __init__(self, limit: int = _MAX_REMEMBERED) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, tuple[int, str]] = OrderedDict()

    def count(self, message: ReceivedMessage) -> int:
        """Return how many attempts at a message are known to have failed, by any consumer."""
        with self._lock:
            own = self._seen.get(message.id, (0, ""))[0] if self._seen else 0
        return max(message.abort_count, own)

    def remember(self, message: ReceivedMessage, count: int, error: BaseException) -> None:
        """Record the number of failed attempts, and the error of the last one."""
        with self._lock:
            self._seen.pop(message.id, None)
            self._seen[message.id] = count, f"{type(error).__name__}: {error}"
            if len(self._seen) > self._limit:
                self._seen.popitem(last=False)

    def last_error(self, message: ReceivedMessage) -> str:
        """Return the last error of a message, for the log."""
        with self._lock:
            return self._seen.get(message.id, (0, "of another worker, or the worker was killed"))[1]

    def forget(self, message: ReceivedMessage) -> None:
        """Forget a message that has left the queue."""
        if self._seen:
            with self._lock:
                self._seen.pop(message.id, None)
