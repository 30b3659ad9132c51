"""Who of many is due next, without asking all of them."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Deadlines(Generic[T]):
    """`due_of` tells when something is due, None for never; `watch` says that it may be due earlier than it was.

    Of deadlines that move away the heap learns when the old ones come.
    """

    def __init__(self, due_of: Callable[[T], float | None]) -> None:
        self._due_of = due_of
        self._heap: list[tuple[float, int, T]] = []
        self._watched: dict[T, float] = {}  # the earliest entry in the heap; others of the same are void
        self._ties = itertools.count()

    def watch(self, item: T) -> None:
        """The deadline of something may have changed."""
        due = self._due_of(item)
        if due is not None and due < self._watched.get(item, float("inf")):
            self._watched[item] = due
            heapq.heappush(self._heap, (due, next(self._ties), item))

    def forget(self, item: T) -> None:
        """It is due no more."""
        self._watched.pop(item, None)

    def next_deadline(self) -> float | None:
        """Not after any deadline; it may be before all of them."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> T | None:
        """One that is due, None if there is none left. Whoever takes it looks after it, and watches it again."""
        heap, watched = self._heap, self._watched
        while heap and heap[0][0] <= now:
            entry_due, _, item = heapq.heappop(heap)
            if watched.get(item) != entry_due:
                continue
            del watched[item]
            due = self._due_of(item)
            if due is not None and due <= now:
                return item
            self.watch(item)
        return None
