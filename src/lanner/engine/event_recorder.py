"""The recorder: one row in the log of events for each event of a message (`model.events`).

It also calls the listener, if there is one. An engine with neither has no recorder, and its parts
compare one attribute with None. The fields of a row are copied from fixed places in the packet
(`wire.envelope`); nothing is decoded. The caller of every method holds the store's lock.
"""

from __future__ import annotations

import json
import logging
import struct
from typing import TYPE_CHECKING, Final, cast

from lanner.engine.event_rows import SIGNED, event_rows
from lanner.engine.queue_kinds import queue_kind, queue_text
from lanner.engine.tables import QUEUE_KEY
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import MessageClass
from lanner.model.errors import InsufficientResources
from lanner.model.events import EventKind
from lanner.wire.envelope import event_fields, sender_of
from lanner.wire.fields import source_queue_manager

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanner.engine.clocks import Clocks
    from lanner.engine.settings import EngineSettings, EventListener
    from lanner.model.directory_objects import Queue, QueueManager
    from lanner.model.live import MessagePosition, Record
    from lanner.store import Store
    from lanner.store.staging import EventMaker

_LOG = logging.getLogger(__name__)

# QUEUE_KEY: JSON with the name and kind of a queue that has events. The row outlives the queue.
EVENT_QUEUES: Final = "event_queues"

# SENDER_KEY: the sender named in a message, in the form of `envelope.sender_of`.
EVENT_SENDERS: Final = "event_senders"
SENDER_KEY: Final = struct.Struct(">I")
# Not in the specification: senders that the log distinguishes. A sender is an unverified claim, so
# peers could invent any number of them. Messages of further senders appear in the log without a
# sender.
MAX_SENDERS: Final = 16_384

# Set in the number of a sender whose signature was verified here.
VERIFIED: Final = 1 << 31

# The only events whose rows contain the sender.
ARRIVALS: Final = frozenset({EventKind.ARRIVED, EventKind.SENT, EventKind.TRANSFERRED_IN, EventKind.REFUSED})

REMOVALS: Final = {
    MessageClass.ACK_RECEIVE: EventKind.RECEIVED,
    MessageClass.NACK_RECEIVE_TIMEOUT: EventKind.EXPIRED,
    MessageClass.NACK_REACH_QUEUE_TIMEOUT: EventKind.EXPIRED,
}


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
        """Record events in the log if `is_kept`, and pass each to `listener`."""
        self._store = store
        self._listener = listener
        self._is_kept = is_kept
        self._queue_manager = queue_manager
        self._clocks = clocks
        self._append = store.events.add_run
        self._queues = store.table(EVENT_QUEUES)
        self._source = b""
        # Numbers of the queues whose name and kind have been written.
        self._named: set[int] = set()
        self._sender_rows = store.table(EVENT_SENDERS)
        self._senders: dict[bytes, int] = {}
        # Cache of the sender fields of EVENT, by the SecurityHeader up to its sender identifier.
        # Most messages have one of a few headers.
        self._headers: dict[bytes, tuple[int, int]] = {}
        self._is_full = False
        # Numbers of the protocols' own queues, whose messages have no events.
        self._inner: frozenset[int] = frozenset()

    def start(self) -> None:
        """Read the identifier and the system queues of the queue manager."""
        qm = self._queue_manager
        self._source = qm.identifier.bytes_le
        inner = (qm.order_acknowledgment_queue, qm.change_notification_queue, qm.awaiting_final_ack_queue)
        self._inner = frozenset(queue.number for queue in inner if queue is not None)
        self._store.on_failed(self._forget_names)

        self._read_senders()

    def _forget_names(self, _batch: int) -> None:
        self._named.clear()
        self._read_senders()

    def _read_senders(self) -> None:
        self._headers.clear()
        self._senders = {row: SENDER_KEY.unpack(key)[0] for key, row in self._sender_rows.items()}

    def arrived(self, position: MessagePosition) -> None:
        """Record that a message arrived in a queue from outside it."""
        queue, record = position.queue, position.record
        packet = record.packet
        self.tell(
            self._arrival(queue, packet),
            queue,
            position.lookup_id,
            packet,
            record.visibility,
            aborts=record.abort_count,
        )

    def _arrival(self, queue: Queue, packet: bytes) -> EventKind:
        if source_queue_manager(packet) != self._source:
            return EventKind.TRANSFERRED_IN
        return EventKind.SENT if isinstance(queue, OutgoingQueue) else EventKind.ARRIVED

    def removed(self, position: MessagePosition, reason: MessageClass) -> None:
        """Record that a message left its queue, with the reason."""
        record = position.record
        kind = REMOVALS.get(reason, EventKind.PURGED)
        self.tell(
            kind,
            position.queue,
            position.lookup_id,
            record.packet,
            record.visibility,
            reason,
            aborts=record.abort_count,
        )

    def run_arrived(self, queue: Queue, first: int, records: Sequence[Record]) -> None:
        """Record the arrival of messages of one queue manager under consecutive lookup ids."""
        kind = self._arrival(queue, records[0].packet)
        self._tell_run(kind, queue, list(range(first, first + len(records))), records)

    def run_removed(self, queue: Queue, rows: Sequence[tuple[int, Record]], reason: MessageClass) -> None:
        """Record that messages left a queue for one common reason."""
        kind = REMOVALS.get(reason, EventKind.PURGED)
        self._tell_run(kind, queue, [row[0] for row in rows], [row[1] for row in rows], reason)

    def run_delivered(self, queue: Queue, rows: Sequence[tuple[int, Record]]) -> None:
        """Record that another queue manager has accepted messages of an outgoing queue."""
        self._tell_run(EventKind.TRANSFERRED_OUT, queue, [row[0] for row in rows], [row[1] for row in rows])

    def _tell_run(
        self, kind: EventKind, queue: Queue, lookup_ids: list[int], records: Sequence[Record], reason: int = 0
    ) -> None:
        """Record one event for each message, as `tell` does."""
        number = queue.number
        if not records or number in self._inner:
            return
        if self._listener is not None:
            for lookup_id, record in zip(lookup_ids, records, strict=True):
                self._listener(kind, queue, lookup_id, record.packet, reason)
        if not self._may_write():
            return
        if number not in self._named:
            self._name(queue)
        packets = [record.packet for record in records]
        visibilities = [record.visibility for record in records]
        aborts = [record.abort_count for record in records]
        now = int(self._clocks.wall() * 1000)
        self._write(self._rows(kind, now, number, lookup_ids, packets, visibilities, reason, 0, aborts))

    def add(self, kind: EventKind, position: MessagePosition, reason: int = 0, target: Queue | None = None) -> None:
        """Record an event of a message in a queue."""
        queue, record = position.queue, position.record
        self.tell(kind, queue, position.lookup_id, record.packet, record.visibility, reason, target, record.abort_count)

    def tell(
        self,
        kind: EventKind,
        queue: Queue | None,
        lookup_id: int,
        packet: bytes,
        visibility: int = 0,
        reason: int = 0,
        target: Queue | None = None,
        aborts: int = 0,
    ) -> None:
        """Record an event of a message that has no position."""
        number = 0 if queue is None else queue.number
        if number in self._inner:
            return
        if self._listener is not None:
            self._listener(kind, queue, lookup_id, packet, reason)
        if not self._may_write():
            return
        if queue is not None and number not in self._named:
            self._name(queue)
        if target is not None and target.number not in self._named:
            self._name(target)
        now = int(self._clocks.wall() * 1000)
        other = 0 if target is None else target.number
        self._write(self._rows(kind, now, number, [lookup_id], [packet], [visibility], reason, other, [aborts]))

    def _may_write(self) -> bool:
        return self._is_kept and not ((self._is_full or self._store.refuses_sends) and self._has_no_room())

    def _write(self, rows: Sequence[bytes]) -> None:
        try:
            self._append(rows)
        except InsufficientResources as error:
            # The events themselves have happened and are not undone.
            _LOG.warning("%s not in the log: %s", "an event is" if len(rows) == 1 else f"{len(rows)} events are", error)

    def _has_no_room(self) -> bool:
        """Return whether the disk is full. The remaining room is reserved for receiving."""
        is_full = self._store.refuses_sends
        if is_full is not self._is_full:
            self._is_full = is_full
            _LOG.warning("the disk is full: no events are written" if is_full else "events are written again")
        return is_full

    def staged(self, run: Sequence[bytes]) -> None:
        """Give the sender of packets a number, which `published` cannot do.

        The packets have one sender.
        """
        *_, security, header = event_fields(run[0])
        if self._is_kept and security and header not in self._headers:
            self._read_header(header, run[0], security, is_closed=False)

    def published(self, number: int) -> EventMaker:
        """Return the function that makes the events of messages published to a queue."""
        queue = self._queue_manager.queue_collection[number]
        if self._is_kept and number not in self._named:
            self._name(queue)
        now = int(self._clocks.wall() * 1000)
        arrival, listener, is_kept = self._arrival, self._listener, self._is_kept

        def make(lookup_id: int, packets: list[bytes], visibility: int) -> list[bytes]:
            # All of them are from this queue manager.
            kind = arrival(queue, packets[0])
            lookup_ids = list(range(lookup_id, lookup_id + len(packets)))
            if listener is not None:
                for number_of_message, packet in zip(lookup_ids, packets, strict=True):
                    listener(kind, queue, number_of_message, packet, 0)
            if not is_kept:
                return []
            visibilities = list(range(visibility, visibility + len(packets)))
            # The batch is closed, so no new sender can be given a number (see `staged`).
            return self._rows(
                kind, now, number, lookup_ids, packets, visibilities, 0, 0, [0] * len(packets), is_closed=True
            )

        return make

    def _name(self, queue: Queue) -> None:
        """Write the name and kind of a queue, so that they remain known after its deletion."""
        number = queue.number
        self._named.add(number)
        value = json.dumps([queue_text(self._queue_manager, queue), queue_kind(self._queue_manager, queue)]).encode()
        key = QUEUE_KEY.pack(number)
        if self._queues.get(key) != value:
            self._queues.put(key, value)

    def _rows(
        self,
        kind: int,
        now: int,
        queue: int,
        lookup_ids: list[int],
        packets: list[bytes],
        visibilities: list[int],
        reason: int,
        other: int,
        aborts: list[int],
        *,
        is_closed: bool = False,
    ) -> list[bytes]:
        """Return one row for each message; `now` is in milliseconds."""
        senders = self._headers if kind in ARRIVALS else None
        rows = event_rows(kind, now, queue, reason, other, lookup_ids, packets, visibilities, aborts, senders)
        if senders is not None and None in rows:
            for index, packet in enumerate(packets):
                if rows[index] is None:
                    *_, security, header = event_fields(packet)
                    # An earlier message in this run may have had the same header.
                    found = senders.get(header) or self._read_header(header, packet, security, is_closed=is_closed)
                    place = slice(index, index + 1)
                    columns = lookup_ids[place], [packet], visibilities[place], aborts[place]
                    rows[place] = event_rows(kind, now, queue, reason, other, *columns, {header: found})
        return cast("list[bytes]", rows)

    def _read_header(self, header: bytes, packet: bytes, security: int, *, is_closed: bool) -> tuple[int, int]:
        """Return `other` and flags of EVENT for a SecurityHeader up to its sender identifier."""
        sender, level, is_signed = sender_of(packet, security)
        number = self._senders.get(sender) or (0 if is_closed else self._new_sender(sender))
        found = number | (VERIFIED if level else 0), SIGNED if is_signed else 0
        if len(self._headers) >= MAX_SENDERS:
            self._headers.clear()
        if number or not sender:
            self._headers[header] = found
        return found

    def _new_sender(self, sender: bytes) -> int:
        """Assign a number to a sender; return 0 for no sender."""
        number = len(self._senders) + 1
        if not sender or number > MAX_SENDERS:
            return 0
        self._sender_rows.put(SENDER_KEY.pack(number), sender)
        self._senders[sender] = number
        return number


def make_recorder(
    store: Store, queue_manager: QueueManager, clocks: Clocks, settings: EngineSettings
) -> EventRecorder | None:
    """Return the recorder that the settings request, or None."""
    is_kept, listener = settings.event_settings is not None, settings.event_listener
    if not is_kept and listener is None:
        return None
    return EventRecorder(store, queue_manager, clocks, listener=listener, is_kept=is_kept)
