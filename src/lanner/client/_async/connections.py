"""Connections to a queue manager elsewhere, or behind the Unix socket of its data directory."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from lanner.client._async.io import Lock, limited, time_limit
from lanner.client.target import Target, local_failure, translated
from lanner.model.directory_objects import GUID_NULL
from lanner.model.errors import InvalidHandle, RemoteMachineNotAvailable, RemoteProtocolError, UnsupportedOperation
from lanner.rpc.async_client import RpcClient, connect_socket, connect_tcp, connect_unix
from lanner.rpc.faults import InterfaceRefused, RpcConnectionError, RpcFault
from lanner.rpc.ndr import NULL_HANDLE
from lanner.rpc.pdu import NDR20, AuthLevel, SyntaxId
from lanner.rpc.security import SecurityError
from lanner.rpc.unix_path import short_path
from lanner.services.interfaces.mqmp import QMCOMM
from lanner.services.ports import HANDSHAKE_PORT, LOCAL_SOCKET

if TYPE_CHECKING:
    from lanner.rpc.interface import Interface

T = TypeVar("T")

# Not in the specification: the seconds to wait for an endpoint mapper. If it does not answer, the
# well-known port is used.
_MAPPER_TIMEOUT: Final = 3.0


async def connect_to(target: Target, interface: Interface = QMCOMM, *, port: int | None = None) -> RpcClient:
    """Connect to an interface of a queue manager; raise StatusError on failure."""
    with translated(target.place):
        if target.connected is not None:
            client = await connect_socket(target.connected(), target.place)
        elif target.host is None:
            client = await _connect_here(Path() if target.data is None else target.data, target.timeout)
        else:
            client = await _connect_there(target, target.host, interface, target.port if port is None else port)
        return limited(client)


async def _connect_here(directory: Path, seconds: float) -> RpcClient:
    try:
        with short_path(directory / LOCAL_SOCKET) as short:
            return await connect_unix(short, timeout=seconds)
    except OSError as error:
        raise local_failure(directory, error) from None


async def _connect_there(target: Target, host: str, interface: Interface, port: int | None) -> RpcClient:
    if port is None:
        port = await mapped_port(host, interface) or HANDSHAKE_PORT
    try:
        return await connect_tcp(
            host,
            port,
            credentials=target.credentials,
            auth_type=target.auth_type,
            level=AuthLevel.PKT_PRIVACY,
            timeout=target.timeout,
        )
    except (OSError, RpcConnectionError) as error:
        # Look up the text by number, because an event loop words every failure differently.
        number = error.errno or 0 if isinstance(error, OSError) else 0
        reason = os.strerror(number) if number > 0 else error
        raise RemoteMachineNotAvailable(
            f"{host} port {port} cannot be reached: {reason}; is a queue manager running there?"
        ) from error


async def mapped_port(host: str, interface: Interface) -> int | None:
    """Return the port that the endpoint mapper names; None if it names none or does not run."""
    # Imported here: a connection to the local socket needs no endpoint mapper.
    from lanner.rpc.endpoint_mapper import EPMAPPER, EPMAPPER_PORT, Tower, Twr

    wanted = Tower(SyntaxId(interface.uuid, *interface.version), NDR20, 0)
    try:
        async with (
            time_limit(_MAPPER_TIMEOUT),
            await connect_tcp(host, EPMAPPER_PORT, timeout=_MAPPER_TIMEOUT) as client,
        ):
            bound = await limited(client).bind(EPMAPPER)
            told = await bound.call(
                EPMAPPER.by_name["ept_map"],
                obj=GUID_NULL,
                map_tower=Twr.of(wanted),
                entry_handle=NULL_HANDLE,
                max_towers=8,
            )
        towers: Any = told["i_towers"]
        for twr in towers:
            return Tower.unpack(twr.tower_octet_string).port
    except (OSError, RpcConnectionError, RpcFault, RemoteProtocolError):
        pass
    return None


class Connection(Protocol):
    """One connection. Everything that is open on it is lost with it."""

    @property
    def is_open(self) -> bool:
        """Whether calls can still be made."""

    async def close(self) -> None: ...


C = TypeVar("C", bound=Connection)


class Connections(Generic[C]):
    """The current connection. After it is lost, the next call makes a new one."""

    def __init__(self, target: Target, make: Callable[[Target], Awaitable[C]], *, has_texts: bool = False) -> None:
        """Prepare connections to a target.

        `has_texts`: the queue manager sends the texts of its errors.
        """
        self.target = target
        self._has_texts = has_texts
        self._make = make
        self._connection: C | None = None
        self._lock = Lock()
        self._is_closed = False
        self._process = os.getpid()

    async def now(self) -> C:
        """Return the current connection; replace one that was lost."""
        if self._process != os.getpid():
            # Open handles belong to the process that connected, and in this one its locks may be
            # held for ever.
            raise InvalidHandle(
                f"the connection to {self.target.place} was made in process {self._process}: "
                f"connect again in this one, {os.getpid()}"
            )
        async with self._lock:
            if self._is_closed:
                raise InvalidHandle(f"the connection to {self.target.place} is closed")
            if self._connection is not None and not self._connection.is_open:
                lost, self._connection = self._connection, None
                await lost.close()
            if self._connection is None:
                try:
                    async with time_limit(self.target.timeout):
                        self._connection = await self._make(self.target)
                except TimeoutError:
                    raise RemoteMachineNotAvailable(
                        f"{self.target.place} did not answer in {self.target.timeout:g} s"
                    ) from None
            return self._connection

    @property
    def is_open(self) -> bool:
        """Whether there is a connection at present."""
        return self._connection is not None and self._connection.is_open

    def is_current(self, connection: C) -> bool:
        """Return whether objects opened on a connection can still be used."""
        return connection is self._connection and connection.is_open

    async def do(self, what: str, work: Callable[[C], Awaitable[T]]) -> T:
        """Run `work` with the connection.

        If the connection is lost, everything that was open on it is lost too, and the next call
        makes a new one.
        """
        return await self.on(await self.now(), what, work)

    async def on(self, connection: C, what: str, work: Callable[[C], Awaitable[T]]) -> T:
        """Run `work` with the connection on which its objects are open."""
        place = f"{self.target.place}: {what}" if what else self.target.place
        with translated(place, has_texts=self._has_texts):
            try:
                return await work(connection)
            except InterfaceRefused as error:
                # The connection itself is still usable.
                raise UnsupportedOperation(f"{self.target.place} does not serve this: {error}") from error
            except (RpcConnectionError, SecurityError, RemoteProtocolError, OSError):
                await self.lost(connection)
                raise

    async def lost(self, connection: C) -> None:
        """Discard a connection that can no longer be used.

        Another thread may have replaced it already.
        """
        async with self._lock:
            if self._connection is connection:
                self._connection = None
        await connection.close()

    async def close(self) -> None:
        """Close the connection; open objects are closed, and transactions are aborted.

        Closing twice is harmless.
        """
        if self._process != os.getpid():
            return
        async with self._lock:
            self._is_closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
