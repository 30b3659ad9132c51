"""Tables by identifiers that clients choose.

The hash of a UUID is a remainder of its number, so a client can choose any number of identifiers
with the same hash. In a dict of them each lookup would go through all of them. The hash of bytes
has a random key.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, ValuesView
from typing import TypeVar
from uuid import UUID

V = TypeVar("V")


class GuidTable(MutableMapping[UUID, V]):
    """A dict by UUID, in the order of insertion, whose lookups nobody can make slow."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[bytes, V] = {}

    def __getitem__(self, key: UUID) -> V:
        return self._values[key.bytes]

    def __setitem__(self, key: UUID, value: V) -> None:
        self._values[key.bytes] = value

    def __delitem__(self, key: UUID) -> None:
        del self._values[key.bytes]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, UUID) and key.bytes in self._values

    def __iter__(self) -> Iterator[UUID]:
        return (UUID(bytes=key) for key in self._values)

    def __len__(self) -> int:
        return len(self._values)

    def values(self) -> ValuesView[V]:
        """Return the values without making their keys."""
        return self._values.values()

    def __repr__(self) -> str:
        return f"GuidTable({dict(self)!r})"
