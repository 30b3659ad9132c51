"""The thread that runs the engine's timers and its periodic housekeeping."""

from __future__ import annotations

import logging
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lanner.host.runtime import Runtime

_LOG = logging.getLogger(__name__)
_RETRY: Final = 1.0  # seconds
# Not in the specification: seconds between two searches for abandoned stages.
_SWEEP_INTERVAL: Final = 3600.0


class Timers:
    """Calls the engine at its deadlines, closes abandoned objects, and commits unattended changes.

    An unattended change has no caller that waits for it.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        # A SimpleQueue, because finalizers put into it at any point of any thread.
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._is_stopping = False
        self._is_work_wanted = False
        self._thread = threading.Thread(target=self._run, name="lanner-timers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._is_stopping = True
        self.wake()
        self._thread.join()

    def wake(self) -> None:
        """Read the engine's next deadline again."""
        self._wakes.put(None)

    def work_soon(self) -> None:
        """Do one round of work without waiting for a deadline.

        Finalizers may call this in any thread.
        """
        if not self._is_work_wanted:
            self._is_work_wanted = True
            self.wake()

    def _is_woken(self, delay: float) -> bool:
        try:
            self._wakes.get(timeout=delay)
        except Empty:
            return False
        return True

    def _run(self) -> None:
        runtime, engine = self._runtime, self._runtime.engine
        sweep_at = time.monotonic()
        while not self._is_stopping:
            with runtime.lock:
                delay = engine.next_delay()
            is_woken = self._is_woken(_SWEEP_INTERVAL if delay is None else min(delay, _SWEEP_INTERVAL))
            if is_woken and not self._is_work_wanted:
                continue
            try:
                with runtime.change() as change:
                    self._is_work_wanted = False
                    runtime.tidy()
                    engine.on_timer()
                    if time.monotonic() >= sweep_at:
                        sweep_at = time.monotonic() + _SWEEP_INTERVAL
                        engine.drop_abandoned_stages()
                change.wait()
            except Exception:  # noqa: BLE001 (logged, and tried again)
                # One failure must not end the timers of every queue.
                _LOG.exception("timer work failed; it will be tried again")
                self._is_work_wanted = True
                self._is_woken(_RETRY)
