"""A limit on the open objects of each user, on all connections together.

Open objects are sessions and what is open in them. Each session and each association has a limit of
its own. Without a limit per user, many connections together could still fill the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from lanner.model.errors import InsufficientResources

if TYPE_CHECKING:
    from lanner.security.identity import Identity
    from lanner.wire.sid import Sid

# Not in the specification: sessions, queues, cursors, reads and transactions of one user.
MAX_OPEN_OF_USER: Final = 100_000


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

    def count(self, session: CountedSession) -> None:
        opened = 1 + session.opened
        self.total += opened - self.counts.get(session, 0)
        self.counts[session] = opened


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
        for one in user.counts:
            user.count(one)
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
