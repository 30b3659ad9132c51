"""An event loop in a thread of its own, for programs that block; and another thread, in which events arrive."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, TypeVar

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class LoopThread:
    """Runs coroutines for callers in other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="lanner-com", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Wait for a coroutine; an interrupt, such as Ctrl-C, cancels it, and so does the time-out in seconds."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a call that blocks, in the thread that would answer it")
        try:
            running = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            # The loop has ended meanwhile.
            coroutine.close()
            raise
        try:
            return running.result(timeout)
        except BaseException:
            running.cancel()
            raise

    def abandon(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something and stop, while nobody waits for it. Called by finalizers, in any thread."""
        if not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(last(), self._loop).add_done_callback(lambda _: self._stop_soon())

    def _stop_soon(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def stop(self) -> None:
        self._stop_soon()
        self._thread.join()


class EventThread:
    """Runs handlers of events one after the other, apart from the loop: they may call objects, and take their time."""

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._waiting: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="lanner-com-events", daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], None]) -> bool:
        """Whether there was room for it."""
        if self._waiting.qsize() >= self._limit:
            return False
        self._waiting.put(work)
        return True

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            try:
                work()
            except Exception:  # noqa: BLE001 (of the program's handler: logged, and the next event comes)
                _LOG.exception("a handler of events failed")

    def stop(self) -> None:
        """Finish what has come; a handler may stop it, too, and is not waited for then."""
        self._waiting.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()
