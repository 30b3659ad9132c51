"""RPC clients: asyncio and blocking, one core (MS-RPCE 3.3.2).

async with await connect_tcp("127.0.0.1", 2103, credentials=Credentials("alice", "secret")) as client:
    bound = await client.bind(QMMGMT)
    results = await bound.call(R_QM_MGMT_ACTION, p_object_format=..., lpwsz_action=...)
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

from lanner.model.errors import RemoteProtocolError
from lanner.rpc.client_connection import MAX_FRAGMENT, Answered, Bound, ClientConnection, ClientEvent, Failed
from lanner.rpc.faults import RpcConnectionError
from lanner.rpc.interface import Interface, Method
from lanner.rpc.liveness import notice_death
from lanner.rpc.ndr import ByteOrder, Syntax, Value
from lanner.rpc.pdu import NDR20, NDR64, AuthLevel, AuthType, SyntaxId
from lanner.rpc.security import Credentials, SecurityError

_READ_SIZE: Final = 65536
_LOCAL_FRAGMENT: Final = 0xFFF8
_SYNTAXES: Final = {Syntax.NDR20: NDR20, Syntax.NDR64: NDR64}
_BY_IDENTIFIER: Final = {identifier: syntax for syntax, identifier in _SYNTAXES.items()}


def _core(
    host: str,
    credentials: Credentials | None,
    auth_type: AuthType,
    level: AuthLevel,
    assoc_group_id: int,
    max_fragment: int = MAX_FRAGMENT,
) -> ClientConnection:
    return ClientConnection(
        credentials=credentials,
        auth_type=auth_type,
        level=level,
        host=host,
        assoc_group_id=assoc_group_id,
        max_fragment=max_fragment,
    )


def _proposed(interface: Interface, syntaxes: tuple[Syntax, ...] | None) -> tuple[SyntaxId, tuple[SyntaxId, ...]]:
    # NDR alone unless somebody asks for more: every server has it.
    wanted = syntaxes or ((Syntax.NDR20,) if Syntax.NDR20 in interface.syntaxes else interface.syntaxes)
    return SyntaxId(interface.uuid, *interface.version), tuple(_SYNTAXES[one] for one in wanted)


def _decoded(method: Method, answer: Answered, arguments: dict[str, Value], syntax: Syntax) -> dict[str, Value]:
    order: ByteOrder = "little" if answer.is_little else "big"
    return method.decode_response(answer.stub, arguments, syntax, order)


# asyncio -------------------------------------------------------------------------------------------------------------


class BoundInterface:
    """An interface on a connection."""

    def __init__(self, client: RpcClient, bound: Bound) -> None:
        self._client = client
        self._bound = bound
        self._syntax = _BY_IDENTIFIER[bound.transfer_syntax]

    async def call(self, method: Method, object_uuid: UUID | None = None, /, **arguments: Value) -> dict[str, Value]:
        """The out parameters of a call, and what it returns under "returns"; RpcFault if it fails.

        Cancelling the task that waits tells the server that nobody waits any more.
        """
        stub = method.encode_request(arguments, self._syntax)
        answer = await self._client.request(self._bound.context_id, method.opnum, stub, object_uuid)
        return _decoded(method, answer, arguments, self._syntax)

    async def call_raw(self, opnum: int, stub: bytes, object_uuid: UUID | None = None) -> bytes:
        return (await self.request(opnum, stub, object_uuid)).stub

    async def request(self, opnum: int, stub: bytes, object_uuid: UUID | None = None) -> Answered:
        """The same, with the byte order of what comes back."""
        return await self._client.request(self._bound.context_id, opnum, stub, object_uuid)


class RpcClient(asyncio.Protocol):
    """A connection to a server, for as many interfaces and calls at once as wanted."""

    def __init__(self, core: ClientConnection) -> None:
        self._core = core
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, asyncio.Future[Answered]] = {}
        self._binding: asyncio.Future[Bound] | None = None
        self._binding_lock = asyncio.Lock()
        self._error: Exception | None = None
        self._closed = asyncio.get_running_loop().create_future()

    @property
    def assoc_group_id(self) -> int:
        """What another connection passes to share the context handles of this one."""
        return self._core.assoc_group_id

    @property
    def is_open(self) -> bool:
        """Whether a call can still be sent."""
        return self._error is None and self._transport is not None and not self._transport.is_closing()

    @property
    def local_address(self) -> str:
        """The address that the server sees us under; empty on a Unix socket."""
        name = None if self._transport is None else self._transport.get_extra_info("sockname")
        return str(name[0]) if isinstance(name, tuple) else ""

    async def bind(self, interface: Interface, syntaxes: tuple[Syntax, ...] | None = None) -> BoundInterface:
        return await self.bind_raw(*_proposed(interface, syntaxes))

    async def bind_raw(self, interface: SyntaxId, transfer_syntaxes: tuple[SyntaxId, ...] = (NDR20,)) -> BoundInterface:
        async with self._binding_lock:
            self._check()
            self._binding = asyncio.get_running_loop().create_future()
            self._core.bind(interface, transfer_syntaxes)
            self._flush()
            return BoundInterface(self, await self._binding)

    async def request(self, context_id: int, opnum: int, stub: bytes, object_uuid: UUID | None = None) -> Answered:
        self._check()
        call_id = self._core.request(context_id, opnum, stub, object_uuid)
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

    def _check(self) -> None:
        if self._error is not None:
            raise RpcConnectionError(str(self._error)) from self._error

    def _flush(self) -> None:
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
            self._fail(error)
            if self._transport is not None:
                self._transport.abort()
            return
        self._flush()
        for event in events:
            self._happened(event)

    def _happened(self, event: ClientEvent) -> None:
        match event:
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
        self._fail(RpcConnectionError("the server hung up") if exc is None else RpcConnectionError(str(exc)))
        if not self._closed.done():
            self._closed.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        waiting: list[asyncio.Future[Any]] = [*self._calls.values()]
        if self._binding is not None:
            waiting.append(self._binding)
        self._calls.clear()
        for one in waiting:
            if not one.done():
                one.set_exception(self._error)

    async def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
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
) -> RpcClient:
    """Connect to a server; without credentials there is no authentication, whatever the level."""
    core = _core(host, credentials, auth_type, level, assoc_group_id)
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_connection(lambda: RpcClient(core), host, port, local_addr=local_address)
    notice_death(transport.get_extra_info("socket"))
    return client


async def connect_unix(path: Path, *, assoc_group_id: int = 0) -> RpcClient:
    """Connect to a server on this machine, which knows us by our uid."""
    core = _core("", None, AuthType.NONE, AuthLevel.NONE, assoc_group_id, _LOCAL_FRAGMENT)
    _, client = await asyncio.get_running_loop().create_unix_connection(lambda: RpcClient(core), str(path))
    return client


# Blocking ------------------------------------------------------------------------------------------------------------


class BlockingInterface:
    """An interface on a blocking connection."""

    def __init__(self, client: BlockingClient, bound: Bound) -> None:
        self._client = client
        self._bound = bound
        self._syntax = _BY_IDENTIFIER[bound.transfer_syntax]

    def call(self, method: Method, object_uuid: UUID | None = None, /, **arguments: Value) -> dict[str, Value]:
        stub = method.encode_request(arguments, self._syntax)
        answer = self._client.request(self._bound.context_id, method.opnum, stub, object_uuid)
        return _decoded(method, answer, arguments, self._syntax)

    def call_raw(self, opnum: int, stub: bytes, object_uuid: UUID | None = None) -> bytes:
        return self._client.request(self._bound.context_id, opnum, stub, object_uuid).stub


class BlockingClient:
    """A connection for programs without a loop: one call at a time, from one thread."""

    def __init__(self, connected: socket.socket, core: ClientConnection) -> None:
        self._socket = connected
        self._core = core

    @property
    def assoc_group_id(self) -> int:
        return self._core.assoc_group_id

    def bind(self, interface: Interface, syntaxes: tuple[Syntax, ...] | None = None) -> BlockingInterface:
        return self.bind_raw(*_proposed(interface, syntaxes))

    def bind_raw(self, interface: SyntaxId, transfer_syntaxes: tuple[SyntaxId, ...] = (NDR20,)) -> BlockingInterface:
        self._core.bind(interface, transfer_syntaxes)
        event = self._wait(lambda event: not isinstance(event, Answered))
        if not isinstance(event, Bound):
            raise RpcConnectionError("the server answers something else")
        return BlockingInterface(self, event)

    def request(self, context_id: int, opnum: int, stub: bytes, object_uuid: UUID | None = None) -> Answered:
        call_id = self._core.request(context_id, opnum, stub, object_uuid)
        event = self._wait(lambda event: not isinstance(event, Bound) and event.call_id == call_id)
        if not isinstance(event, Answered):
            raise RpcConnectionError("the server answers something else")
        return event

    def _wait(self, is_ours: Callable[[ClientEvent], bool]) -> Bound | Answered:
        try:
            while True:
                data = self._core.data_to_send()
                if data:
                    self._socket.sendall(data)
                received = self._socket.recv(_READ_SIZE)
                if not received:
                    raise RpcConnectionError("the server hung up")
                for event in self._core.receive(received):
                    if not is_ours(event):
                        continue
                    # The last leg of authentication may still have to go out.
                    data = self._core.data_to_send()
                    if data:
                        self._socket.sendall(data)
                    if isinstance(event, Failed):
                        raise event.error
                    return event
        except OSError as error:
            # Including a time-out of the socket: what comes later would be taken for the answer of another call.
            self.close()
            raise RpcConnectionError(f"the connection failed: {error}") from error
        except (RemoteProtocolError, SecurityError):
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace
        self.close()


def open_tcp(
    host: str,
    port: int,
    *,
    credentials: Credentials | None = None,
    auth_type: AuthType = AuthType.WINNT,
    level: AuthLevel = AuthLevel.PKT_PRIVACY,
    assoc_group_id: int = 0,
    timeout: float | None = None,
) -> BlockingClient:
    """Connect to a server; `timeout` in seconds is for every single wait."""
    core = _core(host, credentials, auth_type, level, assoc_group_id)
    try:
        connected = socket.create_connection((host, port), timeout)
    except OSError as error:
        raise RpcConnectionError(f"{host} port {port} cannot be reached: {error}") from error
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    notice_death(connected)
    return BlockingClient(connected, core)


def open_unix(path: Path, *, assoc_group_id: int = 0, timeout: float | None = None) -> BlockingClient:
    core = _core("", None, AuthType.NONE, AuthLevel.NONE, assoc_group_id, _LOCAL_FRAGMENT)
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.settimeout(timeout)
        connected.connect(str(path))
    except OSError as error:
        connected.close()
        raise RpcConnectionError(f"{path} cannot be reached: {error}") from error
    return BlockingClient(connected, core)
