"""One queue as the engine sees it: stored messages, unsynced changes, express messages, running totals."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from lanner.store.environment import Environment
from lanner.store.overlay import Layer, Overlay
from lanner.store.record import HEADER_SIZE, MAX_LOOKUP_ID, MESSAGE_KEY, Record, decode, stored_visibility

__all__ = ["STATISTICS", "MessageLayer", "QueueView", "Totals"]

# A row of table "statistics": generation, messages, bytes of packets.
STATISTICS = struct.Struct(">IQQ")

_key = MESSAGE_KEY.pack


class Totals(NamedTuple):
    """What is durable of a queue; also what to go back to when a batch fails."""

    generation: int
    messages: int
    size: int


class MessageLayer(Layer[int, Record]):
    """The changes of one batch to one queue.

    `visible` holds the number of each Available row: the committing thread takes it from here and not from the record,
    because the engine may meanwhile put the same record object again under a new number.
    """

    __slots__ = ("generation", "unindexed", "visible")

    def __init__(self, generation: int) -> None:
        super().__init__()
        self.generation = generation
        self.visible: dict[int, int] = {}
        self.unindexed: list[int] = []  # numbers whose index entries end with this batch


class QueueView(Overlay[int, Record]):
    """All methods need the store's lock. `begin` makes the current layer when a change needs one."""

    __slots__ = (
        "_begin",
        "_environment",
        "_high",
        "express",
        "express_messages",
        "express_size",
        "generation",
        "messages",
        "number",
        "size",
        "synced",
    )

    current: MessageLayer | None
    inflight: MessageLayer | None

    def __init__(
        self, number: int, environment: Environment, totals: Totals, begin: Callable[[QueueView], MessageLayer]
    ) -> None:
        super().__init__()
        self._begin = begin
        self.number = number
        self._environment = environment
        self.synced = totals
        self.generation, self.messages, self.size = totals
        self.express: MessageLayer | None = None
        self.express_messages = 0
        self.express_size = 0
        # The highest lookup id seen in each priority: above it nothing can be replaced, and a new message is always above it.
        self._high: dict[int, int] = {}

    # Reading

    def next(self, after: int) -> int | None:
        if after >= MAX_LOOKUP_ID:
            return None
        found = self.ceiling(after + 1)
        if self.express is not None:
            other = self.express.keys.ceiling(after + 1)
            if other is not None and (found is None or other < found):
                return other
        return found

    def previous(self, before: int) -> int | None:
        found = self.below(before)
        if self.express is not None:
            other = self.express.keys.below(before)
            if other is not None and (found is None or other > found):
                return other
        return found

    def get(self, lookup_id: int) -> Record | None:
        """Return the newest record; StoreCorrupt if the stored one fails its checksum."""
        if self.express is not None:
            # First: an express message may stand in the place of a durable one that is hidden below.
            record = self.express.rows.get(lookup_id)
            if record is not None:
                return record
        current = self.current
        if current is not None:
            record = current.rows.get(lookup_id)
            if record is not None:
                return record
            if lookup_id in current.hidden:
                return None
        inflight = self.inflight
        if inflight is not None:
            record = inflight.rows.get(lookup_id)
            if record is not None:
                return record
            if lookup_id in inflight.hidden:
                return None
        raw = self.raw(lookup_id)
        return None if raw is None else decode(raw)

    def raw(self, lookup_id: int) -> bytes | None:
        """Return the stored bytes of the snapshot."""
        environment = self._environment
        return environment.txn.get(_key(self.number, self.generation, lookup_id), db=environment.messages)

    def _stored_ceiling(self, key: int) -> int | None:
        if key > MAX_LOOKUP_ID:
            return None
        cursor = self._environment.message_cursor
        if not cursor.set_range(_key(self.number, self.generation, key)):
            return None
        number, generation, found = MESSAGE_KEY.unpack(cursor.key())
        return found if number == self.number and generation == self.generation else None

    def _stored_below(self, key: int) -> int | None:
        cursor = self._environment.message_cursor
        if key > MAX_LOOKUP_ID:
            at = cursor.set_range(_key(self.number, self.generation, MAX_LOOKUP_ID))
            if at and cursor.key() == _key(self.number, self.generation, MAX_LOOKUP_ID):
                return MAX_LOOKUP_ID
        else:
            at = cursor.set_range(_key(self.number, self.generation, key))
        if not (cursor.prev() if at else cursor.last()):
            return None
        number, generation, found = MESSAGE_KEY.unpack(cursor.key())
        return found if number == self.number and generation == self.generation else None

    def _successor(self, key: int) -> int:
        return key + 1

    # Changing

    def put(self, lookup_id: int, record: Record, number: int, *, express: bool) -> None:
        """Put a record under a visibility number; 0 keeps it out of scans."""
        high = self._high.get(lookup_id >> 56)
        if high is None:
            high = self._load_high(lookup_id >> 56)
        if lookup_id > high:
            self._high[lookup_id >> 56] = lookup_id
        else:
            self._replace(lookup_id)
        size = len(record.packet)
        if express:
            layer = self.express
            if layer is None:
                layer = self.express = MessageLayer(self.generation)
            self.express_messages += 1
            self.express_size += size
        else:
            layer = self.current or self._begin(self)
            self.messages += 1
            self.size += size
        layer.keys.add(lookup_id)
        layer.rows[lookup_id] = record
        record.visibility = number
        if number:
            layer.visible[lookup_id] = number

    def delete(self, lookup_id: int, record: Record) -> None:
        """Delete a message; `record` is as last seen, its number and size are needed."""
        size = len(record.packet)
        express = self.express
        if express is not None and lookup_id in express.rows:
            del express.rows[lookup_id]
            express.visible.pop(lookup_id, None)
            express.keys.discard(lookup_id)
            self.express_messages -= 1
            self.express_size -= size
            return
        layer = self.current or self._begin(self)
        if lookup_id in layer.rows:
            # Nothing of it reaches the disk. If it had replaced something, that is hidden since then.
            del layer.rows[lookup_id]
            layer.visible.pop(lookup_id, None)
            layer.keys.discard(lookup_id)
            self.messages -= 1
            self.size -= size
        elif lookup_id not in layer.hidden:
            inflight = self.inflight
            if inflight is not None and lookup_id in inflight.rows:
                self.hide(lookup_id, size, inflight.visible.get(lookup_id, 0))
            else:
                self.hide(lookup_id, size, record.visibility)

    def hide(self, lookup_id: int, size: int, visibility: int) -> None:
        """Hide a message that lies below the current layer, and end its index entry."""
        layer = self.current or self._begin(self)
        layer.hidden.add(lookup_id)
        if visibility:
            layer.unindexed.append(visibility)
        if self.inflight is not None:
            self.inflight.keys.discard(lookup_id)
        self.messages -= 1
        self.size -= size

    def drop(self) -> None:
        """Drop all messages: the queue goes on in a new generation, and nothing has to be read to empty it."""
        self.generation += 1
        self.messages = self.size = self.express_messages = self.express_size = 0
        self.express = None
        self._high.clear()
        self.current = None  # its rows belong to the old generation
        self.inflight = None  # still committed, then swept with the rest of the old generation
        self.forget_runs()
        self._begin(self)

    def go_back(self) -> None:
        """Return to the last synced state; express messages stay."""
        self.generation, self.messages, self.size = self.synced
        self.current = self.inflight = None
        self._high.clear()
        self.forget_runs()

    def raise_high(self, lookup_id: int) -> None:
        """Note a lookup id that came in by another way than `put`."""
        lane = lookup_id >> 56
        if lookup_id > self._high.get(lane, MAX_LOOKUP_ID):
            self._high[lane] = lookup_id

    def _load_high(self, lane: int) -> int:
        found = self.previous((lane + 1) << 56)
        return found if found is not None and found >> 56 == lane else -1

    def _replace(self, lookup_id: int) -> None:
        """Take away what is there under a key, if anything, before another record comes in its place."""
        for layer in (self.express, self.current):
            if layer is not None and lookup_id in layer.rows:
                self.delete(lookup_id, layer.rows[lookup_id])
                return
        if self.current is not None and lookup_id in self.current.hidden:
            return
        inflight = self.inflight
        if inflight is not None and lookup_id in inflight.rows:
            self.hide(lookup_id, len(inflight.rows[lookup_id].packet), inflight.visible.get(lookup_id, 0))
        elif inflight is None or lookup_id not in inflight.hidden:
            raw = self.raw(lookup_id)
            if raw is not None:
                self.hide(lookup_id, len(raw) - HEADER_SIZE, stored_visibility(raw))
