"""One process at a time: a lock on the data directory that ends with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from lanner.model.errors import StoreLocked

__all__ = ["DirectoryLock"]


class DirectoryLock:
    """Holds DIR/lock; the file names the process for whoever comes second."""

    def __init__(self, directory: Path) -> None:
        path = directory / "lock"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            raise StoreLocked(
                f"{directory} is open in process {holder}: stop that process, or give this one another data directory"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        os.close(self._file)
