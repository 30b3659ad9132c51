"""Memory that was freed, back to the system."""

from __future__ import annotations

import ctypes


def return_memory() -> None:
    """Have the C library return what it has free: it would keep tens of megabytes for the next time."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # glibc has it
        libc.malloc_trim(0)
