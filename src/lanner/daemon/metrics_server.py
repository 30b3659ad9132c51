"""HTTP for the metrics: one request and one answer per connection.

It runs in the loop, so that no connection costs a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from lanner.host.accepting import Acceptor
from lanner.host.budget import Newcomers
from lanner.security.log_lines import log_of_peer

if TYPE_CHECKING:
    from lanner.host.budget import Door, Pass

_LOG = logging.getLogger(__name__)

# Not in the specification: limits on clients.
_MAX_REQUEST: Final = 16 << 10  # octets of a request
_TIMEOUT: Final = 10.0  # seconds, for the request to arrive and for the client to read the answer
_MAX_NEW: Final = 32  # connections that have not sent a request
_END: Final = b"\r\n\r\n"


class MetricsServer:
    """A server that answers in the running loop, from its construction until it is stopped."""

    def __init__(self, listening: socket.socket, door: Door, registry: CollectorRegistry) -> None:
        self._door = door
        self._registry = registry
        self.new: Newcomers[_Request] = Newcomers(_MAX_NEW)
        self.connections: set[_Request] = set()
        # One collection at a time: each asks the engine for every queue.
        self.collecting = asyncio.Lock()
        self._acceptor = Acceptor(listening, door, lambda granted: _Request(self, granted), make_room=self._make_room)
        self.port = self._acceptor.port

    async def stop(self) -> None:
        self._acceptor.close()
        await self._acceptor.wait_closed()
        for connection in list(self.connections):
            connection.abort()

    def _make_room(self, peer: str) -> bool:
        oldest = self.new.oldest(peer if self._door.is_greedy(peer) else None)
        if oldest is not None:
            self.hang_up(oldest)
        return oldest is not None

    def hang_up(self, connection: _Request) -> None:
        """Close a connection to make room for another one."""
        self.new.remove(connection)
        connection.abort()
        connection.granted.give_back()

    async def answer(self, line: str, headers: dict[str, str]) -> bytes:
        """Return the complete answer to a request."""
        method, _, rest = line.partition(" ")
        target = urlsplit(rest.partition(" ")[0])
        if method not in ("GET", "HEAD"):
            return _answer("405 Method Not Allowed", "text/plain", b"GET or HEAD\n")
        if target.path not in ("/", "/metrics"):
            return _answer("404 Not Found", "text/plain", b"the metrics are at /metrics\n")
        names = parse_qs(target.query).get("name[]", [])
        async with self.collecting:
            body, content_type = await asyncio.to_thread(metrics_text, self._registry, headers.get("accept", ""), names)
        return _answer("200 OK", content_type, body, is_head=method == "HEAD")


def metrics_text(registry: CollectorRegistry, accept: str, names: Sequence[str]) -> tuple[bytes, str]:
    """Return the metrics of these names, or all, and their content type.

    The format is one that the client accepts.
    """
    encode, content_type = choose_encoder(accept)
    if names:
        registry = cast("CollectorRegistry", registry.restricted_registry(names))
    return encode(registry), content_type


def _answer(status: str, content_type: str, body: bytes, *, is_head: bool = False) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join(lines).encode() + _END + (b"" if is_head else body)


class _Request(asyncio.Protocol):
    """One connection: one request."""

    def __init__(self, server: MetricsServer, granted: Pass) -> None:
        self._server = server
        self.granted = granted
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._timer = asyncio.get_running_loop().call_later(_TIMEOUT, self.abort)
        self._server.connections.add(self)
        self._server.new.add(self, self.granted.peer)
        excess = self._server.new.excess()
        if excess is not None:
            self._server.hang_up(excess)

    def data_received(self, data: bytes) -> None:
        if self._task is not None:
            return
        self._received += data
        if len(self._received) > _MAX_REQUEST:
            self.abort()
        elif _END in self._received:
            self._server.new.remove(self)
            self._timer.cancel()
            self._task = asyncio.get_running_loop().create_task(self._answer())

    async def _answer(self) -> None:
        line, *rest = self._received.partition(_END)[0].decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (one.partition(":") for one in rest)}
        try:
            answer = await self._server.answer(line, headers)
        except Exception:  # noqa: BLE001 (logged, and the client gets an error)
            peer = self.granted.peer
            log_of_peer(_LOG, logging.ERROR, "failed", peer, "the metrics could not be collected", exc_info=True)
            answer = _answer("500 Internal Server Error", "text/plain", b"the log has the reason\n")
        if self._transport is not None:
            self._transport.write(answer)
            self._transport.close()
            self._timer = asyncio.get_running_loop().call_later(_TIMEOUT, self.abort)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        self._timer.cancel()
        if self._task is not None:
            with contextlib.suppress(RuntimeError):
                self._task.cancel()
        self.granted.give_back()
        self._server.new.remove(self)
        self._server.connections.discard(self)
