"""Outcomes of clients' sends, so that a client can repeat one whose answer was lost.

See docs/protocol.md. A client chooses a name for itself and a number for each send. Both belong to
the user who logged on: another user with the same client name has a separate memory. The memory
lasts until the queue manager stops.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from lanner.wire.sid import Sid

# The kind and the body of an answer.
Outcome: TypeAlias = tuple[int, bytes]

# Not in the specification: how many clients of a user are remembered, and for each client, how many
# sends and how many octets of answers.
MAX_CLIENTS: Final = 64
MAX_BATCHES: Final = 1024
MAX_OCTETS: Final = 0x0002_0000
NAME_SIZE: Final = 16


class SentBatch:
    """One send, and its answer as soon as that is durable."""

    __slots__ = ("_waiting", "is_refused", "outcome")

    def __init__(self) -> None:
        # Whether a message of the send was refused. Later parts of the send are then skipped.
        self.is_refused = False
        self.outcome: Outcome | None = None
        self._waiting: list[Callable[[Outcome], object]] = []

    def then(self, answer: Callable[[Outcome], object]) -> None:
        """Answer a repeated send, now or when the outcome is durable."""
        if self.outcome is None:
            self._waiting.append(answer)
        else:
            answer(self.outcome)

    def finish(self, outcome: Outcome) -> None:
        self.outcome = outcome
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            answer(outcome)


class SentBatches:
    """The sends of one client, by number."""

    def __init__(self) -> None:
        # Distinguishes this memory from earlier ones of the same client.
        self.identifier = secrets.token_hex(8)
        self._batches: dict[int, SentBatch] = {}
        self._octets = 0
        # Numbers below this are forgotten.
        self._floor = 0

    def get(self, number: int) -> SentBatch | None:
        return self._batches.get(number)

    def is_forgotten(self, number: int) -> bool:
        """Return whether the outcome of a send with this number may have been forgotten."""
        return number < self._floor

    def begin(self, number: int) -> SentBatch:
        """Remember a send, and forget the oldest if there are too many."""
        batch = self._batches[number] = SentBatch()
        if len(self._batches) > MAX_BATCHES:
            self._forget(next(iter(self._batches)))
        return batch

    def finish(self, number: int, batch: SentBatch, outcome: Outcome) -> None:
        """Remember the outcome of a send, which is now durable."""
        batch.finish(outcome)
        if self._batches.get(number) is batch:
            self._octets += len(outcome[1])
            while self._octets > MAX_OCTETS and len(self._batches) > 1:
                self._forget(next(iter(self._batches)))

    def fail(self, number: int, batch: SentBatch, outcome: Outcome) -> None:
        """Forget a send that could not be written: the client may repeat it."""
        if self._batches.get(number) is batch:
            del self._batches[number]
        batch.finish(outcome)

    def confirm(self, below: int) -> None:
        """Forget the sends below a number, whose answers the client has."""
        while self._batches and (number := next(iter(self._batches))) < below:
            self._forget(number)
        self._floor = max(self._floor, below)

    def _forget(self, number: int) -> None:
        batch = self._batches.pop(number)
        self._octets -= 0 if batch.outcome is None else len(batch.outcome[1])
        self._floor = max(self._floor, number + 1)


class ClientMemory:
    """The memories of all clients, by user and client name."""

    def __init__(self) -> None:
        self._users: dict[Sid, dict[bytes, SentBatches]] = {}

    def of(self, user: Sid, name: bytes) -> SentBatches:
        """Return the memory of a client; a new one replaces the least recently used if needed."""
        clients = self._users.setdefault(user, {})
        found = clients.pop(name, None) or SentBatches()
        clients[name] = found
        if len(clients) > MAX_CLIENTS:
            del clients[next(iter(clients))]
        return found
