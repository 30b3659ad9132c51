"""Reads of many objects of the directory, in a thread of the caller.

The engine waits for the directory with the store's lock held, which is right for one object. A
search through a domain with thousands of queues would stop all messages for many seconds.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lanner.directory import Directory
    from lanner.engine import Engine


@contextmanager
def read_apart(engine: Engine) -> Iterator[Directory]:
    """Return the directory to read from; with the store's lock held only if it is in the store."""
    apart = engine.directory.apart()
    if apart is not None:
        yield apart
        return
    with engine.store.lock:
        yield engine.directory
