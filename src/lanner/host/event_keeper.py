"""The thread that maintains the log of events: it writes pending events and drops old ones."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lanner.engine.settings import EventSettings
    from lanner.store import Store

_LOG = logging.getLogger(__name__)

# Not in the specification: seconds that the event of an express message may wait for a commit.
FLUSH_INTERVAL: Final = 1.0
# Not in the specification: seconds between two searches for old events, and between two slices of
# dropping them.
TRIM_INTERVAL: Final = 10.0
_PAUSE: Final = 0.005
_MEBIBYTE: Final = 1 << 20
_DAY: Final = 86_400


class EventKeeper:
    """Started when the queue manager is ready, stopped before it stops."""

    def __init__(self, store: Store, settings: EventSettings) -> None:
        self._store = store
        self._settings = settings
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lanner-events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Pending events are written when the store is closed."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        trim_at = 0.0
        while not self._stopped.wait(FLUSH_INTERVAL if trim_at else 0.0):
            try:
                if self._store.events.is_waiting:
                    self._store.flush_events()
                if time.monotonic() >= trim_at:
                    self.trim(time.time())
                    trim_at = time.monotonic() + TRIM_INTERVAL
            except Exception:  # noqa: BLE001 (logged, and tried again)
                _LOG.exception("the log of events could not be written or trimmed; this will be tried again")
                trim_at = trim_at or time.monotonic() + TRIM_INTERVAL

    def trim(self, now: float) -> None:
        """Drop the events that exceed the limits of age and size at time `now`."""
        before = int((now - self._settings.keep_days * _DAY) * 1000)
        while self._store.trim_events(before, self._settings.max_mb * _MEBIBYTE) and not self._stopped.is_set():
            time.sleep(_PAUSE)
