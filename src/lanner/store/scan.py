"""Reading a queue by visibility number, for the data pipeline: a snapshot of its own, in any thread, in little memory."""

from __future__ import annotations

import logging
import struct
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate, islice
from types import TracebackType
from typing import NamedTuple, Self

import lmdb

from lanner.model.errors import StoreCorrupt
from lanner.store.environment import Environment
from lanner.store.queue_view import QueueView
from lanner.store.record import MESSAGE_KEY, Record, are_whole, decode, is_stored_reference, stored_reference

__all__ = ["Chunk", "Scan"]

_LOG = logging.getLogger(__name__)

# Ours: how much a scan reads before it says so.
_TOUCH_EVERY = 1 << 20
_TOUCH_ROWS = 1 << 13  # so many index entries lie on about a megabyte
_CHUNK_STEP = 512  # index entries that are read together
_BEHIND = b"\xff" * 16  # behind any value of the index

_key = MESSAGE_KEY.pack
_U64 = struct.Struct(">Q")
_pack_number = _U64.pack
_number = _U64.unpack_from
_size = struct.Struct(">I").unpack_from  # the second half of INDEX_ENTRY


class Chunk(NamedTuple):
    """Many messages as they are stored, for whoever decodes them together: no object for each but its bytes.

    `entries` are of the index: keys (queue, generation, visibility as in MESSAGE_KEY) and values (INDEX_ENTRY). `records` begin with `record.HEADER`,
    which the packet follows. Of published messages the packets stand in `staged` instead, each behind its checksum of 4 bytes.
    """

    entries: list[tuple[bytes, bytes]]
    records: list[bytes]
    staged: list[bytes]


class Scan:
    """The messages of a queue with a visibility number in (after, upto], in the order of their numbers.

    Made under the store's lock, iterated once and without it, perhaps in another thread. It sees what was synced when it was made, and the express
    messages of that moment. Close it, or exhaust it: until then the pages it reads cannot be used again.
    """

    def __init__(
        self,
        view: QueueView,
        environment: Environment,
        after: int,
        upto: int,
        corrupt: Callable[[int, int], None],
        limit: int | None = None,
    ) -> None:
        """`limit`: so many express messages are enough; the range ends with the last of them then."""
        self.after = after
        self._express = express_between(view, after, upto, limit)
        self.upto = self._express[-1][0] if limit is not None and len(self._express) == limit else upto
        self._queue = view.number
        self._generation = view.generation
        self._environment = environment
        self._corrupt = corrupt
        self._close_lock = threading.Lock()
        self._txn: lmdb.Transaction[bytes] | None = None
        self._txn = environment.env.begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Give the snapshot back. Only the thread that iterates may do it, or any when it is done."""
        with self._close_lock:
            txn, self._txn = self._txn, None
        if txn is not None:
            txn.abort()

    def __iter__(self) -> Iterator[tuple[int, int, Record]]:
        """Yield (visibility, lookup id, record)."""
        return self._merged() if self._express else self._durable()

    def chunk(self, max_rows: int, max_bytes: int) -> Chunk | None:
        """Return the first messages of the range: up to so many, or until so many bytes of packets are reached.

        It has no messages when there are none. None: there are express messages, or something is wrong with one of those that would be in it;
        iterate then.
        """
        txn = self._txn
        if txn is None:
            raise ValueError("this scan is closed or was iterated before")
        if self._express:
            return None
        environment = self._environment
        prefix = _key(self._queue, self._generation, 0)[:8]
        entries = self._first_entries(txn, prefix, max_rows, max_bytes)
        if not entries:
            return Chunk([], [], [])
        records = _rows(txn.cursor(environment.messages), [prefix + value[:8] for _, value in entries])
        if len(records) < len(entries) or not are_whole(records):
            return None
        # Packets are either all in the records or all in staged rows.
        is_reference = is_stored_reference(records[0])
        count = next((n for n, raw in enumerate(records) if is_stored_reference(raw) is not is_reference), len(records))
        del entries[count:], records[count:]
        staged: list[bytes] = []
        if is_reference:
            staged = _rows(txn.cursor(environment.staged), [stored_reference(raw) for raw in records])
            if len(staged) < count or not are_whole(staged):
                return None
        environment.memory.touch(sum(map(len, records)) + sum(map(len, staged)))
        return Chunk(entries, records, staged)

    def _first_entries(
        self, txn: lmdb.Transaction[bytes], prefix: bytes, max_rows: int, max_bytes: int
    ) -> list[tuple[bytes, bytes]]:
        cursor = txn.cursor(self._environment.visible)
        entries: list[tuple[bytes, bytes]] = []
        if self.upto <= self.after or not cursor.set_range(prefix + _pack_number(self.after + 1)):
            return entries
        last, size = prefix + _pack_number(self.upto), 0
        rows = iter(cursor)
        while len(entries) < max_rows and size < max_bytes:
            some = list(islice(rows, min(_CHUNK_STEP, max_rows - len(entries))))
            if not some:
                break
            if some[-1][0] > last:
                # Keys do not repeat, so the value does not matter.
                del some[bisect_right(some, (last, _BEHIND)) :]
                max_rows = 0
            sizes = list(accumulate((_size(value, 8)[0] for _, value in some), initial=size))
            # Up to the first message with which the limit is reached.
            end = bisect_left(sizes, max_bytes)
            entries += some[:end]
            size = sizes[-1]
        return entries

    def _merged(self) -> Iterator[tuple[int, int, Record]]:
        express = iter(self._express)
        waiting = next(express, None)
        for row in self._durable():
            while waiting is not None and waiting[0] < row[0]:
                yield waiting
                waiting = next(express, None)
            yield row
        if waiting is not None:
            yield waiting
        yield from express

    def _durable(self) -> Iterator[tuple[int, int, Record]]:
        txn = self._txn
        if txn is None:
            raise ValueError("this scan is closed or was iterated before")
        environment = self._environment
        messages, staged = environment.messages, environment.staged
        prefix = _key(self._queue, self._generation, 0)[:8]
        touched = 0
        try:
            for visibility, lookup_id, _ in index_rows(txn, environment, prefix, self.after, self.upto):
                raw = txn.get(prefix + lookup_id, None, messages)
                if raw is None:
                    continue
                number = _number(lookup_id)[0]
                try:
                    record = decode(raw, txn, staged)
                except StoreCorrupt as error:
                    _LOG.debug("scan of queue %d leaves out %#018x: %s", self._queue, number, error)
                    self._corrupt(self._queue, number)
                    continue
                touched += len(record.packet)
                if touched > _TOUCH_EVERY:
                    environment.memory.touch(touched)
                    touched = 0
                yield visibility, number, record
        finally:
            self.close()


def _rows(cursor: lmdb.Cursor[bytes], keys: list[bytes]) -> list[bytes]:
    """The values of keys, fewer if one is not there. Mostly they stand in a row, and to walk it is three times as fast as to look for each."""
    if cursor.set_key(keys[0]):
        found = list(islice(cursor.iternext(), len(keys)))
        if [key for key, _ in found] == keys:
            return [value for _, value in found]
    return [value for _, value in cursor.getmulti(keys)]


def express_between(view: QueueView, after: int, upto: int, limit: int | None = None) -> list[tuple[int, int, Record]]:
    """List the visible express messages with a number in (after, upto], in the order of the numbers; the first so many."""
    layer = view.express
    if layer is None:
        return []
    rows = layer.rows
    return [(number, key, rows[key]) for number, key in layer.between(after, upto, limit)]


def index_rows(
    txn: lmdb.Transaction[bytes], environment: Environment, prefix: bytes, after: int, upto: int
) -> Iterator[tuple[int, bytes, int]]:
    """Yield (visibility, lookup id as in keys, size) of the index entries with a number in (after, upto].

    `prefix` is queue and generation as in keys.
    """
    cursor = txn.cursor(environment.visible)
    last = prefix + _pack_number(upto)
    if upto <= after or not cursor.set_range(prefix + _pack_number(after + 1)):
        return
    for count, (key, value) in enumerate(cursor):
        if key > last:
            return
        if not count & _TOUCH_ROWS - 1:
            environment.memory.touch(_TOUCH_EVERY)
        yield _number(key, 8)[0], value[:8], _size(value, 8)[0]


def index_bounds(environment: Environment, view: QueueView) -> tuple[int, int] | None:
    """Return the lowest and the highest number in the index of a queue, None if it is empty."""
    cursor = environment.txn.cursor(environment.visible)
    prefix = _key(view.number, view.generation, 0)[:8]
    if not cursor.set_range(prefix) or not cursor.key().startswith(prefix):
        return None
    lowest = MESSAGE_KEY.unpack(cursor.key())[2]
    at = cursor.set_range(_key(view.number, view.generation, 0xFFFF_FFFF_FFFF_FFFF))
    if at and not cursor.key().startswith(prefix):
        cursor.prev()
    elif not at:
        cursor.last()
    return lowest, MESSAGE_KEY.unpack(cursor.key())[2]
