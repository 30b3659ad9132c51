"""Rate limit on wrong guesses of queue handles.

MS-MQQP 2.1 and MS-MQMP 3.1.4.2 identify an open queue by a 32-bit number alone, for any caller at
any address. With many queues open, a client that tries all numbers would find a valid one within an
hour.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from lanner.security.log_lines import log_of_peer
from lanner.security.peer_address import peer_of

_LOG = logging.getLogger(__name__)

# Not in the specification: the number of wrong guesses that are allowed. A client that has lost its
# queues sends each stale number once; an attacker sends wrong numbers indefinitely.
MAX_WRONG: Final = 200
# The seconds after which one wrong guess no longer counts.
FORGET_AFTER: Final = 1.0
# Not in the specification: the maximum number of addresses whose wrong guesses are counted.
MAX_PEERS: Final = 10_000


class Guesses:
    """The wrong guesses of each peer (`peer_of`)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # For each address, the number of wrong guesses, and the time of that count.
        self._wrong: dict[str, tuple[float, float]] = {}

    def may_guess(self, peer: str) -> bool:
        """Return whether this address may use a number that it has not used before."""
        return self._count(peer_of(peer)) < MAX_WRONG

    def was_wrong(self, peer: str) -> None:
        peer = peer_of(peer)
        count = self._count(peer) + 1
        self._wrong.pop(peer, None)
        if len(self._wrong) >= MAX_PEERS:
            # Drop the address whose last wrong guess is oldest.
            del self._wrong[next(iter(self._wrong))]
        self._wrong[peer] = (count, self._clock())
        if count >= MAX_WRONG:
            text = "%s: guesses numbers of open queues, and is ignored for a while"
            log_of_peer(_LOG, logging.WARNING, "guesses", peer, text, peer)

    def _count(self, peer: str) -> float:
        count, then = self._wrong.get(peer, (0.0, 0.0))
        return max(0.0, count - (self._clock() - then) / FORGET_AFTER)
