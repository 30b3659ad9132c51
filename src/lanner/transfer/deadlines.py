"""Deadlines: one heap for all timers of transfer.

Each part that has timers owns a `Deadline` and sets it when its own deadline changes. `Deadlines`
is the registry. It knows the earliest deadline without asking the parts, and calls those that are
due. Postponing a deadline costs nothing, because the heap entry is only corrected when the old time
comes.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from typing import Final

NEVER: Final = math.inf


class Deadline:
    """The time when a part has something to do, in seconds of the monotonic clock, or NEVER."""

    __slots__ = ("_queued", "_registry", "due", "on_due")

    def __init__(self) -> None:
        self.due: float = NEVER
        # Called with the current time when the deadline has passed. It sets the next deadline, or
        # clears this one.
        self.on_due: Callable[[float], None] | None = None
        self._registry: Deadlines | None = None
        # The earliest valid entry in the heap. Later entries of this deadline are void.
        self._queued: float = NEVER

    def set(self, due: float) -> None:
        """Set the deadline, earlier or later than before."""
        self.due = due
        if due < self._queued and self._registry is not None:
            self._queued = due
            self._registry.push(due, self)

    def set_earlier(self, due: float) -> None:
        """Set the deadline unless it is earlier already."""
        if due < self.due:
            self.set(due)

    def clear(self) -> None:
        """Unset the deadline."""
        self.due = NEVER

    def register(self, registry: Deadlines, on_due: Callable[[float], None]) -> None:
        """Attach to a registry; called by `Deadlines.add`."""
        self._registry, self.on_due = registry, on_due
        self.set(self.due)

    def unregister(self) -> None:
        """Detach from the registry; called by `Deadlines.remove`. Its heap entries become void."""
        self._registry = self.on_due = None
        self._queued = NEVER

    def take(self, entry_due: float, now: float) -> bool:
        """Return whether an entry taken from the heap means that this deadline is due."""
        if entry_due != self._queued:
            return False
        self._queued = NEVER
        if self.due > now:
            self.set(self.due)
            return False
        return True


class Deadlines:
    """The registry. The caller holds the store's lock, except for reading `earliest`."""

    def __init__(self) -> None:
        # No deadline is before this time, but the time may be earlier than all deadlines.
        self.earliest: float = NEVER
        self._heap: list[tuple[float, int, Deadline]] = []
        self._ties = itertools.count()

    def add(self, deadline: Deadline, on_due: Callable[[float], None]) -> Deadline:
        """Watch a deadline and return it; `on_due` is called each time it has passed."""
        deadline.register(self, on_due)
        return deadline

    def remove(self, deadline: Deadline) -> None:
        """Stop watching a deadline."""
        deadline.unregister()

    def push(self, due: float, deadline: Deadline) -> None:
        """Add an entry to the heap; called by `Deadline.set`."""
        if due < NEVER:
            heapq.heappush(self._heap, (due, next(self._ties), deadline))
            self.earliest = self._heap[0][0]

    def run_due(self, now: float, limit: int) -> bool:
        """Call at most `limit` due deadlines, the earliest first.

        Return whether any may be left.
        """
        heap = self._heap
        while heap and heap[0][0] <= now:
            if not limit:
                return True
            due, _, deadline = heapq.heappop(heap)
            self.earliest = heap[0][0] if heap else NEVER
            if deadline.take(due, now) and deadline.on_due is not None:
                limit -= 1
                deadline.on_due(now)
        return False
