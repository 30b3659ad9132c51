"""Objects that a client exports, such as event sinks; with a port of its own.

Identifiers of objects are random, so that only a holder of a reference can call them. If the
well-known port is not available, references name the port, which MS-DCOM 2.2.19.3 allows. Lanner
uses it; Windows calls port 135.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from lanner.com.constants import PING_PERIOD
from lanner.com.objref import DualStringArray, StringBinding
from lanner.com.server.exporter import Addresses, ForeignResolver, ObjectExporter
from lanner.com.server.ping_sets import PingSets
from lanner.com.server.rem_unknown import rem_unknowns
from lanner.com.server.resolver import ObjectResolver
from lanner.rpc.endpoint_mapper import EPMAPPER_PORT
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.security import ServerSecurity, TargetNames
from lanner.rpc.server import RpcServer

if TYPE_CHECKING:
    from lanner.security.identity import Identity

_LOG = logging.getLogger(__name__)


class _NoAccounts:
    """A client has no accounts: callers of its objects are NTLM's anonymous user."""

    def nt_hash(self, name: str) -> bytes | None:
        del name
        return None

    def identity(self, name: str) -> Identity | None:
        del name
        return None


@dataclass(frozen=True, slots=True)
class _ClientAddresses(Addresses):
    """Resolver and exporter share a port.

    The resolver names no security: no account of a caller is known here.
    """

    def resolver(self, reached: str) -> DualStringArray:
        port = None if self.port == EPMAPPER_PORT else self.port
        return DualStringArray((StringBinding.tcp(reached or self.address, port),))


class OwnObjects:
    """The objects that a client hands out."""

    def __init__(self, server: RpcServer, exporter: ObjectExporter, pings: PingSets) -> None:
        self._server = server
        self.exporter = exporter
        self._pings = pings
        self._timer: asyncio.TimerHandle | None = None
        self._tick()

    @classmethod
    async def start(cls, address: str, resolve_foreign: ForeignResolver, *, port: int = 0) -> Self:
        """Listen at an address of this computer that the others can reach; port 0 is any that is free."""
        name = socket.gethostname().partition(".")[0].upper()
        server = RpcServer(providers=ServerSecurity(_NoAccounts(), TargetNames(name, name)))
        found = await server.listen_tcp(address, port, step=0)
        clock = asyncio.get_running_loop().time
        pings = PingSets()
        exporter = ObjectExporter(
            server,
            pings,
            _ClientAddresses(address, found),
            clock,
            minimum_level=AuthLevel.NONE,
            resolve_foreign=resolve_foreign,
        )
        for rem_unknown in rem_unknowns(exporter):
            server.register(rem_unknown)
        server.register(ObjectResolver(exporter, pings, clock))
        _LOG.debug("objects of ours can be called at %s port %d", address, found)
        return cls(server, exporter, pings)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self.exporter.reclaim(self._pings.expire(now), now)
        self._timer = loop.call_later(PING_PERIOD, self._tick)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._server.stop()
        self.exporter.release_all()


async def local_address(host: str) -> str:
    """The address of this computer that another one sees us under."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, EPMAPPER_PORT, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, target = found[0]
    with socket.socket(family, kind, protocol) as probe:
        # Nothing is sent: it only asks the routing table.
        probe.connect(target)
        address: str = probe.getsockname()[0]
        return address
