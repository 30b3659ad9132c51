"""What EnableNotification starts: a peek in the background that ends in one event (MC-MQAC 3.11.4.1.9).

Nothing of the message is kept or taken: the client who hears of it reads it, if nobody was faster.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lanner.activex.event import MSMQEvent
from lanner.com.constants import E_INVALIDARG
from lanner.com.objects import ComError
from lanner.model.errors import (
    IllegalCursorAction,
    IOTimeout,
    MessageAlreadyReceived,
    MessageNotFound,
    OperationCancelled,
    QueueDeleted,
    QueueNotAvailable,
    StatusError,
)

if TYPE_CHECKING:
    from lanner.activex.queue import MSMQQueue
    from lanner.com.objects import ComObject, Remote
    from lanner.model.live import Cursor, MessagePosition, OpenQueueDescriptor, WaitingMessageReadOperation

# Ours: notifications that one open queue may have pending at once.
MAX_NOTIFICATIONS: Final = 256


class MqMsgCursor(enum.IntEnum):
    """2.2.2.8 MQMSGCURSOR."""

    MQMSG_FIRST = 0
    MQMSG_CURRENT = 1
    MQMSG_NEXT = 2


class Notification:
    """One call of EnableNotification, until it has fired."""

    def __init__(
        self,
        queue: MSMQQueue,
        descriptor: OpenQueueDescriptor,
        event: ComObject | Remote,
        kind: MqMsgCursor,
        cursor: Cursor | None,
        milliseconds: int,
    ) -> None:
        if not isinstance(event, MSMQEvent):
            # An event of another computer's: what to call on it, no document tells.
            raise ComError(E_INVALIDARG, "Event is no MSMQEvent of this queue manager")
        self._queue = queue
        self._descriptor = descriptor
        self._event = event
        self._kind = kind
        self._cursor = cursor
        self._milliseconds = milliseconds
        self._loop = asyncio.get_running_loop()
        self._reader: WaitingMessageReadOperation | None = None
        self._is_forgotten = False
        self._done: Callable[[Notification], None] | None = None

    def begin(self, done: Callable[[Notification], None]) -> None:
        """Peek, or wait to; `done` is called when there is nothing more to come of it. The event itself comes later, in the loop."""
        self._done = done
        engine = self._queue.environment.engine
        end: MessagePosition | StatusError | None
        with self._queue.environment.lock:
            try:
                end = self._peek()
            except StatusError as error:
                end = error
            if end is None:
                self._reader = engine.last_waiting_read
        if end is not None:
            self._ended(end)

    def _peek(self) -> MessagePosition | None:
        engine, descriptor, cursor = self._queue.environment.engine, self._descriptor, self._cursor
        timeout, on_end = self._milliseconds, self._ended
        if cursor is None:
            return engine.peek_message(descriptor, timeout=timeout, on_end=on_end)
        if self._kind is MqMsgCursor.MQMSG_CURRENT:
            try:
                return engine.peek_message(descriptor, timeout=timeout, cursor=cursor, on_end=on_end)
            except MessageAlreadyReceived:
                # "continually advance the cursor, seeking a suitable message".
                pass
        return engine.peek_next_message(descriptor, cursor, timeout=timeout, on_end=on_end)

    def _ended(self, end: MessagePosition | StatusError) -> None:
        """Called by whichever thread, with or without the lock."""
        self._loop.call_soon_threadsafe(self._fire, end if isinstance(end, StatusError) else None)

    def _fire(self, error: StatusError | None) -> None:
        if self._done is not None:
            self._done(self)
        if self._is_forgotten:
            return
        self._event.fire(self._queue, self._kind, None if error is None else self._code(error))

    def _code(self, error: StatusError) -> int:
        """The ErrorCode of ArrivedError."""
        if isinstance(error, (IOTimeout, IllegalCursorAction)) and not self._milliseconds:
            return MessageNotFound.status
        if isinstance(error, QueueNotAvailable):
            return QueueDeleted.status
        return error.status

    def forget(self) -> None:
        """The queue is closed by its own client: there is nothing to tell."""
        self._is_forgotten = True
        if self._done is not None:
            self._done(self)
        environment = self._queue.environment
        with environment.lock:
            if self._reader is not None and self._reader.is_waiting:
                environment.engine.stop_waiting_read(self._reader, OperationCancelled("the queue was closed"))
