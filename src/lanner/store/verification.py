"""Verification of a store that no process has open: every record is read once.

LMDB's pages have no checksums, so only a walk over all rows can show that a copy is complete and
undamaged. The walk also compares totals and indices with the messages. It writes nothing: it reads
a snapshot of the database and ignores a write-ahead log beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import lmdb

from lanner.model.errors import StoreCorrupt
from lanner.store.batch import NO_GENERATION
from lanner.store.checksum import crc32
from lanner.store.environment import DATA_FILE, DEFAULT_MAP_SIZE, MAX_DBS
from lanner.store.queue_view import STATISTICS
from lanner.store.record import INDEX_ENTRY, MESSAGE_KEY, decode, staged_packet

__all__ = ["Contents", "count_rows", "verify"]

# Not in the specification: rows between two calls of `advance`.
_STEP = 1000


@dataclass(frozen=True, slots=True)
class Contents:
    """Totals of a store."""

    queues: int
    messages: int
    # Bytes of the messages' packets.
    size: int
    rows: int


def verify(directory: Path, advance: Callable[[int], object] = lambda _rows: None) -> Contents:
    """Read everything in a store and return its totals.

    Raises StoreCorrupt with the first fault found. `advance` is called with the number of rows read
    since its last call.
    """
    if not (directory / DATA_FILE).is_file():
        raise StoreCorrupt(f"{directory} holds no store: {DATA_FILE} is missing")
    try:
        with (
            lmdb.open(
                str(directory), map_size=DEFAULT_MAP_SIZE, max_dbs=MAX_DBS, readonly=True, lock=False, readahead=True
            ) as env,
            env.begin() as txn,
        ):
            return _Walk(directory, env, txn, advance).run()
    except lmdb.Error as error:
        raise StoreCorrupt(f"{directory / DATA_FILE} cannot be read: {error}") from error


def count_rows(directory: Path) -> int:
    """Return the number of rows that `verify` will read, for a progress bar."""
    with (
        lmdb.open(str(directory), map_size=DEFAULT_MAP_SIZE, max_dbs=MAX_DBS, readonly=True, lock=False) as env,
        env.begin() as txn,
    ):
        names = [bytes(name) for name in txn.cursor().iternext(values=False)]
        return sum(int(txn.stat(env.open_db(name, txn, create=False))["entries"]) for name in names)


class _Walk:
    """One walk over a snapshot."""

    def __init__(
        self, directory: Path, env: lmdb.Environment, txn: lmdb.Transaction[bytes], advance: Callable[[int], object]
    ) -> None:
        self._directory = directory
        self._txn = txn
        self._advance = advance
        self._rows = 0
        self._messages, self._visible, self._tables, self._staged = (
            env.open_db(name, txn, create=False) for name in (b"messages", b"visible", b"tables", b"staged")
        )
        try:
            self._events: lmdb._Database | None = env.open_db(b"events", txn, create=False)
        except lmdb.NotFoundError:
            self._events = None

    def run(self) -> Contents:
        totals, indexed = self._index()
        counted: dict[int, tuple[int, int]] = {}
        visible: dict[int, int] = {}
        for raw_key, value in self._txn.cursor(self._messages):
            self._step()
            queue, generation, lookup_id = MESSAGE_KEY.unpack(raw_key)
            try:
                record = decode(value, self._txn, self._staged)
            except StoreCorrupt as error:
                raise self._wrong(f"queue {queue}, message {lookup_id:#018x}: {error}") from error
            if totals.get(queue, (0,))[0] != generation:
                continue  # dropped with its queue, and not swept yet
            messages, size = counted.get(queue, (0, 0))
            counted[queue] = messages + 1, size + len(record.packet)
            if record.visibility:
                visible[queue] = visible.get(queue, 0) + 1
                key = MESSAGE_KEY.pack(queue, generation, record.visibility)
                entry = self._txn.get(key, db=self._visible)
                if entry is None or INDEX_ENTRY.unpack(entry)[0] != lookup_id:
                    raise self._wrong(f"queue {queue}, message {lookup_id:#018x} is not in the index")
        for queue, (_, messages, size) in totals.items():
            if counted.get(queue, (0, 0)) != (messages, size):
                found = counted.get(queue, (0, 0))
                raise self._wrong(
                    f"queue {queue} has {found[0]} messages of {found[1]} bytes, its totals say {messages} of {size}"
                )
            if visible.get(queue, 0) != indexed.get(queue, 0):
                raise self._wrong(
                    f"the index of queue {queue} has {indexed.get(queue, 0)} entries "
                    f"for {visible.get(queue, 0)} messages"
                )
        for reference in self._txn.cursor(self._staged).iternext(values=False):
            self._step()
            try:
                staged_packet(bytes(reference), self._txn, self._staged)
            except StoreCorrupt as error:
                raise self._wrong(str(error)) from error
        for _ in self._txn.cursor(self._tables):
            self._step()
        if self._events is not None:
            for raw_key, value in self._txn.cursor(self._events):
                self._step()
                if crc32(value[4:]) != int.from_bytes(value[:4], "little"):
                    raise self._wrong(f"the events from number {int.from_bytes(raw_key, 'big')} on fail their checksum")
        self._advance(self._rows % _STEP)
        filled = [one for one in counted.values() if one[0]]
        return Contents(len(filled), sum(one[0] for one in filled), sum(one[1] for one in filled), self._rows)

    def _index(self) -> tuple[dict[int, tuple[int, int, int]], dict[int, int]]:
        """Return each queue's totals (generation, messages, bytes) and number of index entries."""
        totals: dict[int, tuple[int, int, int]] = {}
        counts: dict[tuple[int, int], int] = {}
        for key, value in self._txn.cursor(self._visible):
            self._step()
            queue, generation, _ = MESSAGE_KEY.unpack(key)
            if generation == NO_GENERATION:
                totals[queue] = STATISTICS.unpack(value)
            else:
                counts[queue, generation] = counts.get((queue, generation), 0) + 1
        return totals, {queue: counts.get((queue, generation), 0) for queue, (generation, _, _) in totals.items()}

    def _step(self) -> None:
        self._rows += 1
        if self._rows % _STEP == 0:
            self._advance(_STEP)

    def _wrong(self, text: str) -> StoreCorrupt:
        return StoreCorrupt(f"{self._directory}: {text}")
