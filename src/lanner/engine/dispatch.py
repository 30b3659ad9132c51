"""The order in which messages leave for other computers (MS-MQDMPR 3.1.7.1.28, .29, .34, 3.1.7.3.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.engine.transactions import Transactions
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import OutgoingState, PositionState
from lanner.model.live import DispatchEntry
from lanner.wire.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.model.directory_objects import Queue
    from lanner.model.live import MessagePosition


class Dispatch(Transactions):
    """DispatchCollection: at most one send in progress, the highest priority first."""

    # Sends an entry over MS-MQQB. MC-MQSRM, for entries without ProtocolData, is not implemented.
    send_user_message: Callable[[DispatchEntry], None] | None = None
    _is_dispatching = False

    def add_message_to_dispatch_collection(self, position: MessagePosition, protocol_data: object) -> None:
        """3.1.7.1.28 Add Message To Dispatch Collection."""
        priority = position.queue.base_priority + Message(position.record.packet).priority
        entry = DispatchEntry(position, protocol_data, priority)
        self.queue_manager.dispatch_collection.append(entry)
        self._dispatch_send_message(entry)

    def remove_message_from_dispatch_collection(self, position: MessagePosition) -> None:
        """3.1.7.1.29 Remove Message From Dispatch Collection; harmless when it is not there."""
        collection = self.queue_manager.dispatch_collection
        place = (position.queue, position.lookup_id)
        collection[:] = [entry for entry in collection if _place(entry) != place]
        if collection:
            self._dispatch_send_message()

    def remove_messages_from_dispatch_collection_by_queue(self, queue: OutgoingQueue) -> None:
        """3.1.7.1.34 Remove Messages From Dispatch Collection By Queue."""
        collection = self.queue_manager.dispatch_collection
        collection[:] = [entry for entry in collection if entry.message_position.queue is not queue]

    def resume_queue(self, queue: OutgoingQueue) -> None:
        """3.1.7.2.4 Resume Queue: what was dispatched for it may leave now."""
        super().resume_queue(queue)
        self._dispatch_send_message()

    def _dispatch_send_message(self, just_read: DispatchEntry | None = None) -> None:
        """3.1.7.3.9 Dispatch Send Message. A send that is done at once is followed here, not from inside it.

        `just_read`: a message that the caller has read from its queue under this hold of the lock, so it is there.
        """
        if self._is_dispatching:
            return
        self._is_dispatching = True
        try:
            while self._send_next(just_read):
                just_read = None
                if not self.queue_manager.dispatch_collection:
                    break
        finally:
            self._is_dispatching = False

    def _send_next(self, just_read: DispatchEntry | None) -> bool:
        best: DispatchEntry | None = None
        for entry in self.queue_manager.dispatch_collection:
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
        """Its queue is active and not paused, and it is not deleted: also where nobody held it when it went."""
        queue = position.queue
        if not queue.active or _is_paused(queue) or position.state is PositionState.DELETED:
            return False
        return is_there or position.lookup_id in queue.held_positions or self._is_available(queue, position.lookup_id)


def _place(entry: DispatchEntry) -> tuple[Queue, int]:
    """A position that nobody holds is made anew each time it is asked for, so equal means the same place."""
    return entry.message_position.queue, entry.message_position.lookup_id


def _is_paused(queue: Queue) -> bool:
    """Nothing leaves a queue on hold (DMPR-3.1.7.2.3-1)."""
    return isinstance(queue, OutgoingQueue) and queue.state is OutgoingState.ON_HOLD
