"""Reading a queue by visibility number, for the data pipeline: a snapshot of its own, in any thread, in little memory."""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

import lmdb

from lanner.model.errors import StoreCorrupt
from lanner.store.environment import Environment
from lanner.store.queue_view import QueueView
from lanner.store.record import MESSAGE_KEY, Record, decode

__all__ = ["Scan"]

_LOG = logging.getLogger(__name__)

# Ours: how much a scan reads before it says so.
_TOUCH_EVERY = 1 << 20
_TOUCH_ROWS = 1 << 13  # so many index entries lie on about a megabyte

_key = MESSAGE_KEY.pack
_U64 = struct.Struct(">Q")
_pack_number = _U64.pack
_number = _U64.unpack_from
_size = struct.Struct(">I").unpack_from  # the second half of INDEX_ENTRY


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
    ) -> None:
        self.after = after
        self.upto = upto
        self._queue = view.number
        self._generation = view.generation
        self._environment = environment
        self._corrupt = corrupt
        self._express = express_between(view, after, upto)
        self._txn: lmdb.Transaction[bytes] | None = environment.env.begin()
        self._close_lock = threading.Lock()

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


def express_between(view: QueueView, after: int, upto: int) -> list[tuple[int, int, Record]]:
    """List the visible express messages with a number in (after, upto], in the order of the numbers."""
    layer = view.express
    if layer is None:
        return []
    rows = layer.rows
    found = [(number, key, rows[key]) for key, number in layer.visible.items() if after < number <= upto]
    found.sort(key=lambda row: row[0])
    return found


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
