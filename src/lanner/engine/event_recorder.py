"""The recorder: one row in the log of events per event of a message (`model.events`), and a call to who wants to hear of it.

An engine without a log of events and without a listener has no recorder; its parts compare one attribute with None. The
fields of a row are taken from their places in the packet (`wire.envelope`); nothing is decoded.
Every method is called with the store's lock held.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

from lanner.engine.queue_kinds import queue_kind, queue_text
from lanner.engine.tables import QUEUE_KEY
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import MessageClass
from lanner.model.errors import InsufficientResources
from lanner.model.events import EventKind
from lanner.store.event_log import EVENT
from lanner.wire import layout as at
from lanner.wire.envelope import event_fields
from lanner.wire.fields import source_queue_manager

if TYPE_CHECKING:
    from lanner.engine.clocks import Clocks
    from lanner.engine.settings import EngineSettings, EventListener
    from lanner.model.directory_objects import Queue, QueueManager
    from lanner.model.live import MessagePosition
    from lanner.store import Store
    from lanner.store.staging import EventMaker

_LOG = logging.getLogger(__name__)

# QUEUE_KEY: JSON of the name and the kind of a queue that has events; the row outlives the queue.
EVENT_QUEUES: Final = "event_queues"

# EVENT's flags.
RECOVERABLE: Final = 0x01
TRANSACTIONAL: Final = 0x02

REMOVALS: Final = {
    MessageClass.ACK_RECEIVE: EventKind.RECEIVED,
    MessageClass.NACK_RECEIVE_TIMEOUT: EventKind.EXPIRED,
    MessageClass.NACK_REACH_QUEUE_TIMEOUT: EventKind.EXPIRED,
}

_pack = EVENT.pack
_DM_SHIFT, _TH = at.DM_SHIFT, at.TH


class EventRecorder:
    """Writes events.

    `start` must be called when the queue manager has its identifier and system queues.
    """

    def __init__(
        self,
        store: Store,
        queue_manager: QueueManager,
        clocks: Clocks,
        *,
        listener: EventListener | None = None,
        is_kept: bool = True,
    ) -> None:
        """`listener` hears of each event; with `is_kept` it is in the log, too."""
        self._store = store
        self._listener = listener
        self._is_kept = is_kept
        self._queue_manager = queue_manager
        self._clocks = clocks
        self._append = store.events.add
        self._queues = store.table(EVENT_QUEUES)
        self._source = b""
        # Numbers of the queues whose name and kind are written.
        self._named: set[int] = set()
        self._is_full = False
        # Numbers of the protocols' own queues. Their messages have no events.
        self._inner: frozenset[int] = frozenset()

    def start(self) -> None:
        """Take over the identifier and the system queues of the queue manager."""
        qm = self._queue_manager
        self._source = qm.identifier.bytes_le
        inner = (qm.order_acknowledgment_queue, qm.change_notification_queue, qm.awaiting_final_ack_queue)
        self._inner = frozenset(queue.number for queue in inner if queue is not None)
        self._store.on_failed(self._forget_names)

    def _forget_names(self, _batch: int) -> None:
        self._named.clear()

    def arrived(self, position: MessagePosition) -> None:
        """Record that a message came to a queue from outside it."""
        queue, record = position.queue, position.record
        packet = record.packet
        self.tell(self._arrival(queue, packet), queue, position.lookup_id, packet, record.visibility)

    def _arrival(self, queue: Queue, packet: bytes) -> EventKind:
        if source_queue_manager(packet) != self._source:
            return EventKind.TRANSFERRED_IN
        return EventKind.SENT if isinstance(queue, OutgoingQueue) else EventKind.ARRIVED

    def removed(self, position: MessagePosition, reason: MessageClass) -> None:
        """Record that a message left its queue for a reason."""
        record = position.record
        kind = REMOVALS.get(reason, EventKind.PURGED)
        self.tell(kind, position.queue, position.lookup_id, record.packet, record.visibility, reason)

    def add(self, kind: EventKind, position: MessagePosition, reason: int = 0, target: Queue | None = None) -> None:
        """Record an event of a message in a queue."""
        queue, record = position.queue, position.record
        self.tell(kind, queue, position.lookup_id, record.packet, record.visibility, reason, target)

    def tell(
        self,
        kind: EventKind,
        queue: Queue | None,
        lookup_id: int,
        packet: bytes,
        visibility: int = 0,
        reason: int = 0,
        target: Queue | None = None,
    ) -> None:
        """Record an event of a message that has no position."""
        number = 0 if queue is None else queue.number
        if number in self._inner:
            return
        if self._listener is not None:
            self._listener(kind, queue, lookup_id, packet, reason)
        if not self._is_kept or ((self._is_full or self._store.refuses_sends) and self._has_no_room()):
            return
        if queue is not None and number not in self._named:
            self._name(queue)
        if target is not None and target.number not in self._named:
            self._name(target)
        now = int(self._clocks.wall() * 1000)
        other = 0 if target is None else target.number
        try:
            self._append(event_row(kind, now, number, lookup_id, packet, visibility, reason, other))
        except InsufficientResources as error:
            # The event itself has happened and is not undone.
            _LOG.warning("an event is not in the log: %s", error)

    def _has_no_room(self) -> bool:
        """Whether the disk is full. The room that is left is reserved for receiving."""
        is_full = self._store.refuses_sends
        if is_full is not self._is_full:
            self._is_full = is_full
            _LOG.warning("the disk is full: no events are written" if is_full else "events are written again")
        return is_full

    def published(self, number: int) -> EventMaker:
        """Return the function that makes the events of messages that are published to a queue."""
        queue = self._queue_manager.queue_collection[number]
        if self._is_kept and number not in self._named:
            self._name(queue)
        now = int(self._clocks.wall() * 1000)
        arrival, listener, is_kept = self._arrival, self._listener, self._is_kept

        def make(lookup_id: int, packet: bytes, visibility: int) -> bytes:
            kind = arrival(queue, packet)
            if listener is not None:
                listener(kind, queue, lookup_id, packet, 0)
            return event_row(kind, now, number, lookup_id, packet, visibility, 0, 0) if is_kept else b""

        return make

    def _name(self, queue: Queue) -> None:
        """Write the name and the kind of a queue, so that they are known after its deletion."""
        number = queue.number
        self._named.add(number)
        value = json.dumps([queue_text(self._queue_manager, queue), queue_kind(self._queue_manager, queue)]).encode()
        key = QUEUE_KEY.pack(number)
        if self._queues.get(key) != value:
            self._queues.put(key, value)


def event_row(
    kind: int, now: int, queue: int, lookup_id: int, packet: bytes, visibility: int, reason: int, target: int
) -> bytes:
    """Return the row of one event; `now` is in milliseconds."""
    sent_time, ordinal, flags, message_class, correlation = event_fields(packet)
    return _pack(
        now,
        lookup_id,
        visibility,
        queue,
        target,
        len(packet),
        sent_time,
        message_class,
        reason,
        kind,
        (flags >> _DM_SHIFT & 1) | (TRANSACTIONAL if flags & _TH else 0),
        source_queue_manager(packet),
        ordinal,
        correlation,
    )


def make_recorder(
    store: Store, queue_manager: QueueManager, clocks: Clocks, settings: EngineSettings
) -> EventRecorder | None:
    """Return what the settings ask for."""
    is_kept, listener = settings.event_settings is not None, settings.event_listener
    if not is_kept and listener is None:
        return None
    return EventRecorder(store, queue_manager, clocks, listener=listener, is_kept=is_kept)
