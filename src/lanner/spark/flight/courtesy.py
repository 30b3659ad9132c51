"""Limits on the CPU and the memory that bulk reads take from message traffic.

One interpreter serves the network and makes the batches of bulk reads. A bulk read must not delay
messages. So streams rest between their batches while the event loop that serves the network has
work. On an idle queue manager they run at full speed.
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

# Not in the specification: the load of the loop, as a part of a core, that counts as busy. While
# streams take the rest of the interpreter, a loop does not get much more. A loop that uses a tenth
# of a core is hardly delayed, so below this value the rest is proportional to the square of the
# load.
_BUSY = 0.4
_MAX_REST = 2.0  # seconds
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_KEPT_AT_FIRST = 256 << 10  # about the default of the C library
_SHORT = 1e-6  # seconds; a load cannot be measured over less


def cpu_of(thread: int) -> Callable[[], float]:
    """Return a function that returns the CPU seconds of a thread. The thread must be alive."""
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
    """Yield the same batches with rests between them, which grow with the load of the loop.

    `cpu` returns the CPU seconds of the loop. At full load a rest is `rests` times the CPU time
    that making the batch took; waiting for others does not count.
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
    """Return the memory of the last stream to the system, and keep none.

    Otherwise the allocators would keep tens of megabytes for the next stream.
    """
    keep(_KEPT_AT_FIRST)
    pa.default_memory_pool().release_unused()
    return_memory()


def keep(size: int) -> None:
    """Make this process keep up to about `size` bytes of freed memory for reuse.

    By default the C library returns the free end of its heap at once. Each batch from the network
    then gets its pages from the system one by one, which is half of the cost of reading it.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc has it
        libc.mallopt(_M_TRIM_THRESHOLD, size)
        # Larger allocations are not in the heap.
        libc.mallopt(_M_MMAP_THRESHOLD, size // 2)
