"""Wake-up of ended reads and of slices of long work, a few at a time.

A message ends every peek that waits for it. Each of them is answered with all octets of the
message, which takes time and memory. If all were woken in one turn of the event loop, every other
client would wait for all of them, and the loop could not check whether earlier answers have been
sent.

Likewise, a search of a deep queue is done in slices, and a client may ask for many searches at a
time. If each of them did a slice in each turn, the turn would be as long as all of these slices.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final
from weakref import WeakKeyDictionary

# Not in the specification: waits that are woken in one turn, and octets of messages after which no
# further one is woken in that turn.
_MOST: Final = 16
_OCTETS: Final = 0x1_0000


class _Waking:
    """The ended waits of one event loop, by user. For one thread."""

    def __init__(self) -> None:
        # The user whose turn is next comes first.
        self._ended: dict[bytes, deque[tuple[asyncio.Future[None], int]]] = {}
        # How many waits and octets this turn may still wake.
        self._count, self._octets = _MOST, _OCTETS
        self._has_turn = False

    def add(self, ended: asyncio.Future[None], user: bytes, size: int) -> None:
        self._ended.setdefault(user, deque()).append((ended, size))
        self._wake()
        if not self._has_turn:
            self._has_turn = True
            ended.get_loop().call_soon(self._turn, ended.get_loop())

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin a turn: the callers woken in the turn before have run, and so have others."""
        self._count, self._octets = _MOST, _OCTETS
        self._has_turn = bool(self._ended)
        if self._has_turn:
            loop.call_soon(self._turn, loop)
        self._wake()

    def _wake(self) -> None:
        while self._ended and self._count > 0 and self._octets > 0:
            user = next(iter(self._ended))
            waits = self._ended.pop(user)
            ended, size = waits.popleft()
            if waits:
                self._ended[user] = waits
            if not ended.done():
                ended.set_result(None)
                self._count -= 1
                self._octets -= size


_of_loop: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Waking]] = WeakKeyDictionary()


def wake(ended: asyncio.Future[None], user: bytes, size: int) -> None:
    """Set the result of a future of the running loop, now or soon.

    `user` is the user who waits; users take turns. `size` is the number of octets in the answer.
    """
    loop = ended.get_loop()
    waking = _of_loop.get(loop)
    if waking is None:
        waking = _of_loop[loop] = _Waking()
    waking.add(ended, user, size)


async def turn(user: bytes) -> None:
    """Wait until the next slice of a user's long work may run.

    There is one slice in a turn of the event loop, for all users together.
    """
    begun = asyncio.get_running_loop().create_future()
    wake(begun, user, _OCTETS)
    await begun
