"""One batch: what changes together, and how it is written into a write transaction."""

from __future__ import annotations

import struct

import lmdb

from lanner.store.counters import Counter
from lanner.store.environment import Environment
from lanner.store.overlay import Layer
from lanner.store.queue_view import STATISTICS, MessageLayer, QueueView, Totals
from lanner.store.record import MESSAGE_KEY, encode
from lanner.store.table import Table, table_key

__all__ = ["INDEX_ENTRY", "Batch", "load_totals"]

# A row of the index of visibility numbers: lookup id, size of the packet.
INDEX_ENTRY = struct.Struct(">QI")

_STATISTICS_TABLE = "statistics"
_QUEUE = struct.Struct(">I")
_key = MESSAGE_KEY.pack
_entry = INDEX_ENTRY.pack


class Batch:
    """Filled under the lock; once it is being committed only the committing thread touches it."""

    __slots__ = ("counters", "horizon", "number", "queues", "tables", "totals")

    def __init__(self, number: int) -> None:
        self.number = number
        self.queues: dict[QueueView, MessageLayer] = {}
        self.tables: dict[Table, Layer[bytes, bytes]] = {}
        self.totals: dict[QueueView, Totals] = {}
        self.counters: list[tuple[Counter, int]] = []
        self.horizon = 0  # the last visibility number issued when the batch was closed

    def __bool__(self) -> bool:
        return bool(self.queues or self.tables)

    def freeze(self, horizon: int) -> None:
        """Close the batch: its layers become those in flight, and the totals to write are fixed."""
        self.horizon = horizon
        for queue, layer in self.queues.items():
            queue.inflight, queue.current = layer, None
            self.totals[queue] = Totals(queue.generation, queue.messages, queue.size)
        for table, rows in self.tables.items():
            table.inflight, table.current = rows, None

    def write(self, txn: lmdb.Transaction[bytes], environment: Environment) -> None:
        for queue, layer in self.queues.items():
            self._write_queue(txn, environment, queue.number, layer)
        rows = [
            (table_key(_STATISTICS_TABLE, _QUEUE.pack(queue.number)), STATISTICS.pack(*totals))
            for queue, totals in self.totals.items()
        ]
        for table, changes in self.tables.items():
            prefix = table_key(table.name, b"")
            for key in changes.hidden:
                if key not in changes.rows:
                    txn.delete(prefix + key, db=environment.tables)
            rows += [(prefix + key, value) for key, value in changes.rows.items()]
        if rows:
            txn.cursor(environment.tables).putmulti(rows)

    @staticmethod
    def _write_queue(txn: lmdb.Transaction[bytes], environment: Environment, number: int, layer: MessageLayer) -> None:
        generation = layer.generation
        rows = layer.rows
        for lookup_id in layer.hidden:
            if lookup_id not in rows:
                txn.delete(_key(number, generation, lookup_id), db=environment.messages)
        for visibility in layer.unindexed:
            txn.delete(_key(number, generation, visibility), db=environment.visible)
        if rows:
            visible = layer.visible
            txn.cursor(environment.messages).putmulti(
                [
                    (_key(number, generation, lookup_id), encode(record, visible.get(lookup_id, 0)))
                    for lookup_id, record in rows.items()
                ]
            )
            if visible:
                txn.cursor(environment.visible).putmulti(
                    [
                        (_key(number, generation, visibility), _entry(lookup_id, len(rows[lookup_id].packet)))
                        for lookup_id, visibility in visible.items()
                    ]
                )


def load_totals(environment: Environment, queue: int) -> Totals:
    """Read what is durable of a queue."""
    raw = environment.txn.get(table_key(_STATISTICS_TABLE, _QUEUE.pack(queue)), db=environment.tables)
    return Totals(0, 0, 0) if raw is None else Totals(*STATISTICS.unpack(raw))
