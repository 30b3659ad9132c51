"""The order in which messages leave (MS-MQDMPR 3.1.7.1.28, 3.1.7.1.29, 3.1.7.1.34, 3.1.7.3.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.engine.waiting import is_available
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import OutgoingState, PositionState
from lanner.model.live import DispatchEntry
from lanner.wire.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.engine.core import Core
    from lanner.model.live import MessagePosition


class Dispatch:
    """DispatchCollection: at most one send in progress, the highest priority first."""

    def __init__(self, core: Core) -> None:
        self._store = core.store
        self._queue_manager = core.queue_manager
        # Sends an entry over MS-MQQB. MC-MQSRM, for entries without ProtocolData, is not
        # implemented.
        self.send_user_message: Callable[[DispatchEntry], None] | None = None
        self._is_dispatching = False

    def add_message_to_dispatch_collection(self, position: MessagePosition, protocol_data: object) -> None:
        """3.1.7.1.28 Add Message To Dispatch Collection."""
        priority = position.queue.base_priority + Message(position.record.packet).priority
        entry = DispatchEntry(position, protocol_data, priority)
        self._queue_manager.dispatch_collection.append(entry)
        self.dispatch_send_message(entry)

    def remove_message_from_dispatch_collection(self, position: MessagePosition) -> None:
        """3.1.7.1.29 Remove Message From Dispatch Collection. A missing message is ignored."""
        collection = self._queue_manager.dispatch_collection
        queue, lookup_id = position.queue, position.lookup_id
        # Compared by lookup id: a position that is not held is a new object for each request.
        collection[:] = [
            entry
            for entry in collection
            if entry.message_position.lookup_id != lookup_id or entry.message_position.queue is not queue
        ]
        if collection:
            self.dispatch_send_message()

    def remove_messages_from_dispatch_collection_by_queue(self, queue: OutgoingQueue) -> None:
        """3.1.7.1.34 Remove Messages From Dispatch Collection By Queue."""
        collection = self._queue_manager.dispatch_collection
        collection[:] = [entry for entry in collection if entry.message_position.queue is not queue]

    def dispatch_send_message(self, just_read: DispatchEntry | None = None) -> None:
        """3.1.7.3.9 Dispatch Send Message.

        After a send that completes at once, the loop here starts the next.

        `just_read` is a message that the caller has just read from its queue with the lock held, so
        it is known to be there.
        """
        if self._is_dispatching:
            return
        self._is_dispatching = True
        try:
            while self._send_next(just_read):
                just_read = None
                if not self._queue_manager.dispatch_collection:
                    break
        finally:
            self._is_dispatching = False

    def _send_next(self, just_read: DispatchEntry | None) -> bool:
        best: DispatchEntry | None = None
        for entry in self._queue_manager.dispatch_collection:
            if entry.send_in_progress:
                return False
            if (best is None or entry.priority > best.priority) and self._is_eligible(
                entry.message_position, is_there=entry is just_read
            ):
                best = entry
        if best is None:
            return False
        if self.send_user_message is None:
            return False
        best.send_in_progress = True
        self.send_user_message(best)
        return True

    def _is_eligible(self, position: MessagePosition, *, is_there: bool) -> bool:
        """Return whether a message is still in its queue, which is active and not paused."""
        queue = position.queue
        # DMPR-3.1.7.2.3-1: no message leaves a queue on hold.
        is_paused = isinstance(queue, OutgoingQueue) and queue.state is OutgoingState.ON_HOLD
        if is_paused or not queue.active or position.state is PositionState.DELETED:
            return False
        return (
            is_there
            or position.lookup_id in queue.held_positions
            or is_available(self._store, queue, position.lookup_id)
        )
