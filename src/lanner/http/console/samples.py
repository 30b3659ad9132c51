"""The last minutes of each session: the sizes of all queues, sampled once a second.

Samples are taken with the rights of the user. The first page of a session starts a sampler, which
ends when no page has used it for a while. Rates are computed from two samples: `arrivals` counts
the messages that arrived; the number that left follows from the change in size.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from lanner.model.errors import LannerError

if TYPE_CHECKING:
    from lanner.client._async.queue_manager import QueueManager

INTERVAL: Final = 1.0
# The number of samples kept: fifteen minutes.
KEPT: Final = 900
# A sampler that no page has used for this many seconds ends.
IDLE: Final = 120.0
# The number of queues in one sample, the fullest first.
MOST: Final = 1000
_COLUMNS: Final = (
    "name",
    "kind",
    "label",
    "transactional",
    "journaling",
    "quota_kb",
    "messages",
    "bytes",
    "journal_messages",
    "arrivals",
    "readers",
    "subqueues",
)
# The number of queues whose oldest messages are asked for at once.
_AT_ONCE: Final = 100
# The number of samples over which rates are smoothed.
_SPAN: Final = 5

Sizes = dict[str, tuple[int, int]]
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages per second that arrived in a queue and left it."""

    into: float
    out: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of all queues: messages and arrivals of each, by name."""

    at: float
    sizes: Sizes
    rows: list[Document]
    outgoing: list[Document]
    dead_letters: int
    # Totals of all queues that the user sees; `rows` has at most `MOST` queues.
    queues: int
    messages: int

    @property
    def is_cut(self) -> bool:
        """Whether there are more queues than the sample has."""
        return self.queues > len(self.rows)

    def of(self, names: AbstractSet[str]) -> Sample:
        """Return the sample of some queues only."""
        return replace(self, sizes={name: size for name, size in self.sizes.items() if name in names})

    def total(self, name: str | None) -> tuple[int, int]:
        """Return messages and arrivals of one queue, or of all."""
        if name is not None:
            return self.sizes.get(name.lower(), (0, 0))
        return sum(one[0] for one in self.sizes.values()), sum(one[1] for one in self.sizes.values())


class Sampler:
    """The samples of one session."""

    def __init__(self, manager: QueueManager) -> None:
        self.manager = manager
        self._task: asyncio.Task[None] | None = None
        self._new = asyncio.Event()
        self.samples: deque[Sample] = deque(maxlen=KEPT)
        self._asked = time.monotonic()
        # Queues that are sampled also where they are not among the fullest, the last ones last.
        self._watched: dict[str, None] = {}

    def watch(self, name: str) -> None:
        """Sample the queue of a page that is open."""
        self._watched.pop(name, None)
        self._watched[name] = None
        if len(self._watched) > _AT_ONCE:
            del self._watched[next(iter(self._watched))]

    def touch(self) -> None:
        """Start taking samples, unless that has begun."""
        self._asked = time.monotonic()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    @property
    def last(self) -> Sample | None:
        """The last sample, if there is any."""
        return self.samples[-1] if self.samples else None

    async def latest(self) -> Sample:
        """Return a current sample, so that a page shows the effect of the preceding action.

        Raises the errors of the queue manager.
        """
        self.touch()
        sample = await take_sample(self.manager, list(self._watched))
        if not self.samples or sample.at - self.samples[-1].at > INTERVAL / 2:
            self.samples.append(sample)
        return sample

    async def next(self, seconds: float) -> Sample | None:
        """Wait for the next sample; None if there is none in time."""
        self.touch()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._new.wait(), seconds)
            return self.samples[-1]
        return None

    def rate(self, name: str | None = None, *, before: int = 0) -> Rate:
        """Return the rates of one queue, or of all queues together.

        `before` counts samples back from the last one.
        """
        last = len(self.samples) - 1 - before
        first = max(0, last - _SPAN)
        if last <= first:
            return Rate(0.0, 0.0)
        older, newer = self.samples[first], self.samples[last]
        span = newer.at - older.at
        if older.is_cut or newer.is_cut:
            # Queues that came into the sample, or left it, would look like a burst.
            names = older.sizes.keys() & newer.sizes.keys() if name is None else {name.lower()}
            older, newer = older.of(names & older.sizes.keys()), newer.of(names & older.sizes.keys())
        (count, arrived), (count_before, arrived_before) = newer.total(name), older.total(name)
        # A restart resets the counters.
        came = max(0, arrived - arrived_before)
        left = max(0, came - (count - count_before))
        return Rate(round(came / span, 1), round(left / span, 1)) if span > 0 else Rate(0.0, 0.0)

    def series(self, name: str | None = None) -> list[tuple[int, int, float, float]]:
        """Return time, messages, and rates in and out, of every sample."""
        last = len(self.samples) - 1
        points = []
        for place, sample in enumerate(self.samples):
            rate = self.rate(name, before=last - place)
            points.append((round(sample.at), sample.total(name)[0], rate.into, rate.out))
        return points

    async def _run(self) -> None:
        while time.monotonic() - self._asked < IDLE:
            with contextlib.suppress(LannerError):
                self.samples.append(await take_sample(self.manager, list(self._watched)))
                self._new.set()
                self._new = asyncio.Event()
            await asyncio.sleep(INTERVAL)


async def take_sample(manager: QueueManager, watched: list[str]) -> Sample:
    """Sample all queues once; of more than `MOST`, the fullest and those that are watched."""
    told = await manager.overview()
    page = await manager.queue_page(page_size=MOST, sort="-messages", columns=_COLUMNS)
    rows, queues = page["items"], page["total"]
    if queues > len(rows) and watched:
        known = {row["name"] for row in rows}
        more = await manager.queue_page(names=watched, page_size=_AT_ONCE, columns=_COLUMNS)
        rows += [row for row in more["items"] if row["name"] not in known]
    # Absent if the user lacks the right to see them.
    outgoing = await manager.outgoing() if told.get("outgoing_queues") else []
    dead_letters = told.get("dead_letters", 0)
    sizes = {row["name"].lower(): (row["messages"], row["arrivals"]) for row in rows}
    # The total of the overview is up to a second old.
    messages = told["messages"] if queues > len(rows) else sum(row["messages"] for row in rows)
    return Sample(time.time(), sizes, rows, outgoing, dead_letters, queues, messages)


async def oldest_arrivals(manager: QueueManager, names: list[str]) -> dict[str, float]:
    """Return when the oldest message of each queue arrived, where that is known."""
    page = await manager.queue_page(names=names, page_size=_AT_ONCE, columns=["name", "oldest"])
    return {row["name"]: row["oldest"] for row in page["items"] if row["oldest"] is not None}


async def every_queue(manager: QueueManager, sample: Sample) -> list[Document]:
    """Return all queues that the user sees: the sample has only the fullest ones."""
    if not sample.is_cut:
        return sample.rows
    rows: dict[str, Document] = {}
    for page in range(1, sample.queues // MOST + 2):
        found = (await manager.queue_page(page=page, page_size=MOST, columns=_COLUMNS))["items"]
        rows |= {row["name"]: row for row in found}
        if len(found) < MOST:
            break
    return list(rows.values())
