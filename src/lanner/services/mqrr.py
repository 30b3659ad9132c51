"""The RPC server of RemoteRead: peek, receive, move and purge for other computers (MS-MQRR 3.1).

Windows Vista and later read remote queues this way. A receive has two phases, as in MS-MQQP:
R_StartReceive locks the message and delivers it; R_EndReceive removes it or returns it to the
queue. A client that does not end a receive loses the lock after the cleanup time, or with its last
connection.

Methods that open a queue raise their status as a fault; all others return it. A read that waits is
a coroutine, and does not block its connection.

Transactions begin with R_QMEnlistRemoteTransaction and are ended by their coordinator
(`mqrr_transactions`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, cast
from uuid import UUID

from lanner.host.reads import Read, purge
from lanner.model.enums import MessageClass, MessageSeekAction, OperationType, QueueAccessType, QueueShareMode
from lanner.model.errors import (
    MQ_OK,
    AccessDenied,
    IllegalFormatname,
    InsufficientResources,
    InvalidHandle,
    InvalidParameter,
    MessageLockedUnderTransaction,
    MessageNotFound,
    QueueNotAvailable,
    QueueNotFound,
    StatusError,
    StatusInvalidHandle,
    StatusInvalidParameter,
    TransactionSequence,
    TransactionUsage,
)
from lanner.model.live import MAX_LOOKUP_ID
from lanner.model.lookup_ids import sequential_id_of
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import NULL_HANDLE, Value
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.server import Handler, ServerInterface
from lanner.security.log_lines import log_of_peer
from lanner.services.callers import refuse_in_hardened_mode
from lanner.services.interfaces.mqqp import RemoteReadAck
from lanner.services.interfaces.mqrr import (
    MQ_MOVE_ACCESS,
    PEEK_ACCESS,
    QUEUE_CONTEXT_HANDLE,
    R_GET_SERVER_PORT,
    RECEIVE_ACCESS,
    REMOTE_READ,
    SectionBuffer,
    SectionType,
)
from lanner.services.mqrr_queues import MoveContexts, OpenQueue, PendingRequest
from lanner.services.mqrr_transactions import NO_TRANSACTION, RemoteTransactions
from lanner.services.queue_client_remote import MAX_CURSORS
from lanner.services.queue_formats import format_name_of
from lanner.services.remote_read import LOOKUP_ACTIONS, MQ_ACTION_PEEK_CURRENT, MQ_ACTION_PEEK_NEXT, MQ_ACTION_RECEIVE
from lanner.wire.format_name import DirectFormatName, FormatName, QueueFormatType
from lanner.wire.remote_packet import remote_packet, sections

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.engine.reading import ReadEnd, ReadStart
    from lanner.host.change import Change
    from lanner.host.committer import Committer
    from lanner.model.live import MessagePosition, Transaction
    from lanner.rpc.calls import ServerCall
    from lanner.services.interfaces.mqmq import QueueFormat
    from lanner.services.ports import ServerPorts

_LOG = logging.getLogger(__name__)

Results: TypeAlias = Mapping[str, Value]
Answer: TypeAlias = Results | int
Answers: TypeAlias = Answer | Awaitable[Answer]

_KIND: Final = QUEUE_CONTEXT_HANDLE.kind
# MS-MQRR 3.1.4.2 pQueueFormat.
_READABLE: Final = frozenset(
    (
        QueueFormatType.PUBLIC,
        QueueFormatType.PRIVATE,
        QueueFormatType.DIRECT,
        QueueFormatType.MACHINE,
        QueueFormatType.SUBQUEUE,
    )
)
_PROTOCOLS: Final = frozenset(("OS", "TCP"))
# MS-MQRR 2.2.5.3 SubqueueName: 64 octets including the null terminator.
_MAX_SUBQUEUE_LENGTH: Final = 31
_READ_ACCESS: Final = {RECEIVE_ACCESS: QueueAccessType.RECEIVE, PEEK_ACCESS: QueueAccessType.PEEK}
_MOVE_ACCESS: Final = {MQ_MOVE_ACCESS: QueueAccessType.MOVE}
# MS-MQRR 3.1.2.2, note 11.
CLEANUP_MINUTES: Final = 5
# Not in the specification: the maximum number of reads of one handle that wait or have not been
# ended.
MAX_REQUESTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Asked:
    """The parameters of a read (3.1.4.7, 3.1.4.13)."""

    lookup_id: int
    cursor: int
    action: int
    timeout: int  # milliseconds
    request_id: int
    max_body_size: int
    transaction: bytes = NO_TRANSACTION

    @property
    def is_lookup(self) -> bool:
        return self.action in LOOKUP_ACTIONS

    @property
    def is_transacted(self) -> bool:
        return self.transaction != NO_TRANSACTION

    @property
    def is_receive(self) -> bool:
        return not LOOKUP_ACTIONS[self.action][0] if self.is_lookup else self.action == MQ_ACTION_RECEIVE

    def check(self) -> None:
        """Raise InvalidParameter if the parameters contradict each other."""
        if self.is_lookup:
            starts_at_front = not self.lookup_id and LOOKUP_ACTIONS[self.action][1] is MessageSeekAction.NEXT
            if self.cursor or self.timeout or not (self.lookup_id or starts_at_front):
                raise InvalidParameter(f"ulAction {self.action:#x}: a lookup has a LookupId, no time-out and no cursor")
        elif self.action not in (MQ_ACTION_RECEIVE, MQ_ACTION_PEEK_CURRENT, MQ_ACTION_PEEK_NEXT):
            raise InvalidParameter(f"ulAction {self.action:#x}")
        elif self.lookup_id or (self.action == MQ_ACTION_PEEK_NEXT and not self.cursor):
            raise InvalidParameter(
                f"ulAction {self.action:#x} with LookupId {self.lookup_id:#x}, cursor {self.cursor:#x}"
            )

    @property
    def seek(self) -> MessageSeekAction:
        """The direction of a lookup.

        NEXT from 0 and PREVIOUS from the maximum start at an end of the queue, not at a message
        (DECISIONS).
        """
        seek = LOOKUP_ACTIONS[self.action][1]
        if seek is MessageSeekAction.NEXT and not self.lookup_id:
            return MessageSeekAction.FIRST
        if seek is MessageSeekAction.PREVIOUS and self.lookup_id == MAX_LOOKUP_ID:
            return MessageSeekAction.LAST
        return seek


class RemoteReadService:
    """The interface RemoteRead of a queue manager; register `interface` with a server."""

    def __init__(
        self,
        engine: Engine,
        committer: Committer,
        ports: ServerPorts,
        cleanup_seconds: float = 60 * CLEANUP_MINUTES,
        address_of: Callable[[UUID], str | None] = lambda _: None,
    ) -> None:
        """Create the service.

        `address_of` returns the address that a queue manager's messages come from, or None if it is
        not known.
        """
        handlers: dict[str, Handler] = {
            "R_GetServerPort": self.get_server_port,
            "R_OpenQueue": self.open_queue,
            "R_CloseQueue": self.close_queue,
            "R_CreateCursor": self.create_cursor,
            "R_CloseCursor": self.close_cursor,
            "R_PurgeQueue": self.purge_queue,
            "R_StartReceive": self.start_receive,
            "R_CancelReceive": self.cancel_receive,
            "R_EndReceive": self.end_receive,
            "R_MoveMessage": self.move_message,
            "R_OpenQueueForMove": self.open_queue_for_move,
            "R_QMEnlistRemoteTransaction": self.enlist_remote_transaction,
            "R_StartTransactionalReceive": self.start_transactional_receive,
            "R_SetUserAcknowledgementClass": self.set_user_acknowledgement_class,
            "R_EndTransactionalReceive": self.end_transactional_receive,
        }
        self.interface = ServerInterface(
            REMOTE_READ,
            handlers,
            authorize=refuse_in_hardened_mode(engine),
            # Message bodies are transferred; Windows Vista and later require the same level.
            least_level=AuthLevel.PKT_PRIVACY,
            # Clients call it before they authenticate.
            open_to_all=[R_GET_SERVER_PORT.name],
            denied=AccessDenied.status,
        )
        self._engine = engine
        self._lock = engine.store.lock
        self._committer = committer
        self._ports = ports
        self._cleanup_seconds = cleanup_seconds
        self._address_of = address_of
        self._moves = MoveContexts()
        self._transactions = RemoteTransactions(engine, committer, cleanup_seconds)

    def get_server_port(self, call: ServerCall) -> Answer:
        """3.1.4.1 R_GetServerPort."""
        del call
        return self._ports.ip_handshake

    # Opens
    # ----------------------------------------------------------------------------------------------

    def open_queue(
        self,
        call: ServerCall,
        p_queue_format: QueueFormat,
        dw_access: int,
        dw_share_mode: int,
        p_client_id: UUID,
        f_non_routing_server: int,
        major: int,
        minor: int,
        build_number: int,
        f_workgroup: int,
    ) -> Results:
        """3.1.4.2 R_OpenQueue.

        The caller's identity decides what it may open; its claims about itself are ignored.
        """
        del p_client_id, f_non_routing_server, major, minor, build_number, f_workgroup
        _, context = self._open(call, p_queue_format, _READ_ACCESS.get(dw_access), dw_share_mode)
        return {"pph_context": context}

    def open_queue_for_move(
        self,
        call: ServerCall,
        p_queue_format: QueueFormat,
        dw_access: int,
        dw_share_mode: int,
        p_client_id: UUID,
        f_non_routing_server: int,
        major: int,
        minor: int,
        build_number: int,
        f_workgroup: int,
    ) -> Results:
        """3.1.4.11 R_OpenQueueForMove."""
        del p_client_id, f_non_routing_server, major, minor, build_number, f_workgroup
        queue, context = self._open(call, p_queue_format, _MOVE_ACCESS.get(dw_access), dw_share_mode)
        return {"p_move_context": self._moves.add(queue), "pph_context": context}

    def _open(
        self, call: ServerCall, queue_format: QueueFormat, access: QueueAccessType | None, share_mode: int
    ) -> tuple[OpenQueue, bytes]:
        try:
            if access is None or share_mode not in (QueueShareMode.DENY_NONE, QueueShareMode.DENY_RECEIVE):
                raise InvalidParameter(f"dwAccess or dwShareMode ({share_mode:#x}) has no such value")
            name = _name_to_read(queue_format)
            with self._committer.change() as change:
                descriptor = self._engine.open_queue(
                    name, access, QueueShareMode(share_mode), call.identity, ends_when_unused=True
                )
        except StatusError as error:
            log_of_peer(_LOG, logging.INFO, "refused", call.peer, "%r: %s", call, error)
            raise RpcFault(error.status, str(error), did_not_execute=True) from None
        # Opening may have created a subqueue.
        change.soon()
        queue = OpenQueue(descriptor, call.group)
        try:
            return queue, call.caller.add(queue, _KIND, partial(self._close, queue))
        except RpcFault:
            self._close(queue)
            raise

    def close_queue(self, call: ServerCall, pph_context: bytes) -> Answer:
        """3.1.4.3 R_CloseQueue."""
        if pph_context == NULL_HANDLE:
            return InvalidHandle.status
        self._close(cast("OpenQueue", call.caller.remove(pph_context, _KIND)))
        return {"pph_context": NULL_HANDLE, RETURNS: MQ_OK}

    def _close(self, queue: OpenQueue) -> None:
        """Close a queue; also the rundown (3.1.6.2).

        Close Queue ends reads that wait, and returns messages whose receive was not ended.
        """
        self._moves.remove(queue)
        requests = list(queue.requests.values())
        for request in requests:
            queue.forget(request)
            if request.read.is_waiting:
                # Before any message goes back: this handle can no longer deliver it.
                request.read.cancel()
        for request in requests:
            if request.transaction is not None:
                # The receive leaves its transaction, because it can no longer be acknowledged
                # (DECISIONS).
                request.read.give_back()
        with self._committer.change() as change:
            self._engine.close_queue(queue.descriptor)
        change.soon()

    @staticmethod
    def _queue(call: ServerCall, context: bytes) -> OpenQueue:
        return cast("OpenQueue", call.caller.get(context, _KIND))

    # Cursors, purge
    # ----------------------------------------------------------------------------------------------

    def create_cursor(self, call: ServerCall, ph_context: bytes) -> Answer:
        """3.1.4.4 R_CreateCursor."""
        queue = self._queue(call, ph_context)
        try:
            if len(queue.descriptor.cursors) >= MAX_CURSORS:
                raise InsufficientResources(f"{MAX_CURSORS} cursors on {queue.descriptor.format_name}")
            with self._lock:
                cursor = self._engine.open_cursor(queue.descriptor)
            if cursor is None:
                raise QueueNotAvailable(f"{queue.descriptor.format_name}: the queue was deleted")
        except StatusError as error:
            return error.status
        return {"ph_cursor": cursor.handle, RETURNS: MQ_OK}

    def close_cursor(self, call: ServerCall, ph_context: bytes, h_cursor: int) -> Answer:
        """3.1.4.5 R_CloseCursor; ends a read that waits on the cursor."""
        try:
            cursor = self._queue(call, ph_context).cursor(h_cursor)
        except StatusInvalidHandle:
            # Reads specify this status; this method specifies none (DECISIONS).
            return InvalidHandle.status
        with self._lock:
            self._engine.close_cursor(cursor)
        return MQ_OK

    def purge_queue(self, call: ServerCall, ph_context: bytes) -> Answers:
        """3.1.4.6 R_PurgeQueue: answered when the purge is durable."""
        queue = self._queue(call, ph_context)

        async def purge_all() -> Answer:
            try:
                queue.require_receive_access()
                await purge(self._engine, self._committer, queue.descriptor, call.identity)
            except StatusError as error:
                return error.status
            return MQ_OK

        return purge_all()

    # Reads
    # ----------------------------------------------------------------------------------------------

    def start_receive(
        self,
        call: ServerCall,
        ph_context: bytes,
        lookup_id: int,
        h_cursor: int,
        ul_action: int,
        ul_timeout: int,
        dw_request_id: int,
        dw_max_body_size: int,
        dw_max_compound_message_size: int,
    ) -> Answers:
        """3.1.4.7 R_StartReceive.

        The last parameter applies only to SRMP messages, of which there are none here.
        """
        del dw_max_compound_message_size
        asked = _Asked(lookup_id, h_cursor, ul_action, ul_timeout, dw_request_id, dw_max_body_size)
        return self._read(call, self._queue(call, ph_context), asked)

    def start_transactional_receive(
        self,
        call: ServerCall,
        ph_context: bytes,
        lookup_id: int,
        h_cursor: int,
        ul_action: int,
        ul_timeout: int,
        dw_request_id: int,
        dw_max_body_size: int,
        dw_max_compound_message_size: int,
        p_transaction_id: bytes,
    ) -> Answers:
        """3.1.4.13 R_StartTransactionalReceive.

        Without a transaction it acts like R_StartReceive.
        """
        del dw_max_compound_message_size
        asked = _Asked(
            lookup_id, h_cursor, ul_action, ul_timeout, dw_request_id, dw_max_body_size, bytes(p_transaction_id)
        )
        return self._read(call, self._queue(call, ph_context), asked)

    def _read(self, call: ServerCall, queue: OpenQueue, asked: _Asked) -> Answers:
        try:
            request = self._begin(call, queue, asked)
        except StatusError as error:
            return error.status
        if request.read.is_waiting:
            return self._deliver_later(queue, asked, request)
        return self._deliver(queue, asked, request)

    def _begin(self, call: ServerCall, queue: OpenQueue, asked: _Asked) -> PendingRequest:
        """Make the checks in the order of the document, then raise the event."""
        asked.check()
        queue.require_free(asked.request_id)
        if len(queue.requests) >= MAX_REQUESTS:
            raise InsufficientResources(f"{MAX_REQUESTS} reads of {queue.descriptor.format_name} are not ended")
        cursor = queue.cursor(asked.cursor) if asked.cursor else None
        if asked.is_receive:
            queue.require_receive_access()
        queue.require_peek_access()
        transaction = self._transaction(call, queue, asked) if asked.is_transacted else None
        read = Read(
            self._engine,
            self._committer,
            queue.descriptor,
            is_receive=asked.is_receive,
            cursor=cursor,
            transaction=transaction,
        )
        read.begin(partial(self._generate, queue, asked, read))
        return queue.begin(asked.request_id, read)

    def _transaction(self, call: ServerCall, queue: OpenQueue, asked: _Asked) -> Transaction:
        """Return the transaction of a read (3.1.4.13).

        The action and the queue are checked before the transaction.
        """
        if not asked.is_receive:
            raise TransactionUsage("a peek takes no transaction")
        if not queue.queue.transactional:
            raise TransactionUsage(f"{queue.descriptor.format_name} is not transactional")
        return self._transactions.find(call, asked.transaction)

    def _generate(self, queue: OpenQueue, asked: _Asked, read: Read, on_end: ReadEnd) -> ReadStart:
        """Raise the event of the read's action."""
        engine, descriptor, timeout, cursor = self._engine, queue.descriptor, asked.timeout, read.cursor
        if asked.is_lookup:
            return engine.read_message_by_lookup_identifier(
                descriptor,
                asked.lookup_id,
                peek_operation=not asked.is_receive,
                lookup_operation=asked.seek,
                transaction=read.transaction,
                two_phase_read=True,
            )
        if asked.is_receive:
            return engine.dequeue_message_begin(
                descriptor, timeout=timeout, cursor=cursor, transaction=read.transaction, on_end=on_end
            )
        if asked.action == MQ_ACTION_PEEK_NEXT and cursor is not None:
            return engine.peek_next_message(descriptor, cursor, timeout=timeout, on_end=on_end)
        return engine.peek_message(descriptor, timeout=timeout, cursor=cursor, on_end=on_end)

    async def _deliver_later(self, queue: OpenQueue, asked: _Asked, request: PendingRequest) -> Answer:
        try:
            await request.read.wait()
        except StatusError as error:
            queue.forget(request)
            return error.status
        except asyncio.CancelledError:
            queue.forget(request)
            raise
        return self._deliver(queue, asked, request)

    def _deliver(self, queue: OpenQueue, asked: _Asked, request: PendingRequest) -> Answer:
        """Answer with the message.

        A peek is then finished; a receive stays pending until it is ended.
        """
        read = request.read
        position = read.position
        record = position.record
        try:
            header = queue.subqueue_header(record, self._last_move_time(position))
        except QueueNotAvailable as error:
            queue.forget(request)
            return error.status
        if read.is_receive:
            loop = asyncio.get_running_loop()
            request.cleanup = loop.call_later(self._cleanup_seconds, self._give_back, queue, request)
        else:
            queue.forget(request)
        buffers = _buffers(remote_packet(record.packet, header, self._address_of), asked.max_body_size)
        return {
            "pdw_arrive_time": record.arrived,
            "p_sequence_id": sequential_id_of(position.lookup_id),
            "pdw_number_of_sections": len(buffers),
            "pp_packet_sections": buffers,
            RETURNS: MQ_OK,
        }

    def _last_move_time(self, position: MessagePosition) -> int:
        if not position.record.move_count:
            return 0
        with self._lock:
            return self._engine.positions.last_move_time(position)

    @staticmethod
    def _give_back(queue: OpenQueue, request: PendingRequest) -> None:
        """Return an unacknowledged message: 3.1.5.1 Pending Request Cleanup Timer Event."""
        queue.forget(request)
        request.read.give_back()

    def cancel_receive(self, call: ServerCall, ph_context: bytes, dw_request_id: int) -> Answer:
        """3.1.4.8 R_CancelReceive: also cancels a peek that waits (DECISIONS)."""
        try:
            self._queue(call, ph_context).cancel(dw_request_id)
        except StatusError as error:
            return error.status
        return MQ_OK

    def end_receive(self, call: ServerCall, ph_context: bytes, dw_ack: int, dw_request_id: int) -> Answers:
        """3.1.4.9 R_EndReceive: a removal is answered when it is durable."""
        queue = self._queue(call, ph_context)
        try:
            queue.require_no_transaction(dw_request_id)
            return self._end(queue, dw_ack, queue.delivered(dw_request_id))
        except StatusError as error:
            return error.status

    def end_transactional_receive(
        self, call: ServerCall, ph_context: bytes, dw_ack: int, dw_request_id: int
    ) -> Answers:
        """3.1.4.15 R_EndTransactionalReceive.

        For a read without a transaction it acts like R_EndReceive (DECISIONS).
        """
        queue = self._queue(call, ph_context)
        try:
            request = queue.delivered(dw_request_id)
            if request.transaction is None:
                return self._end(queue, dw_ack, request)
            if request.transaction.is_over:
                raise TransactionSequence(f"the transaction of dwRequestId {dw_request_id:#x} has ended")
            if dw_ack == RemoteReadAck.RR_NACK:
                request.read.give_back()
                return MQ_OK
            with self._lock:
                self._engine.dequeue_message_end(
                    queue.descriptor, request.read.position, delete_message=True, transactional=True
                )
        except StatusError as error:
            return error.status
        return MQ_OK

    def _end(self, queue: OpenQueue, ack: int, request: PendingRequest) -> Answers:
        read = request.read
        if ack == RemoteReadAck.RR_NACK:
            read.give_back()
            return MQ_OK
        with self._committer.change() as change:
            self._engine.dequeue_message_end(queue.descriptor, read.position, delete_message=True, counts_purged=True)
        return _when_durable(change)

    # Moves
    # ----------------------------------------------------------------------------------------------

    def move_message(
        self, call: ServerCall, ph_context_from: bytes, ull_context_to: int, lookup_id: int, p_transaction_id: bytes
    ) -> Answers:
        """3.1.4.10 R_MoveMessage: answered when the move is durable."""
        source = self._queue(call, ph_context_from)
        try:
            source.require_receive_access()
            target = self._moves.find(ull_context_to, call.group)
            from_queue, to_queue = source.queue, target.queue
            if from_queue is to_queue or (from_queue.parent or from_queue.number) != (
                to_queue.parent or to_queue.number
            ):
                raise StatusInvalidParameter(
                    f"{source.descriptor.format_name} and {target.descriptor.format_name}"
                    " are not two parts of one queue"
                )
            xactuow = bytes(p_transaction_id)
            is_transacted = xactuow != NO_TRANSACTION
            if is_transacted and not to_queue.transactional:
                raise TransactionUsage(f"{target.descriptor.format_name} is not transactional")
            with self._committer.change() as change:
                if lookup_id in from_queue.held_positions:
                    raise MessageLockedUnderTransaction(f"message {lookup_id:#x} of {from_queue.pathname} is locked")
                position = self._engine.read_message_by_lookup_identifier(
                    source.descriptor, lookup_id, peek_operation=True, lookup_operation=MessageSeekAction.CURRENT
                )
                transaction = self._transactions.find(call, xactuow) if is_transacted else None
                self._engine.move_message(position, to_queue, transaction, source.descriptor.sender_identifier)
        except StatusError as error:
            return error.status
        return _when_durable(change)

    # Transactions
    # ----------------------------------------------------------------------------------------------

    def enlist_remote_transaction(
        self,
        call: ServerCall,
        p_transaction_id: bytes,
        cb_propagation_token: int,
        pb_propagation_token: bytes,
        p_queue_format: QueueFormat,
    ) -> Answer:
        """3.1.4.12 R_QMEnlistRemoteTransaction.

        The enlistment covers all queues, not only the one that the call names.
        """
        del cb_propagation_token, p_queue_format
        try:
            self._transactions.enlist(call, bytes(p_transaction_id), bytes(pb_propagation_token))
        except StatusError as error:
            log_of_peer(_LOG, logging.INFO, "refused", call.peer, "%r: %s", call, error)
            return error.status
        return MQ_OK

    def set_user_acknowledgement_class(
        self, call: ServerCall, ph_context: bytes, lookup_id: int, us_class: int
    ) -> Answer:
        """3.1.4.14 R_SetUserAcknowledgementClass: reject a message of an open transaction."""
        queue = self._queue(call, ph_context)
        try:
            if queue.descriptor.access_type is not QueueAccessType.RECEIVE:
                raise InvalidHandle(f"{queue.descriptor.format_name} is not open for receive access")
            found = queue.queue
            with self._lock:
                position = found.held_positions.get(lookup_id)
                if position is None and self._engine.store.get(found.number, lookup_id) is None:
                    raise MessageNotFound(f"{found.pathname} has no message {lookup_id:#x}")
                transaction = None if position is None else position.transaction
                operation = next(
                    (
                        one
                        for one in (transaction.transactional_operations if transaction else ())
                        if one.message_position is position and one.operation_type is OperationType.DEQUEUE
                    ),
                    None,
                )
                if operation is None or not self._transactions.is_of(call, transaction):
                    raise TransactionUsage(f"message {lookup_id:#x} of {found.pathname} is in no enlisted transaction")
                if us_class:
                    # Any nonzero class is a rejection. The caller does not choose the class that is
                    # sent at commit.
                    operation.dequeue_reason = MessageClass.NACK_RECEIVE_REJECTED
        except StatusError as error:
            return error.status
        return MQ_OK


async def _when_durable(change: Change) -> Answer:
    try:
        await change
    except StatusError as error:
        return error.status
    return MQ_OK


def _name_to_read(queue_format: QueueFormat) -> FormatName:
    """Return the format name of pQueueFormat (3.1.4.2).

    Raises InvalidParameter for formats outside this protocol (2.2.3), and QueueNotFound for a
    subqueue of anything but an application queue (DECISIONS).
    """
    try:
        name = format_name_of(queue_format)
    except IllegalFormatname as error:
        if isinstance(queue_format.u, str) and queue_format.u.count(";") > 1:
            raise QueueNotFound(f"{error}: only application queues have subqueues") from None
        raise InvalidParameter(str(error)) from None
    if queue_format.m_qft not in _READABLE:
        raise InvalidParameter(f"{name} cannot be opened for reading")
    if isinstance(name, DirectFormatName):
        if name.protocol not in _PROTOCOLS:
            raise InvalidParameter(f"{name}: only OS and TCP addresses can be opened for reading")
        path = name.path_name
        if path is not None and len(path.subqueue or "") > _MAX_SUBQUEUE_LENGTH:
            raise InvalidParameter(f"{name}: a subqueue name has at most {_MAX_SUBQUEUE_LENGTH} characters here")
    return name


def _buffers(packet: bytes, max_body_size: int) -> tuple[SectionBuffer, ...]:
    """Return ppPacketSections (3.1.4.7)."""
    found = sections(packet, max_body_size)
    types = (
        (SectionType.FULL_PACKET,)
        if len(found) == 1
        else (SectionType.BINARY_FIRST_SECTION, SectionType.BINARY_SECOND_SECTION)
    )
    return tuple(
        SectionBuffer(kind, section.whole_size, len(section.octets), section.octets)
        for kind, section in zip(types, found, strict=True)
    )
