"""Threads for requests that need a disk or much processor time, limited per user.

An event loop has few threads, and work that waits for one waits behind all others. So a user's
requests queue here behind that user's earlier ones, and do not delay other users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from lanner.wire.sid import Sid

T = TypeVar("T")

# Not in the specification: the maximum number of requests of one user that run at the same time.
_AT_ONCE: Final = 2


@dataclass(slots=True)
class _User:
    """A user with slow requests."""

    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    requests: int = 0


class SlowRequests:
    """The slow requests of all users, in one event loop."""

    def __init__(self) -> None:
        self._users: dict[Sid, _User] = {}

    async def run(self, sid: Sid, work: Callable[[], T]) -> T:
        """Run a user's work in a thread, after the user's earlier requests."""
        user = self._users.setdefault(sid, _User())
        user.requests += 1
        try:
            async with user.room:
                return await asyncio.to_thread(work)
        finally:
            user.requests -= 1
            if not user.requests:
                del self._users[sid]
