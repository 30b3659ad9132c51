r"""The event log as Arrow batches.

It is read like a queue named `system$;EVENTS`, with columns of its own. Positions are the numbers
of the events. A caller that may peek the system journal may read the log.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lanner.engine.event_recorder import ARRIVALS, EVENT_QUEUES, EVENT_SENDERS, SENDER_KEY, VERIFIED
from lanner.engine.event_rows import ACKNOWLEDGE_SHIFT, ENCRYPTED, RECOVERABLE, SIGNED, TRANSACTIONAL
from lanner.engine.tables import QUEUE_KEY
from lanner.host.operations import Operations
from lanner.model.enums import QueueAccessType
from lanner.model.errors import AccessDenied, QueueNotFound
from lanner.model.events import EventKind
from lanner.model.lookup_ids import LANE_SHIFT, LOWEST_LANE
from lanner.spark.columnar.decode import batch_of
from lanner.spark.columnar.event_names import EVENTS_KIND, EVENTS_NAME, EVENTS_NUMBER
from lanner.spark.columnar.packet_source import BATCH_ROWS, Place
from lanner.spark.columnar.ranges import Range
from lanner.spark.columnar.rows import CLASS_NAMES
from lanner.spark.columnar.schema import BIGINT, BINARY, INT, STRING, TIMESTAMP, RowSchema
from lanner.spark.columnar.vectors import Ints, Values, identifier_text, some
from lanner.store.event_log import EVENT

_LOG = logging.getLogger(__name__)

# The layout of store.event_log.EVENT.
_ROW: Final = np.dtype(
    [
        ("time", "<u8"),
        ("lookup_id", "<u8"),
        ("visibility", "<u8"),
        ("queue", "<u4"),
        ("other", "<u4"),
        ("size", "<u4"),
        ("sent_time", "<u4"),
        ("class", "<u2"),
        ("reason", "<u2"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("aborts", "<u2"),
        ("msg_id", "u1", 20),
        ("correlation", "u1", 20),
    ]
)
_EVENT_NAMES: Final = {int(kind): kind.name.lower() for kind in EventKind}


class EventSource:
    """The event log. Methods take the lock.

    It has the methods of `reading.QueueSource` except `range`: events have no packets.
    """

    identifier = EVENTS_NUMBER
    is_transactional = False

    def __init__(self, operations: Operations) -> None:
        """Open the log.

        Raises QueueNotFound if there is no log, AccessDenied if the identity of `operations` may
        not read it.
        """
        self._store = operations.engine.store
        with operations.engine.store.lock:
            try:
                # Opening checks the rights. The queue does not stay open.
                operations.close(operations.open(operations.names.format_name("system$;JOURNAL"), QueueAccessType.PEEK))
            except AccessDenied:
                name = operations.identity.name
                raise AccessDenied(
                    f"{name} may not read {EVENTS_NAME}: this takes the right to peek system$;JOURNAL"
                ) from None
            if not self._store.has_events:
                raise QueueNotFound(
                    "this queue manager writes no events: set enabled = true in the table [events] of its settings"
                )
            self._log = self._store.events
            self._queues = self._store.table(EVENT_QUEUES)
            self._senders = self._store.table(EVENT_SENDERS)
        qm = operations.engine.queue_manager
        self.place = Place(str(qm.identifier), qm.computer_name, EVENTS_NAME, EVENTS_KIND)

    @property
    def message_count(self) -> int:
        after, upto = self._log.bounds()
        return upto - after

    @property
    def total_bytes(self) -> int:
        return self.message_count * EVENT.size

    def bounds(self) -> tuple[int, int, int]:
        """Return (after, upto, horizon): the numbers of all events so far."""
        if self._log.is_waiting:
            self._store.flush_events()
        after, upto = self._log.bounds()
        return after, upto, upto

    @property
    def horizon(self) -> int:
        return self._log.horizon

    def lost(self, after: int) -> int:
        """Return how many numbers after this one were dropped because of age or lack of space."""
        return max(self._log.trimmed() - after, 0)

    def measure(self, after: int, upto: int, *, max_messages: int | None = None, max_bytes: int | None = None) -> Range:
        """Return the longest range after `after` within the limits.

        It has at least one event if there is one.
        """
        limits = [limit for limit in (max_messages, max_bytes and max_bytes // EVENT.size) if limit is not None]
        limit = max(min(limits, default=1 << 62), 1)
        found = 0
        for first, count in self._log.blocks(after, upto):
            if found + count > limit:
                end = first + limit - found - 1
                return Range(after, end, limit, limit * EVENT.size)
            found += count
        return Range(after, upto, found, found * EVENT.size)

    def split(self, after: int, upto: int, target_bytes: int) -> list[Range]:
        """Cut a range into consecutive parts of about `target_bytes`."""
        limit = max(target_bytes // EVENT.size, 1)
        ranges: list[Range] = []
        while True:
            part = self.measure(after, upto, max_messages=limit)
            ranges.append(part)
            after = part.upto
            if after >= upto or not part.messages:
                return ranges

    def batches(self, after: int, upto: int, schema: RowSchema) -> Iterator[pa.RecordBatch]:
        """Yield the events with a number in (after, upto], in that order."""
        while after < upto:
            blocks = self._log.read(after, upto, BATCH_ROWS)
            if not blocks:
                return
            for first, data in blocks:
                if not data:
                    _LOG.error("events up to %d are left out: they are not what was written", first)
            good = [(first, np.frombuffer(data, _ROW)) for first, data in blocks if data]
            after = max([first for first, data in blocks if not data] + [first + len(rows) - 1 for first, rows in good])
            if good:
                yield self._decode(good, schema)

    def _decode(self, blocks: list[tuple[int, npt.NDArray[np.void]]], schema: RowSchema) -> pa.RecordBatch:
        rows = np.concatenate([block for _, block in blocks])
        seq = np.concatenate([np.arange(first, first + len(block)) for first, block in blocks])
        makers = self._makers(rows, seq)
        return batch_of([makers[name]() for name in schema.names], len(rows), schema)

    def _makers(self, rows: npt.NDArray[np.void], seq: Ints) -> dict[str, Callable[[], Values]]:
        def number(name: str, *, has_zero: bool = True) -> Callable[[], pa.Array]:
            values = rows[name].astype(np.int64)
            return lambda: pa.array(values, BIGINT, mask=None if has_zero else values == 0)

        def small(values: npt.NDArray[np.int64], *, has_zero: bool = True) -> pa.Array:
            return pa.array(values.astype(np.int32), INT, mask=None if has_zero else values == 0)

        def queue(numbers: npt.NDArray[np.uint32], part: int) -> Callable[[], pa.Array]:
            return lambda: self._queue_texts(numbers, part)

        is_arrival = np.isin(rows["kind"], sorted(ARRIVALS))
        targets = np.where(rows["kind"] == EventKind.MOVED, rows["other"], np.uint32(0))
        senders = np.where(is_arrival, rows["other"] & np.uint32(VERIFIED - 1), np.uint32(0))

        correlation = rows["correlation"]
        return {
            "qm_id": lambda: pa.scalar(self.place.qm_id, STRING),
            "qm_name": lambda: pa.scalar(self.place.qm_name, STRING),
            "seq": lambda: pa.array(seq, BIGINT),
            "event": lambda: _named(rows["kind"], _EVENT_NAMES),
            "event_time": lambda: pa.array(rows["time"].astype(np.int64) * 1000).view(TIMESTAMP),
            "queue": queue(rows["queue"], 0),
            "queue_kind": queue(rows["queue"], 1),
            "target": queue(targets, 0),
            "lookup_id": number("lookup_id"),
            "message_seq": number("visibility", has_zero=False),
            "msg_id_text": lambda: identifier_text(rows["msg_id"]),
            "correlation_text": lambda: some(identifier_text, correlation, np.asarray(correlation.any(axis=1))),
            "class": lambda: small(rows["class"].astype(np.int64)),
            "class_name": lambda: _named(rows["class"], CLASS_NAMES),
            "reason": lambda: small(rows["reason"].astype(np.int64), has_zero=False),
            "reason_name": lambda: _named(rows["reason"], {key: name for key, name in CLASS_NAMES.items() if key}),
            "size": number("size"),
            "sent_time": lambda: pa.array(rows["sent_time"].astype(np.int64) * 1_000_000).view(TIMESTAMP),
            "priority": lambda: small(_priority(rows["lookup_id"])),
            "delivery": lambda: small((rows["flags"] & RECOVERABLE).astype(np.int64)),
            "is_transactional": lambda: pa.array(rows["flags"] & TRANSACTIONAL != 0),
            "acknowledge": lambda: small((rows["flags"] >> ACKNOWLEDGE_SHIFT).astype(np.int64)),
            "abort_count": lambda: small(rows["aborts"].astype(np.int64)),
            "sender_id": lambda: self._sender_parts(senders)[0],
            "sender_id_type": lambda: self._sender_parts(senders)[1],
            "is_signed": lambda: pa.array(rows["flags"] & SIGNED != 0, mask=~is_arrival),
            "authenticated": lambda: pa.array((rows["other"] >> 31).astype(np.int32), INT, mask=~is_arrival),
            "is_encrypted": lambda: pa.array(rows["flags"] & ENCRYPTED != 0),
        }

    def _sender_parts(self, numbers: npt.NDArray[np.uint32]) -> tuple[pa.Array, pa.Array]:
        """Return the identifiers and types of senders, with nulls where there is none."""
        unique, which = np.unique(numbers, return_inverse=True)
        with self._store.lock:
            found = [self._senders.get(SENDER_KEY.pack(number)) if number else None for number in unique.tolist()]
        identifiers = pa.array([raw and raw[1:] for raw in found], BINARY).take(pa.array(which))
        return identifiers, pa.array([0 if raw is None else raw[0] for raw in found], INT).take(pa.array(which))

    def _queue_texts(self, numbers: npt.NDArray[np.uint32], part: int) -> pa.Array:
        """Return the names or kinds of queues, with nulls where there is no queue."""
        unique, which = np.unique(numbers, return_inverse=True)
        texts = []
        with self._store.lock:
            for number in unique.tolist():
                raw = self._queues.get(QUEUE_KEY.pack(number)) if number else None
                texts.append(None if raw is None else json.loads(raw)[part])
        return pa.array(texts, STRING).take(pa.array(which))


def _priority(lookup_ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    return np.asarray(LOWEST_LANE - (lookup_ids >> np.uint64(LANE_SHIFT)).astype(np.int64))


def _named(values: npt.NDArray[np.unsignedinteger[npt.NBitBase]], names: dict[int, str]) -> pa.Array:
    unique, which = np.unique(values, return_inverse=True)
    return pa.array([names.get(value) for value in unique.tolist()], STRING).take(pa.array(which))
