"""The running streams, with limits in total and per user."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from lanner.spark.flight.courtesy import give_back, giving_way, keep
from lanner.spark.flight.errors import TooBusy

__all__ = ["Streams"]

T = TypeVar("T")

# Not in the specification: freed memory that the process keeps for the next batches while streams
# run; it is enough for some batches.
KEPT_BYTES: Final = 64 << 20
# Not in the specification: seconds of silence after which a stream may be ended to make room.
QUIET: Final = 60.0


@dataclass(slots=True, eq=False)
class _Running:
    """A running stream: its user, the time of its last batch, and how to close its connection."""

    user: str
    hang_up: Callable[[], None]
    heard: float

    def watched(self, batches: Iterable[T]) -> Iterator[T]:
        """Record the time of each batch that passes."""
        for batch in batches:
            self.heard = time.monotonic()
            yield batch


class Streams:
    """The running streams. One user may have half of the allowed number.

    If there is no room, a stream that has been silent for a while is ended, so the next attempt
    finds room.
    """

    def __init__(self, most: int, loop_cpu: Callable[[], float] | None = None, quiet: float = QUIET) -> None:
        """Allow `most` streams.

        `loop_cpu` returns the CPU time of the event loop that takes precedence, if there is one.
        `quiet` is in seconds.
        """
        self._most = most
        self._most_of_user = max(most // 2, 1)
        self._quiet = quiet
        self._running: dict[_Running, None] = {}
        self._loop_cpu = loop_cpu
        # reentrant: the garbage collector may end a stream at any point
        self._counting = threading.RLock()

    @property
    def count(self) -> int:
        return len(self._running)

    @contextlib.contextmanager
    def one(self, user: str, hang_up: Callable[[], None]) -> Iterator[_Running]:
        """Count a stream of a user while the context lasts. Raises TooBusy if there is no room."""
        with self._counting:
            own = [other for other in self._running if other.user == user]
            if len(own) >= self._most_of_user:
                self._end_a_silent_one(own)
                raise TooBusy(f"{user} has {len(own)} streams: try again when others of them have ended")
            if self.count >= self._most:
                self._end_a_silent_one(self._running)
                raise TooBusy("too many streams at a time: try again when others have ended")
            running = _Running(user, hang_up, time.monotonic())
            self._running[running] = None
            if self.count == 1:
                keep(KEPT_BYTES)
        try:
            yield running
        finally:
            with self._counting:
                del self._running[running]
                is_last = not self._running
            if is_last:
                give_back()

    def _end_a_silent_one(self, candidates: Iterable[_Running]) -> None:
        found = min(candidates, key=lambda one: one.heard)
        if found.heard < time.monotonic() - self._quiet:
            found.hang_up()

    def run(
        self, user: str, batches: Iterator[T], rests: float, hang_up: Callable[[], None]
    ) -> Generator[T, None, None]:
        """Yield the batches of a reading stream, which counts until it ends.

        Beside a busy loop it rests `rests` times the CPU time that making each batch took.
        """
        with self.one(user, hang_up) as running:
            made = batches if self._loop_cpu is None else giving_way(batches, self._loop_cpu, rests)
            yield from running.watched(made)
