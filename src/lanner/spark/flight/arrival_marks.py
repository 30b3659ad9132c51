"""The times at which numbers of the visibility sequence were issued, to within some seconds.

With them a scan of the last hour need not read all older messages. A mark is a number and a time:
the messages with that number or a lower one arrived before that time. A queue cannot be searched
for a time, because its index has no times and an aborted receive gives an old message a new number.
Marks are made while the service runs. Messages older than the first mark are always read.
"""

from __future__ import annotations

import logging
import struct
import threading
from bisect import bisect_left
from itertools import accumulate
from typing import Final

from lanner.host.runtime import Runtime
from lanner.model.errors import LannerError

__all__ = ["ArrivalMarks"]

_LOG: Final = logging.getLogger(__name__)

_NUMBER: Final = struct.Struct(">Q")
TABLE: Final = "arrival_marks"
# Not in the specification: seconds between two marks; number of marks, beyond which every other one
# is deleted.
INTERVAL: Final = 10.0
MAX_MARKS: Final = 20_000


class ArrivalMarks:
    """The marks of one store, made by a thread until `close`. Thread-safe."""

    def __init__(self, runtime: Runtime, interval: float = INTERVAL) -> None:
        self._runtime = runtime
        self._interval = interval
        with runtime.lock:
            self._table = runtime.store.table(TABLE)
            rows = [(_NUMBER.unpack(key)[0], _NUMBER.unpack(value)[0]) for key, value in self._table.items()]
        self._marks: list[tuple[int, int]] = sorted(rows)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lanner-marks", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                self.mark()
            except LannerError as error:
                # For example, the disk is full. A scan from a time on then reads more messages.
                _LOG.warning("arrival times are not recorded: %s", error)
            if self._is_over.wait(self._interval):
                return

    def mark(self) -> None:
        """Record the last number and the time, if the number has changed since the last mark."""
        with self._runtime.lock:
            last = self._runtime.store.last_number
            if self._marks and self._marks[-1][0] >= last:
                return
        with self._runtime.change() as change:
            store = self._runtime.store
            # Read the clock after the number: messages up to the number arrived before that.
            last, now = store.last_number, int(self._runtime.engine.clock()) + 1
            self._table.put(_NUMBER.pack(last), _NUMBER.pack(now))
            self._marks.append((last, now))
            if len(self._marks) > MAX_MARKS:
                for number, _ in self._marks[1::2]:
                    self._table.delete(_NUMBER.pack(number))
                del self._marks[1::2]
        change.soon()

    def before(self, seconds: int) -> int:
        """Return a number up to which all messages arrived before a time, or 0 if none is known.

        If the clock was set back, the result is lower, never higher: a mark counts with the latest
        time of all marks up to it.
        """
        with self._runtime.lock:
            marks = list(self._marks)
        times = list(accumulate((time for _, time in marks), max))
        place = bisect_left(times, seconds + 1)
        return marks[place - 1][0] if place else 0
