"""Reading a queue by visibility number, for the data pipeline: a snapshot of its own, in any thread, in little memory."""

from __future__ import annotations

import logging
import struct
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

import lmdb

from lanner.model.errors import StoreCorrupt
from lanner.store.environment import Environment
from lanner.store.queue_view import QueueView
from lanner.store.record import MESSAGE_KEY, Record, checksums_of, decode

__all__ = ["Rows", "Scan"]

_LOG = logging.getLogger(__name__)

# Ours: how much a scan reads before it says so.
_TOUCH_EVERY = 1 << 20
_TOUCH_ROWS = 1 << 13  # so many index entries lie on about a megabyte
_STEP = 256  # rows that are read together
_INDEX_STEP = 512  # and entries of the index

_key = MESSAGE_KEY.pack
_U64 = struct.Struct(">Q")
_pack_number = _U64.pack
_number = _U64.unpack_from
_size = struct.Struct(">I").unpack_from  # the second half of INDEX_ENTRY


class Rows(NamedTuple):
    """Rows of the database that were copied one behind the other. Each begins with a checksum of all that follows."""

    sizes: list[int]
    checksums: list[int]  # those that they should begin with: whoever uses a row compares


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
        self._prefix = _key(view.number, view.generation, 0)[:8]
        self._environment = environment
        self._corrupt = corrupt
        self._close_lock = threading.Lock()
        self._txn: lmdb.Transaction[memoryview] | None = None
        self._index_txn: lmdb.Transaction[bytes] | None = None
        self._begin()

    def _begin(self) -> None:
        """Open the snapshot twice: what is large is read as views of the map, which are good until it ends, and what is small as bytes."""
        env = self._environment.env
        while True:
            txn, index_txn = env.begin(buffers=True), env.begin()
            if txn.id() == index_txn.id():
                self._txn, self._index_txn = txn, index_txn
                return
            # Somebody has committed in between.
            txn.abort()
            index_txn.abort()

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
            index_txn, self._index_txn = self._index_txn, None
        if txn is not None:
            txn.abort()
        if index_txn is not None:
            index_txn.abort()

    def _open_txn(self) -> lmdb.Transaction[memoryview]:
        if self._txn is None:
            raise ValueError("this scan is closed or was iterated before")
        return self._txn

    def _index(self) -> lmdb.Cursor[bytes]:
        if self._index_txn is None:
            raise ValueError("this scan is closed or was iterated before")
        return self._index_txn.cursor(self._environment.visible)

    def __iter__(self) -> Iterator[tuple[int, int, Record]]:
        """Yield (visibility, lookup id, record)."""
        return self._merged() if self._express else self._durable()

    # Many messages at once, as they are stored: for whoever decodes them together, without an object for each.

    @property
    def has_express(self) -> bool:
        """Whether express messages are in the range. Only iterating finds them."""
        return bool(self._express)

    def entries(self) -> Iterator[tuple[bytes, int]]:
        """Yield the index entries of the range (INDEX_ENTRY), some at a time, one behind the other; and the number of the last of these."""
        cursor, prefix, touch = self._index(), self._prefix, self._environment.memory.touch
        before, last = self.after, prefix + _pack_number(self.upto)
        if self.upto <= before or not cursor.set_range(prefix + _pack_number(before + 1)):
            return
        values = cursor.iternext(keys=False)
        while some := list(islice(values, _INDEX_STEP)):
            touch(_INDEX_STEP * _TOUCH_EVERY // _TOUCH_ROWS)
            key = cursor.key()  # of the last one
            if len(some) < _INDEX_STEP or key > last:
                # Somewhere here the range ends.
                keys = self._keys(before, len(some))
                count = bisect_right(keys, last)
                if count:
                    yield b"".join(some[:count]), _number(keys[count - 1], 8)[0]
                return
            before = _number(key, 8)[0]
            yield b"".join(some), before

    def numbers(self, after: int, count: int) -> list[int]:
        """List so many visibility numbers after another one, as far as they are in the index."""
        return [_number(key, 8)[0] for key in self._keys(after, count)]

    def _keys(self, after: int, count: int) -> list[bytes]:
        cursor = self._index()
        cursor.set_range(self._prefix + _pack_number(after + 1))
        return list(islice(cursor.iternext(values=False), count))

    def walk(self, first: int, last: int, count: int, into: BinaryIO) -> Rows | None:
        """Copy so many records, which begin with `record.HEADER`, in the order of their lookup ids; None unless they reach from the first to the last."""
        prefix = self._prefix
        cursor = self._open_txn().cursor(self._environment.messages)
        if not cursor.set_key(prefix + _pack_number(first)):
            return None
        rows = self._copied(cursor.iternext(keys=False), count, into)
        return rows if cursor.key() == prefix + _pack_number(last) else None

    def records(self, lookup_ids: Iterable[int], into: BinaryIO) -> Rows:
        """Copy the records of some messages, in any order; fewer, if some are not there. Takes twice as long as `walk`."""
        prefix = self._prefix
        return self._found(self._environment.messages, [prefix + _pack_number(number) for number in lookup_ids], into)

    def staged(self, references: list[bytes], into: BinaryIO) -> Rows:
        """Copy the staged rows of published messages: a checksum and the packet."""
        return self._found(self._environment.staged, references, into)

    def _found(self, database: lmdb._Database, keys: list[bytes], into: BinaryIO) -> Rows:
        cursor = self._open_txn().cursor(database)
        steps = (cursor.getmulti(keys[start : start + _STEP]) for start in range(0, len(keys), _STEP))
        return self._copied((value for some in steps for _, value in some), len(keys), into)

    def _copied(self, values: Iterator[memoryview], count: int, into: BinaryIO) -> Rows:
        sizes: list[int] = []
        checksums: list[int] = []
        # In small steps: of many views at a time the garbage collector would make much work.
        while some := list(islice(values, min(_STEP, count - len(sizes)))):
            sizes += map(len, some)
            checksums += checksums_of(some)
            into.writelines(some)
        self._environment.memory.touch(sum(sizes))
        return Rows(sizes, checksums)

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
        txn, prefix = self._open_txn(), self._prefix
        environment = self._environment
        messages, staged = environment.messages, environment.staged
        touched = 0
        try:
            for visibility, lookup_id, _ in index_rows(self._index(), environment, prefix, self.after, self.upto):
                raw = txn.get(prefix + lookup_id, None, messages)
                if raw is None:
                    continue
                number = _number(lookup_id)[0]
                try:
                    record = decode(bytes(raw), txn, staged)
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


def express_between(view: QueueView, after: int, upto: int, limit: int | None = None) -> list[tuple[int, int, Record]]:
    """List the visible express messages with a number in (after, upto], in the order of the numbers; the first so many."""
    layer = view.express
    if layer is None:
        return []
    rows = layer.rows
    return [(number, key, rows[key]) for number, key in layer.between(after, upto, limit)]


def index_rows(
    cursor: lmdb.Cursor[bytes], environment: Environment, prefix: bytes, after: int, upto: int
) -> Iterator[tuple[int, bytes, int]]:
    """Yield (visibility, lookup id as in keys, size) of the index entries with a number in (after, upto].

    `prefix` is queue and generation as in keys.
    """
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
