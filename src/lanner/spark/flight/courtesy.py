"""Bulk reads give way to messages, and keep nothing for long.

One interpreter serves the network and finds messages for bulk reads, or makes batches of them. A
read that somebody starts in the afternoon shall not hold up the messages that go in and out
meanwhile, so while the loop that serves the network has work, streams rest between their batches;
alone they are as fast as they can.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pyarrow as pa

from lanner.host.memory import return_memory

__all__ = ["cpu_of", "give_back", "giving_way", "keep"]

T = TypeVar("T")

# Ours: the part of a core from which on a loop is busy; with all that streams have others do, it
# does not get much more. One that uses a tenth of a core is hardly held up, so below that a rest
# goes with the square.
_BUSY = 0.4
_MAX_REST = 2.0  # seconds
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_KEPT_AT_FIRST = 256 << 10  # about what the C library does unasked
_SHORT = 1e-6  # seconds, of which no load can be told


def cpu_of(thread: int) -> Callable[[], float]:
    """What tells the seconds of CPU that a thread, which must be alive, has used."""
    clock = time.pthread_getcpuclockid(thread)
    return lambda: time.clock_gettime(clock)


def giving_way(
    batches: Iterable[T],
    cpu: Callable[[], float],
    rests: float,
    monotonic: Callable[[], float] = time.monotonic,
    own_cpu: Callable[[], float] = time.thread_time,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[T]:
    """The same batches, with rests between them, the longer the more of a core the loop uses; `cpu` tells the seconds that it has used.

    `rests`: how many times as long as it took to make a batch, by the CPU that it used: what it
    waits for others does not count.
    """
    remaining = iter(batches)
    looked, used = monotonic(), cpu()
    while True:
        began = own_cpu()
        try:
            batch = next(remaining)
        except StopIteration:
            return
        took = own_cpu() - began
        yield batch
        now, now_used = monotonic(), cpu()
        load = (now_used - used) / max(now - looked, _SHORT)
        looked, used = now, now_used
        sleep(min(rests * min(load / _BUSY, 1.0) ** 2 * took, _MAX_REST))


def give_back() -> None:
    """Return the memory of a stream that has ended to the system, and keep none: the allocators would have tens of megabytes for the next one."""
    keep(_KEPT_AT_FIRST)
    pa.default_memory_pool().release_unused()
    return_memory()


def keep(size: int) -> None:
    """Have this process keep about so much memory that it has freed, for what comes next.

    The C library gives the end of its heap back as soon as it is free, and each batch that comes
    over the network then begins with getting its pages from the system one by one: half of what it
    costs to read it.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc has it
        libc.mallopt(_M_TRIM_THRESHOLD, size)
        # What is larger than this is not in the heap.
        libc.mallopt(_M_MMAP_THRESHOLD, size // 2)
