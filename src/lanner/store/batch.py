"""One batch: the changes that one commit makes durable, and how they are logged and stored.

`Batch.operations` gives their form in the write-ahead log, `Batch.write` writes them into the
database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import lmdb

from lanner.store.counters import Counter
from lanner.store.environment import Environment
from lanner.store.event_log import EVENT, EventBlock, encode_block, put_block
from lanner.store.format import table_key
from lanner.store.overlay import Layer
from lanner.store.queue_view import STATISTICS, MessageLayer, QueueView, Totals
from lanner.store.record import MESSAGE_KEY
from lanner.store.rows import checkpoint_rows, log_deletions, log_rows
from lanner.store.staging import Publication, StagedRows
from lanner.store.table import Table
from lanner.store.write_ahead_log import Operation

__all__ = ["Batch", "load_totals"]

# Not in the specification: a batch with more bytes goes straight into the database. Writing it
# twice would cost more than the second wait for the disk.
MAX_LOGGED = 128 << 10
# Not in the specification: rows written between two pauses, about a millisecond.
_PIECE = 500
# A generation that no queue reaches.
NO_GENERATION = 0xFFFF_FFFF
_key = MESSAGE_KEY.pack
_head = Operation.HEAD.pack


class Batch:
    """The changes of one batch.

    It is filled with the lock held. Once it is being committed, only the committing thread uses it.
    The logged batches that the database does not have yet are merged into one more `Batch`.
    """

    __slots__ = (
        "completions",
        "counters",
        "event_horizon",
        "events",
        "horizon",
        "number",
        "publications",
        "queues",
        "room",
        "staged",
        "tables",
        "totals",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.queues: dict[QueueView, MessageLayer] = {}
        self.tables: dict[Table, Layer[bytes, bytes, None]] = {}
        self.staged: list[StagedRows] = []
        self.publications: list[Publication] = []
        # Called with the batch's number, under the lock, when the batch is durable.
        self.completions: list[Callable[[int], None]] = []
        self.totals: dict[QueueView, Totals] = {}
        self.counters: list[tuple[Counter, int]] = []
        self.horizon = 0  # the last visibility number issued when the batch was closed
        # Events are written with a batch but do not make one: no caller waits for what happened to
        # an express message (event_log.py).
        self.events: list[EventBlock] = []
        self.event_horizon = 0  # the last event number issued when the batch was closed
        self.room = 0  # approximate size in the database, if the batch is logged

    def __bool__(self) -> bool:
        return bool(self.queues or self.tables)

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to write, not even events."""
        return not (self.queues or self.tables or self.events)

    def freeze(self, horizon: int) -> None:
        """Close the batch: put its layers in flight and fix the totals to write.

        No other batch is in flight, so these layers lie above all others.
        """
        self.horizon = horizon
        for queue, layer in self.queues.items():
            queue.current = None
            queue.below = layer, *queue.below
            self.totals[queue] = Totals(queue.generation, queue.messages, queue.size)
        for publication in self.publications:
            queue = publication.view
            totals = self.totals.get(queue) or Totals(queue.generation, queue.messages, queue.size)
            self.totals[queue] = publication.added_to(totals)
        for table, rows in self.tables.items():
            table.current = None
            table.below = rows, *table.below

    def absorb(self, batch: Batch) -> int:
        """Merge a later batch into this one; return how many more stored messages are now deleted.

        Removes the layers of the later batch from the stacks of their views, where they lie above
        the layers of this batch.
        """
        stored = 0
        for queue, layer in batch.queues.items():
            below = self.queues.get(queue)
            if below is None or below.generation != layer.generation:
                # The layer of the previous generation was dropped with the queue; its rows will be
                # swept.
                self.queues[queue] = layer
                stored += len(layer.hidden) - (0 if below is None else len(below.hidden))
            else:
                stored -= len(below.hidden)
                below.absorb(layer)
                stored += len(below.hidden)
                if queue.below and queue.below[0] is layer:
                    queue.below = queue.below[1:]
        for table, rows in batch.tables.items():
            below_rows = self.tables.get(table)
            if below_rows is None:
                self.tables[table] = rows
            else:
                below_rows.absorb(rows)
                if table.below and table.below[0] is rows:
                    table.below = table.below[1:]
        self.totals |= batch.totals
        self.events += batch.events
        # An empty batch has 0 for both.
        self.horizon = max(self.horizon, batch.horizon)
        self.event_horizon = max(self.event_horizon, batch.event_horizon)
        return stored

    def messages(self) -> int:
        """Return how many messages are put or deleted."""
        messages = 0
        for layer in self.queues.values():
            messages += len(layer.rows) + len(layer.hidden)
        return messages

    def changes(self) -> int:
        """Return how many rows change."""
        changes = self.messages()
        for rows in self.tables.values():
            changes += len(rows.rows) + len(rows.hidden)
        return changes

    def cost(self) -> int:
        """Return about how many bytes of the map a commit reads: one page for each message."""
        touched = sum(len(keys) for keys, _ in self.staged)
        for layer in self.queues.values():
            touched += len(layer.rows) + len(layer.hidden)
        return 4096 * touched

    def size(self) -> int:
        """Return about how many bytes of the file a commit takes: the packets and a few pages."""
        size = 4096 * (8 + 4 * (len(self.queues) + len(self.tables) + len(self.publications))) + self.cost() // 8
        # Plain loops, because for a batch of one message sum() costs several times as much.
        for layer in self.queues.values():
            for record in layer.rows.values():
                size += len(record.packet)
        for _, values in self.staged:
            size += sum(map(len, values))
        for block in self.events:
            size += EVENT.size * len(block.records)
        return size

    def write(self, txn: lmdb.Transaction[bytes], environment: Environment) -> None:
        """Write everything but publications, which may be long and are written without the lock."""
        for _ in self.write_pieces(txn, environment):
            pass

    def write_pieces(self, txn: lmdb.Transaction[bytes], environment: Environment) -> Iterator[None]:
        """Write the same, and yield after each piece of the work."""
        for queue, layer in self.queues.items():
            yield from self._write_queue(txn, environment, queue.number, layer)
        for keys, values in self.staged:
            # As in `_put`: the rows of the newest stage usually sort after all others.
            cursor = txn.cursor(environment.staged)
            is_last = not cursor.last() or cursor.key() < keys[0]
            cursor.putmulti(zip(keys, values, strict=True), append=is_last)
            yield
        for queue, totals in self.totals.items():
            txn.put(_totals_key(queue.number), STATISTICS.pack(*totals), db=environment.visible)
        for table, changes in self.tables.items():
            prefix = table_key(table.name, b"")
            for count, key in enumerate(changes.hidden, 1):
                if key not in changes.rows:
                    txn.delete(prefix + key, db=environment.tables)
                if not count % _PIECE:
                    yield
            rows = iter(changes.rows.items())
            cursor = txn.cursor(environment.tables)
            while some := [(prefix + key, value) for key, value in islice(rows, _PIECE)]:
                cursor.putmulti(some)
                if len(some) == _PIECE:
                    yield
        for first, records in self.events:
            put_block(txn, environment, first, records)

    def operations(self) -> list[bytes] | None:
        """Return the batch as operations for the write-ahead log; None if it must not be logged."""
        if self.staged or self.publications:
            return None
        parts: list[bytes] = []
        add = parts.append
        size = 0
        for queue, layer in self.queues.items():
            number, generation, rows = queue.number, layer.generation, layer.rows
            if layer.hidden:
                # Also for replaced messages, because their index entries end.
                add(log_deletions(Operation.DELETE_MESSAGE, number, generation, layer.hidden, layer.references))
            if rows:
                logged = log_rows(
                    Operation.PUT_MESSAGE, number, generation, rows, layer.visible, layer.encoded, MAX_LOGGED - size
                )
                if logged is None:
                    return None
                size += logged[0]
                parts += logged[1]
        for queue, totals in self.totals.items():
            value = STATISTICS.pack(*totals)
            add(_head(Operation.PUT_TOTALS, 16, len(value)) + _totals_key(queue.number) + value)
        for table, changes in self.tables.items():
            prefix = table_key(table.name, b"")
            for name in changes.hidden:
                key = prefix + name
                add(_head(Operation.DELETE_ROW, len(key), 0) + key)
            for name, value in changes.rows.items():
                key = prefix + name
                add(_head(Operation.PUT_ROW, len(key), len(value)) + key + value)
        for first, records in self.events:
            if records:
                key, value = encode_block(first, records)
                add(_head(Operation.PUT_EVENTS, len(key), len(value)) + key + value)
        return parts

    @staticmethod
    def _write_queue(
        txn: lmdb.Transaction[bytes], environment: Environment, number: int, layer: MessageLayer
    ) -> Iterator[None]:
        generation = layer.generation
        rows = layer.rows
        delete = txn.delete  # key, value (any), database: keyword arguments cost a fifth more
        references = layer.references
        for count, (lookup_id, visibility) in enumerate(layer.hidden.items(), 1):
            if lookup_id not in rows:
                delete(_key(number, generation, lookup_id), b"", environment.messages)
            if visibility:
                delete(_key(number, generation, visibility), b"", environment.visible)
            if lookup_id in references:
                delete(references[lookup_id], b"", environment.staged)
            if not count % _PIECE:
                yield
        visible = layer.visible
        encoded = layer.encoded
        # In key order, because appending fills pages completely.
        ordered = iter(sorted(rows.items()) if len(rows) > _PIECE else rows.items())
        while some := list(islice(ordered, _PIECE)):
            entries, index = checkpoint_rows(number, generation, some, visible, encoded)
            _put(txn.cursor(environment.messages), entries)
            if index:
                txn.cursor(environment.visible).putmulti(index)
            if len(some) == _PIECE:
                yield


def _put(cursor: lmdb.Cursor[bytes], entries: list[tuple[bytes, bytes]]) -> None:
    """Write entries, as an append if they come after the last key, because that fills pages.

    A plain insert stores two messages of 1 KiB in a page that has room for three, because LMDB
    splits before the last one.
    """
    entries.sort()
    cursor.putmulti(entries, append=not cursor.last() or cursor.key() < entries[0][0])


def _totals_key(queue: int) -> bytes:
    """Return the key of a queue's totals.

    It sorts just after the queue's index entries, so a commit seldom writes another page for it.
    """
    return _key(queue, NO_GENERATION, 0)


def load_totals(environment: Environment, queue: int) -> Totals:
    """Read the durable totals of a queue."""
    raw = environment.txn.get(_totals_key(queue), db=environment.visible)
    return Totals(0, 0, 0) if raw is None else Totals(*STATISTICS.unpack(raw))
