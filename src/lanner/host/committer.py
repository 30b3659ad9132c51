"""The thread that syncs for an event loop, and the futures that wait for it.

What runs in a loop asks here, goes on, and its future resolves when the batch is durable. While one batch is
being synced the loop fills the next one; the futures of a batch resolve together.

A small batch is written by the loop itself, at the end of its turn, as long as the disk takes a fraction of a millisecond for it: to wake a thread, to let it
have the interpreter, and to be woken by it costs more, and whoever could use the time is mostly waiting for just this batch. A disk that becomes slow is
left to the thread from then on.
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
        """`written`: called in the loop when it has written a batch itself."""
        self._store = store
        self._written = written
        self._loop = loop
        self._create_future = loop.create_future
        self._loop_thread = threading.get_ident()
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}  # by the batch they wait for
        self._wanted = threading.Condition()
        self._highest = 0
        self._prepared = 0  # the newest batch whose record was made when it was asked for
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="lanner-committer", daemon=True)
        self._thread.start()

    def change(self) -> Change:
        """Return a change to make, and then to await."""
        return Change(self._store, self.ask, self)

    def durable(self, ticket: int) -> asyncio.Future[None]:
        """Resolves when the batch of that number is on disk."""
        # One future for each who waits: whoever goes away takes only its own along.
        future = self._create_future()
        waiting = self._waiting.get(ticket)
        if waiting is not None:
            # They are all told together, also if that is about to happen.
            waiting.append(future)
        elif ticket <= self._store.decided:
            self._tell(ticket, [future])
        else:
            self._waiting[ticket] = [future]
            # Not at once: whoever is ready to run in this turn of the loop comes into the same commit.
            self._loop.call_soon(self._write, ticket)
        return future

    def ask(self, ticket: int) -> None:
        """Have a batch written, without waiting for it; also for who has the store's lock, and from any thread."""
        store = self._store
        with store.lock:
            # The thread would have to win the lock and the interpreter for it, from a loop that has more to do.
            if store.prepare():
                self._prepared = ticket
        if threading.get_ident() == self._loop_thread:
            self._loop.call_soon(self._write, ticket)
        else:
            self._hand_over(ticket)

    def _write(self, ticket: int) -> None:
        is_written = False
        store = self._store
        try:
            if ticket > self._prepared:
                with store.lock:
                    store.prepare()
            is_written = store.sync_at_once()
        finally:
            decided = store.decided
            if ticket > decided:
                self._hand_over(ticket)
            # Another thread may have written the batch for itself at this moment; it notifies no future of this loop.
            if self._waiting:
                self._resolve(decided)
        if is_written and self._written is not None:
            self._written()

    def _hand_over(self, ticket: int) -> None:
        with self._wanted:
            if ticket > self._highest:
                self._highest = ticket
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
                _LOG.debug("batch %d was dropped; whoever waits for it is told", done)
            except Exception:  # noqa: BLE001 (logged; without this thread everybody would wait for ever)
                _LOG.exception("the commit of batch %d failed", done)
            self._loop.call_soon_threadsafe(self._resolve, done)

    def _resolve(self, ticket: int) -> None:
        for number in [number for number in self._waiting if number <= ticket]:
            # Each batch by itself: another thread may have led one of them, and that one may have failed alone.
            self._tell(number, self._waiting[number])
            del self._waiting[number]

    def _tell(self, ticket: int, waiting: list[asyncio.Future[None]]) -> None:
        error: LannerError | None = None
        try:
            self._store.sync(ticket)
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
        """Sync what was asked for, then end."""
        with self._wanted:
            self._is_closing = True
            self._wanted.notify()
        self._thread.join()
