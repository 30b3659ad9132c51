r"""The client of a remote read (MS-MQQP 3.2, with the part of MS-MQMP 3.2.4 that opens queues and makes cursors), for asyncio.

async with await RemoteReader.connect("192.0.2.7", client_id=own_identifier) as reader:
    queue = await reader.open(parse(r"DIRECT=OS:.\private$\orders"))
    message = await queue.receive(timeout=5000)
"""

# A read's time-out is the protocol's, kept by the server.
# ruff: noqa: ASYNC109

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, cast
from uuid import UUID

from lanner.model.enums import INFINITE, QueueAccessType, QueueShareMode
from lanner.model.errors import MQ_OK, InvalidHandle, LannerError, RemoteProtocolError, StatusError, status_error
from lanner.rpc.client import BoundInterface, RpcClient, connect_tcp
from lanner.rpc.faults import FaultStatus, RpcConnectionError, RpcFault
from lanner.rpc.interface import RETURNS, Method
from lanner.rpc.ndr import NULL_HANDLE, Syntax, Value
from lanner.rpc.pdu import AuthLevel, AuthType
from lanner.rpc.security import Credentials
from lanner.services.interfaces import mqmp, mqqp
from lanner.services.interfaces.mqmp import QMCOMM, CACCreateRemoteCursor, CACTransferBufferV1, TransferType
from lanner.services.interfaces.mqqp import QM2QM, PortType, RemoteReadAck, RemoteReadDesc, RemoteReadDesc2
from lanner.services.ports import HANDSHAKE_PORT, READ_PORT
from lanner.services.queue_formats import queue_format_of
from lanner.services.remote_read import MQ_ACTION_PEEK_CURRENT, MQ_ACTION_PEEK_NEXT, MQ_ACTION_RECEIVE
from lanner.wire.format_name import FormatName
from lanner.wire.message import Message

# MS-MQQP 3.2.4.1: "the client SHOULD cancel the call" when it takes longer than five minutes.
OPEN_TIMEOUT: Final = 300.0  # seconds
# MS-MQQP 3.2.4.2: servers before this have no RemoteQMStartReceive2.
_FIRST_WITH_SEQUENTIAL_ID: Final = (5, 1)
_MAX_REQUEST_ID: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class RemoteMessage:
    """A message of another computer: its packet, and what the server tells beside it."""

    message: Message
    arrived: int  # seconds since 1970 UTC
    # The low seven octets of its lookup identifier; 0 from servers that do not tell.
    sequential_id: int


@dataclass(slots=True, eq=False)
class PendingRemoteReadEntry:
    """MS-MQQP 3.2.1.1."""

    open_queue_descriptor_handle: int
    request_id: int
    remote_read_handle: bytes = NULL_HANDLE


@dataclass(slots=True)
class _Connector:
    """How to reach the server, again and again."""

    host: str
    credentials: Credentials | None
    auth_type: AuthType
    level: AuthLevel

    async def connect(self, port: int) -> RpcClient:
        return await connect_tcp(
            self.host, port, credentials=self.credentials, auth_type=self.auth_type, level=self.level
        )


@dataclass(slots=True, eq=False)
class RemoteReader:
    """A connection to the queues of another computer."""

    client_id: UUID
    # MS-MQQP 3.2.4.1 dwMQS: 1 for a routing or directory server.
    mqs: int
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
    _ending: set[asyncio.Task[None]] = field(default_factory=set)

    @classmethod
    async def connect(
        cls,
        host: str,
        *,
        client_id: UUID,
        is_server: bool = False,
        handshake_port: int = HANDSHAKE_PORT,
        read_port: int = READ_PORT,
        credentials: Credentials | None = None,
        auth_type: AuthType = AuthType.WINNT,
        level: AuthLevel = AuthLevel.PKT_PRIVACY,
        syntaxes: tuple[Syntax, ...] | None = None,
        open_timeout: float = OPEN_TIMEOUT,
    ) -> Self:
        """Connect to both interfaces; `read_port` is where the server is asked for its port (3.2.4.1)."""
        connector = _Connector(host, credentials, auth_type, level)
        handshake_client = await connector.connect(handshake_port)
        try:
            handshake = await handshake_client.bind(QMCOMM)
            async with await connector.connect(read_port) as first:
                asked = await (await first.bind(QM2QM, syntaxes)).call(
                    mqqp.REMOTE_QM_GET_QMQM_SERVER_PORT, dw_port_type=PortType.IP_READ
                )
            port = cast("int", asked[RETURNS])
            if not port:
                raise RpcConnectionError(f"{host} serves no remote reads")
            reading_client = await connector.connect(port)
            try:
                reading = await reading_client.bind(QM2QM, syntaxes)
            except BaseException:
                await reading_client.close()
                raise
        except BaseException:
            await handshake_client.close()
            raise
        return cls(client_id, int(is_server), open_timeout, handshake_client, handshake, reading_client, reading)

    async def close(self) -> None:
        """Hang up; the server closes what is open and takes back what was not acknowledged."""
        for task in self._ending:
            task.cancel()
        if self._ending:
            await asyncio.gather(*self._ending, return_exceptions=True)
        await self.reading_client.close()
        await self.handshake_client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace
        await self.close()

    async def open(
        self,
        name: FormatName,
        access: QueueAccessType = QueueAccessType.RECEIVE,
        share_mode: QueueShareMode = QueueShareMode.DENY_NONE,
    ) -> OpenRemoteQueue:
        """Open a queue in the two steps of MS-MQMP 4.2; the server checks who we are in the first."""
        first = await call(
            self.handshake,
            mqmp.R_QM_OPEN_REMOTE_QUEUE,
            p_queue_format=queue_format_of(name),
            dw_calling_process_id=0,
            dw_desired_access=access.value,
            dw_share_mode=int(share_mode),
            p_lic_guid=self.client_id,
            dw_mqs=0,
        )
        try:
            async with asyncio.timeout(self.open_timeout):
                second = await call(
                    self.reading,
                    mqqp.REMOTE_QM_OPEN_QUEUE,
                    p_lic_guid=self.client_id,
                    dw_mqs=self.mqs,
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
        with contextlib.suppress(LannerError):
            await self.handshake.call(mqmp.R_QM_CLOSE_REMOTE_QUEUE_CONTEXT, pph_context=context)

    async def version(self) -> tuple[int, int]:
        """Major and minor version of the server, asked for once; (0, 0) if it is too old to tell."""
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
        """3.2.1.2: with a request id unlike those of all other pending reads."""
        request_id = self._last_request_id
        while True:
            request_id = request_id % _MAX_REQUEST_ID + 1
            if request_id not in self.pending:
                break
        self._last_request_id = request_id
        entry = PendingRemoteReadEntry(handle, request_id)
        self.pending[request_id] = entry
        return entry

    def give_up(self, queue: OpenRemoteQueue, entry: PendingRemoteReadEntry, read: asyncio.Task[RemoteMessage]) -> None:
        """Nobody wants a read any more: cancel it, and give back what it may have got meanwhile."""
        task = asyncio.ensure_future(self._give_up(queue, entry, read))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _give_up(
        self, queue: OpenRemoteQueue, entry: PendingRemoteReadEntry, read: asyncio.Task[RemoteMessage]
    ) -> None:
        try:
            with contextlib.suppress(LannerError):
                await queue.cancel(entry.request_id)
            with contextlib.suppress(LannerError):
                await read
                await queue.end(entry, RemoteReadAck.RR_NACK)
        finally:
            read.cancel()
            self.pending.pop(entry.request_id, None)


@dataclass(slots=True, eq=False)
class OpenRemoteQueue:
    """MS-MQQP 3.2.1.3 RemoteOpenQueueEntry, and what can be done with it."""

    reader: RemoteReader
    # OpenQueueDescriptorHandle: phQueue of R_QMOpenRemoteQueue.
    handle: int
    # dwpQueue of R_QMOpenRemoteQueue.
    queue: int
    rr_session_handle: bytes
    open_context: bytes

    async def peek(self, timeout: int = INFINITE, cursor: int = 0) -> RemoteMessage:
        """3.2.4.2, 3.2.4.5: the message at the front, or under a cursor. Milliseconds."""
        return await self._read(MQ_ACTION_PEEK_CURRENT, timeout, cursor)

    async def peek_next(self, cursor: int, timeout: int = INFINITE) -> RemoteMessage:
        """3.2.4.5: the message after the one under a cursor."""
        return await self._read(MQ_ACTION_PEEK_NEXT, timeout, cursor)

    async def receive(self, timeout: int = INFINITE, cursor: int = 0) -> RemoteMessage:
        """3.2.4.3, 3.2.4.6: take a message; it is ours when the server has heard that it is here."""
        return await self._read(MQ_ACTION_RECEIVE, timeout, cursor)

    async def look_up(self, lookup_id: int, action: int) -> RemoteMessage:
        """Peek or receive by lookup identifier (3.1.4.11): `action` is one of MQ_LOOKUP_*."""
        entry = self.reader.new_entry(self.handle)
        return await self._finish(entry, self._look_up(entry, lookup_id, action))

    async def _read(self, action: int, timeout: int, cursor: int) -> RemoteMessage:
        entry = self.reader.new_entry(self.handle)
        return await self._finish(entry, self._start(entry, action, timeout, cursor))

    async def begin_receive(self, timeout: int = INFINITE) -> tuple[PendingRemoteReadEntry, RemoteMessage]:
        """The first phase of a receive: nobody else gets the message until `end` says what becomes of it."""
        entry = self.reader.new_entry(self.handle)
        return entry, await self._begin(entry, self._start(entry, MQ_ACTION_RECEIVE, timeout, 0))

    async def begin_look_up(self, lookup_id: int, action: int) -> tuple[PendingRemoteReadEntry, RemoteMessage]:
        """The first phase of a receive by lookup identifier."""
        entry = self.reader.new_entry(self.handle)
        return entry, await self._begin(entry, self._look_up(entry, lookup_id, action))

    async def _finish(
        self, entry: PendingRemoteReadEntry, work: Coroutine[object, object, RemoteMessage]
    ) -> RemoteMessage:
        message = await self._begin(entry, work)
        if entry.remote_read_handle != NULL_HANDLE:
            await self.end(entry, RemoteReadAck.RR_ACK)
        self.reader.pending.pop(entry.request_id, None)
        return message

    async def _begin(
        self, entry: PendingRemoteReadEntry, work: Coroutine[object, object, RemoteMessage]
    ) -> RemoteMessage:
        read = asyncio.ensure_future(work)
        try:
            message = await asyncio.shield(read)
        except asyncio.CancelledError:
            self.reader.give_up(self, entry, read)
            raise
        except RemoteProtocolError:
            # It came, but cannot be rebuilt.
            await self._end_quietly(entry)
            raise
        except BaseException:
            self.reader.pending.pop(entry.request_id, None)
            raise
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
        """3.2.4.3: tell the server what became of a message, and forget the request."""
        handle, entry.remote_read_handle = entry.remote_read_handle, NULL_HANDLE
        self.reader.pending.pop(entry.request_id, None)
        if handle != NULL_HANDLE:
            await self._call(mqqp.REMOTE_QM_END_RECEIVE, pph_context=handle, dw_ack=int(ack))

    async def _end_quietly(self, entry: PendingRemoteReadEntry) -> None:
        with contextlib.suppress(LannerError):
            await self.end(entry, RemoteReadAck.RR_NACK)

    async def cancel(self, request_id: int) -> None:
        """3.2.4.7: end a pending read; whoever waits for it gets RemoteCanceled."""
        if self.reader.pending.pop(request_id, None) is None:
            raise InvalidHandle(f"no read {request_id} is pending")
        await self._call(
            mqqp.REMOTE_QM_CANCEL_RECEIVE, h_queue=self.handle, p_queue=self.queue, dw_request_id=request_id
        )

    async def create_cursor(self) -> int:
        """MS-MQMP 3.2.4.8: a handle for the reads that take one."""
        results = await call(
            self.reader.handshake,
            mqmp.R_QM_CREATE_REMOTE_CURSOR,
            ptb1=CACTransferBufferV1(TransferType.CACTB_CREATECURSOR, CACCreateRemoteCursor()),
            h_queue=self.handle,
        )
        return cast("int", results["ph_cursor"])

    async def close_cursor(self, cursor: int) -> None:
        """3.2.4.8."""
        await self._call(mqqp.REMOTE_QM_CLOSE_CURSOR, h_queue=self.handle, h_cursor=cursor)

    async def purge(self) -> None:
        """3.2.4.4."""
        await self._call(mqqp.REMOTE_QM_PURGE_QUEUE, h_queue=self.handle)

    async def close(self) -> None:
        """3.2.4.9; what still waits is cancelled by the server."""
        self.reader.opened.pop(self.handle, None)
        handle, self.rr_session_handle = self.rr_session_handle, NULL_HANDLE
        if handle != NULL_HANDLE:
            await self._call(mqqp.REMOTE_QM_CLOSE_QUEUE, pph_context=handle)
            await self.reader._close_context(self.open_context)  # noqa: SLF001 (one object in two classes)

    async def _call(self, method: Method, **arguments: Value) -> dict[str, Any]:
        return await call(self.reader.reading, method, **arguments)


async def call(bound: BoundInterface, method: Method, **arguments: Value) -> dict[str, Any]:
    """The results of a call; whatever is not MQ_OK is an exception with its code, returned or thrown (MS-MQQP 3.1.4.7)."""
    try:
        results = await bound.call(method, **arguments)
    except RpcFault as fault:
        if fault.status in StatusError.by_status:
            raise status_error(fault.status) from fault
        raise
    status = cast("int", results[RETURNS])
    if status != MQ_OK:
        raise status_error(status)
    return results
