"""Moves between queues, undone receives, purges (MS-MQDMPR 3.1.7.1.7, 3.1.7.1.16)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from lanner.engine.checks import RECEIVE_ACCESS, not_available, readable, require_open, require_ready, wrong_access
from lanner.model.enums import (
    MessageClass,
    MessageSeekAction,
    OperationType,
    PositionState,
    QueueAccessType,
    QueueManagerState,
)
from lanner.model.errors import InvalidParameter, TransactionUsage
from lanner.model.events import EventKind
from lanner.model.live import MessagePosition, TransactionalOperation
from lanner.model.lookup_ids import sequential_id_of
from lanner.wire.envelope import read_envelope

if TYPE_CHECKING:
    from lanner.engine.core import Core
    from lanner.engine.positions import Positions
    from lanner.model.directory_objects import Queue
    from lanner.model.live import OpenQueueDescriptor, Record, Transaction


class Moving:
    """Moves messages between queues, puts them back, and purges queues."""

    def __init__(self, core: Core, positions: Positions) -> None:
        self._store = core.store
        self._queue_manager = core.queue_manager
        self._recorder = core.recorder
        self._shares = core.shares
        self.positions = positions

    # Move -----------------------------------------------------------------------------------------

    def move_message(
        self, position: MessagePosition, target: Queue, transaction: Transaction | None = None, holder: bytes = b""
    ) -> None:
        """3.1.7.1.16 Move Message.

        `holder` is the SID of the transaction's user. Message Position Deleted is not raised, so
        there is no acknowledgment (DMPR-3.1.7.1.16-5).
        """
        if transaction is not None and not transaction.is_null:
            if target.is_system:
                raise TransactionUsage(f"a move to {target.pathname} takes no transaction")
            require_open(transaction)
            self.positions.held_memory.check(holder)
            self.positions.lock(position, holder)
            position.transaction = transaction
            transaction.transactional_operations.append(
                TransactionalOperation(OperationType.MOVE, position, target_queue=target)
            )
        else:
            self.move_now(position, target)

    def move_now(self, position: MessagePosition, target: Queue) -> None:
        """Move a message outside a transaction, or when its transaction commits."""
        record = position.record
        if self._recorder is not None:
            self._recorder.add(EventKind.MOVED, position, target=target)
        self.positions.remove(position.queue, position)
        moved = self._place(target, position.lookup_id, _copied(record, move_count=record.move_count + 1))
        self.positions.moved(moved)
        if not target.is_system:
            self.positions.message_position_available(target, moved)

    def undo_receive(self, position: MessagePosition) -> None:
        """Undo a receive whose client disconnected before the removal was durable.

        A journal copy or an acknowledgment of the receive stays, because it may be durable already.
        """
        queue, record = position.queue, position.record
        if self._queue_manager.queue_manager_state is not QueueManagerState.READY or queue.is_deleted:
            return
        if self._store.get(queue.number, position.lookup_id) is not None:
            return  # the removal was not stored, and the message is still in the queue
        back = self._place(queue, position.lookup_id, _copied(record, move_count=record.move_count))
        if self._recorder is not None:
            self._recorder.add(EventKind.RECEIVE_ABORTED, back)
        self.positions.message_position_available(queue, back)

    def _place(self, queue: Queue, lookup_id: int, record: Record) -> MessagePosition:
        """Count and write a record in a queue under a lookup identifier that it had before."""
        size = len(record.packet)
        queue.total_bytes += size
        self._queue_manager.total_bytes += size
        if self._shares.sources:
            self._shares.placed(queue, record.packet, len(record.packet))
        position = MessagePosition(queue, lookup_id, record)
        self.positions.write(position, read_envelope(record.packet))
        return position

    def move_message_by_lookup_identifier(
        self,
        source: OpenQueueDescriptor,
        lookup_id: int,
        target: OpenQueueDescriptor,
        transaction: Transaction | None = None,
    ) -> MessagePosition:
        """Move one message between a queue and its subqueues, both opened with MoveAccess."""
        require_ready(self._queue_manager)
        from_queue, to_queue = _movable(source), _movable(target)
        if _family(from_queue) != _family(to_queue):
            raise InvalidParameter(f"{source.format_name} and {target.format_name} are not parts of one queue")
        position = self.positions.seek_available_message_position_with_id(
            from_queue, lookup_id, peek=False, action=MessageSeekAction.CURRENT
        )
        self.move_message(position, to_queue, transaction, source.sender_identifier)
        return position

    # Purge ----------------------------------------------------------------------------------------

    def purge_queue(self, queue: Queue, *, limit: int | None = None, newest: int | None = None) -> int:
        """3.1.7.1.7 Purge Queue; return how many messages were removed immediately.

        Uncommitted sends stay (DECISIONS). A long queue can be purged in slices of `limit`
        messages, so that other callers are served in between. In that case `newest`, the
        SequentialID issued last when the purge began, protects the messages that arrived later.
        """
        require_ready(self._queue_manager)
        for position in list(queue.held_positions.values()):
            if position.state is PositionState.LOCKED and not position.is_uncommitted_send:
                self.positions.purge_pending(position)
        count = 0
        for position in self.positions.all_positions(queue):
            if count == limit:
                break
            if newest is not None and sequential_id_of(position.lookup_id) > newest:
                continue
            if position.state is PositionState.AVAILABLE:
                self.positions.message_position_deleted(queue, position, MessageClass.NACK_QUEUE_PURGED)
                count += 1
        return count

    def purge_open_queue(
        self, descriptor: OpenQueueDescriptor, *, limit: int | None = None, newest: int | None = None
    ) -> int:
        """Purge through a handle, which must allow receiving (DMPR-3.1.1.17-2)."""
        queue = readable(self._queue_manager, descriptor, RECEIVE_ACCESS)
        return self.purge_queue(queue, limit=limit, newest=newest)


def _copied(record: Record, *, move_count: int) -> Record:
    """Return an Available copy of a record that the store does not have.

    It has no visibility number and no reference.
    """
    return dataclasses.replace(
        record, state=PositionState.AVAILABLE, visibility=0, reference=b"", move_count=move_count
    )


def _movable(descriptor: OpenQueueDescriptor) -> Queue:
    if descriptor.queue is None:
        raise not_available(descriptor)
    if descriptor.access_type is not QueueAccessType.MOVE:
        raise wrong_access(descriptor)
    return descriptor.queue


def _family(queue: Queue) -> int:
    """Return the number that a queue and its subqueues share."""
    return queue.parent or queue.number
