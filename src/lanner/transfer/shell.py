"""The shell around `Transfer`: sockets, name resolution, and the thread that syncs (MS-MQQB 2.1).

It listens on TCP ports 1801 and 1802 and makes outgoing connections. It implements `network`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import ipaddress
import logging
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from lanner.host.accepting import Acceptor, listen_tcp
from lanner.host.budget import Budget, Door, Pass
from lanner.host.committer import Committer
from lanner.host.fair_threads import FairThreads
from lanner.host.turns import turns_of_loop
from lanner.security.log_lines import log_of_peer
from lanner.security.peer_address import peer_of
from lanner.transfer.addresses import addresses_of, resolve_hosts
from lanner.transfer.ping import PingInitiator, PingService, ping, start_ping_service
from lanner.transfer.tls import TlsSettingsError, load_identity
from lanner.transfer.tls_channel import TlsChannel
from lanner.transfer.tls_errors import TlsError
from lanner.transfer.transfer import Transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from uuid import UUID

    from lanner.engine import Engine
    from lanner.host.turns import Turns
    from lanner.transfer.addresses import HopHost, NextHop
    from lanner.transfer.link import Link
    from lanner.transfer.network import Connection
    from lanner.transfer.settings import TransferSettings
    from lanner.transfer.tls import Certification, TlsIdentity

_LOG = logging.getLogger(__name__)

# One read from the kernel: a few hundred messages of a kilobyte.
_READ_BUFFER = 256 << 10
_WRITE_HIGH_WATER = 1 << 20
_CONNECT_TIMEOUT = 20.0  # seconds
# Time for a peer to read our last bytes after a session is closed.
_LINGER = 5.0  # seconds
# Resolution of the timers. The shortest timer is half a second.
_TICK = 0.1  # seconds
# Number of names resolved at once: more than several users may block with names that no server
# answers for (`host.fair_threads`).
_RESOLVERS = 16
# Threads for cryptography. They are no others' threads, because anybody can send messages whose
# signatures take long to verify. Python computes some of the old hashes itself, and its threads
# share one processor with the event loop.
_CRYPTOGRAPHERS = 4
# Names that had an address last time, of which the latest are remembered.
_MAX_ANSWERED = 4096
# The shares of the descriptors that no other listener can take: for sessions that peers open, and
# for those that are opened from here.
_SHARE_IN, _SHARE_OUT = 0.25, 0.15


class TransferListener:
    """MS-MQQB on one address; a `Listener` of the daemon."""

    name = "transfer"

    def __init__(self, engine: Engine, bind: str, settings: TransferSettings, budget: Budget | None = None) -> None:
        """Set up the transfer.

        Raises TlsSettingsError if the settings ask for TLS with files that cannot be used.
        """
        self.bind = bind
        self.settings = settings
        self.port = settings.port
        self.tls_port = settings.tls_port
        self._budget = budget = budget or Budget()
        # None: TLS is off. It can be replaced while the listener runs; open sessions keep the old
        # one.
        self.identity = load_identity(settings)
        self.transfer = Transfer(engine, settings, self, self.identity, budget)
        # Both ports share it, because a peer's limit on sessions applies to all of them together.
        self._door = Door(budget, "transfer", limit=settings.max_connections, share=_SHARE_IN)
        self._way_out = Door(budget, "transfer outgoing", limit=settings.max_connections, share=_SHARE_OUT)
        # Every connection reads into the same buffer. Its contents are processed before the next
        # read.
        self.read_buffer = memoryview(bytearray(_READ_BUFFER))
        # The same for decrypted data.
        self.plain_buffer = memoryview(bytearray(0 if self.identity is None else _READ_BUFFER))
        self._engine = engine
        qm = engine.queue_manager
        self._pings = PingInitiator(qm.identifier, qm.operating_system_type, engine.monotonic)
        self._tasks: set[asyncio.Task[None]] = set()
        self._answered: dict[tuple[str, ...], None] = {}
        self._connections: set[_TcpConnection] = set()
        self._of_peer: dict[str, set[_TcpConnection]] = {}
        self._is_woken = False
        self._wake_lock = threading.Lock()
        self._timer: asyncio.TimerHandle | None = None
        # Set by `start`.
        self._loop: asyncio.AbstractEventLoop
        self.turns: Turns
        self._committer: Committer
        self._resolvers: ThreadPoolExecutor
        self._lookups: FairThreads
        self._cryptographers: ThreadPoolExecutor
        self._cryptography: FairThreads
        self._ping_service: PingService | None
        self._acceptors: list[Acceptor]

    @property
    def address(self) -> str:
        return self._format(self.port)

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses on which it listens, by purpose, for display."""
        found = {self.name: self.address}
        if self.identity is not None:
            found["transfer over TLS"] = self._format(self.tls_port)
        return found

    def _format(self, port: int) -> str:
        host = f"[{self.bind}]" if ":" in self.bind else self.bind
        return f"{host}:{port}"

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.turns = turns_of_loop()
        self._committer = Committer(self._engine.store, self._loop, self._pump)
        # Separate pools, so that unanswered lookups do not block the threads that verify
        # signatures.
        self._resolvers = ThreadPoolExecutor(_RESOLVERS, "lanner-resolve")
        self._lookups = FairThreads(self._resolvers)
        self._cryptographers = ThreadPoolExecutor(_CRYPTOGRAPHERS, "lanner-crypto")
        self._cryptography = FairThreads(self._cryptographers)
        listening: list[socket.socket] = []
        try:
            listening.append(listen_tcp(self.bind, self.port))
            if self.identity is not None:
                try:
                    listening.append(listen_tcp(self.bind, self.tls_port))
                except OSError as error:
                    raise OSError(error.errno, f"{error.strerror} (TLS, port {self.tls_port})") from error
            self._ping_service = await start_ping_service(
                self.settings,
                self.bind,
                self._engine.queue_manager.identifier,
                self._refuses,
                self._engine.monotonic,
                self._budget,
            )
        except BaseException:
            for one in listening:
                one.close()
            self._committer.close()
            raise
        self.transfer.start()
        protocols: tuple[Callable[[Pass], _TcpConnection], ...] = (partial(_TcpConnection, self), self._tls_connection)
        self._acceptors = [
            Acceptor(one, self._door, protocol, make_room=self._make_room_for)
            for one, protocol in zip(listening, protocols, strict=False)
        ]
        self.port = self._acceptors[0].port
        if self.identity is not None:
            self.tls_port = self._acceptors[1].port
        self._tick()

    def _tls_connection(self, granted: Pass, *, is_initiator: bool = False) -> _TlsConnection:
        identity = self.identity
        if identity is None:
            raise TlsError("this queue manager has no certificate: set transfer.tls_certificate and transfer.tls_key")
        return _TlsConnection(self, granted, identity, is_initiator=is_initiator)

    def reload(self, settings: TransferSettings) -> None:
        """Replace the peers table, and the certificates for new sessions.

        Raises TlsSettingsError if one cannot be used; then nothing changes. Whether TLS is on at
        all is decided at the start.
        """
        identity = load_identity(settings)
        if (identity is None) != (self.identity is None):
            raise TlsSettingsError(
                f"transfer.tls_certificate and transfer.tls_key {'are gone' if identity is None else 'are new'}: "
                "TLS is switched on and off by a restart only"
            )
        self.identity = identity
        self.settings = dataclasses.replace(self.settings, peers=settings.peers)
        self.transfer.set_peers(settings.peers, self.identity)

    async def stop(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        if self._ping_service is not None:
            self._ping_service.close()
        self.transfer.stop()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in list(self._connections):
            connection.abort()
        for acceptor in self._acceptors:
            await acceptor.wait_closed()
        self._resolvers.shutdown(wait=False, cancel_futures=True)
        self._cryptographers.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._committer.close)

    # Network
    # ----------------------------------------------------------------------------------------------

    def resolve(
        self, hosts: list[HopHost], done: Callable[[list[NextHop] | OSError], None], whose: str | None = None
    ) -> None:
        names = [host.host_names for host in hosts]

        async def run() -> None:
            # A user can invent names whose lookup takes long. Lookups of names that had an address
            # do not wait for those.
            user = None if all(one in self._answered for one in names) else whose
            try:
                found = await self._lookups.run(user, partial(self._resolve_hosts, hosts))
            except Exception as error:  # noqa: BLE001 (whatever it is, the queue waits for an answer)
                self._note_answer(names, has_address=False)
                done(_as_os_error(error))
            else:
                self._note_answer(names, has_address=True)
                done(found)

        self._spawn(run())

    def _note_answer(self, names: list[tuple[str, ...]], *, has_address: bool) -> None:
        for one in names:
            self._answered.pop(one, None)
            if has_address:
                self._answered[one] = None
        while len(self._answered) > _MAX_ANSWERED:
            del self._answered[next(iter(self._answered))]

    def _resolve_hosts(self, hosts: list[HopHost]) -> list[NextHop]:
        peers, certified = self.settings.peers, self.transfer.certified

        names = {host.qm_guid: host.host_names for host in hosts}

        def with_tls(hop: NextHop) -> NextHop:
            peer = certified.find(hop, lambda peer: addresses_of(peer, peers), names[hop.qm_guid])
            return hop if peer is None else dataclasses.replace(hop, tls_peer=peer)

        return [with_tls(hop) for hop in resolve_hosts(hosts, peers)]

    def ping(self, address: str, done: Callable[[bool], None]) -> None:
        async def run() -> None:
            local = self._local_address(address)
            done(await ping(self._pings, address, self.settings, None if local is None else local[0]))

        self._spawn(run())

    def run_in_thread(self, work: Callable[[], Any], done: Callable[[Any], None], whose: str | None = None) -> None:
        async def run() -> None:
            done(await self._cryptography.run(whose, work))

        self._spawn(run())

    def connect(self, address: str, done: Callable[[Connection | OSError], None], *, over_tls: bool = False) -> None:
        async def run() -> None:
            granted = self._way_out.admit(peer_of(address))
            if granted is None:
                done(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
                return
            try:
                connection = await self._connection_to(address, granted, over_tls=over_tls)
            except TimeoutError:
                granted.give_back()
                done(OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
            except Exception as error:  # noqa: BLE001 (whatever it is, queues wait for an answer)
                granted.give_back()
                done(_as_os_error(error))
            else:
                done(connection)

        self._spawn(run())

    async def _connection_to(self, address: str, granted: Pass, *, over_tls: bool) -> _TcpConnection:
        """Return a connection to an address; over TLS, after its handshake."""
        tls = self._tls_connection(granted, is_initiator=True) if over_tls else None
        connection = tls or _TcpConnection(self, granted, is_initiator=True)
        async with asyncio.timeout(_CONNECT_TIMEOUT):
            try:
                await self._loop.create_connection(
                    lambda: connection,
                    address,
                    self.settings.port if tls is None else self.settings.tls_port,
                    local_addr=self._local_address(address),
                )
            except ConnectionRefusedError as error:
                if tls is None:
                    raise
                text = f"{error.strerror}: the queue manager there does not run, or has no TLS"
                raise ConnectionRefusedError(error.errno, text) from error
            if tls is not None:
                try:
                    await tls.handshake
                except BaseException:
                    tls.close()
                    raise
        return connection

    def sync(self, batch: int) -> None:
        self._committer.ask(batch)

    def wake(self) -> None:
        with self._wake_lock:
            if self._is_woken:
                return
            self._is_woken = True
        try:
            self._loop.call_soon_threadsafe(self._pump)
        except RuntimeError:
            _LOG.debug("the loop has ended; nobody is left to be woken")

    def _pump(self) -> None:
        """Run the transfer's pump if it was requested.

        That is also the case as soon as a batch is written: acknowledgments go out before more of a
        peer's data is read, so the peer goes on sending meanwhile.
        """
        with self._wake_lock:
            if not self._is_woken:
                return
            self._is_woken = False
        self.transfer.pump()

    def _local_address(self, address: str) -> tuple[str, int] | None:
        """Return the local address for a connection or ping: the one we listen on, if possible.

        Peers send their acknowledgments to the address that they see. A loopback address cannot be
        used to reach another computer.
        """
        own, other = ipaddress.ip_address(self.bind), ipaddress.ip_address(address)
        if own.is_unspecified or own.version != other.version or (own.is_loopback and not other.is_loopback):
            return None
        return self.bind, 0

    def _refuses(self, _guid: UUID, address: str) -> bool:
        """Return whether the answer to a ping is a refusal."""
        return not (self.transfer.would_accept and self.transfer.accepts(address))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tick(self) -> None:
        # First, so that the timers continue whatever fails below.
        self._timer = self._loop.call_later(_TICK, self._tick)
        transfer = self.transfer
        if transfer.deadlines.earliest <= transfer.monotonic():
            transfer.on_timer()

    # Connections
    # ----------------------------------------------------------------------------------------------

    def opened(self, connection: _TcpConnection, address: str) -> bool:
        """Take a connection from outside; return False if it is refused."""
        if not self.transfer.accepts(address) and self.transfer.is_online:
            self._make_room(connection.granted.peer)
        if not self.transfer.accepts(address):
            text = "a connection of %s was refused: it has %d sessions, or we are offline"
            log_of_peer(_LOG, logging.WARNING, "refused", address, text, address, self.transfer.sessions_of(address))
            return False
        self.transfer.accepted(connection, address)
        return True

    def _make_room(self, peer: str) -> bool:
        """End a half-open connection of a peer that has no room for another one."""
        return self._has_ended(self.transfer.end_half_open(peer))

    def _make_room_for(self, newcomer: str) -> bool:
        """End a connection because there is no room for another one.

        It is a half-open one, else an unknown peer's session.
        """
        return self._has_ended(self.transfer.end_half_open()) or self._has_ended(
            self.transfer.end_dispensable(newcomer)
        )

    @staticmethod
    def _has_ended(found: Connection | None) -> bool:
        if isinstance(found, _TcpConnection):
            found.abort()
            found.granted.give_back()
        return found is not None

    def keep(self, connection: _TcpConnection) -> None:
        self._connections.add(connection)
        self._of_peer.setdefault(connection.granted.peer, set()).add(connection)

    def forget(self, connection: _TcpConnection) -> None:
        self._connections.discard(connection)
        peer = connection.granted.peer
        of_peer = self._of_peer.get(peer)
        if of_peer is not None:
            of_peer.discard(connection)
            if not of_peer:
                del self._of_peer[peer]

    def spent(self, connection: _TcpConnection, seconds: float) -> None:
        """Count time that what a peer has sent took. If it was much, others have their turn."""
        peer = connection.granted.peer
        self.turns.spend(peer, seconds)
        if not self.turns.has_time(peer):
            for one in self._of_peer.get(peer, ()):
                one.wait_for_turn()


def _as_os_error(error: Exception) -> OSError:
    if isinstance(error, OSError):
        return error
    _LOG.error("a connection could not be tried", exc_info=error)
    return OSError(f"{type(error).__name__}: {error}")


class _TcpConnection(asyncio.BufferedProtocol):
    """One TCP connection in either direction."""

    def __init__(self, listener: TransferListener, granted: Pass, *, is_initiator: bool = False) -> None:
        self.link: Link | None = None
        self.certification: Certification | None = None
        self.granted = granted
        self._listener = listener
        self._transfer = listener.transfer
        self._is_initiator = is_initiator
        self._linger: asyncio.TimerHandle | None = None
        # Why nothing is read: the transfer wants nothing now, or the peer has had this turn.
        self._is_paused = self._has_to_wait = False
        self._is_reading = True

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER)
        self._listener.keep(self)
        if not self._is_initiator:
            address = str(transport.get_extra_info("peername")[0])
            if not self._listener.opened(self, address):
                self._transport.abort()

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._listener.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        begun = time.monotonic()
        self._take(nbytes)
        self._listener.spent(self, time.monotonic() - begun)

    def _take(self, nbytes: int) -> None:
        if self.link is not None and not self.link.session.is_closed:
            self._transfer.data_received(self.link, self._listener.read_buffer[:nbytes])

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        if self._linger is not None:
            self._linger.cancel()
        self.granted.give_back()
        self._listener.forget(self)
        if self.link is not None and not self.link.is_closed:
            self._transfer.disconnected(self.link)

    def pause_writing(self) -> None:
        if self.link is not None:
            self._transfer.set_writable(self.link, is_writable=False)

    def resume_writing(self) -> None:
        if self.link is not None:
            self._transfer.set_writable(self.link, is_writable=True)

    # Called by transfer

    def write(self, data: list[bytes]) -> None:
        self._transport.writelines(data)

    def close(self) -> None:
        if not self._transport.is_closing():
            self._transport.close()
            loop = asyncio.get_running_loop()
            self._linger = loop.call_later(_LINGER, self.abort)

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        self._is_paused = True
        self._set_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._set_reading()

    # Called by the listener

    def wait_for_turn(self) -> None:
        """Read nothing until the next turn of the event loop that the peer has."""
        if not self._has_to_wait:
            self._has_to_wait = True
            self._set_reading()
            self._listener.turns.wait(self.granted.peer, self._go_on)

    def _go_on(self) -> None:
        self._has_to_wait = False
        self._set_reading()

    def _set_reading(self) -> None:
        is_reading = not (self._is_paused or self._has_to_wait)
        if is_reading is self._is_reading or self._transport.is_closing():
            return
        self._is_reading = is_reading
        if is_reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


class _TlsConnection(_TcpConnection):
    """One TCP connection over TLS.

    It counts like any other from its first byte: the TLS handshake is part of the session's
    handshake.
    """

    def __init__(self, listener: TransferListener, granted: Pass, identity: TlsIdentity, *, is_initiator: bool) -> None:
        super().__init__(listener, granted, is_initiator=is_initiator)
        # Done when the initiator has the peer's certificate. The peer has not verified ours at that
        # time.
        self.handshake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._identity = identity
        context = identity.client if is_initiator else identity.server
        self._channel = TlsChannel(context, is_server=not is_initiator)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._is_initiator:
            self._advance()

    def _take(self, nbytes: int) -> None:
        self._channel.feed(self._listener.read_buffer[:nbytes])
        self._advance()

    def _advance(self) -> None:
        """Process what the received bytes make possible."""
        try:
            if self.certification is None and self._channel.handshake():
                self.certification = self._identity.certify(self._channel.session)
                if not self.handshake.done():
                    self.handshake.set_result(None)
            self._send()
            if self.certification is not None:
                self._read()
        except TlsError as error:
            # The alert with the reason.
            self._send()
            self._fail(error)

    def _read(self) -> None:
        """Pass decrypted data to the session, as much as possible at once."""
        channel, buffer = self._channel, self._listener.plain_buffer
        while self.link is not None and not self.link.session.is_closed:
            count = channel.read_into(buffer)
            if not count:
                break
            self._transfer.data_received(self.link, buffer[:count])
        self._send()
        if channel.is_ended:
            self._transport.close()

    def _fail(self, error: TlsError) -> None:
        if self._is_initiator and not self.handshake.done():
            self.handshake.set_exception(error)
        elif self.link is not None and not self.link.is_closed:
            self._transfer.disconnected(self.link, str(error))
        self.close()

    def connection_lost(self, error: Exception | None) -> None:
        if self._is_initiator and not self.handshake.done():
            text = "the peer ended the connection in the handshake of TLS: what listens there has no TLS, or rejects us"
            self.handshake.set_exception(TlsError(text))
        super().connection_lost(error)

    def write(self, data: list[bytes]) -> None:
        self._channel.write(data)
        self._send()

    def close(self) -> None:
        if not self._transport.is_closing():
            self._channel.close()
            self._send()
        super().close()

    def _send(self) -> None:
        data = self._channel.output()
        if data and not self._transport.is_closing():
            self._transport.write(data)
