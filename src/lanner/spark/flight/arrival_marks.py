"""When numbers of the visibility sequence were issued, to within some seconds: so that who asks for the last hour is not shown all years.

A mark is a number and a time: the message with that number arrived before that time, and so did all
with lower ones. The index of a queue has no times, and an aborted receive gives an old message a
new number, so a queue cannot be searched for a time. Marks are made while the service runs; of what
is older than the first one nothing is known, and it is looked at.
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
# Not in the specification: seconds between two marks; marks that are kept, beyond which every other
# one goes.
INTERVAL: Final = 10.0
MAX_MARKS: Final = 20_000


class ArrivalMarks:
    """The marks of one store, made by a thread until `close`. Any thread may ask."""

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
                # A full disk, say: a scan from some time on looks at more messages then.
                _LOG.warning("when messages came is not written down: %s", error)
            if self._is_over.wait(self._interval):
                return

    def mark(self) -> None:
        """Write down the last number and the time, if there was one since the last mark."""
        with self._runtime.lock:
            last = self._runtime.store.last_number
            if self._marks and self._marks[-1][0] >= last:
                return
        with self._runtime.change() as change:
            store = self._runtime.store
            # The clock after the number: what has it, or a lower one, arrived before.
            last, now = store.last_number, int(self._runtime.engine.clock()) + 1
            self._table.put(_NUMBER.pack(last), _NUMBER.pack(now))
            self._marks.append((last, now))
            if len(self._marks) > MAX_MARKS:
                for number, _ in self._marks[1::2]:
                    self._table.delete(_NUMBER.pack(number))
                del self._marks[1::2]
        change.soon()

    def before(self, seconds: int) -> int:
        """Return a number up to which every message arrived before a time; 0 where nothing is known.

        A clock that was set back makes it lower, never higher: the latest time of all marks up to
        one counts.
        """
        with self._runtime.lock:
            marks = list(self._marks)
        times = list(accumulate((time for _, time in marks), max))
        place = bisect_left(times, seconds + 1)
        return marks[place - 1][0] if place else 0
