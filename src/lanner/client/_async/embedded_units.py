"""Cursors and transactions of a queue manager in this process."""

# A read's time-out is the protocol's, kept by the queue manager.
# ruff: noqa: ASYNC109

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, cast

from lanner.client._async.io import durable, taken, waited
from lanner.client.message import ReceivedMessage
from lanner.host.operations import milliseconds
from lanner.host.reads import Read
from lanner.model.enums import QueueAccessType

if TYPE_CHECKING:
    from lanner.client._async.backend import BackendTransaction
    from lanner.client._async.embedded import EmbeddedBackend
    from lanner.client._async.embedded_queue import EmbeddedQueue
    from lanner.model.live import Cursor, OpenQueueDescriptor, Transaction


class EmbeddedCursor:
    """A cursor, which is opened on first use."""

    def __init__(self, backend: EmbeddedBackend, queue: EmbeddedQueue, access: QueueAccessType) -> None:
        self._backend = backend
        self._operations = backend.operations
        # This reference keeps the queue object, and so its handle, open.
        self._queue = queue
        self._access = access
        self._cursor: Cursor | None = None

    async def _opened(self) -> tuple[OpenQueueDescriptor, Cursor]:
        if self._cursor is None:
            handle = await self._queue.handle(self._access)
            with self._backend.runtime.lock:
                self._cursor = self._operations.open_cursor(handle)
        return self._cursor.descriptor, self._cursor

    async def close(self) -> None:
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            with self._backend.runtime.lock:
                self._backend.engine.close_cursor(cursor)

    async def peek(self, timeout: float | None, *, is_next: bool) -> ReceivedMessage:
        handle, cursor = await self._opened()
        with self._backend.runtime.lock:
            read = self._operations.peek(handle, milliseconds(timeout), cursor=cursor, is_next=is_next)
        await waited(read, timeout)
        return received(read, self._backend.identifier)

    async def receive(self, timeout: float | None, unit: BackendTransaction | None) -> ReceivedMessage:
        handle, cursor = await self._opened()
        transaction = None if unit is None else inner(unit)
        with self._backend.runtime.lock:
            read = self._operations.receive(handle, milliseconds(timeout), cursor=cursor, transaction=transaction)
        await waited(read, timeout)
        if transaction is None:
            await taken(read)
        return received(read, self._backend.identifier)


class EmbeddedTransaction:
    """A transaction of the engine; it is aborted if it is dropped before its end."""

    def __init__(self, backend: EmbeddedBackend) -> None:
        self._backend = backend
        with backend.runtime.lock:
            backend.runtime.tidy()
            self.inner = backend.operations.begin(uuid.uuid4())
        self.is_over = False

    def __del__(self) -> None:
        # Not a weakref.finalize: every transaction would pay for it, and only a forgotten one needs
        # it.
        if not getattr(self, "is_over", True):
            self._backend.runtime.abandon((self.inner,))

    @property
    def identifier(self) -> uuid.UUID:
        return self.inner.identifier

    async def commit(self) -> None:
        self.is_over = True
        with self._backend.waiter.change() as change:
            self._backend.operations.commit(self.inner)
        await durable(change)

    async def abort(self) -> None:
        self.is_over = True
        with self._backend.waiter.change() as change:
            self._backend.operations.abort(self.inner)
        await durable(change)


def received(read: Read, keeper: uuid.UUID) -> ReceivedMessage:
    """Return the message of a read in the queue manager `keeper`."""
    position = read.position
    return ReceivedMessage(position.lookup_id, position.record, keeper)


def inner(unit: BackendTransaction) -> Transaction:
    """Return the engine's transaction; `Transaction.unit` has checked its backend."""
    return cast("EmbeddedTransaction", unit).inner


def prepared(unit: BackendTransaction) -> Transaction:
    """Return the engine's transaction of a unit that its coordinator ends from now on."""
    own = cast("EmbeddedTransaction", unit)
    own.is_over = True
    return own.inner
