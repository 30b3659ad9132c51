"""One queue as the engine sees it: stored, unsynced and express messages, and running totals.

The view merges the layers of `overlay.py` with the snapshot and adds the express messages, which
are never written to disk. Receiving is the hot path. All queues share one cursor, and to read the
message after the last one that it read, a queue only moves the cursor by one step.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from lanner.model.errors import StoreCorrupt
from lanner.model.lookup_ids import LANE_SHIFT, lane_of
from lanner.store.environment import Environment
from lanner.store.overlay import Layer, Overlay, Run
from lanner.store.record import MAX_LOOKUP_ID, MESSAGE_KEY, Record, decode, stored_facts

__all__ = ["EXPRESS_OVERHEAD", "GARBAGE_QUEUE", "STATISTICS", "ExpressLayer", "MessageLayer", "QueueView", "Totals"]

# The totals of a queue on disk: generation, messages, bytes of packets.
STATISTICS = struct.Struct(">IQQ")

# A row of table "garbage": the letter q, the queue and the generation to be swept.
GARBAGE_QUEUE = struct.Struct(">cII")

# Measured: bytes of memory that an express message takes in addition to its packet.
EXPRESS_OVERHEAD = 384

_key = MESSAGE_KEY.pack
_PREFIX_SIZE = 8  # of a key: queue and generation
_parts = MESSAGE_KEY.unpack
_NOTHING = b"", b""  # returned by a walk that is exhausted


class Totals(NamedTuple):
    """The durable totals of a queue, to which the view returns when a batch fails."""

    generation: int
    messages: int
    size: int


class MessageLayer(Layer[int, Record, int]):
    """The changes of one batch, or of all logged batches together, to one queue.

    `hidden` maps each hidden lookup id to its visibility number, whose index entry ends too. The
    values are plain integers because there are thousands, one per received message, and the garbage
    collector skips them. `references` holds the keys of staged rows. `visible` holds the number of
    each Available row. The committing thread takes the number from here, because the engine may
    meanwhile put the same record object again with a new number. `encoded` holds rows in their
    stored form once they have been logged.
    """

    __slots__ = ("encoded", "generation", "references", "visible")

    def __init__(self, generation: int) -> None:
        super().__init__()
        self.generation = generation
        self.visible: dict[int, int] = {}
        self.references: dict[int, bytes] = {}
        self.encoded: dict[int, bytes] = {}

    def absorb(self, above: MessageLayer) -> None:  # type: ignore[override]  # layers of one kind lie over each other
        rows, visible, encoded = self.rows, self.visible, self.encoded
        if rows.keys().isdisjoint(above.hidden):
            self.hidden.update(above.hidden)
        else:
            for key, number in above.hidden.items():
                if rows.pop(key, None) is None:
                    self.hidden[key] = number
                else:
                    # The message never reached the snapshot. If it replaced a stored one, that one
                    # is already hidden.
                    visible.pop(key, None)
                    encoded.pop(key, None)
        self.references.update(above.references)
        rows.update(above.rows)
        visible.update(above.visible)
        encoded.update(above.encoded)
        self.keys.merge(above.keys)

    def restore_rows(self, environment: Environment) -> None:
        """Restore the records as they were written.

        The engine holds the same objects, and may have changed them and put them again since.
        """
        for key, raw in self.encoded.items():
            self.rows[key] = decode(raw, environment.txn, environment.staged)


# Not in the specification: `order` is rebuilt when it has this many entries more than twice the
# number of messages.
_MAX_GONE = 1024


class ExpressLayer(MessageLayer):
    """The express messages of a queue.

    `order` has (number, lookup id) in the order of the numbers, so that a range is found without a
    scan of all messages. It keeps entries of messages that are gone or were put again, until there
    are too many of them.
    """

    __slots__ = ("order",)

    def __init__(self, generation: int) -> None:
        super().__init__(generation)
        self.order: list[tuple[int, int]] = []

    def number(self, lookup_id: int, number: int) -> None:
        """Note the visibility number of a message. Numbers only ascend."""
        self.visible[lookup_id] = number
        order = self.order
        order.append((number, lookup_id))
        if len(order) > 2 * len(self.visible) + _MAX_GONE:
            # A lookup id is popped before it is put again, so the dictionary is in the order of the
            # numbers too.
            order[:] = [(number, lookup_id) for lookup_id, number in self.visible.items()]

    def between(self, after: int, upto: int, limit: int | None = None) -> list[tuple[int, int]]:
        """Return (number, lookup id) of the first `limit` messages in (after, upto]."""
        order, visible = self.order, self.visible
        found: list[tuple[int, int]] = []
        for index in range(bisect_left(order, (after + 1, 0)), len(order)):
            number, lookup_id = order[index]
            if number > upto or len(found) == limit:
                break
            if visible.get(lookup_id) == number:
                found.append((number, lookup_id))
        return found

    def last(self, upto: int) -> int | None:
        """Return the highest number of a message that is not above `upto`."""
        order, visible = self.order, self.visible
        for index in range(bisect_left(order, (upto + 1, 0)) - 1, -1, -1):
            number, lookup_id = order[index]
            if visible.get(lookup_id) == number:
                return number
        return None


class QueueView(Overlay[int, Record, int]):
    """A queue's messages. All methods need the store's lock.

    `begin` creates the current layer when a change needs one.
    """

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
    below: tuple[MessageLayer, ...]

    def __init__(
        self, number: int, environment: Environment, totals: Totals, begin: Callable[[QueueView], MessageLayer]
    ) -> None:
        super().__init__()
        self._begin = begin
        self.number = number
        self._environment = environment
        self.synced = totals
        self.generation, self.messages, self.size = totals
        self.express: ExpressLayer | None = None
        self.express_messages = 0
        self.express_size = 0
        # The highest lookup id seen in each priority. A message above it is new and replaces
        # nothing.
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
        found = self.preceding(before)
        if self.express is not None:
            other = self.express.keys.below(before)
            if other is not None and (found is None or other > found):
                return other
        return found

    def read_next(self, after: int, passed_over: Container[int]) -> tuple[int, Record] | None:
        """Return the next lookup id above `after` that is not passed over, and its record.

        Combines `next` and `get` at the cost of one. Raises StoreCorrupt for that message if it
        fails its checksum.
        """
        while True:
            after += 1
            stored = self._unhidden_ceiling(after)
            found = self._added_ceiling(after)
            if self.express is not None:
                other = self.express.keys.ceiling(after)
                if other is not None and (found is None or other < found):
                    found = other
            # A stored key found this way is in no layer, because a row that replaces a stored one
            # hides it.
            is_stored = found is None or (stored is not None and stored < found)
            if is_stored:
                found = stored
            if found is None:
                return None
            if found not in passed_over:
                record = self._read_stored(found) if is_stored else self.get(found)
                if record is not None:
                    return found, record
            after = found

    def read_run(
        self, after: int, upto: int, count: int, size: int, passed_over: Container[int] = ()
    ) -> list[tuple[int, Record]]:
        """Return messages as `Store.read_run` does.

        Raises StoreCorrupt if the first of them fails its checksum.
        """
        return self._run(after, upto, count, size, passed_over)[0]

    def take_run(
        self, after: int, upto: int, count: int, size: int, passed_over: Container[int]
    ) -> list[tuple[int, Record]]:
        """Delete what `read_run` returns, and return it."""
        rows, stored = self._run(after, upto, count, size, passed_over)
        self._take(rows, stored)
        return rows

    def take_numbered(
        self, after: int, upto: int, count: int, size: int, numbers: Mapping[int, int], passed_over: Container[int]
    ) -> list[tuple[int, Record]]:
        """Delete those that have the given visibility numbers of what `read_run` returns."""
        rows, stored = (
            [row for row in some if numbers.get(row[0]) == row[1].visibility]
            for some in self._run(after, upto, count, size, passed_over)
        )
        self._take(rows, stored)
        return rows

    def _take(self, rows: list[tuple[int, Record]], stored: list[tuple[int, Record]]) -> None:
        """Delete messages that `_run` has found. `stored` are those straight from the snapshot."""
        if stored:
            # No layer has these messages, and their numbers are known. This does what `_hide` does,
            # without the layers below, because every receive comes here.
            layer = self.current or self._begin(self)
            hidden, references = layer.hidden, layer.references
            for lookup_id, record in stored:
                hidden[lookup_id] = record.visibility
                if record.reference:
                    references[lookup_id] = record.reference
                if self._runs:
                    self._grow_runs(lookup_id)
                self.size -= len(record.packet)
            self.messages -= len(stored)
            self._environment.last_read = None
        if len(stored) < len(rows):
            known = dict(stored)
            for lookup_id, record in rows:
                if lookup_id not in known:
                    self.delete(lookup_id, record)

    def _run(
        self, after: int, upto: int, count: int, size: int, passed_over: Container[int]
    ) -> tuple[list[tuple[int, Record]], list[tuple[int, Record]]]:
        """Return messages in order, and those of them that come straight from the snapshot."""
        rows: list[tuple[int, Record]] = []
        straight: list[tuple[int, Record]] = []
        stored, added = self._unhidden_ceiling(after + 1), self._added_or_express_ceiling(after + 1)
        while len(rows) < count and size > 0:
            # The two are never equal, because a row that replaces a stored one hides it.
            if stored is not None and (added is None or stored < added):
                end = upto if added is None else min(upto, added - 1)
                if stored > end:
                    break
                try:
                    last, some = self._stored_run(stored, end, count - len(rows), size, passed_over)
                except StoreCorrupt:
                    if rows:
                        break
                    raise
                rows += some
                straight += some
                size -= sum([len(record.packet) for _, record in some])
                stored = self._unhidden_ceiling(last + 1)
            elif added is not None and added <= upto:
                record = None if added in passed_over else self.get(added)
                if record is not None:
                    rows.append((added, record))
                    size -= len(record.packet)
                added = self._added_or_express_ceiling(added + 1)
            else:
                break
        return rows, straight

    def _stored_run(
        self, first: int, end: int, count: int, size: int, passed_over: Container[int]
    ) -> tuple[int, list[tuple[int, Record]]]:
        """Return the last lookup id examined, and the unhidden messages from `first` to `end`.

        Reads only the snapshot. Raises StoreCorrupt if the first message fails its checksum. A
        later damaged message ends the run before it.
        """
        environment = self._environment
        cursor, txn, staged = environment.message_cursor, environment.txn, environment.staged
        prefix = _key(self.number, self.generation, first)[:_PREFIX_SIZE]
        rows: list[tuple[int, Record]] = []
        last, before = first, size
        if environment.message_at != first or environment.message_in is not self:
            cursor.set_range(_key(self.number, self.generation, first))
        environment.message_in = None
        for key, raw in cursor.iternext():
            found = int.from_bytes(key[_PREFIX_SIZE:], "big")
            if not key.startswith(prefix) or found > end:
                break
            if found not in passed_over and not self._is_hidden(found):
                try:
                    record = decode(raw, txn, staged)
                except StoreCorrupt:
                    if rows:
                        break
                    raise
                rows.append((found, record))
                size -= len(record.packet)
            last = found
            if size <= 0 or len(rows) == count:
                # The cursor stays here, so the next message is one step away.
                environment.message_in, environment.message_at = self, found
                break
        environment.memory.touch(before - size)
        return last, rows

    def _added_or_express_ceiling(self, key: int) -> int | None:
        """Return the lowest key that is not below `key` and is not in the snapshot."""
        found = self._added_ceiling(key)
        if self.express is not None:
            other = self.express.keys.ceiling(key)
            if other is not None and (found is None or other < found):
                return other
        return found

    def get(self, lookup_id: int) -> Record | None:
        """Return the newest record. Raises StoreCorrupt if the stored one fails its checksum."""
        if self.express is not None:
            # Express messages come first: one may have the key of a durable message that is hidden.
            record = self.express.rows.get(lookup_id)
            if record is not None:
                return record
        return super().get(lookup_id)

    def _read_stored(self, lookup_id: int) -> Record | None:
        raw = self.raw(lookup_id)
        if raw is None:
            return None
        environment = self._environment
        record = environment.last_read = decode(raw, environment.txn, environment.staged)
        environment.memory.touch(len(record.packet))
        return record

    def contains(self, lookup_id: int) -> bool:
        """Return whether there is a record, without reading it."""
        if self.express is not None and lookup_id in self.express.rows:
            return True
        for layer in self.layers():
            if lookup_id in layer.rows:
                return True
            if lookup_id in layer.hidden:
                return False
        return self.raw(lookup_id) is not None

    def raw(self, lookup_id: int) -> bytes | None:
        """Return the stored bytes that the snapshot has under a key."""
        environment = self._environment
        if environment.message_at == lookup_id and environment.message_in is self:
            return environment.message_cursor.value()
        return environment.txn.get(_key(self.number, self.generation, lookup_id), db=environment.messages)

    def _stored_ceiling(self, key: int) -> int | None:
        if key > MAX_LOOKUP_ID:
            return None
        environment = self._environment
        cursor = environment.message_cursor
        if environment.message_at == key - 1 and environment.message_in is self:
            # Just after the message received last: a step costs half as much as a search.
            is_there = cursor.next()
        else:
            is_there = cursor.set_range(_key(self.number, self.generation, key))
        return self._standing(is_there=is_there)

    def _stored_below(self, key: int) -> int | None:
        environment = self._environment
        cursor = environment.message_cursor
        bound = _key(self.number, self.generation, min(key, MAX_LOOKUP_ID))
        if key > MAX_LOOKUP_ID:
            bound += b"\0"  # just above the highest possible key
        is_there = cursor.prev() if cursor.set_range(bound) else cursor.last()
        return self._standing(is_there=is_there)

    def _standing(self, *, is_there: bool) -> int | None:
        """Note the position of the cursor and return its lookup id; None if it left this queue."""
        environment = self._environment
        environment.message_in = None
        if not is_there:
            return None
        found: int
        number, generation, found = _parts(environment.message_cursor.key())
        if number != self.number or generation != self.generation:
            return None
        environment.message_in = self
        environment.message_at = found
        return found

    def _successor(self, key: int) -> int:
        return key + 1

    # Changing

    def put(self, lookup_id: int, record: Record, number: int, *, express: bool) -> None:
        """Put a record under a visibility number; 0 keeps it out of scans."""
        self._environment.last_read = None
        high = self._high.get(lookup_id >> LANE_SHIFT)
        if high is None:
            high = self._load_high(lookup_id >> LANE_SHIFT)
        if lookup_id > high:
            self._high[lookup_id >> LANE_SHIFT] = lookup_id
        else:
            self._replace(lookup_id)
        size = len(record.packet)
        record.visibility = number
        if express:
            volatile = self.express
            if volatile is None:
                volatile = self.express = ExpressLayer(self.generation)
            self.express_messages += 1
            self.express_size += size
            self._environment.express_bytes += size + EXPRESS_OVERHEAD
            volatile.keys.add(lookup_id)
            volatile.rows[lookup_id] = record
            if number:
                volatile.number(lookup_id, number)
            return
        layer = self.current or self._begin(self)
        self.messages += 1
        self.size += size
        layer.keys.add(lookup_id)
        layer.rows[lookup_id] = record
        if number:
            layer.visible[lookup_id] = number

    def put_run(self, first: int, records: Sequence[Record], number: int, *, express: bool) -> None:
        """Put records under consecutive lookup ids and visibility numbers, from the given ones."""
        lane, count = first >> LANE_SHIFT, len(records)
        high = self._high.get(lane)
        if high is None:
            high = self._load_high(lane)
        if express or first <= high:
            for offset, record in enumerate(records):
                self.put(first + offset, record, number + offset, express=express)
            return
        self._environment.last_read = None
        lookup_ids = range(first, first + count)
        self._high[lane] = lookup_ids[-1]
        layer = self.current or self._begin(self)
        size = 0
        for visibility, record in enumerate(records, number):
            record.visibility = visibility
            size += len(record.packet)
        self.messages += count
        self.size += size
        layer.keys.extend(lookup_ids)
        layer.rows.update(zip(lookup_ids, records, strict=True))
        layer.visible.update(zip(lookup_ids, range(number, number + count), strict=True))

    def delete(self, lookup_id: int, record: Record) -> bool:
        """Delete a message whose `record` was read or put before; return whether there was one.

        The visibility number of a stored message is read from disk, not from the record, because a
        move may have put the same object elsewhere.
        """
        size = len(record.packet)
        environment = self._environment
        if record is environment.last_read:
            # The record came straight from the snapshot, and nothing has been put or hidden since.
            # So no layer has it, and its number is right. This does what `_hide` does, without the
            # layers below, because every receive comes here.
            environment.last_read = None
            layer = self.current or self._begin(self)
            layer.hidden[lookup_id] = record.visibility
            if record.reference:
                layer.references[lookup_id] = record.reference
            if self._runs:
                self._grow_runs(lookup_id)
            self.messages -= 1
            self.size -= size
            return True
        was_there = self._delete_added(lookup_id, record)
        return self.hide_stored(lookup_id) is not None if was_there is None else was_there

    def delete_run(self, rows: Iterable[tuple[int, Record]]) -> list[tuple[int, Record]]:
        """Delete messages as `delete` does, and return those that existed.

        Messages that only the snapshot has are found by one walk, as long as they are in the order
        of their lookup ids.
        """
        gone: list[tuple[int, Record]] = []
        environment = self._environment
        environment.message_in = environment.last_read = None
        cursor, txn, staged = environment.message_cursor, environment.txn, environment.staged
        walk: Iterator[tuple[bytes, bytes]] = iter(())
        low = high = -1  # bounds of the keys that the walk has passed without a gap
        size = 0
        for row in rows:
            lookup_id, record = row
            was_there = self._delete_added(lookup_id, record)
            if was_there is None:
                key = _key(self.number, self.generation, lookup_id)
                found, raw = next(walk, _NOTHING)
                if found != key:
                    self._note_hidden(low, high, found)
                    low = high = -1
                    walk = cursor.iternext() if cursor.set_range(key) else iter(())
                    found, raw = next(walk, _NOTHING)
                    if found != key:
                        walk = iter(())
                        continue
                    low = lookup_id
                high = lookup_id
                layer = self.current or self._begin(self)
                stored, layer.hidden[lookup_id], reference = stored_facts(raw, txn, staged)
                if reference:
                    layer.references[lookup_id] = reference
                if self._runs:
                    self._grow_runs(lookup_id)
                self.messages -= 1
                self.size -= stored
                size += stored
                gone.append(row)
            elif was_there:
                gone.append(row)
        if high >= 0:
            self._note_hidden(low, high, next(walk, _NOTHING)[0])
        environment.memory.touch(size)
        return gone

    def _note_hidden(self, low: int, high: int, following: bytes) -> None:
        """Remember that the stored keys from `low` to `high` are hidden; then comes `following`."""
        if low < 0:
            return
        prefix = _key(self.number, self.generation, 0)[:_PREFIX_SIZE]
        above = int.from_bytes(following[_PREFIX_SIZE:], "big") if following.startswith(prefix) else None
        for run in self._runs:
            if run.following == low:
                run.high, run.following = high, above
                return
        self._remember(Run(low, high, above))

    def _delete_added(self, lookup_id: int, record: Record) -> bool | None:
        """Delete a message that is not in the snapshot, or is hidden there.

        Return whether it existed; None if only the snapshot can say.
        """
        size = len(record.packet)
        environment = self._environment
        express = self.express
        if express is not None and lookup_id in express.rows:
            del express.rows[lookup_id]
            express.visible.pop(lookup_id, None)
            express.keys.discard(lookup_id)
            self.express_messages -= 1
            self.express_size -= size
            environment.express_bytes -= size + EXPRESS_OVERHEAD
            return True
        layer = self.current or self._begin(self)
        if lookup_id in layer.rows:
            # This row never reaches the disk. A row that it replaced is already hidden.
            del layer.rows[lookup_id]
            layer.visible.pop(lookup_id, None)
            layer.keys.discard(lookup_id)
            self.messages -= 1
            self.size -= size
            return True
        return False if lookup_id in layer.hidden else self._hide_in_layers(lookup_id)

    def _hide_in_layers(self, lookup_id: int) -> bool | None:
        """Hide a message in the layers below the current one.

        Return whether these layers had it; None if only the snapshot can say.
        """
        for layer in self.below:
            record = layer.rows.get(lookup_id)
            if record is not None:
                self._hide(lookup_id, len(record.packet), layer.visible.get(lookup_id, 0), b"")
                return True
            if lookup_id in layer.hidden:
                return False
        return None

    def hide_stored(self, lookup_id: int) -> bytes | None:
        """Hide the message that the snapshot has under a key; return its stored bytes or None."""
        raw = self.raw(lookup_id)
        if raw is not None:
            environment = self._environment
            self._hide(lookup_id, *stored_facts(raw, environment.txn, environment.staged))
        return raw

    def _hide(self, lookup_id: int, size: int, number: int, reference: bytes) -> None:
        """Hide a message that lies below the current layer; its index entry ends too."""
        self._environment.last_read = None
        layer = self.current or self._begin(self)
        layer.hidden[lookup_id] = number
        if reference:
            layer.references[lookup_id] = reference
        self._hide_below(lookup_id)
        self.messages -= 1
        self.size -= size

    def drop(self) -> None:
        """Drop all messages without reading them, by starting a new generation of the queue."""
        self.generation += 1
        # Both refer to the old generation.
        self._environment.message_in = self._environment.last_read = None
        self._environment.express_bytes -= self.express_size + EXPRESS_OVERHEAD * self.express_messages
        self.messages = self.size = self.express_messages = self.express_size = 0
        self.express = None
        self._high.clear()
        self.current = None  # its rows belong to the old generation
        self.below = ()  # still committed, then swept with the rest of the old generation
        self.forget_runs()
        self._begin(self)

    def go_back(self) -> None:
        """Return to the last synced state; express messages stay."""
        super().go_back()
        for layer in self.below:
            layer.restore_rows(self._environment)
        self.messages, self.size = self.synced.messages, self.synced.size
        self._high.clear()

    def raise_high(self, lookup_id: int) -> None:
        """Note a lookup id that was added by other means than `put`."""
        lane = lane_of(lookup_id)
        if lookup_id > self._high.get(lane, MAX_LOOKUP_ID):
            self._high[lane] = lookup_id

    def _load_high(self, lane: int) -> int:
        found = self.previous((lane + 1) << LANE_SHIFT)
        return found if found is not None and lane_of(found) == lane else -1

    def _replace(self, lookup_id: int) -> None:
        """Remove the message under a key, if any, before another record takes its place."""
        for layer in (self.express, self.current):
            if layer is not None and lookup_id in layer.rows:
                self.delete(lookup_id, layer.rows[lookup_id])
                return
        if self.current is not None and lookup_id in self.current.hidden:
            return
        if self._hide_in_layers(lookup_id) is None:
            self.hide_stored(lookup_id)
