r"""The client of remote reads (MS-MQQP 3.2), and of opening queues and cursors (MS-MQMP 3.2.4).

async with await RemoteReader.connect(Target("192.0.2.7"), client_id=own_identifier) as reader:
    queue = await reader.open(parse(r"DIRECT=OS:.\private$\orders"))
    message = await queue.receive(timeout=5000)

A receive has two phases. The first one transfers the message, which the server keeps locked for
this client. The second one, RemoteQMEndReceive, acknowledges or returns it. A caller that is
cancelled in the first phase loses nothing: a message that the server may have taken for it is given
back (`io.salvaged`). Read time-outs are in milliseconds.
"""

# A read's time-out is the protocol's, kept by the server.
# ruff: noqa: ASYNC109

from __future__ import annotations

import contextlib
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self, cast
from uuid import UUID

from lanner.client._async.closeable import Closeable
from lanner.client._async.connections import connect_to
from lanner.client._async.io import limited, salvaged, time_limit
from lanner.client.remote_message import RemoteMessage
from lanner.client.target import Target
from lanner.model.enums import INFINITE, QueueAccessType, QueueShareMode
from lanner.model.errors import MQ_OK, InvalidHandle, LannerError, RemoteProtocolError, StatusError, status_error
from lanner.rpc.async_client import BoundInterface, RpcClient
from lanner.rpc.faults import FaultStatus, InterfaceRefused, RpcConnectionError, RpcFault
from lanner.rpc.interface import RETURNS, Method
from lanner.rpc.ndr import NULL_HANDLE, Syntax, Value
from lanner.services.interfaces import mqmp, mqqp
from lanner.services.interfaces.mqmp import QMCOMM, CACCreateRemoteCursor, CACTransferBufferV1, TransferType
from lanner.services.interfaces.mqqp import QM2QM, PortType, RemoteReadAck, RemoteReadDesc, RemoteReadDesc2
from lanner.services.ports import READ_PORT
from lanner.services.queue_formats import queue_format_of
from lanner.services.remote_read import (
    MQ_ACTION_PEEK_CURRENT,
    MQ_ACTION_PEEK_NEXT,
    MQ_ACTION_RECEIVE,
    MQ_LOOKUP_RECEIVE_CURRENT,
    MQ_LOOKUP_RECEIVE_NEXT,
    MQ_LOOKUP_RECEIVE_PREV,
)
from lanner.wire.format_name import FormatName
from lanner.wire.message import Message

# MS-MQQP 3.2.4.1: "the client SHOULD cancel the call" when it takes longer than five minutes.
OPEN_TIMEOUT: Final = 300.0  # seconds
# MS-MQQP 3.2.4.1 dwMQS: 1 is for routing and directory servers.
_NO_SERVER: Final = 0
# MS-MQQP 3.2.4.2: servers before this version lack RemoteQMStartReceive2.
_FIRST_WITH_SEQUENTIAL_ID: Final = (5, 1)
_MAX_REQUEST_ID: Final = 0xFFFF_FFFF
# The actions whose message the server keeps for the client until it ends the read.
_RECEIVES: Final = frozenset(
    (MQ_ACTION_RECEIVE, MQ_LOOKUP_RECEIVE_CURRENT, MQ_LOOKUP_RECEIVE_NEXT, MQ_LOOKUP_RECEIVE_PREV)
)


@dataclass(slots=True, eq=False)
class PendingRemoteReadEntry:
    """MS-MQQP 3.2.1.1."""

    open_queue_descriptor_handle: int
    request_id: int
    remote_read_handle: bytes = NULL_HANDLE


@dataclass(slots=True, eq=False)
class RemoteReader(Closeable):
    """A connection to the queues of another computer."""

    client_id: UUID
    open_timeout: float
    handshake_client: RpcClient
    handshake: BoundInterface
    reading_client: RpcClient
    reading: BoundInterface
    # rPendingRemoteReadEntryCollection, by RequestId (3.2.1.2).
    pending: dict[int, PendingRemoteReadEntry] = field(default_factory=dict)
    # rRemoteOpenQueueEntryCollection, by handle (3.2.1.4).
    opened: dict[int, OpenRemoteQueue] = field(default_factory=dict)
    _version: tuple[int, int] | None = None
    _last_request_id: int = 0
    # A threading lock in both forms on purpose: no wait occurs while it is held.
    _numbering: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    async def connect(
        cls,
        target: Target,
        *,
        client_id: UUID,
        syntaxes: tuple[Syntax, ...] | None = None,
        open_timeout: float = OPEN_TIMEOUT,
    ) -> Self:
        """Connect to both interfaces, after asking the server for the port of reads (3.2.4.1).

        If the server names no port, or is behind a Unix socket, the same address is used for reads.
        """
        handshake_client = reading_client = await connect_to(target)
        try:
            handshake = await handshake_client.bind(QMCOMM)
            port = target.port
            try:
                reading = await reading_client.bind(QM2QM, syntaxes)
            except InterfaceRefused:
                # A process may serve an interface on only some of its ports. qmcomm names the port
                # of qm2qm.
                asked = await handshake.call(mqmp.R_QM_GET_RTQM_SERVER_PORT, f_ip=PortType.IP_READ)
                port = cast("int", asked[RETURNS]) or READ_PORT
                reading_client = await connect_to(target, QM2QM, port=port)
                reading = await reading_client.bind(QM2QM, syntaxes)
            asked = await reading.call(mqqp.REMOTE_QM_GET_QMQM_SERVER_PORT, dw_port_type=PortType.IP_READ)
            told = cast("int", asked[RETURNS])
            if target.host is not None and told not in (0, port):
                if reading_client is not handshake_client:
                    await reading_client.close()
                reading_client = await connect_to(target, QM2QM, port=told)
                reading = await reading_client.bind(QM2QM, syntaxes)
        except BaseException:
            await reading_client.close()
            await handshake_client.close()
            raise
        return cls(client_id, open_timeout, handshake_client, handshake, reading_client, reading)

    async def close(self) -> None:
        """Close the connection.

        The server then closes open queues and puts unacknowledged messages back.
        """
        await self.reading_client.close()
        await self.handshake_client.close()

    async def open(
        self,
        name: FormatName,
        access: QueueAccessType = QueueAccessType.RECEIVE,
        share_mode: QueueShareMode = QueueShareMode.DENY_NONE,
    ) -> OpenRemoteQueue:
        """Open a queue in the two steps of MS-MQMP 4.2; the first one checks the identity."""
        first = await call(
            self.handshake,
            mqmp.R_QM_OPEN_REMOTE_QUEUE,
            p_queue_format=queue_format_of(name),
            dw_calling_process_id=0,
            dw_desired_access=access.value,
            dw_share_mode=int(share_mode),
            p_lic_guid=self.client_id,
            dw_mqs=_NO_SERVER,
        )
        try:
            async with time_limit(self.open_timeout):
                limited(self.reading_client)
                second = await call(
                    self.reading,
                    mqqp.REMOTE_QM_OPEN_QUEUE,
                    p_lic_guid=self.client_id,
                    dw_mqs=_NO_SERVER,
                    h_queue=first["ph_queue"],
                    p_queue=first["dwp_queue"],
                    dwp_context=first["pdw_context"],
                )
        except TimeoutError:
            await self._close_context(first["pph_context"])
            raise RpcConnectionError(f"{name} was not opened within {self.open_timeout:g} s") from None
        except BaseException:
            await self._close_context(first["pph_context"])
            raise
        queue = OpenRemoteQueue(self, first["ph_queue"], first["dwp_queue"], second["ph_context"], first["pph_context"])
        self.opened[queue.handle] = queue
        return queue

    async def _close_context(self, context: bytes) -> None:
        """Close the RPC context of the first step, with which the server also closes the queue."""
        with contextlib.suppress(LannerError):
            await self.handshake.call(mqmp.R_QM_CLOSE_REMOTE_QUEUE_CONTEXT, pph_context=context)

    async def check(self) -> None:
        """Make a first call, which fails if the password is wrong."""
        await self.version()

    async def version(self) -> tuple[int, int]:
        """Return the server's major and minor version; (0, 0) if it is too old to report it."""
        if self._version is None:
            try:
                told = await self.reading.call(mqqp.REMOTE_QM_GET_VERSION)
            except RpcFault as fault:
                if fault.status != FaultStatus.NCA_OP_RNG_ERROR:
                    raise
                self._version = (0, 0)
            else:
                self._version = (cast("int", told["p_major"]), cast("int", told["p_minor"]))
        return self._version

    def new_entry(self, handle: int) -> PendingRemoteReadEntry:
        """Return an entry whose request id no other pending read has (3.2.1.2)."""
        with self._numbering:
            request_id = self._last_request_id
            while True:
                request_id = request_id % _MAX_REQUEST_ID + 1
                if request_id not in self.pending:
                    break
            self._last_request_id = request_id
            entry = self.pending[request_id] = PendingRemoteReadEntry(handle, request_id)
        return entry


@dataclass(slots=True, eq=False)
class OpenRemoteQueue:
    """MS-MQQP 3.2.1.3 RemoteOpenQueueEntry, and the operations on it."""

    reader: RemoteReader
    # OpenQueueDescriptorHandle: phQueue of R_QMOpenRemoteQueue.
    handle: int
    # dwpQueue of R_QMOpenRemoteQueue.
    queue: int
    rr_session_handle: bytes
    open_context: bytes

    # The queue was closed to give back a message that an interrupted read may have received. This
    # also ends other callers' reads on it, which must begin again on another handle.
    is_given_up: bool = False

    @property
    def is_open(self) -> bool:
        return self.rr_session_handle != NULL_HANDLE

    async def peek(self, timeout: int = INFINITE, cursor: int = 0) -> RemoteMessage:
        """Return the message at the front, or under a cursor (3.2.4.2, 3.2.4.5)."""
        return (await self.begin(MQ_ACTION_PEEK_CURRENT, timeout, cursor))[1]

    async def peek_next(self, cursor: int, timeout: int = INFINITE) -> RemoteMessage:
        """Return the message after the one under a cursor (3.2.4.5)."""
        return (await self.begin(MQ_ACTION_PEEK_NEXT, timeout, cursor))[1]

    async def receive(self, timeout: int = INFINITE, cursor: int = 0) -> RemoteMessage:
        """Receive a message, in both phases (3.2.4.3, 3.2.4.6)."""
        return await self._finish(*await self.begin(MQ_ACTION_RECEIVE, timeout, cursor))

    async def look_up(self, lookup_id: int, action: int) -> RemoteMessage:
        """Peek or receive by lookup identifier (3.1.4.11): `action` is one of MQ_LOOKUP_*."""
        return await self._finish(*await self.begin_look_up(lookup_id, action))

    async def _finish(self, entry: PendingRemoteReadEntry, message: RemoteMessage) -> RemoteMessage:
        await self.end(entry, RemoteReadAck.RR_ACK)
        return message

    async def begin(
        self, action: int = MQ_ACTION_RECEIVE, timeout: int = INFINITE, cursor: int = 0
    ) -> tuple[PendingRemoteReadEntry, RemoteMessage]:
        """Make the first phase of a read; a received message is kept until `end` is called."""
        entry = self.reader.new_entry(self.handle)
        return entry, await self._begin(entry, action, partial(self._start, entry, action, timeout, cursor))

    async def begin_look_up(self, lookup_id: int, action: int) -> tuple[PendingRemoteReadEntry, RemoteMessage]:
        """Make the first phase of a read by lookup identifier."""
        entry = self.reader.new_entry(self.handle)
        return entry, await self._begin(entry, action, partial(self._look_up, entry, lookup_id, action))

    async def _begin(
        self, entry: PendingRemoteReadEntry, action: int, work: Callable[[], Awaitable[RemoteMessage]]
    ) -> RemoteMessage:
        async def undo(message: RemoteMessage | None) -> None:
            if message is not None:
                await self.end(entry, RemoteReadAck.RR_NACK)
            elif action in _RECEIVES:
                # The handle of the read is unknown. Closing the queue returns its message.
                self.is_given_up = True
                await self.close()

        try:
            message = await salvaged(work, partial(self.cancel, entry.request_id), undo)
        except RemoteProtocolError:
            # A message arrived, but it cannot be parsed.
            with contextlib.suppress(LannerError):
                await self.end(entry, RemoteReadAck.RR_NACK)
            raise
        except LannerError:
            self.reader.pending.pop(entry.request_id, None)
            raise
        if action not in _RECEIVES:
            self.reader.pending.pop(entry.request_id, None)
        return message

    async def _start(self, entry: PendingRemoteReadEntry, action: int, timeout: int, cursor: int) -> RemoteMessage:
        desc = self._desc(entry, action, timeout, cursor)
        if await self.reader.version() < _FIRST_WITH_SEQUENTIAL_ID:
            return self._taken(entry, await self._call(mqqp.REMOTE_QM_START_RECEIVE, lp_remote_read_desc=desc))
        desc2 = RemoteReadDesc2(desc, 0)
        return self._taken(entry, await self._call(mqqp.REMOTE_QM_START_RECEIVE2, lp_remote_read_desc2=desc2))

    async def _look_up(self, entry: PendingRemoteReadEntry, lookup_id: int, action: int) -> RemoteMessage:
        desc2 = RemoteReadDesc2(self._desc(entry, action, 0, 0), 0)
        results = await self._call(
            mqqp.REMOTE_QM_START_RECEIVE_BY_LOOKUP_ID, lookup_id=lookup_id, lp_remote_read_desc2=desc2
        )
        return self._taken(entry, results)

    def _desc(self, entry: PendingRemoteReadEntry, action: int, timeout: int, cursor: int) -> RemoteReadDesc:
        return RemoteReadDesc(
            self.handle, cursor, action, timeout, 0, self.queue, entry.request_id, 0, 0, RemoteReadAck.RR_UNKNOWN, None
        )

    @staticmethod
    def _taken(entry: PendingRemoteReadEntry, results: Mapping[str, Any]) -> RemoteMessage:
        entry.remote_read_handle = results["pph_context"]
        desc2 = results.get("lp_remote_read_desc2")
        desc = results["lp_remote_read_desc"] if desc2 is None else desc2.p_remote_read_desc
        if desc is None or desc.lp_buffer is None:
            raise RemoteProtocolError("a read succeeded without a message")
        return RemoteMessage(
            Message.unpack(desc.lp_buffer), desc.dw_arrive_time, 0 if desc2 is None else desc2.sequential_id
        )

    async def end(self, entry: PendingRemoteReadEntry, ack: RemoteReadAck) -> None:
        """Make the second phase: acknowledge or return a message (3.2.4.3)."""
        handle, entry.remote_read_handle = entry.remote_read_handle, NULL_HANDLE
        self.reader.pending.pop(entry.request_id, None)
        if handle != NULL_HANDLE:
            await self._call(mqqp.REMOTE_QM_END_RECEIVE, pph_context=handle, dw_ack=int(ack))

    async def cancel(self, request_id: int) -> None:
        """End a pending read, which then raises RemoteCanceled (3.2.4.7).

        Raises InvalidHandle if the read has already ended.
        """
        if self.reader.pending.pop(request_id, None) is None:
            raise InvalidHandle(f"no read {request_id} is pending")
        await self._call(
            mqqp.REMOTE_QM_CANCEL_RECEIVE, h_queue=self.handle, p_queue=self.queue, dw_request_id=request_id
        )

    async def create_cursor(self) -> int:
        """Return the handle of a new cursor (MS-MQMP 3.2.4.8)."""
        results = await call(
            self.reader.handshake,
            mqmp.R_QM_CREATE_REMOTE_CURSOR,
            ptb1=CACTransferBufferV1(TransferType.CACTB_CREATECURSOR, CACCreateRemoteCursor()),
            h_queue=self.handle,
        )
        return cast("int", results["ph_cursor"])

    async def close_cursor(self, cursor: int) -> None:
        """Close a cursor (3.2.4.8)."""
        await self._call(mqqp.REMOTE_QM_CLOSE_CURSOR, h_queue=self.handle, h_cursor=cursor)

    async def purge(self) -> None:
        """Remove every message (3.2.4.4)."""
        await self._call(mqqp.REMOTE_QM_PURGE_QUEUE, h_queue=self.handle)

    async def close(self) -> None:
        """Close the queue (3.2.4.9); its reads end, and unacknowledged messages return to it."""
        self.reader.opened.pop(self.handle, None)
        handle, self.rr_session_handle = self.rr_session_handle, NULL_HANDLE
        if handle != NULL_HANDLE:
            await self._call(mqqp.REMOTE_QM_CLOSE_QUEUE, pph_context=handle)
            await self.reader._close_context(self.open_context)  # noqa: SLF001 (one object in two classes)

    async def _call(self, method: Method, **arguments: Value) -> dict[str, Any]:
        return await call(self.reader.reading, method, **arguments)


async def call(bound: BoundInterface, method: Method, **arguments: Value) -> dict[str, Any]:
    """Return the results of a call; raise any status other than MQ_OK (3.1.4.7).

    The status may be returned or thrown. Methods that open a queue return none.
    """
    try:
        results = await bound.call(method, **arguments)
    except RpcFault as fault:
        if fault.status in StatusError.by_status:
            raise status_error(fault.status) from fault
        raise
    status = cast("int", results.get(RETURNS, MQ_OK))
    if status != MQ_OK:
        raise status_error(status)
    return results
