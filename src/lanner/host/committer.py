"""The thread that syncs batches for an event loop, and the callbacks that wait for them.

A batch is requested with a callback, or with a future for a coroutine. While one batch is being
synced, the loop fills the next one. The callbacks of a batch are called together, from the turn of
the loop that wrote it.

The loop writes a small batch itself, at the end of its iteration, while the disk takes a fraction
of a millisecond for it. Waking a thread, passing it the interpreter lock and being woken by it
costs more, and most coroutines are waiting for this batch anyway. When the disk becomes slow, the
thread takes over.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

from lanner.host.change import Change
from lanner.model.errors import LannerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.store.store import Store

_LOG = logging.getLogger(__name__)


class Committer:
    """The thread that syncs, and the callbacks that wait for it."""

    def __init__(
        self, store: Store, loop: asyncio.AbstractEventLoop, written: Callable[[], None] | None = None
    ) -> None:
        """Start the thread. The loop calls `written` after it has written a batch itself."""
        self._store = store
        self._written = written
        self._loop = loop
        self._create_future = loop.create_future
        self._loop_thread = threading.get_ident()
        # By the batch that they wait for.
        self._waiting: dict[int, list[Callable[[LannerError | None], None]]] = {}
        self._wanted = threading.Condition()
        self._highest = 0
        self._prepared = 0  # the newest batch whose record was made when it was requested
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="lanner-committer", daemon=True)
        self._thread.start()

    def change(self) -> Change:
        """Return a change to make, and then to await."""
        return Change(self._store, self.ask, self)

    def durable(self, batch: int) -> asyncio.Future[None]:
        """Return a future that resolves when the batch with this number is on disk."""
        # One future per waiting coroutine, so that cancelling one does not affect the others.
        future = self._create_future()
        callback = partial(_finish, future)
        if not self._wait(batch, callback):
            callback(self._outcome(batch))
        return future

    def when_durable(self, batch: int, callback: Callable[[LannerError | None], None]) -> None:
        """Call back from the loop when the batch is on disk, with the error if it was dropped."""
        if not self._wait(batch, callback):
            self._loop.call_soon(callback, self._outcome(batch))

    def _wait(self, batch: int, callback: Callable[[LannerError | None], None]) -> bool:
        """Keep a callback for a batch; return False if the batch has been decided already."""
        waiting = self._waiting.get(batch)
        if waiting is not None:
            # All callbacks of a batch are called together, even if that is about to happen.
            waiting.append(callback)
            return True
        if batch <= self._store.decided:
            return False
        self._waiting[batch] = [callback]
        # Scheduled, so that callbacks that are ready in this iteration join the same commit.
        self._loop.call_soon(self._write, batch)
        return True

    def ask(self, batch: int) -> None:
        """Have a batch written without waiting for it.

        Any thread may call this, also with the store's lock held.
        """
        store = self._store
        with store.lock:
            # Prepared here, because the thread would have to wait for the lock and the interpreter
            # lock.
            if store.prepare():
                self._prepared = batch
        if threading.get_ident() == self._loop_thread:
            self._loop.call_soon(self._write, batch)
        else:
            self._hand_over(batch)

    def _write(self, batch: int) -> None:
        is_written = False
        store = self._store
        try:
            if batch > self._prepared:
                with store.lock:
                    store.prepare()
            is_written = store.sync_at_once()
        finally:
            decided = store.decided
            if batch > decided:
                self._hand_over(batch)
            # Another thread may have written the batch for itself; it does not call these back.
            if self._waiting:
                self._resolve(decided)
        if is_written and self._written is not None:
            self._written()

    def _hand_over(self, batch: int) -> None:
        with self._wanted:
            if batch > self._highest:
                self._highest = batch
                self._wanted.notify()

    def _run(self) -> None:
        done = 0
        while True:
            with self._wanted:
                while self._highest <= done and not self._is_closing:
                    self._wanted.wait()
                if self._highest <= done:
                    return
                done = self._highest
            try:
                self._store.sync(done)
            except LannerError:
                _LOG.debug("batch %d was dropped; every waiting coroutine gets the error", done)
            except Exception:  # noqa: BLE001 (logged; without this thread nothing would be called back)
                _LOG.exception("the commit of batch %d failed", done)
            self._loop.call_soon_threadsafe(self._resolve, done)

    def _resolve(self, batch: int) -> None:
        for number in [number for number in self._waiting if number <= batch]:
            # Resolved one by one: another thread may have led one of these batches, and only that
            # one may have failed.
            error = self._outcome(number)
            for callback in self._waiting.pop(number):
                try:
                    callback(error)
                except Exception:  # noqa: BLE001 (logged; the others must be called too)
                    _LOG.exception("a callback for batch %d failed", number)

    def _outcome(self, batch: int) -> LannerError | None:
        try:
            self._store.sync(batch)
        except LannerError as error:
            return error
        return None

    def close(self) -> None:
        """Sync the requested batches, then stop the thread."""
        with self._wanted:
            self._is_closing = True
            self._wanted.notify()
        self._thread.join()


def _finish(future: asyncio.Future[None], error: LannerError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
