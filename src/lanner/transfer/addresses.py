"""Resolution of a format name to the addresses to connect to.

Implements MS-MQQB 3.1.5.2.1 Resolve Host Address and 3.1.7.4 Get Destination Info. Functions that
ask the directory are called with the store's lock held. Functions that ask DNS block, and are
called in a thread without the lock.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from lanner.engine.directory_events import identifier_is
from lanner.model.directory_objects import GUID_NULL, Queue, QueueManager
from lanner.transfer.peers import Peer, find_peer
from lanner.transfer.routing import get_next_hops
from lanner.wire.format_name import (
    ConnectorFormatName,
    DirectFormatName,
    FormatName,
    PrivateFormatName,
    PublicFormatName,
)

if TYPE_CHECKING:
    from lanner.engine import Engine


@dataclass(frozen=True, slots=True)
class DestinationInfo:
    """The result of 3.1.7.4: a host name, a queue manager, or both."""

    host_name: str
    queue_manager_guid: UUID


@dataclass(frozen=True, slots=True)
class HopHost:
    """A queue manager that may be the next hop, before its name is resolved."""

    qm_guid: UUID  # zero: unknown, because a direct format name does not contain it
    host_names: tuple[str, ...]  # the first name that has an address is used


@dataclass(frozen=True, slots=True)
class NextHop:
    """MS-MQQB 3.1.1.3.1.3 NextHop."""

    qm_guid: UUID
    host_name: str
    address: str  # an IPv4 or IPv6 literal
    # Not in the specification: the hop's entry in the peers table, if it is reached over TLS only.
    tls_peer: Peer | None = None


def get_destination_info(engine: Engine, format_name: FormatName) -> DestinationInfo | None:
    """Return the destination of a format name (3.1.7.4); None where the document returns FALSE."""
    if isinstance(format_name, DirectFormatName):
        return DestinationInfo(format_name.host, GUID_NULL)
    if isinstance(format_name, PrivateFormatName):
        return DestinationInfo("", format_name.queue_manager_identifier)
    if isinstance(format_name, PublicFormatName | ConnectorFormatName):
        _, queue = engine.read_directory("Queue", identifier_is(format_name.identifier))
        # The document returns QualifiedComputerName and Identifier of the queue. A queue has no
        # such name, so those of its queue manager are meant.
        if isinstance(queue, Queue) and queue.queue_manager is not None:
            host = queue.queue_manager
            return DestinationInfo(host_names(host)[0], host.identifier)
    return None


def find_hosts(engine: Engine, format_name: FormatName) -> list[HopHost]:
    """Return the hosts to try, in order, from the directory (3.1.5.2.1); an empty list is failure.

    A direct format name contains its host. For any other name the document resolves the
    destination's host name for each next hop; the next hop's own host name is meant.
    """
    destination = get_destination_info(engine, format_name)
    if destination is None:
        return []
    if destination.queue_manager_guid == GUID_NULL:
        return [HopHost(GUID_NULL, (destination.host_name,))]
    hops = get_next_hops(engine, destination.queue_manager_guid)
    return [HopHost(hop.identifier, host_names(hop)) for hop in hops]


def host_names(queue_manager: QueueManager) -> tuple[str, ...]:
    """Return QualifiedComputerName and ComputerName, in this order.

    In a network without a domain, hosts files have only the second.
    """
    names = (queue_manager.qualified_computer_name, queue_manager.computer_name)
    return tuple(dict.fromkeys(name for name in names if name)) or ("",)


def resolve_hosts(hosts: Iterable[HopHost], peers: Mapping[str, Peer | str]) -> list[NextHop]:
    """Return one NextHop for each address of each host, from DNS (3.1.5.2.1). Blocks.

    Raises socket.gaierror, that of the last host, if no host has an address.
    """
    next_hops: list[NextHop] = []
    problem = socket.gaierror(socket.EAI_NONAME, "no host to look up")
    for host in hosts:
        for name in host.host_names:
            try:
                addresses = resolve(name, peers)
            except socket.gaierror as error:
                problem = error
                continue
            next_hops += [NextHop(host.qm_guid, name, address) for address in addresses]
            break
    if not next_hops:
        raise problem
    return next_hops


def resolve(host: str, peers: Mapping[str, Peer | str]) -> list[str]:
    """Return the addresses of a host. Blocks.

    Consults the peers table, then an address literal, then the hosts file and DNS. Every attempt
    resolves anew (product note 55). Raises socket.gaierror if there is no address.
    """
    peer = find_peer(peers, host)
    if peer is None:
        return _addresses_of(host)
    found: list[str] = []
    problem = socket.gaierror(socket.EAI_NONAME, f"{peer.name} has no address in the peers table")
    for address in peer.addresses:
        try:
            found += _addresses_of(address)
        except socket.gaierror as error:
            problem = error
    if not found:
        raise problem
    return list(dict.fromkeys(found))


def addresses_of(peer: Peer, peers: Mapping[str, Peer | str]) -> list[str]:
    """Return the addresses of a peer that can be resolved. Blocks."""
    try:
        return resolve(peer.name, peers)
    except socket.gaierror:
        return []


def _addresses_of(name: str) -> list[str]:
    literal = parse_literal(name)
    if literal is not None:
        return [literal]
    if not name:
        raise socket.gaierror(socket.EAI_NONAME, "a host without a name")
    if _is_short_form(name):
        raise socket.gaierror(socket.EAI_NONAME, f"{name} is not an IPv4 address, which is four numbers from 0 to 255")
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (UnicodeError, ValueError) as error:
        # DNS cannot represent the name: a label is too long, or there is a null character.
        raise socket.gaierror(socket.EAI_NONAME, f"{name!r}: {error}") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _is_short_form(name: str) -> bool:
    """Return whether the C library would take a name for a short form of an address.

    It reads 10.3 as 10.0.0.3, and 010.0.0.1 as 8.0.0.1, which would reach the wrong computer.
    """
    try:
        socket.inet_aton(name)
    except (OSError, ValueError):
        return False
    return True


def parse_literal(text: str) -> str | None:
    """Return the address of an IPv4 or IPv6 literal, with or without brackets; None for a name."""
    try:
        return str(ipaddress.ip_address(text.removeprefix("[").removesuffix("]")))
    except ValueError:
        return None


def format_address(address: str) -> str:
    """Return "IP=" or "IPv6=" and the literal (MS-MQMQ 2.3.12.12).

    The grammar of the literal (RFC 3986) has no place for a zone.
    """
    literal = address.partition("%")[0]
    return f"IPv6={literal}" if ":" in literal else f"IP={literal}"
