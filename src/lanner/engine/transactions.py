"""Transactions (MS-MQDMPR 3.1.4.3-3.1.4.11, 3.1.7.1.8) and the resource manager's side of a coordinator.

A transaction lives in memory until it is prepared for two phases: an unprepared one is aborted by a
crash (3.1.3), and nothing of it is on disk, so that is what a crash does. Prepare writes the operations
and locks the messages durably; commit and abort are one batch of the store each, so all or nothing.
"""

from __future__ import annotations

import enum
import json
import uuid
from typing import TYPE_CHECKING, Protocol

from lanner.engine.delivery import Delivery
from lanner.engine.envelope import is_express, read_envelope
from lanner.model.enums import MessageClass, OperationType, PositionState
from lanner.model.errors import DtcConnect, TransactionSequence
from lanner.model.events import EventKind
from lanner.model.live import MessagePosition, Transaction, TransactionalOperation
from lanner.wire.builder import set_transaction_flags

if TYPE_CHECKING:
    from collections.abc import Callable

# MS-MQMQ 2.2.20.5: the transaction id has 20 bits.
_INDEX_MASK = 0xF_FFFF


class Outcome(enum.Enum):
    """What a coordinator answers about an in-doubt transaction (MS-DTCO TXUSER_REENLIST)."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    TIMEOUT = "timeout"


class Coordinator(Protocol):
    """The external transaction manager. Each `_done` call comes when the step is on disk, not before."""

    def prepare_request_done(self, identifier: uuid.UUID) -> None:
        """TXUSER_ENLISTMENT_MTAG_PREPAREREQDONE."""

    def commit_request_done(self, identifier: uuid.UUID) -> None:
        """TXUSER_ENLISTMENT_MTAG_COMMITREQDONE."""

    def abort_request_done(self, identifier: uuid.UUID) -> None:
        """TXUSER_ENLISTMENT_MTAG_ABORTREQDONE."""

    def reenlist(self, identifier: uuid.UUID) -> Outcome:
        """What became of a transaction that was prepared before the queue manager stopped."""


class Transactions(Delivery):
    """Units of work."""

    coordinator: Coordinator | None = None

    def create_transaction(self, identifier: uuid.UUID) -> Transaction:
        """3.1.7.1.8 Create Transaction."""
        self._require_ready()
        if identifier in self.queue_manager.transaction_collection:
            raise TransactionSequence(f"transaction {identifier} is open already")
        transaction = Transaction(identifier, index=self._next_transaction_index())
        self.queue_manager.transaction_collection[identifier] = transaction
        return transaction

    def _next_transaction_index(self) -> int:
        return self._transaction_index.next() & _INDEX_MASK

    def transaction_prepare(self, identifier: uuid.UUID, *, single_phase: bool = True) -> None:
        """3.1.4.3 Transaction Prepare. With `single_phase` False the promise is kept over a crash."""
        transaction = self._transaction(identifier)
        transaction.single_phase = single_phase
        self._mark_first_and_last(transaction)
        if not single_phase:
            self._write_prepared(transaction)

    def transaction_commit(self, identifier: uuid.UUID) -> None:
        """3.1.4.4 Transaction Commit."""
        transaction = self._transaction(identifier)
        if not transaction.is_prepared:
            # MS-MQMP commits internal transactions without Prepare (DECISIONS: flags are set at commit).
            self._mark_first_and_last(transaction)
        self._forget(transaction)
        operations = transaction.transactional_operations
        # Sent, and timed out before this commit: removed by a later operation of the same list.
        timed_out = {
            id(operation.message_position)
            for operation in operations
            if operation.operation_type is OperationType.DEQUEUE and operation.message_position.is_uncommitted_send
        }
        for operation in operations:
            position = operation.message_position
            if _is_gone(position):
                if operation.operation_type is OperationType.ENQUEUE and position.queue.is_deleted:
                    self._commit_send_to_deleted_queue(position)
                continue
            if operation.operation_type is OperationType.ENQUEUE:
                if id(position) not in timed_out:
                    self._commit_send(position)
            elif operation.operation_type is OperationType.DEQUEUE:
                self._commit_receive(position, operation, transaction)
            else:
                self._commit_move(position, operation)
        operations.clear()

    def _commit_send(self, position: MessagePosition) -> None:
        self._take_sequence_number(position)
        self._unhold(position)
        position.is_uncommitted_send = False
        position.record.state = PositionState.AVAILABLE
        self._arrive(position, read_envelope(position.record.packet))

    def _commit_send_to_deleted_queue(self, position: MessagePosition) -> None:
        """The sender hears of it now: before the commit there was no message to speak of."""
        for subscriber in self.position_deleted_subscribers:
            subscriber(position.queue, position, MessageClass.NACK_QUEUE_DELETED)

    def _commit_receive(
        self, position: MessagePosition, operation: TransactionalOperation, transaction: Transaction
    ) -> None:
        if transaction.is_prepared and position.is_uncommitted_send:
            self.store.delete(position.queue.number, position.lookup_id, position.record)
        reason = operation.dequeue_reason or MessageClass.ACK_RECEIVE
        self.message_position_deleted(position.queue, position, reason)

    def _commit_move(self, position: MessagePosition, operation: TransactionalOperation) -> None:
        target = operation.target_queue
        if target is None or target.is_deleted:
            self._give_back(position, is_abort=False)
            return
        if position.state is PositionState.PURGE_PENDING:
            # A move that commits moves, also where a purge came meanwhile (DECISIONS).
            self._purge_pending_table.delete(self._position_key(position))
        self._move_now(position, target)

    def transaction_abort(self, identifier: uuid.UUID) -> None:
        """3.1.4.5 Transaction Abort."""
        transaction = self._transaction(identifier)
        self._forget(transaction)
        for operation in transaction.transactional_operations:
            position = operation.message_position
            if _is_gone(position):
                continue
            if operation.operation_type is OperationType.ENQUEUE:
                if transaction.is_prepared:
                    self.store.delete(position.queue.number, position.lookup_id, position.record)
                if self.events is not None:
                    self.events.add(EventKind.SEND_ABORTED, position)
                self._remove(position.queue, position)
            else:
                self._give_back(position, is_abort=operation.operation_type is OperationType.DEQUEUE)
        transaction.transactional_operations.clear()

    def _transaction(self, identifier: uuid.UUID) -> Transaction:
        try:
            return self.queue_manager.transaction_collection[identifier]
        except KeyError:
            raise TransactionSequence(
                f"no open transaction {identifier}: it was never begun, or it has ended"
            ) from None

    def _forget(self, transaction: Transaction) -> None:
        del self.queue_manager.transaction_collection[transaction.identifier]
        transaction.is_over = True
        if transaction.waiting_reads:
            error = f"transaction {transaction.identifier} has ended while this read waited in it"
            self._stop_waiting_reads(list(transaction.waiting_reads), TransactionSequence(error))
        if transaction.is_prepared:
            self._transactions_table.delete(transaction.identifier.bytes)

    @staticmethod
    def _mark_first_and_last(transaction: Transaction) -> None:
        """FM and LM of MS-MQMQ 2.2.20.5 count the messages that are sent (DMPR-3.1.4.3-2)."""
        sends = [
            operation.message_position
            for operation in transaction.transactional_operations
            if operation.operation_type is OperationType.ENQUEUE
        ]
        if sends:
            last = len(sends) - 1
            for index in {0, last}:
                record = sends[index].record
                record.packet = set_transaction_flags(record.packet, index == 0, index == last)

    # Two phases ---------------------------------------------------------------------------------------------

    def _write_prepared(self, transaction: Transaction) -> None:
        operations = []
        for operation in transaction.transactional_operations:
            position = operation.message_position
            if _is_gone(position):
                continue
            target = operation.target_queue
            operations.append(
                [
                    int(operation.operation_type),
                    position.queue.number,
                    position.lookup_id,
                    0 if target is None else target.number,
                    0 if operation.dequeue_reason is None else int(operation.dequeue_reason),
                ]
            )
            position.record.state = PositionState.LOCKED
            self.store.put(
                position.queue.number,
                position.lookup_id,
                position.record,
                express=is_express(position.record.packet),
            )
        transaction.is_prepared = True
        document = {"index": transaction.index, "operations": operations}
        self._transactions_table.put(transaction.identifier.bytes, json.dumps(document).encode())

    def _recover_prepared(self) -> None:
        """TransactionCollection after a restart: prepared transactions with their operations."""
        collection = self.queue_manager.queue_collection
        for key, value in list(self._transactions_table.items()):
            if uuid.UUID(bytes=key) in self.queue_manager.transaction_collection:
                continue
            document = json.loads(value)
            transaction = Transaction(
                uuid.UUID(bytes=key), single_phase=False, is_prepared=True, index=document["index"]
            )
            for kind, number, lookup_id, target, reason in document["operations"]:
                queue = collection.get(number)
                record = None if queue is None else self.store.get(number, lookup_id)
                if queue is None or record is None:
                    continue  # an express message, or its queue, is gone
                position = queue.held_positions.get(lookup_id) or MessagePosition(queue, lookup_id, record)
                position.transaction = transaction
                self._lock(position)
                if kind == OperationType.ENQUEUE:
                    position.is_uncommitted_send = True
                    queue.message_count -= 1
                transaction.transactional_operations.append(
                    TransactionalOperation(
                        OperationType(kind),
                        position,
                        target_queue=collection.get(target),
                        dequeue_reason=MessageClass(reason) if reason else None,
                    )
                )
            self.queue_manager.transaction_collection[transaction.identifier] = transaction

    def _undo_unsynced_promises(self) -> None:
        """The store has gone back to its last sync: what was prepared since then is not."""
        for transaction in self.queue_manager.transaction_collection.values():
            if transaction.is_prepared and self._transactions_table.get(transaction.identifier.bytes) is None:
                transaction.is_prepared = False
                transaction.single_phase = True

    def dtc_transaction_prepare(self, identifier: uuid.UUID, *, single_phase: bool) -> None:
        """3.1.4.6 DTC Transaction Prepare: TXUSER_ENLISTMENT_MTAG_PREPAREREQ came."""
        try:
            self.transaction_prepare(identifier, single_phase=False)
        except TransactionSequence:
            self.dtc_transaction_abort(identifier)
            return
        if single_phase:
            self.dtc_transaction_commit(identifier)
        else:
            self._tell_when_durable(lambda coordinator: coordinator.prepare_request_done(identifier))

    def dtc_transaction_commit(self, identifier: uuid.UUID) -> None:
        """3.1.4.7 DTC Transaction Commit: TXUSER_ENLISTMENT_MTAG_COMMITREQ came."""
        if identifier in self.queue_manager.transaction_collection:
            self.transaction_commit(identifier)
        # The text answers in any case: who asks again has missed the first answer.
        self._tell_when_durable(lambda coordinator: coordinator.commit_request_done(identifier))

    def dtc_transaction_abort(self, identifier: uuid.UUID) -> None:
        """3.1.4.8 DTC Transaction Abort: TXUSER_ENLISTMENT_MTAG_ABORTREQ came."""
        if identifier in self.queue_manager.transaction_collection:
            self.transaction_abort(identifier)
        self._tell_when_durable(lambda coordinator: coordinator.abort_request_done(identifier))

    def dtc_reenlistment_commit(self, identifier: uuid.UUID) -> None:
        """3.1.4.9 DTC Reenlistment Commit."""
        self.transaction_commit(identifier)

    def dtc_reenlistment_abort(self, identifier: uuid.UUID) -> None:
        """3.1.4.10 DTC Reenlistment Abort."""
        self.transaction_abort(identifier)

    def dtc_reenlistment_timeout(self, identifier: uuid.UUID) -> None:
        """3.1.4.11 DTC Reenlistment Timeout: the higher layer is told, initialization ends here."""
        raise DtcConnect(f"transaction {identifier} is in doubt and its coordinator does not answer")

    def _reenlist(self) -> None:
        """3.1.3: ask the coordinator for the outcome of each recovered transaction."""
        if self.coordinator is None:
            return
        answers = {
            Outcome.COMMITTED: self.dtc_reenlistment_commit,
            Outcome.ABORTED: self.dtc_reenlistment_abort,
            Outcome.TIMEOUT: self.dtc_reenlistment_timeout,
        }
        for transaction in list(self.queue_manager.transaction_collection.values()):
            if not transaction.single_phase:
                answers[self.coordinator.reenlist(transaction.identifier)](transaction.identifier)

    def _tell_when_durable(self, tell: Callable[[Coordinator], None]) -> None:
        coordinator = self.coordinator
        if coordinator is not None:
            self._when_durable(lambda: tell(coordinator))

    def _when_durable(self, callback: Callable[[], None]) -> None:
        """Call when everything done so far is on disk; never, if that fails."""
        batch = self.store.pending_batch()
        if batch <= self.store.synced:
            callback()
        else:
            self._durable_callbacks.append((batch, callback))

    def _on_synced(self, synced: int) -> None:
        if not self._durable_callbacks:
            return
        ready = [callback for batch, callback in self._durable_callbacks if batch <= synced]
        self._durable_callbacks = [entry for entry in self._durable_callbacks if entry[0] > synced]
        for callback in ready:
            callback()


def _is_gone(position: MessagePosition) -> bool:
    """Its queue was deleted under the transaction (DMPR-3.1.7.1.4-4), or a failing store has undone it."""
    return position.queue.is_deleted or position.state is PositionState.DELETED
