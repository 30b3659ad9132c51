"""The checks of `lanner doctor PEER`.

They are: name, ping, TCP, handshake, read protocol, and messages that wait here for that computer.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import ipaddress
import os
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lanner.cli.output import counted
from lanner.cli.tls_checks import Secured, tls_hop
from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import OperatingSystemType
from lanner.model.errors import LannerError
from lanner.rpc.faults import InterfaceRefused
from lanner.security.keys import weakness
from lanner.services.examination import Finding, Verdict
from lanner.services.ports import HANDSHAKE_PORT
from lanner.transfer.addresses import NextHop, parse_literal, resolve
from lanner.transfer.events import SessionClosed, SessionOpened
from lanner.transfer.ping import PingInitiator, ping
from lanner.transfer.session import Session
from lanner.transfer.settings import TransferSettings
from lanner.transfer.tls_errors import words

# The answers of a peer during a handshake fit into this many octets.
_READ = 4096


@dataclass(frozen=True, slots=True)
class Caller:
    """The identity and the settings for the examination of a peer.

    They are those of the running queue manager, or those in its settings if none runs.
    """

    peer: str
    settings: TransferSettings
    bind: str
    timeout: float  # In seconds, for each step.
    own_guid: uuid.UUID
    # A function that requests the running queue manager's document about the peer with these
    # addresses; None if no queue manager runs.
    ask: Callable[[list[str]], dict[str, Any]] | None = None

    def local_address(self, address: str) -> str | None:
        """Return the local address to connect from, which is that of the queue manager."""
        own = ipaddress.ip_address(self.bind)
        other = ipaddress.ip_address(address.partition("%")[0])
        return None if own.is_unspecified or own.version != other.version else self.bind


def examine_peer(caller: Caller) -> Iterator[Finding]:
    """Yield findings step by step, until a step fails that later ones need."""
    addresses: list[str] = []
    met: list[uuid.UUID] = []
    try:
        addresses, source = _addresses(caller)
        yield Finding("name", Verdict.OK, f"{caller.peer} is {', '.join(addresses)} ({source})")
    except OSError as error:
        advice = (
            f"look for a mistake in the name; give it an address in DNS, in /etc/hosts or in the settings: "
            f'[peers] {caller.peer} = "ADDRESS"'
        )
        yield Finding("name", Verdict.FAIL, f"{caller.peer} has no address: {error.strerror or error}", advice)
        for check in ("ping", "tcp", "handshake"):
            yield _skipped(check, "no address")
    else:
        yield _ping(caller, addresses[0])
        yield from _connect(caller, addresses, met)
    if caller.ask is not None:
        yield from _known_here(caller.peer, caller.ask(addresses), met)


def _addresses(caller: Caller) -> tuple[list[str], str]:
    """Return the addresses and their source; OSError if there are none."""
    try:
        return resolve(caller.peer, caller.settings.peers), _source(caller)
    except OSError:
        known = None if caller.ask is None else caller.ask([]).get("address")
        if not known or known.lower() == caller.peer.lower():
            raise
        source = (
            f"{known} in the directory; DIRECT=OS: names are looked up in the peers table, the hosts file and DNS only"
        )
        return resolve(known, caller.settings.peers), source


def _skipped(check: str, text: str) -> Finding:
    return Finding(check, Verdict.SKIP, text)


def _source(caller: Caller) -> str:
    if any(name.lower() == caller.peer.lower() for name in caller.settings.peers):
        return "from the peers table of the settings"
    return "the name is an address" if parse_literal(caller.peer) is not None else "from the hosts file or DNS"


def _ping(caller: Caller, address: str) -> Finding:
    """Ping the peer (MS-MQQB 3.1.7.6).

    No answer proves nothing: Windows answers only if EnablePingService is set.
    """
    initiator = PingInitiator(caller.own_guid, OperatingSystemType.WIN_SERVER, time.monotonic)
    port = caller.settings.ping_port
    if asyncio.run(ping(initiator, address, caller.settings, caller.local_address(address))):
        return Finding("ping", Verdict.OK, f"{address} answers on UDP {port} and would take a session")
    return _skipped(
        "ping",
        f"{address} does not answer on UDP {port}, or refuses; this does no harm: queue managers need not answer pings",
    )


def _connect(caller: Caller, addresses: list[str], met: list[uuid.UUID]) -> Iterator[Finding]:
    """Connect as transfer does, to the first address that accepts, and examine it."""
    for address in addresses:
        hop = tls_hop(caller.settings, caller.peer, GUID_NULL, address)
        port = caller.settings.port if hop is None else caller.settings.tls_port
        local = caller.local_address(address)
        begun = time.monotonic()
        try:
            connection = socket.create_connection(
                (address, port), caller.timeout, None if local is None else (local, 0)
            )
        except OSError as error:
            text, advice = _tcp_advice(error, address, port, caller)
            yield Finding("tcp", Verdict.FAIL if address == addresses[-1] else Verdict.WARN, text, advice)
            continue
        with connection:
            yield Finding("tcp", Verdict.OK, f"{address}:{port} takes connections, in {_milliseconds(begun)}")
            if hop is None:
                yield _shake_hands(caller, connection, f"{address}:{port}", met)
            else:
                yield from _over_tls(caller, connection, hop, met)
        yield _reading(caller, address)
        return
    yield _skipped("handshake", "no connection")


def _reading(caller: Caller, address: str) -> Finding:
    """Return the protocol by which programs would read queues there (MS-MQRR 3.2.4.1).

    It binds anonymously, which the protocol allows.
    """
    from lanner.client._sync.connections import mapped_port
    from lanner.rpc.blocking_client import connect_tcp
    from lanner.services.interfaces.mqqp import QM2QM
    from lanner.services.interfaces.mqrr import REMOTE_READ

    for interface, protocol in ((REMOTE_READ, "MS-MQRR"), (QM2QM, "MS-MQQP")):
        port = mapped_port(address, interface) or HANDSHAKE_PORT
        try:
            with connect_tcp(address, port, timeout=caller.timeout) as client:
                client.bind(interface)
        except InterfaceRefused:
            continue
        except (OSError, LannerError) as error:
            said = error.strerror if isinstance(error, OSError) else None
            return _skipped(
                "reading",
                f"{address}:{port}: {said or error}; no RPC there: queues accept messages but cannot be read here",
            )
        return Finding("reading", Verdict.OK, f"queues there are read by {protocol}, on TCP {port}")
    return _skipped(
        "reading", f"{address}:{port} serves neither MS-MQRR nor MS-MQQP: queues there cannot be read from here"
    )


def _over_tls(caller: Caller, plain: socket.socket, hop: NextHop, met: list[uuid.UUID]) -> Iterator[Finding]:
    """Make the TLS handshake, and over it the one of MS-MQQB."""
    secured = Secured(caller.settings, plain, hop)
    yield secured.finding
    if secured.connection is None:
        yield _skipped("handshake", "no TLS")
        return
    if caller.ask is None and secured.own_guids:
        # No queue manager runs that could report its identifier, but the peer compares it with the
        # certificate.
        caller = dataclasses.replace(caller, own_guid=min(secured.own_guids))
    with secured.connection:
        yield _shake_hands(caller, secured.connection, f"{hop.address}:{caller.settings.tls_port}", met)


def _milliseconds(begun: float) -> str:
    return f"{(time.monotonic() - begun) * 1000:.1f} ms"


def _tcp_advice(error: OSError, address: str, port: int, caller: Caller) -> tuple[str, str]:
    """Return the operating system's error, and advice."""
    where = f"{address}:{port}"
    if (
        ipaddress.ip_address(caller.bind).is_loopback
        and not ipaddress.ip_address(address.partition("%")[0]).is_loopback
    ):
        return (
            f"{where} cannot be reached from {caller.bind}, which is for this computer only",
            "set bind to this computer's address in the network, or to 0.0.0.0 for all it has",
        )
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return (
            f"{where} timed out after {caller.timeout:g} s",
            f"the computer is off, or a firewall drops TCP {port}: allow it on {caller.peer} and on the path to it",
        )
    if error.errno == errno.ECONNREFUSED:
        if port == caller.settings.tls_port:
            advice = (
                f"start the queue manager of {caller.peer}, and see that it has TLS: "
                "transfer.tls_certificate in its settings"
            )
            return f"{where} refused the connection: no program listens there", advice
        return (
            f"{where} refused the connection: no program listens there",
            (
                f"start the queue manager of {caller.peer} (Windows: the service MSMQ), and see that it listens on "
                f"{address}"
            ),
        )
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN):
        advice = f"`ip route get {address}` shows the route: check the routes and the network of this computer"
        return f"{where} cannot be reached: {os.strerror(error.errno)}", advice
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{where} cannot be reached from {caller.bind}", "the setting bind must be an address of this computer"
    return f"{where}: {error.strerror or error}", f"check the network of this computer and of {caller.peer}"


def _shake_hands(caller: Caller, connection: socket.socket, where: str, met: list[uuid.UUID]) -> Finding:
    """Open a session and close it (MS-MQQB 3.1.5.2.3 to 3.1.5.4).

    As for a direct format name, the queue manager there may have any identifier.
    """
    session = Session.initiate(
        own_guid=caller.own_guid, remote_guid=GUID_NULL, settings=caller.settings, monotonic=time.monotonic
    )
    begun = time.monotonic()
    round_trip = None
    received = 0
    while True:
        try:
            for packet in session.data_to_send():
                connection.sendall(packet)
            connection.settimeout(max(0.001, begun + caller.timeout - time.monotonic()))
            data = connection.recv(_READ)
        except TimeoutError:
            said = f"only {received} bytes" if received else "nothing"
            return Finding(
                "handshake",
                Verdict.FAIL,
                f"{where} accepts connections but sent {said} in {caller.timeout:g} s, in state {session.state.value}",
                f"another program listens there, or the queue manager of {caller.peer} hangs: restart it",
            )
        except ssl.SSLError as error:
            # With TLS 1.3, the peer verifies our certificate only now.
            advice = (
                f"copy our certificate to {caller.peer} and name it in its [peers], or use certificates of one "
                "authority on both sides"
            )
            return Finding("handshake", Verdict.FAIL, f"{where}: {words(error)}", advice)
        except OSError as error:
            return _refused(caller, where, f"the connection broke: {error.strerror or error}", received)
        received += len(data)
        round_trip = round_trip or _milliseconds(begun)
        events = session.receive(data) if data else session.end_of_stream()
        for event in events:
            if isinstance(event, SessionOpened):
                met.append(session.remote_qm_guid)
                return Finding(
                    "handshake",
                    Verdict.OK,
                    f"queue manager {session.remote_qm_guid}, window {session.received_window_size}, "
                    f"round trip {round_trip}",
                )
            if isinstance(event, SessionClosed):
                return _refused(caller, where, event.reason, received)


def _refused(caller: Caller, where: str, reason: str, received: int) -> Finding:
    if "Flags.CS" in reason:
        return Finding(
            "handshake",
            Verdict.FAIL,
            f"{where} refuses the session: {reason}",
            f"{caller.peer} has reached its limit of sessions, or accepts none: check its log and its limit "
            "(MaxInSessions)",
        )
    if not received:
        return Finding(
            "handshake",
            Verdict.FAIL,
            f"{where} accepted the connection and closed it without an answer",
            f"{caller.peer} has too many connections, or a firewall or proxy intervenes: check its log",
        )
    return Finding(
        "handshake",
        Verdict.FAIL,
        f"{where} does not speak the protocol of a queue manager: {reason}",
        f"check which program listens on {where}; if it is a queue manager, report this to its vendor",
    )


def _known_here(peer: str, known: dict[str, Any], met: list[uuid.UUID]) -> Iterator[Finding]:
    """Yield findings about what the running queue manager has for that computer."""
    if met and known["identifier"] not in (None, str(met[0])):
        text = f"the directory has {peer} as queue manager {known['identifier']}, which is not the one that answered"
        advice = (
            "messages to its public and private format names will be refused: correct the directory, or the address"
        )
        yield Finding("directory", Verdict.FAIL, text, advice)
    # An older queue manager does not report it.
    bits = known.get("key_bits", 0)
    problem = weakness(bits)
    if problem is not None:
        advice = f"make new keys on {peer}, and publish them in the directory"
        yield Finding("key", Verdict.WARN, f"the key with which messages to {peer} are encrypted has {problem}", advice)
    elif bits:
        yield Finding("key", Verdict.OK, f"messages to {peer} are encrypted with a key of {bits} bits")
    if known["sessions"]:
        states = ", ".join(f"{one['address']} {one['state']}" for one in known["sessions"])
        yield Finding("sessions", Verdict.OK, f"{counted(len(known['sessions']), 'session')} now: {states}")
    else:
        yield Finding("sessions", Verdict.OK, "none now; one is opened when there is something to send")
    queues = known["queues"]
    waiting = sum(one["messages"] for one in queues)
    yield Finding("outgoing", Verdict.OK, f"{counted(waiting)} for {peer} in {counted(len(queues), 'outgoing queue')}")
    for one in queues:
        if one["state"] == "OnHold":
            yield Finding(
                "outgoing", Verdict.WARN, f"{one['name']} is paused", f"lanner outgoing resume '{one['name']}'"
            )
        elif one["state"] == "Locked":
            advice = "the setting security.hardened allows HTTP only"
            yield Finding("outgoing", Verdict.WARN, f"{one['name']} is locked", advice)
        elif one["problem"]:
            advice = f"lanner outgoing show '{one['name']}'"
            yield Finding("outgoing", Verdict.WARN, f"{one['name']}: {one['problem']}", advice)
