"""The write-ahead log: two small files that make batches durable before they reach the database.

Why a log. A commit in LMDB waits for the disk twice and writes whole pages. A log record holds only
what changed, and one system call writes and syncs it. Small batches are therefore written here.
Their changes stay in layers over the snapshot (commit.py) until a *checkpoint* writes all of them
into the database. A message that arrives and leaves between two checkpoints never reaches the
database.

Why two files. When a checkpoint begins, new records go to the other file, from its start. The
checkpoint's commit also stores the number of the last record that it covers. Once this commit is
durable, the first file is free. The files are filled with zeros before use, so that writing a
record never allocates disk blocks.

Recovery. A record is a header and operations, each on one row:

    checksum of everything that follows   4 bytes
    length of the operations              4 bytes
    record number                         8 bytes
    operations

Operations are idempotent, so opening a store simply replays every record after the last checkpoint.
In each file the valid records end at the first one that is incomplete, out of sequence, or from
another store. (A record of another store fails its checksum, which starts from a seed that is
private to the store.) The store never acknowledged such a record, with one exception: if a valid
record with the next number follows, the record was acknowledged and is damaged. It then goes to the
quarantine.
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
from lanner.store.data_directory import open_own
from lanner.store.environment import Environment, sync_directory
from lanner.store.format import table_key
from lanner.store.record import HEADER, INDEX_ENTRY, MESSAGE_KEY

__all__ = ["LOG_FILES", "Operation", "WriteAheadLog", "last_checkpoint", "note_checkpoint", "replay"]

_LOG = logging.getLogger(__name__)

# The file names, and the two table keys below, are older than the term write-ahead log. They stay
# as they are, so that existing stores open.
LOG_FILES = ("journal.0", "journal.1")
# Not in the specification: a file starts small and doubles after use. The changes in a full file
# are held in memory, and one checkpoint writes them.
_MIN_SIZE = 256 << 10
_MAX_SIZE = 8 << 20

# Not in the specification: seconds for which an event loop may wait for the disk itself.
_QUICK = 0.0005

_HEADER = struct.Struct("<IIQ")
_REST = struct.Struct("<IQ")
_U64 = struct.Struct(">Q")
_CHECKPOINT = table_key("store", b"journal")
_QUARANTINE = table_key("quarantine", b"journal")


class Operation:
    """The kinds of operations.

    An operation starts with its kind, the size of its key and the size of its value.
    """

    HEAD = struct.Struct("<BHI")
    PUT_MESSAGE = 1  # also puts the index entry, which is derived from the message
    # The value is the visibility number, whose index entry is deleted too, and the key of the
    # staged row, if any.
    DELETE_MESSAGE = 2
    PUT_TOTALS = 3
    PUT_ROW = 4
    DELETE_ROW = 5
    PUT_EVENTS = 6


class LogRecord(NamedTuple):
    """A record of the write-ahead log, ready to be written."""

    header: bytes
    body: bytes
    size: int


class _File:
    """One of the two files of the log."""

    def __init__(self, path: Path) -> None:
        self.descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
        self.size = os.fstat(self.descriptor).st_size

    def grow(self, size: int) -> None:
        # If the disk is full, the file keeps its size, and checkpoints are more frequent.
        with suppress(OSError):
            zeros = bytes(size - self.size)
            if os.pwrite(self.descriptor, zeros, self.size) == len(zeros):
                self.size = size

    def write(self, at: int, *parts: bytes) -> None:
        size = sum(map(len, parts))
        # One call, so that the thread releases and reacquires the interpreter lock only once.
        written = os.pwritev(self.descriptor, parts, at, os.RWF_DSYNC)
        if written != size:
            raise OSError(errno.ENOSPC, f"{written} of {size} bytes were written to the write-ahead log")

    def records(self, seed: int, after: int) -> Iterator[tuple[int, bytes, bool]]:
        """Yield (number, operations, whether the checksum is right) of the records after `after`.

        `after` is a record number. The last record may be the remainder of an interrupted write.
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
    """Return where the record at `at` ends; None if no record with this number starts there."""
    if at + _HEADER.size > len(data):
        return None
    _, length, found = _HEADER.unpack_from(data, at)
    end = at + _HEADER.size + int(length)
    return end if found == number and end <= len(data) else None


def _is_whole(data: bytes, at: int, end: int, seed: int) -> bool:
    return crc32(data[at + 4 : end], seed) == int.from_bytes(data[at : at + 4], "little")


class WriteAheadLog:
    """Two files to which records are appended in turn.

    `append` needs the commit lock. `switch`, `release_other_file` and `extend` are called by the
    thread that makes a checkpoint.
    """

    def __init__(self, path: Path, seed: int, last: int) -> None:
        """Open the files; `last` is the number of the last record that the database contains."""
        self._files = [_File(path / name) for name in LOG_FILES]
        self._seed = seed
        self._active, self._free = self._files
        self._is_free = True  # the database has everything in the other file
        self._at = 0
        self._seconds = 0.0  # time to write a record, a running average
        self._failed: tuple[_File, int] | None = None  # file and offset of a record that was not acknowledged
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
        """Whether the disk wrote the last records quickly enough for an event loop to wait."""
        return self._seconds < _QUICK

    @property
    def is_half_full(self) -> bool:
        return self._at * 2 > self._active.size

    def record(self, operations: list[bytes] | None) -> LogRecord | None:
        """Return the next record, or None.

        None means that there are no operations, or that the file has no room for them.
        """
        if not operations:
            return None
        body = b"".join(operations)
        size = _HEADER.size + len(body)
        if not self.has_room(size):
            return None
        rest = _REST.pack(len(body), self.last + 1)
        return LogRecord((crc32(body, crc32(rest, self._seed))).to_bytes(4, "little") + rest, body, size)

    def has_room(self, size: int) -> bool:
        return self._at + size <= self._active.size

    def append(self, record: LogRecord) -> None:
        """Make a record durable. Raises OSError if the write fails; then the log is unchanged."""
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
        """Overwrite a record whose write failed, because parts or all of it may be on disk.

        Raises OSError if that fails. Nothing may be committed until it succeeds. Otherwise the next
        opening of the store would replay the failed record over later changes, and another record
        would have the same number.
        """
        if self._failed is not None:
            file, at = self._failed
            file.write(at, bytes(_HEADER.size))
            self._failed = None

    def switch(self) -> int:
        """Continue in the other file if it is free; return the number of the last record so far."""
        if self._at and self._is_free:
            self._active, self._free = self._free, self._active
            self._at = 0
            self._is_free = False
        return self.last

    def rewind(self) -> None:
        """Continue at the start of the file, because the database contains every record."""
        self._at = 0

    def release_other_file(self) -> None:
        """Mark the other file as free: the database now has everything from before the `switch`."""
        self._is_free = True

    def extend(self) -> None:
        """Enlarge the free file for its next use."""
        if self._free.size < _MAX_SIZE:
            self._free.grow(max(2 * self._free.size, _MIN_SIZE))

    def records(self) -> list[tuple[int, bytes, bool]]:
        """Return (number, operations, whether the checksum is right) of the unreplayed records.

        These are the records that the database lacks.
        """
        found = sorted(record for file in self._files for record in file.records(self._seed, self.last))
        whole = {number for number, _, is_whole in found if is_whole}
        return [record for record in found if record[2] or (record[0] not in whole and record[0] + 1 in whole)]


def last_checkpoint(environment: Environment) -> int:
    """Return the number of the last record whose changes are in the database."""
    raw = environment.txn.get(_CHECKPOINT, db=environment.tables)
    return 0 if raw is None else int(_U64.unpack(raw)[0])


def note_checkpoint(txn: lmdb.Transaction[bytes], environment: Environment, last: int) -> None:
    """Write into a commit that the database contains everything up to record `last`."""
    txn.put(_CHECKPOINT, _U64.pack(last), db=environment.tables)


def replay(write_ahead_log: WriteAheadLog, environment: Environment) -> None:
    """Write the records that the database lacks into it, in one commit.

    Opening a store calls this.
    """
    records = write_ahead_log.records()
    if not records:
        return
    with environment.write() as txn:
        for expected, (number, operations, is_whole) in enumerate(records, write_ahead_log.last + 1):
            # Records after a gap change rows that may not exist: a file is damaged or missing, or
            # the database is an older copy.
            if is_whole and number == expected:
                _do(operations, txn, environment)
                continue
            row = _QUARANTINE + _U64.pack(number)
            fault = "does not follow on the one before" if is_whole else "is damaged"
            _LOG.error(
                "record %d of the write-ahead log %s, put aside as row %s of table tables", number, fault, row.hex()
            )
            txn.put(row, operations, db=environment.tables)
        note_checkpoint(txn, environment, records[-1][0])
    write_ahead_log.last = records[-1][0]
    environment.renew()
    _LOG.info("%d records of the write-ahead log were brought into the store", len(records))


def _do(operations: bytes, txn: lmdb.Transaction[bytes], environment: Environment) -> None:
    """Apply the operations of a record."""
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
            raise StoreCorrupt(f"the write-ahead log has an operation {kind}, which this version does not know")
