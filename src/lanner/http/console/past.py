"""The last day, from the queue manager's history: plots, sparklines beside queues, and trends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lanner.http.console.samples import Rate
from lanner.http.console.words import duration, number
from lanner.model.errors import StatusError

if TYPE_CHECKING:
    from lanner.client._async.queue_manager import QueueManager

# Time, messages, and messages per second in and out.
Point = tuple[int, int, float, float]

# The spans to choose from: seconds, and the label.
SPANS: Final = ((900, "15 min"), (3600, "1 h"), (86_400, "24 h"))
_SPARK_WIDTH: Final = 72
_SPARK_HEIGHT: Final = 18


def span_of(seconds: int) -> int:
    """Return a span that exists, for a requested one."""
    return seconds if any(seconds == one for one, _ in SPANS) else SPANS[0][0]


async def past(manager: QueueManager, queue: str | None, seconds: int = SPANS[0][0]) -> list[Point]:
    """Return the points of a queue, or of all queues together.

    Returns none if the queue manager keeps no history, or the user may not see it.
    """
    try:
        told = await manager.history(queue, seconds=seconds)
    except StatusError:
        return []
    return [(int(at), int(count), float(into), float(out)) for at, count, into, out in told["points"]]


def last_rate(points: Sequence[Point]) -> Rate:
    """Return the rates of the last point, for use until the session has two samples."""
    return Rate(round(points[-1][2], 1), round(points[-1][3], 1)) if points else Rate(0.0, 0.0)


def spark(points: Sequence[Point]) -> str:
    """Return the path of a sparkline of depths in a box of 72 by 20; flat without data."""
    if len(points) < 2:
        return f"M0 {_SPARK_HEIGHT}L{_SPARK_WIDTH} {_SPARK_HEIGHT}"
    first, last = points[0][0], max(points[-1][0], points[0][0] + 1)
    most = max(1, *(point[1] for point in points))
    places = (
        f"{_SPARK_WIDTH * (at - first) / (last - first):.1f} {_SPARK_HEIGHT - (_SPARK_HEIGHT - 2) * count / most:.1f}"
        for at, count, *_ in points
    )
    return "M" + "L".join(places)


def trend(points: Sequence[Point]) -> tuple[str, str] | None:
    """Return how the number of messages has changed, as "up" or "down" and a text.

    Returns None if it has not changed.
    """
    if len(points) < 2 or points[0][1] == points[-1][1]:
        return None
    change, seconds = points[-1][1] - points[0][1], points[-1][0] - points[0][0]
    return ("up" if change > 0 else "down"), f"{number(abs(change))} in {duration(max(10, seconds))}"
