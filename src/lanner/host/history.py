"""Queue depths and message rates of the last 24 hours, in memory.

The service samples all queues every few seconds. The history has a fixed size for each queue: a
fine series of the last quarter of an hour, and coarser ones of the last hour and the last day. A
console shows the past as soon as it is opened, and a queue that never received a message costs
nothing. The history is lost when the process ends.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lanner.model.directory_objects import Queue

# Seconds between two samples.
INTERVAL: Final = 5.0
# By the seconds that a series covers: it keeps one in this many samples. Each has POINTS points.
SPANS: Final = {900: 1, 3600: 4, 86_400: 96}
POINTS: Final = 180
# Not in the specification: queues with a series of their own. These are the first to receive a
# message.
MAX_QUEUES: Final = 500

# Time, messages, and messages per second that arrived and left.
Point = tuple[int, int, float, float]


@dataclass(slots=True)
class _Series:
    """The values of one queue, or of all: the depth and the total of arrivals at each point."""

    messages: dict[int, array[int]] = field(default_factory=lambda: {span: array("Q") for span in SPANS})
    arrivals: dict[int, array[int]] = field(default_factory=lambda: {span: array("Q") for span in SPANS})

    def add(self, span: int, messages: int, arrivals: int) -> None:
        for values, value in ((self.messages[span], messages), (self.arrivals[span], arrivals)):
            values.append(value)
            if len(values) > POINTS:
                del values[0]


class History:
    """The series of one queue manager. The caller of every method holds the store's lock."""

    def __init__(self) -> None:
        self._ticks = 0
        self._times: dict[int, list[int]] = {span: [] for span in SPANS}
        self._total = _Series()
        self._queues: dict[int, _Series] = {}

    def sample(self, now: float, queues: Iterable[Queue]) -> None:
        """Take a sample of the local queues."""
        due = [span for span, every in SPANS.items() if self._ticks % every == 0]
        self._ticks += 1
        for span in due:
            times = self._times[span]
            times.append(round(now))
            del times[:-POINTS]
        seen = set()
        messages = arrivals = 0
        for queue in queues:
            number, count = queue.number, queue.message_count
            came = count + queue.removed_count
            messages += count
            arrivals += came
            series = self._queues.get(number)
            if series is None:
                if not came or len(self._queues) >= MAX_QUEUES:
                    continue
                series = self._queues[number] = _Series()
            seen.add(number)
            for span in due:
                series.add(span, count, came)
        for span in due:
            self._total.add(span, messages, arrivals)
        if len(seen) < len(self._queues):
            self._queues = {number: series for number, series in self._queues.items() if number in seen}

    def points(self, span: int, number: int | None = None) -> list[Point]:
        """Return the points of a span for a queue, or for all queues together.

        Returns an empty list if there is no history.
        """
        series = self._total if number is None else self._queues.get(number)
        if series is None:
            return []
        messages, arrivals = series.messages[span], series.arrivals[span]
        times = self._times[span][len(self._times[span]) - len(messages) :]
        found: list[Point] = []
        for place in range(1, len(times)):
            # The clock may have been set back. In the sum of all queues, a queue may have been
            # deleted.
            seconds = max(1, times[place] - times[place - 1])
            came = max(0, arrivals[place] - arrivals[place - 1])
            left = max(0, came - (messages[place] - messages[place - 1]))
            rates = round(came / seconds, 2), round(left / seconds, 2)
            found.append((times[place], messages[place], *rates))
        return found
