"""A queue of a queue manager in this process, and the handles that its `Queue` object has open.

`send` and `receive` are written out step by step instead of with `change()`: most programs use them
most of the time, and each additional call costs about as much as the queue operation itself.
"""

# A read's time-out is the protocol's, kept by the queue manager.
# ruff: noqa: ASYNC109

from __future__ import annotations

import sys
import uuid
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from lanner.client._async.embedded_units import EmbeddedCursor, inner, received
from lanner.client._async.io import durable, sleep, taken, waited
from lanner.client.found import Found
from lanner.client.message import ReceivedMessage
from lanner.client.preparing import alike, signed, to_message, together
from lanner.host.finding import Search
from lanner.host.operations import milliseconds
from lanner.host.passing import Passing, delete
from lanner.host.reads import Read, purge_slices
from lanner.model.enums import QueueAccessType, QueueShareMode
from lanner.model.errors import InvalidParameter, IOTimeout, LannerError, StatusError
from lanner.model.live import MessagePosition
from lanner.wire.envelope import is_express
from lanner.wire.format_name import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanner.client._async.backend import BackendCursor, BackendQueue, BackendTransaction
    from lanner.client._async.embedded import EmbeddedBackend
    from lanner.client.message import Message
    from lanner.client.preparing import Sendable
    from lanner.model.live import OpenQueueDescriptor, Transaction
    from lanner.wire.builder import MessageProperties
    from lanner.wire.format_name import FormatName

# Module-level names: they are used for every message, and enumerations look up members slowly.
# Messages that are received together have no size limit here.
MAX_SIZE: Final = sys.maxsize
_SEND, _RECEIVE, _PEEK, _MOVE = (
    QueueAccessType.SEND,
    QueueAccessType.RECEIVE,
    QueueAccessType.PEEK,
    QueueAccessType.MOVE,
)


class EmbeddedQueue:
    """The handles behind one `Queue` object: one per access, opened on first use."""

    def __init__(self, backend: EmbeddedBackend, name: FormatName, *, exclusive: bool) -> None:
        self.backend = backend
        self._name = name
        self._exclusive = exclusive
        self._operations = backend.operations
        self._engine = backend.engine
        self._identifier = backend.engine.queue_manager.identifier
        self._store = backend.runtime.store
        self._lock = backend.runtime.lock
        self._durable = backend.waiter.durable
        self._open: dict[QueueAccessType, OpenQueueDescriptor] = {}
        # A queue object that is garbage-collected without close() must not keep its queue open.
        weakref.finalize(self, backend.runtime.abandon, self._open.values()).atexit = False

    async def open(self) -> None:
        if self._exclusive:
            await self.handle(_RECEIVE)

    async def close(self) -> None:
        with self.backend.waiter.change() as change:
            handles = list(self._open.values())
            self._open.clear()
            for handle in handles:
                self._engine.close_queue(handle)
        change.soon()

    def _cached(self, access: QueueAccessType) -> OpenQueueDescriptor | None:
        """Return the handle if it is open and its queue has not been deleted."""
        handle = self._open.get(access)
        return handle if handle is not None and (handle.queue is not None or handle.multiple) else None

    async def handle(self, access: QueueAccessType) -> OpenQueueDescriptor:
        """Return the open handle for an access; another thread may have opened it meanwhile."""
        handle = self._cached(access)
        if handle is not None:
            return handle
        is_exclusive = self._exclusive and access is _RECEIVE
        share_mode = QueueShareMode.DENY_RECEIVE if is_exclusive else QueueShareMode.DENY_NONE
        with self.backend.waiter.change() as change:
            handle = self._cached(access)
            if handle is not None:
                return handle
            self.backend.runtime.tidy()
            handle = self._operations.open(self._name, access, share_mode)
            stale = self._open.get(access)
            if stale is not None:
                self._engine.close_queue(stale)
            self._open[access] = handle
        # Opening may have created a subqueue or an outgoing queue.
        await durable(change)
        return handle

    # Sending
    # ----------------------------------------------------------------------------------------------

    def prepare(
        self, message: Message, handle: OpenQueueDescriptor, transaction: Transaction | None
    ) -> MessageProperties:
        """Return the properties for a message's packet, signed if the message requests it."""
        properties = message.properties(self._operations.names)
        if message.authenticate:
            properties = signed(
                message,
                properties,
                self.backend.key_to_sign_with(),
                source=self._identifier,
                # The name as packets carry it: the engine sorts the names of a multi-queue format
                # name.
                destination=parse(handle.format_name),
                is_transactional=transaction is not None,
            )
        return properties

    async def send(self, message: Sendable, unit: BackendTransaction | None) -> str:
        handle = self._cached(_SEND) or await self.handle(_SEND)
        message = to_message(message)
        transaction = None if unit is None else inner(unit)
        properties = self.prepare(message, handle, transaction)
        with self._lock:
            identifier = message.id = self._operations.send(handle, properties, transaction)
            # An express message need not wait, even if the batch has messages of others that must.
            batch = self._store.pending_batch() if message.recoverable and transaction is None else 0
        if batch:
            await self._durable(batch)
        return identifier

    async def send_many(self, messages: Sequence[Sendable], unit: BackendTransaction | None) -> list[str]:
        handle = await self.handle(_SEND)
        transaction = None if unit is None else inner(unit)
        # Sign before taking the lock, because signing takes time.
        prepared = [to_message(message) for message in messages]
        runs = [together(some, self.prepare(some[0], handle, transaction)) for some in alike(prepared)]
        identifiers: list[str] = []
        error: StatusError | None = None
        with self.backend.waiter.change() as change:
            try:
                self._operations.send_many(handle, runs, identifiers, transaction)
            except StatusError as caught:
                error = caught
        for message, identifier in zip(prepared, identifiers, strict=False):
            message.id = identifier
        if transaction is None:
            await durable(change)
        if error is not None:
            raise error
        return identifiers

    # Reading
    # ----------------------------------------------------------------------------------------------

    async def receive(self, timeout: float | None, unit: BackendTransaction | None) -> ReceivedMessage:
        handle = self._cached(_RECEIVE) or await self.handle(_RECEIVE)
        transaction = None if unit is None else inner(unit)
        limit = 0 if timeout == 0 else milliseconds(timeout)
        with self._lock:
            # An available message is removed at once; one that must be waited for, in two steps.
            position = self._engine.try_dequeue_message(handle, transaction)
            if position is None:
                read = self._operations.wait_to_receive(handle, limit, transaction=transaction)
            else:
                is_durable = transaction is None and not is_express(position.record.packet)
                batch = self._store.pending_batch() if is_durable else 0
        if position is None:
            return await self._wait_to_receive(read, timeout)
        if batch:
            try:
                await self._durable(batch)
            except LannerError:
                raise
            except BaseException:
                self._undo([position])
                raise
        return ReceivedMessage(position.lookup_id, position.record, self._identifier)

    async def _wait_to_receive(self, read: Read, timeout: float | None) -> ReceivedMessage:
        position = await waited(read, timeout)
        if read.transaction is None:
            await taken(read)
        return ReceivedMessage(position.lookup_id, position.record, self._identifier)

    def _undo(self, positions: Sequence[MessagePosition]) -> None:
        """Put back messages whose receiver was cancelled or interrupted."""
        with self.backend.waiter.change() as change:
            self._operations.undo_receive(positions)
        change.soon()

    async def receive_many(
        self, count: int, timeout: float | None, unit: BackendTransaction | None
    ) -> list[ReceivedMessage]:
        handle = await self.handle(_RECEIVE)
        transaction = None if unit is None else inner(unit)
        with self.backend.waiter.change() as change:
            positions = self._engine.dequeue_messages(handle, count, MAX_SIZE, transaction)
        if not positions and timeout != 0 and count > 0:
            with self._lock:
                first = self._operations.receive(handle, milliseconds(timeout), transaction=transaction)
            try:
                await waited(first, timeout)
            except IOTimeout:
                return []
            with self.backend.waiter.change() as change:
                if transaction is None:
                    first.remove()
                positions = [first.position]
                # Errors from here on are ignored, because the first message has been received.
                with suppress(StatusError):
                    positions += self._engine.dequeue_messages(handle, count - 1, MAX_SIZE, transaction)
        if transaction is None:
            try:
                await durable(change)
            except LannerError:
                raise
            except BaseException:
                self._undo(positions)
                raise
        return [ReceivedMessage(position.lookup_id, position.record, self._identifier) for position in positions]

    @asynccontextmanager
    async def receiving(self, count: int, timeout: float | None) -> AsyncIterator[list[ReceivedMessage]]:
        handle = await self.handle(_RECEIVE)
        reads: list[Read] = []
        try:
            if count > 0:
                with suppress(*([IOTimeout] if timeout == 0 else [])):
                    with self._lock:
                        first = self._operations.receive(handle, milliseconds(timeout))
                    await waited(first, timeout)
                    reads.append(first)
                with self._lock, suppress(StatusError):
                    if reads:
                        reads += self._operations.receive_ready(handle, count - 1, MAX_SIZE, None)
            yield [received(read, self._identifier) for read in reads]
        except BaseException:
            for read in reversed(reads):
                read.give_back()
            raise
        await self._remove(reads)

    @asynccontextmanager
    async def receiving_by_lookup_id(self, lookup_id: int, where: str) -> AsyncIterator[ReceivedMessage]:
        handle = await self.handle(_RECEIVE)
        with self._lock:
            read = self._operations.look_up(handle, lookup_id, where, is_peek=False)
        try:
            yield received(read, self._identifier)
        except BaseException:
            read.give_back()
            raise
        await self._remove([read])

    async def _remove(self, reads: Sequence[Read]) -> None:
        with self.backend.waiter.change() as change:
            errors = [error for _, error in self._operations.remove_all(reads)]
        await durable(change)
        # A message that was purged meanwhile has left the queue anyway.
        if errors and len(errors) == len(reads):
            raise errors[0]

    async def peek(self, timeout: float | None) -> ReceivedMessage:
        handle = await self.handle(_PEEK)
        with self._lock:
            read = self._operations.peek(handle, milliseconds(timeout))
        await waited(read, timeout)
        return received(read, self._identifier)

    async def receive_by_lookup_id(
        self, lookup_id: int, where: str, unit: BackendTransaction | None
    ) -> ReceivedMessage:
        handle = await self.handle(_RECEIVE)
        transaction = None if unit is None else inner(unit)
        with self._lock:
            read = self._operations.look_up(handle, lookup_id, where, is_peek=False, transaction=transaction)
        if transaction is None:
            await taken(read)
        return received(read, self._identifier)

    async def peek_by_lookup_id(self, lookup_id: int, where: str) -> ReceivedMessage:
        handle = await self.handle(_PEEK)
        with self._lock:
            return received(self._operations.look_up(handle, lookup_id, where, is_peek=True), self._identifier)

    def _neighbour(self, target: BackendQueue) -> EmbeddedQueue:
        """Return the queue as one of the same queue manager, or raise InvalidParameter."""
        if not isinstance(target, EmbeddedQueue) or target.backend.embedded is not self.backend.embedded:
            raise InvalidParameter("messages are moved and copied between queues of one queue manager object")
        return target

    async def move(self, lookup_ids: Sequence[int], target: BackendQueue, unit: BackendTransaction | None) -> None:
        source, destination = await self.handle(_MOVE), await self._neighbour(target).handle(_MOVE)
        given = None if unit is None else inner(unit)
        with self.backend.waiter.change() as change:
            transaction = self._operations.begin(uuid.uuid4()) if given is None else given
            try:
                for lookup_id in lookup_ids:
                    self._operations.move(source, lookup_id, destination, transaction)
            except BaseException:
                if given is None:
                    self._operations.abort(transaction)
                raise
            if given is None:
                self._operations.commit(transaction)
        if given is None:
            await durable(change)

    async def find(
        self, conditions: Sequence[str], after: int | None, limit: int, scan: int, *, ids_only: bool
    ) -> Found:
        search = Search(self._engine, await self.handle(_PEEK), conditions, after, limit, scan)
        for _ in search.slices():
            # Let readers and senders in other tasks and threads run.
            await sleep(0)
        keeper = self._identifier
        messages = [] if ids_only else [ReceivedMessage(one.lookup_id, one.record, keeper) for one in search.found]
        return Found(messages, [one.lookup_id for one in search.found], search.scanned, search.after)

    async def pass_on(
        self,
        lookup_ids: Sequence[int],
        target: BackendQueue,
        unit: BackendTransaction | None,
        *,
        is_copy: bool,
        edited: Message | None = None,
    ) -> list[str]:
        other = self._neighbour(target)
        source, handle = await self.handle(_PEEK if is_copy else _RECEIVE), await other.handle(_SEND)
        transaction = None if unit is None else inner(unit)
        properties = None if edited is None else other.prepare(edited, handle, transaction)
        passing = Passing(self._operations, source, handle, is_copy, transaction, properties)
        error: StatusError | None = None
        identifiers: list[str] = []
        with self.backend.waiter.change() as change:
            try:
                identifiers = passing.run(lookup_ids)
            except StatusError as caught:
                error = caught
        if transaction is None:
            # Messages before a refused one may have been passed on. Make that durable before
            # raising the error.
            await durable(change)
        if error is not None:
            raise error
        return identifiers

    async def delete(self, lookup_ids: Sequence[int]) -> None:
        handle = await self.handle(_RECEIVE)
        with self.backend.waiter.change() as change:
            delete(self._operations, handle, lookup_ids)
        await durable(change)

    async def purge(self) -> int:
        handle = await self.handle(_RECEIVE)
        total = 0
        for change, count in purge_slices(self._engine, self.backend.waiter, handle, self._operations.identity):
            await durable(change)
            total += count
        return total

    def cursor(self, *, peek_only: bool) -> BackendCursor:
        return EmbeddedCursor(self.backend, self, _PEEK if peek_only else _RECEIVE)
