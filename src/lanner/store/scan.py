"""Scans: reading a queue in the order of visibility numbers, for the data pipeline.

A scan has a snapshot of its own, so it can run in any thread without the store's lock. It takes
little memory however long the queue is.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import lmdb

from lanner.model.errors import StoreCorrupt
from lanner.store.environment import Environment
from lanner.store.memory import MapTrimmer
from lanner.store.queue_view import QueueView
from lanner.store.record import MESSAGE_KEY, Record, decode

__all__ = ["Scan", "Scanned"]

_LOG = logging.getLogger(__name__)

# Not in the specification: the number of bytes after which a scan reports its reads to `memory`,
# which unmaps pages of LMDB's file that were read.
_TOUCH_EVERY = 1 << 20
_TOUCH_ROWS = 1 << 13  # about as many index entries as a megabyte holds

_key = MESSAGE_KEY.pack
_U64 = struct.Struct(">Q")
_pack_number = _U64.pack
_number = _U64.unpack_from
_size = struct.Struct(">I").unpack_from  # the second half of INDEX_ENTRY


class Scanned(Protocol):
    """A database to scan: the store's own, or another process's (`store.read_only`)."""

    env: lmdb.Environment
    messages: lmdb._Database
    visible: lmdb._Database
    staged: lmdb._Database
    memory: MapTrimmer

    @property
    def data_file(self) -> Path: ...


class Scan:
    """The messages of a queue with a visibility number in (after, upto], in this order.

    A scan is created under the store's lock and iterated once, without the lock, perhaps in another
    thread. It sees what was synced at its creation, and the express messages of that moment.
    Iterate it to the end, or close it: until then LMDB cannot reuse the pages of the snapshot.
    """

    def __init__(
        self,
        environment: Scanned,
        queue: int,
        generation: int,
        after: int,
        upto: int,
        corrupt: Callable[[int, int], None],
        express: Sequence[tuple[int, int, Record]] = (),
    ) -> None:
        """Begin a snapshot. `express` has the messages of the range that are only in memory."""
        self.after = after
        self.upto = upto
        self._express = express
        self._queue = queue
        self._prefix = _key(queue, generation, 0)[:8]
        self._environment = environment
        self._corrupt = corrupt
        self._close_lock = threading.Lock()
        self._txn: lmdb.Transaction[bytes] | None = environment.env.begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Release the snapshot.

        Only the iterating thread may call this, or any thread once the iteration has ended.
        """
        with self._close_lock:
            txn, self._txn = self._txn, None
        if txn is not None:
            txn.abort()

    def _open_txn(self) -> lmdb.Transaction[bytes]:
        if self._txn is None:
            raise ValueError("this scan is closed or was iterated before")
        return self._txn

    def __iter__(self) -> Iterator[tuple[int, int, Record]]:
        """Yield (visibility, lookup id, record)."""
        return self._merged() if self._express else self._durable()

    # For consumers that read many messages at once from LMDB's own pages, without an object for
    # each.

    @property
    def has_express(self) -> bool:
        """Whether express messages are in the range. Only iteration returns them."""
        return bool(self._express)

    @property
    def prefix(self) -> bytes:
        """Queue and generation: the prefix of the keys of its messages and of its index."""
        return self._prefix

    @property
    def data_file(self) -> Path:
        return self._environment.data_file

    @property
    def page_size(self) -> int:
        return self._environment.env.stat()["psize"]

    def database(self, name: str) -> bytes:
        """Return LMDB's description (MDB_db) of a database, with its root page in this snapshot."""
        row = self._open_txn().get(name.encode())
        if row is None:
            raise StoreCorrupt(f"the store has no database {name}")
        return row

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
            for visibility, lookup_id, _ in index_rows(
                txn.cursor(environment.visible), environment, prefix, self.after, self.upto
            ):
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


def express_between(view: QueueView, after: int, upto: int, limit: int | None = None) -> list[tuple[int, int, Record]]:
    """Return the first `limit` visible express messages with a number in (after, upto].

    They are in the order of their numbers.
    """
    layer = view.express
    if layer is None:
        return []
    rows = layer.rows
    return [(number, key, rows[key]) for number, key in layer.between(after, upto, limit)]


def index_rows(
    cursor: lmdb.Cursor[bytes], environment: Scanned, prefix: bytes, after: int, upto: int
) -> Iterator[tuple[int, bytes, int]]:
    """Yield (visibility, lookup id, size) of the index entries with a number in (after, upto].

    `prefix` is queue and generation. It and the lookup ids are bytes, as in keys.
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
    """Return the lowest and the highest number in a queue's index; None if it is empty."""
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
