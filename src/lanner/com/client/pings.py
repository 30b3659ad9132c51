"""The pings that keep remote objects alive (MS-DCOM 3.2.6.1). No I/O.

A client has one set of objects at each resolver. ComplexPing creates and changes the set; while it
does not change, SimplePing is enough.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from lanner.com.constants import OR_INVALID_OID, OR_INVALID_SET, OR_OK

# Not in the specification: cAddToSet is an unsigned short, and a resolver need not accept that many
# at once.
MAX_OIDS_PER_PING: Final = 1000
_MAX_SEQUENCE: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class SimplePing:
    set_id: int


@dataclass(frozen=True, slots=True)
class ComplexPing:
    set_id: int
    sequence: int
    added: tuple[int, ...]
    removed: tuple[int, ...]


class PingSet:
    """The objects held at one resolver, and the subset that the resolver's ping set contains."""

    def __init__(self) -> None:
        self._held: Counter[int] = Counter()
        self._told: set[int] = set()
        self._set_id = 0
        self._sequence = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is held and the resolver's ping set is empty."""
        return not self._held and not self._told

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, oid: int) -> None:
        """Count one more interface of this object. Each must be released."""
        self._held[oid] += 1

    def let_go(self, oid: int) -> None:
        self._held[oid] -= 1
        if self._held[oid] <= 0:
            del self._held[oid]

    def next_ping(self) -> SimplePing | ComplexPing | None:
        """Return the ping of this period, or None if nothing must be kept alive."""
        if self._held.keys() == self._told:
            return SimplePing(self._set_id) if self._told else None
        return self.change()

    def change(self) -> ComplexPing | None:
        """Return the changes not sent to the resolver yet, or None if there are none."""
        # They are sent in order of arrival, so that none is delayed for ever.
        added = [oid for oid in self._held if oid not in self._told][:MAX_OIDS_PER_PING]
        removed = sorted(self._told - self._held.keys())[:MAX_OIDS_PER_PING]
        if not added and not removed:
            return None
        # A resolver ignores sequence numbers lower than the last one it has seen, so the sequence
        # cannot wrap around: a new set starts instead.
        if self._sequence >= _MAX_SEQUENCE:
            self._begin_again()
            return self.change()
        return ComplexPing(self._set_id, self._sequence + 1, tuple(added), tuple(removed) if self._set_id else ())

    def answered(self, ping: SimplePing | ComplexPing, status: int, set_id: int = 0) -> None:
        """Process the status of a ping, and the set that a ComplexPing returned."""
        if status in (OR_INVALID_SET, OR_INVALID_OID):
            # The set expired, or an object in it is gone. Create a new set from the remaining
            # objects; MS-DCOM 3.1.2.5.1.3 skips unknown ones.
            self._begin_again()
        elif status == OR_OK and isinstance(ping, ComplexPing):
            self._set_id = set_id
            self._sequence = ping.sequence
            self._told |= set(ping.added)
            self._told -= set(ping.removed)
            if not self._told:
                # MS-DCOM 3.2.6.1: the client forgets an empty set, which expires at the resolver.
                self._begin_again()

    def _begin_again(self) -> None:
        self._set_id = 0
        self._sequence = 0
        self._told.clear()
