"""The background peeks of EnableNotification, which end in one event (MC-MQAC 3.11.4.1.9).

The peek does not lock or remove the message. The notified client reads it, unless another reader
has removed it first.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from lanner.activex.event import MSMQEvent
from lanner.com.constants import E_INVALIDARG
from lanner.com.objects import ComError
from lanner.host.reads import Read
from lanner.model.errors import (
    IllegalCursorAction,
    IOTimeout,
    MessageAlreadyReceived,
    MessageNotFound,
    QueueDeleted,
    QueueNotAvailable,
    StatusError,
)

if TYPE_CHECKING:
    from lanner.activex.queue import MSMQQueue
    from lanner.com.objects import ComObject, Remote
    from lanner.engine.reading import ReadEnd, ReadStart
    from lanner.model.live import Cursor, OpenQueueDescriptor

# Not in the specification: the maximum number of pending notifications of one open queue.
MAX_NOTIFICATIONS: Final = 256


class MqMsgCursor(enum.IntEnum):
    """2.2.2.8 MQMSGCURSOR."""

    MQMSG_FIRST = 0
    MQMSG_CURRENT = 1
    MQMSG_NEXT = 2


class Notification:
    """One call of EnableNotification, pending until it fires."""

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
            # The event object belongs to another computer. No document says what to call on it.
            raise ComError(E_INVALIDARG, "Event is no MSMQEvent of this queue manager")
        environment = queue.environment
        self._queue = queue
        self._read = Read(environment.engine, environment.committer, descriptor, is_receive=False, cursor=cursor)
        self._event = event
        self._kind = kind
        self._milliseconds = milliseconds
        self._loop = asyncio.get_running_loop()
        self._is_forgotten = False
        self._done: Callable[[Notification], None] | None = None

    def begin(self, done: Callable[[Notification], None]) -> None:
        """Peek or start waiting. The event fires later, on the event loop.

        `done` is called when the notification has ended.
        """
        self._done = done
        try:
            self._read.begin(self._peek)
        except StatusError as error:
            self._loop.call_soon(self._fire, error)
        else:
            self._read.when_over(partial(self._loop.call_soon_threadsafe, self._fire))

    def _peek(self, on_end: ReadEnd) -> ReadStart:
        engine, descriptor, cursor = self._queue.environment.engine, self._read.descriptor, self._read.cursor
        timeout = self._milliseconds
        if cursor is None:
            return engine.peek_message(descriptor, timeout=timeout, on_end=on_end)
        if self._kind is MqMsgCursor.MQMSG_CURRENT:
            try:
                return engine.peek_message(descriptor, timeout=timeout, cursor=cursor, on_end=on_end)
            except MessageAlreadyReceived:
                # "continually advance the cursor, seeking a suitable message".
                pass
        return engine.peek_next_message(descriptor, cursor, timeout=timeout, on_end=on_end)

    def _fire(self, error: StatusError | None = None) -> None:
        if self._done is not None:
            self._done(self)
        if self._is_forgotten:
            return
        end = error or self._read.end
        self._event.fire(self._queue, self._kind, self._code(end) if isinstance(end, StatusError) else None)

    def _code(self, error: StatusError) -> int:
        """Return the ErrorCode of ArrivedError."""
        if isinstance(error, (IOTimeout, IllegalCursorAction)) and not self._milliseconds:
            return MessageNotFound.status
        if isinstance(error, QueueNotAvailable):
            return QueueDeleted.status
        return error.status

    def forget(self) -> None:
        """End the notification without an event, because the client closed the queue."""
        self._is_forgotten = True
        if self._done is not None:
            self._done(self)
        self._read.abandon()
