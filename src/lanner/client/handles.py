"""The open handles behind one `Queue` object, shared by both APIs."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from lanner.client.operations import Outcome
from lanner.model.enums import QueueAccessType, QueueShareMode

if TYPE_CHECKING:
    from lanner.client.operations import Operations
    from lanner.model.live import OpenQueueDescriptor


class Handles:
    """One handle per access, opened when it is first needed, by whichever thread needs it."""

    def __init__(self, operations: Operations, name: str, owner: object, *, exclusive: bool) -> None:
        self._operations = operations
        self._name = name
        self._exclusive = exclusive
        self._open: dict[QueueAccessType, OpenQueueDescriptor] = {}
        # A queue object that is forgotten instead of closed must not keep its queue open.
        weakref.finalize(owner, operations.runtime.abandon, self._open.values()).atexit = False

    def cached(self, access: QueueAccessType) -> OpenQueueDescriptor | None:
        """The handle, if it is open; one whose queue was deleted is of no more use."""
        handle = self._open.get(access)
        return handle if handle is not None and (handle.queue is not None or handle.multiple) else None

    def open(self, access: QueueAccessType) -> Outcome[OpenQueueDescriptor]:
        """Open the queue for an access, unless another thread has done so meanwhile."""
        share_mode = QueueShareMode.DENY_NONE
        if self._exclusive and access is QueueAccessType.RECEIVE:
            share_mode = QueueShareMode.DENY_RECEIVE
        with self._operations.lock:
            handle = self.cached(access)
            if handle is not None:
                return Outcome(handle, 0)
            outcome = self._operations.open(self._name, access, share_mode)
            stale = self._open.get(access)
            if stale is not None:
                self._operations.close(stale)
            self._open[access] = outcome.value
            return outcome

    def close(self) -> None:
        """Close them all; reads that wait on them end."""
        with self._operations.lock:
            handles = list(self._open.values())
            self._open.clear()
            for handle in handles:
                self._operations.close(handle)
