"""Log lines that a peer can cause, which must not fill the disk.

A line has a kind. A peer gets a few lines of each kind per minute, and all peers together some
more. Further lines are counted, and the next line of that kind and peer states the count.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

# Not in the specification: lines per minute, of one kind and peer, of one kind, and of all kinds;
# kinds and peers that are remembered.
PER_PEER: Final = 5
PER_KIND: Final = 60
IN_TOTAL: Final = 600
_MOST_KEYS: Final = 4096
_MINUTE: Final = 60.0  # seconds

_Key = tuple[str, str, str | None]  # the logger, the kind, and the peer; None: all peers


class _Count:
    __slots__ = ("began", "left_out", "lines")

    def __init__(self, now: float) -> None:
        self.began = now
        self.lines = 0
        self.left_out = 0


class LogLines:
    """Decides which lines are written. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self.per_peer, self.per_kind, self.in_total = PER_PEER, PER_KIND, IN_TOTAL
        self._lock = threading.Lock()
        self._counts: dict[_Key, _Count] = {}
        self._minute = monotonic()
        self._lines = 0  # in this minute
        self.left_out = 0  # since the start

    def log(
        self,
        logger: logging.Logger,
        level: int,
        kind: str,
        peer: str,
        text: str,
        *arguments: object,
        exc_info: bool | BaseException = False,
    ) -> None:
        """Write a line that a peer has caused, unless there were too many of that kind."""
        if not logger.isEnabledFor(level):
            return
        with self._lock:
            left_out = self._admit(logger.name, kind, peer)
        if left_out is None:
            return
        if left_out:
            text += " (%d more lines of this kind from this peer were left out)"
            arguments += (left_out,)
        logger.log(level, text, *arguments, exc_info=exc_info, stacklevel=2)

    def _admit(self, logger: str, kind: str, peer: str) -> int | None:
        """Return how many lines were left out before this one; None if this one is, too."""
        now = self._monotonic()
        if now - self._minute >= _MINUTE:
            self._minute, self._lines = now, 0
        everybody = self._count((logger, kind, None), now)
        own = self._count((logger, kind, peer), now)
        if own.lines >= self.per_peer or everybody.lines >= self.per_kind or self._lines >= self.in_total:
            own.left_out += 1
            self.left_out += 1
            return None
        left_out, own.left_out = own.left_out, 0
        own.lines += 1
        everybody.lines += 1
        self._lines += 1
        return left_out

    def _count(self, key: _Key, now: float) -> _Count:
        found = self._counts.pop(key, None)
        if found is None:
            found = _Count(now)
            if len(self._counts) >= _MOST_KEYS:
                del self._counts[next(iter(self._counts))]
        elif now - found.began >= _MINUTE:
            found.began, found.lines = now, 0
        self._counts[key] = found
        return found

    @property
    def written(self) -> int:
        """The number of lines in this minute."""
        return 0 if self._monotonic() - self._minute >= _MINUTE else self._lines


# One for the process, like the log.
LINES: Final = LogLines()
log_of_peer: Final = LINES.log
