"""The RPC client for asyncio (MS-RPCE 3.3.2). `blocking_client` has the same names for threads.

connecting = connect_tcp("127.0.0.1", 2103, credentials=Credentials("alice", "secret"))
async with await connecting as client:
    bound = await client.bind(QMMGMT)
    results = await bound.call(R_QM_MGMT_ACTION, p_object_format=..., lpwsz_action=...)
"""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from uuid import UUID

from lanner.model.errors import LannerError, RemoteProtocolError
from lanner.rpc import client_shared
from lanner.rpc.client_connection import Answered, Bound, ClientConnection, ClientEvent, Failed
from lanner.rpc.faults import RpcConnectionError
from lanner.rpc.frames import Entry
from lanner.rpc.interface import Interface, Method
from lanner.rpc.liveness import notice_death
from lanner.rpc.ndr import Syntax, Value
from lanner.rpc.pdu import NDR20, AuthLevel, AuthType, SyntaxId
from lanner.rpc.security import Credentials, SecurityError


class Posted(NamedTuple):
    """An entry that was sent, and the wait for its answer."""

    number: int
    waiting: asyncio.Future[Entry]


class BoundInterface:
    """An interface on a connection."""

    def __init__(self, client: RpcClient, bound: Bound) -> None:
        self._client = client
        self._bound = bound
        self._syntax = client_shared.accepted(bound)

    async def call(self, method: Method, object_uuid: UUID | None = None, /, **arguments: Value) -> dict[str, Value]:
        """Return the out parameters of a call, and its return value under "returns".

        Raises RpcFault if the call fails. Cancelling the waiting task abandons the call on the
        server.
        """
        stub = method.encode_request(arguments, self._syntax)
        answer = await self._client.request(self._bound.context_id, method.opnum, stub, object_uuid)
        return client_shared.decoded(method, answer, arguments, self._syntax)

    async def call_raw(self, opnum: int, stub: bytes, object_uuid: UUID | None = None) -> bytes:
        return (await self.request(opnum, stub, object_uuid)).stub

    async def request(self, opnum: int, stub: bytes, object_uuid: UUID | None = None) -> Answered:
        """Call like `call_raw`, and return the stub with its byte order."""
        return await self._client.request(self._bound.context_id, opnum, stub, object_uuid)


class RpcClient(asyncio.Protocol):
    """A connection to a server, for any number of interfaces and concurrent calls."""

    def __init__(self, core: ClientConnection) -> None:
        self._core = core
        self._process = os.getpid()
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, asyncio.Future[Answered]] = {}
        self._entries: dict[int, asyncio.Future[Entry]] = {}
        self._is_flushing = False
        self._binding: asyncio.Future[Bound] | None = None
        self._binding_lock = asyncio.Lock()
        self._error: LannerError | None = None
        self._closed = asyncio.get_running_loop().create_future()

    @property
    def assoc_group_id(self) -> int:
        """The id that another connection passes to share the context handles of this one."""
        return self._core.assoc_group_id

    @property
    def is_open(self) -> bool:
        """Whether a call can still be sent."""
        transport = self._transport
        is_here = self._process == os.getpid()
        return self._error is None and is_here and transport is not None and not transport.is_closing()

    @property
    def local_address(self) -> str:
        """The client's own address; empty on a Unix socket."""
        name = None if self._transport is None else self._transport.get_extra_info("sockname")
        return str(name[0]) if isinstance(name, tuple) else ""

    async def bind(self, interface: Interface, syntaxes: tuple[Syntax, ...] | None = None) -> BoundInterface:
        return await self.bind_raw(*client_shared.proposed(interface, syntaxes))

    async def bind_raw(self, interface: SyntaxId, transfer_syntaxes: tuple[SyntaxId, ...] = (NDR20,)) -> BoundInterface:
        """Bind an interface. Only one bind at a time is under way; others wait for their turn."""
        client_shared.check_process(self._process)
        async with self._binding_lock:
            if self._binding is not None and not self._binding.done():
                # Its caller was cancelled. A bind cannot be abandoned: the server answers it first.
                await asyncio.wait([self._binding])
            self._check()
            try:
                self._core.bind(interface, transfer_syntaxes)
            except SecurityError as error:
                self._lose(error)
                raise
            self._binding = asyncio.get_running_loop().create_future()
            self._flush()
            return BoundInterface(self, await asyncio.shield(self._binding))

    async def request(self, context_id: int, opnum: int, stub: bytes, object_uuid: UUID | None = None) -> Answered:
        client_shared.check_process(self._process)
        self._check()
        try:
            call_id = self._core.request(context_id, opnum, stub, object_uuid)
        except Exception as error:
            self._lose(client_shared.broken_off(error))
            raise
        waiting: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = waiting
        self._flush()
        try:
            return await waiting
        except asyncio.CancelledError:
            self._calls.pop(call_id, None)
            self._core.abandon(call_id)
            self._flush()
            raise

    def begin_frames(self, keys: bytes) -> None:
        """Begin to exchange frames beside PDUs. `keys` come from the answer to a call."""
        self._core.begin_frames(keys)

    def put(self, kind: int, *parts: bytes) -> Posted:
        """Queue an entry. It is sent in the frame of the next one that is posted."""
        client_shared.check_process(self._process)
        self._check()
        number = self._core.post(kind, parts)
        waiting: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        self._entries[number] = waiting
        return Posted(number, waiting)

    def post(self, kind: int, *parts: bytes) -> Posted:
        """Send an entry of a frame, together with those that other tasks send now."""
        posted = self.put(kind, *parts)
        if self._core.is_frame_large:
            self._flush()
        elif not self._is_flushing:
            self._is_flushing = True
            posted.waiting.get_loop().call_soon(self._flush)
        return posted

    def tell(self, kind: int, *parts: bytes) -> None:
        """Queue an entry that has no answer. It is sent with the next entry that has one."""
        self._core.tell(kind, parts)

    async def answer(self, posted: Posted) -> Entry:
        """Wait for the answer to an entry. Raises RpcConnectionError if the connection ends."""
        try:
            return await posted.waiting
        except asyncio.CancelledError:
            self.forget(posted)
            raise

    def forget(self, posted: Posted) -> None:
        """Drop the answer to an entry when it arrives."""
        self._entries.pop(posted.number, None)
        posted.waiting.cancel()

    def _check(self) -> None:
        if self._error is not None:
            raise RpcConnectionError(str(self._error)) from self._error

    def _flush(self) -> None:
        self._is_flushing = False
        data = self._core.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are no subclasses of asyncio's

    def data_received(self, data: bytes) -> None:
        try:
            events = self._core.receive(data)
        except (RemoteProtocolError, SecurityError, RpcConnectionError) as error:
            self._lose(error)
            return
        self._flush()
        for event in events:
            self._happened(event)

    def _happened(self, event: ClientEvent) -> None:
        match event:
            case Entry():
                posted = self._entries.pop(event.number, None)
                if posted is not None and not posted.done():
                    posted.set_result(event)
            case Bound():
                if self._binding is not None and not self._binding.done():
                    self._binding.set_result(event)
            case Answered():
                waiting = self._calls.pop(event.call_id, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(event)
            case Failed():
                waiting = self._calls.pop(event.call_id, None)
                if waiting is not None:
                    if not waiting.done():
                        waiting.set_exception(event.error)
                elif self._binding is not None and not self._binding.done():
                    self._binding.set_exception(event.error)

    def connection_lost(self, exc: Exception | None) -> None:
        match exc:
            case None:
                self._fail(client_shared.hung_up())
            case OSError():
                self._fail(client_shared.connection_failed(exc))
            case _:
                self._fail(client_shared.broken_off(exc))
        if not self._closed.done():
            self._closed.set_result(None)

    def _fail(self, error: LannerError) -> None:
        """End every call with the first error."""
        if self._error is None:
            self._error = error
        waiting: list[asyncio.Future[Any]] = [*self._calls.values(), *self._entries.values()]
        if self._binding is not None:
            waiting.append(self._binding)
        self._calls.clear()
        self._entries.clear()
        for one in waiting:
            if not one.done():
                one.set_exception(client_shared.repeated(self._error))
                # The caller of a bind may have been cancelled: asyncio must not report the error as
                # lost.
                one.exception()

    def _lose(self, error: LannerError) -> None:
        # Unsent data belongs to calls that fail here. A peer that does not read must not delay
        # this.
        self._fail(error)
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """End the connection. Calls under way raise RpcConnectionError."""
        # After a fork, the selector of the loop and the connection are shared with the parent
        # process.
        if self._transport is not None and self._process == os.getpid():
            self._lose(client_shared.closed())
            await self._closed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace
        await self.close()


async def connect_tcp(
    host: str,
    port: int,
    *,
    credentials: Credentials | None = None,
    auth_type: AuthType = AuthType.WINNT,
    level: AuthLevel = AuthLevel.PKT_PRIVACY,
    assoc_group_id: int = 0,
    local_address: tuple[str, int] | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 (the blocking client has the same signature)
) -> RpcClient:
    """Connect to a server. Without credentials, no level of authentication is used.

    Raises OSError if connecting fails, TimeoutError after `timeout` seconds.
    """
    core = client_shared.tcp_core(host, port, credentials, auth_type, level, assoc_group_id)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout) as limit:
            transport, client = await loop.create_connection(
                lambda: RpcClient(core), host, port, local_addr=local_address
            )
    except TimeoutError as error:
        if limit.expired():
            raise client_shared.connect_timed_out(f"{host} port {port}", timeout) from error
        raise
    notice_death(transport.get_extra_info("socket"))
    return client


async def connect_unix(
    path: Path,
    *,
    assoc_group_id: int = 0,
    timeout: float | None = None,  # noqa: ASYNC109 (the blocking client has the same signature)
) -> RpcClient:
    """Connect to a server on this machine, which identifies the client by its uid.

    Raises the same errors as `connect_tcp`.
    """
    core = client_shared.unix_core(path, assoc_group_id)
    try:
        async with asyncio.timeout(timeout) as limit:
            _, client = await asyncio.get_running_loop().create_unix_connection(lambda: RpcClient(core), str(path))
    except TimeoutError as error:
        if limit.expired():
            raise client_shared.connect_timed_out(str(path), timeout) from error
        raise
    return client


async def connect_socket(connected: socket.socket, peer: str) -> RpcClient:
    """Use a socket that is connected to a server. `peer` names the server in texts."""
    core = client_shared.unix_core(Path(peer), 0)
    connected.setblocking(False)
    _, client = await asyncio.get_running_loop().create_unix_connection(lambda: RpcClient(core), sock=connected)
    return client
