"""Locks: one process at a time on a data directory, one thread at a time in the store."""

from __future__ import annotations

import _thread
import fcntl
import os
import threading
import weakref
from pathlib import Path
from typing import Final

from lanner.model.errors import ServiceNotAvailable, StoreLocked
from lanner.store.data_directory import open_own

__all__ = ["DirectoryLock", "StoreLock"]


class DirectoryLock:
    """The lock on DIR/lock, held until the process ends, however it ends.

    The file contains the process id, which another process reports when it cannot take the lock.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / "lock"
        self._file = open_own(path, os.O_RDWR | os.O_CREAT)
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


class StoreLock(_thread.RLock):  # type: ignore[misc]  # final in the stubs, a base type in CPython
    """The store's lock: a reentrant lock that lets a commit go before other threads.

    A thread that releases the lock and takes it again at once always wins against a thread that
    must wake up first. A busy engine would therefore delay a commit by tenths of a second.
    `before_others` and `urgent` close a gate: threads that enter with `with` wait there until the
    commit has the lock.
    """

    # Whether this process was forked from the one that opened the store.
    is_foreign = False

    def __init__(self) -> None:
        # `with lock.before_others`: take the lock before the threads that use `with lock`.
        self.before_others: Final = _BeforeOthers(self)
        self.gate = threading.Lock()
        self.is_wanted = False
        self._process = os.getpid()
        _locks.add(self)

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread holds the lock."""
        return bool(self._is_owned())  # type: ignore[attr-defined]  # not in the stubs

    def __enter__(self) -> bool:  # type: ignore[override]  # the stubs give it a parameter
        # The holder must not wait at the gate for a thread that waits for the lock.
        if self.is_wanted and not self.is_mine:
            with self.gate:
                pass
        try:
            return self.acquire()
        except BaseException:
            # A signal handler may raise after the lock is taken and before the `with` block begins.
            if self.is_mine:
                self.release()
            raise

    def urgent(self, timeout: float) -> _Urgent:
        """Take the lock before others: `with lock.urgent(timeout) as has_lock`.

        After `timeout` seconds the block runs without the lock and `has_lock` is false.
        """
        return _Urgent(self, timeout)

    def acquire_before_others(self, timeout: float) -> bool:
        # The time limit holds for the gate too: the thread that has closed it may be waiting for a
        # thread that waits for this one.
        if not self.gate.acquire(timeout=timeout):
            return False
        try:
            self.is_wanted = True
            has_lock = self.acquire(timeout=timeout)
            self.is_wanted = False
        finally:
            self.gate.release()
        return has_lock


class _ForeignLock(StoreLock):  # type: ignore[misc]  # as above
    """The lock in a process forked from the store's own process, where the store is unusable.

    The parent continues to write the same files, and a thread that held the lock does not exist in
    the child.
    """

    is_foreign = True

    def _refuse(self, *_: object, **__: object) -> bool:
        raise ServiceNotAvailable(
            f"this queue manager runs in process {self._process}, and process {os.getpid()}, which was forked from it, "
            "cannot use it: connect to it instead"
        )

    __enter__ = acquire = acquire_before_others = _refuse


_locks: weakref.WeakSet[StoreLock] = weakref.WeakSet()


def _forked() -> None:
    # The class is replaced, so that taking the lock costs nothing extra.
    for lock in _locks:
        lock.__class__ = _ForeignLock
        # The old gate may have been held by a thread that does not exist in this process.
        lock.gate = threading.Lock()


os.register_at_fork(after_in_child=_forked)


class _BeforeOthers:
    """The context manager `StoreLock.before_others`.

    It has no state of its own, so one object serves all threads.
    """

    __slots__ = ("_lock",)

    def __init__(self, lock: StoreLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        lock = self._lock
        # The lock is usually free, and then there is no thread to go before.
        if lock.acquire(blocking=False):
            return
        with lock.gate:
            lock.is_wanted = True
            lock.acquire()
            lock.is_wanted = False

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _Urgent:
    """The context manager that `StoreLock.urgent` returns."""

    __slots__ = ("_has_lock", "_lock", "_timeout")

    def __init__(self, lock: StoreLock, timeout: float) -> None:
        self._lock = lock
        self._timeout = timeout

    def __enter__(self) -> bool:
        self._has_lock = self._lock.acquire_before_others(self._timeout)
        return self._has_lock

    def __exit__(self, *_: object) -> None:
        if self._has_lock:
            self._lock.release()
