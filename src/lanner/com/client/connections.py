"""RPC connections of a COM client: one for each address and authentication level.

All calls of the client share them. Connecting, authenticating and binding are limited in time and
number, because the address may come from a hostile peer.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from lanner.com.constants import (
    E_NOINTERFACE,
    ERROR_ACCESS_DENIED,
    RPC_E_TIMEOUT,
    RPC_S_PROCNUM_OUT_OF_RANGE,
    RPC_S_SERVER_TOO_BUSY,
    RPC_S_SERVER_UNAVAILABLE,
    RPC_S_UNKNOWN_IF,
    win32,
)
from lanner.com.objects import ComError
from lanner.model.errors import RemoteProtocolError
from lanner.rpc.async_client import BoundInterface, RpcClient, connect_tcp
from lanner.rpc.faults import FaultStatus, InterfaceRefused, RpcConnectionError, RpcFault
from lanner.rpc.pdu import AuthLevel, AuthType, SyntaxId
from lanner.rpc.security import Credentials, SecurityError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any
    from uuid import UUID

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


# C706 codes that COM maps to a different code.
_BY_FAULT: Final[dict[int, int]] = {
    FaultStatus.NCA_OP_RNG_ERROR: RPC_S_PROCNUM_OUT_OF_RANGE,
    FaultStatus.NCA_UNK_IF: RPC_S_UNKNOWN_IF,
    FaultStatus.NCA_SERVER_TOO_BUSY: RPC_S_SERVER_TOO_BUSY,
    FaultStatus.NCA_FAULT_CANCEL: win32(FaultStatus.CALL_CANCELLED),
}


class Address(NamedTuple):
    """A call target.

    `is_anonymous` selects NTLM's anonymous user, for a server without accounts.
    """

    host: str
    port: int
    is_anonymous: bool = False

    def __str__(self) -> str:
        return f"{self.host}[{self.port}]"


def fault_error(fault: RpcFault) -> ComError:
    """Return the ComError of a fault: Win32 codes become HRESULTs, HRESULTs stay as they are."""
    status = fault.status
    if status >= 0x8000_0000:
        hresult = status
    elif status <= 0xFFFF:
        hresult = win32(status)
    else:
        hresult = _BY_FAULT.get(status, win32(FaultStatus.CALL_FAILED))
    return ComError(hresult, str(fault))


class _Connection:
    """A connection and the interfaces bound on it."""

    def __init__(self, client: RpcClient) -> None:
        self.client = client
        self.bound: dict[UUID, asyncio.Task[BoundInterface]] = {}


class Connections:
    """The connections of a client."""

    def __init__(
        self,
        credentials: Credentials | None,
        auth_type: AuthType,
        *,
        connect_timeout: float,
        max_connections: int | None = None,
        max_connections_per_host: int | None = None,
        local_address: str | None = None,
    ) -> None:
        """Call with these credentials, from one address of this computer or from any."""
        self._credentials = credentials
        self._local_address = None if local_address is None else (local_address, 0)
        self._auth_type = auth_type
        self._timeout = connect_timeout
        self._max_connections = max_connections
        self._max_connections_per_host = max_connections_per_host
        self._dials: dict[tuple[Address, AuthLevel], asyncio.Task[_Connection]] = {}

    def __len__(self) -> int:
        return len(self._dials)

    async def bind(self, address: Address, level: AuthLevel, syntax: SyntaxId) -> BoundInterface:
        """Return an interface at an address, bound.

        Raise ComError if the address cannot be reached or does not offer the interface.
        """
        connection = await self._connection(address, level)
        task = connection.bound.get(syntax.uuid)
        if task is None:
            task = connection.bound[syntax.uuid] = _started(self._bind(connection, address, syntax))
        return await _shared(task, address)

    async def local_address(self, address: Address, level: AuthLevel) -> str:
        """Return our own address on the connection to a server."""
        return (await self._connection(address, level)).client.local_address

    async def _connection(self, address: Address, level: AuthLevel) -> _Connection:
        if self._credentials is None:
            level = AuthLevel.NONE
        key = (address, level)
        task = self._dials.get(key)
        if task is not None and task.done() and not (_has_result(task) and task.result().client.is_open):
            del self._dials[key]
            task = None
        if task is None:
            self._make_room(address)
            task = self._dials[key] = _started(self._dial(address, level))
        return await _shared(task, address)

    def _make_room(self, address: Address) -> None:
        """Make sure that one more connection is allowed. Broken connections do not count."""
        if self._max_connections is None and self._max_connections_per_host is None:
            return
        for key, task in list(self._dials.items()):
            if task.done() and not (_has_result(task) and task.result().client.is_open):
                del self._dials[key]
        of_host = sum(key[0].host == address.host for key in self._dials)
        for count, limit in ((len(self._dials), self._max_connections), (of_host, self._max_connections_per_host)):
            if limit is not None and count >= limit:
                raise ComError(RPC_S_SERVER_TOO_BUSY, f"{address}: {count} connections are open")

    async def _dial(self, address: Address, level: AuthLevel) -> _Connection:
        credentials, auth_type = self._credentials, self._auth_type
        if address.is_anonymous and credentials is not None:
            credentials, auth_type = Credentials(), AuthType.WINNT
        try:
            async with asyncio.timeout(self._timeout):
                client = await connect_tcp(
                    address.host,
                    address.port,
                    credentials=credentials,
                    auth_type=auth_type,
                    level=level,
                    local_address=self._local_address,
                )
        except (OSError, TimeoutError, UnicodeError) as error:
            raise ComError(
                RPC_S_SERVER_UNAVAILABLE, f"{address} cannot be reached: {str(error) or 'no answer'}"
            ) from error
        _LOG.debug("connected to %s at level %s", address, level.name)
        return _Connection(client)

    async def _bind(self, connection: _Connection, address: Address, syntax: SyntaxId) -> BoundInterface:
        try:
            async with asyncio.timeout(self._timeout):
                return await connection.client.bind_raw(syntax)
        except RpcFault as fault:
            raise fault_error(fault) from fault
        except SecurityError as error:
            raise ComError(win32(ERROR_ACCESS_DENIED), f"{address}: {error}") from error
        except TimeoutError as error:
            # An abandoned bind leaves the connection in the middle of an exchange.
            await connection.client.close()
            raise ComError(RPC_E_TIMEOUT, f"{address}: no answer to the bind within {self._timeout:g} s") from error
        except InterfaceRefused as error:
            # The interface may be available later, because exporters register interfaces as they
            # export them.
            connection.bound.pop(syntax.uuid, None)
            raise ComError(E_NOINTERFACE, f"{address}: {error}") from error
        except (RpcConnectionError, RemoteProtocolError) as error:
            raise ComError(RPC_S_SERVER_UNAVAILABLE, f"{address}: {error}") from error

    async def close_to(self, address: Address) -> None:
        """Disconnect from an address that is no longer needed."""
        for key in [key for key in self._dials if key[0] == address]:
            await _close(self._dials.pop(key))

    async def close(self) -> None:
        for key in list(self._dials):
            await _close(self._dials.pop(key))


def _started(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    task = asyncio.ensure_future(coroutine)
    # The waiting caller may have given up. Without this, asyncio reports the exception as never
    # retrieved.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


async def _shared(task: asyncio.Task[T], address: Address) -> T:
    """Wait for a task that others may also await. A caller's time-out does not cancel it."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled():
            raise ComError(RPC_S_SERVER_UNAVAILABLE, f"{address}: hung up") from None
        raise


def _has_result(task: asyncio.Task[_Connection]) -> bool:
    return not task.cancelled() and task.exception() is None


async def _close(task: asyncio.Task[_Connection]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
    if _has_result(task):
        # Callers that wait for a bind get the error of the connection.
        await task.result().client.close()
