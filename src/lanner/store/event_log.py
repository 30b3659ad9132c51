"""The log of events: rows of one size, numbered, in the same batches and commits as what they tell of.

An event is added to the batch that is being filled, so it is in the log if and only if what
happened is on disk. Events alone make no batch that anybody waits for: what happens to an express
message changes nothing on disk, and its event goes with the next commit, or when `flush` is called.
They are written in blocks, some hundreds in one row of the database, since a row for each would
cost more than the message: a block lies under the number of its first event. Numbers go up and are
never used again; a crash, or a batch that fails, leaves a gap.

The oldest blocks are dropped by time and by size. Up to where that was done is written with it, so
that a reader who comes too late can be told.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import lmdb

from lanner.store.checksum import crc32
from lanner.store.counters import Counter
from lanner.store.environment import Environment
from lanner.store.format import table_key

__all__ = ["EVENT", "EventBlock", "EventLog", "encode_block", "put_block", "trim_slice"]

# Milliseconds since 1970, lookup id, visibility number; queue, other, bytes of the packet,
# SentTime; class, reason; kind, flags; aborted receives so far; source queue manager, ordinal,
# correlation identifier. `other` is the target queue of a move, and of an arrival the number of its
# sender.
EVENT = struct.Struct("<QQQIIIIHHBBH16sI20s")
_TIME = struct.Struct("<Q")
_KEY = struct.Struct(">Q")
_CHECKSUM = struct.Struct("<I")
_TRIMMED = table_key("events", b"trimmed")
# Ours: events in a block at most, some 45 KB.
BLOCK_EVENTS = 512
# Ours: so many events may wait for a commit before one is made for them.
MAX_WAITING = 8192
# Ours: seconds for which one slice of trimming holds the writer.
_SLICE_SECONDS = 0.002


class EventBlock(NamedTuple):
    """Events with numbers in a row."""

    first: int
    records: list[bytes]


class EventLog:
    """Methods need the store's lock, but for those that say that they need none."""

    def __init__(
        self,
        environment: Environment,
        numbers: Counter,
        current: Callable[[], list[EventBlock]],
        wake: Callable[[], None],
    ) -> None:
        """`current` gives the blocks of the batch that is being filled, `wake` has it committed soon."""
        environment.open_events()
        self._environment = environment
        self._numbers = numbers
        self._next = numbers.next
        self._current = current
        self._wake = wake
        self._records: list[bytes] | None = None  # of the block that is being filled
        self._waiting = 0
        self._horizon = numbers.last

    # Writing

    def add_run(self, rows: Sequence[bytes]) -> None:
        """Add events, packed as EVENT, to the current batch."""
        added, count = 0, len(rows)
        while added < count:
            records = self._records
            if records is None or len(records) == BLOCK_EVENTS:
                records = self._begin()
            some = rows[added : added + BLOCK_EVENTS - len(records)]
            self._next(len(some))
            records += some
            added += len(some)

    def _begin(self) -> list[bytes]:
        self._waiting += BLOCK_EVENTS
        if self._waiting > MAX_WAITING:
            self._waiting = 0
            self._wake()
        records = self._records = []
        self._current().append(EventBlock(self._numbers.last + 1, records))
        return records

    def reserve(self, count: int) -> int:
        """Take numbers for events that are made while their batch is written; the first of them."""
        self._records = None
        return self._next(count)

    def closed(self) -> int:
        """The current batch is closed: the last number that was issued for it or before."""
        self._records = None
        self._waiting = 0
        return self._numbers.last

    def completed(self, horizon: int) -> None:
        """A batch is durable that was closed with this number; one that was closed before there was a log has 0."""
        self._horizon = max(self._horizon, horizon)

    @property
    def is_waiting(self) -> bool:
        """Whether events have happened that a reader does not find yet."""
        return self._numbers.last > self._horizon

    # Reading

    @property
    def horizon(self) -> int:
        """The number up to which all events are durable, or never will be."""
        return self._horizon

    def bounds(self) -> tuple[int, int]:
        """(after, upto) in which everything is that the log has. Needs no lock."""
        environment = self._environment
        with environment.env.begin() as txn:
            cursor = txn.cursor(environment.events)
            first = _KEY.unpack(cursor.key())[0] - 1 if cursor.first() else self._horizon
        return min(first, self._horizon), self._horizon

    def trimmed(self) -> int:
        """The number up to which events were dropped for their age, 0 if none were.

        Needs no lock.
        """
        environment = self._environment
        with environment.env.begin() as txn:
            raw = txn.get(_TRIMMED, db=environment.tables)
        return 0 if raw is None else int(_KEY.unpack(raw)[0])

    def size(self) -> int:
        """Bytes of the file that the log takes. Needs no lock."""
        with self._environment.env.begin() as txn:
            return _pages(txn, self._environment) * self._environment.env.stat()["psize"]

    def blocks(self, after: int, upto: int) -> Iterator[tuple[int, int]]:
        """Yield (first number, events) of what is in (after, upto], nothing of it read.

        Needs no lock.
        """
        for first, raw in self._stored(after, upto):
            low, high = _clip(first, len(raw), after, upto)
            if high > low:
                yield first + low, high - low

    def read(self, after: int, upto: int, limit: int) -> list[tuple[int, bytes]]:
        """Return the first events in (after, upto], about `limit` of them: (first number, records in a row). Needs no lock.

        A block that fails its checksum is left out, and said so in the result: its records are
        empty.
        """
        found = []
        count = 0
        for first, raw in self._stored(after, upto):
            low, high = _clip(first, len(raw), after, upto)
            if high <= low:
                continue
            data = bytes(raw[_CHECKSUM.size :])
            if crc32(data) != _CHECKSUM.unpack_from(raw)[0]:
                found.append((first + high - 1, b""))
                continue
            found.append((first + low, data[low * EVENT.size : high * EVENT.size]))
            count += high - low
            if count >= limit:
                break
        return found

    def _stored(self, after: int, upto: int) -> Iterator[tuple[int, memoryview]]:
        environment = self._environment
        upto = min(upto, self._horizon)
        with environment.env.begin(buffers=True) as txn:
            cursor = txn.cursor(environment.events)
            # The block before may reach over the beginning.
            is_after = cursor.set_range(_KEY.pack(after + 1))
            found = (cursor.prev() if is_after else cursor.last()) or cursor.first()
            while found:
                first = _KEY.unpack(cursor.key())[0]
                if first > upto:
                    return
                yield first, cursor.value()
                found = cursor.next()


def _clip(first: int, size: int, after: int, upto: int) -> tuple[int, int]:
    """Which records of a block of some bytes are in (after, upto]."""
    count = (size - _CHECKSUM.size) // EVENT.size
    return max(after + 1 - first, 0), min(upto + 1 - first, count)


def _pages(txn: lmdb.Transaction[bytes], environment: Environment) -> int:
    stat = txn.stat(environment.events)
    return int(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"])


def encode_block(first: int, records: list[bytes]) -> tuple[bytes, bytes]:
    """The row of a block: key and value."""
    data = b"".join(records)
    return _KEY.pack(first), _CHECKSUM.pack(crc32(data)) + data


def put_block(txn: lmdb.Transaction[bytes], environment: Environment, first: int, records: list[bytes]) -> None:
    """Write a block; behind the last one as an append, which fills pages to the end."""
    if not records:
        return
    cursor = txn.cursor(environment.events)
    key, value = encode_block(first, records)
    cursor.put(key, value, append=not cursor.last() or cursor.key() < key)


def trim_slice(txn: lmdb.Transaction[bytes], environment: Environment, before_ms: int, max_bytes: int) -> bool:
    """Drop the oldest blocks that end before a time, or that are too many; True if there may be more to drop."""
    deadline = time.perf_counter() + _SLICE_SECONDS
    most = max_bytes // environment.env.stat()["psize"]
    cursor = txn.cursor(environment.events)
    dropped = 0
    while cursor.first():
        raw = cursor.value()
        is_old = _TIME.unpack_from(raw, len(raw) - EVENT.size)[0] < before_ms
        if not is_old and _pages(txn, environment) <= most:
            break
        dropped = _KEY.unpack(cursor.key())[0] + (len(raw) - _CHECKSUM.size) // EVENT.size - 1
        cursor.delete()
        if time.perf_counter() >= deadline:
            break
    if dropped:
        txn.put(_TRIMMED, _KEY.pack(dropped), db=environment.tables)
    return bool(dropped)
