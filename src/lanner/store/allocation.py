"""Room on the disk: allocated ahead of use, so that a full disk is seen before a commit needs the room.

The file is kept longer than its last used page by a reserve that is really allocated. When the
reserve can be extended no more, sends are refused while deletes go on inside it: a full queue
manager can still be emptied. Emptying a store copies at most the pages it has, so a small store
keeps a small reserve, which grows with it.
"""

from __future__ import annotations

import logging
import os
import time

from lanner.store.data_directory import open_own
from lanner.store.environment import Environment

__all__ = ["Allocation"]

_LOG = logging.getLogger(__name__)

# Ours: how often a full disk is asked again.
_RETRY_SECONDS = 1.0
# Ours: a file grows by an eighth, within these limits, so that a big one is not extended at each
# commit.
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
        self._logged = 0  # bytes that the next checkpoint will take in the database
        self._since_look = 0  # bytes written since `ensure`
        self._refuses = False
        self._is_full = False
        self._retry_at = 0.0
        self.ensure()

    def close(self) -> None:
        os.close(self._file)

    @property
    def is_full(self) -> bool:
        """Whether the disk had no more room when it was last asked; perhaps there still is what there must be."""
        return self._is_full

    @property
    def refuses_sends(self) -> bool:
        """Whether new messages must be refused; asks the disk again about once a second."""
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
        """Release the room of a checkpoint that was written, of `size` as given to `logged`."""
        self._logged -= size
        self.ensure()

    def wrote(self, size: int) -> None:
        """Note about how much a commit wrote; the file is looked at when that may matter for the reserve.

        Needs the commit lock and the store's lock: nobody else writes to the file meanwhile.
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
            # What was deleted leaves pages inside the file, and they are as good as room behind it.
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
                "%s: no room to keep %d bytes in reserve: sends are refused, receives go on", self._path, self._reserve
            )
        elif self._refuses and not refuses:
            _LOG.warning("%s: there is room again: sends are accepted", self._path)
        self._refuses = refuses
