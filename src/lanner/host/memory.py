"""Return of freed memory to the system."""

from __future__ import annotations

import ctypes


def return_memory() -> None:
    """Have the C library return its free memory; otherwise it keeps tens of megabytes for reuse."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # glibc has it
        libc.malloc_trim(0)
