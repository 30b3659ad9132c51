"""A timer that somebody else looks at: it knows when it is due, not what time it is."""

from __future__ import annotations


class Timer:
    """Stopped while `deadline` is None. Times are seconds of one monotonic clock."""

    __slots__ = ("deadline", "duration")

    def __init__(self) -> None:
        self.deadline: float | None = None
        self.duration = 0.0

    def start(self, now: float, duration: float) -> None:
        """Start, or start again."""
        self.deadline = now + duration
        self.duration = duration

    def stop(self) -> None:
        self.deadline = None

    def is_due(self, now: float) -> bool:
        return self.deadline is not None and now >= self.deadline

    def has_elapsed(self, now: float, part: float) -> bool:
        """More than this part of the time is over."""
        return self.deadline is not None and self.deadline - now < (1.0 - part) * self.duration


def earliest(*timers: Timer) -> float | None:
    return min((timer.deadline for timer in timers if timer.deadline is not None), default=None)
