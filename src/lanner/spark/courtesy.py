"""Bulk reads give way to messages, and keep nothing.

One interpreter serves the network and makes Arrow batches. A read that somebody starts in the afternoon shall not hold up the messages that go in and
out meanwhile, so while the loop that serves the network has work, streams rest between their batches; alone they are as fast as they can.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pyarrow as pa

__all__ = ["cpu_of", "give_back", "giving_way"]

T = TypeVar("T")

# Ours: the part of a core that the loop uses when it has work; a loop that waits uses a hundredth.
_BUSY = 0.05
# Ours: how many times as long as a batch took to make the stream rests, and how long at most.
_RESTS = 4.0
_MAX_REST = 0.5


def cpu_of(thread: int) -> Callable[[], float]:
    """What tells the seconds of CPU that a thread, which must be alive, has used."""
    clock = time.pthread_getcpuclockid(thread)
    return lambda: time.clock_gettime(clock)


def giving_way(
    batches: Iterable[T],
    cpu: Callable[[], float],
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[T]:
    """The same batches, with rests between them while the loop, whose use of CPU is told by `cpu`, is busy."""
    remaining = iter(batches)
    looked, used = monotonic(), cpu()
    while True:
        began = monotonic()
        try:
            batch = next(remaining)
        except StopIteration:
            return
        rest = min(_RESTS * (monotonic() - began), _MAX_REST)
        yield batch
        now, now_used = monotonic(), cpu()
        is_busy = now_used - used > _BUSY * (now - looked)
        looked, used = now, now_used
        if is_busy:
            sleep(rest)


def give_back() -> None:
    """Return the memory of a stream that has ended to the system: the allocators would keep tens of megabytes for the next one."""
    pa.default_memory_pool().release_unused()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # glibc has it
        libc.malloc_trim(0)
