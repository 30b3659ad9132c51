"""A timer of a session: it has a deadline and does not ask for the time itself."""

from __future__ import annotations

from lanner.transfer.deadlines import NEVER, Deadline


class Timer:
    """Stopped while `deadline` is NEVER. Times are seconds of one monotonic clock.

    `owner` is the deadline of everything that the timer's owner has to do. A timer that is started
    moves it forward; the owner itself moves it back, when it has run what was due.
    """

    __slots__ = ("_owner", "deadline", "duration")

    def __init__(self, owner: Deadline) -> None:
        self.deadline: float = NEVER
        self.duration = 0.0
        self._owner = owner

    def start(self, now: float, duration: float) -> None:
        """Start, or start again."""
        deadline = self.deadline = now + duration
        self.duration = duration
        if deadline < self._owner.due:
            self._owner.set(deadline)

    def stop(self) -> None:
        self.deadline = NEVER

    def has_elapsed(self, now: float, part: float) -> bool:
        """Return whether more than this part of the time is over."""
        return self.deadline - now < (1.0 - part) * self.duration
