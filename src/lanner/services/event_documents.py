"""The event log as documents.

Clients read message events in order, either to follow the log or to trace one message.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from lanner.engine.event_recorder import EVENT_QUEUES
from lanner.engine.tables import QUEUE_KEY
from lanner.model.enums import MessageClass
from lanner.model.errors import InvalidParameter, UnsupportedOperation
from lanner.model.events import EventKind
from lanner.store.event_log import EVENT
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.reader import Reader

if TYPE_CHECKING:
    from lanner.engine import Engine

Document = dict[str, Any]

# Not in the specification: the maximum number of events in one answer, and of events that are
# scanned for one message.
MAX_EVENTS: Final = 1000
MAX_SCANNED: Final = 100_000
_MESSAGE_ID_SIZE: Final = 20
_NO_QUEUE: Final = 0


class EventDocuments:
    """Reader of the event log; it does not take the store's lock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def read(self, request: Mapping[str, Any]) -> Document:
        """Return events after a number (None: the end of the log), and where to continue."""
        engine = self._engine
        if engine.settings.event_settings is None:
            raise UnsupportedOperation("the log of events is off: set events.enabled")
        after, limit, message = request.get("after"), request.get("limit", 100), request.get("message")
        for name, value in (("after", after), ("limit", limit)):
            if value is not None and (type(value) is not int or value < 0):
                raise InvalidParameter(f"`{name}` of events is a number from 0 on")
        oldest, newest = engine.store.events.bounds()
        if after is None and message is None:
            return {"events": [], "after": newest}
        wanted = None if message is None else _message_id(message)
        most = min(limit, MAX_EVENTS)
        found: list[Document] = []
        position, scanned = max(after or 0, oldest), 0
        while position < newest and len(found) < most and scanned < MAX_SCANNED:
            before = position
            for number, row in self._rows(position, newest):
                position = number
                scanned += 1
                if row and (wanted is None or wanted in _identifiers(row)):
                    found.append(self._document(number, row))
                    if len(found) >= most:
                        break
            if position == before:
                # A crash left a gap that reaches to the end of the log.
                position = newest
        return {"events": found, "after": position, "trimmed": engine.store.events.trimmed(), "newest": newest}

    def _rows(self, after: int, upto: int) -> Iterator[tuple[int, bytes]]:
        """Yield numbered events; a damaged block yields its last number and no octets."""
        for first, records in self._engine.store.events.read(after, upto, MAX_EVENTS):
            if not records:
                yield first, b""
            for offset in range(0, len(records), EVENT.size):
                yield first + offset // EVENT.size, records[offset : offset + EVENT.size]

    def _document(self, number: int, row: bytes) -> Document:
        time, lookup_id, _, queue, other, size, _, klass, reason, kind, _, aborts, source, ordinal, _ = EVENT.unpack(
            row
        )
        return {
            "number": number,
            "time": time,  # milliseconds since 1970
            "event": EventKind(kind).name.lower(),
            "queue": self._queue_name(queue),
            "target": self._queue_name(other) if kind == EventKind.MOVED else None,
            "lookup_id": str(lookup_id),
            "message": str(MessageIdentifier.unpack(Reader(source + ordinal.to_bytes(4, "little")))),
            "bytes": size,
            "class": _class_name(klass),
            "reason": _class_name(reason) if reason else None,
            "aborts": aborts,
        }

    def _queue_name(self, number: int) -> str | None:
        if number == _NO_QUEUE:
            return None
        with self._engine.store.lock:
            raw = self._engine.store.table(EVENT_QUEUES).get(QUEUE_KEY.pack(number))
        return None if raw is None else str(json.loads(raw)[0])


def _identifiers(row: bytes) -> tuple[bytes, bytes]:
    """Return a message's identifier and its correlation identifier."""
    return row[-2 * _MESSAGE_ID_SIZE : -_MESSAGE_ID_SIZE], row[-_MESSAGE_ID_SIZE:]


def _message_id(text: object) -> bytes:
    guid, _, ordinal = str(text).partition("\\")
    try:
        return MessageIdentifier(UUID(guid), int(ordinal)).pack()
    except (ValueError, OverflowError):
        raise InvalidParameter(f"{text!r} is no message id: a GUID, a backslash and a number") from None


def _class_name(number: int) -> str:
    try:
        return MessageClass(number).name.lower()
    except ValueError:
        return f"{number:#06x}"
