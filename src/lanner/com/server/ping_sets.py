"""The sets of objects that clients ping (MS-DCOM 3.1.2.1, 3.1.2.5.1.2, 3.1.2.5.1.3, 3.1.2.6).

This module does no I/O; the time is passed in. An object in a ping set lives as long as the set is
pinged. An object in no set lives for the time-out of a set. All time-outs are equally long, so
tables ordered by start time are also ordered by deadline and need no search.
"""

from __future__ import annotations

import itertools
import secrets
from collections import OrderedDict
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Final

from lanner.com.constants import ERROR_OUTOFMEMORY, OR_INVALID_OID, OR_INVALID_SET, OR_OK, PING_PERIOD

# MS-DCOM 3.1.2.2: the timer of a set runs for three ping periods.
PERIODS: Final = 3
PING_TIMEOUT: Final = PERIODS * PING_PERIOD


@dataclass(frozen=True, slots=True)
class PingLimits:
    """Limits on pings. Not in the specification: a Windows client has one set at each resolver."""

    max_sets: int = 4096
    max_sets_per_peer: int = 64
    # Memberships of objects in sets, over all sets. One object may be in many.
    max_members: int = 262_144


@dataclass(slots=True)
class _PingSet:
    peer: str
    sequence: int
    deadline: float
    oids: set[int] = field(default_factory=set)


class PingSets:
    """The SETID table and the OID table of a resolver."""

    def __init__(self, limits: PingLimits | None = None, period: float = PING_PERIOD) -> None:
        """Keep sets that clients ping once per `period`, in seconds."""
        self._limits = PingLimits() if limits is None else limits
        self.period = period
        self._timeout = PERIODS * period
        # Ordered by deadline.
        self._sets: OrderedDict[int, _PingSet] = OrderedDict()
        self._by_peer: dict[str, dict[int, None]] = {}
        # The number of sets that contain each object.
        self._counts: dict[int, int] = {}
        # Objects in no set, with their deadlines; ordered by deadline.
        self._unpinged: OrderedDict[int, float] = OrderedDict()
        self._members = 0

    # Interface for the exporter (MS-DCOM 3.1.2.5.1.7)
    # ---------------------------------------------------------------

    def allocate_oid(self, now: float) -> int:
        """Return a new object identifier that is in no set yet."""
        oid = new_identifier(self._counts)
        self._counts[oid] = 0
        self._unpinged[oid] = now + self._timeout
        return oid

    def forget_oid(self, oid: int) -> None:
        """Forget a released object. Sets that contain it drop it when they are next processed."""
        self._counts.pop(oid, None)
        self._unpinged.pop(oid, None)

    def spare(self, oid: int, now: float) -> None:
        """Extend the life of an expired object that is being called by another period."""
        if oid in self._counts and not self._counts[oid]:
            self._unpinged[oid] = now + self._timeout
            self._unpinged.move_to_end(oid)

    @property
    def sets(self) -> int:
        return len(self._sets)

    @property
    def oids(self) -> int:
        return len(self._counts)

    @property
    def members(self) -> int:
        """The number of memberships of objects in sets."""
        return self._members

    # Pings
    # ----------------------------------------------------------------------------------------------

    def simple_ping(self, set_id: int, now: float) -> int:
        """Serve SimplePing (MS-DCOM 3.1.2.5.1.2) and return its status."""
        found = self._sets.get(set_id)
        if found is None:
            return OR_INVALID_SET
        self._restart(set_id, found, now)
        return OR_OK

    def complex_ping(
        self, set_id: int, sequence: int, added: Iterable[int], removed: Iterable[int], peer: str, now: float
    ) -> tuple[int, int]:
        """Serve ComplexPing (MS-DCOM 3.1.2.5.1.3) and return its status and the set."""
        if not set_id:
            return self._new_set(sequence, added, peer, now)
        found = self._sets.get(set_id)
        if found is None:
            return OR_INVALID_SET, set_id
        if found.sequence > sequence:
            # This is an older ping that arrived late.
            return OR_OK, set_id
        for oid in added:
            if oid in found.oids:
                continue
            if oid not in self._counts:
                return OR_INVALID_OID, set_id
            if not self._add(found, oid):
                return ERROR_OUTOFMEMORY, set_id
        for oid in removed:
            if oid in found.oids:
                self._remove(found, oid, now)
        self._restart(set_id, found, now)
        found.sequence = sequence
        return OR_OK, set_id

    def _new_set(self, sequence: int, added: Iterable[int], peer: str, now: float) -> tuple[int, int]:
        own = self._by_peer.get(peer, {})
        if len(own) >= self._limits.max_sets_per_peer and not self._make_room(own):
            return ERROR_OUTOFMEMORY, 0
        if len(self._sets) >= self._limits.max_sets and not self._make_room(self._sets):
            return ERROR_OUTOFMEMORY, 0
        set_id = new_identifier(self._sets)
        made = self._sets[set_id] = _PingSet(peer, sequence, now + self._timeout)
        self._by_peer.setdefault(peer, {})[set_id] = None
        for oid in added:
            # Unknown objects are skipped here, unlike in an existing set.
            if oid in self._counts and oid not in made.oids and not self._add(made, oid):
                self._drop(set_id, now)
                return ERROR_OUTOFMEMORY, 0
        return OR_OK, set_id

    def _make_room(self, candidates: Iterable[int]) -> bool:
        """Drop the first empty set, if there is one.

        Only a holder of a reference can own a set that is not empty.
        """
        empty = next((set_id for set_id in candidates if not self._sets[set_id].oids), None)
        if empty is None:
            return False
        self._drop(empty, 0.0)
        return True

    def _add(self, to: _PingSet, oid: int) -> bool:
        if self._members >= self._limits.max_members:
            return False
        self._members += 1
        self._counts[oid] += 1
        self._unpinged.pop(oid, None)
        to.oids.add(oid)
        return True

    def _remove(self, of: _PingSet, oid: int, now: float) -> bool:
        """Remove an object from a set. Return whether it exists and is now in no set."""
        of.oids.discard(oid)
        self._members -= 1
        if oid not in self._counts:
            return False
        self._counts[oid] -= 1
        if self._counts[oid]:
            return False
        self._unpinged[oid] = now + self._timeout
        return True

    def _restart(self, set_id: int, found: _PingSet, now: float) -> None:
        found.deadline = now + self._timeout
        self._sets.move_to_end(set_id)

    def _drop(self, set_id: int, now: float) -> list[int]:
        """Remove a set. Return its objects that are in no other set."""
        dropped = self._sets.pop(set_id)
        of_peer = self._by_peer[dropped.peer]
        del of_peer[set_id]
        if not of_peer:
            del self._by_peer[dropped.peer]
        return [oid for oid in list(dropped.oids) if self._remove(dropped, oid, now)]

    # Time (MS-DCOM 3.1.2.6)
    # -------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return the earliest time at which `expire` may have something to do."""
        deadlines = [one.deadline for one in itertools.islice(self._sets.values(), 1)]
        deadlines += itertools.islice(self._unpinged.values(), 1)
        return min(deadlines, default=None)

    def expire(self, now: float) -> list[int]:
        """Drop expired sets. Return the objects that no client pings, to be reclaimed or spared.

        They stay in the table until the exporter forgets them.
        """
        reclaimed: list[int] = []
        while self._sets:
            set_id, first = next(iter(self._sets.items()))
            if first.deadline > now:
                break
            reclaimed += self._drop(set_id, now)
        while self._unpinged:
            oid, deadline = next(iter(self._unpinged.items()))
            if deadline > now:
                break
            del self._unpinged[oid]
            reclaimed.append(oid)
        return reclaimed


def new_identifier(taken: Container[int]) -> int:
    """Return a random 64-bit identifier that is neither zero nor taken."""
    while True:
        identifier = secrets.randbits(64)
        if identifier and identifier not in taken:
            return identifier
