"""The cursor (MS-MQDMPR 3.2) and the events that open and close one (3.1.7.1.1, 3.1.7.1.2).

A cursor is a lookup id and a state. `ANSWERS` is the state machine: in each state, an event seeks,
examines the current message, or is illegal. A second operation on a cursor that already waits is
illegal too (DMPR-3.2.1.2-2), so every pair has an answer.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from lanner.model.enums import CursorState
from lanner.model.errors import IllegalCursorAction, InvalidHandle, MessageAlreadyReceived, OperationCancelled
from lanner.model.live import END, START, Cursor, MessagePosition

if TYPE_CHECKING:
    from lanner.engine.core import Core
    from lanner.engine.positions import Positions
    from lanner.model.live import OpenQueueDescriptor


class CursorEvent(enum.Enum):
    """MS-MQDMPR 3.2.7.2 to 3.2.7.4."""

    GET_MESSAGE_FOR_PEEK = "Get Message For Peek"
    GET_NEXT_MESSAGE_FOR_PEEK = "Get Next Message For Peek"
    GET_NEXT_MESSAGE_FOR_DEQUEUE = "Get Next Message For Dequeue"


class Answer(enum.Enum):
    """The action of a cursor for an event."""

    SEEK = "take the next message after the cursor"
    CURRENT = "take the message under the cursor"
    ILLEGAL = "MQ_ERROR_ILLEGAL_CURSOR_ACTION"


ANSWERS: dict[tuple[CursorState, CursorEvent], Answer] = {
    (CursorState.UNREAD, CursorEvent.GET_MESSAGE_FOR_PEEK): Answer.SEEK,
    (CursorState.READ, CursorEvent.GET_MESSAGE_FOR_PEEK): Answer.CURRENT,
    (CursorState.UNREAD, CursorEvent.GET_NEXT_MESSAGE_FOR_PEEK): Answer.ILLEGAL,
    (CursorState.READ, CursorEvent.GET_NEXT_MESSAGE_FOR_PEEK): Answer.SEEK,
    (CursorState.UNREAD, CursorEvent.GET_NEXT_MESSAGE_FOR_DEQUEUE): Answer.SEEK,
    (CursorState.READ, CursorEvent.GET_NEXT_MESSAGE_FOR_DEQUEUE): Answer.CURRENT,
}
for _event in CursorEvent:
    ANSWERS[CursorState.WAIT_PEEK, _event] = Answer.ILLEGAL
    ANSWERS[CursorState.WAIT_RECEIVE, _event] = Answer.ILLEGAL

# The state after a message was found.
FOUND: dict[CursorEvent, CursorState] = {
    CursorEvent.GET_MESSAGE_FOR_PEEK: CursorState.READ,
    CursorEvent.GET_NEXT_MESSAGE_FOR_PEEK: CursorState.READ,
    CursorEvent.GET_NEXT_MESSAGE_FOR_DEQUEUE: CursorState.UNREAD,
}
# The state during a wait for a message, and the state after it (3.2.7.5, 3.2.7.6).
WAITING: dict[CursorEvent, CursorState] = {
    CursorEvent.GET_MESSAGE_FOR_PEEK: CursorState.WAIT_PEEK,
    CursorEvent.GET_NEXT_MESSAGE_FOR_PEEK: CursorState.WAIT_PEEK,
    CursorEvent.GET_NEXT_MESSAGE_FOR_DEQUEUE: CursorState.WAIT_RECEIVE,
}
MESSAGE_AVAILABLE: dict[CursorState, CursorState] = {
    CursorState.WAIT_PEEK: CursorState.READ,
    CursorState.WAIT_RECEIVE: CursorState.UNREAD,
}


class Cursors:
    """Events on cursors."""

    def __init__(self, core: Core, positions: Positions) -> None:
        self._store = core.store
        self._numbers = core.numbers
        self.positions = positions
        self._waiting = positions.waiting

    def open_cursor(self, descriptor: OpenQueueDescriptor) -> Cursor | None:
        """3.1.7.1.1 Open Cursor and 3.2.7.1 Initialize.

        Returns None if the descriptor has no queue.
        """
        if descriptor.queue is None:
            return None
        cursor = Cursor(self._numbers.next_handle(), descriptor)
        descriptor.cursors.append(cursor)
        return cursor

    def close_cursor(self, cursor: Cursor) -> None:
        """3.1.7.1.2 Close Cursor. Ends the waiting reads of this cursor only."""
        descriptor = cursor.descriptor
        readers = [reader for reader in descriptor.waits if reader.cursor is cursor]
        self._waiting.stop_all(readers, OperationCancelled("the cursor was closed"))
        cursor.is_closed = True
        if cursor in descriptor.cursors:
            descriptor.cursors.remove(cursor)

    def get_message(self, cursor: Cursor, event: CursorEvent, *, no_wait: bool) -> MessagePosition | None:
        """Get the message for an event (3.2.7.2 to 3.2.7.4); return None if no message is ahead.

        The cursor then waits, except in a dequeue with `no_wait`.
        """
        if cursor.is_closed:
            raise InvalidHandle(f"cursor {cursor.handle} is closed")
        answer = ANSWERS[cursor.state, event]
        if answer is Answer.ILLEGAL:
            raise IllegalCursorAction(f"{event.value} on cursor {cursor.handle}, which is {cursor.state.value}")
        queue = cursor.descriptor.queue
        if queue is None:
            return None
        is_dequeue = event is CursorEvent.GET_NEXT_MESSAGE_FOR_DEQUEUE
        if answer is Answer.CURRENT:
            position = self._current_of(cursor)
            if is_dequeue:
                cursor.state = CursorState.UNREAD
            return position
        initial = cursor.parked_after if cursor.position == END else cursor.position
        found = self.positions.seek_available_message_position(queue, initial, peek=not is_dequeue)
        if found is not None:
            cursor.position = found.lookup_id
            cursor.state = FOUND[event]
        elif not (is_dequeue and no_wait):
            cursor.state = WAITING[event]
        return found

    def _current_of(self, cursor: Cursor) -> MessagePosition:
        """Return the message under a cursor in state Read, if it is still Available."""
        queue = cursor.descriptor.queue
        if queue is not None and cursor.position not in queue.held_positions:
            record = self._store.get(queue.number, cursor.position)
            if record is not None:
                return MessagePosition(queue, cursor.position, record)
        raise MessageAlreadyReceived(f"the message under cursor {cursor.handle} was taken by another reader")

    @staticmethod
    def message_available(cursor: Cursor, position: MessagePosition) -> None:
        """3.2.7.5 Message Available."""
        cursor.position = position.lookup_id
        cursor.state = MESSAGE_AVAILABLE[cursor.state]

    def wait_time_expired(self, cursor: Cursor) -> None:
        """3.2.7.6 Wait Time Expired. A waiting receive moves to End; a peek keeps its place."""
        if cursor.state is CursorState.WAIT_RECEIVE:
            queue = cursor.descriptor.queue
            tail = None if queue is None else self._store.previous(queue.number, END)
            cursor.position = END
            cursor.parked_after = START if tail is None else tail
        cursor.state = CursorState.UNREAD
