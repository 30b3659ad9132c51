"""Pins: the addresses at which queue managers were seen, or that an operator trusts.

A pin binds the identifier of a queue manager to addresses. Pins are rows of a table of the store.
A pin is created when a queue manager that neither an operator nor the directory vouches for opens
its first session (`learnt`), or by `lanner peer trust` (`trusted`). Sessions that were refused
because of a pin are recorded with it, so that an operator sees which other addresses claim the
identifier.

If there are too many learnt pins, one makes room, so that a new queue manager is never kept out.
The pins that an attacker can create in large numbers go first:

1. Pins of queue managers with which no message was exchanged, because opening sessions costs
   nothing.
2. *Established* pins that were not used for a month. A pin is established if messages were
   exchanged and the queue manager returned after a day.
3. All others, starting with those of the address that has the most. Exchanging one message for each
   pin costs an attacker little, but the attacker needs many addresses.

Each IPv4 address or IPv6 /64 network has its own, smaller limit. When that limit is reached, a new
pin can replace only an unproven pin (no message exchanged) of exactly the same address. If there is
none, nothing is learnt, because a neighbour in a network must not displace the pins of others.

So new pins never displace established ones that are in use. Established pins may take up at most
three quarters of the table. Even an attacker who patiently creates established pins leaves a
quarter for new ones, and those can displace only each other.
"""

from __future__ import annotations

import datetime as dt
import enum
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from lanner.security.peer_address import peer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lanner.store import Store

TABLE: Final = "peers"

# Not in the specification: maximum number of learnt pins, in total and per IPv4 address or IPv6
# /64.
MAX_LEARNT: Final = 10_000
MAX_LEARNT_PER_ADDRESS: Final = 64
# Not in the specification: how many of them may be established.
MAX_ESTABLISHED: Final = 7_500
# Not in the specification: a proven pin becomes established if it is used again at least this many
# seconds after its first use.
ESTABLISHED_AFTER: Final = 24 * 3600
# Not in the specification: seconds without use after which an established pin makes room for a new
# one.
UNUSED: Final = 30 * 24 * 3600
# Not in the specification: seconds between two writes of LastSeen.
_SEEN_INTERVAL: Final = 3600
# Not in the specification: maximum number of recorded addresses that claimed an identifier and were
# refused.
MAX_CONFLICTS: Final = 8


class Trust(enum.StrEnum):
    """The reason why an address is believed."""

    LEARNT = "learnt"
    TRUSTED = "trusted"


@dataclass(slots=True)
class Conflict:
    """An address that claimed an identifier which is bound to other addresses."""

    count: int
    last: int  # seconds since 1970


@dataclass(slots=True, eq=False)
class Pin:
    """The addresses bound to a queue manager's identifier. Times are seconds since 1970."""

    guid: UUID
    first_seen: int = 0
    last_seen: int = 0
    addresses: dict[str, Trust] = field(default_factory=dict)
    conflicts: dict[str, Conflict] = field(default_factory=dict)
    # A message of this queue manager was stored here, or it has acknowledged one of ours.
    is_proven: bool = False
    # `last_seen` as written in the table.
    written_seen: int = 0

    @property
    def is_learnt(self) -> bool:
        """Whether the pin was learnt automatically rather than set by an operator."""
        return Trust.TRUSTED not in self.addresses.values()

    def pack(self) -> bytes:
        document = {
            "first": self.first_seen,
            "last": self.last_seen,
            "addresses": self.addresses,
            "conflicts": {address: (one.count, one.last) for address, one in self.conflicts.items()},
            "proven": self.is_proven,
        }
        return json.dumps(document).encode()

    @classmethod
    def unpack(cls, key: bytes, row: bytes) -> Pin:
        document = json.loads(row)
        return cls(
            UUID(bytes=key),
            document["first"],
            document["last"],
            {address: Trust(trust) for address, trust in document["addresses"].items()},
            {address: Conflict(*values) for address, values in document["conflicts"].items()},
            # Older rows lack this field.
            document.get("proven", False),
            document["last"],
        )

    def document(self) -> dict[str, object]:
        """Return the pin as `lanner peer list --json` shows it."""
        return {
            "guid": str(self.guid),
            "addresses": {address: trust.value for address, trust in self.addresses.items()},
            "first_seen": _moment(self.first_seen),
            "last_seen": _moment(self.last_seen),
            "conflicts": [
                {"address": address, "refused": one.count, "last": _moment(one.last)}
                for address, one in self.conflicts.items()
            ],
        }


def _moment(seconds: int) -> str | None:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat() if seconds else None


class Pins:
    """All pins. The store's lock is held."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._table = store.table(TABLE)
        self._clock = clock
        self._by_guid: dict[UUID, Pin] = {}
        # Learnt pins by the network of their address, those that were seen last at the end.
        self._learnt: dict[str, dict[UUID, None]] = {}
        # The same pins in the same order, divided into unproven ones, established ones, and the
        # others by network.
        self._unproven: dict[UUID, None] = {}
        self._established: dict[UUID, None] = {}
        self._fresh: dict[str, dict[UUID, None]] = {}
        self.reload()

    def reload(self) -> None:
        """Reload the table, at the start and when the store could not write."""
        self._by_guid = {pin.guid: pin for pin in (Pin.unpack(*row) for row in self._table.items())}
        self._learnt, self._fresh = {}, {}
        self._unproven, self._established = {}, {}
        for pin in sorted(self._by_guid.values(), key=lambda each: each.last_seen):
            self._index(pin)

    def __iter__(self) -> Iterator[Pin]:
        return iter(sorted(self._by_guid.values(), key=lambda pin: str(pin.guid)))

    def get(self, guid: UUID) -> Pin | None:
        return self._by_guid.get(guid)

    @property
    def learnt_count(self) -> int:
        return sum(map(len, self._learnt.values()))

    def _index(self, pin: Pin) -> None:
        was_established = pin.guid in self._established
        self._unindex(pin)
        if not pin.is_learnt or not pin.addresses:
            return
        for address in pin.addresses:
            self._learnt.setdefault(peer_of(address), {})[pin.guid] = None
        if not pin.is_proven:
            self._unproven[pin.guid] = None
        elif was_established or self._becomes_established(pin):
            self._established[pin.guid] = None
        else:
            for address in pin.addresses:
                self._fresh.setdefault(peer_of(address), {})[pin.guid] = None

    def _becomes_established(self, pin: Pin) -> bool:
        return pin.last_seen - pin.first_seen >= ESTABLISHED_AFTER and (
            len(self._established) < MAX_ESTABLISHED or self._forget_unused()
        )

    def _unindex(self, pin: Pin) -> None:
        self._unproven.pop(pin.guid, None)
        self._established.pop(pin.guid, None)
        for networks in (self._learnt, self._fresh):
            for network in set(map(peer_of, pin.addresses)):
                guids = networks.get(network, {})
                guids.pop(pin.guid, None)
                if not guids:
                    networks.pop(network, None)

    def _write(self, pin: Pin) -> None:
        self._table.put(pin.guid.bytes, pin.pack())
        pin.written_seen = pin.last_seen

    def learn(self, guid: UUID, address: str, *, replaces: bool = False) -> Pin | None:
        """Bind an unknown identifier to an address; return None if the address has too many pins.

        `replaces`: remove the addresses that were learnt before.
        """
        if replaces:
            self._unbind(guid)
        guids = self._learnt.get(peer_of(address), {})
        if len(guids) >= MAX_LEARNT_PER_ADDRESS:
            # The computers behind one address can impersonate each other anyway.
            own = (one for one in guids if one in self._unproven and address in self._by_guid[one].addresses)
            displaced = next(own, None)
            if displaced is None:
                return None
            self.forget(displaced)
        if self.learnt_count >= MAX_LEARNT:
            self._make_room()
        now = int(self._clock())
        pin = self._by_guid.setdefault(guid, Pin(guid))
        if not pin.addresses:
            pin.first_seen = now
        pin.last_seen = now
        pin.addresses[address] = Trust.LEARNT
        self._index(pin)
        self._write(pin)
        return pin

    def _unbind(self, guid: UUID) -> None:
        pin = self._by_guid.get(guid)
        if pin is not None:
            self._unindex(pin)
            pin.addresses = {address: trust for address, trust in pin.addresses.items() if trust is Trust.TRUSTED}
            pin.is_proven = False
            self._write(pin)

    def _make_room(self) -> None:
        if self._unproven:
            self.forget(next(iter(self._unproven)))
        elif not self._forget_unused():
            # There is always a fresh pin to remove, because established pins are limited to part of
            # the table.
            crowded = max(self._fresh.values(), key=len)
            self.forget(next(iter(crowded)))

    def _forget_unused(self) -> bool:
        """Remove the least recently used established pin, if it is unused for long enough."""
        oldest = next((self._by_guid[guid] for guid in self._established), None)
        return oldest is not None and oldest.last_seen <= self._clock() - UNUSED and self.forget(oldest.guid)

    def prove(self, pin: Pin) -> None:
        """Note that a message has passed between the queue manager of a pin and this one."""
        if not pin.is_proven:
            pin.is_proven = True
            self._index(pin)
            self._write(pin)

    def seen(self, pin: Pin) -> None:
        """Note that a queue manager came from an address of its pin."""
        pin.last_seen = int(self._clock())
        self._index(pin)
        if pin.last_seen - pin.written_seen >= _SEEN_INTERVAL:
            self._write(pin)

    def conflict(self, guid: UUID, address: str) -> None:
        """Note that an identifier was claimed from an address to which it is not bound."""
        pin = self._by_guid.setdefault(guid, Pin(guid))
        found = pin.conflicts.get(address)
        now = int(self._clock())
        if found is not None:
            found.count += 1
            is_old, found.last = now - found.last >= _SEEN_INTERVAL, now
            if is_old:
                self._write(pin)
            return
        if len(pin.conflicts) >= MAX_CONFLICTS:
            del pin.conflicts[min(pin.conflicts, key=lambda each: pin.conflicts[each].last)]
        pin.conflicts[address] = Conflict(1, now)
        self._write(pin)

    def trust(self, guid: UUID, addresses: list[str]) -> Pin:
        """Believe an identifier from these addresses and from those trusted before.

        It is no longer believed from learnt addresses.
        """
        pin = self._by_guid.setdefault(guid, Pin(guid))
        self._unindex(pin)
        kept = [address for address, trust in pin.addresses.items() if trust is Trust.TRUSTED]
        pin.addresses = dict.fromkeys([*kept, *addresses], Trust.TRUSTED)
        pin.conflicts.clear()
        self._write(pin)
        return pin

    def forget(self, guid: UUID) -> bool:
        """Remove a pin; return False if there is none."""
        pin = self._by_guid.pop(guid, None)
        if pin is None:
            return False
        self._unindex(pin)
        self._table.delete(guid.bytes)
        return True
