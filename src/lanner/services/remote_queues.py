"""Queues that other computers have opened, and their reads (MS-MQQP 3.1.1, MS-MQMP 3.1.1.7).

qmcomm opens a queue and gives it a number; qm2qm reads by that number. The two may come from
different computers: an application opens the queue, and its supporting queue manager reads. The
number alone is therefore the key to the queue (MS-MQQP 2.1). It is random, and a client that
guesses too often is refused (`guesses`).

All code here runs in the event loop's thread, which serializes the collections (MS-MQQP 3.1.1.3,
3.1.1.5). Only the engine may end a wait from another thread.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from lanner.model.enums import QueueAccessType, QueueShareMode, RemoteReadState
from lanner.model.errors import RemoteCanceled, StatusNotFound
from lanner.model.live import OpenQueueDescriptor
from lanner.services.guesses import Guesses

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.host.committer import Committer
    from lanner.host.reads import Read
    from lanner.security.identity import Identity
    from lanner.wire.format_name import FormatName


@dataclass(slots=True, eq=False)
class RemoteReadEntry:
    """RemoteReadEntry (MS-MQQP 3.1.1.2).

    UserMessagePacket is the packet of the position that ended the read.
    """

    queue: RemoteQueue
    open_queue_descriptor_handle: int
    timeout: int  # milliseconds
    action: int
    request_id: int
    read: Read

    @property
    def tag(self) -> tuple[int, int]:
        """The key of Cancel Waiting Message Read Request, unique among all handles of the queue."""
        return self.open_queue_descriptor_handle, self.request_id


@dataclass(slots=True, eq=False)
class OpenQueueEntry:
    """OpenQueueEntry (MS-MQQP 3.1.1.4)."""

    queue: RemoteQueue
    open_queue_descriptor_handle: int
    client_id: UUID


@dataclass(slots=True, eq=False)
class RemoteQueue:
    """An open descriptor, its number, and the entries that refer to it."""

    handle: int
    descriptor: OpenQueueDescriptor
    # The addresses that have used the right number.
    peers: set[str]
    open_entries: list[OpenQueueEntry] = field(default_factory=list)
    # By RequestId.
    pending: dict[int, RemoteReadEntry] = field(default_factory=dict)

    def forget(self, entry: RemoteReadEntry) -> None:
        """Remove a pending entry, unless another one has taken over its identifier."""
        if self.is_pending(entry):
            del self.pending[entry.request_id]

    def is_pending(self, entry: RemoteReadEntry) -> bool:
        """Return whether a read waits, or has ended and is not answered yet."""
        return self.pending.get(entry.request_id) is entry


class RemoteQueues:
    """The remotely opened queues of one queue manager; qmcomm and qm2qm share them."""

    def __init__(self, engine: Engine, committer: Committer, guesses: Guesses | None = None) -> None:
        self.engine = engine
        self.lock = engine.store.lock
        self.committer = committer
        self._queues: dict[int, RemoteQueue] = {}
        self._guesses = Guesses() if guesses is None else guesses

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def open_queue_entries(self) -> Iterator[OpenQueueEntry]:
        """Iterate over rOpenQueueEntryCollection (MS-MQQP 3.1.1.5)."""
        return (entry for queue in self._queues.values() for entry in queue.open_entries)

    @property
    def remote_read_entries(self) -> Iterator[RemoteReadEntry]:
        """Iterate over rRemoteReadEntryCollection (MS-MQQP 3.1.1.3)."""
        return (entry for queue in self._queues.values() for entry in queue.pending.values())

    def find(self, handle: int, peer: str) -> RemoteQueue | None:
        """Return the open queue of a number that a peer sent; None if it is wrong."""
        queue = self._queues.get(handle)
        if queue is not None and peer in queue.peers:
            return queue
        if not self._guesses.may_guess(peer):
            return None
        if queue is None:
            self._guesses.was_wrong(peer)
            return None
        queue.peers.add(peer)
        return queue

    def find_ready(self, handle: int, peer: str) -> RemoteQueue | None:
        """Return the open queue of a number if RemoteQMOpenQueue has made it ready to read."""
        queue = self.find(handle, peer)
        return queue if queue is not None and queue.open_entries else None

    def open(
        self, name: FormatName, access: QueueAccessType, share_mode: QueueShareMode, identity: Identity, peer: str
    ) -> RemoteQueue:
        """Open a queue for another computer (MS-MQMP 3.1.4.2)."""
        with self.committer.change() as change:
            descriptor = self.engine.open_queue(name, access, share_mode, identity)
            descriptor.remote_read_state = RemoteReadState.OPENED
        # Opening may have created a subqueue.
        change.soon()
        queue = RemoteQueue(self._new_handle(), descriptor, {peer})
        self._queues[queue.handle] = queue
        return queue

    def close(self, queue: RemoteQueue) -> None:
        """Cancel waiting reads, then close the queue, which returns unacknowledged messages."""
        if self._queues.pop(queue.handle, None) is None:
            return
        for entry in list(queue.pending.values()):
            with contextlib.suppress(StatusNotFound):
                self.cancel(entry)
        with self.committer.change() as change:
            self.engine.close_queue(queue.descriptor)
        change.soon()

    def cancel(self, entry: RemoteReadEntry) -> None:
        """Cancel a pending read; raise StatusNotFound if it no longer waits (MS-MQQP 3.1.4.6)."""
        entry.queue.forget(entry)
        with self.lock:
            queue = entry.queue.descriptor.queue
            if queue is None:
                raise StatusNotFound(f"{entry.queue.descriptor.format_name}: the queue was deleted")
            self.engine.cancel_waiting_message_read_request(queue, entry.tag, RemoteCanceled())

    def _new_handle(self) -> int:
        while True:
            handle = secrets.randbits(32)
            if handle and handle not in self._queues:
                return handle
