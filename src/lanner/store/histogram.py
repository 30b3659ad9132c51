"""A histogram that costs a binary search for each value. Written by one thread, read by others."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """How many values were at most as large as each bound."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Return the bounds and how many values were at most as large, as Prometheus has them."""
        found: list[tuple[str, float]] = []
        below = 0
        for bound, count in zip((*self._bounds, None), list(self._counts), strict=True):
            below += count
            found.append(("+Inf" if bound is None else str(float(bound)), below))
        return found
