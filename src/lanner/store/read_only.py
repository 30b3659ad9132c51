"""Read-only access to the database of a store that another process has open, for scans.

The other process is the owner. Only the owner has what is acknowledged but not in the database yet,
and knows which messages are locked. A scan here sees the database as of the owner's last
checkpoint. LMDB keeps a table of readers in its lock file, so the owner does not reuse pages that a
snapshot here still reads.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final, Self

import lmdb

from lanner.store.environment import DATA_FILE, DEFAULT_MAP_SIZE, MAX_DBS
from lanner.store.format import epoch_of
from lanner.store.memory import MapTrimmer
from lanner.store.scan import Scan

__all__ = ["ReadOnlyStore"]

_LOG: Final = logging.getLogger(__name__)


class ReadOnlyStore:
    """An open database. Any thread may scan it."""

    def __init__(self, path: Path, map_size: int = DEFAULT_MAP_SIZE) -> None:
        """Open the database.

        `map_size` must be at least the largest size that the owner may use, so that the map never
        has to grow with the file.
        """
        self._path = path
        self.env = lmdb.open(
            str(path),
            map_size=map_size,
            max_dbs=MAX_DBS,
            readonly=True,
            create=False,
            max_spare_txns=4,
            readahead=False,
        )
        self.messages = self.env.open_db(b"messages", create=False)
        self.visible = self.env.open_db(b"visible", create=False)
        self.staged = self.env.open_db(b"staged", create=False)
        self.memory = MapTrimmer(self.data_file)
        self.epoch = epoch_of(self.env)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.memory.stop()
        self.env.close()

    @property
    def data_file(self) -> Path:
        return self._path / DATA_FILE

    def scan(self, queue: int, generation: int, after: int, upto: int) -> Scan:
        """Start a scan of the stored messages with a visibility number in (after, upto]."""
        return Scan(self, queue, generation, after, upto, _leave_out)


def _leave_out(queue: int, lookup_id: int) -> None:
    """Log a damaged record. Its owner quarantines it when it reads it."""
    _LOG.error("a scan of queue %d leaves out %#018x: its record is damaged", queue, lookup_id)
