"""Background work that no caller waits for.

It raises the limits of counters and deletes the rows of dropped queues and stages.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import lmdb

from lanner.store.environment import Environment
from lanner.store.format import table_key
from lanner.store.queue_view import GARBAGE_QUEUE
from lanner.store.record import stored_reference
from lanner.store.staging import GARBAGE_STAGE

__all__ = ["Maintenance", "sweep_slice"]

_LOG = logging.getLogger(__name__)

_GARBAGE = table_key("garbage", b"")
# Not in the specification: seconds for which a slice of sweeping holds the lock, and the pause
# after it, in which other threads can use the disk.
_SLICE_SECONDS = 0.002
_PAUSE_SECONDS = 0.002
_RETRY_SECONDS = 1.0


class Maintenance:
    """A thread that sleeps until it is woken.

    `work` does one piece of work and returns whether there is more.
    """

    def __init__(self, work: Callable[[], bool]) -> None:
        self._work = work
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Have the work done soon. Needs the store's lock."""
        self._woken.set()
        if self._thread is None and not self._stopped.is_set():
            self._thread = threading.Thread(target=self._run, name="store-maintenance", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread. The caller must not hold the store's lock, for which it may wait."""
        self._stopped.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._woken.wait()
            self._woken.clear()
            pause = _PAUSE_SECONDS
            while not self._stopped.is_set():
                try:
                    if not self._work():
                        break
                    pause = _PAUSE_SECONDS
                except Exception:  # noqa: BLE001 (logged, and tried again)
                    # Most likely a full disk. The work remains and is retried later.
                    _LOG.exception("the store's maintenance failed and will be tried again")
                    pause = _RETRY_SECONDS
                self._stopped.wait(pause)


def sweep_slice(txn: lmdb.Transaction[memoryview], environment: Environment) -> bool:
    """Delete a slice of the rows of dropped queues and stages; return whether there were any."""
    deadline = time.perf_counter() + _SLICE_SECONDS
    garbage = txn.cursor(environment.tables)
    swept = False
    while time.perf_counter() < deadline and garbage.set_range(_GARBAGE):
        row = bytes(garbage.key())
        if not row.startswith(_GARBAGE):
            break
        swept = True
        if _sweep(txn, environment, row[len(_GARBAGE) :], deadline):
            txn.delete(row, db=environment.tables)
    return swept


def _sweep(txn: lmdb.Transaction[memoryview], environment: Environment, key: bytes, deadline: float) -> bool:
    """Sweep one dropped queue or stage; return whether nothing of it is left."""
    if key.startswith(b"s"):
        prefix = key[1 : GARBAGE_STAGE.size]
        return _delete_prefix(txn, environment.staged, prefix, deadline)
    prefix = key[1 : GARBAGE_QUEUE.size]
    cursor = txn.cursor(environment.messages)
    found = cursor.set_range(prefix)
    while found and bytes(cursor.key()[:8]) == prefix:
        if time.perf_counter() >= deadline:
            return False
        reference = stored_reference(cursor.value())
        if reference:
            txn.delete(reference, db=environment.staged)
        found = cursor.delete() and bool(cursor.key())
    return _delete_prefix(txn, environment.visible, prefix, deadline)


def _delete_prefix(txn: lmdb.Transaction[memoryview], db: lmdb._Database, prefix: bytes, deadline: float) -> bool:
    cursor = txn.cursor(db)
    found = cursor.set_range(prefix)
    while found and bytes(cursor.key()[: len(prefix)]) == prefix:
        if time.perf_counter() >= deadline:
            return False
        found = cursor.delete() and bool(cursor.key())
    return True
