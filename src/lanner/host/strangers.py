"""Connections of one listener without a logon, and which one to close when there is no room."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from lanner.host.budget import Newcomers

T = TypeVar("T")

# Not in the specification: seconds in which a connection can log on before others of its own peer
# replace it.
_TIME_TO_LOG_ON: Final = 10.0


class Strangers(Generic[T]):
    """Connections that exist only while no other needs the room. For one thread.

    A new connection replaces one of the peer with the most strangers, if that peer has more than
    the peer of the new one. So a few addresses cannot keep others out. Connections that have sent
    nothing are closed first, then the oldest. A new connection replaces another one of its own peer
    only if that one has sent nothing, or has had time to log on.
    """

    def __init__(self, is_known: Callable[[T], bool], monotonic: Callable[[], float] = time.monotonic) -> None:
        """Begin without connections.

        `is_known` returns whether a user has logged on through a connection since it was added, or
        whether it must stay for another reason.
        """
        self._is_known = is_known
        self._monotonic = monotonic
        self._since: dict[T, float] = {}
        self._all: Newcomers[T] = Newcomers(0)
        self._silent: Newcomers[T] = Newcomers(0)

    def add(self, one: T, peer: str) -> None:
        self._since[one] = self._monotonic()
        self._all.add(one, peer)
        self._silent.add(one, peer)

    def has_spoken(self, one: T) -> None:
        self._silent.remove(one)

    def remove(self, one: T) -> None:
        """Remove a connection that has logged on or ended. A second call is harmless."""
        self._since.pop(one, None)
        self._all.remove(one)
        self._silent.remove(one)

    def victim(self, peer: str, *, is_greedy: bool) -> T | None:
        """Return the connection to close for a new one of a peer.

        `is_greedy`: the peer has as many connections as one peer may have.
        """
        while not is_greedy:
            most = self._all.greatest
            if most is None or self._all.of(most) <= self._all.of(peer):
                break
            silent = self._silent.oldest(most)
            if silent is not None:
                return silent
            oldest = self._all.oldest(most)
            if oldest is None or not self._is_known(oldest):
                return oldest
            self.remove(oldest)
        silent = self._silent.oldest(peer)
        if silent is not None:
            return silent
        since = self._monotonic() - _TIME_TO_LOG_ON
        while (oldest := self._all.oldest(peer)) is not None and self._since[oldest] < since:
            if not self._is_known(oldest):
                return oldest
            self.remove(oldest)
        return None
