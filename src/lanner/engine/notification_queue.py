"""The server side of MS-MQCN: the notification queue, and when its messages are processed (3.2).

Notes 3 and 14 delay the processing, so that messages that anyone may send cause few reads of the
directory. The first message starts a timer of one minute, or of the rest of the 15 minutes since
the last processing. When the timer expires, all messages so far are processed in order. If there
are 100 or more, they are dropped, and everything is read from the directory once instead.

Messages are dequeued when they arrive, and only those that can be processed are kept. The timer
processes one after the other and releases the store's lock in between, because each may read the
directory.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from lanner.model.enums import (
    INFINITE,
    AuthenticationLevel,
    QueueAccessType,
    QueueShareMode,
    SenderIdentifierType,
)
from lanner.model.errors import LannerError, RemoteProtocolError, StatusError
from lanner.model.live import WaitingMessageReadOperation
from lanner.security.identity import SYSTEM
from lanner.security.log_lines import log_of_peer
from lanner.wire.change_notification import (
    NOTIFY_QUEUE_NUMBER,
    VERSION_1,
    VERSION_2,
    ChangeNotificationMessage,
)
from lanner.wire.format_name import PrivateFormatName
from lanner.wire.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.engine.core import Core
    from lanner.engine.notification_processing import NotificationProcessing
    from lanner.engine.opening import OpenQueues
    from lanner.engine.reading import Reading
    from lanner.model.live import MessagePosition, OpenQueueDescriptor

_LOG = logging.getLogger(__name__)

# MS-MQCN notes 3 and 14: seconds, and messages.
FIRST_DELAY: Final = 60.0
INTERVAL: Final = 15 * 60.0
OVERFLOW: Final = 100
# Not in the specification: octets of messages that wait. Exceeding it counts as an overflow too.
MAX_WAITING: Final = 4 << 20


class NotificationQueue:
    """Reads the notification queue while the queue manager runs."""

    def __init__(self, core: Core, opening: OpenQueues, reading: Reading, processing: NotificationProcessing) -> None:
        self._queue_manager = core.queue_manager
        self._clocks = core.clocks
        self._is_delayed = core.settings.notifications.is_delayed
        self._opening = opening
        self._reading = reading
        self._processing = processing
        self._descriptor: OpenQueueDescriptor | None = None
        # Messages since the last processing, each with the queue manager that signed it; empty
        # after an overflow.
        self._waiting: list[tuple[ChangeNotificationMessage, uuid.UUID]] = []
        self._waiting_size = 0
        self._count = 0
        # When the timer expires on the monotonic clock; None: it is not running.
        self._due: float | None = None
        self._processed_at: float | None = None
        # The remaining steps of the processing under way.
        self._work: deque[Callable[[], None]] = deque()

    @property
    def is_open(self) -> bool:
        """Whether messages for the notification queue are accepted."""
        return self._descriptor is not None and not self._descriptor.is_closed

    def start(self) -> None:
        """Initialize (3.2.3). In workgroup mode the protocol is not initialized (note 8)."""
        if not self._queue_manager.directory_integrated:
            return
        name = PrivateFormatName(self._queue_manager.identifier, NOTIFY_QUEUE_NUMBER)
        try:
            self._descriptor = self._opening.open_queue(name, QueueAccessType.RECEIVE, QueueShareMode.DENY_NONE, SYSTEM)
        except StatusError as error:
            _LOG.error("change notifications are not processed: %s", error)
            return
        self._read_on(self._descriptor)

    # Receiving ------------------------------------------------------------------------------------

    def _read_on(self, descriptor: OpenQueueDescriptor) -> None:
        """Dequeue the available messages, and wait for more."""

        def came(end: MessagePosition | StatusError) -> None:
            if isinstance(end, StatusError):
                return  # the queue manager stops
            self._received(end)
            self._read_on(descriptor)

        while True:
            found = self._reading.dequeue_message(descriptor, timeout=INFINITE, on_end=came)
            if isinstance(found, WaitingMessageReadOperation):
                return
            self._received(found)

    def _received(self, position: MessagePosition) -> None:
        message = Message(position.record.packet)
        try:
            notification = self._accepted(message)
        except RemoteProtocolError as error:
            source = str(message.source_machine_identifier)
            text = "a change notification of %s is disregarded: %s"
            log_of_peer(_LOG, logging.INFO, "notification", source, text, source, error)
            return
        sender = message.source_machine_identifier
        if notification.version == VERSION_1:
            sender = uuid.UUID(bytes_le=message.sender_identifier)
        self._count += 1
        self._waiting_size += len(notification.data)
        if self._is_overflowing:
            self._waiting.clear()
        else:
            self._waiting.append((notification, sender))
        self._start_timer()

    @staticmethod
    def _accepted(message: Message) -> ChangeNotificationMessage:
        """Return the content of a message that may be processed (3.2.5, 3.2.5.1).

        Raises RemoteProtocolError.
        """
        notification = ChangeNotificationMessage.unpack(message.body)
        if notification.version == VERSION_1:
            if message.sender_identifier_type is not SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER:
                raise RemoteProtocolError("version 0x01, and its sender is no queue manager")
            if message.authentication_level == AuthenticationLevel.NONE:
                raise RemoteProtocolError("version 0x01 without a signature")
        elif notification.version == VERSION_2:
            # Decoded now, so that a malformed message starts no timer.
            _ = notification.notification_body
        else:
            raise RemoteProtocolError(f"Version {notification.version:#04x}")
        return notification

    @property
    def _is_overflowing(self) -> bool:
        return self._count >= OVERFLOW or self._waiting_size > MAX_WAITING

    # The timer (notes 3 and 14) -------------------------------------------------------------------

    def _start_timer(self) -> None:
        """Start the timer unless it is running."""
        if self._due is not None:
            return
        now = self._clocks.monotonic()
        delay = 0.0
        if self._is_delayed:
            since = INTERVAL if self._processed_at is None else now - self._processed_at
            delay = max(FIRST_DELAY, INTERVAL - since)
        self._due = now + delay
        self._clocks.deadline_changed()

    def next_deadline(self) -> float | None:
        """Return when `on_timer` is next due, on the monotonic clock."""
        return self._clocks.monotonic() if self._work else self._due

    def on_timer(self) -> None:
        """Process the waiting messages, one notification or one object at a time."""
        now = self._clocks.monotonic()
        if not self._work and self._due is not None and self._due <= now:
            self._due = None
            self._processed_at = now
            self._plan()
        if self._work:
            try:
                self._work.popleft()()
            except LannerError as error:
                _LOG.warning("an object of the directory cannot be applied here: %s", error)

    def _plan(self) -> None:
        waiting, is_overflow = self._waiting, self._is_overflowing
        self._waiting, self._waiting_size, self._count = [], 0, 0
        process = self._processing
        if not is_overflow:
            self._work.extend(partial(process.process, message, sender) for message, sender in waiting)
            return
        _LOG.warning("too many change notifications: all public queues are read from the directory instead")
        # DECISIONS: the notes mention only queues, which would lose events 1 and 4. No queue is
        # deleted.
        self._work.append(process.refresh_queue_manager)
        self._work.extend(partial(process.refresh_queue, identifier) for identifier in process.public_queues())
        self._work.append(self._plan_missing)

    def _plan_missing(self) -> None:
        process = self._processing
        self._work.extend(partial(process.create_from_directory, identifier) for identifier in process.missing_queues())
