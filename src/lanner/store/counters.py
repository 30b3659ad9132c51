"""Persistent counters that never issue a value twice, even after a crash.

A counter issues only values below a durable limit. The limit is raised a block ahead of use: when
half a block is left, the next commit carries the new limit. If no commit comes in time, the counter
writes the limit itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import lmdb

from lanner.model.errors import InsufficientResources
from lanner.store.environment import Environment
from lanner.store.format import table_key

__all__ = ["Counter", "Counters"]

_VALUE = struct.Struct(">Q")
_TABLE = "counters"
# Not in the specification: with the usual block this is 67 million values, more than are issued
# during any commit.
_LONG_BLOCKS = 1024


class Counter:
    """A counter that issues 1, 2, 3 and so on. A crash leaves a gap, a clean close does not."""

    __slots__ = ("_block", "_counters", "_key", "_limit", "_next", "_refill_at", "_written", "name")

    def __init__(self, name: str, block: int, counters: Counters, start: int) -> None:
        self.name = name
        self._key = table_key(_TABLE, name.encode())
        self._block = block
        self._counters = counters
        self._next = start
        self._limit = start  # values below it may be issued
        self._written = start  # the limit in the commit in progress
        self._refill_at = start

    def next(self, n: int = 1) -> int:
        """Issue `n` values in a row and return the first. Needs the store's lock."""
        first = self._next
        end = first + n
        if end > self._refill_at:
            if end > self._limit:
                self._counters.reserve(self, end)
            else:
                self._counters.want(self)
        self._next = end
        return first

    @property
    def last(self) -> int:
        """The last value issued, 0 before the first."""
        return self._next - 1

    def write(self, txn: lmdb.Transaction[bytes], db: lmdb._Database, ahead: int = 0) -> int:
        """Write a limit at least a block ahead and return it.

        `raise_limit` follows when it is durable.
        """
        # Never below the limit that another commit in progress may have written.
        self._written = max(self._written, self._next + ahead + self._block)
        txn.put(self._key, _VALUE.pack(self._written), db=db)
        return self._written

    def write_for_long(self, txn: lmdb.Transaction[bytes], db: lmdb._Database) -> int:
        """Write a limit that suffices for a long commit, and return it."""
        if self._limit - self._next > _LONG_BLOCKS // 2 * self._block:
            return self._limit
        return self.write(txn, db, _LONG_BLOCKS * self._block)

    def write_exact(self, txn: lmdb.Transaction[bytes], db: lmdb._Database) -> None:
        """Write the next value itself, for a clean close."""
        txn.put(self._key, _VALUE.pack(self._next), db=db)

    def raise_limit(self, limit: int) -> None:
        """Allow values below `limit`, which is durable."""
        self._limit = max(self._limit, limit)
        self._refill_at = self._limit - self._block // 2


class Counters:
    """All counters of a store."""

    def __init__(self, environment: Environment, wake: Callable[[], None]) -> None:
        self._environment = environment
        self._wake = wake
        self._all: dict[str, Counter] = {}
        self._wanting: set[Counter] = set()

    def get(self, name: str, block: int) -> Counter:
        counter = self._all.get(name)
        if counter is None:
            if block < 1:
                raise ValueError(f"counter {name}: a block of {block}")
            environment = self._environment
            raw = environment.txn.get(table_key(_TABLE, name.encode()), db=environment.tables)
            counter = Counter(name, block, self, 1 if raw is None else _VALUE.unpack(raw)[0])
            self._all[name] = counter
        return counter

    def want(self, counter: Counter) -> None:
        """Have the next commit raise the limit of this counter."""
        if counter not in self._wanting:
            self._wanting.add(counter)
            self._wake()

    def want_all(self) -> None:
        """Have the next commit raise every limit, because a commit that carried limits failed."""
        self._wanting.update(self._all.values())

    @property
    def wanting(self) -> bool:
        return bool(self._wanting)

    def reserve(self, counter: Counter, end: int) -> None:
        """Raise a limit at once, in a commit of its own.

        The caller holds the store's lock. The wait for LMDB's writer lasts one sync at most: a
        writer takes the store's lock first and does not need it again before its commit has ended
        (commit.py).
        """
        environment = self._environment
        try:
            with environment.write() as txn:
                limit = counter.write(txn, environment.tables, end - counter.last)
        except InsufficientResources:
            self.want(counter)  # a commit can do more: it may reopen the database
            raise
        counter.raise_limit(limit)
        self._wanting.discard(counter)

    def reserve_for_long(self) -> None:
        """Raise every limit by many blocks, before a commit that takes seconds.

        `reserve` would have to wait for such a commit.
        """
        environment = self._environment
        with environment.write() as txn:
            written = [(counter, counter.write_for_long(txn, environment.tables)) for counter in self._all.values()]
        for counter, limit in written:
            counter.raise_limit(limit)
        self._wanting.clear()

    def write(self, txn: lmdb.Transaction[bytes]) -> list[tuple[Counter, int]]:
        """Write the wanted limits into a commit.

        The caller raises the returned limits when it is durable.
        """
        written = [(counter, counter.write(txn, self._environment.tables)) for counter in self._wanting]
        self._wanting.clear()
        return written

    def write_exact(self, txn: lmdb.Transaction[bytes]) -> None:
        for counter in self._all.values():
            counter.write_exact(txn, self._environment.tables)
