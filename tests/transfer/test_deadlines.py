"""Finding the next deadline without examining all of them."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from lanner.transfer.deadlines import NEVER, Deadline, Deadlines

ITEMS = st.integers(0, 4)
UNLIMITED = 1000


@given(st.lists(st.tuples(ITEMS, st.none() | st.integers(0, 50), st.integers(0, 9))))
def test_all_that_are_due_are_called_and_no_others(steps: list[tuple[int, float | None, int]]) -> None:
    registry = Deadlines()
    called: list[int] = []

    def on_due(number: int, _: float) -> None:
        called.append(number)
        deadlines[number].clear()

    deadlines = [registry.add(Deadline(), partial(on_due, number)) for number in range(5)]
    now = 0
    for number, due, seconds in steps:
        deadlines[number].set(NEVER if due is None else due)
        now += seconds
        expected = [number for number, deadline in enumerate(deadlines) if deadline.due <= now]
        assert not expected or registry.earliest <= now
        assert not registry.run_due(now, UNLIMITED)
        assert sorted(called) == expected
        called.clear()
        assert not registry.run_due(now, UNLIMITED)
        assert called == []
        assert registry.earliest > now


def watched(registry: Deadlines, **dues: float) -> tuple[dict[str, Deadline], list[str]]:
    """Deadlines by name, and the names of those that were called."""
    called: list[str] = []
    deadlines = {}
    for name, due in dues.items():
        deadlines[name] = registry.add(Deadline(), lambda _, name=name: called.append(name))  # type: ignore[misc]
        deadlines[name].set(due)
    return deadlines, called


def test_what_is_removed_is_not_due() -> None:
    registry = Deadlines()
    deadlines, called = watched(registry, a=1.0, b=2.0)
    registry.remove(deadlines["a"])
    assert not registry.run_due(5.0, UNLIMITED)
    assert called == ["b"]


def test_the_earliest_is_called_first() -> None:
    registry = Deadlines()
    _, called = watched(registry, a=3.0, b=1.0, c=2.0)
    assert registry.earliest == 1.0
    assert not registry.run_due(3.0, UNLIMITED)
    assert called == ["b", "c", "a"]


def test_a_limit_leaves_the_others_for_later() -> None:
    registry = Deadlines()
    _, called = watched(registry, a=3.0, b=1.0, c=2.0)
    assert registry.run_due(3.0, 2)
    assert called == ["b", "c"]
    assert not registry.run_due(3.0, 2)
    assert called == ["b", "c", "a"]


def test_a_deadline_that_was_set_before_it_is_watched_counts() -> None:
    registry = Deadlines()
    deadline = Deadline()
    deadline.set(7.0)
    deadline.set_earlier(8.0)
    registry.add(deadline, lambda _: deadline.clear())
    assert registry.earliest == 7.0
    deadline.set_earlier(6.0)
    assert registry.earliest == 6.0


def test_an_error_leaves_the_others_for_later() -> None:
    registry = Deadlines()
    failing = registry.add(Deadline(), lambda _: 1 / 0)  # type: ignore[arg-type]
    failing.set(1.0)
    _, called = watched(registry, a=2.0)
    try:
        registry.run_due(2.0, UNLIMITED)
    except ZeroDivisionError:
        assert not registry.run_due(2.0, UNLIMITED)
    assert called == ["a"]
