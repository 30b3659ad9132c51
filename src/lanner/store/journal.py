"""The journal: two small files in which batches become durable at once, before they reach the database.

A commit of LMDB waits for the disk twice and writes whole pages; a record of the journal is one write, synced by the same call, of just what
changed. Small batches go here. What they changed stays in layers over the snapshot (commit.py) until a *checkpoint* writes all of it into the database,
together; what came and went in between never gets there. When a checkpoint begins, records go to the other file, from its start. When it has ended, and has noted in the
database the number of the last record that it took, the first file is free.

A record is a header (checksum of all that follows, length of the operations, number of the record) and operations, each on one row. Doing them
again changes nothing, so opening a store means to do those of the records behind the checkpoint. In each file they end with the first that is not whole, not the next
in number, or of another store: the checksum begins with a number that each has for itself, and keeps to itself. Such a record was never acknowledged, unless there is a good one with the next
number: then it was, and is damaged, and is put aside.

The files are written with zeros before they are used, so that a record changes nothing but the contents of blocks that are there.
"""

from __future__ import annotations

import errno
import logging
import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import lmdb

from lanner.model.errors import StoreCorrupt
from lanner.store.checksum import crc32
from lanner.store.environment import Environment, sync_directory
from lanner.store.format import table_key
from lanner.store.record import HEADER, INDEX_ENTRY, MESSAGE_KEY

__all__ = ["JOURNAL_FILES", "Journal", "Operation", "last_checkpoint", "note_checkpoint", "replay"]

_LOG = logging.getLogger(__name__)

JOURNAL_FILES = ("journal.0", "journal.1")
# Ours: a file begins small and doubles after use; the changes of a full one are what a checkpoint writes, and what is held in memory.
_MIN_SIZE = 256 << 10
_MAX_SIZE = 8 << 20

# Ours: seconds that a loop may wait for the disk itself.
_QUICK = 0.0005

_HEADER = struct.Struct("<IIQ")
_REST = struct.Struct("<IQ")
_U64 = struct.Struct(">Q")
_CHECKPOINT = table_key("store", b"journal")
_QUARANTINE = table_key("quarantine", b"journal")


class Operation:
    """The kinds of operations, and their shape: kind, bytes of the key, bytes of the value."""

    HEAD = struct.Struct("<BHI")
    PUT_MESSAGE = 1  # and its index entry, which follows from it
    DELETE_MESSAGE = (
        2  # and the index entry under the number that is its value; behind it the key of its staged row, if it has one
    )
    PUT_TOTALS = 3
    PUT_ROW = 4
    DELETE_ROW = 5
    PUT_EVENTS = 6


class Record(NamedTuple):
    """A record about to be written."""

    header: bytes
    body: bytes
    size: int


class _File:
    """One of the two files."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self.descriptor).st_size

    def grow(self, size: int) -> None:
        # Without room for it the file stays as small as it is, and checkpoints come more often.
        with suppress(OSError):
            zeros = bytes(size - self.size)
            if os.pwrite(self.descriptor, zeros, self.size) == len(zeros):
                self.size = size

    def write(self, at: int, *parts: bytes) -> None:
        size = sum(map(len, parts))
        # One call: the interpreter is let go of, and must be won back, just once.
        written = os.pwritev(self.descriptor, parts, at, os.RWF_DSYNC)
        if written != size:
            raise OSError(errno.ENOSPC, f"{written} of {size} bytes were written to the journal")

    def records(self, seed: int, after: int) -> Iterator[tuple[int, bytes, bool]]:
        """Yield (number, operations, whether they are what was written) of the records with higher numbers than `after`.

        The last one may be what a write has left that never ended.
        """
        data = os.pread(self.descriptor, self.size, 0)
        if len(data) < _HEADER.size:
            return
        at = 0
        _, _, number = _HEADER.unpack_from(data)
        while (end := _end(data, at, number)) is not None:
            if number > after:
                yield number, data[at + _HEADER.size : end], _is_whole(data, at, end, seed)
            at, number = end, number + 1


def _end(data: bytes, at: int, number: int) -> int | None:
    """Where the record of a number that begins here ends; None if there is none."""
    if at + _HEADER.size > len(data):
        return None
    _, length, found = _HEADER.unpack_from(data, at)
    end = at + _HEADER.size + int(length)
    return end if found == number and end <= len(data) else None


def _is_whole(data: bytes, at: int, end: int, seed: int) -> bool:
    return crc32(data[at + 4 : end], seed) == int.from_bytes(data[at : at + 4], "little")


class Journal:
    """Records are written under the commit lock; `switch`, `settled` and `extend` are for who makes a checkpoint."""

    def __init__(self, path: Path, seed: int, last: int) -> None:
        """`last`: the number of the last record that the database has."""
        self._files = [_File(path / name) for name in JOURNAL_FILES]
        self._seed = seed
        self._active, self._free = self._files
        self._is_free = True  # whether nothing that the database lacks is in the other file
        self._at = 0
        self._seconds = 0.0  # that a record takes, as a running average
        self._failed: tuple[_File, int] | None = None  # where a record may be that nobody was told of
        self.last = last
        small = [file for file in self._files if file.size < _MIN_SIZE]
        for file in small:
            file.grow(_MIN_SIZE)
        if small:
            sync_directory(path)

    def close(self) -> None:
        for file in self._files:
            os.close(file.descriptor)

    @property
    def is_quick(self) -> bool:
        """Whether the disk took a moment only for the last records."""
        return self._seconds < _QUICK

    @property
    def is_half_full(self) -> bool:
        return self._at * 2 > self._active.size

    def record(self, operations: list[bytes] | None) -> Record | None:
        """Make the next record; None without operations for it, or if there is no room."""
        if not operations:
            return None
        body = b"".join(operations)
        size = _HEADER.size + len(body)
        if not self.has_room(size):
            return None
        rest = _REST.pack(len(body), self.last + 1)
        return Record((crc32(body, crc32(rest, self._seed))).to_bytes(4, "little") + rest, body, size)

    def has_room(self, size: int) -> bool:
        return self._at + size <= self._active.size

    def append(self, record: Record) -> None:
        """Make a record durable; OSError, and nothing is different, if that could not be done."""
        began = time.perf_counter()
        try:
            self._active.write(self._at, record.header, record.body)
        except BaseException:
            self._failed = self._active, self._at
            with suppress(OSError):
                self.clear()
            raise
        self._at += record.size
        self.last += 1
        self._seconds += (time.perf_counter() - began - self._seconds) / 8

    def clear(self) -> None:
        """Take away a record that could not be written; it may be there nevertheless. OSError: nothing may be committed before that is done.

        It would be done when the store is opened again, over what came later; and another one will have its number.
        """
        if self._failed is not None:
            file, at = self._failed
            file.write(at, bytes(_HEADER.size))
            self._failed = None

    def switch(self) -> int:
        """Go on in the other file, if it is free; the number of the last record until now."""
        if self._at and self._is_free:
            self._active, self._free = self._free, self._active
            self._at = 0
            self._is_free = False
        return self.last

    def rewind(self) -> None:
        """Begin the file anew: the database has everything that was ever written."""
        self._at = 0

    def settled(self) -> None:
        """The database has everything that was written before the last `switch`."""
        self._is_free = True

    def extend(self) -> None:
        """Make the free file larger, for the next time."""
        if self._free.size < _MAX_SIZE:
            self._free.grow(max(2 * self._free.size, _MIN_SIZE))

    def records(self) -> list[tuple[int, bytes, bool]]:
        """Return (number, operations, whether they are what was written) of the records behind the last one of the database."""
        found = sorted(record for file in self._files for record in file.records(self._seed, self.last))
        whole = {number for number, _, is_whole in found if is_whole}
        return [record for record in found if record[2] or (record[0] not in whole and record[0] + 1 in whole)]


def last_checkpoint(environment: Environment) -> int:
    """The number of the last record whose changes the database has."""
    raw = environment.txn.get(_CHECKPOINT, db=environment.tables)
    return 0 if raw is None else int(_U64.unpack(raw)[0])


def note_checkpoint(txn: lmdb.Transaction[bytes], environment: Environment, last: int) -> None:
    """Note in a commit that the database has everything up to a record."""
    txn.put(_CHECKPOINT, _U64.pack(last), db=environment.tables)


def replay(journal: Journal, environment: Environment) -> None:
    """Bring what the database lacks from the journal into it, in one commit. For a store that is being opened."""
    records = journal.records()
    if not records:
        return
    with environment.write() as txn:
        for expected, (number, operations, is_whole) in enumerate(records, journal.last + 1):
            # Behind a gap are changes to what is not there: a file is damaged or gone, or the database is an older one.
            if is_whole and number == expected:
                _do(operations, txn, environment)
                continue
            row = _QUARANTINE + _U64.pack(number)
            fault = "does not follow on the one before" if is_whole else "is damaged"
            _LOG.error("record %d of the journal %s, put aside as row %s of table tables", number, fault, row.hex())
            txn.put(row, operations, db=environment.tables)
        note_checkpoint(txn, environment, records[-1][0])
    journal.last = records[-1][0]
    environment.renew()
    _LOG.info("%d records of the journal were brought into the store", len(records))


def _do(operations: bytes, txn: lmdb.Transaction[bytes], environment: Environment) -> None:
    """Do the operations of a record."""
    head, at = Operation.HEAD, 0
    while at < len(operations):
        kind, key_size, value_size = head.unpack_from(operations, at)
        start = at + head.size
        at = start + key_size + value_size
        key, value = operations[start : start + key_size], operations[start + key_size : at]
        if kind == Operation.PUT_MESSAGE:
            txn.put(key, value, db=environment.messages)
            *_, visibility, _ = HEADER.unpack_from(value)
            if visibility:
                queue, generation, lookup_id = MESSAGE_KEY.unpack(key)
                entry = INDEX_ENTRY.pack(lookup_id, len(value) - HEADER.size)
                txn.put(MESSAGE_KEY.pack(queue, generation, visibility), entry, db=environment.visible)
        elif kind == Operation.DELETE_MESSAGE:
            txn.delete(key, db=environment.messages)
            visibility, reference = value[: _U64.size], value[_U64.size :]
            if any(visibility):
                txn.delete(key[: -_U64.size] + visibility, db=environment.visible)
            if reference:
                txn.delete(reference, db=environment.staged)
        elif kind == Operation.PUT_TOTALS:
            txn.put(key, value, db=environment.visible)
        elif kind == Operation.PUT_ROW:
            txn.put(key, value, db=environment.tables)
        elif kind == Operation.DELETE_ROW:
            txn.delete(key, db=environment.tables)
        elif kind == Operation.PUT_EVENTS:
            txn.put(key, value, db=environment.events)
        else:
            raise StoreCorrupt(f"the journal has an operation {kind}, which this version does not know")
