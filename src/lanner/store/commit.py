"""Group commit: how changes become durable together, and what readers see meanwhile.

This docstring is the theory of the store. Read it before you change anything in this folder.

Snapshot and overlay
    LMDB is a copy-on-write B+tree. A write transaction copies the pages that it changes. Its commit
    writes and syncs the copies, and then switches one meta page to the new root. A reader keeps the
    root that it began with: it sees one complete commit for as long as it likes, and neither blocks
    the writer nor is blocked. There is only one write transaction at a time.

    The engine changes the store many thousand times between two commits. These changes collect in
    the current *batch*: for each queue and table, a layer of new rows and hidden keys. A commit
    takes the batch (it is then *in flight*), and a new batch begins to fill. The engine reads five
    levels, the newest first: the current batch, the batch in flight, the logged batches, the
    batches that a checkpoint is writing, and the snapshot. Express messages are one more layer of
    each queue, which is never written. A message that is put and deleted within one batch never
    reaches the disk.

        what the engine reads        in the code        where it is durable
        the current batch            current            nowhere yet
        the batch in flight          inflight           nowhere, or being written
        the logged batches           logged             write-ahead log
        the batches of a checkpoint  checkpointing      write-ahead log
        the snapshot                 environment.txn    database

Write-ahead log and checkpoint
    A small batch becomes durable in the write-ahead log (write_ahead_log.py): one write, one wait
    for the disk. Its layers are then merged into `logged`, the changes since the last checkpoint. A
    *checkpoint* takes these changes (they are then `checkpointing`), writes them into the database
    in one commit, and drops the layers when it renews the snapshot. The engine sees no difference,
    and other batches are logged meanwhile.

    A checkpoint is made when a log file is half full, when the number of changes would cost memory
    or slow a restart down, before a scan, when the store closes, and before a batch that is not
    logged. Batches that are not logged go straight into the database: big ones, staged messages,
    publications, raised counters, and every batch on a full disk.

    Counters, sweeping and trimming bypass the log. Their changes must be right when any part of
    the log is replayed after them. Therefore counters are never logged, and no record restores what
    was swept or trimmed.

Leader and followers
    `sync(number)` blocks until the batch with this number is durable. A caller that finds no leader
    becomes the leader. It swaps the batch and writes it with the store's lock held, waits for the
    disk without the lock (and without the interpreter lock), and completes the batch with the lock
    held. Callers that arrive meanwhile fill the next batch and sleep until the leader is done. Then
    every caller whose batch is durable continues, and one of the others leads the next commit for
    all of them. (If they queued for the commit lock instead, callers whose batch is durable would
    wait behind the next leader, and batches would stay small.)

    The write phase holds the store's lock on purpose. py-lmdb releases the interpreter lock at
    each call, and against a busy thread each call then costs up to a switch interval (measured:
    100-500 us instead of 0.4). A busy engine soon waits for the store's lock, without wanting the
    interpreter lock, and the write phase takes about 2 us per message. The leader has priority for
    the lock (StoreLock), because a thread that releases a lock and takes it again at once always
    wins.

    Lock order: commit lock, checkpoint lock, store's lock, LMDB's writer lock. There is one
    exception, a long publication: its thread holds LMDB's writer lock and asks for the store's lock
    with a time limit. A thread that holds LMDB's writer lock never waits for the store's lock
    without one.

Two flushes
    A checkpoint waits for the disk twice: for the pages, then for the meta page that points to
    them. Neither wait can be left out. Without the second (MDB_NOMETASYNC) the store stays
    consistent, but a power cut loses the last commit, which was acknowledged. With one flush for
    both (MDB_NOSYNC and our own fdatasync) the disk may write the meta page first. A power cut
    between the two leaves a new root over pages that were never written. LMDB pages have no
    checksums, so LMDB would neither notice nor fall back to the previous root. Small batches avoid
    both waits by using the write-ahead log.

Visibility numbers
    A message gets a number when it becomes Available in a batch (arrival, commit of a send, abort
    of a receive, move). All numbers come from one counter, so batches become durable in the order
    of their numbers.

    A message that is locked only in memory (a receive in a transaction that is not prepared) keeps
    its number and its index entry until its removal is committed. A scan still finds it, which is
    right, because the receive may abort. If it aborts, the engine puts the message again with a new
    number, so a reader that has passed the old number finds the message again. The old entry ends
    in the same commit.

    Every number up to `horizon` is decided: durable, or never to be. Every number up to
    `scan_horizon` is decided in the snapshot, which is what a scan reads. Express messages are
    visible at once, possibly with a higher number than a message that is not yet durable. Therefore
    a scan stops at the scan horizon: a stream that has read up to N never finds anything new up to
    N.

Failure
    When a commit fails (disk full, I/O error), the batch in flight and the current batch are both
    dropped, because the second was built on the first. Every `sync` for them raises
    InsufficientResources, totals and views return to the last synced state, and `on_failed` informs
    the engine. Express messages stay. The next batch starts afresh; no restart is needed.

    Nothing that was acknowledged is lost: it is in the write-ahead log or in the snapshot. The
    database file keeps room for everything in the write-ahead log (allocation.py), so a full disk
    does not prevent a checkpoint.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import lmdb

from lanner.model.errors import InsufficientResources
from lanner.store.allocation import Allocation
from lanner.store.batch import Batch, load_totals
from lanner.store.counters import Counters
from lanner.store.environment import Environment
from lanner.store.event_log import EventLog, trim_slice
from lanner.store.histogram import Histogram
from lanner.store.lock import StoreLock
from lanner.store.maintenance import Maintenance, sweep_slice
from lanner.store.overlay import Layer
from lanner.store.queue_view import MessageLayer, QueueView
from lanner.store.table import Table
from lanner.store.write_ahead_log import LogRecord, WriteAheadLog, note_checkpoint

__all__ = ["GroupCommit"]

_LOG = logging.getLogger(__name__)

# Not in the specification: changes held in memory before a checkpoint writes them.
_MAX_CHANGES = 16_384
# Not in the specification: size in bytes of the largest record that an event loop writes itself.
_AT_ONCE = 64 << 10
# Not in the specification: approximate bytes of the database file kept free for a checkpoint. A
# checkpoint that needs this much is due.
_MAX_ROOM = 16 << 20
# Not in the specification: seconds for which a checkpoint waits for the store's lock, whose holder
# may be waiting for the database.
_PATIENCE = 0.01


# Upper bounds of the histograms' buckets.
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_MESSAGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


class GroupCommit:
    """The batches of a store and the views laid over its snapshot."""

    def __init__(
        self, environment: Environment, write_ahead_log: WriteAheadLog, allocation: Allocation, lock: StoreLock
    ) -> None:
        self._environment = environment
        self._write_ahead_log = write_ahead_log
        self._allocation = allocation
        self.lock = lock
        self._commit_lock = threading.Lock()
        self._checkpoint_lock = threading.Lock()
        # `_turn` waits with `_turn_lock`. Without followers a leader needs the lock alone, which is
        # much cheaper than the methods of the condition.
        self._turn_lock = threading.Lock()
        self._turn = threading.Condition(self._turn_lock)
        self._is_led = False
        self._followers = 0
        self.current = Batch(1)
        self.inflight: Batch | None = None
        # The record of the batch in flight, if it is to be logged and is not written yet.
        self._record: LogRecord | None = None
        # Changes that are in the write-ahead log but not in the snapshot: those that a checkpoint
        # is writing, and those since that checkpoint began.
        self.checkpointing: Batch | None = None
        self.logged = Batch(0)
        self._changes = 0  # approximate number of changed rows in `logged`
        self.synced = 0
        self.decided = 0  # up to this number every batch is durable or dropped
        self._failed: list[list[int]] = []  # ranges of batch numbers, both ends included
        self.queues: dict[int, QueueView] = {}
        self.tables: dict[str, Table] = {}
        self._garbage = self.table("garbage")
        self.maintenance = Maintenance(self._maintain)
        self.counters = Counters(environment, self.maintenance.wake)
        self.visibility = self.counters.get("visibility", 1 << 16)
        self._horizon = self._scan_horizon = self.visibility.last
        self.events: EventLog | None = None
        self._is_flush_wanted = False
        # For the metrics: seconds that batches took to become durable, and messages written or
        # removed in each.
        self.commit_seconds = Histogram(_SECONDS)
        self.commit_messages = Histogram(_MESSAGES)
        self.on_synced: list[Callable[[int], None]] = []
        self.on_failed: list[Callable[[int], None]] = []

    # Views

    def queue(self, number: int) -> QueueView:
        view = self.queues.get(number)
        if view is None:
            view = QueueView(number, self._environment, load_totals(self._environment, number), self._begin_queue)
            self.queues[number] = view
        return view

    def table(self, name: str) -> Table:
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = Table(name, self._environment, self._begin_table)
        return table

    def _begin_queue(self, view: QueueView) -> MessageLayer:
        layer = view.current = self.current.queues[view] = MessageLayer(view.generation)
        return layer

    def _begin_table(self, table: Table) -> Layer[bytes, bytes, None]:
        layer: Layer[bytes, bytes, None] = Layer()
        table.current = self.current.tables[table] = layer
        return layer

    @property
    def horizon(self) -> int:
        """The highest visibility number up to which everything is decided. It never decreases."""
        if not (self.current.queues or self.current.tables or self.inflight):
            # Express messages have numbers too, which no commit reports.
            self._horizon = self.visibility.last
        return self._horizon

    @property
    def scan_horizon(self) -> int:
        """The highest visibility number up to which everything is decided in the snapshot."""
        if not (self.current or self.inflight or self.logged or self.checkpointing):
            self._scan_horizon = self.visibility.last
        return self._scan_horizon

    def open_events(self) -> EventLog:
        """Return the log of events, creating it if it does not exist."""
        if self.events is None:
            numbers = self.counters.get("events", 1 << 16)
            self.events = EventLog(self._environment, numbers, lambda: self.current.events, self._want_flush)
        return self.events

    def _want_flush(self) -> None:
        self._is_flush_wanted = True
        self.maintenance.wake()

    def flush_events(self) -> None:
        """Write all events so far into the snapshot. The caller must not hold the lock."""
        self._check_unlocked()
        with self._commit_lock:
            while self.inflight is not None or self.current.events:
                self._lead()
        self.checkpoint()

    def _check_unlocked(self) -> None:
        """Raise RuntimeError if the calling thread holds the store's lock.

        Otherwise the mistake would show only when another thread commits at the same time, as a
        deadlock.
        """
        if self.lock.is_mine:
            raise RuntimeError(
                "a checkpoint was asked for with the store's lock held: "
                "it would wait for a thread that waits for the lock"
            )

    def checkpoint(self) -> None:
        """Write everything that is durable into the snapshot.

        Raises InsufficientResources if the disk refuses. The caller must not hold the lock.
        """
        self._check_unlocked()
        with self.lock:
            if self.checkpointing is None and self.logged.is_blank:
                return
        with self._checkpoint_lock:
            pass  # wait for a running checkpoint without blocking commits meanwhile
        with self._commit_lock:
            self._checkpoint_lock.acquire()
            try:
                last = self._begin_checkpoint()
            except BaseException:
                self._checkpoint_lock.release()
                raise
        try:
            self._write_checkpoint(last)
        finally:
            self._checkpoint_lock.release()

    def trim_events(self, before_ms: int, max_bytes: int) -> bool:
        """Drop a slice of the events that are too old or too many; return whether there are more.

        The caller must not hold the lock.
        """
        environment = self._environment
        if environment.events is None:
            return False
        self.checkpoint()
        with self._commit_lock, self._checkpoint_lock:
            try:
                with environment.write() as txn:
                    has_more = trim_slice(txn, environment, before_ms, max_bytes)
            except InsufficientResources:
                with self.lock.before_others:
                    self._recover()
                raise
            if has_more:
                with self.lock.before_others:
                    self._renew()
        return has_more

    # Committing

    def pending_batch(self) -> int:
        """Return the number of the newest batch with changes, 0 if everything is durable."""
        current = self.current
        # Not `bool(current)`: every send and every receive calls this.
        if current.queues or current.tables:
            return current.number
        return 0 if self.inflight is None else self.inflight.number

    def sync(self, number: int) -> None:
        """Block until batch `number` is durable. Raises InsufficientResources if it was dropped.

        The caller must not hold the lock.
        """
        while number > self.decided:
            with self._turn_lock:
                if self._is_led:
                    self._follow()
                    continue
                self._is_led = True
            try:
                with self._commit_lock:
                    if number > self.decided:
                        self._lead()
            finally:
                with self._turn_lock:
                    self._is_led = False
                    if self._followers:
                        self._turn.notify_all()
        if self._failed and self._has_failed(number):
            raise InsufficientResources(
                f"batch {number} could not be written and was dropped; see the log for the cause"
            )

    def _follow(self) -> None:
        """Wait until the leader is done. The caller holds `_turn_lock`."""
        self._followers += 1
        try:
            self._turn.wait()
        finally:
            self._followers -= 1

    def _has_failed(self, number: int) -> bool:
        return bool(self._failed) and any(low <= number <= high for low, high in list(self._failed))

    def prepare(self) -> bool:
        """Close the current batch and build its log record, unless another batch is in flight.

        Return whether the newest batch is in flight, so that only the wait for the disk remains.
        The caller holds the lock.
        """
        if self.current.queues or self.current.tables:
            if self.inflight is not None:
                return False
            self._prepare()
        return True

    def sync_at_once(self) -> bool:
        """Write the batch in flight if a quick write suffices; return whether it was written.

        For event loops: handing the batch to a thread and back takes longer than such a write. The
        caller must not hold the lock.
        """
        record = self._record
        if record is None or record.size > _AT_ONCE or not self._write_ahead_log.is_quick:
            return False
        if not self._commit_lock.acquire(blocking=False):
            return False
        try:
            if self._record is None:
                return False
            self._lead()
        finally:
            self._commit_lock.release()
        return True

    def _prepare(self) -> None:
        batch = self._swap()
        # On a full disk the batch goes straight into the database, because only deletes there free
        # room.
        if not (self.counters.wanting or self._allocation.is_full):
            self._record = self._write_ahead_log.record(batch.operations())

    def _lead(self) -> None:
        """Make a batch durable, in the write-ahead log or in the database.

        The caller holds the commit lock.
        """
        begun = time.perf_counter()
        try:
            self._write_ahead_log.clear()
            with self.lock.before_others:
                if self.inflight is None:
                    self._prepare()
                batch = cast("Batch", self.inflight)
                record, self._record = self._record, None
                messages = batch.messages()
            # A checkpoint may have switched to the other, smaller file since the record was built.
            if record is None or not self._write_ahead_log.has_room(record.size):
                with self._checkpoint_lock:
                    self._commit(batch)
            else:
                self._write_ahead_log.append(record)
                with self.lock.before_others:
                    self._complete_logged(batch, record.size)
        except BaseException as error:
            # Recovery may reopen the database, and no checkpoint may be writing to it at that time.
            with self._checkpoint_lock, self.lock.before_others:
                self._fail(error)
            if not isinstance(error, lmdb.Error | OSError | InsufficientResources):
                raise
        else:
            self.commit_seconds.observe(time.perf_counter() - begun)
            self.commit_messages.observe(messages)

    def _commit(self, batch: Batch) -> None:
        """Commit a batch to the database, after everything in the write-ahead log.

        The caller holds the commit lock and the checkpoint lock.
        """
        self._write_checkpoint(self._begin_checkpoint())
        environment = self._environment
        with self.lock.before_others:
            if batch.publications:
                self.counters.reserve_for_long()
            txn = environment.env.begin(write=True)
            try:
                batch.write(txn, environment)
                batch.counters = self.counters.write(txn)
            except BaseException:
                txn.abort()
                raise
        try:
            for publication in batch.publications:
                publication.write(txn, environment, self.lock)
            txn.commit()
        except BaseException:
            with suppress(lmdb.Error):  # a failed commit has already ended it
                txn.abort()
            raise
        with self.lock.before_others:
            self._complete_committed(batch)

    def _begin_checkpoint(self) -> int:
        """Hand the logged changes to the next checkpoint; return the number of their last record.

        The caller holds the commit lock and the checkpoint lock.
        """
        with self.lock.before_others:
            if self.logged.is_blank:
                if self.checkpointing is None:
                    self._write_ahead_log.rewind()
                return self._write_ahead_log.last
            self.checkpointing, self.logged, self._changes = self.logged, Batch(0), 0
            return self._write_ahead_log.switch()

    def _write_checkpoint(self, last: int) -> None:
        """Write `checkpointing` into the database. The caller holds the checkpoint lock."""
        checkpointing, environment = self.checkpointing, self._environment
        if checkpointing is None:
            return
        try:
            with self.lock.before_others:
                txn = environment.env.begin(write=True)
            try:
                self._write_slowly(checkpointing, txn)
                note_checkpoint(txn, environment, last)
                txn.commit()
            except BaseException:
                with suppress(lmdb.Error):
                    txn.abort()
                raise
        except BaseException as error:
            with self.lock.before_others:
                self._undo_checkpoint(checkpointing)
            if isinstance(error, lmdb.Error | OSError):
                raise InsufficientResources(
                    f"the write-ahead log could not be brought into the store: {error}"
                ) from error
            raise
        with self.lock.before_others:
            self._complete_checkpoint(checkpointing)
        self._write_ahead_log.extend()

    def _write_slowly(self, batch: Batch, txn: lmdb.Transaction[bytes]) -> None:
        """Write a batch in pieces, so that the engine can run in between.

        Each piece holds the lock, for the reason that the write phase does (module docstring).
        """
        pieces = batch.write_pieces(txn, self._environment)
        while True:
            with self.lock.urgent(_PATIENCE):
                if next(pieces, self) is self:
                    return

    def close(self) -> None:
        """Commit what is left and write the exact counters. The caller must not hold the lock."""
        self.maintenance.stop()
        with self.lock:
            number = self.pending_batch()
        self.sync(number)
        try:
            self.flush_events()
            with self._commit_lock, self._checkpoint_lock, self.lock, self._environment.write() as txn:
                self.counters.write_exact(txn)
        except InsufficientResources as error:
            _LOG.warning("the write-ahead log is not emptied, or counters will continue after a gap: %s", error)

    def _maintain(self) -> bool:
        """Do the work that no caller waits for; return whether there is more."""
        if self.counters.wanting or self._is_flush_wanted:
            self._is_flush_wanted = False
            with self._commit_lock:
                self._lead()
        if self._is_checkpoint_due or self._garbage in self.logged.tables:
            self.checkpoint()
        with self._commit_lock, self._checkpoint_lock:
            return self._sweep()

    @property
    def _is_checkpoint_due(self) -> bool:
        return self._write_ahead_log.is_half_full or self._changes > _MAX_CHANGES or self.logged.room > _MAX_ROOM

    def _sweep(self) -> bool:
        """Delete a slice of what was dropped.

        The caller holds the commit lock and the checkpoint lock.
        """
        environment = self._environment
        try:
            with self.lock.before_others:
                txn = environment.env.begin(write=True, buffers=True)
                try:
                    swept = sweep_slice(txn, environment)
                except BaseException:
                    txn.abort()
                    raise
            if not swept:
                txn.abort()
                return False
            txn.commit()
        except lmdb.Error:
            with self.lock.before_others:
                self._recover()
            raise
        with self.lock.before_others:
            self._renew()
        environment.memory.touch(1 << 20)
        return True

    def _swap(self) -> Batch:
        batch = self.inflight = self.current
        self.current = Batch(batch.number + 1)
        batch.freeze(self.visibility.last)
        if self.events is not None:
            batch.event_horizon = self.events.closed()
        return batch

    def _lay(self, batch: Batch) -> None:
        """Rebuild the stack of layers in every view that a batch has changed."""
        below = (self.inflight, self.logged, self.checkpointing)
        for queue in batch.queues:
            messages: list[MessageLayer] = []
            for lower in below:
                layer = None if lower is None else lower.queues.get(queue)
                if layer is not None and layer.generation == queue.generation:
                    messages.append(layer)
            queue.below = tuple(messages)
        for table in batch.tables:
            changes: list[Layer[bytes, bytes, None]] = []
            for lower in below:
                rows = None if lower is None else lower.tables.get(table)
                if rows is not None:
                    changes.append(rows)
            table.below = tuple(changes)

    def _complete_logged(self, batch: Batch, size: int) -> None:
        logged = self.logged
        self.inflight = None
        self._changes += batch.changes()
        stored = logged.absorb(batch)
        # A database page holds three messages of 1 KiB, and the tree needs some pages more. Each
        # stored message that is deleted may lie on a page of its own, which LMDB copies: room is
        # needed for all deletes since the last checkpoint before any of them frees a page.
        room = 2 * size + 4096 * stored if stored > 0 else 2 * size
        logged.room += room
        self._allocation.logged(room)
        if self._is_checkpoint_due:
            self.maintenance.wake()
        self._complete(batch)

    def _complete_checkpoint(self, checkpointing: Batch) -> None:
        self._renew()
        self._write_ahead_log.release_other_file()
        self.checkpointing = None
        self._renewed(checkpointing)
        self._scan_horizon = max(self._scan_horizon, checkpointing.horizon)
        if self.events is not None:
            self.events.completed(checkpointing.event_horizon)
        self._allocation.checkpointed(checkpointing.room)
        self._environment.memory.touch(checkpointing.cost())

    def _undo_checkpoint(self, checkpointing: Batch) -> None:
        """Put the changes of a failed checkpoint back: they are still in the write-ahead log."""
        checkpointing.absorb(self.logged)
        checkpointing.room += self.logged.room
        self.checkpointing, self.logged = None, checkpointing
        self._changes = checkpointing.changes()
        self._lay(checkpointing)
        self._recover()

    def _complete_committed(self, batch: Batch) -> None:
        self._renew()
        self.inflight = None
        self._renewed(batch)
        for publication in batch.publications:
            publication.complete()
        for counter, limit in batch.counters:
            counter.raise_limit(limit)
        self._scan_horizon = max(self._scan_horizon, batch.horizon)
        if self.events is not None:
            self.events.completed(batch.event_horizon)
        self._allocation.wrote(batch.size())
        self._environment.memory.touch(batch.cost())
        self._complete(batch)

    def _renewed(self, batch: Batch) -> None:
        """Update the views after the snapshot has taken in a batch."""
        self._lay(batch)
        for queue in batch.queues:
            queue.forget_runs()
        for table in batch.tables:
            table.forget_runs()

    def _complete(self, batch: Batch) -> None:
        for queue, totals in batch.totals.items():
            queue.synced = totals
        # A later batch may have passed an empty one, which carries only events or counters.
        self._horizon = max(self._horizon, batch.horizon)
        self.synced = self.decided = batch.number
        if self._garbage in batch.tables:
            self.maintenance.wake()
        if batch.completions:
            self._call(batch.completions, batch.number)
        self._call(self.on_synced, batch.number)

    @staticmethod
    def _call(callbacks: list[Callable[[int], None]], number: int) -> None:
        for callback in callbacks:
            try:
                callback(number)
            except Exception:  # noqa: BLE001 (logged)
                # An error in a callback does not affect the batch.
                _LOG.exception("a callback for batch %d failed", number)

    def _fail(self, error: BaseException) -> None:
        """Drop all unsynced changes and return to the state of the log and the snapshot."""
        dropped = [batch for batch in (self.inflight, self.current) if batch is not None]
        _LOG.error("the store cannot write, batches %s are dropped: %s", [batch.number for batch in dropped], error)
        last = self.current.number
        first = dropped[0].number
        if self._failed and self._failed[-1][1] == first - 1:
            self._failed[-1][1] = last
        else:
            self._failed.append([first, last])
        # Set after `_failed`: `sync` reads this number without the lock and then looks up the
        # failure.
        self.decided = last
        self.inflight = self._record = None
        self.current = Batch(last + 1)
        if self.events is not None:
            number = self.events.closed()
            if self.logged.events or self.checkpointing is not None:
                # The checkpoint writes the earlier events first.
                self.logged.event_horizon = number
            else:
                self.events.completed(number)
        for batch in dropped:
            for queue in batch.queues:
                queue.generation = queue.synced.generation
            self._lay(batch)
            for queue in batch.queues:
                queue.go_back()
            for table in batch.tables:
                table.go_back()
        self._recover()
        self.counters.want_all()
        for batch in dropped:
            self._call(self.on_failed, batch.number)

    def _recover(self) -> None:
        """Continue with what is on disk after the disk has refused a write."""
        self._renew()
        self._allocation.ensure()

    def _renew(self) -> None:
        """Move the snapshot to the last commit.

        The caller holds the checkpoint lock, so no thread is writing.
        """
        try:
            self._environment.renew()
        except lmdb.Error:
            # A later commit, that of a counter, has failed, which does not affect this one.
            self._environment.reopen()
