"""Group commit: how changes become durable together, what readers see meanwhile, and what happens when the disk refuses.

Snapshot and overlay
    LMDB is a copy-on-write B+tree: a write transaction copies the pages it changes and its commit writes them, syncs, and then
    switches one meta page to the new root. A reader keeps the root it began with, so it sees one commit, whole, for as long
    as it likes, and neither blocks the writer nor is blocked. There is one write transaction at a time.
    The engine changes the store many thousand times between two commits. These changes are kept in the current *batch*: for each queue
    and table a layer of new rows and hidden keys. A commit takes the batch away (it is *in flight*) and a new one begins to fill.
    What the engine reads is current batch over batch in flight over snapshot: always the newest state. When the commit has ended, and
    under the lock, the snapshot is renewed and the layers in flight are dropped; nothing changes for a reader. Express messages are one
    more layer of each queue, which is never written. A message put and deleted within one batch never reaches the disk.

Leader and followers
    `sync(ticket)` blocks until the batch of that number is durable. Who finds nobody leading is the leader: it swaps the batch and
    writes it under the store's lock, commits without it (LMDB lets go of the interpreter while it waits for the disk), and
    completes under it. Who comes meanwhile fills the next batch and sleeps until the leader is done; then all whose batch is
    durable go on at once, and one of the others leads the next commit, for all who came with it. (Were they to queue for the
    commit lock, those who are done would wait behind the next leader, and batches would stay small.)
    The write phase holds the store's lock on purpose: py-lmdb lets go of the interpreter at each call, and against a busy
    thread each call then costs up to a switch interval (measured: 100-500 us in place of 0.4). A busy engine soon wants
    the lock, waits for it without wanting the interpreter, and the write phase takes about 2 us a message. The leader takes
    the lock before others (StoreLock), because a thread that lets go of a lock and takes it again at once always wins.
    Lock order: commit lock, store's lock, LMDB's writer. Nobody who holds LMDB's writer waits for the store's lock (a long
    publication asks for it with a time limit).

Two flushes
    A commit waits for the disk twice: once for the pages, then for the meta page that points to them. Neither can be left out. Without the
    second (MDB_NOMETASYNC) the store stays whole, but a power cut takes the last commit, which was acknowledged. With one flush for both
    (MDB_NOSYNC and an fdatasync of our own) the disk may write the meta page first: a power cut between the two leaves a newest root over pages
    that were never written, and LMDB, whose pages have no checksums, would not notice and not fall back to the root before. What
    can be saved is the file system's share of the first flush (allocation.py).

Visibility numbers
    A number is issued when a message becomes Available in a batch (arrival, commit of a send, abort of a receive, move), from one counter, so
    batches are durable in the order of their numbers. A message that is locked only in memory (a receive in a transaction
    that is not prepared) keeps its number and its index entry until its removal is committed: a scan still finds it, as it should,
    since it may come back. If the receive aborts the engine puts it again and it gets a new number, so a reader that is already
    past the old one finds it again; the old entry ends in the same commit. All numbers up to `horizon` are decided: durable,
    or never to be. Express messages are visible at once, perhaps with a higher number than a durable one not yet synced, so a scan
    never goes beyond the horizon: a stream that has read up to N can forget everything up to N.

Failure
    When a commit fails (disk full, I/O error) the batch in flight and the current batch are both dropped, because the second was
    built on the first; every `sync` for them raises InsufficientResources, totals and views go back to the last synced state, and
    `on_failed` tells the engine. Nothing that was acknowledged is lost: it is in the snapshot. Express messages stay. The next batch starts
    afresh; no restart is needed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

import lmdb

from lanner.model.errors import InsufficientResources
from lanner.store.allocation import Allocation
from lanner.store.batch import Batch, load_totals
from lanner.store.counters import Counters
from lanner.store.environment import Environment
from lanner.store.event_log import EventLog, trim_slice
from lanner.store.lock import StoreLock
from lanner.store.maintenance import Maintenance, sweep_slice
from lanner.store.overlay import Layer
from lanner.store.queue_view import MessageLayer, QueueView
from lanner.store.table import Table

__all__ = ["GroupCommit"]

_LOG = logging.getLogger(__name__)


class GroupCommit:
    """The batches of a store and the views laid over its snapshot."""

    def __init__(self, environment: Environment, allocation: Allocation, lock: StoreLock) -> None:
        self._environment = environment
        self._allocation = allocation
        self.lock = lock
        self._commit_lock = threading.Lock()
        self._turn = threading.Condition(threading.Lock())
        self._is_led = False
        self.current = Batch(1)
        self.inflight: Batch | None = None
        self.synced = 0
        self._failed: list[list[int]] = []  # ranges of batch numbers, both ends included
        self.queues: dict[int, QueueView] = {}
        self.tables: dict[str, Table] = {}
        self.maintenance = Maintenance(self._maintain)
        self.counters = Counters(environment, self.maintenance.wake)
        self.visibility = self.counters.get("visibility", 1 << 16)
        self.horizon_synced = self.visibility.last
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

    def _begin_table(self, table: Table) -> Layer[bytes, bytes]:
        layer: Layer[bytes, bytes] = Layer()
        table.current = self.current.tables[table] = layer
        return layer

    @property
    def horizon(self) -> int:
        """The highest visibility number up to which everything is decided. It never goes back."""
        if not self.current and self.inflight is None:
            # Express messages have numbers that no commit will tell of.
            self.horizon_synced = self.visibility.last
        return self.horizon_synced

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
        """Have all events written that happened until now. Without the lock."""
        with self._commit_lock:
            if self.current.events:
                self._lead()

    def trim_events(self, before_ms: int, max_bytes: int) -> bool:
        """Drop a slice of events that are older, or too many; True if there is more. Without the lock."""
        environment = self._environment
        if environment.events is None:
            return False
        with self._commit_lock:
            with environment.write() as txn:
                has_more = trim_slice(txn, environment, before_ms, max_bytes)
            if has_more:
                with self.lock.urgent():
                    environment.renew()
        return has_more

    # Committing

    def ticket(self) -> int:
        """Return the number of the newest batch with changes, 0 if everything is durable."""
        if self.current:
            return self.current.number
        return 0 if self.inflight is None else self.inflight.number

    def sync(self, ticket: int) -> None:
        """Block until the batch `ticket` is durable; InsufficientResources if it was dropped. Without the lock."""
        while ticket > self.synced and not self._has_failed(ticket):
            with self._turn:
                if self._is_led:
                    self._turn.wait()
                    continue
                self._is_led = True
            try:
                with self._commit_lock:
                    if ticket > self.synced and not self._has_failed(ticket):
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

    def _lead(self) -> None:
        """Commit the current batch. The commit lock is held."""
        environment = self._environment
        txn: lmdb.Transaction[bytes] | None = None
        try:
            with self.lock.urgent():
                if self.current.publications:
                    self.counters.reserve_for_long()
                batch = self._swap()
                txn = environment.env.begin(write=True)
                batch.write(txn, environment)
                batch.counters = self.counters.write(txn)
            for publication in batch.publications:
                publication.write(txn, environment, self.lock)
            txn.commit()
        except BaseException as error:
            if txn is not None:
                with suppress(lmdb.Error):  # a commit that failed has ended it
                    txn.abort()
            with self.lock.urgent():
                self._fail(error)
            if not isinstance(error, lmdb.Error | OSError | InsufficientResources):
                raise
        else:
            with self.lock.urgent():
                self._complete(batch)
            environment.memory.touch(batch.cost())

    def close(self) -> None:
        """Commit what is left and write the counters as they are. Without the lock."""
        self.maintenance.stop()
        with self.lock:
            ticket = self.ticket()
        self.sync(ticket)
        self.flush_events()
        try:
            with self._commit_lock, self.lock, self._environment.write() as txn:
                self.counters.write_exact(txn)
        except InsufficientResources as error:
            _LOG.warning("counters will go on behind a gap: %s", error)

    def _maintain(self) -> bool:
        """Do what nobody waits for; True if there is more to do."""
        with self._commit_lock:
            if self.counters.wanting or self._is_flush_wanted:
                self._is_flush_wanted = False
                self._lead()
            return self._sweep()

    def _sweep(self) -> bool:
        """Delete a slice of what was dropped. The commit lock is held."""
        environment = self._environment
        with self.lock.urgent():
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
        with self.lock.urgent():
            environment.renew()
        environment.memory.touch(1 << 20)
        return True

    def _swap(self) -> Batch:
        batch = self.inflight = self.current
        self.current = Batch(batch.number + 1)
        batch.freeze(self.visibility.last)
        if self.events is not None:
            batch.event_horizon = self.events.closed()
        return batch

    def _complete(self, batch: Batch) -> None:
        self._environment.renew()
        self.inflight = None
        for queue, layer in batch.queues.items():
            if queue.inflight is layer:
                queue.inflight = None
            queue.forget_runs()
        for queue, totals in batch.totals.items():
            queue.synced = totals
        for table in batch.tables:
            table.inflight = None
            table.forget_runs()
        for publication in batch.publications:
            publication.complete()
        for counter, limit in batch.counters:
            counter.settle(limit)
        self.horizon_synced = batch.horizon
        if self.events is not None:
            self.events.completed(batch.event_horizon)
        self.synced = batch.number
        self._allocation.wrote(batch.size())
        if any(table.name == "garbage" for table in batch.tables):
            self.maintenance.wake()
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
        """Drop everything unsynced and go back to the snapshot."""
        dropped = [batch for batch in (self.inflight, self.current) if batch is not None]
        _LOG.error("the store cannot write, batches %s are dropped: %s", [batch.number for batch in dropped], error)
        last = self.current.number
        first = dropped[0].number
        if self._failed and self._failed[-1][1] == first - 1:
            self._failed[-1][1] = last
        else:
            self._failed.append([first, last])
        self.inflight = None
        self.current = Batch(last + 1)
        if self.events is not None:
            self.events.completed(self.events.closed())
        for batch in dropped:
            for queue in batch.queues:
                queue.go_back()
            for table in batch.tables:
                table.current = table.inflight = None
                table.forget_runs()
        try:
            self._environment.renew()
        except lmdb.Error:
            self._environment.reopen()
        self.counters.want_all()
        self._allocation.ensure()
        for batch in dropped:
            self._tell(self.on_failed, batch.number)
