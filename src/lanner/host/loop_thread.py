"""An event loop in a thread of its own, for components in programs that have no loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for callers in other threads."""

    def __init__(self, name: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine and return its result.

        The coroutine is cancelled when the time-out (in seconds) passes, or when the caller is
        interrupted, for example by Ctrl-C.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a blocking call in the thread that would answer it")
        try:
            running = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            # The loop was closed in the meantime.
            coroutine.close()
            raise
        try:
            return running.result(timeout)
        except BaseException:
            running.cancel()
            raise

    def abandon(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a last coroutine, then stop, without waiting.

        Finalizers may call this in any thread.
        """
        if not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(last(), self._loop).add_done_callback(lambda _: self._stop_soon())

    def _stop_soon(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def stop(self) -> None:
        """Stop the loop and wait for its thread."""
        self._stop_soon()
        self._thread.join()
