"""The statistics of a comparison between two versions."""

from __future__ import annotations

import random

import pytest

from bench.verdict import FLOOR, WIDEST, Interval, Verdict, bootstrap, compare, judge


@pytest.mark.parametrize(
    ("median", "low", "high", "expected"),
    [
        # At or above the floor, whatever the interval.
        (0.97, 0.95, 0.99, Verdict.PASS),
        (1.2, 0.5, 2.0, Verdict.PASS),
        # Below the floor, but not distinguishable from 1.
        (0.96, 0.92, 1.01, Verdict.PASS),
        (0.96, 0.90, 1.00, Verdict.PASS),
        (0.96, 0.89, 1.00, Verdict.UNDECIDED),
        (0.5, 0.3, 1.4, Verdict.UNDECIDED),
        # Below the floor, and slower.
        (0.969, 0.96, 0.999, Verdict.FAIL),
        (0.8, 0.3, 0.99, Verdict.FAIL),
    ],
)
def test_verdict_follows_the_rule(median: float, low: float, high: float, expected: Verdict) -> None:
    assert judge(median, Interval(low, high)) is expected


def test_floor_can_be_lowered() -> None:
    interval = Interval(0.94, 0.97)
    assert judge(0.95, interval) is Verdict.FAIL
    assert judge(0.95, interval, floor=0.95) is Verdict.PASS


def test_interval_of_equal_ratios_is_that_ratio() -> None:
    assert bootstrap([0.9] * 9, resamples=100) == Interval(0.9, 0.9)


def test_interval_is_the_same_every_time() -> None:
    ratios = [0.91, 1.02, 0.97, 1.1, 0.88, 0.99, 1.01, 0.95, 1.04]
    assert bootstrap(ratios) == bootstrap(ratios)
    assert len({bootstrap(ratios, resamples=50, seed=seed) for seed in range(20)}) > 1


def test_interval_of_three_ratios_reaches_the_outer_ones() -> None:
    """A median of three is the lowest ratio in 7 of 27 resamples: more than 2.5 %."""
    assert bootstrap([0.8, 1.0, 1.3]) == Interval(0.8, 1.3)


def test_interval_of_nine_ratios_leaves_out_the_outer_one_on_each_side() -> None:
    """The median of nine is the lowest ratio if 5 of 9 draws are: 0.1 %.

    It is one of the two lowest in 3 %.
    """
    assert bootstrap([float(number) for number in range(1, 10)]) == Interval(2.0, 8.0)


def test_interval_covers_the_true_median_as_often_as_it_claims() -> None:
    source = random.Random(7)
    covered = sum(
        1.0 in bootstrap([source.gauss(1.0, 0.05) for _ in range(15)], resamples=400, seed=turn) for turn in range(400)
    )
    assert 0.90 <= covered / 400 <= 0.99


def test_interval_narrows_with_more_pairs() -> None:
    source = random.Random(3)
    ratios = [source.gauss(1.0, 0.1) for _ in range(100)]
    assert bootstrap(ratios).width < bootstrap(ratios[:9]).width


def test_comparison_has_the_median_of_the_ratios() -> None:
    found = compare([0.5, 0.9, 0.91, 0.89, 0.92, 0.9, 0.88, 0.9, 1.5])
    assert found.median == pytest.approx(0.9)
    assert found.interval.high < 1
    assert found.verdict is Verdict.FAIL


def test_comparison_of_a_version_with_itself_passes_with_a_narrow_interval() -> None:
    found = compare([0.94, 1.02, 0.96, 0.95, 1.01, 0.96, 0.95, 1.02, 0.96])
    assert found.median < FLOOR
    assert 1 in found.interval
    assert found.interval.width <= WIDEST
    assert found.verdict is Verdict.PASS
