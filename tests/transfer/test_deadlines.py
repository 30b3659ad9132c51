"""Who of many is due next."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from lanner.transfer.deadlines import Deadlines

ITEMS = st.integers(0, 4)
T = TypeVar("T")


def all_due(deadlines: Deadlines[T], now: float) -> list[T]:
    taken = []
    while (item := deadlines.take_due(now)) is not None:
        taken.append(item)
    return taken


@given(st.lists(st.tuples(ITEMS, st.none() | st.integers(0, 50), st.integers(0, 9))))
def test_all_that_are_due_are_taken_and_no_others(steps: list[tuple[int, float | None, int]]) -> None:
    dues: dict[int, float | None] = {}
    deadlines = Deadlines[int](dues.get)
    now = 0
    for item, due, seconds in steps:
        dues[item] = due
        deadlines.watch(item)
        now += seconds
        expected = {item for item, due in dues.items() if due is not None and due <= now}
        next_deadline = deadlines.next_deadline()
        assert not expected or (next_deadline is not None and next_deadline <= now)
        taken = all_due(deadlines, now)
        assert sorted(taken) == sorted(expected)
        for each in taken:
            dues[each] = None
            deadlines.watch(each)
        assert deadlines.take_due(now) is None


def test_what_is_forgotten_is_not_due() -> None:
    deadlines = Deadlines[str]({"a": 1.0, "b": 2.0}.get)
    for item in "ab":
        deadlines.watch(item)
    deadlines.forget("a")
    assert all_due(deadlines, 5.0) == ["b"]


def test_the_earliest_is_taken_first() -> None:
    deadlines = Deadlines[str]({"a": 3.0, "b": 1.0, "c": 2.0}.get)
    for item in "abc":
        deadlines.watch(item)
    assert all_due(deadlines, 3.0) == ["b", "c", "a"]
