"""The message body, the counts, and the percentiles of the benchmarks."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass

BODY = random.Random(1801).randbytes(1024)


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of a run: rounds, and a factor for every count."""

    rounds: int
    factor: float
    depth: int  # messages in the deep queue

    def count(self, full: int, multiple: int = 1) -> int:
        """Return the count of a full run at this scale, as a multiple of `multiple`."""
        return max(1, round(full * self.factor / multiple)) * multiple


DEFAULT = Scale(rounds=5, factor=1.0, depth=1_000_000)
QUICK = Scale(rounds=3, factor=0.2, depth=50_000)


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Return p50 and p99 in microseconds."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {"p50": cuts[49] * 1e6, "p99": cuts[98] * 1e6}
