"""A timer of a session: a deadline that is passed the time and never reads the clock."""

from __future__ import annotations

from lanner.transfer.deadlines import NEVER, Deadline


class Timer:
    """A timer, which is stopped while `deadline` is NEVER.

    Times are in seconds of one monotonic clock. `owner` is the deadline of everything that the
    timer's owner has to do. Starting a timer can only move it earlier. The owner moves it later,
    after it has handled what was due.
    """

    __slots__ = ("_owner", "deadline", "duration")

    def __init__(self, owner: Deadline) -> None:
        self.deadline: float = NEVER
        self.duration = 0.0
        self._owner = owner

    def start(self, now: float, duration: float) -> None:
        """Start or restart the timer."""
        deadline = self.deadline = now + duration
        self.duration = duration
        if deadline < self._owner.due:
            self._owner.set(deadline)

    def stop(self) -> None:
        self.deadline = NEVER

    def has_elapsed(self, now: float, part: float) -> bool:
        """Return whether more than this part of the duration is over."""
        return self.deadline - now < (1.0 - part) * self.duration
