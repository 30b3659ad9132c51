"""The numbers that a queue manager gives to messages, queues, transactions and handles.

All except handles are counters of the store, which never issues a number twice, even after a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lanner.store import Counter, Store

# Not in the specification: a crash skips up to this many numbers. With a smaller value, each new
# queue would wait for the disk.
_QUEUE_NUMBERS: Final = 256
# MS-MQMQ 2.2.20.5: the transaction id has 20 bits.
_INDEX_MASK: Final = 0xF_FFFF
# Not in the specification: more messages than are sent between a backup and its restore.
_SKIPPED_IDENTIFIERS: Final = 1 << 30


class Numbers:
    """Counters of one queue manager."""

    def __init__(self, store: Store) -> None:
        # SequentialID: the lower 56 bits of a lookup identifier (`model.lookup_ids`).
        self.sequential_id: Counter = store.counter("SequentialID")
        self.queue: Counter = store.counter("Queue", block=_QUEUE_NUMBERS)
        self.private_queue: Counter = store.counter("PrivateQueueNumber", block=_QUEUE_NUMBERS)
        self._message_ordinal: Counter = store.counter("MessageID")
        self._transaction_index: Counter = store.counter("Transaction")
        self._handles = 0

    def next_message_ordinal(self) -> int:
        """Return the next MessageIdOrdinal (MS-MQQB 3.1.1.3).

        It begins at 0 and wraps after 32 bits.
        """
        return self._message_ordinal.next() - 1 & 0xFFFF_FFFF

    @property
    def coming_message_ordinal(self) -> int:
        """The first of the next ordinals. Only its lower 32 bits count."""
        return self._message_ordinal.last

    def next_message_ordinals(self, count: int) -> range:
        """Return `count` consecutive ordinals. Only their lower 32 bits count."""
        first = self._message_ordinal.next(count) - 1
        return range(first, first + count)

    def skip_message_ordinals(self) -> None:
        """Skip more ordinals than can have been issued since a backup that was restored."""
        self._message_ordinal.next(_SKIPPED_IDENTIFIERS)

    def next_transaction_index(self) -> int:
        """Return the number that the packets of a new transaction carry."""
        return self._transaction_index.next() & _INDEX_MASK

    @property
    def coming_transaction_index(self) -> int:
        """The number that `next_transaction_index` returns next."""
        return self._transaction_index.last + 1 & _INDEX_MASK

    def skip_transaction_indexes(self, count: int) -> None:
        """Skip `count` numbers that packets carry already."""
        self._transaction_index.next(count)

    def next_handle(self) -> int:
        """Return the handle of a new descriptor or cursor."""
        self._handles += 1
        return self._handles
