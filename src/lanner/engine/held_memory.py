"""The limit on memory for locked messages of one user. Not in the specification.

A received message is in memory until its receiver acknowledges it. One that was sent or received in
a transaction is in memory until the transaction ends. Without a limit, any user who may send to one
queue could fill the memory. Each user has a limit of its own, so no user is refused because of
messages that another holds. Removed messages that their reader may still put back count too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanner.model.errors import InsufficientResources

if TYPE_CHECKING:
    from lanner.model.live import MessagePosition

_MEBIBYTE: Final = 1 << 20
# Not in the specification: bytes of packets, and of the objects around them.
MAX_HELD: Final = 1024 * _MEBIBYTE
# What a locked message takes besides its packet. It also limits the number of small messages,
# because the end of a transaction releases all of its messages at once.
HELD_OVERHEAD: Final = 384


class HeldMemory:
    """Bytes of locked messages, with HELD_OVERHEAD for each, by the SID of the user who has them.

    The caller holds the store's lock.
    """

    def __init__(self) -> None:
        self.limit = MAX_HELD
        self._by_holder: dict[bytes, int] = {}

    def used(self, holder: bytes) -> int:
        """Return the bytes that a user has locked."""
        return self._by_holder.get(holder, 0)

    def is_full(self, holder: bytes, more: int = 0) -> bool:
        """Return whether a user has reached its limit, or would exceed it with `more` bytes."""
        return self._by_holder.get(holder, 0) + more >= self.limit

    def room(self, holder: bytes) -> int:
        """Return the bytes that a user may still lock."""
        return self.limit - self._by_holder.get(holder, 0)

    def check(self, holder: bytes) -> None:
        """Raise InsufficientResources if a user has reached its limit."""
        if self._by_holder.get(holder, 0) >= self.limit:
            raise self.refusal(holder)

    def refusal(self, holder: bytes) -> InsufficientResources:
        """Return the error for a user who has too much locked."""
        return InsufficientResources(
            f"this user holds {self.used(holder) // _MEBIBYTE} MiB of messages, received and not acknowledged or "
            f"in open transactions, limit {self.limit // _MEBIBYTE} MiB: acknowledge messages or give them back, "
            "and end transactions"
        )

    def hold(self, position: MessagePosition, holder: bytes) -> None:
        """Count a message that is being locked."""
        if not position.holder:
            position.holder = holder
            self.add(holder, len(position.record.packet) + HELD_OVERHEAD)

    def release(self, position: MessagePosition) -> None:
        """Stop counting a message."""
        holder, position.holder = position.holder, b""
        self.add(holder, -len(position.record.packet) - HELD_OVERHEAD)

    def add(self, holder: bytes, size: int) -> None:
        """Add bytes, which may be negative, to those that a user has locked."""
        left = self._by_holder.get(holder, 0) + size
        if left > 0:
            self._by_holder[holder] = left
        else:
            self._by_holder.pop(holder, None)
