"""Trust in identities: whether a queue manager identifier is accepted from an address.

MS-MQQB has no proof of identity. A peer states its identifier in EstablishConnection (2.2.3), and
can state any. Therefore an identifier is bound to addresses. There are three sources of bindings,
in this order:

1. An operator: `lanner peer trust`, and `[peers]` of the settings where an entry has the
   identifier. An address in `[peers]` without an identifier takes precedence over learnt addresses.
2. The directory, where it has the identifier: the addresses of the computer's name, from `[peers]`
   or from DNS.
3. The first session of a queue manager for which the first two say nothing, or whose name has no
   address (`pins`).

A binding by 1 or 2 makes a peer known. An unknown peer may deliver its own messages and nothing
else. An identifier that comes from another address than it is bound to gets no session; this is
recorded as a conflict for operators.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from lanner.engine.directory_events import identifier_is
from lanner.model.directory_objects import QueueManager
from lanner.transfer.addresses import HopHost, NextHop, host_names, parse_literal
from lanner.transfer.peers import PeerPolicy, as_peer, find_peer
from lanner.transfer.pins import Pins, Trust

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from lanner.engine import Engine
    from lanner.transfer.network import Network
    from lanner.transfer.peers import Peer
    from lanner.transfer.pins import Pin
    from lanner.transfer.settings import TransferSettings

# Not in the specification: seconds for which the addresses of a name are cached.
_LOOKUP_LIFETIME: Final = 60.0


@dataclass(frozen=True, slots=True)
class Standing:
    """The rights of a peer, determined once per session and again every minute."""

    # The reason why it gets no session; empty if it gets one.
    refusal: str = ""
    # It is refused because the identifier is bound to other addresses.
    is_conflict: bool = False
    # An operator or the directory has stated that this identifier is at this address.
    is_known: bool = False
    # The directory lists it as a routing server, or as one of this computer's. It may forward
    # messages of others.
    is_router: bool = False


UNKNOWN: Final = Standing()


@dataclass(frozen=True, slots=True)
class _Stated:
    """The statement of an operator or the directory about an identifier."""

    addresses: frozenset[str]
    # Names whose addresses are still being resolved.
    is_pending: bool = False
    # An operator has bound the identifier, even if its names have no address.
    is_strict: bool = False


class Identities:
    """The judge of the identities that peers claim. The caller holds the store's lock."""

    def __init__(self, engine: Engine, settings: TransferSettings, network: Network) -> None:
        self._engine = engine
        self._policy = settings.peer_policy
        self._network = network
        self._monotonic = engine.monotonic
        self.peers: Mapping[str, Peer | str] = settings.peers
        # Called when an identifier is no longer believed from an address from which it was learnt.
        self.displaced: Callable[[], None] | None = None
        self.pins = Pins(engine.store, engine.clock)
        # By identifier: the time until which the entry holds, and the addresses of its names, None
        # while they are being resolved.
        self._lookups: dict[UUID, tuple[float, frozenset[str] | None]] = {}

    def judge(self, guid: UUID, address: str, *, is_proven: bool = False) -> Standing:
        """Return the rights of a queue manager with this identifier at an address.

        Nothing is remembered. `is_proven`: the peer has shown a certificate for this identifier, or
        the address was resolved from the directory's name for it.
        """
        if self._policy is PeerPolicy.OPEN:
            return self._known(guid)
        address = parse_literal(address) or address
        pin = self.pins.get(guid)
        trust = None if pin is None else pin.addresses.get(address)
        stated = self._stated(guid)
        if trust is Trust.TRUSTED or is_proven or (stated is not None and address in stated.addresses):
            return self._known(guid)
        if stated is not None and stated.is_pending:
            return Standing(
                f"the address of queue manager {guid} is being looked up, and {address} is judged when it comes again"
            )
        if stated is not None and (stated.addresses or stated.is_strict):
            return self._conflict(guid, address, ", ".join(sorted(stated.addresses)) or "names without an address")
        if self._is_named(address) and (pin is None or self._is_outranked(pin, address)):
            return self._known(guid)
        if trust is not None:
            return UNKNOWN
        if pin is not None and pin.addresses:
            return self._conflict(guid, address, ", ".join(pin.addresses))
        if self._policy is PeerPolicy.KNOWN and stated is None:
            return Standing(
                f"queue manager {guid} is not known, and transfer.peers is known; "
                f"if it is one of yours: lanner peer trust {guid} {address}"
            )
        return UNKNOWN

    def admit(self, guid: UUID, address: str, *, is_proven: bool = False) -> Standing:
        """Judge the peer of a session that is being opened, and remember the result."""
        standing = self.judge(guid, address, is_proven=is_proven)
        if self._policy is PeerPolicy.OPEN:
            return standing
        address = parse_literal(address) or address
        pin = self.pins.get(guid)
        if standing.is_conflict:
            self.pins.conflict(guid, address)
        elif standing.refusal:
            pass
        elif pin is not None and address in pin.addresses:
            self.pins.seen(pin)
        elif self._is_learnt(guid, standing):
            is_claimed = pin is not None and bool(pin.addresses) and self._is_named(address)
            self.pins.learn(guid, address, replaces=is_claimed)
            if is_claimed and self.displaced is not None:
                self.displaced()
        return standing

    def _is_outranked(self, pin: Pin, address: str) -> bool:
        """Return whether an address in `[peers]` takes precedence over the addresses of a pin.

        The pin's addresses were learnt, and any address can claim an identifier before its owner
        connects. If the pin's address is in `[peers]` too, the pin stays.
        """
        return pin.is_learnt and not any(self._is_named(each) for each in pin.addresses if each != address)

    def _is_learnt(self, guid: UUID, standing: Standing) -> bool:
        """Return whether a peer's address must be remembered, because no source states it.

        The sources are the operator and the directory.
        """
        return not standing.is_known or self._stated(guid) is None

    def prove(self, guid: UUID, address: str, standing: Standing) -> None:
        """Note that a message has passed between this peer and us.

        Its learnt address is then kept while others make room.
        """
        if self._policy is PeerPolicy.OPEN:
            return
        address = parse_literal(address) or address
        pin = self.pins.get(guid)
        if pin is None and self._is_learnt(guid, standing):
            # The pin has had to make room since the session was opened.
            pin = self.pins.learn(guid, address)
        if pin is not None and address in pin.addresses:
            self.pins.prove(pin)

    def _known(self, guid: UUID) -> Standing:
        own = self._engine.queue_manager
        is_router = (
            guid in own.in_routing_server_identifier_list
            or guid in own.out_routing_server_identifier_list
            or any(server.identifier == guid for server in self._engine.routing_servers())
        )
        return Standing(is_known=True, is_router=is_router)

    @staticmethod
    def _conflict(guid: UUID, address: str, bound: str) -> Standing:
        return Standing(
            f"queue manager {guid} belongs to {bound}, not to {address}; "
            f"if it has moved, or has this address too: lanner peer trust {guid} {address}",
            is_conflict=True,
        )

    # Stated bindings
    # ---------------------------------------------------------------------------------------------

    def _is_named(self, address: str) -> bool:
        """Return whether `[peers]` has an address without an identifier."""
        entries = (as_peer(name, value) for name, value in self.peers.items())
        return any(peer.guid is None and address in map(parse_literal, peer.addresses) for peer in entries)

    def _stated(self, guid: UUID) -> _Stated | None:
        """Return what the settings or the directory state about an identifier, or None."""
        entries = [as_peer(name, value) for name, value in self.peers.items()]
        for peer in entries:
            if peer.guid == guid:
                return replace(self._of_names(guid, (peer.name,)), is_strict=True)
        _, found = self._engine.read_directory("QueueManager", identifier_is(guid))
        return self._of_names(guid, host_names(found)) if isinstance(found, QueueManager) else None

    def _of_names(self, guid: UUID, names: tuple[str, ...]) -> _Stated:
        """Return the addresses of the first of some names that has any.

        They come from `[peers]`, else from DNS, which is asked in another thread. The directory may
        have an address in place of a name.
        """
        for name in names:
            peer = find_peer(self.peers, name)
            literals = [parse_literal(address) for address in ((name,) if peer is None else peer.addresses)]
            if literals and None not in literals:
                return _Stated(frozenset(filter(None, literals)))
        due, addresses = self._lookups.get(guid, (0.0, frozenset()))
        if due <= self._monotonic():
            # The previous result holds until there is an answer.
            self._lookups[guid] = (self._monotonic() + _LOOKUP_LIFETIME, addresses if due else None)
            self._network.resolve([HopHost(guid, names)], partial(self._resolved, guid))
        _, addresses = self._lookups[guid]
        return _Stated(frozenset(), is_pending=True) if addresses is None else _Stated(addresses)

    def _resolved(self, guid: UUID, result: list[NextHop] | OSError) -> None:
        """Take the result of resolving a name. A name without an address states nothing."""
        addresses = frozenset() if isinstance(result, OSError) else frozenset(hop.address for hop in result)
        with self._engine.store.lock:
            self._lookups[guid] = (self._monotonic() + _LOOKUP_LIFETIME, addresses)
