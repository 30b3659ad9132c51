"""Ranges of a queue: as long as the limits let them be, and together the whole."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lanner.spark.columnar.ranges import Range, cut
from lanner.store import Record, Store

QUEUE = 7
FOR_EVER = sys.maxsize


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, Store]]:
    """Messages of some sizes between those of another queue; without express ones, and with."""
    made = {}
    for is_mixed in (False, True):
        store = Store.open(tmp_path_factory.mktemp("ranges") / "store", map_size=1 << 30, reserve=1 << 20)
        with store.lock:
            for number in range(1, 700):
                queue = QUEUE if number % 10 else QUEUE + 1
                packet = bytes(number * number % 50)
                store.put(queue, number, Record(packet, 1), express=is_mixed and number % 3 == 0)
        with store.lock:
            batch = store.pending_batch()
        store.sync(batch)
        store.checkpoint()
        made[is_mixed] = store
    yield made
    for store in made.values():
        store.close()


def plain(store: Store, after: int, upto: int, max_messages: int, max_bytes: int) -> list[Range]:
    """One message after the other."""
    found = []
    messages = size = 0
    for number, _, packet_size in store.index(QUEUE, after, upto):
        if messages and (messages >= max_messages or size + packet_size > max_bytes):
            found.append(Range(after, number - 1, messages, size))
            after, messages, size = number - 1, 0, 0
        messages += 1
        size += packet_size
    return [*found, Range(after, upto, messages, size)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    is_mixed=st.booleans(),
    after=st.integers(0, 710),
    length=st.integers(0, 710),
    max_messages=st.sampled_from([1, 2, 50, 255, 256, 257, FOR_EVER]) | st.integers(1, 700),
    max_bytes=st.sampled_from([0, 1, 49, 50, FOR_EVER]) | st.integers(0, 20_000),
)
def test_ranges_are_those_of_one_message_after_the_other(
    stores: dict[bool, Store], is_mixed: bool, after: int, length: int, max_messages: int, max_bytes: int
) -> None:
    store = stores[is_mixed]
    limits = (after, after + length, max_messages, max_bytes)
    assert list(cut(store, QUEUE, *limits)) == plain(store, *limits)


def test_nothing_is_one_range(stores: dict[bool, Store]) -> None:
    assert list(cut(stores[False], QUEUE + 2, 3, 9, 1, 1)) == [Range(3, 9, 0, 0)]
