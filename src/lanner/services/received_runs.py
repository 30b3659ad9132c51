"""Messages that transactions of a session have received, each under a number that the client has chosen.

A client that was interrupted before it had the answer gives them back by their numbers. They are
forgotten when the client confirms the answer, and with their transaction. The caller holds the
store's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import KeysView, Sequence

    from lanner.model.live import MessagePosition, Transaction

# Not in the specification: messages that a client can still give back by number.
_MAX_MESSAGES: Final = 1024
# Not in the specification: receives of one transaction whose numbers are kept beside those of
# messages that were given back.
_MAX_RUNS: Final = 1024


class ReceivedRuns:
    """The messages by their numbers, and the numbers by transaction."""

    def __init__(self) -> None:
        self._positions: dict[int, MessagePosition] = {}
        self._runs: dict[Transaction, list[range]] = {}

    @property
    def numbers(self) -> KeysView[int]:
        return self._positions.keys()

    def add(self, first: int, positions: Sequence[MessagePosition], transaction: Transaction) -> None:
        """Keep the messages of one receive, under numbers in a row."""
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
        """Forget the message of a number, and return it."""
        return self._positions.pop(number, None)

    def forget(self, transaction: Transaction) -> None:
        """Forget the messages of a transaction that ends."""
        kept = self._positions
        for run in self._runs.pop(transaction, ()):
            for number in run:
                position = kept.get(number)
                # The client may have used the number again since, in another transaction.
                if position is not None and position.transaction is transaction:
                    del kept[number]

    def clear(self) -> None:
        self._positions.clear()
        self._runs.clear()
