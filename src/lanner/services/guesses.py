"""Numbers that open something: how often somebody may be wrong about one.

MS-MQQP 2.1 and MS-MQMP 3.1.4.2 have an open queue known by a number of 32 bits, whoever asks with
it from wherever. With many queues open, somebody who tries them all would find one within the hour.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from lanner.security.log_lines import log_of_peer

_LOG = logging.getLogger(__name__)

# Ours: a client that lost its queues asks once for each; who guesses asks for ever.
MAX_WRONG: Final = 200
# One is forgotten in so many seconds.
FORGET_AFTER: Final = 1.0
# Ours: addresses that are remembered.
MAX_PEERS: Final = 10_000


class Guesses:
    """Wrong numbers by the address they came from."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # How many were wrong, and as of when.
        self._wrong: dict[str, tuple[float, float]] = {}

    def may_guess(self, peer: str) -> bool:
        """Whether a number that this address has not used before is looked up at all."""
        return self._count(peer) < MAX_WRONG

    def was_wrong(self, peer: str) -> None:
        count = self._count(peer) + 1
        self._wrong.pop(peer, None)
        if len(self._wrong) >= MAX_PEERS:
            # Who has been wrong least recently.
            del self._wrong[next(iter(self._wrong))]
        self._wrong[peer] = (count, self._clock())
        if count >= MAX_WRONG:
            text = "%s: asks for open queues that it was not given, and is heard no more for a while"
            log_of_peer(_LOG, logging.WARNING, "guesses", peer, text, peer)

    def _count(self, peer: str) -> float:
        count, then = self._wrong.get(peer, (0.0, 0.0))
        return max(0.0, count - (self._clock() - then) / FORGET_AFTER)
