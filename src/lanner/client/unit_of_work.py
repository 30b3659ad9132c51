"""What a transaction of either API is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.model.errors import TransactionSequence, TransactionUsage

if TYPE_CHECKING:
    from lanner.client.operations import Operations
    from lanner.model import live


class UnitOfWork:
    """An engine's transaction and whether it is still open. One that is forgotten is aborted."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._transaction = operations.begin()
        self._is_over = False

    def __del__(self) -> None:
        # Not a weakref.finalize: every transaction would pay for it, and only a forgotten one needs it.
        if not getattr(self, "_is_over", True):
            self._operations.runtime.abandon((self._transaction,))

    @property
    def identifier(self) -> str:
        return str(self._transaction.identifier)

    def inner(self, operations: Operations) -> live.Transaction:
        """The engine's transaction, for an operation in it."""
        if self._is_over:
            raise TransactionSequence(f"transaction {self.identifier} has ended")
        if operations.runtime is not self._operations.runtime:
            raise TransactionUsage(f"transaction {self.identifier} belongs to another queue manager")
        return self._transaction

    def _end(self) -> live.Transaction:
        transaction = self.inner(self._operations)
        self._is_over = True
        return transaction


def inner(transaction: UnitOfWork | None, operations: Operations) -> live.Transaction | None:
    """The engine's transaction of an optional argument."""
    return None if transaction is None else transaction.inner(operations)
