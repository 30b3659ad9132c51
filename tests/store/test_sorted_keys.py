from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lanner.store import sorted_keys
from lanner.store.sorted_keys import SortedKeys

KEYS = st.integers(0, 60)


@given(st.lists(st.tuples(st.booleans(), KEYS), max_size=200), KEYS)
def test_a_sorted_set_agrees_with_a_set(changes: list[tuple[bool, int]], asked: int) -> None:
    chunk, sorted_keys._CHUNK = sorted_keys._CHUNK, 4
    try:
        keys: SortedKeys[int] = SortedKeys()
        expected: set[int] = set()
        for is_added, key in changes:
            if is_added and key not in expected:
                keys.add(key)
                expected.add(key)
            elif not is_added:
                keys.discard(key)
                expected.discard(key)
        assert list(keys) == sorted(expected)
        assert (len(keys), bool(keys)) == (len(expected), bool(expected))
        assert keys.ceiling(asked) == min((key for key in expected if key >= asked), default=None)
        assert keys.below(asked) == max((key for key in expected if key < asked), default=None)
    finally:
        sorted_keys._CHUNK = chunk


def test_a_million_keys_stay_in_small_chunks() -> None:
    keys: SortedKeys[int] = SortedKeys()
    for key in range(10_000, 0, -1):
        keys.add(key)
    for key in range(20_000, 30_000):
        keys.add(key)
    assert max(map(len, keys._chunks)) <= 2 * sorted_keys._CHUNK
    assert list(keys) == [*range(1, 10_001), *range(20_000, 30_000)]


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)), st.integers(-1, 61), st.booleans())
def test_merging_adds_all_keys(first: set[int], second: set[int], asked: int, is_behind: bool) -> None:
    second = {key + 61 for key in second} if is_behind else second - first
    chunk, sorted_keys._CHUNK = sorted_keys._CHUNK, 4
    try:
        sets: list[SortedKeys[int]] = []
        for values in (first, second):
            keys: SortedKeys[int] = SortedKeys()
            for key in sorted(values):
                keys.add(key)
            sets.append(keys)
        merged, other = sets
        merged.merge(other)
        assert list(merged) == sorted(first | second)
        assert merged.ceiling(asked) == min((key for key in first | second if key >= asked), default=None)
        for key in first | second:
            merged.discard(key)
        assert not merged
        assert list(other) == sorted(second)
    finally:
        sorted_keys._CHUNK = chunk
