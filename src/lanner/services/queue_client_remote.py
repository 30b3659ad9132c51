"""The methods of qmcomm that remote read needs: opens and cursors.

MS-MQMP 3.1.4.1 to 3.1.4.4, 3.1.7.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias, cast
from uuid import UUID

from lanner.model.enums import QueueAccessType, QueueShareMode, RemoteReadState
from lanner.model.errors import (
    MQ_OK,
    IllegalOperation,
    InsufficientResources,
    InvalidHandle,
    InvalidParameter,
    QueueNotAvailable,
    SharingViolation,
    StatusError,
    StatusSharingViolation,
    UnsupportedAccessMode,
    UnsupportedFormatnameOperation,
)
from lanner.rpc.calls import ServerCall
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import NULL_HANDLE, Pointed, Value
from lanner.services.interfaces.mqmp import PCTX_OPENREMOTE_HANDLE_TYPE, CACTransferBufferV1
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.queue_formats import format_name_of
from lanner.services.remote_queues import RemoteQueue, RemoteQueues
from lanner.wire.format_name import DirectFormatName, DistributionListFormatName, FormatName, MulticastFormatName

Results: TypeAlias = Mapping[str, Value]

_KIND: Final = PCTX_OPENREMOTE_HANDLE_TYPE.kind
# MS-MQMP 3.1.4.2 dwDesiredAccess: MQ_RECEIVE_ACCESS and MQ_PEEK_ACCESS.
_ACCESS: Final = {access.value: access for access in (QueueAccessType.RECEIVE, QueueAccessType.PEEK)}
# Not in the specification: the maximum number of cursors on one open queue. MS-MQQP 1.3.4 gives no
# limit, and nothing else would stop a client that only creates cursors.
MAX_CURSORS: Final = 10_000


class RemoteOpens:
    """The handlers of qmcomm for clients that read from another computer."""

    def __init__(self, queues: RemoteQueues) -> None:
        self._queues = queues

    @property
    def handlers(self) -> dict[str, Callable[..., Results]]:
        """The handlers, by method name."""
        return {
            "R_QMGetRemoteQueueName": self.get_remote_queue_name,
            "R_QMOpenRemoteQueue": self.open_remote_queue,
            "R_QMCloseRemoteQueueContext": self.close_remote_queue_context,
            "R_QMCreateRemoteCursor": self.create_remote_cursor,
        }

    def get_remote_queue_name(
        self, call: ServerCall, p_queue: int, lplp_remote_queue_name: Pointed[str | None] | None
    ) -> Results:
        """3.1.4.1 R_QMGetRemoteQueueName: obsolete.

        Servers "immediately raise the exception MQ_ERROR_ILLEGAL_OPERATION".
        """
        del call, p_queue, lplp_remote_queue_name
        raise RpcFault(IllegalOperation.status, "R_QMGetRemoteQueueName", did_not_execute=True)

    def open_remote_queue(
        self,
        call: ServerCall,
        p_queue_format: QueueFormat | None,
        dw_calling_process_id: int,
        dw_desired_access: int,
        dw_share_mode: int,
        p_lic_guid: UUID,
        dw_mqs: int,
    ) -> Results:
        """3.1.4.2 R_QMOpenRemoteQueue. The caller's identity decides what it may open."""
        del dw_calling_process_id, p_lic_guid, dw_mqs
        try:
            access = _ACCESS.get(dw_desired_access)
            if access is None:
                raise UnsupportedAccessMode(f"dwDesiredAccess {dw_desired_access:#x}")
            if dw_share_mode not in (QueueShareMode.DENY_NONE, QueueShareMode.DENY_RECEIVE):
                raise InvalidParameter(f"dwShareMode {dw_share_mode:#x}")
            name = _name_to_read(p_queue_format)
            queue = self._queues.open(name, access, QueueShareMode(dw_share_mode), call.identity, call.peer)
        except SharingViolation:
            # This method specifies its own code in place of the event's (DECISIONS).
            return {RETURNS: StatusSharingViolation.status}
        except StatusError as error:
            return {RETURNS: error.status}
        try:
            context = call.caller.add(queue, _KIND, partial(self._close, queue))
        except RpcFault:
            self._queues.close(queue)
            raise
        return {
            "pph_context": context,
            "pdw_context": queue.handle,
            "ph_queue": queue.handle,
            "dwp_queue": queue.handle,
            RETURNS: MQ_OK,
        }

    def close_remote_queue_context(self, call: ServerCall, pph_context: bytes) -> Results:
        """3.1.4.3 R_QMCloseRemoteQueueContext."""
        if pph_context != NULL_HANDLE:
            self._close(cast("RemoteQueue", call.caller.remove(pph_context, _KIND)))
        return {"pph_context": NULL_HANDLE}

    def _close(self, queue: RemoteQueue) -> None:
        """Close a queue; also the rundown (3.1.7.2).

        A queue that RemoteQMOpenQueue has taken over stays open for its reader.
        """
        if queue.descriptor.remote_read_state is RemoteReadState.OPENED:
            self._queues.close(queue)

    def create_remote_cursor(self, call: ServerCall, ptb1: CACTransferBufferV1, h_queue: int) -> Results:
        """3.1.4.4 R_QMCreateRemoteCursor."""
        del ptb1
        try:
            queue = self._queues.find(h_queue, call.peer)
            if queue is None:
                raise InvalidHandle(f"hQueue {h_queue:#x} is not open")
            if len(queue.descriptor.cursors) >= MAX_CURSORS:
                raise InsufficientResources(f"{MAX_CURSORS} cursors on {queue.descriptor.format_name}")
            with self._queues.lock:
                cursor = self._queues.engine.open_cursor(queue.descriptor)
            if cursor is None:
                raise QueueNotAvailable(f"{queue.descriptor.format_name}: the queue was deleted")
        except StatusError as error:
            return {RETURNS: error.status}
        return {"ph_cursor": cursor.handle, RETURNS: MQ_OK}


def _name_to_read(queue_format: QueueFormat | None) -> FormatName:
    """Return the format name of pQueueFormat (3.1.4.2).

    It must not be NULL, a distribution list, multicast or HTTP.
    """
    if queue_format is None:
        raise InvalidParameter("pQueueFormat is NULL")
    name = format_name_of(queue_format)
    is_http = isinstance(name, DirectFormatName) and name.is_http
    if is_http or isinstance(name, (DistributionListFormatName, MulticastFormatName)):
        raise UnsupportedFormatnameOperation(f"{name} cannot be opened for reading")
    return name
