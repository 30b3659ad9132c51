"""The RPC server: interfaces, listeners on TCP and Unix sockets, dispatch of calls (MS-RPCE 3.3.3).

The protocol is implemented in `connection`; `server_socket` connects it to this module. One event
loop runs everything. A handler that waits is a coroutine, and the connection continues meanwhile.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, cast
from uuid import UUID

from lanner.host.accepting import Acceptor, listen_tcp
from lanner.host.budget import Budget, Door, Newcomers, Resource, Unfinished
from lanner.host.change import Change
from lanner.host.strangers import Strangers
from lanner.model.errors import MQ_OK, RemoteProtocolError, StatusError
from lanner.rpc.association import AssociationGroups
from lanner.rpc.calls import MAX_REQUEST_SIZE, ServerCall
from lanner.rpc.connection import ConnectionLimits
from lanner.rpc.faults import FaultStatus, RpcFault
from lanner.rpc.interface import RETURNS, Interface, Method
from lanner.rpc.ndr import Syntax, Value
from lanner.rpc.pdu import NDR20, NDR64, AuthLevel, SyntaxId
from lanner.rpc.security import SecurityProviders
from lanner.rpc.server_socket import ServerSocket, bind_unix, cancel_soon
from lanner.security.log_lines import log_of_peer
from lanner.security.users import UserFile

_LOG = logging.getLogger(__name__)

# MS-MQMP 2.1, MS-MQQP 2.1: if a port is taken, the next one to try is eleven higher.
PORT_STEP: Final = 11
PORT_TRIES: Final = 10
# Fraction of all file descriptors that is reserved for each port, and for the Unix socket.
_SHARE: Final = 0.05
_LOCAL_SHARE: Final = 0.1
_BACKLOG: Final = 1024


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of all peers together. They are not in the specification."""

    # The maximum number of connections of one port.
    max_connections: int = 4096
    max_connections_per_peer: int = 512
    # The maximum number of connections that have not bound, or have not finished the logon that
    # they began. When the limit is reached, the oldest such connection of the peer that has the
    # most is closed.
    max_unbound: int = 256
    # How long a connection may stay in this state.
    bind_timeout: float = 30.0  # seconds
    # How long a connection without a logon and without handles may stay without a call.
    idle_timeout: float = 600.0  # seconds
    # If ConnectionLimits.max_calls calls are already running, how long a new call waits for one of
    # them to finish before it is refused.
    busy_timeout: float = 1.0  # seconds
    # The maximum size of incomplete requests. Beyond the limit, the connection that has been silent
    # longest is closed. Clients that have not logged on have a lower limit in total, and another
    # one per address.
    max_unfinished: int = 0x1000_0000  # bytes
    max_unfinished_of_strangers: int = 0x0400_0000  # bytes
    max_unfinished_per_stranger: int = 0x0100_0000  # bytes
    # The maximum number of logons under way.
    max_logons: int = 1024
    max_logons_per_peer: int = 64
    # The maximum size of answers that clients have not read. Beyond the limit, the connection that
    # has not read for the longest time is closed. Clients that have not logged on have a lower
    # limit in total, and another one per address.
    max_unsent: int = 0x2000_0000  # bytes
    max_unsent_of_strangers: int = 0x0800_0000  # bytes
    max_unsent_per_stranger: int = 0x0200_0000  # bytes
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)


# The results of a method: its out parameters by name, or only its return value.
Results = Mapping[str, Value] | int


@dataclass(frozen=True, slots=True)
class WhenDurable:
    """The results of a method once a change is durable.

    The method returns MQ_OK with its out parameters, or the status of the failure. This costs no
    task. A call that is cancelled meanwhile is still answered, because the change is made.
    """

    change: Change
    results: Mapping[str, Value]
    # Called instead of an answer if the client has abandoned the call, or has disconnected.
    undo: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """The answer to a call, available once the change is durable."""

    pending: WhenDurable
    answer: Callable[[Results], bytes]

    def stub(self, error: BaseException | None) -> bytes:
        if error is not None and not isinstance(error, StatusError):
            raise error
        return self.answer({**self.pending.results, RETURNS: MQ_OK if error is None else error.status})


Handler = Callable[..., Results | WhenDurable | Awaitable[Results]]
# A check that raises RpcFault for callers that may not use an interface.
Authorization = Callable[[ServerCall], object]

_SYNTAXES: Final = {Syntax.NDR20: NDR20, Syntax.NDR64: NDR64}


class ServedInterface(ABC):
    """An interface of a server."""

    def __init__(
        self, name: str, syntax: SyntaxId, transfer_syntaxes: tuple[SyntaxId, ...], max_request_size: int
    ) -> None:
        self.name = name
        self.syntax = syntax
        self.transfer_syntaxes = transfer_syntaxes
        self.max_request_size = max_request_size
        # The level that the interface requires of callers, unless the server admits all callers.
        self.least_level = AuthLevel.NONE
        # The level that server and interface together require. Set by the server on registration.
        self.required_level = AuthLevel.NONE

    @abstractmethod
    def invoke(self, call: ServerCall) -> bytes | PendingAnswer | Awaitable[bytes]:
        """Run a call. RpcFault and RemoteProtocolError end it with a fault."""


class ServerInterface(ServedInterface):
    """A declared interface and its handlers, by the names of its methods.

    A handler is called as `handler(call, **arguments)`, with the call and the in parameters by
    name. It returns the out parameters that it sets, or the return value of the method; or it is a
    coroutine function that does so. A method without a handler is out of range.

    A server with an authentication level refuses callers below it, and anonymous ones.
    On such a server, `least_level` can raise the level for this interface, and `open_to_all` names
    methods that anyone may call. `denied` is the status that a refused method returns, or that of a
    fault if the method returns nothing. Without `denied`, a refusal is a fault with RPC's status
    for access denied.
    """

    def __init__(
        self,
        interface: Interface,
        handlers: Mapping[str, Handler],
        *,
        authorize: Authorization | None = None,
        least_level: AuthLevel = AuthLevel.NONE,
        open_to_all: Collection[str] = (),
        denied: int | None = None,
        max_request_size: int = MAX_REQUEST_SIZE,
    ) -> None:
        super().__init__(
            interface.name,
            SyntaxId(interface.uuid, *interface.version),
            tuple(_SYNTAXES[one] for one in interface.syntaxes),
            max_request_size,
        )
        self.interface = interface
        self.least_level = least_level
        unknown = (handlers.keys() | set(open_to_all)) - interface.by_name.keys()
        if unknown:
            raise TypeError(f"{interface.name} has no method {', '.join(sorted(unknown))}")
        self._methods = [
            None if method is None or method.name not in handlers else (method, handlers[method.name])
            for method in interface.methods
        ]
        self._authorize = authorize
        self._open_to_all = frozenset(open_to_all)
        self._denied = denied

    def invoke(self, call: ServerCall) -> bytes | PendingAnswer | Awaitable[bytes]:
        opnum = call.opnum
        found = self._methods[opnum] if opnum < len(self._methods) else None
        if found is None:
            raise RpcFault(FaultStatus.NCA_OP_RNG_ERROR, f"{self.name} opnum {opnum}", did_not_execute=True)
        if self._authorize is not None:
            self._authorize(call)
        method, handler = found
        syntax = Syntax.NDR64 if call.context.is_ndr64 else Syntax.NDR20
        if self.required_level > AuthLevel.NONE and not self._admits(call, method):
            return self._answer(method, self._refuse(call, method), _arguments(method, call, syntax), syntax)
        arguments = _arguments(method, call, syntax)
        results = handler(call, **arguments)
        if isinstance(results, (dict, int, Mapping)):
            return self._answer(method, results, arguments, syntax)
        if isinstance(results, WhenDurable):
            return PendingAnswer(results, partial(self._answer, method, arguments=arguments, syntax=syntax))
        return self._answer_later(method, results, arguments, syntax)

    def _admits(self, call: ServerCall, method: Method) -> bool:
        """Return whether a caller has the required level.

        The keys of anonymous callers are public, so their signatures prove nothing.
        """
        if call.auth_level >= self.required_level and not call.identity.is_anonymous:
            return True
        return method.name in self._open_to_all

    def _refuse(self, call: ServerCall, method: Method) -> int:
        """Return the status of a refusal, or raise the fault."""
        log_of_peer(
            _LOG,
            logging.INFO,
            f"refused call of {self.name}",
            call.peer,
            "%s: %s of %s is refused to %s at level %s: an account and level %s are needed",
            call.peer,
            method.name,
            self.name,
            call.identity.name,
            call.auth_level.name,
            self.required_level.name,
        )
        if self._denied is not None and method.returns is not None:
            return self._denied
        status = FaultStatus.ACCESS_DENIED if self._denied is None else self._denied
        raise RpcFault(status, f"{method.name} is not for {call!r}", did_not_execute=True)

    @staticmethod
    def _answer(method: Method, results: Results, arguments: Mapping[str, Value], syntax: Syntax) -> bytes:
        if isinstance(results, int):
            results = {RETURNS: results}
        return method.encode_response(results, arguments, syntax)

    async def _answer_later(
        self, method: Method, results: Awaitable[Results], arguments: Mapping[str, Value], syntax: Syntax
    ) -> bytes:
        return self._answer(method, await results, arguments, syntax)


def _arguments(method: Method, call: ServerCall, syntax: Syntax) -> dict[str, Value]:
    return method.decode_request(call.stub, syntax, "little" if call.is_little else "big")


@dataclass(frozen=True, slots=True)
class TcpEndpoint:
    """An address and a port at which a server listens."""

    address: str
    port: int


class RpcServer:
    """Registered interfaces, listeners and connections."""

    def __init__(
        self,
        interfaces: Iterable[ServedInterface] = (),
        *,
        users: UserFile | None = None,
        providers: SecurityProviders | None = None,
        limits: ServerLimits | None = None,
        authentication_level: AuthLevel = AuthLevel.NONE,
        budget: Budget | None = None,
        name: str = "rpc",
    ) -> None:
        """Serve interfaces.

        `authentication_level`: the level that callers of every interface need; NONE admits all
        callers, whatever an interface requires. `name`: the name of this server in the
        resource-budget statistics.
        """
        self.users = users
        self.authentication_level = authentication_level
        self.providers = providers
        self.limits = ServerLimits() if limits is None else limits
        self.groups = AssociationGroups()
        self.statistics = Statistics()
        self._interfaces: dict[tuple[UUID, int], ServedInterface] = {}
        # TCP endpoints, in the order in which they were opened.
        self.endpoints: list[TcpEndpoint] = []
        self._listening: list[Acceptor] = []
        self._connections: dict[ServerSocket, None] = {}
        # Other servers with the same users.
        self.companions: list[RpcServer] = []
        self._name = name
        self.budget = Budget() if budget is None else budget
        self.logons = self.budget.add(
            Resource(f"{name} logons under way", self.limits.max_logons, self.limits.max_logons_per_peer)
        )
        self._unbound: Newcomers[ServerSocket] = Newcomers(self.limits.max_unbound)
        self._unfinished = {
            is_known: Unfinished(
                self.budget.add(Resource(f"{name} bytes of unfinished requests{whose}", *most)), self._evict
            )
            for is_known, whose, most in (
                (True, "", (self.limits.max_unfinished,)),
                (
                    False,
                    " of strangers",
                    (self.limits.max_unfinished_of_strangers, self.limits.max_unfinished_per_stranger),
                ),
            )
        }
        # Connections that do not read their answers. The one that has read nothing for longest is
        # first.
        self.choked: dict[ServerSocket, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._emptied: asyncio.Future[None] | None = None
        for interface in interfaces:
            self.register(interface)

    @property
    def interfaces(self) -> list[ServedInterface]:
        return list(self._interfaces.values())

    @property
    def connections(self) -> int:
        return len(self._connections)

    def clients(self) -> list[ServerSocket]:
        """Return the connections of clients, the oldest first."""
        return list(self._connections)

    def register(self, interface: ServedInterface) -> None:
        key = (interface.syntax.uuid, interface.syntax.major)
        if key in self._interfaces:
            raise ValueError(f"interface {interface.syntax} is registered already")
        if self.authentication_level > AuthLevel.NONE:
            interface.required_level = max(self.authentication_level, interface.least_level)
        self._interfaces[key] = interface

    def find_interface(self, syntax: SyntaxId) -> ServedInterface | None:
        """Return the interface of this major version and at least this minor (C706 12.6.4.4)."""
        found = self._interfaces.get((syntax.uuid, syntax.major))
        return found if found is not None and found.syntax.minor >= syntax.minor else None

    # Listening
    # ----------------------------------------------------------------------------------------------

    async def listen_tcp(
        self, address: str, port: int, *, step: int = PORT_STEP, name: str | None = None, share: float = _SHARE
    ) -> int:
        """Listen on a port, or on the next free one of its series; 0 is any port. Return the port.

        `name`: the name of the port in the resource-budget statistics; `share`: the fraction of
        file descriptors reserved for it.
        """
        tries = PORT_TRIES if step and port else 1
        for attempt in range(tries):
            wanted = port + attempt * step
            try:
                listening = listen_tcp(address, wanted)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or attempt == tries - 1:
                    raise
                _LOG.warning("port %d of %s is taken, trying %d", wanted, address, wanted + step)
                continue
            found = self._accept(listening, name or self._name, share)
            self.endpoints.append(TcpEndpoint(address, found))
            return found
        raise AssertionError("unreachable")

    def _accept(self, listening: socket.socket, name: str, share: float) -> int:
        limits = self.limits
        door = Door(
            self.budget, name, limit=limits.max_connections, per_peer=limits.max_connections_per_peer, share=share
        )
        is_local = listening.family == socket.AF_UNIX
        strangers: Strangers[ServerSocket] = Strangers(lambda connection: connection.is_known)
        acceptor = Acceptor(
            listening,
            door,
            lambda granted: ServerSocket(self, granted, strangers, is_local=is_local),
            make_room=lambda peer: self._make_room(strangers.victim(peer, is_greedy=door.is_greedy(peer))),
        )
        self._listening.append(acceptor)
        return acceptor.port

    async def listen_unix(self, path: Path, *, mode: int = 0o666) -> None:
        """Listen on a Unix socket, with the file mode `mode`.

        The kernel identifies the clients (SO_PEERCRED).
        """
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            bind_unix(listening, path, mode)
            listening.listen(_BACKLOG)
        except BaseException:
            listening.close()
            raise
        self._accept(listening, "local", _LOCAL_SHARE)

    def door_for_log_ons(self, name: str, syntax: SyntaxId) -> Callable[[socket.socket], None]:
        """Return a function that serves connected sockets of a Lanner program.

        Users log on through them, to one interface.
        """
        limits = self.limits
        door = Door(self.budget, name, limit=limits.max_connections, per_peer=limits.max_connections, share=_SHARE)
        strangers: Strangers[ServerSocket] = Strangers(lambda connection: connection.is_known)

        def take(connected: socket.socket) -> None:
            granted = door.admit(name)
            if granted is None and self._make_room(strangers.victim(name, is_greedy=False)):
                granted = door.admit(name)
            if granted is None:
                connected.close()
                return
            connected.setblocking(False)
            task = asyncio.ensure_future(self._begin(connected, ServerSocket(self, granted, strangers, only=syntax)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return take

    @staticmethod
    async def _begin(connected: socket.socket, protocol: ServerSocket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, connected)
        except OSError:
            protocol.granted.give_back()
            connected.close()

    async def stop(self) -> None:
        """Close all connections. Every handle is run down."""
        for server in self._listening:
            server.close()
        for connection in list(self._connections):
            connection.abort()
        for task in self._tasks:
            cancel_soon(task)
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._connections:
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied
        for server in self._listening:
            await server.wait_closed()
        self._listening.clear()
        self.endpoints.clear()

    # Connections
    # ----------------------------------------------------------------------------------------------

    def admit(self, connection: ServerSocket) -> None:
        """Count a new connection."""
        self._connections[connection] = None
        self._unbound.add(connection, connection.granted.peer)
        connection.strangers.add(connection, connection.granted.peer)
        excess = self._unbound.excess()
        if excess is not None:
            self._hang_up(excess, f"{self.limits.max_unbound} connections without a bind or a finished logon")

    def _make_room(self, stranger: ServerSocket | None) -> bool:
        """Close a connection that has not logged on, to make room for a new one."""
        if stranger is not None:
            self._hang_up(stranger, "the limit of connections is reached, and this one has not logged on")
        return stranger is not None

    def _hang_up(self, connection: ServerSocket, reason: str) -> None:
        log_of_peer(
            _LOG, logging.WARNING, "room", connection.peer, "%s: hung up to make room: %s", connection.peer, reason
        )
        self._unbound.remove(connection)
        connection.strangers.remove(connection)
        connection.abort()
        connection.granted.give_back()

    def bound(self, connection: ServerSocket) -> None:
        self._unbound.remove(connection)
        connection.strangers.has_spoken(connection)
        if connection.is_known:
            connection.strangers.remove(connection)

    def unfinished(self, connection: ServerSocket, size: int, *, is_known: bool = False) -> None:
        """Count an incomplete request, so that incomplete requests cannot fill the memory."""
        self._unfinished[not is_known].set(connection, connection.granted.peer, 0)
        self._unfinished[is_known].set(connection, connection.granted.peer, size)

    def _evict(self, connection: ServerSocket, reason: str) -> None:
        self._hang_up(connection, reason)

    def limit_unsent(self) -> None:
        """Close connections if unread answers take too much memory.

        A hundred calls of one client may wait for the same large message.
        """
        limits = self.limits
        self._limit_unsent(self.choked, limits.max_unsent)
        strangers = [connection for connection in self.choked if not connection.is_logged_on]
        by_peer: dict[str, list[ServerSocket]] = {}
        for connection in strangers:
            by_peer.setdefault(connection.granted.peer, []).append(connection)
        for connections in by_peer.values():
            self._limit_unsent(connections, limits.max_unsent_per_stranger)
        self._limit_unsent([one for one in strangers if one in self.choked], limits.max_unsent_of_strangers)

    def _limit_unsent(self, connections: Iterable[ServerSocket], most: int) -> None:
        """Close connections, beginning with the one that has not read for the longest time.

        Stop when the answers for the others take no more than `most` bytes.
        """
        waiting = [(connection, connection.unsent) for connection in connections]
        unsent = sum(size for _, size in waiting)
        for oldest, size in waiting:
            if unsent <= most:
                return
            del self.choked[oldest]
            self._hang_up(oldest, f"{unsent} bytes of answers that clients do not read")
            unsent -= size

    def forget(self, connection: ServerSocket) -> None:
        if connection not in self._connections:
            return
        del self._connections[connection]
        self._unbound.remove(connection)
        connection.strangers.remove(connection)
        self.unfinished(connection, 0)
        self.choked.pop(connection, None)
        if self._emptied is not None and not self._connections and not self._emptied.done():
            self._emptied.set_result(None)

    # Calls
    # ----------------------------------------------------------------------------------------------

    def dispatch(self, call: ServerCall, answered: Callable[[], object]) -> asyncio.Task[None] | None:
        """Run a call. Return a task if it waits for something.

        `answered` is called if the call is answered later, without a task.
        """
        self.statistics.calls_in += 1
        connection = call.connection
        interface = cast("ServedInterface", call.context.interface)
        try:
            answer = interface.invoke(call)
            if isinstance(answer, PendingAnswer):
                change = answer.pending.change
                if change.is_pending:
                    change.then(partial(self._answer_durable, call, answer, answered))
                    return None
                answer = answer.stub(None)
            if not isinstance(answer, bytes):
                return self._wait_for(call, answer)
        except RpcFault as fault:
            connection.fault(call, fault.status, did_not_execute=fault.did_not_execute)
        except RemoteProtocolError as error:
            log_of_peer(_LOG, logging.INFO, "stub", connection.peer, "%r: %s", call, error)
            connection.fault(call, FaultStatus.BAD_STUB_DATA, did_not_execute=True)
        except Exception:  # noqa: BLE001 (logged, and the caller gets a fault)
            log_of_peer(_LOG, logging.ERROR, "failed", connection.peer, "%r failed", call, exc_info=True)
            connection.fault(call, FaultStatus.NCA_FAULT_UNSPEC)
        else:
            connection.respond(call, answer)
        return None

    @staticmethod
    def _answer_durable(
        call: ServerCall, answer: PendingAnswer, answered: Callable[[], object], error: BaseException | None
    ) -> None:
        connection = call.connection
        if answer.pending.undo is not None and error is None and not connection.awaits(call):
            answer.pending.undo()
        else:
            try:
                stub = answer.stub(error)
            except Exception:  # noqa: BLE001 (logged, and the caller gets a fault)
                log_of_peer(_LOG, logging.ERROR, "failed", connection.peer, "%r failed", call, exc_info=True)
                connection.fault(call, FaultStatus.NCA_FAULT_UNSPEC)
            else:
                connection.respond(call, stub)
        answered()

    def _wait_for(self, call: ServerCall, answer: Awaitable[bytes]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._finish(call, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @staticmethod
    async def _finish(call: ServerCall, answer: Awaitable[bytes]) -> None:
        connection = call.connection
        try:
            stub = await answer
        except asyncio.CancelledError:
            connection.fault(call, FaultStatus.NCA_FAULT_CANCEL)
        except RpcFault as fault:
            connection.fault(call, fault.status, did_not_execute=fault.did_not_execute)
        except RemoteProtocolError as error:
            log_of_peer(_LOG, logging.INFO, "stub", connection.peer, "%r: %s", call, error)
            connection.fault(call, FaultStatus.BAD_STUB_DATA)
        except Exception:  # noqa: BLE001 (logged, and the caller gets a fault)
            log_of_peer(_LOG, logging.ERROR, "failed", connection.peer, "%r failed", call, exc_info=True)
            connection.fault(call, FaultStatus.NCA_FAULT_UNSPEC)
        else:
            connection.respond(call, stub)


@dataclass(slots=True)
class Statistics:
    """The figures of rpc_mgmt_inq_stats (C706 Q.2)."""

    calls_in: int = 0
    calls_out: int = 0
    packets_in: int = 0
    packets_out: int = 0
