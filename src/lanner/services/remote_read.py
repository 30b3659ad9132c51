"""The RPC server of qm2qm: peek, receive and purge for other computers (MS-MQQP 3.1).

A receive has two phases: the message is locked until RemoteQMEndReceive removes it or returns it to
the queue. One context handle stands for the lock and one for the open queue. Both are run down with
the client's last connection, which returns every message that it has not acknowledged. A read that
waits is a coroutine, and does not block its connection.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias, cast
from uuid import UUID

from lanner.engine.reading import ReadEnd, ReadStart
from lanner.host.reads import Read, purge
from lanner.model.enums import MessageSeekAction, RemoteReadState
from lanner.model.errors import (
    MQ_OK,
    AccessDenied,
    GenericError,
    InvalidHandle,
    InvalidParameter,
    StatusError,
    StatusInvalidParameter,
)
from lanner.model.live import MAX_LOOKUP_ID, Cursor
from lanner.model.lookup_ids import sequential_id_of
from lanner.rpc.calls import ServerCall
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import NULL_HANDLE, Value
from lanner.rpc.server import Handler, ServerInterface, WhenDurable
from lanner.security.identity import Identity
from lanner.security.log_lines import log_of_peer
from lanner.services.callers import refuse_in_hardened_mode
from lanner.services.interfaces.mqqp import (
    MAX_BUFFER_SIZE,
    PCTX_REMOTEREAD_HANDLE_TYPE,
    PCTX_RRSESSION_HANDLE_TYPE,
    QM2QM,
    REMOTE_QM_GET_QMQM_SERVER_PORT,
    RemoteReadAck,
    RemoteReadDesc,
    RemoteReadDesc2,
)
from lanner.services.ports import ServerPorts
from lanner.services.remote_queues import OpenQueueEntry, RemoteQueue, RemoteQueues, RemoteReadEntry

_LOG = logging.getLogger(__name__)

Results: TypeAlias = Mapping[str, Value]
Answer: TypeAlias = Results | int
# A function that builds a method's output parameter for a message from the descriptor and the
# SequentialId.
Shape: TypeAlias = Callable[[RemoteReadDesc | None, int], Results]

_SESSION: Final = PCTX_RRSESSION_HANDLE_TYPE.kind
_READ: Final = PCTX_REMOTEREAD_HANDLE_TYPE.kind

# MS-MQQP 2.2.2.1 ulAction.
MQ_ACTION_RECEIVE: Final = 0x0000_0000
MQ_ACTION_PEEK_CURRENT: Final = 0x8000_0000
MQ_ACTION_PEEK_NEXT: Final = 0x8000_0001
_ACTIONS: Final = frozenset((MQ_ACTION_RECEIVE, MQ_ACTION_PEEK_CURRENT, MQ_ACTION_PEEK_NEXT))
MQ_LOOKUP_PEEK_CURRENT: Final = 0x4000_0010
MQ_LOOKUP_PEEK_NEXT: Final = 0x4000_0011
MQ_LOOKUP_PEEK_PREV: Final = 0x4000_0012
MQ_LOOKUP_RECEIVE_CURRENT: Final = 0x4000_0020
MQ_LOOKUP_RECEIVE_NEXT: Final = 0x4000_0021
MQ_LOOKUP_RECEIVE_PREV: Final = 0x4000_0022
LOOKUP_ACTIONS: Final = {
    MQ_LOOKUP_PEEK_CURRENT: (True, MessageSeekAction.CURRENT),
    MQ_LOOKUP_PEEK_NEXT: (True, MessageSeekAction.NEXT),
    MQ_LOOKUP_PEEK_PREV: (True, MessageSeekAction.PREVIOUS),
    MQ_LOOKUP_RECEIVE_CURRENT: (False, MessageSeekAction.CURRENT),
    MQ_LOOKUP_RECEIVE_NEXT: (False, MessageSeekAction.NEXT),
    MQ_LOOKUP_RECEIVE_PREV: (False, MessageSeekAction.PREVIOUS),
}
# MS-MQQP 2.2.2.1 Reserved: "returned by server".
_FROM_SERVER: Final = 1

# MS-MQQP 3.1.4.9. The build number is free to choose, and goes with the version (note 24: 6531 or
# greater).
VERSION: Final = (0x06, 0x01, 7601)
# A request needs no buffer but may have one; its other parameters are small.
_MAX_REQUEST_SIZE: Final = MAX_BUFFER_SIZE + 1024


class RemoteRead:
    """The interface qm2qm of a queue manager; register `interface` with a server."""

    def __init__(self, queues: RemoteQueues, ports: ServerPorts) -> None:
        handlers: dict[str, Handler] = {
            "RemoteQMStartReceive": self.start_receive,
            "RemoteQMEndReceive": self.end_receive,
            "RemoteQMOpenQueue": self.open_queue,
            "RemoteQMCloseQueue": self.close_queue,
            "RemoteQMCloseCursor": self.close_cursor,
            "RemoteQMCancelReceive": self.cancel_receive,
            "RemoteQMPurgeQueue": self.purge_queue,
            "RemoteQMGetQMQMServerPort": self.get_server_port,
            "RemoteQmGetVersion": self.get_version,
            "RemoteQMStartReceive2": self.start_receive2,
            "RemoteQMStartReceiveByLookupId": self.start_receive_by_lookup_id,
        }
        self.interface = ServerInterface(
            QM2QM,
            handlers,
            authorize=refuse_in_hardened_mode(queues.engine),
            # MS-MQQP 5: clients call it before they authenticate.
            open_to_all=[REMOTE_QM_GET_QMQM_SERVER_PORT.name],
            denied=AccessDenied.status,
            max_request_size=_MAX_REQUEST_SIZE,
        )
        self._queues = queues
        self._engine = queues.engine
        self._lock = queues.lock
        self._committer = queues.committer
        self._ports = ports

    # Opens
    # ----------------------------------------------------------------------------------------------

    def open_queue(
        self, call: ServerCall, p_lic_guid: UUID | None, dw_mqs: int, h_queue: int, p_queue: int, dwp_context: int
    ) -> Answer:
        """3.1.4.3 RemoteQMOpenQueue.

        dwMQS is meant to limit the number of clients and is ignored, as is hQueue.
        """
        del dw_mqs, h_queue
        if p_lic_guid is None or not p_queue or not dwp_context or p_queue != dwp_context:
            return InvalidParameter.status
        queue = self._queues.find(dwp_context, call.peer)
        if queue is None:
            # Note 13 says so for hQueue. An entry without a descriptor would be useless.
            text = "%s: RemoteQMOpenQueue with %#x, which is no open queue"
            log_of_peer(_LOG, logging.WARNING, "no queue", call.peer, text, call.peer, dwp_context)
            return InvalidParameter.status
        entry = OpenQueueEntry(queue, dwp_context, p_lic_guid)
        context = call.caller.add(entry, _SESSION, partial(self._close, entry))
        queue.open_entries.append(entry)
        queue.descriptor.remote_read_state = RemoteReadState.READY_FOR_READ
        return {"ph_context": context, RETURNS: MQ_OK}

    def close_queue(self, call: ServerCall, pph_context: bytes) -> Answer:
        """3.1.4.4 RemoteQMCloseQueue."""
        if pph_context == NULL_HANDLE:
            return InvalidHandle.status
        self._close(cast("OpenQueueEntry", call.caller.remove(pph_context, _SESSION)))
        return {"pph_context": NULL_HANDLE, RETURNS: MQ_OK}

    def _close(self, entry: OpenQueueEntry) -> None:
        """Close a queue; also the rundown (3.1.6.1)."""
        self._queues.close(entry.queue)

    # Reads
    # ----------------------------------------------------------------------------------------------

    def start_receive(
        self, call: ServerCall, lp_remote_read_desc: RemoteReadDesc | None
    ) -> Results | Awaitable[Results]:
        """3.1.4.1 RemoteQMStartReceive."""
        return self._read(call, lp_remote_read_desc, self._start, _first_shape)

    def start_receive2(
        self, call: ServerCall, lp_remote_read_desc2: RemoteReadDesc2 | None
    ) -> Results | Awaitable[Results]:
        """3.1.4.10 RemoteQMStartReceive2."""
        return self._read(call, _inner(lp_remote_read_desc2), self._start, _second_shape)

    def start_receive_by_lookup_id(
        self, call: ServerCall, lookup_id: int, lp_remote_read_desc2: RemoteReadDesc2 | None
    ) -> Results | Awaitable[Results]:
        """3.1.4.11 RemoteQMStartReceiveByLookupId, which never waits."""
        return self._read(call, _inner(lp_remote_read_desc2), partial(self._look_up, lookup_id), _second_shape)

    def _read(
        self,
        call: ServerCall,
        desc: RemoteReadDesc | None,
        begin: Callable[[ServerCall, RemoteReadDesc], RemoteReadEntry],
        shape: Shape,
    ) -> Results | Awaitable[Results]:
        if desc is None:
            return {**shape(None, 0), RETURNS: InvalidHandle.status}
        try:
            entry = begin(call, desc)
        except StatusError as error:
            return _refusal(desc, error, shape)
        if entry.queue.is_pending(entry):
            return self._read_later(call, desc, entry, shape)
        return self._answer(call, desc, entry, shape)

    async def _read_later(
        self, call: ServerCall, desc: RemoteReadDesc, entry: RemoteReadEntry, shape: Shape
    ) -> Results:
        try:
            await entry.read.wait()
        except StatusError as error:
            return _refusal(desc, error, shape)
        finally:
            entry.queue.forget(entry)
        return self._answer(call, desc, entry, shape)

    def _answer(self, call: ServerCall, desc: RemoteReadDesc, entry: RemoteReadEntry, shape: Shape) -> Results:
        read = entry.read
        position = read.position
        context = NULL_HANDLE
        if read.is_receive:
            try:
                context = call.caller.add(read, _READ, read.give_back)
            except RpcFault:
                read.give_back()
                raise
        record = position.record
        told = RemoteReadDesc(
            desc.h_remote_queue,
            desc.h_cursor,
            desc.ul_action,
            desc.ul_timeout,
            len(record.packet),
            desc.dw_queue,
            desc.dw_request_id,
            _FROM_SERVER,
            record.arrived,
            desc.e_ack_nack,
            record.packet,
        )
        # MS-MQQP 3.1.4.10: SequentialId is "the least significant seven bytes" of the lookup
        # identifier.
        return {
            **shape(told, sequential_id_of(position.lookup_id)),
            "pph_context": context,
            RETURNS: MQ_OK,
        }

    def _start(self, call: ServerCall, desc: RemoteReadDesc) -> RemoteReadEntry:
        """Make the checks of 3.1.4.1 in their order, then raise the event."""
        handle, request_id, action = desc.h_remote_queue, desc.dw_request_id, desc.ul_action
        if not desc.dw_queue or desc.dw_queue != handle:
            raise InvalidParameter(f"dwQueue {desc.dw_queue:#x} is not hRemoteQueue {handle:#x}")
        queue = self._queues.find_ready(handle, call.peer)
        if queue is not None and request_id in queue.pending:
            raise InvalidParameter(f"a read with dwRequestID {request_id:#x} is pending")
        if not desc.h_cursor and action == MQ_ACTION_PEEK_NEXT:
            raise StatusInvalidParameter("MQ_ACTION_PEEK_NEXT without a cursor")
        if queue is None:
            raise InvalidParameter(f"hRemoteQueue {handle:#x} is not open")
        cursor = _cursor_of(queue, desc.h_cursor)
        if desc.h_cursor and cursor is None:
            raise StatusInvalidParameter(f"no cursor {desc.h_cursor:#x}")
        if action not in _ACTIONS:
            raise InvalidParameter(f"ulAction {action:#x}")
        read = self._new_read(queue, is_receive=action == MQ_ACTION_RECEIVE, cursor=cursor)
        entry = RemoteReadEntry(queue, handle, desc.ul_timeout, action, request_id, read)
        if not read.begin(partial(self._generate, entry)):
            queue.pending[request_id] = entry
        return entry

    def _new_read(self, queue: RemoteQueue, *, is_receive: bool, cursor: Cursor | None = None) -> Read:
        return Read(self._engine, self._committer, queue.descriptor, is_receive=is_receive, cursor=cursor)

    def _generate(self, entry: RemoteReadEntry, on_end: ReadEnd) -> ReadStart:
        """Raise the event of the read's action."""
        engine, descriptor, cursor = self._engine, entry.queue.descriptor, entry.read.cursor
        if entry.read.is_receive:
            return engine.dequeue_message_begin(
                descriptor, timeout=entry.timeout, cursor=cursor, tag=entry.tag, on_end=on_end
            )
        if entry.action == MQ_ACTION_PEEK_NEXT and cursor is not None:
            return engine.peek_next_message(descriptor, cursor, timeout=entry.timeout, tag=entry.tag, on_end=on_end)
        return engine.peek_message(descriptor, timeout=entry.timeout, cursor=cursor, tag=entry.tag, on_end=on_end)

    def _look_up(self, lookup_id: int, call: ServerCall, desc: RemoteReadDesc) -> RemoteReadEntry:
        handle, action = desc.h_remote_queue, desc.ul_action
        if not handle or desc.ul_timeout or desc.h_cursor:
            raise InvalidParameter("a lookup has a queue, no time-out and no cursor")
        queue = self._queues.find_ready(handle, call.peer)
        if queue is None:
            raise InvalidParameter(f"hRemoteQueue {handle:#x} is not open")
        if action not in LOOKUP_ACTIONS:
            raise InvalidParameter(f"ulAction {action:#x}")
        is_peek, seek = LOOKUP_ACTIONS[action]
        if seek is MessageSeekAction.NEXT and not lookup_id:
            seek = MessageSeekAction.FIRST
        elif seek is MessageSeekAction.PREVIOUS and lookup_id == MAX_LOOKUP_ID:
            seek = MessageSeekAction.LAST
        elif not lookup_id:
            raise InvalidParameter("LookupId is 0")
        read = self._new_read(queue, is_receive=not is_peek)
        read.begin(
            lambda _: self._engine.read_message_by_lookup_identifier(
                queue.descriptor, lookup_id, peek_operation=is_peek, lookup_operation=seek, two_phase_read=True
            )
        )
        return RemoteReadEntry(queue, handle, 0, action, desc.dw_request_id, read)

    def end_receive(self, call: ServerCall, pph_context: bytes, dw_ack: int) -> Answer | WhenDurable:
        """3.1.4.2 RemoteQMEndReceive: answered when it is durable."""
        if pph_context == NULL_HANDLE:
            return InvalidHandle.status
        read = cast("Read", call.caller.remove(pph_context, _READ))
        descriptor = read.descriptor
        try:
            with self._committer.change() as change:
                if descriptor.is_closed:
                    # It was returned with the queue (DECISIONS).
                    raise InvalidHandle(f"{descriptor.format_name} was closed")
                self._engine.dequeue_message_end(
                    descriptor, read.position, delete_message=dw_ack == RemoteReadAck.RR_ACK
                )
        except StatusError as error:
            return {"pph_context": NULL_HANDLE, RETURNS: error.status}
        return WhenDurable(change, {"pph_context": NULL_HANDLE})

    def cancel_receive(self, call: ServerCall, h_queue: int, p_queue: int, dw_request_id: int) -> Answer:
        """3.1.4.6 RemoteQMCancelReceive: the number is the key, regardless of the caller."""
        if not p_queue or p_queue != h_queue:
            return InvalidParameter.status
        queue = self._queues.find(h_queue, call.peer)
        if queue is None or not queue.pending:
            return InvalidHandle.status
        entry = queue.pending.get(dw_request_id)
        if entry is None:
            return GenericError.status
        try:
            self._queues.cancel(entry)
        except StatusError as error:
            return error.status
        return MQ_OK

    # Other methods
    # ----------------------------------------------------------------------------------------------

    def close_cursor(self, call: ServerCall, h_queue: int, h_cursor: int) -> Answer:
        """3.1.4.5 RemoteQMCloseCursor."""
        queue = self._queues.find(h_queue, call.peer)
        cursor = None if queue is None else _cursor_of(queue, h_cursor)
        if cursor is None:
            return InvalidHandle.status
        with self._lock:
            self._engine.close_cursor(cursor)
        return MQ_OK

    def purge_queue(self, call: ServerCall, h_queue: int) -> Answer | Awaitable[Answer]:
        """3.1.4.7 RemoteQMPurgeQueue: answered when it is durable.

        A failure is an HRESULT (DECISIONS).
        """
        queue = self._queues.find_ready(h_queue, call.peer)
        return InvalidHandle.status if queue is None else self._purge(queue, call.identity)

    async def _purge(self, queue: RemoteQueue, identity: Identity) -> int:
        try:
            await purge(self._engine, self._committer, queue.descriptor, identity)
        except StatusError as error:
            return error.status
        return MQ_OK

    def get_server_port(self, call: ServerCall, dw_port_type: int) -> Answer:
        """3.1.4.8 RemoteQMGetQMQMServerPort."""
        del call
        return self._ports.of(dw_port_type)

    def get_version(self, call: ServerCall) -> Answer:
        """3.1.4.9 RemoteQmGetVersion."""
        del call
        major, minor, build = VERSION
        return {"p_major": major, "p_minor": minor, "p_build_number": build}


def _inner(desc2: RemoteReadDesc2 | None) -> RemoteReadDesc | None:
    return None if desc2 is None else desc2.p_remote_read_desc


def _first_shape(desc: RemoteReadDesc | None, sequential_id: int) -> Results:
    del sequential_id
    return {} if desc is None else {"lp_remote_read_desc": desc}


def _second_shape(desc: RemoteReadDesc | None, sequential_id: int) -> Results:
    return {"lp_remote_read_desc2": RemoteReadDesc2(desc, sequential_id)}


def _refusal(desc: RemoteReadDesc, error: StatusError, shape: Shape) -> Results:
    """Return a failure, which comes with no message and a NULL handle."""
    told = replace(desc, dw_size=0, lp_buffer=None, reserved=_FROM_SERVER)
    return {**shape(told, 0), RETURNS: error.status}


def _cursor_of(queue: RemoteQueue, handle: int) -> Cursor | None:
    return next((cursor for cursor in queue.descriptor.cursors if cursor.handle == handle), None)
