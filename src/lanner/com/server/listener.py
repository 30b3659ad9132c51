"""DCOM on its ports, as a `Listener` of the daemon.

The resolver and the activator are interfaces of the server on the well-known port (MS-DCOM 1.9).
The objects have a server and a port of their own.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lanner.com.client.client import SERVER_SETTINGS, ComClient
from lanner.com.constants import PING_PERIOD, RPC_E_DISCONNECTED
from lanner.com.objects import ComError
from lanner.com.server.activator import Activator, ClassTable
from lanner.com.server.exporter import Addresses, ObjectExporter
from lanner.com.server.ping_sets import PingSets
from lanner.com.server.rem_unknown import rem_unknowns
from lanner.com.server.resolver import ObjectResolver
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.security import Credentials
from lanner.rpc.server import RpcServer

if TYPE_CHECKING:
    from lanner.com.objects import Remote
    from lanner.com.objref import ObjRef


@dataclass(frozen=True, slots=True)
class ComSettings:
    """Settings that an operator may change."""

    # The exporter's port. 0 means any free port, because references contain it.
    port: int = 0
    # Below this level, activations and calls to objects are rejected (MS-DCOM 3.1.1.5.4).
    minimum_level: AuthLevel = AuthLevel.PKT_INTEGRITY
    # The ping period in seconds. Clients use the period of the specification; other values are for
    # tests.
    ping_period: float = PING_PERIOD


class ComListener:
    """DCOM for the classes of this process."""

    name = "com"

    def __init__(
        self,
        classes: Callable[[], ClassTable],
        resolver_server: Callable[[], RpcServer],
        *,
        bind: str,
        names: tuple[str, ...] = (),
        settings: ComSettings | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """Serve classes.

        `classes` and `resolver_server` are called when this listener starts. The server on the
        well-known port must have started before. `names` are those of this computer. `credentials`
        are used for calls to the event sinks of clients.
        """
        self._classes = classes
        self._resolver_server = resolver_server
        self._bind = bind
        self._names = names
        self._settings = ComSettings() if settings is None else settings
        self._credentials = credentials
        self._port = 0
        self._server: RpcServer | None = None
        # The servers whose users are those of this one, while it runs.
        self._companions: list[RpcServer] = []
        self._client: ComClient | None = None
        self._exporter: ObjectExporter | None = None
        self.pings = PingSets(period=self._settings.ping_period)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        host = f"[{self._bind}]" if ":" in self._bind else self._bind
        return f"{host}:{self._port or self._settings.port}"

    @property
    def exporter(self) -> ObjectExporter:
        if self._exporter is None:
            raise RuntimeError("DCOM has not started")
        return self._exporter

    @property
    def client(self) -> ComClient:
        """The client that calls the objects of clients."""
        if self._client is None:
            raise ComError(RPC_E_DISCONNECTED, "DCOM has ended")
        return self._client

    async def start(self) -> None:
        resolver_server = self._resolver_server()
        server = self._server = RpcServer(
            users=resolver_server.users,
            providers=resolver_server.providers,
            limits=resolver_server.limits,
            budget=resolver_server.budget,
            name="com",
        )
        self._companions = resolver_server.companions
        self._companions.append(server)
        try:
            self._port = await server.listen_tcp(self._bind, self._settings.port, step=0)
        except BaseException:
            await self.stop()
            raise
        clock = asyncio.get_running_loop().time
        exporter = self._exporter = ObjectExporter(
            server,
            self.pings,
            Addresses(self._default_address(), self._port, self._names),
            clock,
            minimum_level=self._settings.minimum_level,
            resolve_foreign=self._resolve_foreign,
        )
        # Without an account, use NTLM's anonymous user: calls to resolvers need integrity (MS-DCOM
        # 3.2.4.1.2.2, 3.2.6.1).
        credentials = Credentials() if self._credentials is None else self._credentials
        # References to our objects name the address from which a sink is called, so it must be
        # ours.
        source = None if ipaddress.ip_address(self._bind).is_unspecified else self._bind
        self._client = ComClient(SERVER_SETTINGS, credentials=credentials, exporter=exporter, local_address=source)
        for rem_unknown in rem_unknowns(exporter):
            server.register(rem_unknown)
        for interface in Activator(exporter, self._classes()).interfaces:
            resolver_server.register(interface)
        resolver_server.register(ObjectResolver(exporter, self.pings, clock))
        self.tick(clock())

    async def _resolve_foreign(self, objref: ObjRef, peer: str | None) -> Remote:
        return await self.client.unmarshal(objref, peer=peer)

    def _default_address(self) -> str:
        """Return our address for a client that has not connected yet."""
        is_everywhere = ipaddress.ip_address(self._bind).is_unspecified
        return self._names[-1] if is_everywhere and self._names else self._bind

    def tick(self, now: float) -> None:
        """Reclaim objects that are no longer pinged.

        Deadlines are three periods ahead, so checking once per period misses none.
        """
        loop = asyncio.get_running_loop()
        self.exporter.reclaim(self.pings.expire(now), now)
        deadline = self.pings.next_deadline()
        latest = now + self._settings.ping_period
        then = latest if deadline is None else min(deadline, latest)
        self._timer = loop.call_at(then, lambda: self.tick(loop.time()))

    async def stop(self) -> None:
        """Close all connections and release the clients' objects."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._server is not None:
            self._companions.remove(self._server)
            await self._server.stop()
            self._server = None
        if self._exporter is not None:
            self._exporter.release_all()
        # Last, because our objects have released their references to clients' objects by now.
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()
