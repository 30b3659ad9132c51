"""Keeping the map out of the process's memory.

LMDB reads its file through a map, and each page read that way counts as memory of the process until
it is unmapped, though the kernel could take it back at any time. Unmapping costs little (the data
stay in the page cache), so it is done every few megabytes.
"""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

__all__ = ["MapTrimmer"]

# Ours: how much of the file may be read before its pages are given back. The kernel maps 16 pages
# around each one that is touched, so the memory is up to this many bytes and the sixteenfold of
# what is read here and there.
_TRIM_EVERY = 4 << 20

_MADV_DONTNEED = 4


class MapTrimmer:
    """Counts what is read through the map of one file, and unmaps its pages from time to time."""

    __slots__ = ("_lock", "_path", "_region", "_touched")

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._path = str(path.resolve())
        self._region = self._find_region()
        self._touched = 0

    def touch(self, size: int) -> None:
        """Note that about `size` bytes were read.

        A lost update between two threads does no harm.
        """
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
        """Unmap no more: the map is about to go, and its addresses will be someone else's."""
        with self._lock:
            self._region = None

    def _find_region(self) -> tuple[int, int] | None:
        try:
            maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None  # not Linux: the kernel's own judgement has to do
        for line in maps.splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and fields[5] == self._path:
                start, end = (int(part, 16) for part in fields[0].split("-"))
                return start, end - start
        return None
