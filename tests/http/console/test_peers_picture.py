"""The peers as rows and as a picture: they have names, and nothing covers anything else."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

import pytest

from lanner.http.console.pages import peer_rows
from lanner.http.console.peers_picture import MOST, draw


def rows(queue: str, name: str | None = None) -> list[dict[str, Any]]:
    peer: dict[str, Any] = {
        "name": name,
        "guid": str(uuid.uuid4()),
        "addresses": {"127.0.0.9": "learnt"},
        "last_seen": None,
        "conflicts": [],
    }
    waiting = {
        "name": queue,
        "state": "Disconnected",
        "messages": 3,
        "bytes": 9,
        "next_hops": ["IP=127.0.0.9"],
        "problem": "connecting to 127.0.0.9: Connection refused",
        "retry_in": 5.0,
        "connection_history": [],
    }
    return peer_rows([peer], {"sessions": []}, [waiting])


@pytest.mark.parametrize(
    ("queue", "name", "expected"),
    [
        (r"DIRECT=OS:BETA\private$\work", None, "BETA"),
        (r"DIRECT=OS:BETA\private$\work", "OTHER", "OTHER"),
        (r"DIRECT=TCP:127.0.0.9\private$\work", None, "127.0.0.9"),
        # The next hop may be a routing server.
        (rf"PRIVATE={uuid.UUID(int=7)}\1", None, "127.0.0.9"),
    ],
)
def test_a_peer_has_the_name_that_messages_are_sent_to(queue: str, name: str | None, expected: str) -> None:
    (row,) = rows(queue, name)
    assert (row["name"], row["waiting"], row["word"]) == (expected, 3, "Not connected")
    assert list(row["addresses"]) == ["127.0.0.9"]


@pytest.mark.parametrize("count", range(1, MOST + 3))
def test_boxes_and_labels_are_inside_and_apart(count: int) -> None:
    (row,) = rows(r"DIRECT=OS:BETA\private$\work")
    drawn = draw("ALPHA", [{**row, "name": f"PEER-{number}"} for number in range(count)])
    assert len(drawn.edges) == min(count, MOST)
    assert drawn.left_off == max(0, count - MOST)
    for node in drawn.nodes:
        assert 0 <= node.x < node.x + node.width <= drawn.width
        assert 0 <= node.y < node.y + 60 <= drawn.height
    for first, second in itertools.combinations(drawn.nodes, 2):
        assert first.x + first.width <= second.x or second.x + second.width <= first.x or abs(first.y - second.y) >= 60
    for one, other in itertools.combinations(drawn.edges, 2):
        # A label is 26 high, and wider beside an octagon.
        beside = abs(one.x - other.x) >= (one.width + other.width) // 2 + 20
        assert beside or abs(one.y - other.y) >= 26
