"""`Transaction`: several operations, of which all or none take effect."""

# Uses the private backend of its queues.
# ruff: noqa: SLF001

from __future__ import annotations

import contextlib
from itertools import groupby
from typing import TYPE_CHECKING, Self

from lanner.client._async.backend import CommitsWithSends
from lanner.client.preparing import to_message
from lanner.model.errors import LannerError, TransactionSequence, TransactionUsage

if TYPE_CHECKING:
    from types import TracebackType

    from lanner.client._async.backend import Backend, BackendTransaction
    from lanner.client._async.queue import Queue
    from lanner.client.message import Message
    from lanner.client.preparing import Sendable


class Transaction:
    """A transaction: commits at the end of its block, aborts on an exception."""

    def __init__(self, backend: Backend) -> None:
        """Make a transaction; programs use `QueueManager.transaction`."""
        self._backend = backend
        self._unit = backend.transaction()
        # Messages that are sent with the commit, and the queues they are for.
        self._put: list[tuple[Queue, Message]] = []

    def __repr__(self) -> str:
        return f"<Transaction {self.identifier} of {self._backend.name}>"

    @property
    def identifier(self) -> str:
        return str(self._unit.identifier)

    @property
    def is_over(self) -> bool:
        """Whether the transaction has been committed or aborted."""
        return self._unit.is_over

    def put(self, queue: Queue, message: Sendable) -> Message:
        """Add a message that the commit sends, and return it; the commit sets its `id`.

        A service takes any number of such messages and their commit in one round trip. A refused
        message aborts the transaction, and `commit` raises the reason.
        """
        # Check now, not at the commit, whether the queue can be used with this transaction.
        self.unit(queue._backend)
        prepared = to_message(message)
        self._put.append((queue, prepared))
        return prepared

    async def commit(self) -> None:
        """Commit all operations durably.

        Raises CommitInDoubt if the connection is lost before the answer.
        """
        unit = self._require_open()
        if self._put and isinstance(unit, CommitsWithSends):
            put, self._put = self._put, []
            if await unit.commit_with([(queue._queue, message) for queue, message in put]):
                return
            self._put = put
        await self._send_put()
        await unit.commit()

    async def _send_put(self) -> None:
        """Send the messages of `put`; abort if one is refused."""
        put, self._put = self._put, []
        try:
            for queue, group in groupby(put, lambda one: one[0]):
                await queue.send_many([message for _, message in group], transaction=self)
        except BaseException:
            with contextlib.suppress(LannerError):
                await self.abort()
            raise

    async def abort(self) -> None:
        """Abort: received messages return to their places, and sent ones are discarded."""
        await self._require_open().abort()

    def _require_open(self) -> BackendTransaction:
        if self._unit.is_over:
            raise TransactionSequence(f"transaction {self.identifier} has ended")
        return self._unit

    def unit(self, backend: Backend) -> BackendTransaction:
        """Return the backend's transaction, for an operation in it. Queues call this."""
        if self._backend is not backend:
            raise TransactionUsage(f"transaction {self.identifier} belongs to another queue manager")
        return self._require_open()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_over:
            return
        if kind is None:
            await self.commit()
        else:
            # Raise the error that ended the block, rather than report that the queue manager has
            # already aborted.
            with contextlib.suppress(LannerError):
                await self.abort()


def unit_of(transaction: Transaction | None, backend: Backend) -> BackendTransaction | None:
    """Return the backend's transaction for an optional argument."""
    return None if transaction is None else transaction.unit(backend)
