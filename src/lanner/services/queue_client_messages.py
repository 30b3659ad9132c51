"""Messages of the queue client: send, receive, peek (MS-MQMP 3.1.5.1 to 3.1.5.3).

A receive has two steps, so that a message that does not fit the client's buffers stays in the
queue. A read that waits is a coroutine, and does not block its connection. It ends with its handle,
its transaction, its call or its association (lanner.host.reads).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from lanner.host.reads import Read
from lanner.model.enums import EnqueueStatus, MessagePrivacyLevel
from lanner.model.errors import (
    MQ_OK,
    IllegalCursorAction,
    IllegalOperation,
    TransactionUsage,
    UnsupportedFormatnameOperation,
)
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import Value
from lanner.rpc.server import WhenDurable
from lanner.services.queue_client_receiving import MQ_ACTION_PEEK_NEXT, MQ_ACTION_RECEIVE, fill, requested
from lanner.services.queue_client_sending import message_properties
from lanner.services.sending import check_sender, name_here, refusal
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.message import Message

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.engine.reading import ReadEnd, ReadStart
    from lanner.host.committer import Committer
    from lanner.rpc.calls import ServerCall
    from lanner.rpc.server import Handler
    from lanner.services.interfaces.mqmp import CACTransferBufferV2
    from lanner.services.interfaces.mqmq import QueueFormat
    from lanner.services.queue_client_answers import Answer, Answers
    from lanner.services.queue_client_handles import QueueHandles
    from lanner.services.queue_client_transactions import TransactionHandles

_DIRECT: Final = "DIRECT="


class ClientMessages:
    """The handlers of qmcomm2 that send and read messages."""

    def __init__(
        self, engine: Engine, committer: Committer, handles: QueueHandles, transactions: TransactionHandles
    ) -> None:
        self._engine = engine
        self._committer = committer
        self._handles = handles
        self._transactions = transactions

    @property
    def handlers2(self) -> dict[str, Handler]:
        """The handlers of qmcomm2, by method name."""
        return {
            "QMSendMessageInternalEx": self.send_message_internal,
            "rpc_ACSendMessageEx": self.send_message,
            "rpc_ACReceiveMessageEx": self.receive_message,
        }

    # Send
    # ----------------------------------------------------------------------------------------------

    def send_message_internal(
        self,
        call: ServerCall,
        p_queue_format: QueueFormat,
        ptb: CACTransferBufferV2,
        p_message_id: MessageIdentifier | None,
    ) -> Answer:
        """3.1.5.1 QMSendMessageInternalEx.

        It follows the answer STATUS_RETRY, which this server never gives.
        """
        del call, p_queue_format, ptb, p_message_id
        return IllegalOperation.status

    def send_message(
        self, call: ServerCall, h_queue: bytes, ptb: CACTransferBufferV2, p_message_id: MessageIdentifier | None
    ) -> Answers:
        """3.1.5.2 rpc_ACSendMessageEx: answered when a recoverable message is durable."""
        properties = message_properties(ptb)
        descriptor = self._handles.find(call, h_queue).descriptor
        transaction = self._transactions.find(call, ptb.old.p_uow)
        if properties.privacy_level != MessagePrivacyLevel.NONE and descriptor.format_name.startswith(_DIRECT):
            raise UnsupportedFormatnameOperation(f"{descriptor.format_name}: nothing is encrypted for a direct name")
        check_sender(properties, descriptor, call.identity)
        name_here(self._engine, properties)
        with self._committer.change() as change:
            status = self._engine.enqueue_message_to_an_open_queue(descriptor, properties, transaction)
            identifier = MessageIdentifier(self._engine.queue_manager.identifier, self._engine.last_ordinal)
        if status is not EnqueueStatus.OK:
            raise refusal(status, descriptor)
        results = {"p_message_id": None if p_message_id is None else identifier}
        # A transaction becomes durable as a whole; an express message never does.
        if change.is_pending and properties.delivery_guarantee and transaction is None:
            return WhenDurable(change, results)
        return {**results, RETURNS: MQ_OK}

    # Receive and peek
    # ---------------------------------------------------------------------------------------------

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
        read = Read(
            self._engine,
            self._committer,
            queue.descriptor,
            is_receive=is_receive,
            cursor=cursor,
            transaction=transaction,
        )
        timeout = request.request_timeout
        event = partial(self._generate, read, request.action, timeout)
        return self._finish(read, ptb) if read.begin(event) else self._later(read, ptb)

    def _generate(self, read: Read, action: int, timeout: int, on_end: ReadEnd) -> ReadStart:
        """Raise the event of the read's action."""
        engine, descriptor, cursor = self._engine, read.descriptor, read.cursor
        if read.is_receive:
            return engine.dequeue_message(
                descriptor,
                timeout=timeout,
                cursor=cursor,
                transaction=read.transaction,
                two_phase_read=True,
                on_end=on_end,
            )
        if action == MQ_ACTION_PEEK_NEXT and cursor is not None:
            return engine.peek_next_message(descriptor, cursor, timeout=timeout, on_end=on_end)
        return engine.peek_message(descriptor, timeout=timeout, cursor=cursor, on_end=on_end)

    async def _later(self, read: Read, buffer: CACTransferBufferV2) -> Answer:
        await read.wait()
        answer = self._finish(read, buffer)
        if not isinstance(answer, WhenDurable):
            return answer
        await read.taken(answer.change)
        return {**answer.results, RETURNS: MQ_OK}

    def _finish(self, read: Read, buffer: CACTransferBufferV2) -> dict[str, Value] | WhenDurable:
        record = read.position.record
        filled, error = fill(buffer, Message(record.packet), record.arrived, int(self._engine.clock()))
        results: dict[str, Value] = {"ptb": filled, RETURNS: MQ_OK if error is None else error.status}
        if not read.is_receive:
            return results
        if error is not None:
            read.give_back()
            return results
        if read.transaction is not None:
            return results
        change = read.take()
        # If the client gives the call up meanwhile, the message returns to its place.
        return WhenDurable(change, results, read.undo) if change.is_pending else results
