"""Locks: one process at a time on a data directory, one thread at a time on the store."""

from __future__ import annotations

import _thread
import fcntl
import os
import threading
import weakref
from pathlib import Path

from lanner.model.errors import ServiceNotAvailable, StoreLocked

__all__ = ["DirectoryLock", "StoreLock"]


class DirectoryLock:
    """Holds DIR/lock, until the process ends, however it ends; the file names the process for whoever comes second."""

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


class StoreLock(_thread.RLock):  # type: ignore[misc]  # final in the stubs, a base type in CPython
    """The store's lock: a reentrant lock in which a commit does not have to wait its turn for ever.

    A thread that takes the lock again at once after it let go of it always wins against one that must wake up first, so a busy
    engine would keep a commit out for tenths of a second. `urgent` closes a gate: whoever comes by `with` waits there
    until the commit has the lock.
    """

    # Whether this process was forked from the one that opened the store.
    is_foreign = False

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._is_wanted = False
        self._process = os.getpid()
        _locks.add(self)

    @property
    def is_mine(self) -> bool:
        """Whether this thread has the lock."""
        return bool(self._is_owned())  # type: ignore[attr-defined]  # not in the stubs

    def __enter__(self) -> bool:  # type: ignore[override]  # the stubs give it a parameter
        # Who has the lock already must not wait for someone who waits for it.
        if self._is_wanted and not self.is_mine:
            with self._gate:
                pass
        try:
            return self.acquire()
        except BaseException:
            # A signal handler may raise as soon as the lock is taken, before the `with` block is entered.
            if self.is_mine:
                self.release()
            raise

    def urgent(self, timeout: float = -1) -> _Urgent:
        """Take the lock before others; with a time limit go on without it, and say so, when that has passed."""
        return _Urgent(self, timeout)

    def acquire_before_others(self, timeout: float) -> bool:
        # At the gate too: who waits there before us may be waiting for somebody who waits for us.
        if not self._gate.acquire(timeout=timeout):
            return False
        try:
            self._is_wanted = True
            has_lock = self.acquire(timeout=timeout)
            self._is_wanted = False
        finally:
            self._gate.release()
        return has_lock


class _ForeignLock(StoreLock):  # type: ignore[misc]  # as above
    """The lock in a process that was forked from the store's own: nothing can be done with the store there.

    The parent goes on to write the same files, and a thread that held the lock does not exist here.
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
    # By class, so that locks pay nothing for it when they are taken.
    for lock in _locks:
        lock.__class__ = _ForeignLock


os.register_at_fork(after_in_child=_forked)


class _Urgent:
    """`with lock.urgent() as has_lock`; a class, because a generator costs three times as much and each commit needs two."""

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
