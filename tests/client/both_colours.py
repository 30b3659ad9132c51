"""The async client with the blocking client's interface, so that one test serves both."""

# The objects behind are of two trees of classes that have the same names and no common base.
# ruff: noqa: ANN401

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import lanner
import lanner.aio


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, function: Any, *arguments: Any, **named: Any) -> Any:
        """Call a function in the loop and return the result as `Awaited`.

        The result is awaited first if it is awaitable.
        """

        async def work() -> Any:
            result = function(*map(_inner, arguments), **{name: _inner(value) for name, value in named.items()})
            return await result if inspect.isawaitable(result) else result

        return self.outer(asyncio.run_coroutine_threadsafe(work(), self._loop).result(60))

    def outer(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.outer(one) for one in value]
        is_async = type(value).__module__.startswith("lanner.client._async") or hasattr(value, "__aenter__")
        return Awaited(self, value) if is_async else value

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Awaited:
    """An object whose methods are awaited by the caller's thread."""

    def __init__(self, loop: Loop, inner: Any) -> None:
        self._loop = loop
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if inspect.ismethod(getattr(type(self._inner), name, None)) or inspect.isfunction(
            getattr(type(self._inner), name, None)
        ):
            return lambda *arguments, **named: self._loop.run(getattr(self._inner, name), *arguments, **named)
        return self._loop.run(getattr, self._inner, name)

    def __enter__(self) -> Any:
        return self._loop.run(self._inner.__aenter__)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        return self._loop.run(self._inner.__aexit__, kind, error, trace)

    def __iter__(self) -> Iterator[Any]:
        iterator = self._inner.__aiter__()
        while (value := self._loop.run(anext, iterator, None)) is not None:
            yield value

    def __repr__(self) -> str:
        return repr(self._inner)


def _inner(value: Any) -> Any:
    return value._inner if isinstance(value, Awaited) else value


@contextmanager
def connect(colour: str, *arguments: Any, **named: Any) -> Iterator[Any]:
    """Connect to a queue manager, in a colour."""
    if colour == "sync":
        with lanner.connect(*arguments, **named) as qm:
            yield qm
        return
    loop = Loop()
    try:
        with loop.run(lanner.aio.connect, *arguments, **named) as qm:
            yield qm
    finally:
        loop.close()
