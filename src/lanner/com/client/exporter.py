"""Objects that a client exports, such as event sinks, on a port of its own.

Object identifiers are random, so that only a holder of a reference can call an object. If the
well-known port is not available, references contain the port, as MS-DCOM 2.2.19.3 allows. Lanner
uses that port; Windows calls port 135.
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
    """An authentication backend without accounts: all callers are NTLM's anonymous user."""

    def nt_hash(self, name: str) -> bytes | None:
        del name
        return None

    def identity(self, name: str) -> Identity | None:
        del name
        return None


@dataclass(frozen=True, slots=True)
class _ClientAddresses(Addresses):
    """Addresses of a resolver and an exporter that share one port.

    The resolver lists no security bindings, because no account of a caller is known here.
    """

    def resolver(self, reached: str) -> DualStringArray:
        port = None if self.port == EPMAPPER_PORT else self.port
        return DualStringArray((StringBinding.tcp(reached or self.address, port),))


class OwnObjects:
    """The objects that a client exports."""

    def __init__(self, server: RpcServer, exporter: ObjectExporter, pings: PingSets) -> None:
        self._server = server
        self.exporter = exporter
        self._pings = pings
        self._timer: asyncio.TimerHandle | None = None
        self._tick()

    @classmethod
    async def start(cls, address: str, resolve_foreign: ForeignResolver, *, port: int = 0) -> Self:
        """Listen on a local address that other computers can reach. Port 0 means any free port."""
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
    """Return the address of this computer as another one sees it."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, EPMAPPER_PORT, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, target = found[0]
    with socket.socket(family, kind, protocol) as probe:
        # This sends nothing: it only consults the routing table.
        probe.connect(target)
        address: str = probe.getsockname()[0]
        return address
