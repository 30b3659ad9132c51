"""The store against plain dicts: whatever is done in whatever order, both agree."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lanner.model.enums import PositionState
from lanner.model.errors import InsufficientResources
from lanner.store import Record, Store
from tests.store.conftest import crash, ids, ids_backwards, no_room, open_store

QUEUES = st.integers(0, 1)
KEYS = st.builds(lambda lane, number: lane << 56 | number, st.integers(0, 1), st.integers(0, 5))
TABLE_KEYS = st.binary(max_size=2)
# Where published messages begin.
PUBLISHED = 100


def is_express(key: int) -> bool:
    return key & (1 << 56) - 1 < PUBLISHED and key % 2 == 1


class StoreAgainstDict(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.store = self.opened()
        # (queue, key) -> packet, is it visible
        self.messages: dict[tuple[int, int], tuple[bytes, bool]] = {}
        self.rows: dict[bytes, bytes] = {}
        self.synced = self.swapped = (dict(self.messages), dict(self.rows))
        self.last_number = 0
        self.last_record = 0
        self.sequential_id = PUBLISHED

    def opened(self) -> Store:
        """Open the store without its thread, whose work `maintain` does.

        With a single thread, no lock is needed.
        """
        store = open_store(self.path)
        store._commits.maintenance.stop()
        return store

    @rule()
    def maintain(self) -> None:
        self.sync()
        self.end_checkpoint()
        while self.store._commits._maintain():
            pass

    def teardown(self) -> None:
        self.end_checkpoint()
        self.store.close()
        shutil.rmtree(self.path)

    @rule(queue=QUEUES, key=KEYS, packet=st.binary(max_size=8), available=st.booleans())
    def put(self, queue: int, key: int, packet: bytes, available: bool) -> None:
        message = Record(packet, 1, state=PositionState.AVAILABLE if available else PositionState.LOCKED)
        self.store.put(queue, key, message, express=is_express(key))
        self.messages[queue, key] = (packet, available)
        if available:
            assert message.visibility > self.last_number
            self.last_number = message.visibility

    @rule(queue=QUEUES, at=st.integers(0, 20))
    def put_again(self, queue: int, at: int) -> None:
        keys = sorted(key for number, key in self.messages if number == queue)
        if not keys:
            return
        key = keys[at % len(keys)]
        message = self.store.get(queue, key)
        assert message is not None
        message.state = PositionState.AVAILABLE
        self.store.put(queue, key, message, express=is_express(key))
        self.messages[queue, key] = (message.packet, True)
        assert message.visibility > self.last_number
        self.last_number = message.visibility

    @rule(queue=QUEUES, key=KEYS)
    def delete(self, queue: int, key: int) -> None:
        message = self.store.get(queue, key)
        assert (message is not None) == ((queue, key) in self.messages)
        if message is not None:
            self.store.delete(queue, key, message)
            del self.messages[queue, key]

    @rule(queue=QUEUES)
    def take_first(self, queue: int) -> None:
        key = self.store.next(queue, -1)
        if key is not None:
            self.delete(queue, key)

    @rule(queue=QUEUES, after=st.one_of(st.just(-1), KEYS), held=st.sets(KEYS))
    def take_next(self, queue: int, after: int, held: set[int]) -> None:
        """As a receive does: what is found is read and deleted in one step."""
        found = self.store.read_next(queue, after, held)
        keys = [key for number, key in self.messages if number == queue and key > after and key not in held]
        if found is None:
            assert not keys
            return
        key, message = found
        assert key == min(keys)
        assert message.packet == self.messages[queue, key][0]
        assert self.store.delete(queue, key, message)
        del self.messages[queue, key]

    @rule(queue=QUEUES)
    def take_last(self, queue: int) -> None:
        key = self.store.previous(queue, 1 << 64)
        if key is not None:
            self.delete(queue, key)

    @rule(queue=QUEUES)
    def drop_queue(self, queue: int) -> None:
        self.store.drop_queue(queue)
        self.messages = {key: row for key, row in self.messages.items() if key[0] != queue}

    @rule(key=TABLE_KEYS, value=st.binary(max_size=2))
    def put_row(self, key: bytes, value: bytes) -> None:
        self.store.table("t").put(key, value)
        self.rows[key] = value

    @rule(key=TABLE_KEYS)
    def delete_row(self, key: bytes) -> None:
        self.store.table("t").delete(key)
        self.rows.pop(key, None)

    @rule(queue=QUEUES, packets=st.lists(st.binary(max_size=8), max_size=3))
    def publish(self, queue: int, packets: list[bytes]) -> None:
        """Published messages are visible once the batch is durable; the model accepts them then."""
        self.finish()
        self.end_checkpoint()
        first = self.sequential_id
        token = b"%d" % first
        self.store.stage(token, queue, [(7, packets)], 1)
        assert self.store.publish(token, [token], self.allocate, 1)
        self.store.sync(self.store.pending_batch())
        for index, packet in enumerate(packets):
            self.messages[queue, first + index] = (packet, True)
        self.sequential_id += 1
        self.note_synced()

    def allocate(self, count: int) -> int:
        first = self.sequential_id
        self.sequential_id += count
        return first

    @rule()
    def swap(self) -> None:
        """Leave a batch in flight, as a commit under way in another thread does."""
        commits = self.store._commits
        if commits.inflight is None and commits.current:
            commits._swap()
            self.swapped = (dict(self.messages), dict(self.rows))

    def finish(self, *, in_database: bool = False) -> None:
        commits = self.store._commits
        batch = commits.inflight
        if batch is None:
            return
        record = None if in_database else self.store._write_ahead_log.record(batch.operations())
        if record is None:
            self.end_checkpoint()
            commits._commit(batch)
        else:
            self.store._write_ahead_log.append(record)
            commits._complete_logged(batch, record.size)
        self.synced = self.swapped

    @rule()
    def flush(self) -> None:
        """Force a write even if nothing has changed, as for events or counters."""
        self.finish()
        self.end_checkpoint()
        self.store._commits._lead()
        self.note_synced()

    @rule()
    def begin_checkpoint(self) -> None:
        """Leave a checkpoint under way, as another thread does."""
        if self.store._commits.checkpointing is None:
            self.last_record = self.store._commits._begin_checkpoint()

    @rule()
    def end_checkpoint(self) -> None:
        self.store._commits._write_checkpoint(self.last_record)

    @rule()
    def checkpoint_in_vain(self) -> None:
        """The disk refuses the checkpoint; nothing is different."""
        commits = self.store._commits
        if commits.checkpointing is not None:
            with no_room(), pytest.raises(InsufficientResources):
                commits._write_checkpoint(self.last_record)

    @rule()
    def checkpoint(self) -> None:
        """Write what is in flight and what is in the write-ahead log into the database.

        The view of the engine does not change.
        """
        commits = self.store._commits
        if commits.inflight is not None:
            self.finish(in_database=True)
        else:
            self.sync()
            self.end_checkpoint()
            self.store.checkpoint()

    def note_synced(self) -> None:
        self.synced = (dict(self.messages), dict(self.rows))
        self.last_number = self.store._commits.visibility.last

    @rule()
    def sync(self) -> None:
        self.finish()
        if self.store._commits.counters.wanting:
            self.end_checkpoint()
        self.store.sync(self.store.pending_batch())
        self.note_synced()

    @rule()
    def scan(self) -> None:
        self.sync()
        self.end_checkpoint()
        self.store.checkpoint()
        for queue in range(2):
            scanned = list(self.store.scan(queue, 0))
            numbers = [number for number, _, _ in scanned]
            assert numbers == sorted(set(numbers))
            visible = {
                key: packet
                for (number, key), (packet, is_visible) in self.messages.items()
                if number == queue and is_visible
            }
            assert {key: message.packet for _, key, message in scanned} == visible
            if numbers:
                assert self.store.visible_bounds(queue) == (numbers[0] - 1, numbers[-1])

    @rule()
    def fail(self) -> None:
        """The disk refuses: everything unsynced is undone, express messages stay as they are."""
        if self.store._commits.inflight is not None:
            self.store._commits._fail(OSError("no room for the batch in flight"))
        else:
            self.end_checkpoint()
            self.store.table("filler").put(b"something", b"to write")
            with no_room(), pytest.raises(InsufficientResources):
                self.store.sync(self.store.pending_batch())
        express = {key: row for key, row in self.messages.items() if is_express(key[1])}
        self.messages = {key: row for key, row in self.synced[0].items() if not is_express(key[1])} | express
        self.rows = dict(self.synced[1])

    @rule()
    def reopen(self) -> None:
        self.sync()
        self.end_checkpoint()
        self.store.close()
        self.store = self.opened()
        self.messages = {key: row for key, row in self.messages.items() if not is_express(key[1])}
        self.note_synced()

    @rule()
    def crash(self) -> None:
        """Stop the machine.

        Synced data survives, even if it was only in the write-ahead log.
        """
        old, left = self.path, self.store
        self.path = crash(old)
        self.store = self.opened()
        if left._commits.checkpointing is not None:
            left._commits._write_checkpoint(self.last_record)
        left.close()
        shutil.rmtree(old)
        self.messages = {key: row for key, row in self.synced[0].items() if not is_express(key[1])}
        self.rows = dict(self.synced[1])
        self.note_synced()

    @invariant()
    def agree(self) -> None:
        store = self.store
        for queue in range(2):
            expected = sorted(key for number, key in self.messages if number == queue)
            assert ids(store, queue) == expected
            assert ids_backwards(store, queue) == expected[::-1]
            for key in expected:
                message = store.get(queue, key)
                assert message is not None
                assert (message.packet, message.visibility != 0) == self.messages[queue, key]
            sizes = [len(self.messages[queue, key][0]) for key in expected]
            assert store.stats(queue) == (len(sizes), sum(sizes))
        assert list(store.table("t").items()) == sorted(self.rows.items())
        assert list(store.table("t").items(b"\1")) == sorted(
            (k, v) for k, v in self.rows.items() if k.startswith(b"\1")
        )


StoreAgainstDict.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestStoreAgainstDict = StoreAgainstDict.TestCase
