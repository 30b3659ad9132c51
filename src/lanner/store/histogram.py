"""A histogram that costs one binary search per value. One thread writes it, others read it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts of the values that are at most as large as each bound."""

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
        """Return each bound with the number of values up to it, in the form of Prometheus."""
        found: list[tuple[str, float]] = []
        below = 0
        for bound, count in zip((*self._bounds, None), list(self._counts), strict=True):
            below += count
            found.append(("+Inf" if bound is None else str(float(bound)), below))
        return found
