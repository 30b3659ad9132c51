"""Messages received in a session's transactions, each under a number chosen by the client.

A client that was interrupted before it had the answer returns them by number. They are forgotten
when the client confirms the answer, or when their transaction ends. The caller holds the store's
lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import KeysView, Sequence

    from lanner.model.live import MessagePosition, Transaction

# Not in the specification: the maximum number of messages that a client can still return by number.
_MAX_MESSAGES: Final = 1024
# Not in the specification: the maximum number of receives that are recorded for one transaction.
# Beyond it, receives whose messages are all forgotten are dropped.
_MAX_RUNS: Final = 1024


class ReceivedRuns:
    """The received messages by number, and the ranges of numbers by transaction."""

    def __init__(self) -> None:
        self._positions: dict[int, MessagePosition] = {}
        self._runs: dict[Transaction, list[range]] = {}

    @property
    def numbers(self) -> KeysView[int]:
        return self._positions.keys()

    def add(self, first: int, positions: Sequence[MessagePosition], transaction: Transaction) -> None:
        """Keep the messages of one receive, under consecutive numbers."""
        numbers = range(first, first + len(positions))
        kept = self._positions
        kept.update(zip(numbers, positions, strict=True))
        while len(kept) > _MAX_MESSAGES:
            del kept[next(iter(kept))]
        runs = self._runs.setdefault(transaction, [])
        runs.append(numbers)
        if len(runs) > _MAX_RUNS:
            runs[:] = [run for run in runs if not kept.keys().isdisjoint(run)]

    def pop(self, number: int) -> MessagePosition | None:
        """Forget the message of a number and return it; None if there is none."""
        return self._positions.pop(number, None)

    def forget(self, transaction: Transaction) -> None:
        """Forget the messages of a transaction that ends."""
        kept = self._positions
        for run in self._runs.pop(transaction, ()):
            for number in run:
                position = kept.get(number)
                # The client may have reused the number since, in another transaction.
                if position is not None and position.transaction is transaction:
                    del kept[number]

    def clear(self) -> None:
        self._positions.clear()
        self._runs.clear()
