"""The thread that syncs batches for an event loop, and the futures that wait for them.

A coroutine requests a batch and gets a future, which resolves when the batch is durable. While one
batch is being synced, the loop fills the next one. The futures of a batch resolve together.

The loop writes a small batch itself, at the end of its iteration, while the disk takes a fraction
of a millisecond for it. Waking a thread, passing it the interpreter lock and being woken by it
costs more, and most coroutines are waiting for this batch anyway. When the disk becomes slow, the
thread takes over.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from lanner.host.change import Change
from lanner.model.errors import LannerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.store.store import Store

_LOG = logging.getLogger(__name__)


class Committer:
    """The thread that syncs, and the futures that wait for it."""

    def __init__(
        self, store: Store, loop: asyncio.AbstractEventLoop, written: Callable[[], None] | None = None
    ) -> None:
        """Start the thread. The loop calls `written` after it has written a batch itself."""
        self._store = store
        self._written = written
        self._loop = loop
        self._create_future = loop.create_future
        self._loop_thread = threading.get_ident()
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}  # by the batch they wait for
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
        waiting = self._waiting.get(batch)
        if waiting is not None:
            # All futures of a batch resolve together, even if the batch is about to be resolved.
            waiting.append(future)
        elif batch <= self._store.decided:
            self._resolve_batch(batch, [future])
        else:
            self._waiting[batch] = [future]
            # Scheduled, so that callbacks that are ready in this iteration join the same commit.
            self._loop.call_soon(self._write, batch)
        return future

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
            # Another thread may have written the batch for itself; it does not resolve these
            # futures.
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
            except Exception:  # noqa: BLE001 (logged; without this thread every future would stay pending)
                _LOG.exception("the commit of batch %d failed", done)
            self._loop.call_soon_threadsafe(self._resolve, done)

    def _resolve(self, batch: int) -> None:
        for number in [number for number in self._waiting if number <= batch]:
            # Resolved one by one: another thread may have led one of these batches, and only that
            # one may have failed.
            self._resolve_batch(number, self._waiting[number])
            del self._waiting[number]

    def _resolve_batch(self, batch: int, waiting: list[asyncio.Future[None]]) -> None:
        error: LannerError | None = None
        try:
            self._store.sync(batch)
        except LannerError as caught:
            error = caught
        for future in waiting:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    def close(self) -> None:
        """Sync the requested batches, then stop the thread."""
        with self._wanted:
            self._is_closing = True
            self._wanted.notify()
        self._thread.join()
