"""A log of what somebody else can cause as often as he likes: one line per kind and minute, with the number of those left out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from typing import Final

# Not in the specification.
INTERVAL: Final = 60.0  # seconds
# Not in the specification: kinds that are told apart in one interval. All others share one line.
MAX_KINDS: Final = 100


class OccasionalLog:
    """Lines of one logger at one level. Threads may share it."""

    def __init__(
        self, log: logging.Logger, level: int = logging.WARNING, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._level = level
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock()
        # How often each kind came in this interval; None is for kinds beyond the limit.
        self._counts: dict[Hashable, int] = {}

    def __call__(self, kind: Hashable, text: str, *arguments: object) -> None:
        """Log a line, unless there was one of this kind in this interval."""
        with self._lock:
            now = self._clock()
            left_out = 0
            if now - self._began >= INTERVAL:
                left_out = sum(count - 1 for count in self._counts.values())
                self._counts.clear()
                self._began = now
            if kind not in self._counts and len(self._counts) >= MAX_KINDS:
                kind = None
            count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if left_out:
            self._log.log(self._level, "%d lines like the next one were left out", left_out)
        if count == 1:
            self._log.log(self._level, text, *arguments)
