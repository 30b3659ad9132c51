"""Waits for new messages in queues, without polling."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from lanner.host.runtime import Runtime

T = TypeVar("T")

# Not in the specification: the interval at which a wait checks whether its caller is connected.
_LOOK_INTERVAL: Final = 1.0  # seconds
# Not in the specification: the minimum time between two checks of the queues.
_PAUSE: Final = 0.005  # seconds


class Arrivals:
    """Wakes waiting threads when a message becomes visible in any queue."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._condition = threading.Condition()
        self._waiting = 0
        self._changes = 0
        self._is_closed = False
        with runtime.lock:
            runtime.store.on_synced(self._changed)
            runtime.engine.position_available_subscribers.append(self._changed)

    def _changed(self, *_: object) -> None:
        """Wake waiting threads. Called by the store and the engine with the lock held.

        Durable messages appear in commits, express messages at once.
        """
        if self._waiting:
            with self._condition:
                self._changes += 1
                self._condition.notify_all()

    def close(self) -> None:
        """End all waits. Idempotent."""
        with self._runtime.lock:
            subscribers = self._runtime.engine.position_available_subscribers
            if self._changed in subscribers:
                subscribers.remove(self._changed)
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def wait(self, look: Callable[[], T | None], timeout: float, is_gone: Callable[[], bool]) -> T | None:
        """Return the first result of `look` that is not None.

        Returns None on a timeout, and when the caller has disconnected.
        """
        deadline = time.monotonic() + timeout
        with self._condition:
            self._waiting += 1
        try:
            while True:
                seen = self._changes
                found = look()
                if found is not None or not self._wait_for_change(seen, deadline, is_gone):
                    return found
                time.sleep(_PAUSE)
        finally:
            with self._condition:
                self._waiting -= 1

    def _wait_for_change(self, seen: int, deadline: float, is_gone: Callable[[], bool]) -> bool:
        while True:
            with self._condition:
                left = deadline - time.monotonic()
                if self._changes == seen and left > 0 and not self._is_closed:
                    self._condition.wait(min(left, _LOOK_INTERVAL))
                if self._is_closed or time.monotonic() >= deadline:
                    return False
                if self._changes != seen:
                    return True
            if is_gone():
                return False
