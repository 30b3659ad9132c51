"""Messages of the queue client: send, receive, peek (MS-MQMP 3.1.5.1 to 3.1.5.3).

A receive outside a transaction takes its message in two steps, so that one that does not fit the client's buffers stays in the queue, and
one whose client goes away meanwhile comes back. A read that waits is a coroutine, its connection goes on meanwhile; it ends with its
handle, its transaction, its call or its association.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from lanner.engine.envelope import is_express
from lanner.model.enums import (
    CursorState,
    EnqueueStatus,
    MessagePrivacyLevel,
    PositionState,
)
from lanner.model.errors import (
    MQ_OK,
    IllegalCursorAction,
    IllegalOperation,
    MessageAlreadyReceived,
    OperationCancelled,
    QueueNotAvailable,
    StatusError,
    TransactionSequence,
    TransactionUsage,
    UnsupportedFormatnameOperation,
)
from lanner.model.live import MessagePosition
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import Value
from lanner.services.queue_client_answers import when_durable
from lanner.services.queue_client_receiving import MQ_ACTION_PEEK_NEXT, MQ_ACTION_RECEIVE, fill, requested
from lanner.services.queue_client_sending import message_properties
from lanner.services.sending import check_sender, name_here, refusal
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.message import Message

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.live import Cursor, OpenQueueDescriptor, Transaction, WaitingMessageReadOperation
    from lanner.rpc.calls import ServerCall
    from lanner.rpc.server import Handler
    from lanner.services.interfaces.mqmp import CACTransferBufferV2
    from lanner.services.interfaces.mqmq import QueueFormat
    from lanner.services.queue_client_answers import Answer, Answers, Results
    from lanner.services.queue_client_handles import QueueHandles
    from lanner.services.queue_client_transactions import TransactionHandles
    from lanner.store.committer import Committer

_DIRECT: Final = "DIRECT="


class _Read:
    """One call of rpc_ACReceiveMessageEx."""

    __slots__ = (
        "_cursor_before",
        "buffer",
        "cursor",
        "descriptor",
        "end",
        "ended",
        "is_receive",
        "reader",
        "transaction",
    )

    def __init__(
        self,
        buffer: CACTransferBufferV2,
        descriptor: OpenQueueDescriptor,
        cursor: Cursor | None,
        transaction: Transaction | None,
        *,
        is_receive: bool,
    ) -> None:
        self.buffer = buffer
        self.descriptor = descriptor
        self.cursor = cursor
        self.transaction = transaction
        self.is_receive = is_receive
        # How it ended; None while it waits.
        self.end: MessagePosition | StatusError | None = None
        self.reader: WaitingMessageReadOperation | None = None
        self.ended: asyncio.Future[None] | None = None
        self._cursor_before: tuple[int, int, CursorState] | None = None
        if cursor is not None:
            self._cursor_before = cursor.position, cursor.parked_after, cursor.state

    def wait_over(self, end: MessagePosition | StatusError) -> None:
        """Called by the engine with the store's lock held, by whichever thread."""
        self.end = end
        if self.ended is not None:
            self.ended.get_loop().call_soon_threadsafe(_wake, self.ended)

    def restore_cursor(self) -> None:
        """A message that stays in the queue is still ahead of the cursor that was to receive it."""
        if self.cursor is not None and self._cursor_before is not None:
            self.cursor.position, self.cursor.parked_after, self.cursor.state = self._cursor_before


def _wake(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


class ClientMessages:
    """The handlers of qmcomm2 that send and read messages."""

    def __init__(
        self, engine: Engine, committer: Committer, handles: QueueHandles, transactions: TransactionHandles
    ) -> None:
        self._engine = engine
        self._store = engine.store
        self._lock = engine.store.lock
        self._committer = committer
        self._handles = handles
        self._transactions = transactions

    @property
    def handlers2(self) -> dict[str, Handler]:
        """The handlers of qmcomm2 by the names of their methods."""
        return {
            "QMSendMessageInternalEx": self.send_message_internal,
            "rpc_ACSendMessageEx": self.send_message,
            "rpc_ACReceiveMessageEx": self.receive_message,
        }

    # Send ---------------------------------------------------------------------------------------------------------

    def send_message_internal(
        self,
        call: ServerCall,
        p_queue_format: QueueFormat,
        ptb: CACTransferBufferV2,
        p_message_id: MessageIdentifier | None,
    ) -> Answer:
        """3.1.5.1 QMSendMessageInternalEx: for servers that answer STATUS_RETRY, which this one never does."""
        del call, p_queue_format, ptb, p_message_id
        return IllegalOperation.status

    def send_message(
        self, call: ServerCall, h_queue: bytes, ptb: CACTransferBufferV2, p_message_id: MessageIdentifier | None
    ) -> Answers:
        """3.1.5.2 rpc_ACSendMessageEx: a recoverable message is on disk when this answers."""
        properties = message_properties(ptb)
        descriptor = self._handles.find(call, h_queue).descriptor
        transaction = self._transactions.find(call, ptb.old.p_uow)
        if properties.privacy_level != MessagePrivacyLevel.NONE and descriptor.format_name.startswith(_DIRECT):
            raise UnsupportedFormatnameOperation(f"{descriptor.format_name}: nothing is encrypted for a direct name")
        check_sender(properties, descriptor, call.identity)
        name_here(self._engine, properties)
        with self._lock:
            status = self._engine.enqueue_message_to_an_open_queue(descriptor, properties, transaction)
            identifier = MessageIdentifier(self._engine.queue_manager.identifier, self._engine.last_ordinal)
            ticket = self._store.ticket() if properties.delivery_guarantee and transaction is None else 0
        if status is not EnqueueStatus.OK:
            raise refusal(status, descriptor)
        results = {"p_message_id": None if p_message_id is None else identifier}
        if ticket:
            return when_durable(self._committer, ticket, results)
        return {**results, RETURNS: MQ_OK}

    # Receive and peek ---------------------------------------------------------------------------------------------

    def receive_message(self, call: ServerCall, h_qm_context: int, ptb: CACTransferBufferV2) -> Answers:
        """3.1.5.3 rpc_ACReceiveMessageEx."""
        request = requested(ptb)
        transaction = self._transactions.find(call, ptb.old.p_uow)
        queue = self._handles.find_context(call, h_qm_context)
        is_receive = request.action == MQ_ACTION_RECEIVE
        cursor = queue.cursor(request.cursor) if request.cursor else None
        if request.action == MQ_ACTION_PEEK_NEXT and cursor is None:
            raise IllegalCursorAction("MQ_ACTION_PEEK_NEXT without a cursor")
        if transaction is not None and not is_receive:
            raise TransactionUsage("a peek takes no transaction")
        read = _Read(ptb, queue.descriptor, cursor, transaction, is_receive=is_receive)
        if request.request_timeout:
            read.ended = asyncio.get_running_loop().create_future()
        with self._lock:
            read.end = self._generate(read, request.action, request.request_timeout)
            if read.end is None:
                read.reader = self._engine.last_waiting_read
        return self._later(read) if read.end is None else self._finish(read)

    def _generate(self, read: _Read, action: int, timeout: int) -> MessagePosition | None:
        """The event of an action; None: it waits."""
        engine, descriptor, cursor = self._engine, read.descriptor, read.cursor
        if read.is_receive:
            return engine.dequeue_message(
                descriptor,
                timeout=timeout,
                cursor=cursor,
                transaction=read.transaction,
                two_phase_read=True,
                on_end=read.wait_over,
            )
        if action == MQ_ACTION_PEEK_NEXT and cursor is not None:
            return engine.peek_next_message(descriptor, cursor, timeout=timeout, on_end=read.wait_over)
        return engine.peek_message(descriptor, timeout=timeout, cursor=cursor, on_end=read.wait_over)

    async def _later(self, read: _Read) -> Answer:
        if read.ended is not None:
            try:
                await read.ended
            except asyncio.CancelledError:
                self._abandon(read)
                raise
        answer = self._finish(read)
        return answer if isinstance(answer, dict) else await answer

    def _finish(self, read: _Read) -> dict[str, Value] | Awaitable[Answer]:
        position = read.end
        if not isinstance(position, MessagePosition):
            raise position or OperationCancelled()
        packet = position.record.packet
        filled, error = fill(read.buffer, Message(packet), position.record.arrived, int(self._engine.clock()))
        results: dict[str, Value] = {"ptb": filled, RETURNS: MQ_OK if error is None else error.status}
        if not read.is_receive:
            return results
        if error is not None:
            self._give_back(read)
            return results
        if read.transaction is not None:
            return results
        with self._lock:
            ticket = self._take(read, position)
        if is_express(packet):
            return results
        return self._taken(position, ticket, results)

    def _take(self, read: _Read, position: MessagePosition) -> int:
        """The second step of a receive."""
        if read.descriptor.is_closed:
            # It went back with the handle.
            raise OperationCancelled("the queue was closed")
        is_purged = position.state is PositionState.PURGE_PENDING
        self._engine.dequeue_message_end(read.descriptor, position, delete_message=True)
        if is_purged:
            raise MessageAlreadyReceived(f"{read.descriptor.format_name} was purged")
        return self._store.ticket()

    async def _taken(self, position: MessagePosition, ticket: int, results: Results) -> Answer:
        try:
            return await when_durable(self._committer, ticket, results)
        except asyncio.CancelledError:
            with self._lock:
                self._engine.undo_receive(position)
                ticket = self._store.ticket()
            self._committer.ask(ticket)
            raise

    def _abandon(self, read: _Read) -> None:
        """Nobody is left to hear of a read: it waits no more, and what it got is given back."""
        with self._lock:
            if read.reader is not None and read.reader.is_waiting:
                self._engine.stop_waiting_read(read.reader, OperationCancelled("the client has gone"))
        self._give_back(read)

    def _give_back(self, read: _Read) -> None:
        position = read.end
        if not read.is_receive or not isinstance(position, MessagePosition):
            return
        with self._lock:
            if read.transaction is not None:
                self._engine.give_back_transactional_read(read.transaction, position)
            else:
                # If the queue was closed or deleted meanwhile, it went back or away then.
                with contextlib.suppress(QueueNotAvailable, TransactionSequence):
                    self._engine.dequeue_message_end(read.descriptor, position, delete_message=False)
            read.restore_cursor()
            ticket = self._store.ticket()
        self._committer.ask(ticket)
