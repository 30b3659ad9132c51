"""Receiving and peeking (MS-MQDMPR 3.1.7.1.10-3.1.7.1.15).

A read that finds a message returns its position at once. A read that must wait returns the waiting
read, and calls `on_end` exactly once later, with the position or with the error. Time-outs are in
milliseconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from lanner.engine.checks import PEEK_ACCESS, RECEIVE_ACCESS, not_available, readable, require_open
from lanner.engine.cursors import CursorEvent
from lanner.model.enums import (
    INFINITE,
    MessageClass,
    MessageSeekAction,
    OperationType,
    PositionState,
)
from lanner.model.errors import (
    InvalidParameter,
    IOTimeout,
    MessageNotFound,
    StatusError,
    TransactionSequence,
)
from lanner.model.live import (
    ALLOW_PEEK_WHEN_LOCKED,
    START,
    MessagePosition,
    TransactionalOperation,
    WaitingMessageReadOperation,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lanner.engine.core import Core
    from lanner.engine.cursors import Cursors
    from lanner.engine.waiting import WaitingReads
    from lanner.model.live import Cursor, OpenQueueDescriptor, Transaction

ReadEnd = Callable[[MessagePosition | StatusError], None]
# The position of a message that was available, or the waiting read.
ReadStart = MessagePosition | WaitingMessageReadOperation

_LOG = logging.getLogger(__name__)

# A module-level name: each receive uses it, and Python 3.11 looks up members of an enumeration
# slowly.
_ACK_RECEIVE = MessageClass.ACK_RECEIVE
_DEQUEUE = OperationType.DEQUEUE


def _no_waiter(_: MessagePosition | StatusError) -> None:
    """Do nothing: a read with time-out 0 never waits."""


def _tell(on_end: ReadEnd, end: MessagePosition | StatusError) -> None:
    """End a wait. An error of the callback is logged, because it must not reach the sender."""
    try:
        on_end(end)
    except Exception:  # noqa: BLE001 (logged)
        _LOG.exception("a waiting read could not take its answer")


class Reading:
    """The events that read messages."""

    def __init__(self, core: Core, cursors: Cursors) -> None:
        self._queue_manager = core.queue_manager
        self.cursors = cursors
        self._positions = cursors.positions
        self._held_memory = cursors.positions.held_memory
        self.waiting: WaitingReads = cursors.positions.waiting

    def dequeue_message(
        self,
        descriptor: OpenQueueDescriptor,
        *,
        timeout: int = INFINITE,
        cursor: Cursor | None = None,
        transaction: Transaction | None = None,
        tag: object | None = None,
        two_phase_read: bool = False,
        on_end: ReadEnd = _no_waiter,
    ) -> ReadStart:
        """3.1.7.1.10 Dequeue Message."""
        queue = readable(self._queue_manager, descriptor, RECEIVE_ACCESS)
        if transaction is not None:
            require_open(transaction)
        if transaction is not None or two_phase_read:
            self._held_memory.check(descriptor.sender_identifier)
        if cursor is not None:
            found = self.cursors.get_message(cursor, CursorEvent.GET_NEXT_MESSAGE_FOR_DEQUEUE, no_wait=timeout == 0)
            if found is None and timeout == 0:
                raise MessageNotFound(f"queue {queue.pathname}: no message after the cursor")
        else:
            found = self._positions.seek_forward(queue, START)
        if found is not None:
            self.take(descriptor, found, transaction, two_phase_read=two_phase_read)
            return found
        return self.wait_to_dequeue_message(
            descriptor,
            timeout=timeout,
            cursor=cursor,
            transaction=transaction,
            tag=tag,
            two_phase_read=two_phase_read,
            on_end=on_end,
        )

    def wait_to_dequeue_message(
        self,
        descriptor: OpenQueueDescriptor,
        *,
        timeout: int,
        on_end: ReadEnd,
        two_phase_read: bool,
        cursor: Cursor | None = None,
        transaction: Transaction | None = None,
        tag: object | None = None,
    ) -> WaitingMessageReadOperation:
        """Do the second half of Dequeue Message, for callers that have just found no message.

        The caller has held the store's lock since it looked, so no message can have arrived. Raises
        IOTimeout if `timeout` is 0.
        """

        def satisfied(position: MessagePosition) -> None:
            if cursor is not None:
                self.cursors.message_available(cursor, position)
            self.take(descriptor, position, transaction, two_phase_read=two_phase_read)
            _tell(on_end, position)

        return self._wait(
            descriptor, timeout, cursor, tag, satisfied, on_end, destructive_read=True, transaction=transaction
        )

    def try_dequeue_message(
        self, descriptor: OpenQueueDescriptor, transaction: Transaction | None = None
    ) -> MessagePosition | None:
        """Do Dequeue Message with time-out 0.

        Returns None instead of raising when the queue is empty.
        """
        queue = readable(self._queue_manager, descriptor, RECEIVE_ACCESS)
        if transaction is not None:
            require_open(transaction)
        found = self._positions.seek_forward(queue, START)
        if found is not None:
            if transaction is None:
                self._positions.message_position_deleted(queue, found, _ACK_RECEIVE)
            else:
                self._held_memory.check(descriptor.sender_identifier)
                self.take(descriptor, found, transaction, two_phase_read=False)
        return found

    def dequeue_messages(
        self,
        descriptor: OpenQueueDescriptor,
        count: int,
        size: int,
        transaction: Transaction | None = None,
        *,
        two_phase_read: bool = False,
    ) -> list[MessagePosition]:
        """Do Dequeue Message with time-out 0 for available messages, and return them.

        Returns at most `count` messages, at most `size` bytes of packets, and no more than the user
        may have locked; an empty list if the queue is empty.
        """
        queue = readable(self._queue_manager, descriptor, RECEIVE_ACCESS)
        if transaction is not None:
            require_open(transaction)
            if transaction.is_null:
                transaction = None
        if transaction is None and not two_phase_read:
            return self._positions.messages_received(queue, self._positions.seek_run(queue, count, size, is_taken=True))
        holder = descriptor.sender_identifier
        self._held_memory.check(holder)
        size = min(size, self._held_memory.room(holder))
        positions = [
            MessagePosition(queue, lookup_id, record, transaction=transaction)
            for lookup_id, record in self._positions.seek_run(queue, count, size, is_taken=False)
        ]
        if not positions:
            return positions
        self._positions.lock_run(queue, positions, holder)
        if transaction is None:
            descriptor.unfinished_reads.update((position.lookup_id, position) for position in positions)
        else:
            transaction.transactional_operations += [
                TransactionalOperation(_DEQUEUE, position, dequeue_reason=_ACK_RECEIVE) for position in positions
            ]
        return positions

    def dequeue_numbered_messages(self, descriptor: OpenQueueDescriptor, numbers: Mapping[int, int]) -> int:
        """Do Dequeue Message for the available ones of some messages; return how many there were.

        They are given by their lookup ids, with their visibility numbers: a message that has
        another number by now is another one to its reader.
        """
        queue = readable(self._queue_manager, descriptor, RECEIVE_ACCESS)
        return self._positions.receive_numbered(queue, numbers)

    def dequeue_message_begin(
        self,
        descriptor: OpenQueueDescriptor,
        *,
        timeout: int = INFINITE,
        cursor: Cursor | None = None,
        tag: object | None = None,
        transaction: Transaction | None = None,
        on_end: ReadEnd = _no_waiter,
    ) -> ReadStart:
        """3.1.7.1.11 Dequeue Message Begin.

        A transaction takes precedence over the two-phase read.
        """
        return self.dequeue_message(
            descriptor,
            timeout=timeout,
            cursor=cursor,
            transaction=transaction,
            tag=tag,
            two_phase_read=True,
            on_end=on_end,
        )

    def dequeue_message_end(
        self,
        descriptor: OpenQueueDescriptor,
        position: MessagePosition,
        *,
        delete_message: bool,
        transactional: bool = False,
        counts_purged: bool = False,
    ) -> None:
        """3.1.7.1.12 Dequeue Message End.

        With `counts_purged`, a message that was purged meanwhile is received all the same
        (DECISIONS).
        """
        queue = descriptor.queue
        if queue is None:
            raise not_available(descriptor)
        if position.state in (PositionState.AVAILABLE, PositionState.DELETED):
            raise TransactionSequence(f"message {position.lookup_id:#x} of queue {queue.pathname} is not being read")
        if transactional:
            return
        descriptor.unfinished_reads.pop(position.lookup_id, None)
        if delete_message and (counts_purged or position.state is PositionState.LOCKED):
            self._positions.message_position_deleted(queue, position, MessageClass.ACK_RECEIVE)
        else:
            self._positions.give_back(position, is_abort=False)

    def dequeue_messages_end(self, descriptor: OpenQueueDescriptor, positions: Sequence[MessagePosition]) -> None:
        """Do Dequeue Message End, with deletion, for messages that one handle has Locked."""
        queue = descriptor.queue
        if queue is None:
            raise not_available(descriptor)
        for position in positions:
            descriptor.unfinished_reads.pop(position.lookup_id, None)
        self._positions.locked_messages_received(queue, positions)

    def give_back_transactional_read(self, transaction: Transaction, position: MessagePosition) -> None:
        """Undo a read in a transaction whose reader disconnected before it got the message."""
        if not transaction.is_prepared and transaction.undo(position):
            self._positions.give_back(position, is_abort=False)

    def read_message_by_lookup_identifier(
        self,
        descriptor: OpenQueueDescriptor,
        lookup_id: int,
        *,
        peek_operation: bool,
        lookup_operation: MessageSeekAction,
        transaction: Transaction | None = None,
        two_phase_read: bool = False,
        allow_peek_when_locked: bool = False,
    ) -> MessagePosition:
        """3.1.7.1.13 Read Message By Lookup Identifier. It never waits.

        With `allow_peek_when_locked`, peeks see the message while the transaction holds it (MC-MQAC
        3.11.4.1.33).
        """
        if peek_operation and transaction is not None:
            raise InvalidParameter("a peek by lookup identifier takes no transaction")
        queue = readable(self._queue_manager, descriptor, PEEK_ACCESS if peek_operation else RECEIVE_ACCESS)
        if transaction is not None:
            require_open(transaction)
        position = self._positions.seek_available_message_position_with_id(
            queue, lookup_id, peek=peek_operation, action=lookup_operation
        )
        if not peek_operation:
            if transaction is not None or two_phase_read:
                self._held_memory.check(descriptor.sender_identifier)
            if allow_peek_when_locked and transaction is not None:
                position.record.flags |= ALLOW_PEEK_WHEN_LOCKED
            self.take(descriptor, position, transaction, two_phase_read=two_phase_read)
        return position

    def peek_next_message(
        self,
        descriptor: OpenQueueDescriptor,
        cursor: Cursor,
        *,
        timeout: int = INFINITE,
        tag: object | None = None,
        on_end: ReadEnd = _no_waiter,
    ) -> ReadStart:
        """3.1.7.1.14 Peek Next Message. A peek can be cancelled by its tag, too (DECISIONS)."""
        readable(self._queue_manager, descriptor, PEEK_ACCESS)
        found = self.cursors.get_message(cursor, CursorEvent.GET_NEXT_MESSAGE_FOR_PEEK, no_wait=False)
        return self._wait_to_peek(descriptor, timeout, cursor, tag, on_end) if found is None else found

    def peek_message(
        self,
        descriptor: OpenQueueDescriptor,
        *,
        timeout: int = INFINITE,
        cursor: Cursor | None = None,
        tag: object | None = None,
        on_end: ReadEnd = _no_waiter,
    ) -> ReadStart:
        """3.1.7.1.15 Peek Message. A peek can be cancelled by its tag, too (DECISIONS)."""
        queue = readable(self._queue_manager, descriptor, PEEK_ACCESS)
        if cursor is not None:
            found = self.cursors.get_message(cursor, CursorEvent.GET_MESSAGE_FOR_PEEK, no_wait=False)
        else:
            found = self._positions.seek_available_message_position(queue, START, peek=True)
        return self._wait_to_peek(descriptor, timeout, cursor, tag, on_end) if found is None else found

    # Shared steps ---------------------------------------------------------------------------------

    def take(
        self,
        descriptor: OpenQueueDescriptor,
        position: MessagePosition,
        transaction: Transaction | None,
        *,
        two_phase_read: bool,
    ) -> None:
        """Lock or remove the position that a destructive read has found."""
        if transaction is not None and not transaction.is_null:
            self._positions.lock(position, descriptor.sender_identifier)
            position.transaction = transaction
            transaction.transactional_operations.append(
                TransactionalOperation(OperationType.DEQUEUE, position, dequeue_reason=MessageClass.ACK_RECEIVE)
            )
        elif two_phase_read:
            self._positions.lock(position, descriptor.sender_identifier)
            descriptor.unfinished_reads[position.lookup_id] = position
        else:
            self._positions.message_position_deleted(position.queue, position, MessageClass.ACK_RECEIVE)

    def _wait_to_peek(
        self,
        descriptor: OpenQueueDescriptor,
        timeout: int,
        cursor: Cursor | None,
        tag: object | None,
        on_end: ReadEnd,
    ) -> WaitingMessageReadOperation:
        def satisfied(position: MessagePosition) -> None:
            queue = position.queue
            if cursor is not None:
                self.cursors.message_available(cursor, position)
            _tell(on_end, position)
            self.waiting.release_next_reader(queue)

        return self._wait(descriptor, timeout, cursor, tag, satisfied, on_end, destructive_read=False)

    def _wait(
        self,
        descriptor: OpenQueueDescriptor,
        timeout: int,
        cursor: Cursor | None,
        tag: object | None,
        satisfied: Callable[[MessagePosition], None],
        on_end: ReadEnd,
        *,
        destructive_read: bool,
        transaction: Transaction | None = None,
    ) -> WaitingMessageReadOperation:
        def stopped(status: StatusError) -> None:
            if cursor is not None:
                self.cursors.wait_time_expired(cursor)
            _tell(on_end, status)

        try:
            return self.waiting.wait_for_new_message(
                descriptor,
                timeout,
                destructive_read=destructive_read,
                tag=tag,
                cursor=cursor,
                satisfied=satisfied,
                stopped=stopped,
                transaction=transaction,
            )
        except IOTimeout:
            if cursor is not None:
                self.cursors.wait_time_expired(cursor)
            raise
