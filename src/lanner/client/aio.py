"""The awaitable API: the names of `lanner.QueueManager`, for one event loop.

The engine runs in the loop's own thread, it is quick; what blocks is the sync to disk, which `Committer` does for all.
"""

# A read's time-out is the protocol's, kept by the queue manager.
# ruff: noqa: ASYNC109

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from lanner.client.operations import Operations, Outcome, Waiting
from lanner.client.runtime import Runtime, bound_settings, local_settings
from lanner.client.shared import BaseCursor, BaseQueue, BaseQueueManager
from lanner.client.unit_of_work import UnitOfWork, inner
from lanner.model.enums import QueueAccessType
from lanner.model.errors import IOTimeout, StatusError, TransactionSequence
from lanner.store.committer import Committer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path
    from types import TracebackType

    from lanner.client.message import Message, ReceivedMessage
    from lanner.model import live
    from lanner.transfer.settings import TransferSettings

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
# By names of their own: each message asks, and an enumeration looks its members up slowly.
_SEND, _RECEIVE = QueueAccessType.SEND, QueueAccessType.RECEIVE


class QueueManager(BaseQueueManager):
    """A queue manager in this process: `async with lanner.aio.QueueManager("data") as qm: ...`."""

    committer: Committer

    def __init__(
        self,
        data: str | Path,
        name: str | None = None,
        *,
        bind: str | None = None,
        transfer: TransferSettings | None = None,
        **settings: object,
    ) -> None:
        """`bind`: an address to exchange messages with other computers on; None, and what is for them waits."""
        self._data = data
        self._bind = bind
        self._transfer_settings = transfer
        self._settings = local_settings(name, **bound_settings(bind, transfer, settings))

    async def __aenter__(self) -> Self:
        opened: list[Runtime] = []
        is_unwanted = threading.Event()
        try:
            await asyncio.to_thread(self._open, opened, is_unwanted)
        except asyncio.CancelledError:
            # The thread goes on: what it opens, or has just opened, must not keep the data directory.
            is_unwanted.set()
            if opened:
                threading.Thread(target=self.stop).start()
            raise
        self.operations = Operations(self.runtime)
        self.committer = Committer(self.runtime.store, asyncio.get_running_loop())
        return self

    def _open(self, opened: list[Runtime], is_unwanted: threading.Event) -> None:
        self.runtime = Runtime(self._data, self._settings)
        self.start_transfer(self._bind, self._transfer_settings)
        opened.append(self.runtime)
        if is_unwanted.is_set():
            self.stop()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop. Express messages are gone, everything else is on disk."""
        await asyncio.to_thread(self.stop)
        await asyncio.to_thread(self.committer.close)

    async def create_queue(
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
        return Queue(self, (await self.done(outcome)).pathname)

    async def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages, journal and subqueues."""
        await self.done(self.operations.delete_queue(name))

    def open(self, name: str, *, exclusive: bool = False) -> Queue:
        """A queue by any spelling of its name; it is looked for when first used."""
        return Queue(self, name, exclusive=exclusive)

    def queues(self) -> list[Queue]:
        """The public and private queues here."""
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
        """A unit of work: `async with qm.transaction() as tx:`."""
        return Transaction(self)

    # How this API waits -----------------------------------------------------------------------------------

    async def done(self, outcome: Outcome[T]) -> T:
        """The value of an operation, when it is on disk."""
        if outcome.ticket:
            await self.committer.durable(outcome.ticket)
        return outcome.value

    async def waited(self, waiting: Waiting) -> Outcome[ReceivedMessage]:
        """What a read that has to wait ends with."""
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        with self.runtime.lock:
            waiting.on_over = partial(loop.call_soon_threadsafe, over.set)
            if waiting.is_over:
                over.set()
        try:
            await over.wait()
            return waiting.finish()
        except BaseException:
            waiting.abandon()
            raise

    async def read(self, outcome: Outcome[ReceivedMessage] | Waiting) -> ReceivedMessage:
        """The message of a read, when it has come and, if that is a receive, is on disk as received."""
        if isinstance(outcome, Waiting):
            outcome = await self.waited(outcome)
        return await self.received(outcome, [outcome.value])

    async def received(self, outcome: Outcome[T], messages: list[ReceivedMessage]) -> T:
        """The value of a receive, when it is on disk; a caller who is cancelled meanwhile finds the messages in the queue."""
        if outcome.ticket:
            try:
                await self.committer.durable(outcome.ticket)
            except asyncio.CancelledError:
                self.undo(messages)
                raise
        return outcome.value

    def undo(self, messages: list[ReceivedMessage]) -> None:
        """Put messages back whose receiver has gone."""
        self.committer.ask(self.operations.undo_receive(messages))


class Queue(BaseQueue):
    """A queue by name. Handles are opened when first needed, and closed with it."""

    def __init__(self, manager: QueueManager, name: str, *, exclusive: bool = False) -> None:
        super().__init__(manager.operations, name, exclusive=exclusive)
        self._manager = manager

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def handle(self, access: QueueAccessType) -> live.OpenQueueDescriptor:
        """The open handle for an access."""
        handle = self._handles.cached(access)
        return handle if handle is not None else await self._manager.done(self._handles.open(access))

    async def set(self, **changes: object) -> None:
        """Change attributes by the data model's names."""
        await self._manager.done(self._operations.set_attributes(self.name, changes))

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Peek at every message, from the first to the last."""
        async with self.cursor(peek_only=True) as cursor:
            try:
                yield await cursor.peek(timeout=0)
                while True:
                    yield await cursor.peek_next(timeout=0)
            except IOTimeout:
                return

    async def send(
        self, message: Message | ReceivedMessage | bytes | str, *, transaction: Transaction | None = None
    ) -> str:
        """Send; when this returns, a recoverable message is on disk. Gives the message's id."""
        handle = self._handles.cached(_SEND) or await self.handle(_SEND)
        operations = self._operations
        identifier, ticket = operations.send(handle, message, inner(transaction, operations))
        # Not by `done`: each coroutine on the way costs about as much as the queue does.
        if ticket:
            await self._manager.committer.durable(ticket)
        return identifier

    async def send_many(
        self,
        messages: Iterable[Message | ReceivedMessage | bytes | str],
        *,
        transaction: Transaction | None = None,
    ) -> list[str]:
        """Send several messages for the cost of one commit. What stands before one that is refused stays sent."""
        handle = await self.handle(QueueAccessType.SEND)
        return await self._manager.done(
            self._operations.send_many(handle, messages, inner(transaction, self._operations))
        )

    async def receive(
        self,
        timeout: float | None = None,
        *,
        transaction: Transaction | None = None,
    ) -> ReceivedMessage:
        """Take the first message; IOTimeout if none comes within `timeout` seconds."""
        handle = self._handles.cached(_RECEIVE) or await self.handle(_RECEIVE)
        operations, manager = self._operations, self._manager
        outcome = operations.receive(handle, timeout, transaction=inner(transaction, operations))
        if isinstance(outcome, Waiting):
            outcome = await manager.waited(outcome)
        # Not by `read`: each coroutine on the way costs about as much as the queue does.
        message, ticket = outcome
        if ticket:
            try:
                await manager.committer.durable(ticket)
            except asyncio.CancelledError:
                manager.undo([message])
                raise
        return message

    async def receive_many(
        self,
        count: int,
        timeout: float | None = 0,
        *,
        transaction: Transaction | None = None,
    ) -> list[ReceivedMessage]:
        """Take up to `count` messages in one commit; waits for the first one only."""
        handle = await self.handle(QueueAccessType.RECEIVE)
        found = self._operations.receive_many(handle, count, inner(transaction, self._operations))
        if found.value or timeout == 0 or count < 1:
            return await self._manager.received(found, found.value)
        try:
            first = await self.receive(timeout, transaction=transaction)
        except IOTimeout:
            return []
        try:
            rest = self._operations.receive_many(handle, count - 1, inner(transaction, self._operations))
            return [first, *await self._manager.received(rest, [first, *rest.value])]
        except StatusError:
            if transaction is not None:
                raise
            # The first is removed already: what became of the queue since then must not lose it.
            return [first]

    async def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """Look at the first message and leave it there."""
        handle = await self.handle(QueueAccessType.PEEK)
        return await self._manager.read(self._operations.peek(handle, timeout))

    async def receive_by_lookup_id(
        self, lookup_id: int, where: str = "current", *, transaction: Transaction | None = None
    ) -> ReceivedMessage:
        """Take the message with a lookup id, or next to it: current, next, previous, first, last."""
        handle = await self.handle(QueueAccessType.RECEIVE)
        outcome = self._operations.by_lookup_id(
            handle, lookup_id, where, is_peek=False, transaction=inner(transaction, self._operations)
        )
        return await self._manager.received(outcome, [outcome.value])

    async def peek_by_lookup_id(self, lookup_id: int, where: str = "current") -> ReceivedMessage:
        """Look at the message with a lookup id, or next to it."""
        handle = await self.handle(QueueAccessType.PEEK)
        return await self._manager.done(self._operations.by_lookup_id(handle, lookup_id, where, is_peek=True))

    async def purge(self) -> int:
        """Remove every message; how many there were."""
        count = 0
        for outcome in self._operations.purge(await self.handle(QueueAccessType.RECEIVE)):
            count += await self._manager.done(outcome)
        return count

    def cursor(self, *, peek_only: bool = False) -> Cursor:
        """A place in the queue that moves over the messages; who may only peek asks for `peek_only`."""
        access = QueueAccessType.PEEK if peek_only else QueueAccessType.RECEIVE
        # A handle for reading promises nothing that the disk would have to keep.
        handle = self._handles.cached(access) or self._handles.open(access).value
        return Cursor(self._manager, self, handle)

    def subqueue(self, name: str) -> Queue:
        """A subqueue; it comes into being when first used."""
        return Queue(self._manager, f"{self.path_name};{name}")

    def subqueues(self) -> list[Queue]:
        """The subqueues there are."""
        return [Queue(self._manager, pathname) for pathname in self._operations.subqueue_names(self.name)]

    async def move(self, lookup_id: int, target: str | Queue, *, transaction: Transaction | None = None) -> None:
        """Move a message to a subqueue of this queue (by its short name), or from one back to its queue."""
        queue = target if isinstance(target, Queue) else self.subqueue(target)
        source = await self.handle(QueueAccessType.MOVE)
        destination = await queue.handle(QueueAccessType.MOVE)
        await self._manager.done(
            self._operations.move(source, lookup_id, destination, inner(transaction, self._operations))
        )

    @property
    def journal(self) -> Queue:
        return Queue(self._manager, f"{self.path_name};journal")


class Cursor(BaseCursor):
    """A place in a queue. Stepping off the end waits, or ends with IOTimeout."""

    def __init__(self, manager: QueueManager, queue: Queue, handle: live.OpenQueueDescriptor) -> None:
        super().__init__(manager.operations, queue, handle)
        self._manager = manager

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """The message under the cursor; a new cursor first moves to the first one."""
        return await self._manager.read(self._operations.peek(self._handle, timeout, cursor=self._cursor))

    async def peek_next(self, timeout: float | None = None) -> ReceivedMessage:
        """Step to the next message and look at it."""
        outcome = self._operations.peek(self._handle, timeout, cursor=self._cursor, is_next=True)
        return await self._manager.read(outcome)

    async def receive(
        self,
        timeout: float | None = None,
        *,
        transaction: Transaction | None = None,
    ) -> ReceivedMessage:
        """Take the message under the cursor."""
        outcome = self._operations.receive(
            self._handle, timeout, cursor=self._cursor, transaction=inner(transaction, self._operations)
        )
        return await self._manager.read(outcome)


class Transaction(UnitOfWork):
    """All of it or nothing."""

    def __init__(self, manager: QueueManager) -> None:
        super().__init__(manager.operations)
        self._manager = manager

    async def commit(self) -> None:
        """Do it all, durably."""
        await self._manager.done(self._operations.commit(self._end()))

    async def abort(self) -> None:
        """Undo it all: what was received is back in its place, what was sent never was."""
        await self._manager.done(self._operations.abort(self._end()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_over:
            return
        if kind is None:
            await self.commit()
        else:
            # What ended the block is told, not that a queue manager which has stopped had aborted already.
            with contextlib.suppress(TransactionSequence):
                await self.abort()
