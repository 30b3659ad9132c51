"""Peers as documents: identifiers of queue managers, their addresses, and conflicting claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lanner.engine.directory_events import identifier_is
from lanner.model.directory_objects import QueueManager
from lanner.model.errors import InvalidParameter
from lanner.transfer.addresses import parse_literal
from lanner.transfer.peers import as_peer
from lanner.transfer.pins import Pins

if TYPE_CHECKING:
    from uuid import UUID

    from lanner.engine import Engine
    from lanner.transfer.transfer import Transfer

Document = dict[str, Any]


class PeerDocuments:
    """The peers of one queue manager, running or not. The caller holds the store's lock."""

    def __init__(self, engine: Engine, transfer: Transfer | None) -> None:
        self._engine = engine
        self._transfer = transfer

    @property
    def _pins(self) -> Pins:
        return (
            Pins(self._engine.store, self._engine.clock) if self._transfer is None else self._transfer.identities.pins
        )

    def describe(self) -> list[Document]:
        """Return every pin, and the configured peers that have an identifier.

        A pin without a name in the directory has that of the configured peer with its address.
        """
        documents = {pin.guid: self._named(pin.guid, pin.document()) for pin in self._pins}
        transfer = self._transfer
        for peer in () if transfer is None else [as_peer(*one) for one in transfer.identities.peers.items()]:
            if peer.guid is not None:
                empty: Document = {
                    "guid": str(peer.guid),
                    "addresses": {},
                    "first_seen": None,
                    "last_seen": None,
                    "conflicts": [],
                }
                document = documents.setdefault(peer.guid, {"name": None, **empty, "connected": []})
                document["name"] = peer.name
                # Configured addresses replace learnt ones.
                kept = {address: why for address, why in document["addresses"].items() if why != "learnt"}
                document["addresses"] = dict.fromkeys(peer.addresses, "settings") | kept
            else:
                for document in documents.values():
                    if document["name"] is None and not document["addresses"].keys().isdisjoint(peer.addresses):
                        document["name"] = peer.name
        return [documents[guid] for guid in sorted(documents, key=str)]

    def conflicts(self) -> int:
        """Return how many identifiers were claimed from addresses they are not bound to."""
        return sum(bool(pin.conflicts) for pin in self._pins)

    def _named(self, guid: UUID, document: Document) -> Document:
        _, found = self._engine.read_directory("QueueManager", identifier_is(guid))
        links = () if self._transfer is None else self._transfer.links.values()
        return {
            "name": found.computer_name if isinstance(found, QueueManager) else None,
            **document,
            "connected": [link.remote_address for link in links if link.was_open and link.remote_qm_guid == guid],
        }

    def trust(self, guid: UUID, addresses: list[str]) -> Document:
        """Bind an identifier to addresses; without addresses, to those that were learnt."""
        literals = []
        for address in addresses:
            literal = parse_literal(address)
            if literal is None:
                raise InvalidParameter(f"{address} is no address, such as 192.0.2.7")
            literals.append(literal)
        pin = self._pins.get(guid)
        literals = literals or list(pin.addresses if pin is not None else ())
        if not literals:
            raise InvalidParameter(f"{guid} was never seen here: give its address")
        if guid == self._engine.queue_manager.identifier:
            raise InvalidParameter(f"{guid} is this queue manager itself")
        if self._transfer is None:
            trusted = self._pins.trust(guid, literals)
        else:
            trusted = self._transfer.trust_peer(guid, literals)
        return self._named(guid, trusted.document())

    def forget(self, guid: UUID) -> None:
        """Remove the binding of an identifier."""
        is_found = self._pins.forget(guid) if self._transfer is None else self._transfer.forget_peer(guid)
        if not is_found:
            raise InvalidParameter(f"{guid} is bound to no address: `lanner peer list` shows those that are")
