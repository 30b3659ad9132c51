"""`Transaction`: several operations, done together or not at all."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Self

from lanner.model.errors import LannerError, TransactionSequence, TransactionUsage

if TYPE_CHECKING:
    from types import TracebackType

    from lanner.client._async.backend import Backend, BackendTransaction


class Transaction:
    """A unit of work: commits at the end of its block, aborts on an exception."""

    def __init__(self, backend: Backend) -> None:
        """Made by `QueueManager.transaction`."""
        self._backend = backend
        self._unit = backend.transaction()

    def __repr__(self) -> str:
        return f"<Transaction {self.identifier} of {self._backend.name}>"

    @property
    def identifier(self) -> str:
        return str(self._unit.identifier)

    @property
    def is_over(self) -> bool:
        """Whether it was committed or aborted."""
        return self._unit.is_over

    async def commit(self) -> None:
        """Do everything, durably. CommitInDoubt if the connection is lost before the answer has come."""
        await self._require_open().commit()

    async def abort(self) -> None:
        """Undo everything: received messages return to their places, sent ones were never sent."""
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
            # The error that ended the block is raised, not that the queue manager has aborted already.
            with contextlib.suppress(LannerError):
                await self.abort()


def unit_of(transaction: Transaction | None, backend: Backend) -> BackendTransaction | None:
    """Return the backend's transaction of an optional argument."""
    return None if transaction is None else transaction.unit(backend)
