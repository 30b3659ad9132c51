"""The blocking API: `QueueManager`, `Queue`, `Cursor`, `Transaction`. All may be shared by threads."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Self, TypeVar

from lanner.client.enterprise import LocalEnterprise
from lanner.client.operations import Operations, Outcome, Waiting
from lanner.client.runtime import Runtime, bound_settings, local_settings
from lanner.client.shared import BaseCursor, BaseQueue, BaseQueueManager
from lanner.client.unit_of_work import UnitOfWork, inner
from lanner.model.enums import QueueAccessType
from lanner.model.errors import IOTimeout, StatusError, TransactionSequence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

    from lanner.client.message import Message, ReceivedMessage
    from lanner.engine.transactions import Coordinator
    from lanner.model import live
    from lanner.transfer.settings import TransferSettings

T = TypeVar("T")


class QueueManager(BaseQueueManager):
    r"""A queue manager in this process, on a data directory of its own.

    >>> with lanner.QueueManager("data", name="ALPHA") as qm:
    ...     q = qm.create_queue(r".\private$\orders")
    ...     q.send(lanner.Message(body=b"hi", recoverable=True))
    """

    def __init__(
        self,
        data: str | Path,
        name: str | None = None,
        *,
        bind: str | None = None,
        transfer: TransferSettings | None = None,
        coordinator: Coordinator | None = None,
        **settings: object,
    ) -> None:
        """`bind`: an address to exchange messages with other computers on; None, and what is for them waits."""
        settings = bound_settings(bind, transfer, settings)
        self.runtime = Runtime(data, local_settings(name, **settings), coordinator=coordinator)
        self.operations = Operations(self.runtime)
        self.start_transfer(bind, transfer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop. Express messages are gone, everything else is on disk."""
        self.stop()

    def create_queue(
        self,
        name: str,
        *,
        transactional: bool = False,
        journal: bool = False,
        label: str = "",
        quota_kb: int | None = None,
        journal_quota_kb: int | None = None,
        **attributes: object,
    ) -> Queue:
        """Create a queue; QueueExists if there is one of that name."""
        outcome = self.operations.create_queue(
            name,
            transactional=transactional,
            journal=journal,
            label=label,
            quota_kb=quota_kb,
            journal_quota_kb=journal_quota_kb,
            **attributes,
        )
        return Queue(self, self.done(outcome).pathname)

    def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages, journal and subqueues."""
        self.done(self.operations.delete_queue(name))

    def open(self, name: str, *, exclusive: bool = False) -> Queue:
        """A queue by any spelling of its name: path name, format name, or a bare private name.

        A queue of another computer can be sent to: its messages wait in an outgoing queue.
        """
        return Queue(self, name, exclusive=exclusive)

    def queues(self) -> list[Queue]:
        """The public and private queues here, without journals, subqueues and outgoing queues."""
        return [Queue(self, pathname) for pathname in self.operations.queue_names()]

    def outgoing_queues(self) -> list[Queue]:
        """Queues whose messages wait for another computer."""
        return [Queue(self, name) for name in self.operations.outgoing_names()]

    @property
    def dead_letter(self) -> Queue:
        return Queue(self, "system$;DEADLETTER")

    @property
    def transactional_dead_letter(self) -> Queue:
        return Queue(self, "system$;DEADXACT")

    @property
    def system_journal(self) -> Queue:
        return Queue(self, "system$;JOURNAL")

    @property
    def enterprise(self) -> LocalEnterprise:
        """Sites, routing links, other computers and distribution lists."""
        return LocalEnterprise(self.runtime)

    def transaction(self) -> Transaction:
        """A unit of work: commits at the end of its `with` block, aborts on an exception."""
        return Transaction(self)

    # How this API waits -----------------------------------------------------------------------------------------

    def done(self, outcome: Outcome[T]) -> T:
        """The value of an operation, when it is on disk."""
        if outcome.ticket:
            self.runtime.store.sync(outcome.ticket)
        return outcome.value

    def read(self, outcome: Outcome[ReceivedMessage] | Waiting, timeout: float | None) -> ReceivedMessage:
        """The message of a read, when it has come."""
        if isinstance(outcome, Waiting):
            over = threading.Event()
            with self.runtime.lock:
                outcome.on_over = over.set
                if outcome.is_over:
                    over.set()
            limit = None if timeout is None else min(timeout, threading.TIMEOUT_MAX)
            try:
                while not over.wait(limit):
                    with self.runtime.lock:
                        self.runtime.engine.on_timer()
                    limit = 0.001
                finished = outcome.finish()
            except BaseException:
                outcome.abandon()
                raise
            return self.done(finished)
        return self.done(outcome)


class Queue(BaseQueue):
    """A queue by name. Handles are opened when first needed, and closed with it."""

    def __init__(self, manager: QueueManager, name: str, *, exclusive: bool = False) -> None:
        super().__init__(manager.operations, name, exclusive=exclusive)
        self._manager = manager
        if exclusive:
            self.handle(QueueAccessType.RECEIVE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def handle(self, access: QueueAccessType) -> live.OpenQueueDescriptor:
        """The open handle for an access."""
        handle = self._handles.cached(access)
        return handle if handle is not None else self._manager.done(self._handles.open(access))

    def set(self, **changes: object) -> None:
        """Change attributes by the data model's names: label, quota, journaling, authentication ..."""
        self._manager.done(self._operations.set_attributes(self.name, changes))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Peek at every message, from the first to the last."""
        with self.cursor(peek_only=True) as cursor:
            try:
                yield cursor.peek(timeout=0)
                while True:
                    yield cursor.peek_next(timeout=0)
            except IOTimeout:
                return

    def send(self, message: Message | ReceivedMessage | bytes | str, *, transaction: Transaction | None = None) -> str:
        """Send; when this returns, a recoverable message is on disk. Gives the message's id."""
        outcome = self._operations.send(
            self.handle(QueueAccessType.SEND), message, inner(transaction, self._operations)
        )
        return self._manager.done(outcome)

    def send_many(
        self,
        messages: Iterable[Message | ReceivedMessage | bytes | str],
        *,
        transaction: Transaction | None = None,
    ) -> list[str]:
        """Send several messages for the cost of one commit. What stands before one that is refused stays sent."""
        outcome = self._operations.send_many(
            self.handle(QueueAccessType.SEND), messages, inner(transaction, self._operations)
        )
        return self._manager.done(outcome)

    def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> ReceivedMessage:
        """Take the first message; IOTimeout if none comes within `timeout` seconds."""
        handle = self.handle(QueueAccessType.RECEIVE)
        outcome = self._operations.receive(handle, timeout, transaction=inner(transaction, self._operations))
        return self._manager.read(outcome, timeout)

    def receive_many(
        self, count: int, timeout: float | None = 0, *, transaction: Transaction | None = None
    ) -> list[ReceivedMessage]:
        """Take up to `count` messages in one commit; waits for the first one only."""
        handle = self.handle(QueueAccessType.RECEIVE)
        found = self._operations.receive_many(handle, count, inner(transaction, self._operations))
        if found.value or timeout == 0 or count < 1:
            return self._manager.done(found)
        try:
            first = self.receive(timeout, transaction=transaction)
        except IOTimeout:
            return []
        try:
            rest = self._operations.receive_many(handle, count - 1, inner(transaction, self._operations))
            return [first, *self._manager.done(rest)]
        except StatusError:
            if transaction is not None:
                raise
            # The first is removed already: what became of the queue since then must not lose it.
            return [first]

    def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """Look at the first message and leave it there."""
        return self._manager.read(self._operations.peek(self.handle(QueueAccessType.PEEK), timeout), timeout)

    def receive_by_lookup_id(
        self, lookup_id: int, where: str = "current", *, transaction: Transaction | None = None
    ) -> ReceivedMessage:
        """Take the message with a lookup id, or the one next to it: current, next, previous, first, last."""
        handle = self.handle(QueueAccessType.RECEIVE)
        outcome = self._operations.by_lookup_id(
            handle, lookup_id, where, is_peek=False, transaction=inner(transaction, self._operations)
        )
        return self._manager.done(outcome)

    def peek_by_lookup_id(self, lookup_id: int, where: str = "current") -> ReceivedMessage:
        """Look at the message with a lookup id, or next to it."""
        handle = self.handle(QueueAccessType.PEEK)
        return self._manager.done(self._operations.by_lookup_id(handle, lookup_id, where, is_peek=True))

    def purge(self) -> int:
        """Remove every message; how many there were."""
        slices = self._operations.purge(self.handle(QueueAccessType.RECEIVE))
        return sum(self._manager.done(outcome) for outcome in slices)

    def cursor(self, *, peek_only: bool = False) -> Cursor:
        """A place in the queue that moves over the messages; who may only peek asks for `peek_only`."""
        return Cursor(self._manager, self, self.handle(QueueAccessType.PEEK if peek_only else QueueAccessType.RECEIVE))

    def subqueue(self, name: str) -> Queue:
        """A subqueue; it comes into being when first used."""
        return Queue(self._manager, f"{self.path_name};{name}")

    def subqueues(self) -> list[Queue]:
        """The subqueues there are."""
        return [Queue(self._manager, pathname) for pathname in self._operations.subqueue_names(self.name)]

    def move(self, lookup_id: int, target: str | Queue, *, transaction: Transaction | None = None) -> None:
        """Move a message to a subqueue of this queue (by its short name), or from one back to its queue."""
        queue = target if isinstance(target, Queue) else self.subqueue(target)
        source, destination = self.handle(QueueAccessType.MOVE), queue.handle(QueueAccessType.MOVE)
        outcome = self._operations.move(source, lookup_id, destination, inner(transaction, self._operations))
        self._manager.done(outcome)

    @property
    def journal(self) -> Queue:
        return Queue(self._manager, f"{self.path_name};journal")


class Cursor(BaseCursor):
    """A place in a queue. Stepping off the end waits, or ends with IOTimeout."""

    def __init__(self, manager: QueueManager, queue: Queue, handle: live.OpenQueueDescriptor) -> None:
        super().__init__(manager.operations, queue, handle)
        self._manager = manager

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """The message under the cursor; a new cursor first moves to the first one."""
        return self._manager.read(self._operations.peek(self._handle, timeout, cursor=self._cursor), timeout)

    def peek_next(self, timeout: float | None = None) -> ReceivedMessage:
        """Step to the next message and look at it."""
        outcome = self._operations.peek(self._handle, timeout, cursor=self._cursor, is_next=True)
        return self._manager.read(outcome, timeout)

    def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> ReceivedMessage:
        """Take the message under the cursor."""
        outcome = self._operations.receive(
            self._handle, timeout, cursor=self._cursor, transaction=inner(transaction, self._operations)
        )
        return self._manager.read(outcome, timeout)


class Transaction(UnitOfWork):
    """All of it or nothing."""

    def __init__(self, manager: QueueManager) -> None:
        super().__init__(manager.operations)
        self._manager = manager

    def commit(self) -> None:
        """Do it all, durably."""
        self._manager.done(self._operations.commit(self._end()))

    def abort(self) -> None:
        """Undo it all: what was received is back in its place, what was sent never was."""
        self._manager.done(self._operations.abort(self._end()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_over:
            return
        if kind is None:
            self.commit()
        else:
            # What ended the block is told, not that a queue manager which has stopped had aborted already.
            with contextlib.suppress(TransactionSequence):
                self.abort()
