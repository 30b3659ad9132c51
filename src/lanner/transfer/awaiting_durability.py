"""Received messages that are not durable yet.

They are acknowledged when their batch of the store is durable (MS-MQQB 3.1.5.8.7).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lanner.store import Store
    from lanner.transfer.link import Link
    from lanner.transfer.turns import Turns


class AwaitingDurability:
    """The message number up to which each link may acknowledge once a batch is durable.

    The caller holds the store's lock. `close` ends a session for a reason. `on_error` is called in
    an exception handler with the link for which the error was raised.
    """

    def __init__(
        self,
        store: Store,
        turns: Turns,
        close: Callable[[Link, str], None],
        on_error: Callable[[Link | None], None],
    ) -> None:
        self._store = store
        self._turns = turns
        self._close = close
        self._on_error = on_error
        self.waiting: deque[tuple[int, Link, int]] = deque()  # batch, link, message number
        self._failed_batches: set[int] = set()

    def processed(self, link: Link, number: int) -> None:
        """Note that all messages of a link up to this number are in the engine, or refused."""
        # A batch number instead of a change, because a turn never waits.
        batch = self._store.pending_batch()
        if batch:
            self.waiting.append((batch, link, number))
            self._turns.want_sync(batch)
        else:
            self._release(link, number)

    def failed(self, batch: int) -> None:
        """Note that a batch could not be written. May be called by any thread."""
        if self.waiting:
            self._failed_batches.add(batch)

    def release_durable(self) -> None:
        """Allow acknowledgment of what is durable; end sessions whose messages were dropped."""
        synced = self._store.synced
        waiting = self.waiting
        while waiting:
            batch, link, number = waiting[0]
            if batch in self._failed_batches:
                waiting.popleft()
                self._close(link, "the store could not be written")
            elif batch <= synced:
                waiting.popleft()
                self._release(link, number)
            else:
                return
        self._failed_batches.clear()

    def _release(self, link: Link, number: int) -> None:
        if not link.session.is_closed:
            try:
                link.release(number)
            except Exception:  # noqa: BLE001 (logged)
                self._on_error(link)
            self._turns.mark_dirty(link)
