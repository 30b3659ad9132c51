"""Which addresses queue managers were seen at, and which ones an operator trusts: a table of the store.

A pin binds the identifier of a queue manager to addresses. It is written when a queue manager that nobody has stated anything
about opens its first session (`learnt`), and by `lanner peer trust` (`trusted`). Sessions that were refused because of a pin are kept with
it, so that an operator sees who else claims the identifier.

A learnt pin is proven when a message has passed between that queue manager and this one. Opening sessions costs a liar nothing, so pins that
are not proven make room for new ones as soon as there are too many, and displace no proven ones.
"""

from __future__ import annotations

import datetime as dt
import enum
import ipaddress
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lanner.store import Store

TABLE: Final = "peers"

# Not in the specification: pins that were learnt; one address (or IPv6 network of 64 bits) has at most so many of them.
MAX_LEARNT: Final = 10_000
MAX_LEARNT_PER_ADDRESS: Final = 64
# Not in the specification, seconds: a proven pin that was not used for so long makes room for a new one.
UNUSED: Final = 30 * 24 * 3600
# Not in the specification, seconds: LastSeen is written at most so often.
_SEEN_INTERVAL: Final = 3600
# Not in the specification: addresses that are kept of those who claimed an identifier in vain.
MAX_CONFLICTS: Final = 8


class Trust(enum.StrEnum):
    """Why an address is believed."""

    LEARNT = "learnt"
    TRUSTED = "trusted"


@dataclass(slots=True)
class Conflict:
    """An address from which an identifier was claimed that is bound to others."""

    count: int
    last: int  # seconds since 1970


@dataclass(slots=True, eq=False)
class Pin:
    """What is bound to the identifier of a queue manager. Times are seconds since 1970."""

    guid: UUID
    first_seen: int = 0
    last_seen: int = 0
    addresses: dict[str, Trust] = field(default_factory=dict)
    conflicts: dict[str, Conflict] = field(default_factory=dict)
    # A message of this queue manager was stored here, or it has acknowledged one of ours.
    is_proven: bool = False

    @property
    def is_learnt(self) -> bool:
        """Whether no operator has said anything about it."""
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
            # Older rows do not say.
            document.get("proven", False),
        )

    def document(self) -> dict[str, object]:
        """The pin as `lanner peer list --json` shows it."""
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


def network_of(address: str) -> str:
    """Return what one computer has: an IPv4 address, or an IPv6 network of 64 bits."""
    parsed = ipaddress.ip_address(address)
    return str(ipaddress.ip_network(f"{parsed}/64", strict=False)) if parsed.version == 6 else address


class Pins:
    """All pins. The store's lock is held."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._table = store.table(TABLE)
        self._clock = clock
        self._by_guid: dict[UUID, Pin] = {}
        # Learnt pins by the network of their address, those that were seen last at the end.
        self._learnt: dict[str, dict[UUID, None]] = {}
        # Those of them that are not proven, in the same order.
        self._unproven: dict[UUID, None] = {}
        self.reload()

    def reload(self) -> None:
        """Go back to what the table has: at the start, and when the store could not write."""
        self._by_guid = {pin.guid: pin for pin in (Pin.unpack(*row) for row in self._table.items())}
        self._learnt = {}
        self._unproven = {}
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
        self._unproven.pop(pin.guid, None)
        if pin.is_learnt and pin.addresses and not pin.is_proven:
            self._unproven[pin.guid] = None
        for address in pin.addresses if pin.is_learnt else ():
            guids = self._learnt.setdefault(network_of(address), {})
            guids.pop(pin.guid, None)
            guids[pin.guid] = None

    def _unindex(self, pin: Pin) -> None:
        self._unproven.pop(pin.guid, None)
        for address in pin.addresses:
            network = network_of(address)
            guids = self._learnt.get(network, {})
            guids.pop(pin.guid, None)
            if not guids:
                self._learnt.pop(network, None)

    def _write(self, pin: Pin) -> None:
        self._table.put(pin.guid.bytes, pin.pack())

    def learn(self, guid: UUID, address: str) -> bool:
        """Bind an unknown identifier to the address that it came from; False: there are too many."""
        guids = self._learnt.get(network_of(address), {})
        if len(guids) >= MAX_LEARNT_PER_ADDRESS:
            # The computers behind one address can take each other's places anyhow.
            self.forget(next(iter(guids)))
        if self.learnt_count >= MAX_LEARNT and not self._make_room():
            return False
        now = int(self._clock())
        pin = self._by_guid.setdefault(guid, Pin(guid, now))
        pin.last_seen = now
        pin.addresses[address] = Trust.LEARNT
        self._index(pin)
        self._write(pin)
        return True

    def _make_room(self) -> bool:
        if self._unproven:
            return self.forget(next(iter(self._unproven)))
        oldest = min(
            (self._by_guid[guid] for guids in self._learnt.values() for guid in guids), key=lambda pin: pin.last_seen
        )
        if oldest.last_seen > self._clock() - UNUSED:
            return False
        return self.forget(oldest.guid)

    def prove(self, pin: Pin) -> None:
        """Note that a message has passed between the queue manager of a pin and this one."""
        if not pin.is_proven:
            pin.is_proven = True
            self._index(pin)
            self._write(pin)

    def seen(self, pin: Pin) -> None:
        """Note that a queue manager came from an address of its pin."""
        now = int(self._clock())
        is_old = now - pin.last_seen >= _SEEN_INTERVAL
        pin.last_seen = now
        self._index(pin)
        if is_old:
            self._write(pin)

    def conflict(self, guid: UUID, address: str) -> None:
        """Note that an identifier was claimed from an address that it is not bound to."""
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
        """Believe an identifier from these addresses, and from those that were trusted before; no longer from learnt ones."""
        pin = self._by_guid.setdefault(guid, Pin(guid))
        self._unindex(pin)
        kept = [address for address, trust in pin.addresses.items() if trust is Trust.TRUSTED]
        pin.addresses = dict.fromkeys([*kept, *addresses], Trust.TRUSTED)
        pin.conflicts.clear()
        self._write(pin)
        return pin

    def forget(self, guid: UUID) -> bool:
        """Remove a pin; False if there is none."""
        pin = self._by_guid.pop(guid, None)
        if pin is None:
            return False
        self._unindex(pin)
        self._table.delete(guid.bytes)
        return True
