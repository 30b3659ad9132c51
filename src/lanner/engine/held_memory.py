"""How much memory the locked messages of one user may take. Not in the specification.

A message that is received and not acknowledged yet, or sent or received in a transaction that is
open, is in memory until that ends. So everybody who may send to one queue could fill the memory.
Each user has a limit of its own: nobody else is refused because of what a user holds. Messages that
were removed, and that their reader may still put back, count too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanner.model.errors import InsufficientResources

if TYPE_CHECKING:
    from lanner.model.live import MessagePosition

_MEBIBYTE: Final = 1 << 20
# Ours: bytes of packets.
MAX_HELD: Final = 1024 * _MEBIBYTE


class HeldMemory:
    """Bytes of locked messages, by the SID of the user who has them locked.

    Needs the store's lock.
    """

    def __init__(self) -> None:
        self.limit = MAX_HELD
        self._by_holder: dict[bytes, int] = {}

    def used(self, holder: bytes) -> int:
        """Bytes that a user has locked."""
        return self._by_holder.get(holder, 0)

    def is_full(self, holder: bytes, more: int = 0) -> bool:
        """Whether a user has as much locked as it may, or would have with so many bytes more."""
        return self._by_holder.get(holder, 0) + more >= self.limit

    def room(self, holder: bytes) -> int:
        """Bytes that a user may still have locked."""
        return self.limit - self._by_holder.get(holder, 0)

    def check(self, holder: bytes) -> None:
        """Raise InsufficientResources if a user has as much locked as it may."""
        if self._by_holder.get(holder, 0) >= self.limit:
            raise self.refusal(holder)

    def refusal(self, holder: bytes) -> InsufficientResources:
        """Return the error for a user who has too much locked."""
        return InsufficientResources(
            f"messages of {self.used(holder) // _MEBIBYTE} MiB are received and not acknowledged, or in open transactions, "
            f"of this user, limit {self.limit // _MEBIBYTE} MiB: acknowledge messages or give them back, and end transactions"
        )

    def hold(self, position: MessagePosition, holder: bytes) -> None:
        """Count a message that is being locked."""
        if not position.holder:
            position.holder = holder
            self.add(holder, len(position.record.packet))

    def release(self, position: MessagePosition) -> None:
        """Count a message no more."""
        holder, position.holder = position.holder, b""
        self.add(holder, -len(position.record.packet))

    def add(self, holder: bytes, size: int) -> None:
        """Count bytes that a user's messages take, or no longer take if there are less than none."""
        left = self._by_holder.get(holder, 0) + size
        if left > 0:
            self._by_holder[holder] = left
        else:
            self._by_holder.pop(holder, None)
