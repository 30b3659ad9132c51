"""Transactions: commit, abort, two phases (MS-MQDMPR 3.1.4.3-3.1.4.5, 3.1.7.1.8).

A transaction is in memory until it is prepared for two phases. A crash aborts an unprepared
transaction (3.1.3), which takes no work because nothing of it is on disk. Prepare writes the
operations and locks the messages durably. Commit and abort are one batch of the store each, so they
are atomic. The interface to a distributed transaction coordinator is in `dtc`.
"""

from __future__ import annotations

import json
import uuid
from itertools import islice
from typing import TYPE_CHECKING

from lanner.engine.checks import require_ready
from lanner.engine.tables import TRANSACTIONS
from lanner.model.branches import Branch
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import MessageClass, OperationType, PositionState
from lanner.model.errors import TransactionSequence
from lanner.model.events import EventKind
from lanner.model.live import MessagePosition, Transaction, TransactionalOperation
from lanner.wire.builder import set_transaction_flags
from lanner.wire.envelope import is_express, read_envelope
from lanner.wire.packet_runs import equal_envelopes

if TYPE_CHECKING:
    from lanner.engine.arrivals import Arrivals
    from lanner.engine.core import Core
    from lanner.engine.moving import Moving
    from lanner.engine.outgoing_sequences import OutgoingSequences


# Module-level names: Python 3.11 looks up members of an enumeration slowly.
_ENQUEUE, _DEQUEUE = OperationType.ENQUEUE, OperationType.DEQUEUE
_AVAILABLE, _DELETED, _LOCKED = PositionState.AVAILABLE, PositionState.DELETED, PositionState.LOCKED
_ACK_RECEIVE = MessageClass.ACK_RECEIVE


class Transactions:
    """The transactions of the queue manager."""

    def __init__(self, core: Core, arrivals: Arrivals, moving: Moving, sequences: OutgoingSequences) -> None:
        self._store = core.store
        self._queue_manager = core.queue_manager
        self._numbers = core.numbers
        self._recorder = core.recorder
        self._arrivals = arrivals
        self._moving = moving
        self._positions = moving.positions
        self._waiting = moving.positions.waiting
        self._sequences = sequences
        self._table = core.store.table(TRANSACTIONS)

    def create_transaction(self, identifier: uuid.UUID) -> Transaction:
        """3.1.7.1.8 Create Transaction."""
        require_ready(self._queue_manager)
        if identifier in self._queue_manager.transaction_collection:
            raise TransactionSequence(f"transaction {identifier} is open already")
        transaction = Transaction(identifier, index=self._numbers.next_transaction_index())
        self._queue_manager.transaction_collection[identifier] = transaction
        return transaction

    def transaction_prepare(self, identifier: uuid.UUID, *, single_phase: bool = True) -> None:
        """3.1.4.3 Transaction Prepare.

        With `single_phase` False the transaction survives a crash.
        """
        transaction = self._transaction(identifier)
        transaction.single_phase = single_phase
        transaction.forget_undone()
        _mark_first_and_last(transaction)
        if not single_phase:
            self._write_prepared(transaction)

    def transaction_commit(self, identifier: uuid.UUID) -> None:
        """3.1.4.4 Transaction Commit."""
        transaction = self._transaction(identifier)
        if not transaction.is_prepared:
            # MS-MQMP commits internal transactions without Prepare (DECISIONS: the flags are set at
            # commit).
            _mark_first_and_last(transaction)
        self._forget(transaction)
        operations = transaction.transactional_operations
        # Messages sent in this transaction that have expired before its commit. A later operation
        # in the same list removes them.
        timed_out = {
            id(operation.message_position)
            for operation in operations
            if operation.operation_type is _DEQUEUE and operation.message_position.is_uncommitted_send
        }
        index = 0
        while index < len(operations):
            operation = operations[index]
            index += 1
            position = operation.message_position
            if _is_gone(position):
                if operation.operation_type is _ENQUEUE and position.queue.is_deleted:
                    self._commit_send_to_deleted_queue(position)
                continue
            if operation.operation_type is _ENQUEUE:
                if id(position) not in timed_out:
                    run = _run_of(operations, index - 1, timed_out)
                    self._commit_sends(run)
                    index += len(run) - 1
            elif operation.operation_type is _DEQUEUE:
                received = _received_run(operations, index - 1)
                if len(received) > 1:
                    self._positions.locked_messages_received(position.queue, received)
                    index += len(received) - 1
                else:
                    self._commit_receive(position, operation, transaction)
            else:
                self._commit_move(position, operation)
        operations.clear()

    def _commit_sends(self, positions: list[MessagePosition]) -> None:
        """Have consecutively sent messages arrive in their queue."""
        queue = positions[0].queue
        if isinstance(queue, OutgoingQueue):
            self._sequences.take_numbers(queue, positions)
        else:
            self._positions.unhold_run(queue, positions)
        records = []
        for position in positions:
            position.is_uncommitted_send = False
            position.state = _AVAILABLE
            record = position.record
            record.state = _AVAILABLE
            records.append(record)
        self._arrivals.arrive_run(queue, positions[0].lookup_id, records, read_envelope(records[0].packet))

    def _commit_send_to_deleted_queue(self, position: MessagePosition) -> None:
        """Raise the event at commit, because until then the message was not sent."""
        for subscriber in self._positions.deleted_subscribers:
            subscriber(position.queue, position, MessageClass.NACK_QUEUE_DELETED)

    def _commit_receive(
        self, position: MessagePosition, operation: TransactionalOperation, transaction: Transaction
    ) -> None:
        if transaction.is_prepared and position.is_uncommitted_send:
            self._store.delete(position.queue.number, position.lookup_id, position.record)
        reason = operation.dequeue_reason or MessageClass.ACK_RECEIVE
        self._positions.message_position_deleted(position.queue, position, reason)

    def _commit_move(self, position: MessagePosition, operation: TransactionalOperation) -> None:
        target = operation.target_queue
        if target is None or target.is_deleted:
            self._positions.give_back(position, is_abort=False)
            return
        # A committed move takes effect even if the queue was purged meanwhile (DECISIONS).
        self._positions.forget_purge(position)
        self._moving.move_now(position, target)

    def abort_unprepared(self) -> None:
        """Abort every transaction that is not prepared, because the queue manager stops."""
        for transaction in list(self._queue_manager.transaction_collection.values()):
            if not transaction.is_prepared:
                self.transaction_abort(transaction.identifier)

    def transaction_abort(self, identifier: uuid.UUID) -> None:
        """3.1.4.5 Transaction Abort."""
        transaction = self._transaction(identifier)
        self._forget(transaction)
        for operation in transaction.transactional_operations:
            position = operation.message_position
            if _is_gone(position):
                continue
            if operation.operation_type is _ENQUEUE:
                if transaction.is_prepared:
                    self._store.delete(position.queue.number, position.lookup_id, position.record)
                if self._recorder is not None:
                    self._recorder.add(EventKind.SEND_ABORTED, position)
                self._positions.remove(position.queue, position)
            else:
                self._positions.give_back(position, is_abort=operation.operation_type is _DEQUEUE)
                target = operation.target_queue
                if target is not None and target.ends_when_unused:
                    self._positions.may_be_unused(target)
        transaction.transactional_operations.clear()

    def _transaction(self, identifier: uuid.UUID) -> Transaction:
        try:
            return self._queue_manager.transaction_collection[identifier]
        except KeyError:
            raise TransactionSequence(
                f"no open transaction {identifier}: it was never begun, or it has ended"
            ) from None

    def _forget(self, transaction: Transaction) -> None:
        del self._queue_manager.transaction_collection[transaction.identifier]
        transaction.is_over = True
        if transaction.waiting_reads:
            error = f"transaction {transaction.identifier} has ended while this read waited in it"
            self._waiting.stop_all(transaction.waiting_reads, TransactionSequence(error))
        if transaction.is_prepared:
            self._table.delete(transaction.identifier.bytes)

    # Two phases -----------------------------------------------------------------------------------

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
            self._store.put(
                position.queue.number,
                position.lookup_id,
                position.record,
                express=is_express(position.record.packet),
            )
        transaction.is_prepared = True
        document: dict[str, object] = {
            "index": transaction.index,
            "operations": operations,
            "owner": transaction.owner,
        }
        branch = transaction.branch
        if branch is not None:
            document["branch"] = [str(branch.coordinator), str(branch.transaction), branch.resource]
        self._table.put(transaction.identifier.bytes, json.dumps(document).encode())

    def recover_prepared(self) -> None:
        """Restore TransactionCollection after a restart with the prepared transactions."""
        collection = self._queue_manager.queue_collection
        for key, value in list(self._table.items()):
            if uuid.UUID(bytes=key) in self._queue_manager.transaction_collection:
                continue
            document = json.loads(value)
            transaction = Transaction(
                uuid.UUID(bytes=key),
                single_phase=False,
                is_prepared=True,
                index=document["index"],
                # Stores of earlier versions have neither.
                branch=read_branch(document.get("branch")),
                owner=document.get("owner", ""),
            )
            for kind, number, lookup_id, target, reason in document["operations"]:
                queue = collection.get(number)
                record = None if queue is None else self._store.get(number, lookup_id)
                if queue is None or record is None:
                    continue  # the message was express, or its queue was deleted
                position = queue.held_positions.get(lookup_id) or MessagePosition(queue, lookup_id, record)
                position.transaction = transaction
                self._positions.lock(position)
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
            self._queue_manager.transaction_collection[transaction.identifier] = transaction

    def go_back(self) -> None:
        """Undo each Prepare since the last sync, after the store has undone it."""
        for transaction in self._queue_manager.transaction_collection.values():
            if transaction.is_prepared and self._table.get(transaction.identifier.bytes) is None:
                transaction.is_prepared = False
                transaction.single_phase = True


def read_branch(value: list[str] | None) -> Branch | None:
    """Return the branch of a stored transaction; None if its coordinator is not known."""
    if value is None:
        return None
    coordinator, transaction, resource = value
    return Branch(uuid.UUID(coordinator), uuid.UUID(transaction), resource)


def _is_gone(position: MessagePosition) -> bool:
    """Return whether a position's queue was deleted (DMPR-3.1.7.1.4-4) or undone by the store."""
    return position.queue.is_deleted or position.state is _DELETED


def _run_of(operations: list[TransactionalOperation], index: int, timed_out: set[int]) -> list[MessagePosition]:
    """Return the positions of a send and of the sends that can be stored together with it.

    These are the following sends to the same queue with equal envelopes.
    """
    first = operations[index].message_position
    positions = [first]
    queue, lookup_id = first.queue, first.lookup_id
    for operation in islice(operations, index + 1, None):
        position = operation.message_position
        lookup_id += 1
        if (
            position.lookup_id != lookup_id
            or position.queue is not queue
            or position.state is _DELETED
            or operation.operation_type is not _ENQUEUE
            or (timed_out and id(position) in timed_out)
        ):
            break
        positions.append(position)
    if len(positions) > 1:
        del positions[equal_envelopes([position.record.packet for position in positions]) :]
    return positions


def _received_run(operations: list[TransactionalOperation], index: int) -> list[MessagePosition]:
    """Return the positions of consecutive receives from one queue that end in the same way."""
    queue = operations[index].message_position.queue
    positions = []
    for operation in islice(operations, index, None):
        position = operation.message_position
        if (
            operation.operation_type is not _DEQUEUE
            or position.queue is not queue
            or position.state is not _LOCKED
            or position.is_uncommitted_send
            or operation.dequeue_reason is not _ACK_RECEIVE
        ):
            break
        positions.append(position)
    return positions


def _mark_first_and_last(transaction: Transaction) -> None:
    """Set FM and LM of MS-MQMQ 2.2.20.5. They count only sent messages (DMPR-3.1.4.3-2)."""
    sends = [operation for operation in transaction.transactional_operations if operation.operation_type is _ENQUEUE]
    if not sends:
        return
    first, last = sends[0].message_position.record, sends[-1].message_position.record
    first.packet = set_transaction_flags(first.packet, True, first is last)
    if last is not first:
        last.packet = set_transaction_flags(last.packet, False, True)
