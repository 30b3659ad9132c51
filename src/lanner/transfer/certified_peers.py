"""Peers with TLS, and the queue manager that a certificate identifies.

A peer has TLS if its entry in the peers table names its certificate (a pin), or says that one of
the authorities has issued it (`tls = true`). No session in clear is allowed with such a peer, in
either direction. A session over TLS begins only if the certificate matches the queue manager GUID
in the EstablishConnection packets:

- If a certificate contains GUIDs (urn:uuid: among its alternative names), it is valid for these
  GUIDs only.
- If the entry of a pinned certificate has a GUID, the certificate is valid for this GUID only.
- Otherwise a certificate issued by an authority must name the computer that the directory or the
  peers table has for the GUID.
- No certificate is valid for a GUID that the peers table assigns to another computer, or the
  directory to another name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from lanner.model.directory_objects import GUID_NULL
from lanner.transfer.addresses import parse_literal
from lanner.transfer.peers import Peer, as_peer
from lanner.transfer.tls_errors import TlsError

if TYPE_CHECKING:
    from lanner.transfer.addresses import NextHop
    from lanner.transfer.tls import Certification, TlsIdentity


class CertifiedPeers:
    """The rules above, applied to the peers of one queue manager.

    `names_of` returns the directory's names for a queue manager. It needs the store's lock, so
    callers of `check` and `check_answering` must hold it.
    """

    def __init__(
        self,
        peers: Mapping[str, Peer | str],
        identity: TlsIdentity | None,
        names_of: Callable[[UUID], tuple[str, ...]],
    ) -> None:
        self._names_of = names_of
        # By name of a peer whose entry has no GUID: the queue manager that last showed its
        # certificate.
        self._learnt: dict[str, UUID] = {}
        # Set by `set_peers`. The keys of the three tables are names in lower case.
        self._identity: TlsIdentity | None
        self._peers: dict[str, Peer]
        self._with_tls: dict[str, Peer]
        self._guids: dict[str, frozenset[UUID]]
        self.set_peers(peers, identity)

    def set_peers(self, peers: Mapping[str, Peer | str], identity: TlsIdentity | None) -> None:
        """Replace the peers table and its certificates."""
        self._identity = identity
        self._peers = {name.lower(): as_peer(name, value) for name, value in peers.items()}
        self._with_tls = {name: peer for name, peer in self._peers.items() if peer.has_tls}
        guids: dict[str, frozenset[UUID]] = {}
        for name, peer in self._with_tls.items():
            pins = [] if identity is None else identity.pins_of(peer.name)
            told = [guid for pin in pins for guid in pin.guids] if peer.guid is None else [peer.guid]
            guids[name] = frozenset(told)
        # Replaced as a whole, because `find` runs in other threads.
        self._guids = guids

    # In clear
    # -------------------------------------------------------------------------------------------

    def find(self, hop: NextHop, addresses_of: Callable[[Peer], list[str]], names: Iterable[str] = ()) -> Peer | None:
        """Return the peer with TLS that a next hop is, or None. Needs no lock.

        It is found by its names, its GUID or one of its addresses.
        """
        with_tls = self._with_tls
        if not with_tls:
            return None
        known = [with_tls[name.lower()] for name in (hop.host_name, *names) if name.lower() in with_tls]
        peer = known[0] if known else None
        if peer is None and hop.qm_guid != GUID_NULL:
            peer = self._with_guid(hop.qm_guid)
        if peer is None:
            peer = next((one for one in with_tls.values() if hop.address in addresses_of(one)), None)
        return peer

    def _with_guid(self, guid: UUID) -> Peer | None:
        name = next((name for name, guids in self._guids.items() if guid in guids), None) or self._learnt_name(guid)
        return None if name is None else self._with_tls.get(name)

    def _learnt_name(self, guid: UUID) -> str | None:
        return next((name for name, learnt in list(self._learnt.items()) if learnt == guid), None)

    def _refuse_clear(self, guid: UUID, address: str) -> None:
        """Raise TlsError if a session in clear is, or may be, with a peer that has TLS."""
        if not self._with_tls:
            return
        peer = self._with_guid(guid)
        if peer is None:
            # The directory may have the name of a peer with TLS whose entry has no GUID.
            names = [name.lower() for name in self._names_of(guid)]
            peer = next((self._with_tls[name] for name in names if name in self._with_tls), None)
        if peer is not None:
            raise TlsError(
                f"queue manager {guid} is {peer.name}, which has TLS in [peers], and this session is in clear: "
                f"let the settings of {peer.name} have a certificate of this computer, or find out who else "
                "uses its identifier"
            )
        if any(one.guid == guid for one in self._peers.values()):
            return
        # Without any GUID to compare, only the address indicates which peer this may be.
        for name, one in self._with_tls.items():
            if not self._guids[name] and name not in self._learnt and _is_at(one, address):
                raise TlsError(
                    f"{address} is the address of {one.name}, which has TLS in [peers], and this session with "
                    f"queue manager {guid} is in clear: set peers.{one.name}.guid if another queue manager "
                    "may use this address"
                )

    # Over TLS
    # ----------------------------------------------------------------------------------------------

    def check(self, certification: Certification | None, guid: UUID, address: str) -> Peer | None:
        """Return the peer of a session for the GUID that it claims; None in clear.

        Raises TlsError if certificate and GUID do not belong together.
        """
        if certification is None:
            self._refuse_clear(guid, address)
            return None
        if self._identity is None or not self._identity.is_accepted(certification):
            raise TlsError(f"the {certification} is accepted no more: [peers] or transfer.tls_authorities has changed")
        if certification.guids and guid not in certification.guids:
            raise TlsError(
                f"the {certification} is of queue manager {_list(map(str, certification.guids))}, and the peer "
                f"says it is {guid}"
            )
        is_pinned = bool(certification.pinned)
        peer = self._pinned(certification, guid) if is_pinned else self._issued(certification, guid, address)
        self._learn(peer, guid)
        return peer

    def _pinned(self, certification: Certification, guid: UUID) -> Peer:
        fitting = [
            peer
            for peer in certification.pinned
            if self._peers.get(peer.name.lower()) == peer and peer.guid in (None, guid)
        ]
        if not fitting:
            known = ", ".join(f"{peer.name} ({peer.guid})" for peer in certification.pinned)
            raise TlsError(
                f"the {certification} is of {known} in [peers], and the peer says it is queue manager {guid}"
            )
        own = next((peer for peer in fitting if peer.guid == guid), fitting[0])
        if own.guid is None and not certification.guids:
            self._refuse_foreign(certification, guid, [peer.name for peer in fitting])
        return own

    def _issued(self, certification: Certification, guid: UUID, address: str) -> Peer:
        is_named = guid in certification.guids
        entry = next((one for one in self._peers.values() if one.guid == guid), None)
        if entry is None:
            entry = next((one for one in self._peers.values() if _names(one) & certification.names), None)
            if entry is not None and entry.guid is not None and not is_named:
                raise TlsError(
                    f"the {certification} is of {entry.name}, whose guid in [peers] is {entry.guid}, and the "
                    f"peer says it is {guid}"
                )
        if entry is not None and entry.certificate is not None:
            raise TlsError(f"the {certification} is not the one that peers.{entry.name}.certificate names")
        if is_named:
            return entry or Peer(min(certification.names, default=str(guid)), (address,), guid, tls=True)
        in_directory = self._names_of(guid)
        # The directory takes precedence over a name in [peers] without a GUID.
        accepted = {name.lower() for name in in_directory} or (set() if entry is None else _names(entry))
        if not accepted & certification.names:
            shown = _list(sorted(certification.names)) or "nobody"
            wanted = (
                f"which is {_list(sorted(accepted))}" if accepted else "which neither [peers] nor the directory has"
            )
            raise TlsError(
                f"the {certification} names {shown}, and the peer says it is queue manager {guid}, {wanted}: "
                f"name it in [peers], or let the certificate have the name urn:uuid:{guid}"
            )
        self._refuse_foreign(certification, guid, [] if entry is None else [entry.name])
        return entry or Peer(in_directory[0], (address,), guid, tls=True)

    def _refuse_foreign(self, certification: Certification, guid: UUID, names: Iterable[str]) -> None:
        """Raise TlsError if the GUID is known to belong to another computer than the certificate.

        The peers table and the directory are consulted.
        """
        owners = {one.name for one in self._peers.values() if one.guid == guid}
        learnt = self._learnt_name(guid)
        if learnt is not None:
            owners.add(learnt)
        own = {name.lower() for name in names} | certification.names
        in_directory = {name.lower() for name in self._names_of(guid)}
        if in_directory and not in_directory & own:
            owners |= in_directory
        foreign = {owner for owner in owners if owner.lower() not in own}
        if foreign:
            raise TlsError(f"the {certification} is not of {_list(sorted(foreign))}, which is queue manager {guid}")

    def _learn(self, peer: Peer, guid: UUID) -> None:
        """Remember a GUID that no entry has, so that no other peer can use it.

        It is then rejected in clear and with another certificate.
        """
        if peer.guid is None and peer.has_tls:
            self._learnt[peer.name.lower()] = guid

    def check_answering(self, certification: Certification | None, hop: NextHop) -> None:
        """Raise TlsError unless the certificate is that of the peer that was connected to.

        Nothing has been sent to the peer yet.
        """
        peer = hop.tls_peer
        if peer is None:
            return
        if certification is None:
            raise TlsError(f"{peer.name} has TLS in [peers], and this connection is in clear")
        if peer.certificate is not None:
            if all(one.name.lower() != peer.name.lower() for one in certification.pinned):
                raise TlsError(
                    f"{hop.address} shows the {certification}, not the one that peers.{peer.name}.certificate names"
                )
            return
        accepted = _names(peer)
        for guid in (peer.guid, hop.qm_guid):
            if guid not in (None, GUID_NULL):
                accepted |= {name.lower() for name in self._names_of(guid)}
        if peer.guid not in certification.guids and not accepted & certification.names:
            shown = _list(sorted(certification.names)) or "nobody"
            raise TlsError(
                f"{hop.address} shows the {certification}, which names {shown}, not {_list(sorted(accepted))}"
            )


def _names(peer: Peer) -> set[str]:
    """Return the computer names that a certificate may contain for an entry.

    These are the name of the entry and the host names among its addresses.
    """
    return {
        peer.name.lower(),
        *(name.lower().rstrip(".") for name in peer.addresses if parse_literal(name) is None),
    }


def _is_at(peer: Peer, address: str) -> bool:
    return any(parse_literal(one) == address for one in peer.addresses)


def _list(texts: Iterable[str]) -> str:
    return ", ".join(texts)
