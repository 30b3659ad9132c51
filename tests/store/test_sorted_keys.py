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
