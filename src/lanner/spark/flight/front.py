"""The port of the Flight service: it takes connections, within the budget, and passes their bytes on to gRPC.

gRPC takes as many connections as there are descriptors, and pyarrow has no setting for that. So
gRPC listens on a Unix socket in the data directory, which only this process uses, and a loop in a
thread of its own has the port. Nothing goes to gRPC before a client has begun to speak HTTP/2. TLS
ends here.

A client's address is found by the name that its Unix socket has (`Front.peer`), since gRPC tells no
more of it. The names are random: another user of this machine who could foretell one would bind it
first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import ssl
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from lanner.host.accepting import Acceptor, Handshake
from lanner.host.budget import Newcomers
from lanner.host.loop_thread import LoopThread
from lanner.host.strangers import Strangers
from lanner.rpc.unix_path import short_path
from lanner.security.log_lines import log_of_peer
from lanner.spark.flight.local_user import user_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.host.budget import Door, Pass
    from lanner.spark.flight.settings import FlightSettings

_LOG = logging.getLogger(__name__)

# RFC 9113 3.4: what a client says first.
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Not in the specification: connections that have said nothing; seconds that each has; seconds of
# silence after which one may go to make room for another; seconds to take the last bytes.
_MAX_NEW: Final = 128
_FIRST_WORD: Final = 10.0
_QUIET: Final = 60.0
_LINGER: Final = 10.0
_READ_BUFFER: Final = 256 << 10
_WRITE_HIGH_WATER: Final = 1 << 20


def tls_context(settings: FlightSettings) -> ssl.SSLContext | None:
    """What the service shows its clients; None: it is not encrypted.

    An OSError says what is wrong with the files.
    """
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    context.set_alpn_protocols(["h2"])
    return context


class Front:
    """Listens from its construction on, until it is stopped."""

    def __init__(self, listening: socket.socket, backend: Path, door: Door, tls: ssl.SSLContext | None) -> None:
        """`backend` is where gRPC listens."""
        self._backend = backend
        self._door = door
        self.new: Newcomers[_Client | Handshake] = Newcomers(_MAX_NEW)
        # Through which no call of an account has come.
        self.strangers: Strangers[_Client | Handshake] = Strangers(_is_known)
        self._handshakes: dict[Pass, Handshake] = {}
        self.clients: dict[str, _Client] = {}
        self.buffer = memoryview(bytearray(_READ_BUFFER))
        self.tasks: set[asyncio.Task[None]] = set()
        self._loop = LoopThread("lanner-flight")
        self._acceptor = self._loop.call(self._start(listening, tls))
        self.port = self._acceptor.port

    async def _start(self, listening: socket.socket, tls: ssl.SSLContext | None) -> Acceptor:
        self._running = asyncio.get_running_loop()
        return Acceptor(
            listening,
            self._door,
            lambda granted: _Client(self, granted),
            make_room=self._make_room,
            tls=tls,
            on_handshake=self._handshake_began,
        )

    def stop(self) -> None:
        """Take no more connections and end those that are there."""
        self._loop.call(self._stop())
        self._loop.stop()

    async def _stop(self) -> None:
        self._acceptor.close()
        await self._acceptor.wait_closed()
        for task in self.tasks:
            task.cancel()
        for client in list(self.clients.values()):
            client.abort()
        # Until they are told of it.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def peer(self, grpc_peer: str) -> str:
        """The client of a call, by what gRPC calls it; any thread."""
        client = self._client(grpc_peer)
        return "" if client is None else client.granted.peer

    def user(self, grpc_peer: str) -> int | None:
        """The user of this machine whose client it is; None: of another machine; any thread."""
        client = self._client(grpc_peer)
        return None if client is None else user_of(*client.ends)

    def host(self, grpc_peer: str) -> str | None:
        """The address of this machine at which a client has found it; any thread."""
        client = self._client(grpc_peer)
        return None if client is None else str(client.ends[0][0])

    def logged_on(self, grpc_peer: str) -> None:
        """A call of an account has come from a client; any thread."""
        client = self._client(grpc_peer)
        if client is not None and not client.is_known:
            client.is_known = True
            with contextlib.suppress(RuntimeError):  # it is being stopped
                self._running.call_soon_threadsafe(self.strangers.remove, client)

    def _client(self, grpc_peer: str) -> _Client | None:
        return self.clients.get(grpc_peer.rpartition("-")[2])

    def add(self, client: _Client) -> str:
        """Count a connection, and give it a name."""
        self._handshake_ended(client.granted)
        name = secrets.token_hex(16)
        self.clients[name] = client
        self._add_stranger(client)
        return name

    def hang_up(self, grpc_peer: str) -> None:
        """End the connection of a client; any thread."""
        client = self._client(grpc_peer)
        if client is not None:
            with contextlib.suppress(RuntimeError):  # it is being stopped
                self._running.call_soon_threadsafe(self._hang_up, client)

    def _handshake_began(self, handshake: Handshake) -> Callable[[], None]:
        """Count a connection from its first byte on, though its protocol hears of it only when the handshake of TLS is done."""
        self._handshakes[handshake.granted] = handshake
        self._add_stranger(handshake)
        return partial(self._handshake_ended, handshake.granted)

    def _handshake_ended(self, granted: Pass) -> None:
        handshake = self._handshakes.pop(granted, None)
        if handshake is not None:
            self.new.remove(handshake)
            self.strangers.remove(handshake)

    def _add_stranger(self, one: _Client | Handshake) -> None:
        self.new.add(one, one.granted.peer)
        self.strangers.add(one, one.granted.peer)
        excess = self.new.excess()
        if excess is not None:
            self._hang_up(excess)

    def _make_room(self, peer: str) -> bool:
        """End a connection of a stranger, or else one that has been silent for a while, for a new one of a peer."""
        is_greedy = self._door.is_greedy(peer)
        found = self.strangers.victim(peer, is_greedy=is_greedy) or self._silent(peer, is_greedy=is_greedy)
        if found is not None:
            self._hang_up(found)
        return found is not None

    def _silent(self, peer: str, *, is_greedy: bool) -> _Client | None:
        """A connection that nothing has gone through for a while, of a peer or of one that has more connections."""
        since = asyncio.get_running_loop().time() - _QUIET
        counted = self._door.connections
        silent: Newcomers[_Client] = Newcomers(0)
        for client in self.clients.values():
            whose = client.granted.peer
            if client.heard < since and (whose == peer or (not is_greedy and counted.of(whose) > counted.of(peer))):
                silent.add(client, whose)
        return silent.oldest()

    def _hang_up(self, client: _Client | Handshake) -> None:
        self.new.remove(client)
        self.strangers.remove(client)
        peer = client.granted.peer
        log_of_peer(_LOG, logging.WARNING, "room", peer, "%s: hung up to make room for another connection", peer)
        client.abort()
        client.granted.give_back()

    async def reach(self, client: _Client) -> None:
        """Connect a client with gRPC."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        loop = asyncio.get_running_loop()
        try:
            connection.bind(f"\0lanner-{client.name}")
            with short_path(self._backend) as short:
                await loop.sock_connect(connection, str(short))
            await loop.create_unix_connection(lambda: _Backend(self, client), sock=connection)
        except OSError as error:
            connection.close()
            peer = client.granted.peer
            log_of_peer(
                _LOG, logging.ERROR, "backend", peer, "%s: the Flight service cannot be reached: %s", peer, error
            )
            client.abort()


def _is_known(one: _Client | Handshake) -> bool:
    return isinstance(one, _Client) and one.is_known


class _Half(asyncio.BufferedProtocol):
    """One end of a connection that is passed on."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.other: _Half | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self.front.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(bytes(self.front.buffer[:nbytes]))

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.transport = None
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()
            # Whoever does not read keeps it no longer.
            asyncio.get_running_loop().call_later(_LINGER, self.other.abort)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class _Client(_Half):
    """The end at the client."""

    def __init__(self, front: Front, granted: Pass) -> None:
        super().__init__(front)
        self.granted = granted
        self.heard = 0.0
        self.is_known = False
        self._first = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        self.heard = loop.time()
        self._timer = loop.call_later(_FIRST_WORD, self.abort)
        self.ends = (transport.get_extra_info("sockname"), transport.get_extra_info("peername"))
        self.name = self.front.add(self)

    def buffer_updated(self, nbytes: int) -> None:
        self.heard = asyncio.get_running_loop().time()
        if self.other is not None:
            super().buffer_updated(nbytes)
            return
        self._first += self.front.buffer[:nbytes]
        if self._first[: len(_PREFACE)] != _PREFACE[: len(self._first)]:
            self.abort()
        elif len(self._first) >= len(_PREFACE) and self.transport is not None:
            self._timer.cancel()
            self.front.new.remove(self)
            self.front.strangers.has_spoken(self)
            self.transport.pause_reading()
            task = asyncio.get_running_loop().create_task(self.front.reach(self))
            self.front.tasks.add(task)
            task.add_done_callback(self.front.tasks.discard)

    def begin(self, backend: _Backend) -> bytes:
        """GRPC is there: return what came before."""
        first, self._first = self._first, b""
        self.other = backend
        if self.transport is None:
            backend.abort()
        else:
            self.transport.resume_reading()
        return first

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._timer.cancel()
        self.granted.give_back()
        self.front.new.remove(self)
        self.front.strangers.remove(self)
        self.front.clients.pop(self.name, None)


class _Backend(_Half):
    """The end at gRPC."""

    def __init__(self, front: Front, client: _Client) -> None:
        super().__init__(front)
        self.other = self._client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        cast("asyncio.Transport", transport).write(self._client.begin(self))

    def buffer_updated(self, nbytes: int) -> None:
        self._client.heard = asyncio.get_running_loop().time()
        super().buffer_updated(nbytes)
