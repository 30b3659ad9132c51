"""Calls of resolvers, activators and objects (MS-DCOM 3.2.4.2). Every failure raises ComError."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from lanner.com.client.connections import Address, Connections, fault_error
from lanner.com.constants import (
    IID_IREMUNKNOWN,
    PING_PERIOD,
    RPC_E_CALL_REJECTED,
    RPC_E_TIMEOUT,
    RPC_S_SERVER_UNAVAILABLE,
    succeeded,
    win32,
)
from lanner.com.objects import ComError
from lanner.com.orpc import OrpcThis
from lanner.model.errors import RemoteProtocolError
from lanner.rpc.endpoint_mapper import EPMAPPER_PORT
from lanner.rpc.faults import FaultStatus, RpcConnectionError, RpcFault
from lanner.rpc.interface import RETURNS, Interface, Method
from lanner.rpc.ndr import ByteOrder, Syntax, Value
from lanner.rpc.pdu import AuthLevel, SyntaxId
from lanner.rpc.security import SecurityError

if TYPE_CHECKING:
    from lanner.com.client.tables import RemoteExporter
    from lanner.rpc.async_client import BoundInterface
    from lanner.rpc.client_connection import Answered


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of a client's calls. Times are in seconds; None means no limit."""

    # The minimum level. An exporter may require a higher one. Activation, resolution and pings
    # always have at least integrity (MS-DCOM 3.2).
    level: AuthLevel = AuthLevel.PKT_INTEGRITY
    # Applies separately to connecting, to binding, and to each call to a resolver.
    connect_timeout: float = 10.0
    # Applies to each call to an object.
    call_timeout: float | None = None
    # MS-DCOM 3.2.2: at most 2 minutes.
    ping_period: float = PING_PERIOD
    resolver_port: int = EPMAPPER_PORT
    # How long an exporter is remembered after the last interface on it was released.
    idle_timeout: float = 30.0
    # The maximum number of connections in total, and to one host.
    max_connections: int | None = None
    max_connections_per_host: int | None = None
    # The maximum number of interfaces that are held at the same time.
    max_interfaces: int | None = None
    max_interfaces_per_host: int | None = None
    # The maximum number of exporters that are resolved at the same time.
    max_resolving: int | None = None
    max_resolving_per_host: int | None = None
    # The maximum number of concurrent calls to one exporter.
    max_calls_per_exporter: int | None = None

    @property
    def resolver_level(self) -> AuthLevel:
        """The level of calls to resolvers, at least integrity (MS-DCOM 3.2.4.1.2.2, 3.2.6.1)."""
        return max(self.level, AuthLevel.PKT_INTEGRITY)


def check_hresult(hresult: int, what: str) -> None:
    if not succeeded(hresult):
        raise ComError(hresult, what)


class Calls:
    """The calls of one client and the connections that carry them."""

    def __init__(self, settings: ClientSettings, connections: Connections) -> None:
        self.settings = settings
        self.connections = connections

    async def ask(
        self,
        address: Address,
        level: AuthLevel,
        interface: Interface,
        method: Method,
        arguments: Mapping[str, Value] | None = None,
    ) -> dict[str, Value]:
        """Call a resolver or an activator, which are not objects. Return the results unchanged."""
        async with _failures(str(address), self.settings.connect_timeout):
            bound = await self.connections.bind(address, level, SyntaxId(interface.uuid, *interface.version))
            return await bound.call(method, **(arguments or {}))

    async def call_method(
        self, exporter: RemoteExporter, iid: UUID, ipid: UUID, method: Method, arguments: Mapping[str, Value]
    ) -> dict[str, Value]:
        """Call an object's method. Return its out parameters.

        "returns" has the HRESULT, which is a success code.
        """
        arguments = {"orpc_this": OrpcThis.of(uuid4(), exporter.version), **arguments}
        answer = await self.request(exporter, iid, ipid, method.opnum, method.encode_request(arguments))
        order: ByteOrder = "little" if answer.is_little else "big"
        try:
            results = method.decode_response(answer.stub, arguments, Syntax.NDR20, order)
        except RemoteProtocolError as error:
            raise ComError(win32(FaultStatus.BAD_STUB_DATA), f"{exporter}: {error}") from error
        check_hresult(results[RETURNS], f"{exporter}: {method.name}")
        return results

    async def call_rem_unknown(
        self, exporter: RemoteExporter, method: Method, arguments: Mapping[str, Value]
    ) -> dict[str, Value]:
        return await self.call_method(exporter, IID_IREMUNKNOWN, exporter.ipid_rem_unknown, method, arguments)

    async def request(
        self,
        exporter: RemoteExporter,
        iid: UUID,
        ipid: UUID,
        opnum: int,
        stub: bytes,
        timeout: float | None = None,  # noqa: ASYNC109 (as for every call here)
    ) -> Answered:
        """Send a request stub, which starts with ORPCTHIS, to an object's interface.

        The time-out defaults to that of the settings.
        """
        limit = self.settings.max_calls_per_exporter
        if limit is not None and exporter.calls >= limit:
            raise ComError(RPC_E_CALL_REJECTED, f"{exporter}: {exporter.calls} calls are under way")
        exporter.calls += 1
        try:
            async with _failures(str(exporter), self.settings.call_timeout if timeout is None else timeout):
                bound = await self._bound(exporter, SyntaxId(iid, 0, 0))
                return await bound.request(opnum, stub, ipid)
        finally:
            exporter.calls -= 1

    async def local_address(self, exporter: RemoteExporter) -> str:
        """Return our address as an exporter sees it."""
        async with _failures(str(exporter), self.settings.call_timeout):
            if exporter.address is None:
                await self._bound(exporter, SyntaxId(IID_IREMUNKNOWN, 0, 0))
            address = exporter.address or exporter.addresses[0]
            return await self.connections.local_address(address, exporter.level)

    async def _bound(self, exporter: RemoteExporter, syntax: SyntaxId) -> BoundInterface:
        """Return the interface, bound at the address where the exporter answered before.

        If none answered yet, the first address that works is used.
        """
        if exporter.address is not None:
            return await self.connections.bind(exporter.address, exporter.level, syntax)
        *others, last = exporter.addresses
        for address in others:
            try:
                bound = await self.connections.bind(address, exporter.level, syntax)
            except ComError as error:
                if error.hresult != RPC_S_SERVER_UNAVAILABLE:
                    raise
                continue
            exporter.address = address
            return bound
        bound = await self.connections.bind(last, exporter.level, syntax)
        exporter.address = last
        return bound


@asynccontextmanager
async def _failures(who: str, timeout: float | None) -> AsyncIterator[None]:  # noqa: ASYNC109 (one place for every failure)
    """Raise every failure of a call as ComError."""
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError as error:
        raise ComError(RPC_E_TIMEOUT, f"{who}: no answer within {timeout} s") from error
    except RpcFault as fault:
        raise fault_error(fault) from fault
    except (RpcConnectionError, SecurityError) as error:
        raise ComError(RPC_S_SERVER_UNAVAILABLE, f"{who}: {error}") from error
    except RemoteProtocolError as error:
        raise ComError(win32(FaultStatus.BAD_STUB_DATA), f"{who}: {error}") from error
