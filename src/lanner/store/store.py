"""The store: messages by queue and lookup id, metadata tables and counters.

`Store` is the facade over the parts of this package. Changes become durable in batches, one after
another (commit.py).
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from lanner.model.enums import PositionState
from lanner.model.errors import StoreCorrupt
from lanner.model.lookup_ids import LANE_SHIFT
from lanner.store.allocation import Allocation
from lanner.store.backups import Advance, copy_snapshot, new_directory
from lanner.store.commit import GroupCommit
from lanner.store.counters import Counter
from lanner.store.data_directory import check_data_directory
from lanner.store.environment import DATA_FILE, DEFAULT_MAP_SIZE, Environment, sync_directory
from lanner.store.event_log import EventLog
from lanner.store.lock import DirectoryLock, StoreLock
from lanner.store.queue_view import GARBAGE_QUEUE
from lanner.store.record import MESSAGE_KEY, Record
from lanner.store.scan import Scan, express_between, index_bounds, index_rows
from lanner.store.staging import EventMaker, Publication, PublishedEvents, Stages
from lanner.store.table import Table
from lanner.store.write_ahead_log import WriteAheadLog, last_checkpoint, replay

__all__ = ["DEFAULT_RESERVE", "Store"]

_LOG = logging.getLogger(__name__)

# Not in the specification: bytes of disk space kept allocated, so that messages can still be
# received when the disk is full.
DEFAULT_RESERVE = 4 << 20
# A module-level name, because every message uses it and attribute access on an enumeration is slow
# (Python 3.11).
_AVAILABLE = PositionState.AVAILABLE
# Not in the specification: express messages listed in one critical section, which then takes a few
# milliseconds.
_EXPRESS_AT_ONCE = 10_000


class Store:
    """An open data directory.

    The caller holds `lock` for every method, except those whose docstring says that they need it
    free or no lock at all.
    """

    def __init__(
        self,
        environment: Environment,
        write_ahead_log: WriteAheadLog,
        allocation: Allocation,
        directory_lock: DirectoryLock,
    ) -> None:
        self._environment = environment
        self._write_ahead_log = write_ahead_log
        self._allocation = allocation
        self._directory_lock: DirectoryLock | None = directory_lock
        self.lock = StoreLock()
        self._commits = GroupCommit(environment, write_ahead_log, allocation, self.lock)
        self._queues = self._commits.queues
        self._number = self._commits.visibility.next
        # Returns the number of the newest batch that is not durable yet, 0 if there is none. It is
        # durable when `synced` reaches it. Bound directly because every message calls it.
        self.pending_batch = self._commits.pending_batch
        # For the metrics.
        self.commit_seconds = self._commits.commit_seconds
        self.commit_messages = self._commits.commit_messages
        # Does the part of `sync` that needs no disk; see `GroupCommit.prepare`. The caller holds
        # the lock.
        self.prepare = self._commits.prepare
        # Writes the prepared batch if that is quick, and returns whether it did; see
        # `GroupCommit.sync_at_once`. The caller must not hold the lock.
        self.sync_at_once = self._commits.sync_at_once
        # A new store already needs its counters written, and the thread that writes them moves the
        # snapshot.
        with self.lock:
            self._stages = Stages(
                self.table("stages"), self.table("publications"), self.table("garbage"), self.counter("stage", 256)
            )
            if self.table("garbage").first() is not None:
                self._commits.maintenance.wake()

    @classmethod
    def open(cls, path: Path | str, *, map_size: int = DEFAULT_MAP_SIZE, reserve: int = DEFAULT_RESERVE) -> Self:
        """Open a data directory, creating it if it does not exist.

        Raises StoreLocked if another process has it open, StoreVersion if a newer program wrote it,
        and UnsafeDirectory if another user can write to it. `map_size` is address space in bytes.
        `reserve` is disk space kept allocated beyond what is used, in bytes.
        """
        path = Path(path)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_data_directory(path)
        directory_lock = DirectoryLock(path)
        try:
            environment = Environment(path, map_size)
            try:
                sync_directory(path)
                write_ahead_log = WriteAheadLog(path, environment.log_seed, last_checkpoint(environment))
                try:
                    replay(write_ahead_log, environment)
                    allocation = Allocation(environment, map_size, reserve)
                    return cls(environment, write_ahead_log, allocation, directory_lock)
                except BaseException:
                    write_ahead_log.close()
                    raise
            except BaseException:
                environment.close()
                raise
        except BaseException:
            directory_lock.release()
            raise

    @staticmethod
    def exists(path: Path) -> bool:
        """Return whether a directory contains a store."""
        return (path / DATA_FILE).is_file()

    @property
    def epoch(self) -> int:
        """A random number that identifies a run of visibility numbers.

        It changes when a backup is opened. Numbers of different epochs cannot be compared.
        """
        return self._environment.epoch

    @property
    def refuses_sends(self) -> bool:
        """Whether the disk is so full that new messages must be refused; deletes still work."""
        return self._allocation.refuses_sends

    @property
    def express_bytes(self) -> int:
        """The memory taken by all express messages: packets plus EXPRESS_OVERHEAD for each."""
        return self._environment.express_bytes

    @property
    def horizon(self) -> int:
        """The visibility number up to which every message is durable, or never will be."""
        return self._commits.horizon

    @property
    def scan_horizon(self) -> int:
        """The visibility number up to which a scan finds every message, now and later.

        `checkpoint` raises it to `horizon`.
        """
        return self._commits.scan_horizon

    @property
    def last_number(self) -> int:
        """The last visibility number that was issued."""
        return self._commits.visibility.last

    def checkpoint(self) -> None:
        """Write everything that is durable into the database, where scans find it.

        The caller must not hold the lock.
        """
        self._commits.checkpoint()

    # Messages

    def put(self, queue: int, lookup_id: int, record: Record, *, express: bool) -> None:
        """Put a message, or replace it.

        An Available message gets the next visibility number, a Locked one gets 0.
        """
        number = self._number() if record.state is _AVAILABLE else 0
        view = self._queues.get(queue) or self._commits.queue(queue)
        view.put(lookup_id, record, number, express=express)

    def put_run(self, queue: int, first: int, records: Sequence[Record], *, express: bool) -> None:
        """Put Available messages of one priority under consecutive lookup ids.

        They get consecutive visibility numbers.
        """
        view = self._queues.get(queue) or self._commits.queue(queue)
        view.put_run(first, records, self._number(len(records)), express=express)

    def delete(self, queue: int, lookup_id: int, record: Record) -> bool:
        """Delete a message whose `record` was read or put before; return whether there was one."""
        view = self._queues.get(queue) or self._commits.queue(queue)
        return view.delete(lookup_id, record)

    def get(self, queue: int, lookup_id: int) -> Record | None:
        """Return a message; None if there is none.

        A message that fails its checksum is quarantined and counts as none.
        """
        view = self._queues.get(queue) or self._commits.queue(queue)
        try:
            return view.get(lookup_id)
        except StoreCorrupt as error:
            self._quarantine(queue, lookup_id, error)
            return None

    def contains(self, queue: int, lookup_id: int) -> bool:
        """Return whether there is a message, which may prove corrupt when it is read."""
        return (self._queues.get(queue) or self._commits.queue(queue)).contains(lookup_id)

    def is_express(self, queue: int, lookup_id: int) -> bool:
        """Return whether there is an express message under this lookup id."""
        view = self._queues.get(queue)
        return view is not None and view.express is not None and lookup_id in view.express.rows

    def read_next(self, queue: int, after: int, passed_over: Container[int]) -> tuple[int, Record] | None:
        """Return the next lookup id above `after` that is not passed over, and its record.

        -1 starts from the beginning. Messages that fail their checksum are quarantined on the way.
        """
        view = self._queues.get(queue) or self._commits.queue(queue)
        while True:
            try:
                return view.read_next(after, passed_over)
            except StoreCorrupt:
                self._quarantine_next(queue, after, passed_over)

    def read_run(
        self, queue: int, after: int, upto: int, count: int, size: int, passed_over: Container[int] = ()
    ) -> list[tuple[int, Record]]:
        """Return the messages with a lookup id in (after, upto], in order.

        Returns at most `count` messages, and ends after `size` bytes of packets. Messages in
        `passed_over` are left out. The run may end early, before a message that fails its checksum,
        which is quarantined. An empty list means that there are no more messages.
        """
        view = self._queues.get(queue) or self._commits.queue(queue)
        while True:
            try:
                return view.read_run(after, upto, count, size, passed_over)
            except StoreCorrupt:
                self._quarantine_next(queue, after, passed_over)

    def take_run(
        self, queue: int, after: int, upto: int, count: int, size: int, passed_over: Container[int]
    ) -> list[tuple[int, Record]]:
        """Delete what `read_run` returns, and return it."""
        view = self._queues.get(queue) or self._commits.queue(queue)
        while True:
            try:
                return view.take_run(after, upto, count, size, passed_over)
            except StoreCorrupt:
                self._quarantine_next(queue, after, passed_over)

    def take_numbered(
        self,
        queue: int,
        after: int,
        upto: int,
        count: int,
        size: int,
        numbers: Mapping[int, int],
        passed_over: Container[int],
    ) -> list[tuple[int, Record]]:
        """Delete those of the messages that `read_run` returns whose number is in `numbers`.

        `numbers` has visibility numbers by lookup id. Returns what was deleted.
        """
        view = self._queues.get(queue) or self._commits.queue(queue)
        while True:
            try:
                return view.take_numbered(after, upto, count, size, numbers, passed_over)
            except StoreCorrupt:
                self._quarantine_next(queue, after, passed_over)

    def delete_run(self, queue: int, rows: Iterable[tuple[int, Record]]) -> list[tuple[int, Record]]:
        """Delete messages as `delete` does, and return those that existed.

        This is fastest if the rows are in the order of their lookup ids.
        """
        return (self._queues.get(queue) or self._commits.queue(queue)).delete_run(rows)

    def next(self, queue: int, after: int) -> int | None:
        """Return the lowest lookup id above `after`; -1 starts from the beginning."""
        return (self._queues.get(queue) or self._commits.queue(queue)).next(after)

    def previous(self, queue: int, before: int) -> int | None:
        """Return the highest lookup id below `before`."""
        return (self._queues.get(queue) or self._commits.queue(queue)).previous(before)

    def stats(self, queue: int) -> tuple[int, int]:
        """Return the number of messages and the bytes of their packets, express ones included."""
        view = self._commits.queue(queue)
        return view.messages + view.express_messages, view.size + view.express_size

    def drop_queue(self, queue: int) -> None:
        """Drop all messages of a queue, durable and express.

        They disappear at once; their rows are swept later.
        """
        view = self._commits.queue(queue)
        self.table("garbage").put(GARBAGE_QUEUE.pack(b"q", queue, view.generation), b"")
        view.drop()

    def _quarantine(self, queue: int, lookup_id: int, error: StoreCorrupt) -> None:
        view = self._commits.queue(queue)
        raw = view.hide_stored(lookup_id)
        if raw is not None:
            key = MESSAGE_KEY.pack(queue, view.generation, lookup_id)
            _LOG.error(
                "queue %d: message %#018x is corrupt, put aside as row %s: %s", queue, lookup_id, key.hex(), error
            )
            self.table("quarantine").put(key, raw)

    def _quarantine_next(self, queue: int, after: int, passed_over: Container[int]) -> None:
        """Quarantine the message at which `read_next` has stopped."""
        while (lookup_id := self.next(queue, after)) is not None:
            if lookup_id not in passed_over:
                self.get(queue, lookup_id)
                return
            after = lookup_id

    def _quarantine_scanned(self, queue: int, lookup_id: int) -> None:
        """Quarantine a message that a scan found corrupt, if it still exists. Takes the lock."""
        with self.lock:
            self.get(queue, lookup_id)

    # Metadata

    def table(self, name: str) -> Table:
        """Return a metadata table. It exists as soon as it has a row."""
        return self._commits.table(name)

    def counter(self, name: str, block: int = 1 << 16) -> Counter:
        """Return a persistent counter.

        A crash skips at most `block` values.
        """
        return self._commits.counters.get(name, block)

    # Events

    @property
    def events(self) -> EventLog:
        """The log of events, created by the first use."""
        return self._commits.open_events()

    @property
    def has_events(self) -> bool:
        """Whether there is a log of events, even if none are being written now."""
        return self._environment.events is not None

    def flush_events(self) -> None:
        """Write the events that no commit has carried yet. The caller must not hold the lock."""
        self._commits.flush_events()

    def trim_events(self, before_ms: int, max_bytes: int) -> bool:
        """Drop a slice of the events that are too old or too many; return whether there are more.

        Drops events before `before_ms`, and the oldest ones while the log exceeds `max_bytes`. The
        caller must not hold the lock.
        """
        return self._commits.trim_events(before_ms, max_bytes)

    # Reading by visibility number

    def visible_bounds(self, queue: int) -> tuple[int, int]:
        """Return (after, upto) of a scan range that contains every message visible now.

        `upto` is the highest number of a message in the queue, and decreases when that message is
        removed. An empty queue has (n, n), where everything up to n is decided.
        """
        horizon = self._commits.scan_horizon
        view = self._commits.queue(queue)
        numbers: list[int] = []
        if view.express is not None:
            last = view.express.last(horizon)
            if last is not None:
                numbers = [view.express.between(0, horizon, 1)[0][0], last]
        bounds = index_bounds(self._environment, view)
        if bounds is not None:
            numbers += bounds
        return (min(numbers) - 1, max(numbers)) if numbers else (horizon, horizon)

    def scan(self, queue: int, after: int, upto: int | None = None, limit: int | None = None) -> Scan:
        """Start a scan of the messages with a visibility number in (after, upto].

        The scan ends at the scan horizon at the latest. `limit` is the number of messages wanted: a
        scan with many express messages may end earlier, at its `upto`, but has at least `limit`
        messages then.
        """
        horizon = self._commits.scan_horizon
        upto = horizon if upto is None else min(upto, horizon)
        view = self._commits.queue(queue)
        express = express_between(view, after, upto, limit)
        if limit is not None and len(express) == limit:
            upto = express[-1][0]
        return Scan(self._environment, queue, view.generation, after, upto, self._quarantine_scanned, express)

    def has_express(self, queue: int, after: int, upto: int) -> bool:
        """Return whether express messages have numbers in (after, upto].

        No other process can read them.
        """
        return bool(express_between(self._commits.queue(queue), after, upto, 1))

    def generation(self, queue: int) -> int:
        """Return the number of the queue's current generation; a purge begins another."""
        return self._commits.queue(queue).generation

    def snapshots(self) -> tuple[int, list[tuple[int, int]]]:
        """Return the number of the last commit, and (process, commit) of each open snapshot.

        Needs no lock.
        """
        return self._environment.snapshots()

    def forget_dead_snapshots(self) -> int:
        """Release the snapshots of processes that have ended, and return how many there were.

        LMDB can then reuse the pages that these snapshots kept. Needs no lock.
        """
        return self._environment.env.reader_check()

    def index(self, queue: int, after: int, upto: int) -> Iterator[tuple[int, int, int]]:
        """Yield (visibility, lookup id, size of the packet) of the messages in (after, upto].

        The messages are not read. The range ends at the scan horizon as of the first step. The
        entries come from a snapshot taken at the first step, and from a newer one after many
        express messages. Takes the lock itself when it begins a snapshot.
        """
        with self.lock:
            upto = min(upto, self._commits.scan_horizon)
        while True:
            with self.lock:
                view = self._commits.queue(queue)
                prefix = MESSAGE_KEY.pack(queue, view.generation, 0)[:8]
                found = express_between(view, after, upto, _EXPRESS_AT_ONCE)
                express = [(number, key, len(record.packet)) for number, key, record in found]
                txn = self._environment.env.begin()
            end = express[-1][0] if len(express) == _EXPRESS_AT_ONCE else upto
            with txn:
                rows = index_rows(txn.cursor(self._environment.visible), self._environment, prefix, after, end)
                durable = ((number, int.from_bytes(key, "big"), size) for number, key, size in rows)
                yield from heapq.merge(durable, express) if express else durable
            after = end
            if end >= upto:
                break
        self._environment.memory.trim()

    # Staging

    def stage(self, token: bytes, queue: int, packets: Iterable[tuple[int, list[bytes]]], now: int) -> None:
        """Write messages, given as (priority, packets), under a token.

        They are durable with this batch, and invisible until published. A token may be used many
        times and for many queues. It exists from the first call, even without messages.
        """
        self._commits.current.staged += self._stages.add(token, queue, packets, now)

    def publish(
        self,
        key: bytes,
        tokens: Sequence[bytes],
        allocate: Callable[[int], int],
        now: int,
        *,
        flags: int = 0,
        tell: Callable[[int], EventMaker] | None = None,
        completed: Callable[[dict[int, int]], None] | None = None,
    ) -> bool:
        """Make all messages of the stages visible in this batch.

        Returns False, and does nothing, if `key` was published before. Raises InvalidParameter for
        an unknown token. `allocate(n)` reserves n consecutive SequentialIDs and returns the first.
        `tell` returns, for a queue, the function that makes the events of its arrivals, which are
        in the same batch. `completed` is called under the lock when the batch is durable, with the
        number of new messages per queue. Until then the messages are in no total and cannot be
        read.
        """
        stages = self._stages.take(key, tokens, now)
        if stages is None:
            return False
        batch = self._commits.current
        arrivals: dict[int, int] = {}
        for stage in stages:
            for group in stage.groups.values():
                view = self._commits.queue(group.queue)
                first = group.lane << LANE_SHIFT | allocate(group.messages)
                number = self._number(group.messages)
                publication = Publication(view, view.generation, stage.number, group, first, number, now, flags)
                if tell is not None:
                    publication.events = PublishedEvents(self.events.reserve(group.messages), tell(group.queue))
                batch.publications.append(publication)
                arrivals[group.queue] = arrivals.get(group.queue, 0) + group.messages
        if completed is not None:
            batch.completions.append(lambda _: completed(arrivals))
        return True

    def staged(self, tokens: Iterable[bytes]) -> dict[int, tuple[int, int]]:
        """Return (messages, bytes of packets) in these stages for each queue."""
        return self._stages.totals(tokens)

    def published(self, key: bytes) -> tuple[int, int, int] | None:
        """Return (messages, bytes, time) of the publication under a key, None if there is none."""
        return self._stages.published(key)

    def forget_publication(self, key: bytes) -> None:
        """Forget a publication, so that publishing under its key works again."""
        self._stages.forget(key)

    def drop_stage(self, token: bytes) -> bool:
        """Drop a stage; return whether there was one."""
        return self._stages.drop(token)

    def expire_stages(self, before: int) -> int:
        """Drop the stages that were last written before a time; return how many."""
        return self._stages.expire(before)

    # Durability

    @property
    def synced(self) -> int:
        return self._commits.synced

    @property
    def decided(self) -> int:
        """The batch number up to which every batch is durable or dropped.

        For such a batch, `sync` returns or raises at once.
        """
        return self._commits.decided

    def sync(self, number: int) -> None:
        """Block until batch `number` is durable.

        Raises InsufficientResources if it could not be written. The caller must not hold the lock.
        """
        self._commits.sync(number)

    def on_synced(self, callback: Callable[[int], None]) -> None:
        """Call `callback` with the number of each batch that becomes durable.

        The lock is held during the call.
        """
        self._commits.on_synced.append(callback)

    def on_failed(self, callback: Callable[[int], None]) -> None:
        """Call `callback` with the number of each batch that is dropped.

        The lock is held during the call.
        """
        self._commits.on_failed.append(callback)

    def backup(self, path: Path | str) -> None:
        """Copy everything that is durable now into a new directory, without stopping other work.

        The copy gets its own epoch when it is opened. The caller must not hold the lock.
        """
        with new_directory(Path(path)) as partial:
            self.copy_into(partial)

    def copy_into(self, directory: Path, advance: Advance = lambda _done, _total: None) -> None:
        """Copy everything that is durable now into an empty directory.

        The caller must not hold the lock.
        """
        self.checkpoint_everything()
        copy_snapshot(self._environment.env, directory, advance)

    def checkpoint_everything(self) -> None:
        """Make all changes so far durable and write them into the database.

        The caller must not hold the lock.
        """
        with self.lock:
            number = self.pending_batch()
        self.sync(number)
        self.checkpoint()

    def close(self) -> None:
        """Make everything durable and close. A second call does nothing.

        The caller must not hold the lock.
        """
        directory_lock, self._directory_lock = self._directory_lock, None
        if directory_lock is None:
            return
        try:
            self._commits.close()
        finally:
            self._allocation.close()
            self._write_ahead_log.close()
            self._environment.close()
            directory_lock.release()
