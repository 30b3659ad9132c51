"""Limits on the objects that clients hold in this process, and on the octets in them.

Not in the specification: MS-DCOM has no limits. There is a limit per user and one for all users
together. An object is counted before it is exported, its octets after each call that may have
changed them, so one call can exceed a limit on octets. A user above a limit gets no new objects,
and may add nothing large to existing ones, until it releases some.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lanner.com.constants import E_OUTOFMEMORY
from lanner.com.objects import ComError

if TYPE_CHECKING:
    from lanner.wire.sid import Sid

MAX_OBJECTS: Final = 65_536
MAX_OCTETS: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class HoldingLimits:
    """Limits for all clients together, and for one user."""

    max_objects: int = MAX_OBJECTS
    max_objects_per_user: int = MAX_OBJECTS // 4
    # This is room for more than a hundred messages of maximum size.
    max_octets: int = MAX_OCTETS
    max_octets_per_user: int = MAX_OCTETS // 2


class Holdings:
    """The current counts."""

    def __init__(self, limits: HoldingLimits | None = None) -> None:
        self.limits = HoldingLimits() if limits is None else limits
        self.objects = 0
        self.octets = 0
        self._objects_of: Counter[Sid] = Counter()
        self._octets_of: Counter[Sid] = Counter()

    def require_room(self, owner: Sid | None) -> None:
        """Raise E_OUTOFMEMORY if the user, or all users together, are at a limit.

        An object without an owner counts for no user.
        """
        limits = self.limits
        if self.objects >= limits.max_objects:
            raise ComError(E_OUTOFMEMORY, f"clients hold {self.objects} objects")
        if owner is not None and self._objects_of[owner] >= limits.max_objects_per_user:
            raise ComError(E_OUTOFMEMORY, f"{owner} holds {self._objects_of[owner]} objects")
        self.require_octets(owner)

    def require_octets(self, owner: Sid | None) -> None:
        """Raise E_OUTOFMEMORY if existing objects may not grow."""
        limits = self.limits
        if self.octets >= limits.max_octets:
            raise ComError(E_OUTOFMEMORY, f"clients hold {self.octets} octets")
        if owner is not None and self._octets_of[owner] >= limits.max_octets_per_user:
            raise ComError(E_OUTOFMEMORY, f"{owner} holds {self._octets_of[owner]} octets")

    def add(self, owner: Sid | None) -> None:
        """Count a new object. Raise E_OUTOFMEMORY if there is no room for it."""
        self.require_room(owner)
        self.objects += 1
        if owner is not None:
            self._objects_of[owner] += 1

    def grow(self, owner: Sid | None, octets: int) -> None:
        """Count octets added to an object; negative if it shrank."""
        self.octets += octets
        if owner is not None:
            self._octets_of[owner] += octets

    def remove(self, owner: Sid | None, octets: int) -> None:
        """Remove an object and its octets from the counts."""
        self.objects -= 1
        self.octets -= octets
        if owner is None:
            return
        self._objects_of[owner] -= 1
        self._octets_of[owner] -= octets
        if not self._objects_of[owner]:
            del self._objects_of[owner], self._octets_of[owner]
