"""The clocks that the parts of an engine read, and the alarm of the thread that serves its timers.

The engine reads no clock of the system: its owner passes both in. The parts share one `Clocks`
object and call its attributes directly, so that a reading costs one call.
"""

from __future__ import annotations

from collections.abc import Callable


def _no_alarm() -> None:
    """Do nothing: no thread waits for the deadlines of this engine."""


class Clocks:
    """Wall clock, monotonic clock, and the callback for a deadline that has moved nearer."""

    __slots__ = ("deadline_changed", "monotonic", "wall")

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self.wall = wall  # seconds since 1970 UTC
        self.monotonic = monotonic  # seconds, never set back
        # Set by the host: the thread that sleeps until the next deadline must compute it again.
        self.deadline_changed: Callable[[], None] = _no_alarm
