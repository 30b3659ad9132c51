"""The LMDB environment: its databases, the engine's snapshot, and the memory limit of the map."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from lanner.model.errors import InsufficientResources
from lanner.model.live import Record
from lanner.store.data_directory import as_owner
from lanner.store.format import ensure_format
from lanner.store.memory import MapTrimmer

__all__ = ["DATA_FILE", "DEFAULT_MAP_SIZE", "MAX_DBS", "Environment", "sync_directory"]

# File names chosen by LMDB.
DATA_FILE = "data.mdb"
LOCK_FILE = "lock.mdb"
# Address space, not memory or disk: the file grows as needed. 256 GiB is 32 times the default
# machine quota (8 GiB), so that quota and freed pages together stay far below it. It fits any
# 64-bit kernel.
DEFAULT_MAP_SIZE = 1 << 38

# Readers: the engine's snapshot, scans of the data pipeline, and other processes (backup,
# inspection).
_MAX_READERS = 1024
MAX_DBS = 8


class Environment:
    """An open LMDB environment with one read transaction, renewed after each commit.

    `txn` and the cursors need the store's lock. A scan opens a transaction of its own.
    """

    __slots__ = (
        "_map_size",
        "_path",
        "env",
        "epoch",
        "events",
        "express_bytes",
        "last_read",
        "log_seed",
        "memory",
        "message_at",
        "message_cursor",
        "message_in",
        "messages",
        "staged",
        "table_cursor",
        "tables",
        "txn",
        "visible",
    )

    def __init__(self, path: Path, map_size: int) -> None:
        self._path = path
        self._map_size = map_size
        # For the express messages of all queues: their packets, plus EXPRESS_OVERHEAD for each.
        self.express_bytes = 0
        self._open()

    @property
    def data_file(self) -> Path:
        return self._path / DATA_FILE

    def _open(self) -> None:
        # LMDB follows symbolic links. With the owner's rights, a link cannot make root write to a
        # file that the owner could not write to.
        with as_owner(self._path) as path:
            self.env = lmdb.open(
                str(path),
                map_size=self._map_size,
                max_dbs=MAX_DBS,
                max_readers=_MAX_READERS,
                max_spare_txns=4,
                # Messages are read once, in places all over the file, so readahead would only fill
                # memory.
                readahead=False,
                mode=0o600,
            )
        try:
            self.epoch, self.log_seed = ensure_format(self.env, self._path)
        except BaseException:
            self.env.close()
            raise
        self.messages = self.env.open_db(b"messages")  # MESSAGE_KEY -> header, packet
        self.visible = self.env.open_db(b"visible")  # (queue, generation, visibility) -> lookup id, size; and totals
        self.tables = self.env.open_db(b"tables")  # length and name of the table, key -> value
        self.staged = self.env.open_db(b"staged")  # (stage, queue, 7 - priority, number) -> checksum, packet
        try:
            # first number -> events (event_log.py). Created when the log of events is first used.
            self.events: lmdb._Database | None = self.env.open_db(b"events", create=False)
        except lmdb.NotFoundError:
            self.events = None
        self.memory = MapTrimmer(self.data_file)
        self._begin()

    def open_events(self) -> None:
        """Create the database of events if it does not exist. Needs the store's lock."""
        if self.events is None:
            self.events = self.env.open_db(b"events")
            self.renew()

    def _begin(self) -> None:
        # The record last read from the snapshot, until the next change, because a receive deletes
        # it at once. There is one for all queues, since it may be megabytes.
        self.last_read: Record | None = None
        self.txn = self.env.begin()
        self.message_cursor = self.txn.cursor(self.messages)
        # The queue view and the lookup id at which the cursor is positioned, if known.
        self.message_in: object | None = None
        self.message_at = 0
        self.table_cursor = self.txn.cursor(self.tables)

    def renew(self) -> None:
        """Move the snapshot to the last commit."""
        self.txn.abort()
        self._begin()

    @contextmanager
    def write(self) -> Iterator[lmdb.Transaction[bytes]]:
        """Yield a write transaction that commits durably or not at all.

        Raises InsufficientResources if the disk refuses.
        """
        txn: lmdb.Transaction[bytes] | None = None
        try:
            txn = self.env.begin(write=True)
            yield txn
            txn.commit()
        except BaseException as error:
            if txn is not None:
                txn.abort()
            if isinstance(error, lmdb.Error | OSError):
                raise InsufficientResources(f"{self._path}: the store cannot write: {error}") from error
            raise

    def used(self) -> int:
        """Return the bytes of the file up to the last page in use."""
        return (self.env.info()["last_pgno"] + 1) * self.env.stat()["psize"]

    def live(self) -> int:
        """Return the bytes of all pages in use, without those of the free list."""
        pages = 2  # the meta pages
        databases = [None, self.messages, self.visible, self.tables, self.staged]
        if self.events is not None:
            databases.append(self.events)
        for db in databases:
            stat = self.txn.stat(db)
            pages += stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return pages * self.env.stat()["psize"]

    def snapshots(self) -> tuple[int, list[tuple[int, int]]]:
        """Return the number of the last commit, and (process, commit) of each open snapshot."""
        # LMDB returns a table as text: process, thread, commit. A slot without a snapshot has a
        # dash.
        rows = [line.split() for line in self.env.readers().splitlines()[1:]]
        found = [(int(row[0]), int(row[2])) for row in rows if len(row) == 3 and row[2].isdigit()]
        return self.env.info()["last_txnid"], found

    def reopen(self) -> None:
        """Reopen the file after an error that is fatal to LMDB: a failed write of the meta page."""
        self.memory.stop()
        self.env.close()
        self._open()

    def close(self) -> None:
        self.memory.stop()
        self.txn.abort()
        self.env.close()


def sync_directory(directory: Path) -> None:
    """Make the file names in a directory durable.

    A synced file whose name is not durable is lost in a power failure.
    """
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
