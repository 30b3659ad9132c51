"""The store against a plain dict: whatever is done in whatever order, both agree."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lanner.model.enums import PositionState
from lanner.store import Record, Store
from tests.store.conftest import open_store

QUEUES = st.integers(0, 1)
KEYS = st.builds(lambda lane, number: lane << 56 | number, st.integers(0, 1), st.integers(0, 3))
TABLE_KEYS = st.binary(max_size=3)


class StoreAgainstDict(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.store: Store = open_store(self.path)
        self.messages: dict[tuple[int, int], tuple[bytes, bool, bool]] = {}
        self.rows: dict[bytes, bytes] = {}
        self.last_number = 0

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.path)

    @rule(queue=QUEUES, key=KEYS, packet=st.binary(max_size=8), express=st.booleans(), available=st.booleans())
    def put(self, queue: int, key: int, packet: bytes, express: bool, available: bool) -> None:
        message = Record(packet, 1, state=PositionState.AVAILABLE if available else PositionState.LOCKED)
        self.store.put(queue, key, message, express=express)
        self.messages[queue, key] = (packet, express, available)
        if available:
            assert message.visibility > self.last_number
            self.last_number = message.visibility

    @rule(queue=QUEUES, key=KEYS)
    def put_again(self, queue: int, key: int) -> None:
        message = self.store.get(queue, key)
        if message is not None:
            packet, express, _ = self.messages[queue, key]
            message.state = PositionState.AVAILABLE
            self.store.put(queue, key, message, express=express)
            self.messages[queue, key] = (packet, express, True)
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

    @rule(key=TABLE_KEYS, value=st.binary(max_size=3))
    def put_row(self, key: bytes, value: bytes) -> None:
        self.store.table("t").put(key, value)
        self.rows[key] = value

    @rule(key=TABLE_KEYS)
    def delete_row(self, key: bytes) -> None:
        self.store.table("t").delete(key)
        self.rows.pop(key, None)

    @rule()
    def swap(self) -> None:
        """Leave a batch in flight, as a commit under way in another thread does."""
        commits = self.store._commits
        if commits.inflight is None and commits.current:
            commits._swap()

    @rule()
    def sync(self) -> None:
        commits = self.store._commits
        if (batch := commits.inflight) is not None:
            with self.store._environment.write() as txn:
                batch.write(txn, self.store._environment)
            commits._complete(batch)
        self.store.sync(self.store.ticket())

    @rule()
    def reopen(self) -> None:
        self.sync()
        self.store.close()
        self.store = open_store(self.path)
        self.messages = {key: row for key, row in self.messages.items() if not row[1]}

    @invariant()
    def agree(self) -> None:
        store = self.store
        for queue in range(2):
            expected = sorted(key for number, key in self.messages if number == queue)
            found, at = [], -1
            while (following := store.next(queue, at)) is not None:
                found.append(following)
                at = following
            assert found == expected
            at, backwards = 1 << 64, []
            while (preceding := store.previous(queue, at)) is not None:
                backwards.append(preceding)
                at = preceding
            assert backwards == expected[::-1]
            sizes = []
            for key in expected:
                message = store.get(queue, key)
                assert message is not None
                packet, _, available = self.messages[queue, key]
                assert message.packet == packet
                assert (message.visibility != 0) == available
                sizes.append(len(packet))
            assert store.stats(queue) == (len(expected), sum(sizes))
        assert list(store.table("t").items()) == sorted(self.rows.items())
        assert list(store.table("t").items(b"\1")) == sorted(
            (k, v) for k, v in self.rows.items() if k.startswith(b"\1")
        )


StoreAgainstDict.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestStoreAgainstDict = StoreAgainstDict.TestCase
