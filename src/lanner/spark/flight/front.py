"""The port of the Flight service: accepts connections within the budget and relays them to gRPC.

gRPC accepts as many connections as there are descriptors, and pyarrow has no setting for that. So
gRPC listens on a Unix socket in the data directory, which only this process uses, and an event loop
in a thread of its own has the port. A client reaches gRPC only after it has sent the HTTP/2
preface. TLS ends here.

gRPC reports only the name of the Unix socket of a connection. `Front.peer` finds the client's
address by this name. The names are random: a local user who could predict one could bind it first.

gRPC reads whole messages, of any length, before authentication. So messages are measured on the way
(`grpc_messages`), and one that is too long ends the connection. Until a connection has carried a
call of an account, no more is read from it than a request may have.
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
from lanner.host.budget import Newcomers, Resource, Unfinished
from lanner.host.loop_thread import LoopThread
from lanner.host.strangers import Strangers
from lanner.rpc.unix_path import short_path
from lanner.security.log_lines import log_of_peer
from lanner.spark.flight.arrow_headers import MessageRefused
from lanner.spark.flight.errors import TooBusy
from lanner.spark.flight.grpc_messages import Messages
from lanner.spark.flight.local_user import user_of
from lanner.spark.flight.requests import MAX_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.host.budget import Budget, Door, Pass
    from lanner.spark.flight.settings import FlightSettings

_LOG = logging.getLogger(__name__)

# RFC 9113 3.4: the first bytes of a client.
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Not in the specification: limits on connections; times are in seconds.
_MAX_NEW: Final = 128  # connections that have sent nothing
_FIRST_WORD: Final = 10.0  # until a connection must send something
_QUIET: Final = 60.0  # of silence, after which a connection may be closed to make room for another
_LINGER: Final = 10.0  # for the client to read the last bytes
_READ_BUFFER: Final = 256 << 10
_WRITE_HIGH_WATER: Final = 1 << 20
# Not in the specification: octets of partially received messages. `_MAX_OF_STRANGER`, for a client
# that has not made a call with an account, is a request and the protocol buffers around it.
_MAX_OF_STRANGER: Final = MAX_SIZE + 0x1_0000
_MAX_UNFINISHED: Final = 512 << 20
_MAX_UNFINISHED_OF_STRANGERS: Final = 64 << 20
_MAX_UNFINISHED_PER_STRANGER: Final = 16 << 20
# Not in the specification: seconds until such a client must make that call, once it has sent so
# much.
_PATIENCE: Final = 60.0
# Reasons to pause reading from a client.
_UNSENT, _REACHING, _STRANGER = "unsent", "reaching", "stranger"


def tls_context(settings: FlightSettings) -> ssl.SSLContext | None:
    """Return the TLS context of the service, or None if it is not encrypted.

    Raises OSError if the files are missing or wrong.
    """
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    context.set_alpn_protocols(["h2"])
    return context


class Front:
    """The listener. It accepts connections from its construction until `stop`."""

    def __init__(
        self,
        listening: socket.socket,
        backend: Path,
        door: Door,
        tls: ssl.SSLContext | None,
        *,
        budget: Budget,
        max_message: int,
    ) -> None:
        """Listen. `backend`: the socket of gRPC. `max_message`: octets of one client message."""
        self._backend = backend
        self._door = door
        self.max_message = max_message
        self._unfinished = {
            is_known: Unfinished[_Client](
                budget.add(Resource(f"{door.name} bytes of unfinished messages{whose}", *most)), self._evict
            )
            for is_known, whose, *most in (
                (True, "", _MAX_UNFINISHED, None),
                (False, " of strangers", _MAX_UNFINISHED_OF_STRANGERS, _MAX_UNFINISHED_PER_STRANGER),
            )
        }
        self.new: Newcomers[_Client | Handshake] = Newcomers(_MAX_NEW)
        # Connections without a call of an account so far.
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
        """Stop accepting connections, and end the existing ones."""
        self._loop.call(self._stop())
        self._loop.stop()

    async def _stop(self) -> None:
        self._acceptor.close()
        await self._acceptor.wait_closed()
        for task in self.tasks:
            task.cancel()
        for client in list(self.clients.values()):
            client.abort()
        # Let their `connection_lost` run.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def peer(self, grpc_peer: str) -> str:
        """Return the address of a call's client, by gRPC's name for it; thread-safe."""
        client = self._client(grpc_peer)
        return "" if client is None else client.granted.peer

    def user(self, grpc_peer: str) -> int | None:
        """Return the local user of a client, or None if it is on another machine; thread-safe."""
        client = self._client(grpc_peer)
        return None if client is None else user_of(*client.ends)

    def host(self, grpc_peer: str) -> str | None:
        """Return the local address to which a client has connected; thread-safe."""
        client = self._client(grpc_peer)
        return None if client is None else str(client.ends[0][0])

    def logged_on(self, grpc_peer: str, user: str) -> None:
        """Note that a client has made a call of an account; thread-safe.

        Raises TooBusy if the user has too many connections.
        """
        client = self._client(grpc_peer)
        if client is not None and not client.is_known:
            if not client.granted.count_for(user):
                raise TooBusy(f"{user} has too many connections from {client.granted.peer}: close some of them")
            client.is_known = True
            with contextlib.suppress(RuntimeError):  # the loop is stopping
                self._running.call_soon_threadsafe(self._known, client)

    def _known(self, client: _Client) -> None:
        self.strangers.remove(client)
        self._unfinished[False].set(client, client.granted.peer, 0)
        client.known()

    def count(self, client: _Client, size: int) -> None:
        """Count the octets of a client's messages that have arrived in part."""
        self._unfinished[client.is_counted_as_known].set(client, client.granted.peer, size)

    def forget(self, client: _Client) -> None:
        """Remove a client that has disconnected."""
        self.clients.pop(client.name, None)
        for unfinished in self._unfinished.values():
            unfinished.set(client, client.granted.peer, 0)

    def _evict(self, client: _Client, reason: str) -> None:
        peer = client.granted.peer
        log_of_peer(_LOG, logging.WARNING, "unfinished", peer, "%s: hung up: %s", peer, reason)
        client.abort()

    def _client(self, grpc_peer: str) -> _Client | None:
        return self.clients.get(grpc_peer.rpartition("-")[2])

    def add(self, client: _Client) -> str:
        """Register a connection, and return a new name for it."""
        self._handshake_ended(client.granted)
        name = secrets.token_hex(16)
        self.clients[name] = client
        self._add_stranger(client)
        return name

    def hang_up(self, grpc_peer: str) -> None:
        """End the connection of a client; thread-safe."""
        client = self._client(grpc_peer)
        if client is not None:
            with contextlib.suppress(RuntimeError):  # the loop is stopping
                self._running.call_soon_threadsafe(self._hang_up, client)

    def _handshake_began(self, handshake: Handshake) -> Callable[[], None]:
        """Count a connection from its first byte.

        The protocol gets a TLS connection only after the handshake.
        """
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
        """End a stranger's connection, or else a silent one, for a new one of `peer`."""
        is_greedy = self._door.is_greedy(peer)
        found = self.strangers.victim(peer, is_greedy=is_greedy) or self._silent(peer, is_greedy=is_greedy)
        if found is not None:
            self._hang_up(found)
        return found is not None

    def _silent(self, peer: str, *, is_greedy: bool) -> _Client | None:
        """Return the connection that has been silent longest, or None.

        It must belong to `peer`, or to a peer that has more connections.
        """
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
        """Connect a client to gRPC."""
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
    """One end of a relayed connection."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.other: _Half | None = None
        self.transport: asyncio.Transport | None = None
        # Reasons to pause reading.
        self._reasons: set[str] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self.front.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(bytes(self.front.buffer[:nbytes]))

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.pause(_UNSENT)

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.resume(_UNSENT)

    def pause(self, reason: str) -> None:
        """Pause reading for one more reason."""
        if not self._reasons and self.transport is not None:
            self.transport.pause_reading()
        self._reasons.add(reason)

    def resume(self, reason: str) -> None:
        """Resume reading if that was the last reason to pause."""
        if reason in self._reasons:
            self._reasons.remove(reason)
            if not self._reasons and self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.transport = None
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()
            # A peer that does not read does not keep the connection open longer than this.
            asyncio.get_running_loop().call_later(_LINGER, self.other.abort)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class _Client(_Half):
    """The client's end."""

    def __init__(self, front: Front, granted: Pass) -> None:
        super().__init__(front)
        self.granted = granted
        self.heard = 0.0
        self.is_known = False
        # The same, as seen by the thread of the loop.
        self.is_counted_as_known = False
        self._first = b""
        self._messages = Messages(front.max_message)
        # Whether it runs out if no call of an account comes.
        self._timer_runs = False

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
            if self._is_sound(self.front.buffer[:nbytes]):
                super().buffer_updated(nbytes)
            return
        self._first += self.front.buffer[:nbytes]
        if self._first[: len(_PREFACE)] != _PREFACE[: len(self._first)]:
            self.abort()
        elif len(self._first) >= len(_PREFACE) and self.transport is not None:
            self._timer.cancel()
            self.front.new.remove(self)
            self.front.strangers.has_spoken(self)
            self.pause(_REACHING)
            task = asyncio.get_running_loop().create_task(self.front.reach(self))
            self.front.tasks.add(task)
            task.add_done_callback(self.front.tasks.discard)

    def _is_sound(self, data: memoryview) -> bool:
        """Check received bytes. Returns False if they end the connection."""
        messages = self._messages
        before = messages.unfinished
        try:
            messages.take(data)
        except MessageRefused as error:
            peer = self.granted.peer
            log_of_peer(_LOG, logging.WARNING, "message", peer, "%s: hung up: %s", peer, error)
            self.abort()
            return False
        if messages.unfinished != before:
            self.front.count(self, messages.unfinished)
            if not self.is_counted_as_known and messages.unfinished > _MAX_OF_STRANGER and not self._timer_runs:
                self.pause(_STRANGER)
                self._timer = asyncio.get_running_loop().call_later(_PATIENCE, self.abort)
                self._timer_runs = True
        return True

    def known(self) -> None:
        """Resume after a call of an account: the client may send more."""
        self.is_counted_as_known = True
        if self.transport is None:
            return
        self.front.count(self, self._messages.unfinished)
        if self._timer_runs:
            self._timer_runs = False
            self._timer.cancel()
            self.resume(_STRANGER)

    def begin(self, backend: _Backend) -> bytes:
        """Return the bytes that came before gRPC was connected."""
        first, self._first = self._first, b""
        self.other = backend
        if self.transport is None or not self._is_sound(memoryview(first)):
            backend.abort()
            return b""
        self.resume(_REACHING)
        return first

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._timer.cancel()
        self.granted.give_back()
        self.front.new.remove(self)
        self.front.strangers.remove(self)
        self.front.forget(self)


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
