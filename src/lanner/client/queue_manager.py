"""The blocking API: `QueueManager`, `Queue`, `Cursor`, `Transaction`. All may be shared by threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self, TypeVar

from lanner.client.operations import Operations, Outcome, Waiting
from lanner.client.runtime import Runtime, local_settings
from lanner.model.enums import QueueAccessType, QueueShareMode
from lanner.model.errors import IOTimeout, QueueNotFound, TransactionSequence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

    from lanner.client.message import Message, ReceivedMessage
    from lanner.engine.transactions import Coordinator
    from lanner.model import live
    from lanner.model.directory_objects import Queue as QueueObject
    from lanner.security.identity import Identity

T = TypeVar("T")


class QueueManager:
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
        coordinator: Coordinator | None = None,
        **settings: object,
    ) -> None:
        self.runtime = Runtime(data, local_settings(name, **settings), coordinator=coordinator)
        self.operations = Operations(self.runtime)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop. Express messages are gone, everything else is on disk."""
        self.runtime.close()

    @property
    def name(self) -> str:
        return self.runtime.engine.queue_manager.computer_name

    def as_user(self, identity: Identity) -> QueueManager:
        """The same queue manager seen by somebody whose rights are checked."""
        other = object.__new__(type(self))
        other.runtime = self.runtime
        other.operations = Operations(self.runtime, identity)
        return other

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

    def transaction(self) -> Transaction:
        """A unit of work: commits at the end of its `with` block, aborts on an exception."""
        return Transaction(self, self.operations.begin())

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
            try:
                while not over.wait(timeout):
                    with self.runtime.lock:
                        self.runtime.engine.on_timer()
                    timeout = 0.001
            except BaseException:
                outcome.abandon()
                raise
            outcome = outcome.finish()
        return self.done(outcome)


class Queue:
    """A queue by name. Handles are opened when first needed, and closed with it."""

    def __init__(self, manager: QueueManager, name: str, *, exclusive: bool = False) -> None:
        self._manager = manager
        self._operations = manager.operations
        self.name = name
        self._share_mode = QueueShareMode.DENY_RECEIVE if exclusive else QueueShareMode.DENY_NONE
        self._handles: dict[QueueAccessType, live.OpenQueueDescriptor] = {}
        if exclusive:
            self.handle(QueueAccessType.RECEIVE)

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the handles; reads that wait on them end. The queue can be used again."""
        handles = list(self._handles.values())
        self._handles.clear()
        for handle in handles:
            self._operations.close(handle)

    def handle(self, access: QueueAccessType) -> live.OpenQueueDescriptor:
        """The open handle for an access."""
        handle = self._handles.get(access)
        if handle is None:
            share_mode = self._share_mode if access is QueueAccessType.RECEIVE else QueueShareMode.DENY_NONE
            outcome = self._operations.open(self.name, access, share_mode)
            handle = self._handles[access] = self._manager.done(outcome)
        return handle

    @property
    def attributes(self) -> QueueObject:
        """The queue's attributes (MS-MQDMPR 3.1.1.2), to read; change them with `set`."""
        with self._manager.runtime.lock:
            return self._operations.find(self.name)

    def set(self, **changes: object) -> None:
        """Change attributes by the data model's names: label, quota, journaling, authentication ..."""
        self._manager.done(self._operations.set_attributes(self.name, changes))

    @property
    def path_name(self) -> str:
        return self.attributes.pathname

    @property
    def format_name(self) -> str:
        return str(self._operations.names.format_name(self.name))

    def exists(self) -> bool:
        """Whether the queue is here."""
        try:
            return self.attributes is not None
        except QueueNotFound:
            return False

    def __len__(self) -> int:
        return self.attributes.message_count

    def __bool__(self) -> bool:
        return True  # an empty queue is a queue

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Peek at every message, from the first to the last."""
        with self.cursor() as cursor:
            try:
                yield cursor.peek(timeout=0)
                while True:
                    yield cursor.peek_next(timeout=0)
            except IOTimeout:
                return

    def send(self, message: Message | ReceivedMessage | bytes | str, *, transaction: Transaction | None = None) -> str:
        """Send; when this returns, a recoverable message is on disk. Gives the message's id."""
        outcome = self._operations.send(self.handle(QueueAccessType.SEND), message, _inner(transaction))
        return self._manager.done(outcome)

    def send_many(
        self,
        messages: Iterable[Message | ReceivedMessage | bytes | str],
        *,
        transaction: Transaction | None = None,
    ) -> list[str]:
        """Send several messages for the cost of one commit."""
        outcome = self._operations.send_many(self.handle(QueueAccessType.SEND), messages, _inner(transaction))
        return self._manager.done(outcome)

    def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> ReceivedMessage:
        """Take the first message; IOTimeout if none comes within `timeout` seconds."""
        handle = self.handle(QueueAccessType.RECEIVE)
        outcome = self._operations.receive(handle, timeout, transaction=_inner(transaction))
        return self._manager.read(outcome, timeout)

    def receive_many(
        self, count: int, timeout: float | None = 0, *, transaction: Transaction | None = None
    ) -> list[ReceivedMessage]:
        """Take up to `count` messages in one commit; waits for the first one only."""
        handle = self.handle(QueueAccessType.RECEIVE)
        found = self._operations.receive_many(handle, count, _inner(transaction))
        if found.value or timeout == 0 or count < 1:
            return self._manager.done(found)
        try:
            first = self.receive(timeout, transaction=transaction)
        except IOTimeout:
            return []
        rest = self._operations.receive_many(handle, count - 1, _inner(transaction))
        return [first, *self._manager.done(rest)]

    def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """Look at the first message and leave it there."""
        return self._manager.read(self._operations.peek(self.handle(QueueAccessType.PEEK), timeout), timeout)

    def receive_by_lookup_id(
        self, lookup_id: int, where: str = "current", *, transaction: Transaction | None = None
    ) -> ReceivedMessage:
        """Take the message with a lookup id, or the one next to it: current, next, previous, first, last."""
        handle = self.handle(QueueAccessType.RECEIVE)
        outcome = self._operations.by_lookup_id(
            handle, lookup_id, where, is_peek=False, transaction=_inner(transaction)
        )
        return self._manager.done(outcome)

    def peek_by_lookup_id(self, lookup_id: int, where: str = "current") -> ReceivedMessage:
        """Look at the message with a lookup id, or next to it."""
        handle = self.handle(QueueAccessType.PEEK)
        return self._manager.done(self._operations.by_lookup_id(handle, lookup_id, where, is_peek=True))

    def purge(self) -> int:
        """Remove every message; how many there were."""
        return self._manager.done(self._operations.purge(self.handle(QueueAccessType.RECEIVE)))

    def cursor(self) -> Cursor:
        """A place in the queue that moves over the messages."""
        return Cursor(self._manager, self.handle(QueueAccessType.RECEIVE))

    def subqueue(self, name: str) -> Queue:
        """A subqueue; it comes into being when first used."""
        return Queue(self._manager, f"{self.path_name};{name}")

    def subqueues(self) -> list[Queue]:
        """The subqueues there are."""
        with self._manager.runtime.lock:
            found = [queue.pathname for queue in self.attributes.subqueues.values()]
        return [Queue(self._manager, pathname) for pathname in found]

    def move(self, lookup_id: int, target: str | Queue, *, transaction: Transaction | None = None) -> None:
        """Move a message to a subqueue of this queue (by its short name), or from one back to its queue."""
        queue = target if isinstance(target, Queue) else self.subqueue(target)
        source, destination = self.handle(QueueAccessType.MOVE), queue.handle(QueueAccessType.MOVE)
        outcome = self._operations.move(source, lookup_id, destination, _inner(transaction))
        self._manager.done(outcome)

    @property
    def journal(self) -> Queue:
        return Queue(self._manager, f"{self.path_name};journal")


class Cursor:
    """A place in a queue. Stepping off the end waits, or ends with IOTimeout."""

    def __init__(self, manager: QueueManager, handle: live.OpenQueueDescriptor) -> None:
        self._manager = manager
        self._operations = manager.operations
        self._handle = handle
        self._cursor = self._operations.open_cursor(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._operations.close_cursor(self._cursor)

    def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """The message under the cursor; a new cursor first moves to the first one."""
        return self._manager.read(self._operations.peek(self._handle, timeout, cursor=self._cursor), timeout)

    def peek_next(self, timeout: float | None = None) -> ReceivedMessage:
        """Step to the next message and look at it."""
        outcome = self._operations.peek(self._handle, timeout, cursor=self._cursor, is_next=True)
        return self._manager.read(outcome, timeout)

    def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> ReceivedMessage:
        """Take the message under the cursor."""
        outcome = self._operations.receive(self._handle, timeout, cursor=self._cursor, transaction=_inner(transaction))
        return self._manager.read(outcome, timeout)


class Transaction:
    """All of it or nothing."""

    def __init__(self, manager: QueueManager, transaction: live.Transaction) -> None:
        self._manager = manager
        self._transaction = transaction
        self._is_over = False

    @property
    def identifier(self) -> str:
        return str(self._transaction.identifier)

    @property
    def inner(self) -> live.Transaction:
        """The engine's transaction, while it is open."""
        if self._is_over:
            message = f"transaction {self._transaction.identifier} has ended"
            raise TransactionSequence(message)
        return self._transaction

    def commit(self) -> None:
        """Do it all, durably."""
        transaction = self.inner
        self._is_over = True
        self._manager.done(self._manager.operations.commit(transaction))

    def abort(self) -> None:
        """Undo it all: what was received is back in its place, what was sent never was."""
        transaction = self.inner
        self._is_over = True
        self._manager.done(self._manager.operations.abort(transaction))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_over:
            if kind is None:
                self.commit()
            else:
                self.abort()


def _inner(transaction: Transaction | None) -> live.Transaction | None:
    return None if transaction is None else transaction.inner
