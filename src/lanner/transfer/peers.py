"""Settings about other queue managers: the table `[peers]`, and `transfer.peers`."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from lanner.security.peer_address import peer_of


class PeerPolicy(enum.Enum):
    """The values of `transfer.peers`: the addresses from which an identifier is accepted."""

    OPEN = "open"  # from any address
    # From stated addresses; for an unknown queue manager, from the one where it first appeared.
    PINNED = "pinned"
    KNOWN = "known"  # from stated addresses; unknown queue managers get no session


@dataclass(frozen=True, slots=True)
class Peer:
    """A computer in the settings, under the name that format names use."""

    name: str
    addresses: tuple[str, ...]  # IPv4 or IPv6 literals, or names of the hosts file or DNS
    guid: UUID | None = None  # of its queue manager; None: any
    # A PEM file, the only certificate that it may show. None: see `tls`.
    certificate: Path | None = None
    tls: bool = False  # it has a certificate issued by one of the authorities

    @property
    def has_tls(self) -> bool:
        """Whether it is reached over TLS only."""
        return self.tls or self.certificate is not None


def known_addresses(peers: Mapping[str, Peer | str]) -> frozenset[str]:
    """Return the addresses in the entries, in the form in which the budget counts peers."""
    return frozenset(peer_of(address) for name, value in peers.items() for address in as_peer(name, value).addresses)


def as_peer(name: str, value: Peer | str) -> Peer:
    """Return the entry of a peer. Its short form is an address alone."""
    return Peer(name, (value,)) if isinstance(value, str) else value


def find_peer(peers: Mapping[str, Peer | str], host: str) -> Peer | None:
    """Return the entry of a host, whose name may differ in case."""
    host = host.lower()
    return next((as_peer(name, value) for name, value in peers.items() if name.lower() == host), None)
