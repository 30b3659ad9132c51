"""The store: messages by queue and lookup id, metadata tables, counters, in one durable batch after another."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

from lanner.model.enums import PositionState
from lanner.model.errors import StoreCorrupt
from lanner.store.commit import GroupCommit
from lanner.store.counters import Counter
from lanner.store.environment import DEFAULT_MAP_SIZE, Environment
from lanner.store.record import HEADER_SIZE, MESSAGE_KEY, Record, stored_visibility
from lanner.store.table import Table

__all__ = ["DEFAULT_RESERVE", "Store"]

log = logging.getLogger(__name__)

# Ours: room kept on the disk so that messages can still be received when it is full.
DEFAULT_RESERVE = 16 << 20


class Store:
    """An open data directory.

    The caller holds `lock` for every method, except `sync` and `close`, which need it free.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.lock = threading.RLock()
        self._commits = GroupCommit(environment, self.lock)
        self._queues = self._commits.queues
        self._number = self._commits.visibility.next
        self.refuses_sends = False

    @classmethod
    def open(cls, path: Path | str, *, map_size: int = DEFAULT_MAP_SIZE, reserve: int = DEFAULT_RESERVE) -> Self:  # noqa: ARG003
        """Open a data directory, made if it is not there."""
        path = Path(path)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls(Environment(path, map_size))

    # Messages

    def put(self, queue: int, lookup_id: int, record: Record, *, express: bool) -> None:
        """Put a message, or replace it. An Available one gets the next visibility number, a Locked one 0."""
        number = self._number() if record.state is PositionState.AVAILABLE else 0
        view = self._queues.get(queue) or self._commits.queue(queue)
        view.put(lookup_id, record, number, express=express)

    def delete(self, queue: int, lookup_id: int, record: Record) -> None:
        """Delete a message; `record` is as last seen."""
        view = self._queues.get(queue) or self._commits.queue(queue)
        view.delete(lookup_id, record)

    def get(self, queue: int, lookup_id: int) -> Record | None:
        """Return a message, None if there is none; one that fails its checksum is put aside and counts as none."""
        view = self._queues.get(queue) or self._commits.queue(queue)
        try:
            return view.get(lookup_id)
        except StoreCorrupt as error:
            self._quarantine(queue, lookup_id, error)
            return None

    def next(self, queue: int, after: int) -> int | None:
        """Return the lowest lookup id above `after` (-1: from the start)."""
        return (self._queues.get(queue) or self._commits.queue(queue)).next(after)

    def previous(self, queue: int, before: int) -> int | None:
        """Return the highest lookup id below `before`."""
        return (self._queues.get(queue) or self._commits.queue(queue)).previous(before)

    def stats(self, queue: int) -> tuple[int, int]:
        """Return the number of messages and the bytes of their packets, express ones included."""
        view = self._commits.queue(queue)
        return view.messages + view.express_messages, view.size + view.express_size

    def _quarantine(self, queue: int, lookup_id: int, error: StoreCorrupt) -> None:
        view = self._commits.queue(queue)
        raw = view.raw(lookup_id)
        if raw is None:
            return
        key = MESSAGE_KEY.pack(queue, view.generation, lookup_id)
        log.error("queue %d, message %#018x is corrupt and put aside as %s: %s", queue, lookup_id, key.hex(), error)
        self.table("quarantine").put(key, raw)
        view.hide(lookup_id, len(raw) - HEADER_SIZE, stored_visibility(raw))

    # Metadata

    def table(self, name: str) -> Table:
        """Return a metadata table; it exists as soon as it has a row."""
        return self._commits.table(name)

    def counter(self, name: str, block: int = 1 << 16) -> Counter:
        """Return a persistent counter. `block`: how many values at most are left out after a crash."""
        return self._commits.counters.get(name, block)

    # Durability

    def ticket(self) -> int:
        """Return the number of the newest unsynced batch, 0 if there is none. Durable when `synced` reaches it."""
        return self._commits.ticket()

    @property
    def synced(self) -> int:
        return self._commits.synced

    def sync(self, ticket: int) -> None:
        """Block until batch `ticket` is durable; InsufficientResources if it could not be written. Without the lock."""
        self._commits.sync(ticket)

    def on_synced(self, callback: Callable[[int], None]) -> None:
        """Have `callback` called with the number of each batch that became durable, under the lock."""
        self._commits.on_synced.append(callback)

    def on_failed(self, callback: Callable[[int], None]) -> None:
        """Have `callback` called with the number of each batch that was dropped, under the lock."""
        self._commits.on_failed.append(callback)

    def close(self) -> None:
        """Make everything durable and close. Without the lock."""
        with self.lock:
            ticket = self.ticket()
        try:
            self.sync(ticket)
            with self.lock, self._environment.write() as txn:
                self._commits.counters.write_exact(txn)
        finally:
            self._environment.close()
