"""When things are due: one heap for all timers of transfer.

Each part that has timers owns a `Deadline` and sets it when its own deadline changes. `Deadlines`
is the registry: it knows the earliest deadline of all without asking anybody, and calls those that
are due. A deadline that is moved away costs nothing: the heap learns of it when the old time comes.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from typing import Final

NEVER: Final = math.inf


class Deadline:
    """When one part has something to do, in seconds of the monotonic clock; NEVER if it has not."""

    __slots__ = ("_queued", "_registry", "due", "on_due")

    def __init__(self) -> None:
        self.due: float = NEVER
        # Called with the current time when the deadline has passed. It sets the next deadline, or
        # clears this one.
        self.on_due: Callable[[float], None] | None = None
        self._registry: Deadlines | None = None
        self._queued: float = NEVER  # the earliest entry in the heap; later ones of the same deadline are void

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
        """Nothing is due any more."""
        self.due = NEVER

    def register(self, registry: Deadlines, on_due: Callable[[float], None]) -> None:
        """Called by `Deadlines.add`."""
        self._registry, self.on_due = registry, on_due
        self.set(self.due)

    def unregister(self) -> None:
        """Called by `Deadlines.remove`: entries in the heap are void."""
        self._registry = self.on_due = None
        self._queued = NEVER

    def take(self, entry_due: float, now: float) -> bool:
        """Return whether an entry of the heap that was taken out means that this is due."""
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
        # No deadline is before this time. It may itself be before all of them.
        self.earliest: float = NEVER
        self._heap: list[tuple[float, int, Deadline]] = []
        self._ties = itertools.count()

    def add(self, deadline: Deadline, on_due: Callable[[float], None]) -> Deadline:
        """Watch a deadline from now on and return it; `on_due` is called each time it has passed."""
        deadline.register(self, on_due)
        return deadline

    def remove(self, deadline: Deadline) -> None:
        """Watch a deadline no longer."""
        deadline.unregister()

    def push(self, due: float, deadline: Deadline) -> None:
        """Called by `Deadline.set`."""
        if due < NEVER:
            heapq.heappush(self._heap, (due, next(self._ties), deadline))
            self.earliest = self._heap[0][0]

    def run_due(self, now: float, limit: int) -> bool:
        """Call those that are due, the earliest first, but at most `limit`; return whether others may be left."""
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
