"""A lookup identifier: the lane above the SequentialID."""

from __future__ import annotations

import pytest

from lanner.model.lookup_ids import LOWEST_LANE, SEQUENTIAL_ID_MASK, lane_of, lookup_id_of, sequential_id_of


@pytest.mark.parametrize("priority", range(8))
def test_parts_of_a_lookup_id(priority: int) -> None:
    lookup_id = lookup_id_of(priority, 123)
    assert (lane_of(lookup_id), sequential_id_of(lookup_id)) == (LOWEST_LANE - priority, 123)


def test_order_is_priority_then_sequential_id() -> None:
    assert lookup_id_of(7, SEQUENTIAL_ID_MASK) < lookup_id_of(6, 1) < lookup_id_of(6, 2) < lookup_id_of(0, 1)


def test_a_sequential_id_never_reaches_the_lane() -> None:
    assert lane_of(lookup_id_of(3, SEQUENTIAL_ID_MASK + 5)) == LOWEST_LANE - 3
