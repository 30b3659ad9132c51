"""Connections of one listener that nobody has logged on through, and which of them goes when there is no room for a new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from lanner.host.budget import Newcomers

T = TypeVar("T")


class Strangers(Generic[T]):
    """They are there only while nobody else needs the room. One thread.

    A new connection takes the place of one of the peer that has most strangers, if that are more
    than the new one's peer has: so a few addresses keep nobody out. First goes who has said
    nothing, then who came first. Of its own peer only those go that have said nothing.
    """

    def __init__(self, is_known: Callable[[T], bool]) -> None:
        """`is_known`: whether somebody has logged on through a connection since it was added, or it has to stay for another reason."""
        self._is_known = is_known
        self._all: Newcomers[T] = Newcomers(0)
        self._silent: Newcomers[T] = Newcomers(0)

    def add(self, one: T, peer: str) -> None:
        self._all.add(one, peer)
        self._silent.add(one, peer)

    def has_spoken(self, one: T) -> None:
        self._silent.remove(one)

    def remove(self, one: T) -> None:
        """It has logged on, or has gone; a second time is harmless."""
        self._all.remove(one)
        self._silent.remove(one)

    def victim(self, peer: str, *, is_greedy: bool) -> T | None:
        """Who has to go for a new connection of a peer.

        `is_greedy`: it has as many as one peer may have.
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
        return self._silent.oldest(peer)
