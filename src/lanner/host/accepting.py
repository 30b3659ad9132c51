"""Acceptance of connections, in the same way for every listener and within its budget.

A connection that is not admitted is closed at once, so its client learns of it and no descriptor is
held. If the process has no descriptor left, accepting pauses for a second. Both are logged within
the limits of `security.log_lines`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lanner.host.budget import Pass
from lanner.host.early_ports import take_early
from lanner.security.log_lines import log_of_peer
from lanner.security.peer_address import peer_of

if TYPE_CHECKING:
    from lanner.host.budget import Door

_LOG = logging.getLogger(__name__)

_BACKLOG: Final = 1024
# Connections that are accepted before other work has its turn.
_AT_ONCE: Final = 64
# Seconds: before accepting is tried again, and for the TLS handshake.
_PAUSE: Final = 1.0
_TLS_TIMEOUT: Final = 20.0
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# The content of SO_PEERCRED: process, user, group.
_UCRED: Final = struct.Struct("3i")

# Makes the protocol of an admitted connection. It returns the pass when the connection is lost.
MakeProtocol = Callable[[Pass], asyncio.BaseProtocol]


def listen_tcp(address: str, port: int) -> socket.socket:
    """Return a listening socket at an address, which is not a name; port 0 is any port.

    Raises OSError.
    """
    early = take_early(address, port)
    if early is not None:
        early.setblocking(False)
        early.listen(_BACKLOG)
        return early
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    where: tuple[Any, ...] = socket.getaddrinfo(address, port, family, socket.SOCK_STREAM, flags=flags)[0][4]
    listening = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(where)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def local_user(connected: socket.socket) -> int:
    """Return the user at the other end of a Unix socket, as reported by the kernel."""
    uid: int = _UCRED.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))[1]
    return uid


def peer_at(connected: socket.socket) -> str:
    """Return the peer at the other end, in the form that the budget counts."""
    if connected.family == socket.AF_UNIX:
        return f"uid {local_user(connected)}"
    return peer_of(str(connected.getpeername()[0]))


class Handshake:
    """An accepted connection that has no protocol yet, mostly because of its TLS handshake."""

    def __init__(self, granted: Pass, task: asyncio.Task[None]) -> None:
        self.granted = granted
        self._task = task

    def abort(self) -> None:
        """End it; harmless if it has ended."""
        self._task.cancel()


class Acceptor:
    """Accepts for one listener in the running loop, until it is closed."""

    def __init__(
        self,
        listening: socket.socket,
        door: Door,
        make_protocol: MakeProtocol,
        *,
        make_room: Callable[[str], bool] = lambda _: False,
        tls: ssl.SSLContext | None = None,
        on_handshake: Callable[[Handshake], Callable[[], None]] | None = None,
    ) -> None:
        """Begin to accept.

        `make_room` closes an unidentified connection in favour of a new one of a peer; it returns
        False if there is none. `on_handshake` is called with each connection that begins; the
        function that it returns is called when the connection has its protocol, or has ended.
        """
        self.port: int = 0 if listening.family == socket.AF_UNIX else listening.getsockname()[1]
        self._listening = listening
        self._door = door
        self._make_protocol = make_protocol
        self._make_room = make_room
        self._tls = tls
        self._on_handshake = on_handshake
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._loop.add_reader(listening, self._accept)

    def close(self) -> None:
        """Accept no more connections. Existing ones stay."""
        if self._listening.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        else:
            self._loop.remove_reader(self._listening)
        self._listening.close()
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until nothing is under way after `close`."""
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connected, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    # The connection was gone before it was accepted.
                    continue
                log_of_peer(
                    _LOG, logging.ERROR, "accept", "", "%s: no connection can be taken: %s", self._door.name, error
                )
                self._loop.remove_reader(self._listening)
                self._pause = self._loop.call_later(_PAUSE, self._go_on)
                return
            self._admit(connected)

    def _go_on(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening, self._accept)

    def _admit(self, connected: socket.socket) -> None:
        try:
            peer = peer_at(connected)
        except OSError:
            connected.close()
            return
        granted = self._door.admit(peer)
        if granted is None and self._make_room(peer):
            granted = self._door.admit(peer)
        if granted is None:
            connected.close()
            log_of_peer(
                _LOG,
                logging.WARNING,
                f"{self._door.name} refused",
                peer,
                "%s: a connection of %s was refused: %s",
                self._door.name,
                peer,
                self._door.situation(peer),
            )
            return
        connected.setblocking(False)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                # Perhaps before it began.
                granted.give_back()
                connected.close()

        task = self._loop.create_task(self._begin(connected, granted))
        self._tasks.add(task)
        task.add_done_callback(done)
        if self._on_handshake is not None:
            ended = self._on_handshake(Handshake(granted, task))
            task.add_done_callback(lambda _: ended())

    async def _begin(self, connected: socket.socket, granted: Pass) -> None:
        options: dict[str, Any] = {} if self._tls is None else {"ssl": self._tls, "ssl_handshake_timeout": _TLS_TIMEOUT}
        try:
            await self._loop.connect_accepted_socket(lambda: self._make_protocol(granted), connected, **options)
        except BaseException as error:
            granted.give_back()
            connected.close()
            if not isinstance(error, OSError):
                raise
            # The client has disconnected, or the TLS handshake has failed.
            text = "%s: a connection of %s ended at its beginning: %s"
            log_of_peer(_LOG, logging.INFO, "beginning", granted.peer, text, self._door.name, granted.peer, error)
