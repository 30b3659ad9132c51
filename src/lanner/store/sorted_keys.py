"""A sorted set of keys for the overlay, optimized for appends.

All operations stay cheap with a million keys. Keys are in chunks of bounded length, so an insertion
or removal moves a few kilobytes at most, wherever it occurs. One plain list would move eight
megabytes for each high-priority message that is inserted before a million others.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

__all__ = ["K", "SortedKeys"]

K = TypeVar("K", int, bytes)

_CHUNK = 1024


class SortedKeys(Generic[K]):
    __slots__ = ("_chunks", "_lasts")

    def __init__(self) -> None:
        self._chunks: list[list[K]] = []
        self._lasts: list[K] = []  # the highest key of each chunk

    def __bool__(self) -> bool:
        return bool(self._lasts)

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def __iter__(self) -> Iterator[K]:
        for chunk in self._chunks:
            yield from chunk

    def add(self, key: K) -> None:
        """Add a key that is not in the set."""
        lasts = self._lasts
        if not lasts or key > lasts[-1]:
            if lasts and len(self._chunks[-1]) < _CHUNK:
                self._chunks[-1].append(key)
                lasts[-1] = key
            else:
                self._chunks.append([key])
                lasts.append(key)
            return
        at = bisect_left(lasts, key)
        chunk = self._chunks[at]
        insort(chunk, key)
        if len(chunk) > 2 * _CHUNK:
            upper = chunk[_CHUNK:]
            del chunk[_CHUNK:]
            self._chunks.insert(at + 1, upper)
            lasts.insert(at, chunk[-1])

    def extend(self, keys: Sequence[K]) -> None:
        """Add keys in ascending order, none of which is in the set."""
        lasts = self._lasts
        if lasts and keys[0] > lasts[-1] and len(self._chunks[-1]) + len(keys) <= _CHUNK:
            self._chunks[-1].extend(keys)
            lasts[-1] = keys[-1]
            return
        for key in keys:
            self.add(key)

    def merge(self, other: SortedKeys[K]) -> None:
        """Add the keys of another set, none of which is in this one."""
        if self._lasts and other._lasts and other._chunks[0][0] < self._lasts[-1]:
            for key in other:
                self.add(key)
            return
        for chunk in other._chunks:
            if self._chunks and len(self._chunks[-1]) + len(chunk) <= _CHUNK:
                self._chunks[-1] += chunk
                self._lasts[-1] = chunk[-1]
            else:
                self._chunks.append(chunk.copy())
                self._lasts.append(chunk[-1])

    def discard(self, key: K) -> None:
        lasts = self._lasts
        at = bisect_left(lasts, key)
        if at == len(lasts):
            return
        chunk = self._chunks[at]
        place = 0 if chunk[0] == key else bisect_left(chunk, key)
        if chunk[place] != key:
            return
        del chunk[place]
        if not chunk:
            del self._chunks[at]
            del lasts[at]
        elif place == len(chunk):
            lasts[at] = chunk[-1]

    def ceiling(self, key: K) -> K | None:
        """Return the lowest key that is not below `key`."""
        lasts = self._lasts
        if not lasts:
            return None
        first = self._chunks[0][0]
        if key <= first:
            return first
        at = bisect_left(lasts, key)
        if at == len(lasts):
            return None
        chunk = self._chunks[at]
        return chunk[bisect_left(chunk, key)]

    def below(self, key: K) -> K | None:
        """Return the highest key below `key`."""
        lasts = self._lasts
        if not lasts:
            return None
        if key > lasts[-1]:
            return lasts[-1]
        at = bisect_left(lasts, key)
        chunk = self._chunks[at]
        place = bisect_left(chunk, key)
        if place:
            return chunk[place - 1]
        return lasts[at - 1] if at else None
