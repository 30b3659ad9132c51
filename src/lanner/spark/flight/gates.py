"""Calls that compute for long: a few of each user at a time.

All threads share one interpreter, so a hundred threads that compute leave a hundredth of it to the
event loop, and to the calls of other users.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lanner.security.identity import Identity
    from lanner.wire.sid import Sid

# Not in the specification: the calls of one user that compute at a time.
AT_A_TIME: Final = 2


class Gates:
    """The gate of each user, which lets a few calls through at a time. For many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gates: dict[Sid, threading.Semaphore] = {}

    def of(self, user: Identity) -> threading.Semaphore:
        """Return the gate of a user, to be entered around what computes."""
        with self._lock:
            found = self._gates.get(user.sid)
            if found is None:
                found = self._gates[user.sid] = threading.Semaphore(AT_A_TIME)
            return found
