"""Open queues of the queue client: handles, cursors and purge.

MS-MQMP 3.1.1.2, 3.1.4.17 to 3.1.4.22, 3.1.5.4, 3.1.7.1. A queue has two names: a context handle,
and a random number for rpc_ACReceiveMessageEx, which takes no handle. The number is valid only in
the association that opened the queue.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from lanner.host.reads import purge
from lanner.model.enums import QueueAccessType, QueueShareMode
from lanner.model.errors import (
    MQ_OK,
    FormatnameBufferTooSmall,
    IllegalOperation,
    InsufficientResources,
    InvalidHandle,
    InvalidParameter,
    QueueNotAvailable,
    QueueNotFound,
    RemoteMachineNotAvailable,
    StatusError,
    UnsupportedAccessMode,
)
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import NULL_HANDLE, Pointed
from lanner.rpc.server import WhenDurable
from lanner.services.interfaces.mqmp import RPC_QUEUE_HANDLE, CACCreateRemoteCursor
from lanner.services.queue_client_remote import MAX_CURSORS
from lanner.services.queue_client_tables import HandleTable
from lanner.services.queue_formats import format_name_of

if TYPE_CHECKING:
    from uuid import UUID

    from lanner.model.live import Cursor, OpenQueueDescriptor
    from lanner.rpc.calls import Caller, ServerCall
    from lanner.rpc.server import Handler
    from lanner.security.identity import Identity
    from lanner.services.interfaces.mqmq import QueueFormat
    from lanner.services.queue_client_answers import Answer, Answers, Results
    from lanner.wire.format_name import FormatName

_KIND: Final = RPC_QUEUE_HANDLE.kind
# 3.1.4.17 dwDesiredAccess, which does not include move access.
_ACCESS: Final = {access.value: access for access in QueueAccessType if access is not QueueAccessType.MOVE}
_READING: Final = (QueueAccessType.RECEIVE, QueueAccessType.PEEK)
# 3.1.4.19 hCursor: "or the reserved value".
_NO_CURSOR: Final = 0x0B


@dataclass(frozen=True, slots=True, eq=False)
class LocalQueue:
    """LocalQueueContextHandle (3.1.1.3)."""

    context: int
    descriptor: OpenQueueDescriptor
    caller: Caller

    def cursor(self, handle: int) -> Cursor:
        for cursor in self.descriptor.cursors:
            if cursor.handle == handle:
                return cursor
        raise InvalidHandle(f"no cursor {handle:#x} on {self.descriptor.format_name}")


class QueueHandles(HandleTable[int, LocalQueue]):
    """iLocalQueueContextHandleTable (3.1.1.2) and the methods on it."""

    @property
    def handlers(self) -> dict[str, Handler]:
        """The handlers of qmcomm, by method name."""
        return {
            "rpc_QMOpenQueueInternal": self.open_queue,
            "rpc_ACCloseHandle": self.close_handle,
            "rpc_ACCloseCursor": self.close_cursor,
            "rpc_ACSetCursorProperties": self.set_cursor_properties,
            "rpc_ACHandleToFormatName": self.handle_to_format_name,
            "rpc_ACPurgeQueue": self.purge_queue,
        }

    @property
    def handlers2(self) -> dict[str, Handler]:
        """The handlers of qmcomm2, by method name."""
        return {"rpc_ACCreateCursorEx": self.create_cursor}

    def find(self, call: ServerCall, handle: bytes) -> LocalQueue:
        """Return the queue of a context handle; a handle of another client is a fault."""
        if handle == NULL_HANDLE:
            raise InvalidHandle("a NULL queue handle")
        return cast("LocalQueue", call.caller.get(handle, _KIND))

    def find_context(self, call: ServerCall, context: int) -> LocalQueue:
        """Return the queue of a number that was given to this caller."""
        queue = self._held.get(context)
        if queue is None or not queue.caller.includes(call.caller):
            raise InvalidHandle(f"hQMContext {context:#x} is not open")
        return queue

    # Open and close
    # ----------------------------------------------------------------------------------------------

    def open_queue(
        self,
        call: ServerCall,
        p_queue_format: QueueFormat,
        dw_desired_access: int,
        dw_share_mode: int,
        h_remote_queue: int,
        lplp_remote_queue_name: Pointed[str | None] | None,
        dwp_queue: int,
        p_lic_guid: UUID,
        lp_client_name: str,
        dw_remote_protocol: int,
        dwp_remote_context: int,
    ) -> Answers:
        """3.1.4.17 rpc_QMOpenQueueInternal. The caller's identity decides what it may open.

        The check for "If pQueueFormat identifies a remote queue" is left out. The access it demands
        would forbid sending to other computers, which outgoing queues are for.
        """
        del dwp_queue, p_lic_guid, lp_client_name, dw_remote_protocol
        access = _ACCESS.get(dw_desired_access)
        if access is None:
            raise UnsupportedAccessMode(f"dwDesiredAccess {dw_desired_access:#x}")
        if dw_share_mode not in tuple(QueueShareMode):
            raise InvalidParameter(f"dwShareMode {dw_share_mode:#x}")
        share_mode = QueueShareMode(dw_share_mode)
        if access is QueueAccessType.SEND and share_mode is not QueueShareMode.DENY_NONE:
            raise UnsupportedAccessMode("exclusive, for sending")
        name = format_name_of(p_queue_format)
        if h_remote_queue:
            # A client with this number can read from that computer directly (MS-MQQP 3.1.4.3).
            raise RemoteMachineNotAvailable(f"{name}: read it from its own computer")
        if dwp_remote_context:
            raise InvalidParameter("dwpRemoteContext without hRemoteQueue")
        nothing = None if lplp_remote_queue_name is None else Pointed(None)
        try:
            with self._committer.change() as change:
                descriptor = self._engine.open_queue(name, access, share_mode, call.identity)
        except QueueNotFound:
            if access not in _READING or nothing is None:
                raise
            return {"lplp_remote_queue_name": Pointed(self._elsewhere(name)), RETURNS: MQ_OK}
        queue = LocalQueue(self._new_context(), descriptor, call.caller)
        self._held[queue.context] = queue
        try:
            handle = call.caller.add(queue, _KIND, partial(self._close, queue))
        except RpcFault:
            self._close(queue)
            raise
        results = {"lplp_remote_queue_name": nothing, "pdw_qm_context": queue.context, "ph_queue": handle}
        # Opening may have created a subqueue or an outgoing queue.
        return WhenDurable(change, results) if change.is_pending else {**results, RETURNS: MQ_OK}

    def _elsewhere(self, name: FormatName) -> str:
        """Return the path name of a queue on another computer, for the client to connect to."""
        with self._lock:
            path, machine = self._engine.get_queue_path(name)
            if not path or self._engine.is_local_host(machine):
                raise QueueNotFound(f"no queue {name}, here or anywhere")
        return path

    def close_handle(self, call: ServerCall, ph_queue: bytes) -> Answer:
        """3.1.4.18 rpc_ACCloseHandle: ends reads that wait on the queue."""
        self._close(self.find(call, ph_queue))
        call.caller.remove(ph_queue, _KIND)
        return {"ph_queue": NULL_HANDLE, RETURNS: MQ_OK}

    def _close(self, queue: LocalQueue) -> None:
        """Close a queue; also the rundown (3.1.7.1)."""
        if self._held.pop(queue.context, None) is None:
            return
        with self._committer.change() as change:
            self._engine.close_queue(queue.descriptor)
        change.soon()

    def _new_context(self) -> int:
        while True:
            context = secrets.randbits(32)
            if context and context not in self._held:
                return context

    # Cursors
    # ----------------------------------------------------------------------------------------------

    def create_cursor(self, call: ServerCall, h_queue: bytes, pcc: CACCreateRemoteCursor) -> Answer:
        """3.1.5.4 rpc_ACCreateCursorEx."""
        del pcc  # an output parameter
        descriptor = self.find(call, h_queue).descriptor
        if len(descriptor.cursors) >= MAX_CURSORS:
            raise InsufficientResources(f"{MAX_CURSORS} cursors on {descriptor.format_name}")
        with self._lock:
            cursor = self._engine.open_cursor(descriptor)
        if cursor is None:
            raise _no_queue(descriptor)
        return {"pcc": CACCreateRemoteCursor(cursor.handle), RETURNS: MQ_OK}

    def close_cursor(self, call: ServerCall, h_queue: bytes, h_cursor: int) -> Answer:
        """3.1.4.19 rpc_ACCloseCursor."""
        if h_cursor == _NO_CURSOR and not self._has_cursor(call, h_queue, h_cursor):
            return MQ_OK
        cursor = self.find(call, h_queue).cursor(h_cursor)
        with self._lock:
            self._engine.close_cursor(cursor)
        return MQ_OK

    def _has_cursor(self, call: ServerCall, h_queue: bytes, h_cursor: int) -> bool:
        """Return whether a cursor has this number.

        Cursor numbers are consecutive, so one of them may equal the reserved value.
        """
        try:
            self.find(call, h_queue).cursor(h_cursor)
        except (StatusError, RpcFault):
            return False
        return True

    def set_cursor_properties(self, call: ServerCall, h_proxy: bytes, h_cursor: int, h_remote_cursor: int) -> Answer:
        """3.1.4.20 rpc_ACSetCursorProperties: obsolete.

        Unlike other obsolete methods it returns the code instead of raising it.
        """
        del call, h_proxy, h_cursor, h_remote_cursor
        return IllegalOperation.status

    # Other methods
    # ----------------------------------------------------------------------------------------------

    def handle_to_format_name(
        self,
        call: ServerCall,
        h_queue: bytes,
        dw_format_name_rpc_buffer_len: int,
        lpwcs_format_name: str | None,
        pdw_length: int,
    ) -> Answer:
        """3.1.4.21 rpc_ACHandleToFormatName."""
        size = dw_format_name_rpc_buffer_len
        if pdw_length != size:
            raise InvalidParameter(f"pdwLength {pdw_length} is not dwFormatNameRPCBufferLen {size}")
        descriptor = self.find(call, h_queue).descriptor
        if descriptor.queue is None and not descriptor.multiple:
            raise _no_queue(descriptor)
        # Format names are in the basic plane, mostly ASCII: one UTF-16 unit per character.
        name = f"{descriptor.format_name}\0"
        results: Results = {"pdw_length": len(name), RETURNS: MQ_OK}
        if len(name) > size:
            results = {**results, RETURNS: FormatnameBufferTooSmall.status}
        if lpwcs_format_name is None or not size:
            return results
        written = name if len(name) <= size else name[: size - 1] + "\0"
        return {**results, "lpwcs_format_name": written.ljust(size, "\0")}

    def purge_queue(self, call: ServerCall, h_queue: bytes) -> Answers:
        """3.1.4.22 rpc_ACPurgeQueue: works in slices; answered when all of it is durable."""
        return self._purge(self.find(call, h_queue).descriptor, call.identity)

    async def _purge(self, descriptor: OpenQueueDescriptor, identity: Identity) -> int:
        await purge(self._engine, self._committer, descriptor, identity)
        return MQ_OK


def _no_queue(descriptor: OpenQueueDescriptor) -> QueueNotAvailable:
    return QueueNotAvailable(f"{descriptor.format_name}: the queue was deleted")
