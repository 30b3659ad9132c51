"""How far streams of the data pipeline are behind, according to the last answer to each.

A stream keeps its position in its own checkpoint, so the queue manager learns it only when the
stream asks for newer messages. A stream that has not asked for a while has ended and is forgotten.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["Lag", "StreamLags"]

# Not in the specification: seconds after which a silent stream counts as ended, and streams that
# are remembered.
FORGET_AFTER: Final = 600.0
MAX_STREAMS: Final = 1000


class Lag(NamedTuple):
    """The messages in a queue beyond those that a user's stream has read or is about to read."""

    user: str
    queue: str
    messages: int
    bytes: int


class StreamLags:
    """The lags of the streams of one queue manager. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # In the order of the last answers.
        self._found: dict[tuple[str, str], tuple[float, Lag]] = {}

    def note(self, lag: Lag) -> None:
        """Remember the answer to a stream."""
        with self._lock:
            key = lag.user, lag.queue
            self._found.pop(key, None)
            self._found[key] = self._monotonic(), lag
            if len(self._found) > MAX_STREAMS:
                del self._found[next(iter(self._found))]

    def all(self) -> list[Lag]:
        """Return the lags of streams that have not ended, by user and queue."""
        earliest = self._monotonic() - FORGET_AFTER
        with self._lock:
            for key in [key for key, (told, _) in self._found.items() if told < earliest]:
                del self._found[key]
            return sorted(lag for _, lag in self._found.values())
