"""The server process: connections within a budget, the application, and the end when idle."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import uvicorn
import uvloop
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from lanner.host.accepting import Acceptor
from lanner.host.budget import Budget, Door, Pass, Resource, Unfinished, raise_descriptor_limit
from lanner.http.app import create_app
from lanner.http.log_ons import LogOns, ThroughDaemon
from lanner.http.sessions import COUNT_FOR
from lanner.security.log_lines import log_of_peer
from lanner.security.printable import PrintableFormatter

if TYPE_CHECKING:
    from fastapi import FastAPI

    from lanner.host.accepting import Handshake

_LOG = logging.getLogger(__name__)

# Not in the specification: seconds until the headers of a request must be complete, and between two
# checks for idleness.
_HEADER_TIMEOUT: Final = 20.0
_TICK: Final = 1.0
_KEEP_ALIVE: Final = 60
_GRACE: Final = 2.0
_SHARE: Final = 0.9
# Not in the specification: octets of answers that clients have not taken, of all and of one
# address, and seconds in which a client takes some of them.
_MAX_UNSENT: Final = 256 << 20
_MAX_UNSENT_OF_PEER: Final = 64 << 20
_UNREAD_TIMEOUT: Final = 60.0


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The daemon's settings for this process (`daemon/http_process.py`)."""

    hosts: tuple[str, ...] = ()
    tls_certificate: str | None = None
    tls_key: str | None = None
    log_level: str = "INFO"
    idle_timeout: float = 300.0
    session_timeout: float = 1800.0
    max_connections: int = 512
    max_connections_per_peer: int = 128


class Connection(H11Protocol):
    """A uvicorn connection with a pass of the budget, and time limits for slow clients."""

    def __init__(
        self, config: uvicorn.Config, state: ServerState, granted: Pass, unsent: Unfinished[Connection]
    ) -> None:
        # Requests find this in their state.
        super().__init__(config, state, {COUNT_FOR: self._count_for})
        self.granted = granted
        self.began = asyncio.get_running_loop().time()
        self._slow: asyncio.TimerHandle | None = None
        self._is_known = False
        self._unsent = unsent
        self._unread: asyncio.TimerHandle | None = None

    def _count_for(self, user: str) -> bool:
        """Count the connection for a user; returns False if the user has too many."""
        self._is_known = self.granted.count_for(user)
        return self._is_known

    @property
    def worth(self) -> int | None:
        """How soon the connection is closed to make room, 0 first; None: never.

        It depends on whether a user has made a request, and whether a request is under way.
        """
        if self._is_known:
            return None if self._is_answering else 1
        return 2 if self._is_answering else 0

    def abort(self) -> None:
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    @property
    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _watch(self) -> None:
        """Start or stop the timer that disconnects a client whose request stalls.

        Between two requests, uvicorn has its own timer.
        """
        is_answering = self._is_answering
        if is_answering and self._slow is not None:
            self._slow.cancel()
            self._slow = None
        elif not is_answering and self._slow is None:
            self._slow = asyncio.get_running_loop().call_later(_HEADER_TIMEOUT, self._hang_up)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _hang_up(self) -> None:
        self._slow = None
        if not self._is_answering:
            self.transport.abort()

    def pause_writing(self) -> None:
        """Count an answer that the client has not taken, and watch that it takes it."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_watching_reader()

    def _watch_reader(self, before: int | None = None) -> None:
        left = self.transport.get_write_buffer_size()
        if before is not None and left >= before:
            self.transport.abort()
            return
        self._unread = asyncio.get_running_loop().call_later(_UNREAD_TIMEOUT, self._watch_reader, left)
        self._unsent.set(self, self.granted.peer, left)

    def _stop_watching_reader(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
            self._unsent.set(self, self.granted.peer, 0)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching_reader()
        if self._slow is not None:
            self._slow.cancel()
        self.granted.give_back()
        super().connection_lost(exc)


@dataclass(frozen=True, slots=True, eq=False)
class _Shaking:
    """A connection at its beginning, such as in its TLS handshake."""

    granted: Pass
    abort: Callable[[], None]
    began: float
    worth: int = 0


_Removable: TypeAlias = "Connection | _Shaking"


class Server:
    """Serves a listening socket until it is stopped, or idle for long."""

    def __init__(self, listening: socket.socket, log_ons: LogOns, settings: ServerSettings) -> None:
        self._listening = listening
        self._settings = settings
        is_tls = settings.tls_certificate is not None
        self.app: FastAPI = create_app(log_ons, settings.hosts, session_timeout=settings.session_timeout, is_tls=is_tls)
        self._state = ServerState()
        self._handshakes: set[_Shaking] = set()
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def run(self, *, ends_idle: bool) -> None:
        """Serve until stopped or idle."""
        settings = self._settings
        config = uvicorn.Config(
            self.app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            # With a library for them, uvicorn would give the connection to another protocol, which
            # has no pass of the budget.
            ws="none",
            timeout_keep_alive=_KEEP_ALIVE,
        )
        config.load()
        budget = Budget(raise_descriptor_limit())
        unsent = Unfinished[Connection](
            budget.add(Resource("http bytes of unsent answers", _MAX_UNSENT, _MAX_UNSENT_OF_PEER)), _stop_answering
        )
        door = Door(
            budget,
            "http",
            limit=settings.max_connections,
            per_peer=settings.max_connections_per_peer,
            share=_SHARE,
        )
        acceptor = Acceptor(
            self._listening,
            door,
            lambda granted: Connection(config, self._state, granted, unsent),
            make_room=partial(self._make_room, door),
            tls=_tls(settings),
            on_handshake=self._handshake_began,
        )
        try:
            await self._wait(ends_idle=ends_idle)
        finally:
            acceptor.close()
            await acceptor.wait_closed()
            for connection in list(self._state.connections):
                connection.shutdown()
            if self._state.tasks:
                await asyncio.wait(self._state.tasks, timeout=_GRACE)
            await self.app.state.sessions.close()

    def _make_room(self, door: Door, peer: str) -> bool:
        """End a connection for a new one of `peer`: its own, or one of a peer that has more."""
        counted, is_greedy = door.connections, door.is_greedy(peer)
        found: _Removable | None = None
        present: list[_Removable] = [*self._handshakes, *cast("set[Connection]", self._state.connections)]
        for one in present:
            whose = one.granted.peer
            if one.granted.is_returned or (whose != peer and (is_greedy or counted.of(whose) <= counted.of(peer))):
                continue
            if one.worth is not None and (found is None or (one.worth, one.began) < (found.worth, found.began)):
                found = one
        if found is None:
            return False
        whose = found.granted.peer
        log_of_peer(_LOG, logging.WARNING, "room", whose, "%s: hung up to make room for another connection", whose)
        found.granted.give_back()
        found.abort()
        return True

    def _handshake_began(self, handshake: Handshake) -> Callable[[], None]:
        one = _Shaking(handshake.granted, handshake.abort, asyncio.get_running_loop().time())
        self._handshakes.add(one)
        return lambda: self._handshakes.discard(one)

    async def _wait(self, *, ends_idle: bool) -> None:
        busy = time.monotonic()
        while True:
            try:
                async with asyncio.timeout(_TICK):
                    await self._stop.wait()
                return
            except TimeoutError:
                pass
            await self.app.state.sessions.tidy()
            if self._state.connections or len(self.app.state.sessions):
                busy = time.monotonic()
            elif ends_idle and time.monotonic() - busy > self._settings.idle_timeout:
                return


def _stop_answering(connection: Connection, reason: str) -> None:
    peer = connection.granted.peer
    log_of_peer(_LOG, logging.WARNING, "unsent", peer, "%s: hung up: %s", peer, reason)
    connection.abort()


def _tls(settings: ServerSettings) -> ssl.SSLContext | None:
    if settings.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    return context


def main(listening: int, daemon: int, settings: int) -> None:
    """Run the process that the daemon starts."""
    with os.fdopen(settings, "rb") as file:
        told: dict[str, Any] = json.load(file)
    given = ServerSettings(**{**told, "hosts": tuple(told["hosts"])})
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    # Do not log what unauthenticated clients send. Our own faults are logged by `problems`, with a
    # rate limit.
    for name in ("uvicorn", "python_multipart"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("lanner").setLevel(given.log_level)
    with socket.socket(fileno=listening) as taken, socket.socket(fileno=daemon) as pair:
        uvloop.run(_serve(taken, pair, given))


async def _serve(listening: socket.socket, daemon: socket.socket, settings: ServerSettings) -> None:
    loop = asyncio.get_running_loop()
    listening.setblocking(False)
    # The daemon sends nothing on this socket. If it becomes readable, the daemon has ended.
    daemon.setblocking(False)
    server = Server(listening, ThroughDaemon(daemon), settings)
    loop.add_reader(daemon, server.stop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    await server.run(ends_idle=True)
