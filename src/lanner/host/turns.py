"""Turns of the event loop, which the connections of one user share.

A connection stops after a time and lets the others continue. A user with many connections would
still have as many of these times in each turn of the loop. So all connections of a user together
have one, and those that have not had theirs wait for the next turn, in the order in which they
came.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

# The seconds after which the connections of other users get their turn, however much waits.
TURN: Final = 0.02
# Not in the specification: the number of users whose time is remembered.
_MAX_USERS: Final = 10_000


class Turns:
    """The time that each user has had in the current turn, and who waits for the next one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._spent: dict[str, float] = {}
        self._waiting: dict[str, deque[Callable[[], object]]] = {}
        self._is_scheduled = False

    def has_time(self, user: str) -> bool:
        """Return whether a connection of a user may continue in this turn."""
        return self._spent.get(user, 0.0) < TURN

    def spend(self, user: str, seconds: float) -> None:
        """Count time of a user.

        The count continues over turns in which no user has to wait, because their length does not
        matter. It is reset at the end of a turn in which some user had to wait.
        """
        if len(self._spent) >= _MAX_USERS:
            self._spent.clear()
        self._spent[user] = self._spent.get(user, 0.0) + seconds

    def wait(self, user: str, go_on: Callable[[], object]) -> None:
        """Have a connection of a user continue in a later turn."""
        self._waiting.setdefault(user, deque()).append(go_on)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._is_scheduled = False
        self._spent.clear()
        waiting, self._waiting = self._waiting, {}
        for user, connections in waiting.items():
            while connections and self.has_time(user):
                connections.popleft()()
            # Those that are left come before those that wait again.
            connections.extend(self._waiting.pop(user, ()))
            if connections:
                self._waiting[user] = connections
        if self._waiting:
            self._schedule()


_of_loop: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Turns]] = WeakKeyDictionary()


def turns_of_loop() -> Turns:
    """Return the turns of the running event loop."""
    loop = asyncio.get_running_loop()
    turns = _of_loop.get(loop)
    if turns is None:
        turns = _of_loop[loop] = Turns(loop)
    return turns
