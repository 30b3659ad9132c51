"""What became of the sends of clients, so that one whose answer was lost can be asked for again (docs/protocol.md).

A client gives itself a name, and each send a number. Both belong to the user who logged on: another
user who says the same name has a memory of his own. What is remembered ends with this run of the
queue manager.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from lanner.wire.sid import Sid

# Kind and body of an answer.
Outcome: TypeAlias = tuple[int, bytes]

# Not in the specification: clients of one user that are remembered, and for each of them sends and
# octets of answers.
MAX_CLIENTS: Final = 64
MAX_BATCHES: Final = 1024
MAX_OCTETS: Final = 0x0002_0000
NAME_SIZE: Final = 16


class SentBatch:
    """One send: what it was answered with, once that is durable."""

    __slots__ = ("_waiting", "is_refused", "outcome")

    def __init__(self) -> None:
        # One of its messages was refused, and what is sent behind it is skipped.
        self.is_refused = False
        self.outcome: Outcome | None = None
        self._waiting: list[Callable[[Outcome], object]] = []

    def then(self, answer: Callable[[Outcome], object]) -> None:
        """Answer somebody who asks for it again, now or when it is durable."""
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
        # Tells this memory from others that the client had before.
        self.identifier = secrets.token_hex(8)
        self._batches: dict[int, SentBatch] = {}
        self._octets = 0
        # Numbers below this are forgotten.
        self._floor = 0

    def get(self, number: int) -> SentBatch | None:
        return self._batches.get(number)

    def is_forgotten(self, number: int) -> bool:
        """Return whether a send of this number may have come before."""
        return number < self._floor

    def begin(self, number: int) -> SentBatch:
        """Remember a send; the oldest one is forgotten for it if there are too many."""
        batch = self._batches[number] = SentBatch()
        if len(self._batches) > MAX_BATCHES:
            self._forget(next(iter(self._batches)))
        return batch

    def finish(self, number: int, batch: SentBatch, outcome: Outcome) -> None:
        """Remember what a send has come to, which is durable now."""
        batch.finish(outcome)
        if self._batches.get(number) is batch:
            self._octets += len(outcome[1])
            while self._octets > MAX_OCTETS and len(self._batches) > 1:
                self._forget(next(iter(self._batches)))

    def fail(self, number: int, batch: SentBatch, outcome: Outcome) -> None:
        """Forget a send that could not be written: it may come again."""
        if self._batches.get(number) is batch:
            del self._batches[number]
        batch.finish(outcome)

    def confirm(self, below: int) -> None:
        """Forget sends whose answers the client has."""
        while self._batches and (number := next(iter(self._batches))) < below:
            self._forget(number)
        self._floor = max(self._floor, below)

    def _forget(self, number: int) -> None:
        batch = self._batches.pop(number)
        self._octets -= 0 if batch.outcome is None else len(batch.outcome[1])
        self._floor = max(self._floor, number + 1)


class ClientMemory:
    """The memories of all clients, by user and name."""

    def __init__(self) -> None:
        self._users: dict[Sid, dict[bytes, SentBatches]] = {}

    def of(self, user: Sid, name: bytes) -> SentBatches:
        """Return the memory of a client; that which was used longest ago makes room for a new one."""
        clients = self._users.setdefault(user, {})
        found = clients.pop(name, None) or SentBatches()
        clients[name] = found
        if len(clients) > MAX_CLIENTS:
            del clients[next(iter(clients))]
        return found
