"""Limits on the resident memory that LMDB's map takes.

LMDB reads its file through a memory map. Each page read that way counts as memory of the process
until it is unmapped, although the kernel could reclaim it at any time. Unmapping is cheap, because
the data stay in the page cache, so it is done every few megabytes.
"""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

__all__ = ["MapTrimmer"]

# Not in the specification: bytes of the file read before its pages are unmapped. The kernel maps 16
# pages around each page that is touched. So the memory is this many bytes plus up to sixteen times
# the bytes of scattered reads.
_TRIM_EVERY = 4 << 20

_MADV_DONTNEED = 4


class MapTrimmer:
    """A counter of the bytes read through the map of one file, which unmaps its pages regularly."""

    __slots__ = ("_lock", "_path", "_region", "_touched")

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._path = str(path.resolve())
        self._region = self._find_region()
        self._touched = 0

    def touch(self, size: int) -> None:
        """Note that about `size` bytes were read. A lost update between threads is harmless."""
        self._touched += size
        if self._touched >= _TRIM_EVERY:
            self._touched = 0
            self.trim()

    def trim(self) -> None:
        with self._lock:
            if self._region is not None:
                start, size = self._region
                ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _MADV_DONTNEED)

    def stop(self) -> None:
        """Stop unmapping: the map is about to be closed, and its addresses may be reused."""
        with self._lock:
            self._region = None

    def _find_region(self) -> tuple[int, int] | None:
        try:
            maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None  # not Linux: the kernel decides by itself
        for line in maps.splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and fields[5] == self._path:
                start, end = (int(part, 16) for part in fields[0].split("-"))
                return start, end - start
        return None
