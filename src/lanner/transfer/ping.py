"""Pings: asking another queue manager whether it would accept a session, and answering.

Implements MS-MQQB 2.1.2 and 3.1.7.6-3.1.7.9. `Ping` and `answer_ping` do no I/O; `ping` and
`start_ping_service` use UDP.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from lanner.host.budget import Budget, Rate
from lanner.model.enums import OperatingSystemType
from lanner.model.errors import RemoteProtocolError
from lanner.security.peer_address import peer_of
from lanner.transfer import packet_log
from lanner.transfer.settings import TransferSettings
from lanner.wire.ping_packet import PingPacket
from lanner.wire.reader import Reader

_LOG = logging.getLogger(__name__)

# 3.1.2.9 Ping Response Timer: "always one second".
PING_RESPONSE_TIMEOUT = 1.0

# 2.2.7 RC: the operating systems of the server class.
_SERVER_CLASS = frozenset({OperatingSystemType.WIN_SERVER, OperatingSystemType.WIN_ENT})

# Returns whether a session of this queue manager at this address would be refused now.
Refuses = Callable[[UUID, str], bool]


def pings_first(settings: TransferSettings, *, is_retry: bool) -> bool:
    """Return whether an attempt begins with a ping (3.1.5.2.2).

    An attempt of the Session Retry Connect Timer does not.
    """
    return settings.pings_before_connecting and not is_retry


class PingInitiator:
    """The state that all pings of a queue manager share: its name and PingCookie (3.1.1.3)."""

    def __init__(
        self, own_guid: UUID, operating_system_type: OperatingSystemType, monotonic: Callable[[], float]
    ) -> None:
        self.monotonic = monotonic
        self.ping_cookie = 0
        self._own_guid = own_guid
        self._flags = 0 if operating_system_type in _SERVER_CLASS else PingPacket.RC

    def begin(self) -> Ping:
        """Create a Ping Request and start its timer (3.1.7.6 Send Ping Request, steps 1 to 7)."""
        self.ping_cookie = self.ping_cookie + 1 & 0xFFFF_FFFF
        return Ping(PingPacket(self._flags, self.ping_cookie, self._own_guid), self.monotonic)


class Ping:
    """One Ping Request and its result.

    Each request has a socket of its own, so a response is compared with this request's cookie. The
    document compares it with the newest cookie, so that a ping to another computer meanwhile would
    make this one fail.
    """

    def __init__(self, request: PingPacket, monotonic: Callable[[], float]) -> None:
        self.request = request.pack()
        # Whether the acceptor accepts a session (3.1.7.6 rStatus); None: not known yet.
        self.status: bool | None = None
        self._cookie = request.cookie
        self._monotonic = monotonic
        self._deadline = monotonic() + PING_RESPONSE_TIMEOUT

    def next_deadline(self) -> float | None:
        """Return when the Ping Response Timer expires; None if it does not run."""
        return self._deadline if self.status is None else None

    def receive(self, datagram: bytes) -> None:
        """Handle a datagram (3.1.7.8 Receive Ping Response).

        It has no effect unless it is a response to this request and in time.
        """
        self.on_timer()
        if self.status is not None:
            return
        try:
            response = PingPacket.unpack(Reader(datagram))
        except RemoteProtocolError as error:
            _LOG.debug("a datagram is no Ping Response: %s", error)
            return
        if response.cookie == self._cookie:
            self.status = not response.is_refused

    def on_timer(self) -> None:
        """Handle the Ping Response Timer event (3.1.6.8), if the timer has expired."""
        if self.status is None and self._monotonic() >= self._deadline:
            self.status = False


def answer_ping(datagram: bytes, own_guid: UUID, refuses: Callable[[UUID], bool]) -> bytes | None:
    """Return the response to a Ping Request (3.1.7.7); None for anything else.

    A response is as long as the shortest request, so a forged request cannot be used to send a
    third party more bytes than the forger sends.
    """
    try:
        request = PingPacket.unpack(Reader(datagram))
    except RemoteProtocolError as error:
        _LOG.debug("a datagram is no Ping Request: %s", error)
        return None
    flags = request.flags & PingPacket.RC
    if refuses(request.qm_guid):
        flags |= PingPacket.RF
    return PingPacket(flags, request.cookie, own_guid).pack()


# UDP
# --------------------------------------------------------------------------------------------------


class PingService(asyncio.DatagramProtocol):
    """The service that answers Ping Requests, to the address and port of origin (2.1.2)."""

    def __init__(self, own_guid: UUID, refuses: Refuses, monotonic: Callable[[], float], rate: Rate) -> None:
        self._own_guid = own_guid
        self._refuses = refuses
        self._rate = rate
        self._monotonic = monotonic
        self._transport: asyncio.DatagramTransport | None = None
        self._own_port = 0
        self._next_to_own_port = monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Some event loops have transports that are not subclasses of it.
        self._transport = cast("asyncio.DatagramTransport", transport)
        self._own_port = self.address[1]

    @property
    def address(self) -> tuple[str, int]:
        """The address and port on which it listens."""
        if self._transport is None:
            raise RuntimeError("the ping service does not listen")
        sockname = self._transport.get_extra_info("sockname")
        return sockname[0], sockname[1]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if self._transport is None or self._transport.is_closing() or not self._rate.allows(peer_of(addr[0])):
            return
        if self._may_be_a_service(addr[1]):
            return
        response = answer_ping(data, self._own_guid, lambda guid: self._refuses(guid, addr[0]))
        if response is not None:
            if packet_log.is_enabled():
                packet_log.ping_received("Request", data, addr[0])
                packet_log.ping_sent("Response", response, addr[0])
            self._transport.sendto(response, addr)

    def _may_be_a_service(self, port: int) -> bool:
        """Return whether a datagram may come from a ping service, so that it is not answered.

        A response looks like a request, so two services could answer each other forever after one
        forged datagram. One datagram a second from the services' own port is answered. The first
        that is not answered ends the loop.
        """
        if port != self._own_port:
            return False
        now = self._monotonic()
        if now < self._next_to_own_port:
            return True
        self._next_to_own_port = now + PING_RESPONSE_TIMEOUT
        return False

    def error_received(self, exc: Exception) -> None:
        _LOG.debug("a Ping Response was not delivered: %s", exc)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def start_ping_service(
    settings: TransferSettings,
    host: str,
    own_guid: UUID,
    refuses: Refuses,
    monotonic: Callable[[], float],
    budget: Budget | None = None,
) -> PingService | None:
    """Listen on UDP, unless the settings disable answers to pings.

    Raises OSError if the address cannot be used.
    """
    if not settings.answers_pings:
        return None
    rate = Rate("pings a second", settings.max_pings, settings.max_pings_per_peer, monotonic)
    if budget is not None:
        budget.show(rate.name, rate.usage)
    _, service = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: PingService(own_guid, refuses, monotonic, rate), sock=_open_socket((host, settings.ping_port))
    )
    return service


def _open_socket(local: tuple[str, int], remote: tuple[str, int] | None = None) -> socket.socket:
    """Return a UDP socket between addresses, which are never names.

    Created here, because uvloop leaves a socket open if it cannot be bound.
    """
    sock = socket.socket(_family(local[0]), socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.bind(_sockaddr(local))
        if remote is not None:
            sock.connect(_sockaddr(remote))
    except BaseException:
        sock.close()
        raise
    return sock


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _sockaddr(address: tuple[str, int]) -> tuple[Any, ...]:
    """Return an address in the form that the operating system takes.

    The zone of an IPv6 address is a number there.
    """
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return socket.getaddrinfo(*address, type=socket.SOCK_DGRAM, flags=flags)[0][4]


class _PingClient(asyncio.DatagramProtocol):
    """One ping from its own source port.

    The socket is connected, so only datagrams from the pinged address arrive.
    """

    def __init__(self, ping: Ping, done: asyncio.Future[None]) -> None:
        self._ping = ping
        self._done = done

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if packet_log.is_enabled():
            packet_log.ping_received("Response", data, addr[0])
        self._ping.receive(data)
        if self._ping.status is not None and not self._done.done():
            self._done.set_result(None)

    def error_received(self, exc: Exception) -> None:
        """End the ping, because no process listens there. The timer would have the same result."""
        _LOG.debug("a Ping Request was not delivered: %s", exc)
        if not self._done.done():
            self._done.set_result(None)


async def ping(
    initiator: PingInitiator, address: str, settings: TransferSettings, local_address: str | None = None
) -> bool:
    """Return whether the queue manager at this address would accept a session (3.1.7.6)."""
    loop = asyncio.get_running_loop()
    attempt = initiator.begin()
    done: asyncio.Future[None] = loop.create_future()
    if local_address is None or _family(local_address) is not _family(address):
        local_address = "::" if _family(address) is socket.AF_INET6 else "0.0.0.0"  # noqa: S104 (it is connected)
    try:
        sock = _open_socket((local_address, 0), (address, settings.ping_port))
    except OSError as error:
        _LOG.debug("no ping to %s: %s", address, error)
        return False
    transport, _ = await loop.create_datagram_endpoint(lambda: _PingClient(attempt, done), sock=sock)
    try:
        if packet_log.is_enabled():
            packet_log.ping_sent("Request", attempt.request, address)
        transport.sendto(attempt.request)
        due = attempt.next_deadline()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done, None if due is None else max(0.0, due - initiator.monotonic()))
    finally:
        transport.close()
    return attempt.status is True
