"""The numbers of a client's sends, by which a queue manager recognises a repeated one."""

from __future__ import annotations

import threading
import uuid


class SendNumbers:
    """The sends of one client object, in all its tasks and threads."""

    def __init__(self) -> None:
        # A random identifier, which is only valid together with the user who sends it.
        self.client = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._next = 1
        # Ordered by number.
        self._under_way: dict[int, None] = {}

    def begin(self) -> int:
        """Return the number of a new send."""
        with self._lock:
            number = self._next
            self._next = number + 1
            self._under_way[number] = None
            return number

    @property
    def below(self) -> int:
        """The number below which every send is answered or given up."""
        with self._lock:
            return next(iter(self._under_way), self._next)

    def end(self, number: int) -> None:
        with self._lock:
            self._under_way.pop(number, None)
