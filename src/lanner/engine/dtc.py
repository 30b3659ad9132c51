"""The side of a distributed transaction coordinator (MS-MQDMPR 3.1.3, 3.1.4.6-3.1.4.11)."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

from lanner.model.errors import DtcConnect, TransactionSequence

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable

    from lanner.engine.core import Core
    from lanner.engine.transactions import Transactions
    from lanner.model.live import Transaction


class Outcome(enum.Enum):
    """A coordinator's answer about an in-doubt transaction (MS-DTCO TXUSER_REENLIST)."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    TIMEOUT = "timeout"
    # Not in the specification: another coordinator decides, and reports the outcome later.
    IN_DOUBT = "in doubt"


class LocalTransactionManager(Protocol):
    """The decision maker of external transactions: `host.coordinator`.

    Each `_done` method is called when the step is durable.
    """

    def prepare_request_done(self, identifier: uuid.UUID) -> None:
        """Report TXUSER_ENLISTMENT_MTAG_PREPAREREQDONE."""

    def commit_request_done(self, identifier: uuid.UUID) -> None:
        """Report TXUSER_ENLISTMENT_MTAG_COMMITREQDONE."""

    def abort_request_done(self, identifier: uuid.UUID) -> None:
        """Report TXUSER_ENLISTMENT_MTAG_ABORTREQDONE."""

    def reenlist(self, transaction: Transaction) -> Outcome:
        """Return the outcome of a transaction that was prepared before the last stop."""


class DistributedTransactions:
    """Transactions whose outcome an external coordinator decides."""

    def __init__(self, core: Core, transactions: Transactions, coordinator: LocalTransactionManager | None) -> None:
        self._store = core.store
        self._queue_manager = core.queue_manager
        self._transactions = transactions
        # None: there is no coordinator to report to.
        self.coordinator = coordinator
        # Callbacks that wait until a batch of the store is synced.
        self._durable_callbacks: list[tuple[int, Callable[[], None]]] = []

    def dtc_transaction_prepare(self, identifier: uuid.UUID, *, single_phase: bool) -> None:
        """3.1.4.6 DTC Transaction Prepare: TXUSER_ENLISTMENT_MTAG_PREPAREREQ has arrived."""
        try:
            self._transactions.transaction_prepare(identifier, single_phase=False)
        except TransactionSequence:
            self.dtc_transaction_abort(identifier)
            return
        if single_phase:
            self.dtc_transaction_commit(identifier)
        else:
            self._tell_when_durable(lambda coordinator: coordinator.prepare_request_done(identifier))

    def dtc_transaction_commit(self, identifier: uuid.UUID) -> None:
        """3.1.4.7 DTC Transaction Commit: TXUSER_ENLISTMENT_MTAG_COMMITREQ has arrived."""
        if identifier in self._queue_manager.transaction_collection:
            self._transactions.transaction_commit(identifier)
        # The specification answers in any case: a coordinator that repeats its request has missed
        # the first answer.
        self._tell_when_durable(lambda coordinator: coordinator.commit_request_done(identifier))

    def dtc_transaction_abort(self, identifier: uuid.UUID) -> None:
        """3.1.4.8 DTC Transaction Abort: TXUSER_ENLISTMENT_MTAG_ABORTREQ has arrived."""
        if identifier in self._queue_manager.transaction_collection:
            self._transactions.transaction_abort(identifier)
        self._tell_when_durable(lambda coordinator: coordinator.abort_request_done(identifier))

    def dtc_reenlistment_commit(self, identifier: uuid.UUID) -> None:
        """3.1.4.9 DTC Reenlistment Commit."""
        self._transactions.transaction_commit(identifier)

    def dtc_reenlistment_abort(self, identifier: uuid.UUID) -> None:
        """3.1.4.10 DTC Reenlistment Abort."""
        self._transactions.transaction_abort(identifier)

    def dtc_reenlistment_timeout(self, identifier: uuid.UUID) -> None:
        """3.1.4.11 DTC Reenlistment Timeout: raise an error to the higher layer.

        Initialization ends here.
        """
        raise DtcConnect(f"transaction {identifier} is in doubt and its coordinator does not answer")

    def reenlist(self) -> None:
        """Ask the coordinator for the outcome of each recovered transaction (3.1.3)."""
        if self.coordinator is None:
            return
        answers = {
            Outcome.COMMITTED: self.dtc_reenlistment_commit,
            Outcome.ABORTED: self.dtc_reenlistment_abort,
            Outcome.TIMEOUT: self.dtc_reenlistment_timeout,
        }
        for transaction in list(self._queue_manager.transaction_collection.values()):
            if not transaction.single_phase:
                outcome = self.coordinator.reenlist(transaction)
                if outcome is not Outcome.IN_DOUBT:
                    answers[outcome](transaction.identifier)

    def _tell_when_durable(self, tell: Callable[[LocalTransactionManager], None]) -> None:
        coordinator = self.coordinator
        if coordinator is not None:
            self._when_durable(lambda: tell(coordinator))

    def _when_durable(self, callback: Callable[[], None]) -> None:
        """Call back when all changes so far are durable; never, if that fails."""
        batch = self._store.pending_batch()
        if batch <= self._store.synced:
            callback()
        else:
            self._durable_callbacks.append((batch, callback))

    def on_synced(self, synced: int) -> None:
        """Make the callbacks that waited for a batch of the store."""
        if not self._durable_callbacks:
            return
        ready = [callback for batch, callback in self._durable_callbacks if batch <= synced]
        self._durable_callbacks = [entry for entry in self._durable_callbacks if entry[0] > synced]
        for callback in ready:
            callback()

    def go_back(self) -> None:
        """Drop the callbacks that waited for a batch that failed."""
        self._durable_callbacks.clear()
