"""The limit on memory for express messages. Not in the specification.

Express messages are kept in memory only, and the quota of the queue manager may be larger than the
memory. A message of a local program beyond the limit is refused. A message of a peer beyond it
waits at its session (`transfer.flow_control`): the shortage begins. Until it ends no further
express message is accepted, so local programs cannot take the room that the peer waits for.

Messages that leave for other computers may use three quarters of the limit. Otherwise two queue
managers that are both full of messages for each other would wait for ever. Copies in journals and
dead-letter queues count but are never refused, because each replaces a message.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from lanner.engine.settings import MIN_EXPRESS_MEMORY
from lanner.model.errors import InsufficientResources

if TYPE_CHECKING:
    from lanner.store import Store

_MEBIBYTE: Final = 1 << 20
# The room required to end a shortage: an eighth of the limit, and the largest message.
_MARGIN_PART: Final = 8
_LEAST_MARGIN: Final = MIN_EXPRESS_MEMORY // 8 + 4096


class _Level:
    """A limit, and whether a message of a peer waits because of it."""

    def __init__(self) -> None:
        self.limit = math.inf
        self.end = math.inf  # the use at which a shortage ends
        self.is_short = False


class ExpressMemory:
    """The memory for express messages.

    The caller holds the store's lock, except to read the values shown to an operator.
    """

    def __init__(self, store: Store, limit: int | None) -> None:
        self._store = store
        self.limit: int | None = None
        self._staying = _Level()
        self._leaving = _Level()
        self.set_limit(limit)
        # The last refusal, so that `begin_shortage` recognizes it, and the level that refused.
        self._error: InsufficientResources | None = None
        self._error_level = self._staying
        # Shown to an operator.
        self.refused = 0

    def set_limit(self, limit: int | None) -> None:
        """Set the limit in bytes; None: no limit."""
        self.limit = limit
        for level, most in ((self._staying, limit), (self._leaving, None if limit is None else limit * 3 // 4)):
            level.limit = math.inf if most is None else most
            level.end = math.inf if limit is None else max(level.limit - max(limit // _MARGIN_PART, _LEAST_MARGIN), 0)

    @property
    def used(self) -> int:
        """Bytes in use."""
        return self._store.express_bytes

    @property
    def is_short(self) -> bool:
        """Whether a message of a peer waits."""
        return self._staying.is_short or self._leaving.is_short

    def has_room(self, size: int, *, is_leaving: bool) -> bool:
        """Return whether there is room for messages of this many bytes."""
        level = self._leaving if is_leaving else self._staying
        return not level.is_short and self._store.express_bytes + size <= level.limit

    def check(self, size: int, *, is_leaving: bool) -> None:
        """Raise InsufficientResources if there is no room for a message.

        `is_leaving`: it goes to an outgoing queue.
        """
        if not self.has_room(size, is_leaving=is_leaving):
            raise self._refusal(self._leaving if is_leaving else self._staying, size)

    def _refusal(self, level: _Level, size: int) -> InsufficientResources:
        self.refused += 1
        whose = "express messages" if level is self._staying else "express messages to other computers"
        waiting = ", and messages of other computers wait for it" if level.is_short else ""
        self._error_level = level
        self._error = InsufficientResources(
            f"the memory for {whose} is full{waiting}: limit {level.limit // _MEBIBYTE:.0f} MiB by quota.express_mb, "
            f"used {self.used // _MEBIBYTE} MiB, message {-(-size // 1024)} KiB; "
            "receive or purge messages, send recoverable ones, or raise the limit"
        )
        return self._error

    def begin_shortage(self, error: InsufficientResources) -> bool:
        """Note that a message of a peer was refused and waits.

        Returns False if the reason was not memory.
        """
        if error is not self._error:
            return False
        self._error = None
        self._error_level.is_short = True
        return True

    def end_shortage(self) -> bool:
        """End shortages where there is room again; return whether any has ended."""
        has_ended = False
        for level in (self._staying, self._leaving):
            if level.is_short and self._store.express_bytes <= level.end:
                level.is_short = False
                has_ended = True
        return has_ended

    def forget_shortage(self) -> None:
        """Forget the shortage: no peer waits any longer."""
        self._staying.is_short = self._leaving.is_short = False
