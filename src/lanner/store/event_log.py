"""The log of events: numbered rows of fixed size, committed with the changes that they describe.

An event is added to the current batch, so it is in the log if and only if the change is durable.
Events alone do not make a batch that callers wait for. What happens to an express message changes
nothing on disk, so its event goes with the next commit or when `Store.flush_events` is called.

Events are written in blocks of some hundreds per database row, because a row for each event would
cost more than the message. The key of a block is the number of its first event. Numbers ascend and
are never reused; a crash or a failed batch leaves a gap.

The oldest blocks are dropped by age and by size. The number up to which events were dropped is
written in the same commit, so that a late reader can be told what it missed.
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

# The fields, by size. Q: milliseconds since 1970, lookup id, visibility number. I: queue, other,
# bytes of the packet, SentTime. H: class, reason. B: kind, flags. H: aborted receives so far. Then
# source queue manager, ordinal and correlation identifier. `other` is the target queue of a move;
# for an arrival it is the number of the sender.
EVENT = struct.Struct("<QQQIIIIHHBBH16sI20s")
_TIME = struct.Struct("<Q")
_KEY = struct.Struct(">Q")
_CHECKSUM = struct.Struct("<I")
_TRIMMED = table_key("events", b"trimmed")
# Not in the specification: maximum number of events in a block, about 45 KB.
BLOCK_EVENTS = 512
# Not in the specification: events that may wait for a commit before one is made for them.
MAX_WAITING = 8192
# Not in the specification: seconds for which one slice of trimming holds LMDB's writer lock.
_SLICE_SECONDS = 0.002


class EventBlock(NamedTuple):
    """Events with consecutive numbers."""

    first: int
    records: list[bytes]


class EventLog:
    """The log of events. Methods need the store's lock unless they say otherwise."""

    def __init__(
        self,
        environment: Environment,
        numbers: Counter,
        current: Callable[[], list[EventBlock]],
        wake: Callable[[], None],
    ) -> None:
        """Open the log, creating its database if necessary.

        `current` returns the event blocks of the current batch. `wake` requests a commit soon.
        """
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
        """Reserve numbers for events made while their batch is written; return the first number."""
        self._records = None
        return self._next(count)

    def closed(self) -> int:
        """Note that the current batch was closed; return the last number issued up to then."""
        self._records = None
        self._waiting = 0
        return self._numbers.last

    def completed(self, horizon: int) -> None:
        """Note that a batch closed at this number is durable (0: closed before the log existed)."""
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
        """Return (after, upto) of the range that contains all events of the log. Needs no lock."""
        environment = self._environment
        with environment.env.begin() as txn:
            cursor = txn.cursor(environment.events)
            first = _KEY.unpack(cursor.key())[0] - 1 if cursor.first() else self._horizon
        return min(first, self._horizon), self._horizon

    def trimmed(self) -> int:
        """Return the number up to which events were dropped, 0 if none were. Needs no lock."""
        environment = self._environment
        with environment.env.begin() as txn:
            raw = txn.get(_TRIMMED, db=environment.tables)
        return 0 if raw is None else int(_KEY.unpack(raw)[0])

    def size(self) -> int:
        """Return the bytes of the file that the log occupies. Needs no lock."""
        with self._environment.env.begin() as txn:
            return _pages(txn, self._environment) * self._environment.env.stat()["psize"]

    def blocks(self, after: int, upto: int) -> Iterator[tuple[int, int]]:
        """Yield (first number, number of events) of the blocks in (after, upto]. Needs no lock.

        The events themselves are not read.
        """
        for first, raw in self._stored(after, upto):
            low, high = _clip(first, len(raw), after, upto)
            if high > low:
                yield first + low, high - low

    def read(self, after: int, upto: int, limit: int) -> list[tuple[int, bytes]]:
        """Return the first events in (after, upto], about `limit`, as (first number, records).

        Each tuple has the records of consecutive events, joined. A block that fails its checksum is
        reported with empty records. Needs no lock.
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
            # The preceding block may extend into the range.
            is_after = cursor.set_range(_KEY.pack(after + 1))
            found = (cursor.prev() if is_after else cursor.last()) or cursor.first()
            while found:
                first = _KEY.unpack(cursor.key())[0]
                if first > upto:
                    return
                yield first, cursor.value()
                found = cursor.next()


def _clip(first: int, size: int, after: int, upto: int) -> tuple[int, int]:
    """Return the (start, stop) indices of a block's records that are in (after, upto]."""
    count = (size - _CHECKSUM.size) // EVENT.size
    return max(after + 1 - first, 0), min(upto + 1 - first, count)


def _pages(txn: lmdb.Transaction[bytes], environment: Environment) -> int:
    stat = txn.stat(environment.events)
    return int(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"])


def encode_block(first: int, records: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Return the key and the value of a block's row."""
    data = b"".join(records)
    return _KEY.pack(first), _CHECKSUM.pack(crc32(data)) + data


def put_block(txn: lmdb.Transaction[bytes], environment: Environment, first: int, records: Sequence[bytes]) -> None:
    """Write a block, as an append if it comes last, because appending fills pages completely."""
    if not records:
        return
    cursor = txn.cursor(environment.events)
    key, value = encode_block(first, records)
    cursor.put(key, value, append=not cursor.last() or cursor.key() < key)


def trim_slice(txn: lmdb.Transaction[bytes], environment: Environment, before_ms: int, max_bytes: int) -> bool:
    """Drop the oldest blocks that end before a time or exceed a size.

    Return whether there may be more to drop.
    """
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
