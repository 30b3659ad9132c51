"""The picture of the sites: everything is inside it, and what does not fit is counted."""

from __future__ import annotations

import itertools
from typing import Any

from lanner.http.console.sites_picture import MOST_COMPUTERS, MOST_SITES, draw_sites


def enterprise(sites: int, computers: int = 1) -> dict[str, Any]:
    names = [f"S{number}" for number in range(sites)]
    pairs = itertools.combinations(names, 2)
    return {
        "sites": names,
        "links": [{"sites": list(pair), "cost": cost, "site_gates": []} for cost, pair in enumerate(pairs, 1)],
        "computers": {f"{site}-{number}": {"sites": [site]} for site in names for number in range(computers)},
    }


def test_boxes_and_labels_are_inside_and_boxes_apart() -> None:
    for sites in range(1, MOST_SITES + 1):
        drawn = draw_sites(enterprise(sites), "S0-0")
        assert len(drawn.boxes) == sites
        assert len(drawn.ways) == sites * (sites - 1) // 2
        for box in drawn.boxes:
            assert 0 <= box.x <= box.x + box.width <= drawn.width
            assert 0 <= box.y <= box.y + box.height <= drawn.height
            assert all(box.y < one.y < box.y + box.height for one in box.computers)
        for first, second in itertools.combinations(drawn.boxes, 2):
            beside = first.x + first.width <= second.x or second.x + second.width <= first.x
            assert beside or abs(first.y - second.y) >= first.height
        assert all(0 <= way.x <= drawn.width for way in drawn.ways)


def test_our_own_site_comes_first_and_the_rest_is_counted() -> None:
    drawn = draw_sites(enterprise(MOST_SITES + 2, MOST_COMPUTERS + 3), "s3-1", frozenset({"s3-0"}))
    assert drawn.left_off == 2
    first = drawn.boxes[0]
    assert (first.name, first.left_off) == ("S3", 3)
    assert [(one.name, one.kind) for one in first.computers[:2]] == [("S3-1", "self"), ("S3-0", "bad")]
    # A link to a site that is not shown is in the table only.
    assert len(drawn.ways) < len(enterprise(MOST_SITES + 2)["links"])


def test_nothing_at_all_is_a_picture_too() -> None:
    assert draw_sites({}, "ALPHA").boxes == []
