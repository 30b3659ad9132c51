"""Threads for work that takes long, limited per user.

An event loop has few threads, and work that waits for one waits behind all others. So a user's work
queues here behind that user's earlier work, and does not delay other users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final, TypeVar

T = TypeVar("T")

# Not in the specification: work of one user that is done at the same time.
AT_ONCE: Final = 2


@dataclass(slots=True)
class _User:
    """A user with such work."""

    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    pieces: int = 0


class FairThreads:
    """The work of all users in one pool of threads. For one event loop."""

    def __init__(self, pool: Executor | None = None) -> None:
        """Use a pool, or the event loop's own."""
        self._pool = pool
        self._users: dict[Hashable, _User] = {}

    async def run(self, user: Hashable, work: Callable[[], T]) -> T:
        """Do a user's work in a thread, after the user's earlier work; None is not limited."""
        if user is None:
            return await self._begin(work)
        found = self._users.setdefault(user, _User())
        found.pieces += 1
        try:
            await found.room.acquire()
        except BaseException:
            self._forget(user, found)
            raise

        def ended(begun: asyncio.Future[T]) -> None:
            if not begun.cancelled():
                begun.exception()  # The caller may be gone.
            found.room.release()
            self._forget(user, found)

        begun = self._begin(work)
        begun.add_done_callback(ended)
        # A caller that gives up leaves the thread busy, so the work still counts as the user's.
        return await asyncio.shield(begun)

    def _forget(self, user: Hashable, found: _User) -> None:
        found.pieces -= 1
        if not found.pieces:
            del self._users[user]

    def _begin(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, work)
