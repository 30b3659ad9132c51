"""A limit on the open objects of each user, on all connections together.

Open objects are sessions and what is open in them. Each session and each association has a limit of
its own. Without a limit per user, many connections together could still fill the memory.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

from lanner.model.errors import InsufficientResources

if TYPE_CHECKING:
    from lanner.security.identity import Identity
    from lanner.wire.sid import Sid

# Not in the specification: sessions, queues, cursors, reads and transactions of one user.
MAX_OPEN_OF_USER: Final = 100_000
# Not in the specification: how many sessions are counted at any time, and how many times as long as
# a count of more of them nothing is counted after it.
_FEW: Final = 64
_REST: Final = 20


class CountedSession(Protocol):
    """A session that is counted."""

    @property
    def opened(self) -> int:
        """What is open in it."""


class _User:
    def __init__(self) -> None:
        # What each session had when it was last counted.
        self.counts: dict[CountedSession, int] = {}
        self.total = 0
        # The time at which all of them may be counted again.
        self.next_count = 0.0

    def count(self, session: CountedSession) -> None:
        opened = 1 + session.opened
        self.total += opened - self.counts.get(session, 0)
        self.counts[session] = opened

    def count_all(self) -> None:
        """Count all sessions again, unless that was done a moment ago and took long.

        A user may have thousands of sessions, and be refused thousands of times in a turn.
        """
        begun = time.monotonic()
        if len(self.counts) > _FEW and begun < self.next_count:
            return
        for one in self.counts:
            self.count(one)
        now = time.monotonic()
        self.next_count = now + _REST * (now - begun)


class OpenObjects:
    """The counts of all users but administrators. For one event loop."""

    def __init__(self) -> None:
        self._users: dict[Sid, _User] = {}

    def require_room(self, identity: Identity, session: CountedSession) -> None:
        """Count a session, and raise InsufficientResources if its user has too much open."""
        if identity.is_administrator:
            return
        user = self._users.setdefault(identity.sid, _User())
        user.count(session)
        if user.total < MAX_OPEN_OF_USER:
            return
        # The others may have closed something since they were counted.
        user.count_all()
        if user.total >= MAX_OPEN_OF_USER:
            raise InsufficientResources(
                f"{identity.name} has {user.total} sessions, queues, cursors, reads and transactions open, on all "
                "connections together: close some"
            )

    def closed(self, identity: Identity, session: CountedSession) -> None:
        """Stop counting a session."""
        user = self._users.get(identity.sid)
        if user is not None:
            user.total -= user.counts.pop(session, 0)
            if not user.counts:
                del self._users[identity.sid]
