"""Disk space allocated ahead of use, so that a full disk is noticed before a commit needs room.

The database file always extends beyond its last used page by a reserve of allocated disk blocks.
When the reserve cannot be kept, sends are refused. Deletes continue and use the reserve, so a full
queue manager can still be emptied. Emptying a store copies at most the pages that it has. Therefore
a small store keeps a small reserve, which grows with the store.
"""

from __future__ import annotations

import logging
import os
import time

from lanner.store.data_directory import open_own
from lanner.store.environment import Environment

__all__ = ["Allocation"]

_LOG = logging.getLogger(__name__)

# Not in the specification: seconds between two attempts to allocate room on a full disk.
_RETRY_SECONDS = 1.0
# Not in the specification: the file grows by an eighth, within these limits in bytes, so that a
# large file is not extended at each commit.
_MIN_STEP = 1 << 20
_MAX_STEP = 128 << 20


class Allocation:
    def __init__(self, environment: Environment, map_size: int, reserve: int) -> None:
        self._path = environment.data_file
        self._environment = environment
        self._map_size = map_size
        self._reserve = reserve
        self._file = open_own(self._path, os.O_RDWR)
        self._allocated = 0
        self._logged = 0  # bytes that the next checkpoint will add to the database
        self._since_look = 0  # bytes written since the last `ensure`
        self._refuses = False
        self._is_full = False
        self._retry_at = 0.0
        self.ensure()

    def close(self) -> None:
        os.close(self._file)

    @property
    def is_full(self) -> bool:
        """Whether the disk had no room at the last attempt; the reserve may still be complete."""
        return self._is_full

    @property
    def refuses_sends(self) -> bool:
        """Whether new messages must be refused. Retries a full disk about once a second."""
        if self._refuses and time.monotonic() >= self._retry_at:
            self.ensure()
        return self._refuses

    def logged(self, size: int) -> None:
        """Add to the approximate size of the next checkpoint and keep room for it.

        Needs the locks that `wrote` needs.
        """
        self._logged += size
        self.wrote(size)

    def checkpointed(self, size: int) -> None:
        """Release the room kept for a checkpoint that was written; `size` as passed to `logged`."""
        self._logged -= size
        self.ensure()

    def wrote(self, size: int) -> None:
        """Add to the bytes written, and check the reserve when it may have become too small.

        Needs the commit lock and the store's lock, so that no other thread writes to the file
        meanwhile.
        """
        self._since_look += size
        if self._is_full or self._since_look * 4 >= self._reserve:
            self.ensure()

    def ensure(self) -> None:
        """Allocate the reserve beyond the last used page, or refuse sends from now on.

        Needs the store's lock.
        """
        self._since_look = 0
        used = self._environment.used() + self._logged
        reserve = min(self._reserve, max(used, _MIN_STEP))
        has_room = self._allocated >= used + reserve
        if self._is_full or not has_room:
            has_room = (time.monotonic() >= self._retry_at and self._extend(used, reserve)) or has_room
        if has_room:
            self._set_refuses(False)
        else:
            # Deleted rows leave free pages inside the file, which are as good as room at its end.
            self._set_refuses(self._allocated - self._environment.live() - self._logged < reserve)

    def _extend(self, used: int, reserve: int) -> bool:
        needed = max(used + reserve, self._allocated)
        for target in (needed + min(max(used // 8, _MIN_STEP), _MAX_STEP), needed):
            if target <= self._map_size:
                try:
                    os.posix_fallocate(self._file, self._allocated, target - self._allocated)
                except OSError:
                    continue
                self._allocated = target
                self._is_full = False
                return True
        self._is_full = True
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        return False

    def _set_refuses(self, refuses: bool) -> None:
        if refuses and not self._refuses:
            _LOG.error(
                "%s: no room to keep %d bytes in reserve: sends are refused, receives continue",
                self._path,
                self._reserve,
            )
        elif self._refuses and not refuses:
            _LOG.warning("%s: there is room again: sends are accepted", self._path)
        self._refuses = refuses
