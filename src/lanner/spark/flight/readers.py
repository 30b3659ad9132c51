"""Named readers: clients that receive a queue in parts, and the position that each has reached.

A receiving reader has the queue to itself: it holds the queue open, with receiving denied to all
others, as long as it renews its lease. Each `acquire` increments the reader's number, its fence. A
call with a lower fence is refused, however late it arrives: another process has taken over.
Acknowledged messages are removed, and the reader's position is written in the same commit.

Rows of table "pipeline_readers", under the number of the queue and the name: JSON of `_Row`.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Final

from lanner.host.operations import Operations
from lanner.host.runtime import Runtime
from lanner.model.directory_objects import Queue
from lanner.model.enums import QueueAccessType, QueueShareMode
from lanner.model.errors import (
    AccessDenied,
    InsufficientResources,
    InvalidParameter,
    QueueNotAvailable,
    SharingViolation,
)
from lanner.model.live import OpenQueueDescriptor
from lanner.spark.columnar.event_names import EVENTS_NUMBER
from lanner.spark.flight.errors import LeaseHeld, LeaseLost

TABLE: Final = "pipeline_readers"
# Not in the specification: messages, and bytes of them, that are removed in one hold of the store's
# lock, some milliseconds; messages between two syncs.
ACKNOWLEDGE_AT_ONCE: Final = 1000
ACKNOWLEDGE_BYTES: Final = 4 << 20
SYNC_EVERY: Final = 50_000
# Not in the specification: milliseconds.
DEFAULT_LEASE: Final = 30_000
LEASES: Final = range(1_000, 3_600_001)
MAX_NAME_BYTES: Final = 200
# Not in the specification: stored readers of one user.
MAX_READERS: Final = 10_000

_KEY: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Lease:
    """The answer to a reader that acquires or renews.

    (start, acknowledged] is removed; the reader continues after it.
    """

    queue_id: int
    fence: int
    start: int
    acknowledged: int
    lease_ms: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    removed: int
    acknowledged: int


@dataclass(frozen=True, slots=True)
class _Row:
    start: int
    acknowledged: int
    fence: int
    lease_ms: int
    owner: str  # SID
    is_receiver: bool

    def pack(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def unpack(cls, raw: bytes) -> _Row:
        return cls(**json.loads(raw))


@dataclass(slots=True)
class _Held:
    fence: int
    descriptor: OpenQueueDescriptor
    until: float  # on the monotonic clock


class Readers:
    """The readers of a queue manager.

    Methods take the lock themselves, and return when everything is durable.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._held: dict[bytes, _Held] = {}
        with runtime.lock:
            self._table = runtime.store.table(TABLE)
            self._forget_deleted_queues()
            # The number of readers of each user.
            self._readers_of = Counter(_Row.unpack(raw).owner for _, raw in self._table.items())
        self._stopped = threading.Event()
        self._changed = threading.Event()
        # Readers from before a restart may come back. For one term, only `take_over` ends their
        # leases.
        self._began = time.monotonic()
        self._sweeper = threading.Thread(target=self._sweep, name="lanner-leases", daemon=True)
        self._sweeper.start()

    def _forget_deleted_queues(self) -> None:
        known = self._runtime.engine.queue_manager.queue_collection
        numbers = {EVENTS_NUMBER, *known}
        for key in [key for key, _ in self._table.items() if _KEY.unpack_from(key)[0] not in numbers]:
            self._table.delete(key)

    def close(self) -> None:
        """Release every queue lease. The readers stay registered."""
        self._stopped.set()
        self._changed.set()
        self._sweeper.join()
        with self._runtime.change() as change:
            for key in list(self._held):
                # Holds on expiry stay: the reader may come back when the queue manager does.
                self._let_go(key, releases=False)
        change.wait()

    # The calls of readers

    def acquire(
        self,
        operations: Operations,
        queue_name: str,
        reader: str,
        *,
        start: str | int = "earliest",
        is_receiver: bool = True,
        lease_ms: int = DEFAULT_LEASE,
        take_over: bool = False,
    ) -> Lease:
        """Begin a reader, or continue the one of this name.

        `start` is earliest, latest or a number after which to read. It counts only the first time.
        A reader that peeks has no lease: only its start is stored.

        Raises LeaseHeld if another client has the lease, unless `take_over` is true.
        """
        _check(reader, lease_ms)
        access = QueueAccessType.RECEIVE if is_receiver else QueueAccessType.PEEK
        self._store.checkpoint()
        with self._runtime.change() as change:
            queue = operations.find(queue_name)
            key = self._key(queue, reader)
            row = self._row(key)
            if row is None:
                first = self._first(start, self._store.scan_horizon)
                row = _Row(first, first, 0, lease_ms, self._check_room(operations), is_receiver)
                is_new = True
            else:
                self._check_owner(operations, row, reader)
                is_new = False
            if is_receiver:
                self._check_free(key, row, reader, queue, take_over=take_over)
                # The same reader continues, so its hold on expiry stays.
                self._let_go(key, releases=False)
            descriptor = self._open(operations, queue_name, access, is_receiver=is_receiver)
            row = dataclasses.replace(row, fence=row.fence + 1, lease_ms=lease_ms, is_receiver=is_receiver)
            self._table.put(key, row.pack())
            self._readers_of[row.owner] += is_new
            if is_receiver:
                self._hold(key, row, descriptor)
            else:
                operations.close(descriptor)
        change.wait()
        return Lease(queue.number, row.fence, row.start, row.acknowledged, row.lease_ms)

    def remember(
        self,
        operations: Operations,
        number: int,
        reader: str,
        start: str | int,
        horizon: int,
        lease_ms: int = DEFAULT_LEASE,
    ) -> Lease:
        """Store where a peeking reader of something that is no queue begins, under `number`."""
        _check(reader, lease_ms)
        with self._runtime.change() as change:
            key = _KEY.pack(number) + reader.encode()
            row = self._row(key)
            if row is None:
                first = self._first(start, horizon)
                row = _Row(first, first, 0, lease_ms, self._check_room(operations), is_receiver=False)
                is_new = True
            else:
                self._check_owner(operations, row, reader)
                is_new = False
            row = dataclasses.replace(row, fence=row.fence + 1)
            self._table.put(key, row.pack())
            self._readers_of[row.owner] += is_new
        change.wait()
        return Lease(number, row.fence, row.start, row.acknowledged, row.lease_ms)

    def renew(self, operations: Operations, queue_name: str, reader: str, fence: int) -> Lease:
        """Keep the queue for another term. Raises LeaseLost if another process has it by now."""
        with self._runtime.lock:
            queue, _, row = self._checked(operations, queue_name, reader, fence)
            return Lease(queue.number, row.fence, row.start, row.acknowledged, row.lease_ms)

    def release(self, operations: Operations, queue_name: str, reader: str, fence: int) -> None:
        """Allow others to receive from the queue. The reader and its position stay."""
        with self._runtime.change() as change:
            _, key, row = self._checked(operations, queue_name, reader, fence)
            self._let_go(key)
            # The next holder need not wait for a term.
            self._table.put(key, dataclasses.replace(row, fence=row.fence + 1, lease_ms=0).pack())
        change.wait()

    def forget(self, operations: Operations, queue_name: str, reader: str) -> bool:
        """Remove a reader and its start. Returns False if there is none."""
        with self._runtime.lock:
            number = operations.find(queue_name).number
        return self.forget_place(operations, number, reader)

    def forget_place(self, operations: Operations, number: int, reader: str) -> bool:
        """Remove a reader like `forget`, by the number of the queue."""
        with self._runtime.change() as change:
            key = _KEY.pack(number) + reader.encode()
            row = self._row(key)
            if row is None:
                return False
            self._check_owner(operations, row, reader)
            self._let_go(key)
            self._table.delete(key)
            self._readers_of[row.owner] -= 1
        change.wait()
        return True

    def acknowledge(self, operations: Operations, queue_name: str, reader: str, fence: int, upto: int) -> Acknowledged:
        """Receive everything up to a number, from where the reader began: it has been processed.

        It works in slices, so that other threads get the lock in between. Each slice removes
        messages and advances the reader's position in one commit, so the position always is where
        the removed messages end. The call is idempotent.
        """
        removed = unsynced = 0
        while True:
            with self._runtime.change() as change:
                queue, key, row = self._checked(operations, queue_name, reader, fence)
                if not row.is_receiver:
                    raise InvalidParameter(f"reader {reader} only peeks: it has nothing to acknowledge")
                if upto > self._store.scan_horizon:
                    raise InvalidParameter(
                        f"reader {reader} acknowledges up to {upto}, and nothing beyond {self._store.scan_horizon} "
                        "was shown yet"
                    )
                if upto <= row.acknowledged:
                    break
                count, end = self._remove(self._held[key].descriptor, row.acknowledged, upto)
                removed += count
                row = dataclasses.replace(row, acknowledged=end)
                self._table.put(key, row.pack())
                self._runtime.engine.release_expiry(queue, end)
            unsynced += count
            if unsynced >= SYNC_EVERY:
                change.wait()
                unsynced = 0
        # The last change found nothing left to do. Waiting for it also waits for concurrent calls.
        change.wait()
        return Acknowledged(removed, row.acknowledged)

    def hold(self, operations: Operations, queue_name: str, reader: str, fence: int, upto: int) -> None:
        """Prevent expiry of unacknowledged messages up to a number while the reader has its lease.

        They are being processed. After a restart of the queue manager this holds for one lease
        term.
        """
        with self._runtime.change() as change:
            queue, _, row = self._checked(operations, queue_name, reader, fence)
            if not row.is_receiver:
                raise InvalidParameter(f"reader {reader} only peeks: it cannot hold messages")
            if upto > row.acknowledged:
                self._runtime.engine.hold_expiry(queue, upto, -(-row.lease_ms // 1000))
        change.wait()

    def _remove(self, descriptor: OpenQueueDescriptor, after: int, upto: int) -> tuple[int, int]:
        """Receive what is visible in (after, upto], at most one slice; return count and end."""
        queue = descriptor.queue
        if queue is None:
            raise QueueNotAvailable(f"{descriptor.format_name}: the queue was deleted")
        numbers: dict[int, int] = {}
        size, end = 0, upto
        for number, lookup_id, packet in self._store.index(queue.number, after, upto):
            numbers[lookup_id] = number
            size += packet
            if len(numbers) == ACKNOWLEDGE_AT_ONCE or size >= ACKNOWLEDGE_BYTES:
                end = number
                break
        return self._runtime.engine.dequeue_numbered_messages(descriptor, numbers), end

    # Rows
    # ----------------------------------------------------------------------------------------------

    @staticmethod
    def _key(queue: Queue, reader: str) -> bytes:
        return _KEY.pack(queue.number) + reader.encode()

    def _row(self, key: bytes) -> _Row | None:
        raw = self._table.get(key)
        return None if raw is None else _Row.unpack(raw)

    @staticmethod
    def _first(start: str | int, horizon: int) -> int:
        if start == "earliest":
            return 0
        if start == "latest":
            return horizon
        if isinstance(start, str) or not 0 <= start <= horizon:
            raise InvalidParameter(f"start {start!r}: earliest, latest, or a number up to {horizon}")
        return start

    def _check_room(self, operations: Operations) -> str:
        """Return the owner of a new reader. Raises InsufficientResources if it has too many."""
        owner = str(operations.identity.sid)
        if self._readers_of[owner] >= MAX_READERS:
            raise InsufficientResources(
                f"{operations.identity.name} has {MAX_READERS} named readers, which is the limit: forget those that "
                "are no longer used"
            )
        return owner

    @staticmethod
    def _check_owner(operations: Operations, row: _Row, reader: str) -> None:
        identity = operations.identity
        if str(identity.sid) != row.owner and not identity.is_administrator:
            raise AccessDenied(f"reader {reader} was made by another user than {identity.name}")

    def _checked(self, operations: Operations, queue_name: str, reader: str, fence: int) -> tuple[Queue, bytes, _Row]:
        """Check reader and fence, and renew the lease.

        An expired lease is renewed too, if no other process has taken over.
        """
        queue = operations.find(queue_name)
        key = self._key(queue, reader)
        row = self._row(key)
        if row is None:
            raise LeaseLost(
                f"there is no reader {reader} of queue {queue.pathname}: it was forgotten, or the queue was recreated"
            )
        self._check_owner(operations, row, reader)
        if fence != row.fence:
            raise LeaseLost(
                f"reader {reader} of queue {queue.pathname} was taken over: its number is {row.fence} now, not {fence}"
            )
        if row.is_receiver:
            held = self._held.get(key)
            try:
                descriptor = (
                    held.descriptor if held is not None else self._open(operations, queue_name, QueueAccessType.RECEIVE)
                )
            except SharingViolation as error:
                raise LeaseLost(
                    f"the lease of reader {reader} ran out, and another client receives from queue {queue.pathname} now"
                ) from error
            self._hold(key, row, descriptor)
        return queue, key, row

    # Leases
    # ----------------------------------------------------------------------------------------------

    def _open(
        self, operations: Operations, name: str, access: QueueAccessType, *, is_receiver: bool = True
    ) -> OpenQueueDescriptor:
        share = QueueShareMode.DENY_RECEIVE if is_receiver else QueueShareMode.DENY_NONE
        return operations.open(operations.names.format_name(name), access, share)

    def _hold(self, key: bytes, row: _Row, descriptor: OpenQueueDescriptor) -> None:
        is_new = key not in self._held
        self._held[key] = _Held(row.fence, descriptor, time.monotonic() + row.lease_ms / 1000)
        if is_new:
            # A renewal only moves the end of the lease: the thread finds that when it wakes.
            self._changed.set()

    def _let_go(self, key: bytes, *, releases: bool = True) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            queue = held.descriptor.queue
            if releases and queue is not None:
                self._runtime.engine.release_expiry(queue)
            self._runtime.engine.close_queue(held.descriptor)

    def _check_free(self, key: bytes, row: _Row, reader: str, queue: Queue, *, take_over: bool) -> None:
        held = self._held.get(key)
        # After a restart the previous holder has one term to come back.
        left_over = self._began + row.lease_ms / 1000 if row.fence else 0.0
        until = left_over if held is None else held.until
        left = until - time.monotonic()
        if left > 0 and not take_over:
            raise LeaseHeld(
                f"reader {reader} of queue {queue.pathname} is in use, for another {left:.0f} s at least: "
                "wait, stop the other one, or take it over"
            )

    def _sweep(self) -> None:
        """Close queues whose leases were not renewed, so that others can receive again."""
        while not self._stopped.is_set():
            with self._runtime.change() as change:
                now = time.monotonic()
                for key in [key for key, held in self._held.items() if held.until <= now]:
                    self._let_go(key)
                nearest = min((held.until for held in self._held.values()), default=None)
            change.soon()
            self._changed.wait(None if nearest is None else max(nearest - now, 0.001))
            self._changed.clear()


def _check(reader: str, lease_ms: int) -> None:
    if not 0 < len(reader.encode()) <= MAX_NAME_BYTES:
        raise InvalidParameter(f"a reader's name has 1 to {MAX_NAME_BYTES} bytes, not {len(reader.encode())}")
    if lease_ms not in LEASES:
        raise InvalidParameter(f"a lease of {lease_ms} ms: {LEASES.start} to {LEASES.stop - 1} are allowed")
