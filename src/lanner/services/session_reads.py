"""The receives of one session on Lanner's own interface, under the numbers that the client chose.

The client chooses the number of a receive, so that it can end one whose answer it never got. A
receive is in one of these states:

    waiting      for a message
    held         its messages are locked until the client removes them or gives them back
    ended        its messages are removed; they are restored if the client was cancelled meanwhile
    unconfirmed  it belongs to a transaction, and the client may not have the answer
    received     the same, with a number for each message (`received_runs`)

A client that was cancelled gives back a receive in any state. When it has the answer it confirms
the receive, which is then forgotten. All code here runs in the event loop's thread.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final

from lanner.engine.held_memory import HELD_OVERHEAD
from lanner.model.errors import InvalidHandle, InvalidParameter, StatusError
from lanner.services.received_runs import ReceivedRuns

if TYPE_CHECKING:
    from lanner.host.operations import Operations
    from lanner.host.reads import Read
    from lanner.model.live import MessagePosition, OpenQueueDescriptor, Transaction

# Not in the specification: the maximum number of octets of messages in one answer. A single message
# may exceed it.
MAX_ANSWER: Final = 0x0040_0000
# Not in the specification: the maximum number of receives in a transaction that a client can still
# undo by number.
_MAX_UNCONFIRMED: Final = 1024
# Not in the specification: the maximum number of receives that a client can still undo after
# requesting their removal. A connection has at most 256 calls in progress, and each request
# confirms those answered before it.
_MAX_ENDED: Final = 1024


class SessionReads:
    """The receives of a session, by number. `holder` is the SID against whose limit they count."""

    def __init__(self, operations: Operations, holder: bytes) -> None:
        self._operations = operations
        self._engine = operations.engine
        self._holder = holder
        self.waiting: dict[int, Read] = {}
        self.held: dict[int, list[Read]] = {}
        self.ended: dict[int, list[Read]] = {}
        self.unconfirmed: dict[int, list[Read]] = {}
        self._received = ReceivedRuns()

    @property
    def opened(self) -> int:
        """The number of receives that count as open."""
        return len(self.held) + len(self.waiting)

    def check_new(self, first: int, count: int) -> None:
        """Check the consecutive numbers that the client has chosen for receives."""
        numbers = range(first, first + count)
        for used in (self.held.keys(), self.unconfirmed.keys(), self._received.numbers, self.waiting.keys()):
            if used and not used.isdisjoint(numbers):
                raise InvalidParameter(f"read {next(number for number in numbers if number in used)} is in use")
        if self.ended and not self.ended.keys().isdisjoint(numbers):
            for number in numbers:
                self._forget_ended(number)

    def hold(self, number: int, first: Read, wanted: int) -> list[MessagePosition]:
        """Hold a message, and others that are available, until the client acknowledges them."""
        reads = [first]
        room = MAX_ANSWER - len(first.position.record.packet)
        # If anything fails here, for example because the queue was deleted or too much is held, the
        # first message is still delivered.
        with suppress(StatusError):
            if first.cursor is None:
                reads += self._operations.receive_ready(first.descriptor, wanted - 1, room, first.transaction)
        if first.transaction is None:
            self.held[number] = reads
        else:
            self.unconfirmed[number] = reads
            if len(self.unconfirmed) > _MAX_UNCONFIRMED:
                del self.unconfirmed[next(iter(self.unconfirmed))]
        return [read.position for read in reads]

    def receive_ready(
        self, first: int, most: int, descriptor: OpenQueueDescriptor, transaction: Transaction | None
    ) -> list[MessagePosition]:
        """Receive available messages, each under its own number; IOTimeout if there are none."""
        if transaction is None:
            reads = self._operations.receive_ready(descriptor, most, MAX_ANSWER, None)
            self.held.update((number, [read]) for number, read in enumerate(reads, first))
            positions = [read.position for read in reads]
        else:
            positions = self._operations.receive_run(descriptor, most, MAX_ANSWER, transaction)
            if positions:
                self._received.add(first, positions, transaction)
        if not positions:
            # An empty queue raises the same error as any other receive.
            self._operations.receive(descriptor, 0, transaction=transaction)
        return positions

    def remove(self, numbers: list[int]) -> list[tuple[int, StatusError]]:
        """Remove the messages that receives hold; return those that failed, with the errors.

        The caller holds the store's lock.
        """
        for number in numbers:
            if number not in self.held:
                raise InvalidHandle(f"read {number} is not held: its queue was closed, and its messages are back in it")
        if len(set(numbers)) != len(numbers):
            raise InvalidParameter("a read is named twice")
        reads = {number: self.held.pop(number) for number in numbers}
        failed = self._operations.remove_all(list(chain.from_iterable(reads.values())))
        refused = {index for index, _ in failed}
        index = 0
        for number, those in reads.items():
            removed = those
            if refused:
                removed = [read for place, read in enumerate(those, index) if place not in refused]
                index += len(those)
            self._remember(number, removed)
        return failed

    def give_back(self, numbers: list[int]) -> list[tuple[int, StatusError]]:
        """Return the messages of receives in any state. The caller holds the store's lock."""
        for number in reversed(numbers):
            waiting = self.waiting.pop(number, None)
            if waiting is not None:
                waiting.cancel()
            for read in reversed(self.held.pop(number, []) or self.unconfirmed.pop(number, [])):
                read.give_back()
            position = self._received.pop(number)
            if position is not None:
                self._operations.give_back(position)
        # The client was cancelled while the removal was being written or answered.
        for number in numbers:
            self._operations.undo_receive([read.position for read in self._forget_ended(number)])
        return []

    def confirm(self, number: int) -> None:
        """Forget a receive whose answer the client has: it will not be undone."""
        self._forget_ended(number)
        self.unconfirmed.pop(number, None)
        self._received.pop(number)

    def forget_queue(self, descriptor: OpenQueueDescriptor) -> None:
        """Forget what is held through a handle that is being closed, which gives it back."""
        for number in [number for number, reads in self.held.items() if reads[0].descriptor is descriptor]:
            del self.held[number]

    def forget_transaction(self, transaction: Transaction) -> None:
        """Forget the receives in a transaction that has left the session."""
        self._received.forget(transaction)
        for number in [number for number, reads in self.unconfirmed.items() if reads[0].transaction is transaction]:
            del self.unconfirmed[number]

    def close(self) -> None:
        """Forget everything, after the queues and transactions of the session have ended."""
        self.held.clear()
        self._received.clear()
        for number in list(self.ended):
            self._forget_ended(number)

    def _remember(self, number: int, reads: list[Read]) -> None:
        """Keep removed messages until the client has the answer: it may be cancelled before."""
        self.ended[number] = reads
        memory, holder = self._engine.held_memory, self._holder
        memory.add(holder, _octets(reads))
        while len(self.ended) > _MAX_ENDED or (memory.is_full(holder) and len(self.ended) > 1):
            self._forget_ended(next(iter(self.ended)))

    def _forget_ended(self, number: int) -> list[Read]:
        reads = self.ended.pop(number, None)
        if reads is None:
            return []
        with self._engine.store.lock:
            self._engine.held_memory.add(self._holder, -_octets(reads))
        return reads


def _octets(reads: list[Read]) -> int:
    return sum(len(read.position.record.packet) + HELD_OVERHEAD for read in reads)
