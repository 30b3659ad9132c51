"""Limits on staged writes per user: tokens, and bytes of unpublished messages.

Staged messages are in no queue, so the quotas of queues do not cover them before they are
published. They are counted here. The stages of one user have a limit of their own and may take half
of the queue manager's quota. Together with the messages in queues, all stages stay within that
quota.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from lanner.model.directory_objects import KILOBYTE
from lanner.model.enums import INFINITE
from lanner.model.errors import InsufficientResources

if TYPE_CHECKING:
    from lanner.model.directory_objects import QueueManager
    from lanner.spark.flight.settings import FlightSettings

# Not in the specification: octets that a message takes besides its body.
_PER_MESSAGE: Final = 512
_WHAT_TO_DO: Final = "publish or drop what is staged; what is not is dropped after a day"


class StagedRoom:
    """The staged messages, by token and by user. Callers must hold the store's lock."""

    def __init__(self, queue_manager: QueueManager, settings: FlightSettings) -> None:
        self._queue_manager = queue_manager
        self._settings = settings
        self._tokens: dict[bytes, tuple[str, int]] = {}  # owner and bytes
        self._count: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._total = 0

    def has_token(self, owner: str) -> bool:
        """Return whether a user may have another token."""
        return self._count[owner] < self._settings.max_stages

    def check_token(self, owner: str, name: str) -> None:
        """Raise InsufficientResources if a user has reached the limit of tokens."""
        if not self.has_token(owner):
            raise InsufficientResources(f"{name} has {self._count[owner]} stages (flight.max_stages): {_WHAT_TO_DO}")

    def tokens_of(self, owner: str) -> list[bytes]:
        return [token for token, (whose, _) in self._tokens.items() if whose == owner]

    def check(self, owner: str, name: str, messages: int, size: int) -> None:
        """Raise InsufficientResources if a user may not stage this many more messages."""
        size += messages * _PER_MESSAGE
        most, why = self._settings.max_staged_mb << 20, "flight.max_staged_mb"
        quota = self._queue_manager.queue_manager_quota
        used = self._bytes[owner]
        if quota != INFINITE and quota * KILOBYTE // 2 < most:
            most, why = quota * KILOBYTE // 2, "half of quota.queue_manager_kb"
        if used + size > most:
            raise InsufficientResources(
                f"{name} has {used} bytes staged, and {size} more would be above {most} ({why}): {_WHAT_TO_DO}"
            )
        total = self._queue_manager.total_bytes + self._total + size
        if quota != INFINITE and total > quota * KILOBYTE:
            raise InsufficientResources(
                f"messages and stages would take {total} bytes, more than {quota} KiB (quota.queue_manager_kb): "
                f"{_WHAT_TO_DO}"
            )

    def add(self, token: bytes, owner: str, messages: int, size: int) -> None:
        """Count messages under a token. The token counts from its first messages on."""
        if token not in self._tokens:
            self._count[owner] += 1
        size += messages * _PER_MESSAGE
        self._tokens[token] = owner, self._tokens.get(token, (owner, 0))[1] + size
        self._bytes[owner] += size
        self._total += size

    def remove(self, token: bytes) -> None:
        """Stop counting a token that was published or dropped."""
        owner, size = self._tokens.pop(token, ("", 0))
        if owner:
            self._count[owner] -= 1
            self._bytes[owner] -= size
            self._total -= size
