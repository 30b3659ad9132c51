"""Statistics of a comparison between two versions: median ratio, bootstrap interval, verdict.

Pure functions of the ratios new/old, one ratio per pair of runs. A ratio above 1 means that the new
version is faster.
"""

from __future__ import annotations

import enum
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 10_000
CONFIDENCE = 0.95
# The same ratios give the same interval in every run.
SEED = 1801
# The lowest median ratio that passes, whatever the interval.
FLOOR = 0.97
# The widest interval that shows two versions to be equally fast.
WIDEST = 0.10


class Verdict(enum.StrEnum):
    PASS = "pass"
    UNDECIDED = "run more pairs"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def bootstrap(ratios: Sequence[float], *, resamples: int = RESAMPLES, seed: int = SEED) -> Interval:
    """Return the 95 % percentile bootstrap interval of the median."""
    source = random.Random(seed)
    size = len(ratios)
    medians = sorted(statistics.median(source.choices(ratios, k=size)) for _ in range(resamples))
    outside = round((1 - CONFIDENCE) / 2 * (resamples - 1))
    return Interval(medians[outside], medians[-1 - outside])


def judge(median: float, interval: Interval, floor: float = FLOOR) -> Verdict:
    """Return the verdict on a median ratio and its interval.

    A median at or above the floor passes. Below it, an interval that includes 1 passes if it is
    narrow, and asks for more pairs if it is wide. An interval that excludes 1 fails.
    """
    if median >= floor:
        return Verdict.PASS
    if 1 not in interval:
        return Verdict.FAIL
    return Verdict.PASS if interval.width <= WIDEST else Verdict.UNDECIDED


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of one workload."""

    median: float
    interval: Interval
    verdict: Verdict


def compare(ratios: Sequence[float], floor: float = FLOOR) -> Comparison:
    """Summarize the ratios of all pairs of one workload."""
    median, interval = statistics.median(ratios), bootstrap(ratios)
    return Comparison(median, interval, judge(median, interval, floor))
