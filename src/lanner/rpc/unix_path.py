"""Paths of Unix sockets that may be longer than a socket address."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["short_path"]


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[Path]:
    """Yield another path to the same place that fits into a socket address.

    A socket address has room for 107 bytes, and the path of a data directory may be longer.
    """
    opened = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield Path(f"/proc/self/fd/{opened}/{path.name}")
    finally:
        os.close(opened)
