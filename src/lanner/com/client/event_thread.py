"""The thread in which a blocking COM client receives its events."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

_LOG = logging.getLogger(__name__)


class EventThread:
    """A thread that runs event handlers one after the other.

    It is separate from the event loop, so handlers may call objects and may take long.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._waiting: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="lanner-com-events", daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], None]) -> bool:
        """Queue a handler. Return False if the queue is full."""
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
        """Finish queued work and stop. A handler may call this; then it does not wait."""
        self._waiting.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()
