"""The picture of the peers: this queue manager in the middle, the others on both sides.

The picture shows the rows of the table below it and nothing else, with one edge per peer.
Coordinates are numbers computed by this module; the template escapes texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from lanner.http.console.words import plural

# Peers beyond this number are only in the table, because more edges would be unreadable.
MOST: Final = 16
_WIDTH: Final = 1000
_STEP: Final = 76
_NODE: Final = (208, 52)


@dataclass(frozen=True, slots=True)
class Node:
    """A box: a computer."""

    x: int
    y: int
    width: int
    name: str
    text: str
    kind: str
    row: int


@dataclass(frozen=True, slots=True)
class Edge:
    """A line to a computer, with its label in the middle."""

    path: str
    kind: str
    x: int
    y: int
    label: str
    width: int


@dataclass(frozen=True, slots=True)
class Picture:
    """The data that the template draws."""

    width: int
    height: int
    nodes: list[Node]
    edges: list[Edge]
    left_off: int


def draw(name: str, rows: list[dict[str, Any]]) -> Picture:
    """Place the computers alternately on the right and on the left."""
    shown = rows[:MOST]
    sides = (shown[1::2], shown[0::2])
    height = max(160, 24 + _STEP * max(len(sides[0]), len(sides[1])))
    middle = height // 2
    nodes = [Node(404, middle - 30, 192, name, "this queue manager", "self", -1)]
    edges = []
    for side, members in enumerate(sides):
        for place, row in enumerate(members):
            y = round(middle + _STEP * (place - (len(members) - 1) / 2))
            x = 16 if side == 0 else _WIDTH - 16 - _NODE[0]
            inner = x + _NODE[0] if side == 0 else x
            outer = 404 if side == 0 else 596
            kind = "bad" if row["pill"] == "bad" else "" if row["sessions"] and row["on_the_way"] else "idle"
            index = rows.index(row)
            nodes.append(Node(x, y - 26, _NODE[0], row["name"][:26], _text(row), row["pill"], index))
            label = _label(row)
            bend = (outer + inner) // 2
            path = f"M{outer} {middle} C{bend} {middle} {bend} {y} {inner} {y}"
            edges.append(Edge(path, kind, bend, (middle + y) // 2, label, 24 + 7 * len(label)))
    return Picture(_WIDTH, height, nodes, edges, len(rows) - len(shown))


def _text(row: dict[str, Any]) -> str:
    if row["problem"]:
        return "cannot be reached"
    if row["sessions"]:
        return f"{plural(row['sessions'], 'session')}{', TLS' if row['tls'] else ''}"
    return "no session now"


def _label(row: dict[str, Any]) -> str:
    if row["pill"] == "paused":
        return f"paused, {row['waiting']:,} wait"
    if row["waiting"]:
        return f"{row['waiting']:,} wait"
    return "connected" if row["sessions"] else "idle"
