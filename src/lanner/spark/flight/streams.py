"""How many streams run at a time, and whose."""

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

# Not in the specification: memory that is kept from batch to batch while there are streams; some
# batches.
KEPT_BYTES: Final = 64 << 20
# Ours: seconds of silence after which a stream ends if there is no room for another one.
QUIET: Final = 60.0


@dataclass(slots=True, eq=False)
class _Running:
    """A stream: whose, when something last went through it, and how its client is hung up on."""

    user: str
    hang_up: Callable[[], None]
    heard: float

    def watched(self, batches: Iterable[T]) -> Iterator[T]:
        """Note each batch that comes through."""
        for batch in batches:
            self.heard = time.monotonic()
            yield batch


class Streams:
    """The streams that run, of which there may be so many at a time, half of them of one user.

    When there is no room, a stream that nothing went through for a while ends, so the next attempt
    finds room.
    """

    def __init__(self, most: int, loop_cpu: Callable[[], float] | None = None, quiet: float = QUIET) -> None:
        """`loop_cpu`: what the loop has used to which they give way, if there is one.

        `quiet`: seconds.
        """
        self._most = most
        self._most_of_user = max(most // 2, 1)
        self._quiet = quiet
        self._running: dict[_Running, None] = {}
        self._loop_cpu = loop_cpu
        self._counting = threading.RLock()  # a stream that the garbage collector finds ends in the midst of anything

    @property
    def count(self) -> int:
        return len(self._running)

    @contextlib.contextmanager
    def one(self, user: str, hang_up: Callable[[], None]) -> Iterator[_Running]:
        """One of them, of a user, from its beginning to its end."""
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
        """One that reads, and how many times as long as it took to make a batch it rests beside a busy loop."""
        with self.one(user, hang_up) as running:
            made = batches if self._loop_cpu is None else giving_way(batches, self._loop_cpu, rests)
            yield from running.watched(made)
