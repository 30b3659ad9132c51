"""One batch: what changes together, and how it is written into a write transaction."""

from __future__ import annotations

from collections.abc import Callable

import lmdb

from lanner.store.counters import Counter
from lanner.store.environment import Environment
from lanner.store.event_log import EVENT, EventBlock, put_block
from lanner.store.format import table_key
from lanner.store.overlay import Layer
from lanner.store.queue_view import STATISTICS, MessageLayer, QueueView, Totals
from lanner.store.record import MESSAGE_KEY, encode, encode_staged
from lanner.store.staging import INDEX_ENTRY, Publication
from lanner.store.table import Table

__all__ = ["Batch", "load_totals"]

# No queue has so many lives.
_NO_GENERATION = 0xFFFF_FFFF
_key = MESSAGE_KEY.pack
_entry = INDEX_ENTRY.pack


class Batch:
    """Filled under the lock; once it is being committed only the committing thread touches it."""

    __slots__ = (
        "completions",
        "counters",
        "event_horizon",
        "events",
        "horizon",
        "number",
        "publications",
        "queues",
        "staged",
        "tables",
        "totals",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.queues: dict[QueueView, MessageLayer] = {}
        self.tables: dict[Table, Layer[bytes, bytes]] = {}
        self.staged: list[tuple[bytes, bytes]] = []  # key of a staged row, packet
        self.publications: list[Publication] = []
        # Called under the lock with the batch's number when it is durable.
        self.completions: list[Callable[[int], None]] = []
        self.totals: dict[QueueView, Totals] = {}
        self.counters: list[tuple[Counter, int]] = []
        self.horizon = 0  # the last visibility number issued when the batch was closed
        # They come along and make no batch: nobody waits for what happened to an express message (event_log.py).
        self.events: list[EventBlock] = []
        self.event_horizon = 0  # the last number of an event, as `horizon`

    def __bool__(self) -> bool:
        return bool(self.queues or self.tables)

    def freeze(self, horizon: int) -> None:
        """Close the batch: its layers become those in flight, and the totals to write are fixed."""
        self.horizon = horizon
        for queue, layer in self.queues.items():
            queue.inflight, queue.current = layer, None
            self.totals[queue] = Totals(queue.generation, queue.messages, queue.size)
        for publication in self.publications:
            queue = publication.view
            totals = self.totals.get(queue) or Totals(queue.generation, queue.messages, queue.size)
            self.totals[queue] = publication.added_to(totals)
        for table, rows in self.tables.items():
            table.inflight, table.current = rows, None

    def cost(self) -> int:
        """Return about how many bytes of the map a commit of this batch reads: a page for each message."""
        touched = len(self.staged)
        for layer in self.queues.values():
            touched += len(layer.rows) + len(layer.hidden)
        return 4096 * touched

    def size(self) -> int:
        """Return about how many bytes of the file a commit of this batch takes: its packets, and some pages beside."""
        size = 4096 * (8 + 4 * (len(self.queues) + len(self.tables) + len(self.publications))) + self.cost() // 8
        # Loops: of a batch of one message a sum costs several times as much.
        for layer in self.queues.values():
            for record in layer.rows.values():
                size += len(record.packet)
        for _, packet in self.staged:
            size += len(packet)
        for block in self.events:
            size += EVENT.size * len(block.records)
        return size

    def write(self, txn: lmdb.Transaction[bytes], environment: Environment) -> None:
        """Write everything but the publications, which may be long and are written without the lock."""
        for queue, layer in self.queues.items():
            self._write_queue(txn, environment, queue.number, layer)
        if self.staged:
            txn.cursor(environment.staged).putmulti([(key, encode_staged(packet)) for key, packet in self.staged])
        for queue, totals in self.totals.items():
            txn.put(_totals_key(queue.number), STATISTICS.pack(*totals), db=environment.visible)
        rows = []
        for table, changes in self.tables.items():
            prefix = table_key(table.name, b"")
            for key in changes.hidden:
                if key not in changes.rows:
                    txn.delete(prefix + key, db=environment.tables)
            rows += [(prefix + key, value) for key, value in changes.rows.items()]
        if rows:
            txn.cursor(environment.tables).putmulti(rows)
        for first, records in self.events:
            put_block(txn, environment, first, records)

    @staticmethod
    def _write_queue(txn: lmdb.Transaction[bytes], environment: Environment, number: int, layer: MessageLayer) -> None:
        generation = layer.generation
        rows = layer.rows
        delete = txn.delete  # key, value (any), database: given by name they cost a fifth more
        for lookup_id in layer.hidden:
            if lookup_id not in rows:
                delete(_key(number, generation, lookup_id), b"", environment.messages)
        for visibility in layer.unindexed:
            delete(_key(number, generation, visibility), b"", environment.visible)
        for reference in layer.unstaged:
            delete(reference, b"", environment.staged)
        if rows:
            visible = layer.visible
            entries = [
                (_key(number, generation, lookup_id), encode(record, visible.get(lookup_id, 0)))
                for lookup_id, record in rows.items()
            ]
            _put(txn.cursor(environment.messages), entries)
            if visible:
                txn.cursor(environment.visible).putmulti(
                    [
                        (_key(number, generation, visibility), _entry(lookup_id, len(rows[lookup_id].packet)))
                        for lookup_id, visibility in visible.items()
                    ]
                )


def _put(cursor: lmdb.Cursor[bytes], entries: list[tuple[bytes, bytes]]) -> None:
    """Write entries; behind the last key of the database as an append, which fills pages to the end.

    A plain insert leaves one message of 1 KiB out of each page of three (LMDB splits before the last one).
    """
    entries.sort()
    cursor.putmulti(entries, append=not cursor.last() or cursor.key() < entries[0][0])


def _totals_key(queue: int) -> bytes:
    """Give the key of a queue's totals: behind its index entries, so that a commit seldom writes a page more for them."""
    return _key(queue, _NO_GENERATION, 0)


def load_totals(environment: Environment, queue: int) -> Totals:
    """Read what is durable of a queue."""
    raw = environment.txn.get(_totals_key(queue), db=environment.visible)
    return Totals(0, 0, 0) if raw is None else Totals(*STATISTICS.unpack(raw))
