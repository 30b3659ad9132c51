"""What the engine tells the log of events: one row for each thing that happens to a message (`model.events`).

An engine without a recorder asks one attribute for each such thing, and does nothing more. With one, the fields of the row are taken from their
places in the packet, which the engine has in its hands anyway; nothing is decoded.
"""

from __future__ import annotations

import json
import logging
import struct
from typing import TYPE_CHECKING, Final

from lanner.engine.queue_kinds import queue_kind, queue_text
from lanner.engine.tables import QUEUE_KEY
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import MessageClass
from lanner.model.errors import InsufficientResources
from lanner.model.events import EventKind
from lanner.store.event_log import EVENT
from lanner.wire import layout as at
from lanner.wire.queue_names import NAME_SIZES

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.engine.engine import Engine
    from lanner.model.directory_objects import Queue
    from lanner.model.live import MessagePosition
    from lanner.store.staging import EventMaker

_LOG = logging.getLogger(__name__)

# QUEUE_KEY: JSON of the name and the kind of a queue that events tell of, kept when the queue is gone.
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
_fixed = struct.Struct("<52xIII").unpack_from  # UserHeader: SentTime, MessageID, Flags
_properties = struct.Struct("<2xH20s").unpack_from  # MessagePropertiesHeader: MessageClass, CorrelationID
_u16 = struct.Struct("<H").unpack_from
_security_sizes = struct.Struct("<2xHHHII").unpack_from

_AFTER_COUNT: Final = at.DESTINATION_OFFSET + 2
_SHAPE: Final = at.TH | at.CQ | 7 << at.DQ_SHIFT | 7 << at.AQ_SHIFT | 7 << at.RQ_SHIFT
_DIRECT_ONLY: Final = 7 << at.DQ_SHIFT


class EventRecorder:
    """Methods are called with the store's lock held."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store
        self._clock: Callable[[], float] = engine.clock
        self._log = engine.store.events
        self._append = self._log.add
        self._source = engine.queue_manager.identifier.bytes_le
        self._queues = engine.store.table(EVENT_QUEUES)
        self._named: set[int] = set()
        self._is_full = False
        qm = engine.queue_manager
        # What the protocols keep in queues of their own happens to no message of anybody.
        inner = (qm.order_acknowledgment_queue, qm.change_notification_queue, qm.awaiting_final_ack_queue)
        self._inner = frozenset(queue.number for queue in inner if queue is not None)
        engine.store.on_failed(self._forget_names)

    def _forget_names(self, _batch: int) -> None:
        self._named.clear()

    def arrived(self, position: MessagePosition) -> None:
        """A message came to a queue from outside it."""
        queue, record = position.queue, position.record
        packet = record.packet
        self.tell(self._arrival(queue, packet), queue, position.lookup_id, packet, record.visibility)

    def _arrival(self, queue: Queue, packet: bytes) -> EventKind:
        if packet[16:32] != self._source:
            return EventKind.TRANSFERRED_IN
        return EventKind.SENT if isinstance(queue, OutgoingQueue) else EventKind.ARRIVED

    def removed(self, position: MessagePosition, reason: MessageClass) -> None:
        """A message left its queue for a reason."""
        record = position.record
        kind = REMOVALS.get(reason, EventKind.PURGED)
        self.tell(kind, position.queue, position.lookup_id, record.packet, record.visibility, reason)

    def add(self, kind: EventKind, position: MessagePosition, reason: int = 0, target: Queue | None = None) -> None:
        """Something happened to a message."""
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
        """The same, of a message that has no place."""
        number = 0 if queue is None else queue.number
        if number in self._inner or ((self._is_full or self._store.refuses_sends) and self._has_no_room()):
            return
        if queue is not None and number not in self._named:
            self._name(queue)
        if target is not None and target.number not in self._named:
            self._name(target)
        now = int(self._clock() * 1000)
        other = 0 if target is None else target.number
        try:
            self._append(_row(kind, now, number, lookup_id, packet, visibility, reason, other))
        except InsufficientResources as error:
            # What happened has happened.
            _LOG.warning("an event is not in the log: %s", error)

    def _has_no_room(self) -> bool:
        """On a full disk the room that is left is for receiving."""
        is_full = self._store.refuses_sends
        if is_full is not self._is_full:
            self._is_full = is_full
            _LOG.warning("the disk is full: no events are written" if is_full else "events are written again")
        return is_full

    def published(self, number: int) -> EventMaker:
        """What makes the events of messages that are published to a queue."""
        queue = self._engine.queue_manager.queue_collection[number]
        if number not in self._named:
            self._name(queue)
        now = int(self._clock() * 1000)
        arrival = self._arrival

        def make(lookup_id: int, packet: bytes, visibility: int) -> bytes:
            return _row(arrival(queue, packet), now, number, lookup_id, packet, visibility, 0, 0)

        return make

    def _name(self, queue: Queue) -> None:
        """Write down what a queue is called, for when it is gone."""
        engine, number = self._engine, queue.number
        self._named.add(number)
        value = json.dumps([queue_text(engine, queue), queue_kind(engine, queue)]).encode()
        key = QUEUE_KEY.pack(number)
        if self._queues.get(key) != value:
            self._queues.put(key, value)


def _row(
    kind: int, now: int, queue: int, lookup_id: int, packet: bytes, visibility: int, reason: int, target: int
) -> bytes:
    sent_time, ordinal, flags = _fixed(packet)
    if flags & _SHAPE == _DIRECT_ONLY:
        # What most messages are: to a direct name, with nothing else but perhaps who sent it.
        position = _AFTER_COUNT + _u16(packet, at.DESTINATION_OFFSET)[0] + 3 & ~3
        if flags & at.SH:
            sender, *others = _security_sizes(packet, position)
            position += at.SECURITY_HEADER_SIZE + (sender + 3 & ~3) + sum([size + 3 & ~3 for size in others if size])
    else:
        position = _properties_at(packet, flags)
    message_class, correlation = _properties(packet, position)
    delivery = (flags >> at.DM_SHIFT & 1) | (TRANSACTIONAL if flags & at.TH else 0)
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
        delivery,
        packet[16:32],
        ordinal,
        correlation,
    )


def _properties_at(packet: bytes, flags: int) -> int:
    """Where MessagePropertiesHeader is, as `layout.locate` finds it, in a packet that was checked before."""
    position = at.DESTINATION_OFFSET
    for shift in (at.DQ_SHIFT, at.AQ_SHIFT, at.RQ_SHIFT):
        step = NAME_SIZES[flags >> shift & 7]
        position = position + step if step >= 0 else position + 2 + _u16(packet, position)[0] + 3 & ~3
    if flags & at.CQ:
        position += 16
    if flags & at.TH:
        position += at.TRANSACTION_HEADER_SIZE + (16 if packet[position] & at.CG else 0)
    if flags & at.SH:
        sizes = _security_sizes(packet, position)
        position += at.SECURITY_HEADER_SIZE + sum([size + 3 & ~3 for size in sizes])
    return position
