"""Group commit: how changes become durable together, what readers see meanwhile, and what happens when the disk refuses.

Snapshot and overlay
    LMDB is a copy-on-write B+tree: a write transaction copies the pages it changes and its commit writes them, syncs, and then
    switches one meta page to the new root. A reader keeps the root it began with, so it sees one commit, whole, for as long
    as it likes, and neither blocks the writer nor is blocked. There is one write transaction at a time.
    The engine changes the store many thousand times between two commits. These changes are kept in the current *batch*: for each queue
    and table a layer of new rows and hidden keys. A commit takes the batch away (it is *in flight*) and a new one begins to fill.
    What the engine reads is current batch over batch in flight over journaled over settling over snapshot: always the newest state. Express messages are
    one more layer of each queue, which is never written. A message put and deleted within one batch never reaches the disk.

Journal and checkpoint
    A small batch becomes durable in the journal (journal.py): one write, and one wait for the disk. Its layers are then laid together with those that are there since
    the last checkpoint. A *checkpoint* takes all of these (they are *settling*), writes them into the database in one commit, and drops them as it renews the snapshot; nothing
    changes for the engine, and other batches are journaled meanwhile. It comes when a file of the journal is half full, when so much has changed that memory
    and a restart would feel it, when somebody wants to scan, at the end, and before a batch that is not for the journal (a big one,
    staged messages, a publication, a raised counter, any on a full disk), which goes straight into the database. What the database is told past the journal (counters,
    sweeping, trimming) must be right with any part of the journal done after it: a counter is never in the journal, and what is swept or trimmed no record puts back.

Leader and followers
    `sync(ticket)` blocks until the batch of that number is durable. Who finds nobody leading is the leader: it swaps the batch and
    writes it under the store's lock, waits for the disk without it (and without the interpreter), and completes under it. Who comes meanwhile fills the next batch and sleeps until the leader is done; then all whose batch is
    durable go on at once, and one of the others leads the next commit, for all who came with it. (Were they to queue for the
    commit lock, those who are done would wait behind the next leader, and batches would stay small.)
    The write phase holds the store's lock on purpose: py-lmdb lets go of the interpreter at each call, and against a busy
    thread each call then costs up to a switch interval (measured: 100-500 us in place of 0.4). A busy engine soon wants
    the lock, waits for it without wanting the interpreter, and the write phase takes about 2 us a message. The leader takes
    the lock before others (StoreLock), because a thread that lets go of a lock and takes it again at once always wins.
    Lock order: commit lock, settle lock, store's lock, LMDB's writer. Nobody who holds LMDB's writer waits for the store's lock (a long
    publication asks for it with a time limit).

Two flushes
    A checkpoint waits for the disk twice: once for the pages, then for the meta page that points to them. Neither can be left out. Without the
    second (MDB_NOMETASYNC) the store stays whole, but a power cut takes the last commit, which was acknowledged. With one flush for both
    (MDB_NOSYNC and an fdatasync of our own) the disk may write the meta page first: a power cut between the two leaves a newest root over pages
    that were never written, and LMDB, whose pages have no checksums, would not notice and not fall back to the root before. What
    can be saved is to wait at all, as small batches do.

Visibility numbers
    A number is issued when a message becomes Available in a batch (arrival, commit of a send, abort of a receive, move), from one counter, so
    batches are durable in the order of their numbers. A message that is locked only in memory (a receive in a transaction
    that is not prepared) keeps its number and its index entry until its removal is committed: a scan still finds it, as it should,
    since it may come back. If the receive aborts the engine puts it again and it gets a new number, so a reader that is already
    past the old one finds it again; the old entry ends in the same commit. All numbers up to `horizon` are decided: durable,
    or never to be; those up to `scan_horizon` are so in the snapshot, which is what a scan reads. Express messages are visible at once, perhaps with a higher
    number than a durable one not yet there, so a scan never goes beyond that: a stream that has read up to N can forget everything up to N.

Failure
    When a commit fails (disk full, I/O error) the batch in flight and the current batch are both dropped, because the second was
    built on the first; every `sync` for them raises InsufficientResources, totals and views go back to the last synced state, and
    `on_failed` tells the engine. Nothing that was acknowledged is lost: it is in the journal or in the snapshot. Express messages stay. The next batch starts
    afresh; no restart is needed. Room for what is in the journal is kept in the database's file (allocation.py), so a full disk does not keep a checkpoint out.
"""

from __future__ import annotations

import logging
import threading
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
from lanner.store.journal import Journal, Record, note_checkpoint
from lanner.store.lock import StoreLock
from lanner.store.maintenance import Maintenance, sweep_slice
from lanner.store.overlay import Layer
from lanner.store.queue_view import MessageLayer, QueueView
from lanner.store.table import Table

__all__ = ["GroupCommit"]

_LOG = logging.getLogger(__name__)

# Ours: so many changes are written by one checkpoint at most, and are held in memory until then.
_MAX_CHANGES = 16_384
# Ours: bytes of a record for which a loop waits itself.
_AT_ONCE = 64 << 10
# Ours: bytes of the file that are kept for the next checkpoint, about; it comes when it needs as much.
_MAX_ROOM = 16 << 20
# Ours: how long a checkpoint waits for the store's lock, whose holder may be waiting for the database.
_PATIENCE = 0.01


class GroupCommit:
    """The batches of a store and the views laid over its snapshot."""

    def __init__(self, environment: Environment, journal: Journal, allocation: Allocation, lock: StoreLock) -> None:
        self._environment = environment
        self._journal = journal
        self._allocation = allocation
        self.lock = lock
        self._commit_lock = threading.Lock()
        self._settle_lock = threading.Lock()
        self._turn = threading.Condition(threading.Lock())
        self._is_led = False
        self.current = Batch(1)
        self.inflight: Batch | None = None
        self._record: Record | None = None  # of the batch in flight, if it is for the journal and not written yet
        # What is in the journal and not in the snapshot: what a checkpoint is writing, and what came since it began.
        self.settling: Batch | None = None
        self.journaled = Batch(0)
        self._changes = 0  # about how many rows of it there are
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
        """The highest visibility number up to which everything is decided. It never goes back."""
        if not (self.current.queues or self.current.tables or self.inflight):
            # Express messages have numbers that no commit will tell of.
            self._horizon = self.visibility.last
        return self._horizon

    @property
    def scan_horizon(self) -> int:
        """The same of what the snapshot has."""
        if not (self.current or self.inflight or self.journaled or self.settling):
            self._scan_horizon = self.visibility.last
        return self._scan_horizon

    def open_events(self) -> EventLog:
        """The log of events, made if there is none."""
        if self.events is None:
            numbers = self.counters.get("events", 1 << 16)
            self.events = EventLog(self._environment, numbers, lambda: self.current.events, self._want_flush)
        return self.events

    def _want_flush(self) -> None:
        self._is_flush_wanted = True
        self.maintenance.wake()

    def flush_events(self) -> None:
        """Have all events in the snapshot that happened until now. Without the lock."""
        self._check_unlocked()
        with self._commit_lock:
            while self.inflight is not None or self.current.events:
                self._lead()
        self.settle()

    def _check_unlocked(self) -> None:
        """Else a mistake would be seen only when another thread commits or settles in the same moment, and then as a hang."""
        if self.lock.is_mine:
            raise RuntimeError(
                "the store is settled by a thread that has its lock: it would wait for one that waits for the lock"
            )

    def settle(self) -> None:
        """Have everything in the snapshot that is durable; InsufficientResources if the disk refuses. Without the lock."""
        self._check_unlocked()
        with self.lock:
            if self.settling is None and self.journaled.is_blank:
                return
        with self._settle_lock:
            pass  # one that is under way does not need to keep commits out until its end
        with self._commit_lock:
            self._settle_lock.acquire()
            try:
                last = self._begin_settling()
            except BaseException:
                self._settle_lock.release()
                raise
        try:
            self._settle(last)
        finally:
            self._settle_lock.release()

    def trim_events(self, before_ms: int, max_bytes: int) -> bool:
        """Drop a slice of events that are older, or too many; True if there is more. Without the lock."""
        environment = self._environment
        if environment.events is None:
            return False
        self.settle()
        with self._commit_lock, self._settle_lock:
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

    def ticket(self) -> int:
        """Return the number of the newest batch with changes, 0 if everything is durable."""
        current = self.current
        # Not by the batch's own `__bool__`: each receive and each send asks.
        if current.queues or current.tables:
            return current.number
        return 0 if self.inflight is None else self.inflight.number

    def sync(self, ticket: int) -> None:
        """Block until the batch `ticket` is durable; InsufficientResources if it was dropped. Without the lock."""
        while ticket > self.decided:
            with self._turn:
                if self._is_led:
                    self._turn.wait()
                    continue
                self._is_led = True
            try:
                with self._commit_lock:
                    if ticket > self.decided:
                        self._lead()
            finally:
                with self._turn:
                    self._is_led = False
                    self._turn.notify_all()
        if self._failed and self._has_failed(ticket):
            raise InsufficientResources(
                f"batch {ticket} could not be written and was dropped; see the log for the cause"
            )

    def _has_failed(self, ticket: int) -> bool:
        return bool(self._failed) and any(low <= ticket <= high for low, high in list(self._failed))

    def prepare(self) -> bool:
        """Close the current batch and make its record, unless another batch is in flight. The caller holds the lock.

        Return whether the newest batch is in flight: then only the disk is left to wait for.
        """
        if self.current.queues or self.current.tables:
            if self.inflight is not None:
                return False
            self._prepare()
        return True

    def sync_at_once(self) -> bool:
        """Make the batch in flight durable here and now, if a quick disk is all that it waits for; else False, and nothing is done.

        For a loop: handing a batch to a thread, and the news back, takes longer than such a wait. Without the lock.
        """
        record = self._record
        if record is None or record.size > _AT_ONCE or not self._journal.is_quick:
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
        # On a full disk straight into the database: what is deleted makes room when it is deleted there.
        if not (self.counters.wanting or self._allocation.is_full):
            self._record = self._journal.record(batch.operations())

    def _lead(self) -> None:
        """Make a batch durable, in the journal or in the database. The commit lock is held."""
        try:
            self._journal.clear()
            with self.lock.before_others:
                if self.inflight is None:
                    self._prepare()
                batch = cast("Batch", self.inflight)
                record, self._record = self._record, None
            # Since the record was made a checkpoint may have gone on to the other file, and that one may be smaller.
            if record is None or not self._journal.has_room(record.size):
                with self._settle_lock:
                    self._commit(batch)
            else:
                self._journal.append(record)
                with self.lock.before_others:
                    self._complete_journaled(batch, record.size)
        except BaseException as error:
            # To recover may mean to open the database again, and no checkpoint may be writing to it then.
            with self._settle_lock, self.lock.before_others:
                self._fail(error)
            if not isinstance(error, lmdb.Error | OSError | InsufficientResources):
                raise

    def _commit(self, batch: Batch) -> None:
        """Commit a batch to the database, behind all that is in the journal. The commit lock and the settle lock are held."""
        self._settle(self._begin_settling())
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
            with suppress(lmdb.Error):  # a commit that failed has ended it
                txn.abort()
            raise
        with self.lock.before_others:
            self._complete_committed(batch)

    def _begin_settling(self) -> int:
        """Have what is in the journal taken by the next checkpoint; the number of its last record. Both locks are held."""
        with self.lock.before_others:
            if self.journaled.is_blank:
                if self.settling is None:
                    self._journal.rewind()
                return self._journal.last
            self.settling, self.journaled, self._changes = self.journaled, Batch(0), 0
            return self._journal.switch()

    def _settle(self, last: int) -> None:
        """Write what is settling into the database. The settle lock is held."""
        settling, environment = self.settling, self._environment
        if settling is None:
            return
        try:
            with self.lock.before_others:
                txn = environment.env.begin(write=True)
            try:
                self._write_slowly(settling, txn)
                note_checkpoint(txn, environment, last)
                txn.commit()
            except BaseException:
                with suppress(lmdb.Error):
                    txn.abort()
                raise
        except BaseException as error:
            with self.lock.before_others:
                self._unsettle(settling)
            if isinstance(error, lmdb.Error | OSError):
                raise InsufficientResources(f"the journal could not be brought into the store: {error}") from error
            raise
        with self.lock.before_others:
            self._complete_settled(settling)
        self._journal.extend()

    def _write_slowly(self, batch: Batch, txn: lmdb.Transaction[bytes]) -> None:
        """Write a batch piece by piece, so that the engine has its turn in between; the reason for the lock is that of the write phase."""
        pieces = batch.write_pieces(txn, self._environment)
        while True:
            with self.lock.urgent(_PATIENCE):
                if next(pieces, self) is self:
                    return

    def close(self) -> None:
        """Commit what is left and write the counters as they are. Without the lock."""
        self.maintenance.stop()
        with self.lock:
            ticket = self.ticket()
        self.sync(ticket)
        try:
            self.flush_events()
            with self._commit_lock, self._settle_lock, self.lock, self._environment.write() as txn:
                self.counters.write_exact(txn)
        except InsufficientResources as error:
            _LOG.warning("the journal stays as it is, or counters will go on behind a gap: %s", error)

    def _maintain(self) -> bool:
        """Do what nobody waits for; True if there is more to do."""
        if self.counters.wanting or self._is_flush_wanted:
            self._is_flush_wanted = False
            with self._commit_lock:
                self._lead()
        if self._is_settling_due or self._garbage in self.journaled.tables:
            self.settle()
        with self._commit_lock, self._settle_lock:
            return self._sweep()

    @property
    def _is_settling_due(self) -> bool:
        return self._journal.is_half_full or self._changes > _MAX_CHANGES or self.journaled.room > _MAX_ROOM

    def _sweep(self) -> bool:
        """Delete a slice of what was dropped. The commit lock and the settle lock are held."""
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
        self._lay(batch)
        if self.events is not None:
            batch.event_horizon = self.events.closed()
        return batch

    def _lay(self, batch: Batch) -> None:
        """Lay the layers over each other anew, in the views that a batch has changed."""
        # Loops, because each commit of one message comes here twice and a generator costs several calls.
        below = (self.inflight, self.journaled, self.settling)
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

    def _complete_journaled(self, batch: Batch, size: int) -> None:
        journaled = self.journaled
        self.inflight = None
        self._changes += batch.changes()
        stored = journaled.stored(batch)
        journaled.absorb(batch)
        self._lay(batch)
        # A page of the database holds three messages of 1 KiB, and its tree some pages more. Of what is there already and goes, each
        # may lie on a page of its own, which is written anew: all that went since the last checkpoint, before any of it makes room.
        room = 2 * size + 4096 * max(journaled.stored(batch) - stored, 0)
        journaled.room += room
        self._allocation.journaled(room)
        if self._is_settling_due:
            self.maintenance.wake()
        self._complete(batch)

    def _complete_settled(self, settling: Batch) -> None:
        self._renew()
        self._journal.settled()
        self.settling = None
        self._renewed(settling)
        self._scan_horizon = max(self._scan_horizon, settling.horizon)
        if self.events is not None:
            self.events.completed(settling.event_horizon)
        self._allocation.settled(settling.room)
        self._environment.memory.touch(settling.cost())

    def _unsettle(self, settling: Batch) -> None:
        """The disk refuses a checkpoint: what was on its way is in the journal, and stays so."""
        settling.absorb(self.journaled)
        settling.room += self.journaled.room
        self.settling, self.journaled = None, settling
        self._changes = settling.changes()
        self._lay(settling)
        self._recover()

    def _complete_committed(self, batch: Batch) -> None:
        self._renew()
        self.inflight = None
        self._renewed(batch)
        for publication in batch.publications:
            publication.complete()
        for counter, limit in batch.counters:
            counter.settle(limit)
        self._scan_horizon = max(self._scan_horizon, batch.horizon)
        if self.events is not None:
            self.events.completed(batch.event_horizon)
        self._allocation.wrote(batch.size())
        self._environment.memory.touch(batch.cost())
        self._complete(batch)

    def _renewed(self, batch: Batch) -> None:
        """The snapshot has a batch now."""
        self._lay(batch)
        for queue in batch.queues:
            queue.forget_runs()
        for table in batch.tables:
            table.forget_runs()

    def _complete(self, batch: Batch) -> None:
        for queue, totals in batch.totals.items():
            queue.synced = totals
        # An empty one, for events or counters, holds nothing up, and may have been passed.
        self._horizon = max(self._horizon, batch.horizon)
        self.synced = self.decided = batch.number
        if self._garbage in batch.tables:
            self.maintenance.wake()
        if batch.completions:
            self._tell(batch.completions, batch.number)
        self._tell(self.on_synced, batch.number)

    @staticmethod
    def _tell(callbacks: list[Callable[[int], None]], number: int) -> None:
        for callback in callbacks:
            try:
                callback(number)
            except Exception:  # noqa: BLE001 (logged)
                # What the engine does with the news changes nothing about the batch.
                _LOG.exception("a callback for batch %d failed", number)

    def _fail(self, error: BaseException) -> None:
        """Drop everything unsynced and go back to what the journal and the snapshot have."""
        dropped = [batch for batch in (self.inflight, self.current) if batch is not None]
        _LOG.error("the store cannot write, batches %s are dropped: %s", [batch.number for batch in dropped], error)
        last = self.current.number
        first = dropped[0].number
        if self._failed and self._failed[-1][1] == first - 1:
            self._failed[-1][1] = last
        else:
            self._failed.append([first, last])
        # Behind what tells how: who sees this number looks there, without the lock.
        self.decided = last
        self.inflight = self._record = None
        self.current = Batch(last + 1)
        if self.events is not None:
            number = self.events.closed()
            if self.journaled.events or self.settling is not None:
                # What is on its way comes first.
                self.journaled.event_horizon = number
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
            self._tell(self.on_failed, batch.number)

    def _recover(self) -> None:
        """The disk has refused something: go on with what it has."""
        self._renew()
        self._allocation.ensure()

    def _renew(self) -> None:
        """Move the snapshot to the last commit. The settle lock is held, so that nobody is writing."""
        try:
            self._environment.renew()
        except lmdb.Error:
            # Another commit since, a counter's, has failed for good; that says nothing about this one.
            self._environment.reopen()
