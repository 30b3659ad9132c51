"""Requests that wait for the disk or for a processor, in threads: few of one user at a time.

The threads of an event loop are few, and what waits for one waits behind all others. So the
requests of a user wait here until those before them are done, and keep nobody else waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from lanner.wire.sid import Sid

T = TypeVar("T")

# Not in the specification: requests of one user that are done at a time.
_AT_ONCE: Final = 2


@dataclass(slots=True)
class _User:
    """Who has such requests."""

    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    requests: int = 0


class SlowRequests:
    """The requests of all users. One event loop."""

    def __init__(self) -> None:
        self._users: dict[Sid, _User] = {}

    async def run(self, sid: Sid, work: Callable[[], T]) -> T:
        """Do work of a user in a thread, behind what the user has asked for before."""
        user = self._users.setdefault(sid, _User())
        user.requests += 1
        try:
            async with user.room:
                return await asyncio.to_thread(work)
        finally:
            user.requests -= 1
            if not user.requests:
                del self._users[sid]
