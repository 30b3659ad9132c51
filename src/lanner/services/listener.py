"""The RPC listener of the daemon: every RPC interface of a queue manager.

It listens on the RPC ports and on a Unix socket (DESIGN: ports and identities).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lanner.host.committer import Committer
from lanner.host.history import INTERVAL, History
from lanner.model.errors import LannerError
from lanner.rpc.endpoint_mapper import EPMAPPER_PORT, EndpointMapper
from lanner.rpc.mgmt import MgmtInterface
from lanner.rpc.pdu import AuthLevel, SyntaxId
from lanner.rpc.security import ServerSecurity, TargetNames
from lanner.rpc.server import RpcServer, ServerLimits
from lanner.security.logons import Logons
from lanner.security.tokens import TOKEN_FILE, TokenFile
from lanner.services.account_documents import AccountDocuments
from lanner.services.documents import Document
from lanner.services.interfaces.lanner import LANNER
from lanner.services.lanner_interface import LannerInterface
from lanner.services.log_on import LogOn, Tickets
from lanner.services.management import ManagementService
from lanner.services.mqrr import CLEANUP_MINUTES, RemoteReadService
from lanner.services.ports import HANDSHAKE_PORT, LOCAL_SOCKET, READ_PORT, ServerPorts
from lanner.services.queue_client import QueueClient
from lanner.services.remote_queues import RemoteQueues
from lanner.services.remote_read import RemoteRead
from lanner.services.user_documents import UserDocuments

if TYPE_CHECKING:
    from uuid import UUID

    from lanner.engine import Engine
    from lanner.host.budget import Budget
    from lanner.rpc.pac import LogonInformation
    from lanner.rpc.server_socket import ServerSocket
    from lanner.security.identity import Identity
    from lanner.security.users import UserFile
    from lanner.transfer.transfer import Transfer

_LOG = logging.getLogger(__name__)

# Other users of this machine connect by TCP and authenticate.
_SOCKET_MODE: Final = 0o600
# Not in the specification: seconds between two looks at the file of accounts.
_LOOK: Final = 1.0


_LIMITS: Final = ServerLimits()


@dataclass(frozen=True, slots=True)
class RpcSettings:
    """RPC settings that an operator may change."""

    # If false, only the Unix socket is served.
    enabled: bool = True
    port: int = HANDSHAKE_PORT
    read_port: int = READ_PORT
    # 0 disables the endpoint mapper.
    endpoint_mapper_port: int = EPMAPPER_PORT
    # MS-MQQP 5: callers below this level are refused, whatever rights a queue grants to everyone.
    # Unless this is NONE, an interface may require a higher level.
    authentication_level: AuthLevel = AuthLevel.PKT_INTEGRITY
    # MS-NLMP 3.2.5.1.2: refuse NTLM clients whose messages carry no integrity code.
    require_mic: bool = False
    # Serve RemoteRead (MS-MQRR). Without it, other computers read by MS-MQQP.
    mqrr: bool = True
    # The minutes after which a message that was delivered through RemoteRead, and whose receive was
    # not ended, returns to its queue (RpcCancelTimeout).
    cancel_timeout: int = CLEANUP_MINUTES
    # The keytab of the service principal, for Kerberos.
    keytab: Path | None = None
    # The limits for each port, in total and per peer address. They also apply to the ports of COM
    # and to the Unix socket.
    max_connections: int = _LIMITS.max_connections
    max_connections_per_peer: int = _LIMITS.max_connections_per_peer


class RpcListener:
    """The RPC server of one queue manager.

    It serves MS-MQMR, MS-MQQP, MS-MQRR, MS-MQMP, Lanner's own interface, the endpoint mapper, and
    the management interface of RPC.
    """

    name = "rpc"

    def __init__(
        self,
        engine: Engine,
        users: UserFile,
        *,
        directory: Path,
        bind: str,
        settings: RpcSettings | None = None,
        transfer: Transfer | None = None,
        about: Callable[[], Document] = dict,
        logons: Logons | None = None,
        budget: Budget | None = None,
        questions: Mapping[str, Callable[[Identity, Mapping[str, Any]], object]] | None = None,
    ) -> None:
        """Create the listener; `questions` are administration requests that the daemon answers."""
        self._budget = budget
        self._questions = dict(questions or {})
        self._engine = engine
        self._users = users
        self._bind = bind
        self._settings = RpcSettings() if settings is None else settings
        self._transfer = transfer
        self._about = about
        self._logons = Logons() if logons is None else logons
        self._tokens = TokenFile(directory / TOKEN_FILE)
        self.socket = directory / LOCAL_SOCKET
        self._server: RpcServer | None = None
        self._committer: Committer | None = None
        self._sampling: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def server(self) -> RpcServer:
        """The RPC server, so that other components can register interfaces."""
        if self._server is None:
            raise RuntimeError("RPC has not started")
        return self._server

    @property
    def committer(self) -> Committer:
        """The committer, for other components that serve RPC."""
        if self._committer is None:
            raise RuntimeError("RPC has not started")
        return self._committer

    @property
    def ports(self) -> list[int]:
        """The TCP ports, in the order in which they were opened."""
        return [] if self._server is None else [endpoint.port for endpoint in self._server.endpoints]

    @property
    def address(self) -> str:
        return ", ".join(self.addresses.values())

    @property
    def addresses(self) -> dict[str, str]:
        """Return the listening addresses by service name, in their usual notation."""
        settings = self._settings
        ports = self.ports or ([settings.port, settings.read_port] if settings.enabled else [])
        host = f"[{self._bind}]" if ":" in self._bind else self._bind
        names = ("rpc", "remote read", "endpoint mapper")
        return {**{name: f"{host}:{port}" for name, port in zip(names, ports, strict=False)}, "local": str(self.socket)}

    async def start(self) -> None:
        engine, settings = self._engine, self._settings
        loop = asyncio.get_running_loop()
        committer = self._committer = Committer(engine.store, loop)
        queues, ports = RemoteQueues(engine, committer), ServerPorts()
        qm = engine.queue_manager
        names = TargetNames(
            computer=qm.computer_name,
            domain=qm.computer_name,
            dns_computer=qm.qualified_computer_name,
            dns_domain=qm.qualified_computer_name.partition(".")[2],
        )
        log_on = LogOn(self._users, self._tokens, tickets := Tickets(), self._logons, engine.audit)
        others = {**AccountDocuments(self._users).handlers, **self._questions}

        def revoked(token: str) -> None:
            loop.call_soon_threadsafe(log_on.revoked, token)

        history = History()
        self._sampling = asyncio.create_task(self._take_samples(history))
        self._watching = asyncio.create_task(self._watch_users())
        of_users = UserDocuments(engine, self._tokens, tickets, revoked, history)
        reading = RemoteReadService(engine, committer, ports, 60 * settings.cancel_timeout, self._address_of)
        server = self._server = RpcServer(
            [
                *QueueClient(queues, ports).interfaces,
                RemoteRead(queues, ports).interface,
                *([reading.interface] if settings.mqrr else []),
                ManagementService(engine, committer, self._transfer),
                LannerInterface(
                    engine, committer, self._transfer, self._about, log_on, of_users, others, self._clients
                ),
            ],
            users=self._users,
            providers=ServerSecurity(
                self._users,
                names,
                settings.keytab,
                self.identity_of,
                engine.audit,
                logons=self._logons,
                requires_mic=settings.require_mic,
            ),
            authentication_level=settings.authentication_level,
            limits=ServerLimits(settings.max_connections, settings.max_connections_per_peer),
            budget=self._budget,
        )
        server.register(EndpointMapper(server))
        server.register(MgmtInterface(server))
        try:
            await server.listen_unix(self.socket, mode=_SOCKET_MODE)
            if settings.enabled:
                ports.ip_handshake = await server.listen_tcp(self._bind, settings.port)
                ports.ip_read = await server.listen_tcp(self._bind, settings.read_port, name="remote read")
                await self._listen_for_questions(server)
        except BaseException:
            await self.stop()
            raise

    def door_for_log_ons(self, name: str) -> Callable[[socket.socket], None]:
        """Return a function that accepts sockets of a Lanner program through which users log on.

        Users log on there to Lanner's own interface.
        """
        return self.server.door_for_log_ons(name, SyntaxId(LANNER.uuid, *LANNER.version))

    def _clients(self) -> list[ServerSocket]:
        return self.server.clients()

    def _address_of(self, queue_manager: UUID) -> str | None:
        """Return the address that a queue manager's messages come from; the oldest of several."""
        if queue_manager == self._engine.queue_manager.identifier:
            is_open = ipaddress.ip_address(self._bind).is_unspecified
            return None if is_open else self._bind
        pin = None if self._transfer is None else self._transfer.identities.pins.get(queue_manager)
        return next(iter(pin.addresses), None) if pin is not None else None

    def identity_of(self, principal: str, logon: LogonInformation | None) -> Identity | None:
        """Return the identity of a Kerberos principal.

        A domain states the account in its tickets. A realm that does not may name an account of
        this computer if it is the realm of the computer's own domain.
        """
        if logon is not None:
            found = self._users.domain_identity(logon.account, logon.sid, logon.groups)
            if found is not None:
                self._engine.settings.accounts.domain.learn(logon.sid, logon.account)
            return found
        name, _, realm = principal.rpartition("@")
        domain = self._engine.queue_manager.qualified_computer_name.partition(".")[2]
        return self._users.identity(name) if domain and realm.lower() == domain.lower() else None

    async def _listen_for_questions(self, server: RpcServer) -> None:
        """Start the endpoint mapper.

        Failure is not fatal: it affects only clients that do not know the fixed ports.
        """
        port = self._settings.endpoint_mapper_port
        if not port:
            return
        try:
            await server.listen_tcp(self._bind, port, step=0, name="endpoint mapper")
        except OSError as error:
            _LOG.warning(
                "the endpoint mapper cannot listen on %s port %d: %s; clients must know port %d",
                self._bind,
                port,
                error.strerror or error,
                self.ports[0],
            )

    async def _take_samples(self, history: History) -> None:
        while True:
            with self._engine.store.lock:
                history.sample(time.time(), self._engine.local_queues())
            await asyncio.sleep(INTERVAL)

    async def _watch_users(self) -> None:
        """End the connections of users who have changed.

        They were removed, have a new password, or have lost a group or a role. A command may have
        changed the file, so it is looked at.
        """
        known = self._password_hashes()
        stamp = self._users.stamp
        while True:
            await asyncio.sleep(_LOOK)
            if self._users.stamp == stamp:
                continue
            stamp, current = self._users.stamp, self._password_hashes()
            if current is None or self._server is None:
                continue
            changed = {name for name, secret in (known or {}).items() if name not in current or current[name] != secret}
            for server in (self._server, *self._server.companions):
                for connection in server.clients():
                    self._end_if_changed(connection, changed)
            known = current

    def _end_if_changed(self, connection: ServerSocket, changed: set[str]) -> None:
        if connection.user in changed and not connection.is_local:
            what = "old password"
        elif any(map(self._users.has_lost_groups, connection.identities)):
            what = "old groups"
        else:
            return
        _LOG.info("%s: the connection of %s ends with its %s", connection.peer, connection.user, what)
        connection.abort()

    def _password_hashes(self) -> dict[str, str | None] | None:
        try:
            return self._users.password_hashes()
        except LannerError:
            # The next logon fails with this error.
            return None

    async def stop(self) -> None:
        """Close all connections, which returns the messages that clients hold."""
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        if self._sampling is not None:
            self._sampling.cancel()
            self._sampling = None
        if self._server is not None:
            await self._server.stop()
            self._server = None
            self.socket.unlink(missing_ok=True)
        if self._committer is not None:
            await asyncio.to_thread(self._committer.close)
            self._committer = None
