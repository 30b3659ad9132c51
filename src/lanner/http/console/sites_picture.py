"""The picture of the sites: boxes with computers, and the routing links with their costs.

It shows the enterprise as the queue manager knows it (`lanner directory show`) and nothing else.
Coordinates are numbers computed by this module; the template escapes texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

# Sites and computers beyond these limits are only in the table.
MOST_SITES: Final = 9
MOST_COMPUTERS: Final = 4
_COLUMNS: Final = 3
_BOX: Final = 260
_GAP: Final = 102
_HEAD: Final = 40
_ROW: Final = 44
_WIDTH: Final = 1000


@dataclass(frozen=True, slots=True)
class Computer:
    """A computer in the box of its site."""

    x: int
    y: int
    name: str
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Box:
    """A site."""

    x: int
    y: int
    width: int
    height: int
    name: str
    computers: list[Computer]
    left_off: int


@dataclass(frozen=True, slots=True)
class Way:
    """A routing link, with its cost in the middle."""

    path: str
    x: int
    y: int
    label: str
    width: int


@dataclass(frozen=True, slots=True)
class Map:
    """The data that the template draws."""

    width: int
    height: int
    boxes: list[Box]
    ways: list[Way]
    left_off: int


def draw_sites(enterprise: Mapping[str, Any], own: str, stuck: frozenset[str] = frozenset()) -> Map:
    """Place the sites in a grid.

    `own` is this queue manager; `stuck` are the computers that cannot be reached, in lower case.
    """
    sites = list(enterprise.get("sites") or [])
    members: dict[str, list[tuple[str, Mapping[str, Any]]]] = {site: [] for site in sites}
    for name, one in (enterprise.get("computers") or {}).items():
        for site in one.get("sites") or ():
            members.setdefault(site, []).append((name, one))
    home = [site for site, those in members.items() if any(name.lower() == own.lower() for name, _ in those)]
    shown = list(dict.fromkeys([*home, *members]))[:MOST_SITES]
    height = _HEAD + _ROW * max(1, min(MOST_COMPUTERS, max((len(members[one]) for one in shown), default=1))) + 28
    boxes = []
    for place, site in enumerate(shown):
        x, y = 8 + (place % _COLUMNS) * (_BOX + _GAP), 8 + (place // _COLUMNS) * (height + 56)
        some = sorted(members[site], key=lambda pair: (pair[0].lower() != own.lower(), pair[0].lower()))
        computers = [
            Computer(x + 16, y + _HEAD + row * _ROW, name[:26], _role(one), _kind(name, one, own, stuck))
            for row, (name, one) in enumerate(some[:MOST_COMPUTERS])
        ]
        boxes.append(Box(x, y, _BOX, height, site, computers, max(0, len(some) - MOST_COMPUTERS)))
    where = {box.name: box for box in boxes}
    ways = []
    for link in enterprise.get("links") or ():
        first, second = (where.get(site) for site in link["sites"])
        if first is not None and second is not None:
            ways.append(_way(first, second, int(link.get("cost", 1)), list(link.get("site_gates") or ())))
    rows = (len(shown) + _COLUMNS - 1) // _COLUMNS
    return Map(_WIDTH, 16 + max(1, rows) * (height + 56) - 56, boxes, ways, len(members) - len(shown))


def _role(one: Mapping[str, Any]) -> str:
    return "routing server" if one.get("routing_server") else str(one.get("address") or "computer")[:34]


def _kind(name: str, one: Mapping[str, Any], own: str, stuck: frozenset[str]) -> str:
    if name.lower() == own.lower():
        return "self"
    return "bad" if {name.lower(), str(one.get("address") or "").lower()} & stuck else ""


def _way(first: Box, second: Box, cost: int, gates: list[str]) -> Way:
    """Draw a link from edge to edge: sideways within a row, else from a lower to an upper edge."""
    if first.y > second.y or (first.y == second.y and first.x > second.x):
        first, second = second, first
    label = f"cost {cost}" + (f", by {gates[0]}" if gates else "")
    half = first.height // 2
    if first.y == second.y:
        if second.x - first.x <= _BOX + _GAP:
            x1, x2, y = first.x + _BOX, second.x, first.y + half
            return Way(f"M{x1} {y}H{x2}", (x1 + x2) // 2, y, label, 24 + 7 * len(label))
        # There is a box in between: draw an arc below the row.
        x1, x2, y = first.x + _BOX // 2, second.x + _BOX // 2, first.y + first.height
        return Way(
            f"M{x1} {y}C{x1} {y + 40} {x2} {y + 40} {x2} {y}", (x1 + x2) // 2, y + 30, label, 24 + 7 * len(label)
        )
    x1, y1, x2, y2 = first.x + _BOX // 2, first.y + first.height, second.x + _BOX // 2, second.y
    middle = (y1 + y2) // 2
    return Way(f"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}", (x1 + x2) // 2, middle, label, 24 + 7 * len(label))
