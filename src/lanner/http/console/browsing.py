"""The messages of one queue as a page shows them: a list from a position on, and one message.

A page reads only as many messages as it shows, from a lookup id on, so the depth of the queue does
not matter. A filter examines at most `SCANNED` messages; the next page continues after them.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lanner.http.console.message_bodies import BodyView, kind_word, view_body
from lanner.http.routes import PAGES
from lanner.model.errors import InvalidParameter, MessageNotFound, RemoteProtocolError
from lanner.wire.sid import ANONYMOUS_LOGON, EVERYONE, LOCAL_SYSTEM, sid_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanner.client import ReceivedMessage
    from lanner.client._async.queue import Queue
    from lanner.client._async.queue_manager import QueueManager

PAGE: Final = 50
SCANNED: Final = 10_000
# The octets of a body that a list examines to name its kind.
_PEEKED: Final = 256
_WELL_KNOWN: Final = {
    str(LOCAL_SYSTEM): "SYSTEM (the service's own user)",
    str(ANONYMOUS_LOGON): "Anonymous",
    str(EVERYONE): "Everyone",
}


@dataclass(frozen=True, slots=True)
class Filter:
    """A user's filter: a text in the label or the body, a condition, and an age."""

    text: str = ""
    place: str = "label"
    age: str = ""

    @property
    def conditions(self) -> list[str]:
        """The filter as conditions of `Queue.find`."""
        found = []
        if self.text:
            found.append(self.text if self.place == "condition" else f"{self.place}~{self.text}")
        if self.age:
            found.append(f"age{self.age}")
        return found

    @property
    def query(self) -> dict[str, str]:
        """The filter as the query of a URL."""
        return {"find": self.text, "place": "" if self.place == "label" else self.place, "age": self.age}


@dataclass(frozen=True, slots=True)
class Row:
    """One message of a list."""

    lookup_id: int
    label: str
    kind: str
    size: int
    priority: int
    arrived: dt.datetime
    message_class: int
    destination: str | None


@dataclass(frozen=True, slots=True)
class Listing:
    """Some messages of a queue; continue with `after`, which is None at the end."""

    rows: list[Row]
    after: int | None
    scanned: int


@dataclass(frozen=True, slots=True)
class Shown:
    """One message in full."""

    message: ReceivedMessage
    body: BodyView
    sender: str
    delivery: str
    expires: dt.datetime | None


def open_queue(manager: QueueManager, name: str) -> Queue:
    """Return a queue by its name in a URL. Raises InvalidParameter for an empty name."""
    if not name:
        raise InvalidParameter("which queue? The address has no name")
    return manager.open(name)


async def open_outgoing(manager: QueueManager, name: str) -> Queue | None:
    """Return the outgoing queue of that format name."""
    for queue in await manager.outgoing_queues():
        if queue.format_name.lower() == name.lower():
            return queue
    return None


async def list_messages(queue: Queue, wanted: Filter, after: int | None, limit: int = PAGE) -> Listing:
    """Return the next messages that a filter finds."""
    found = await queue.find(*wanted.conditions, after=after, limit=limit, scan=SCANNED)
    return Listing([row_of(message) for message in found.messages], found.after, found.scanned)


def row_of(message: ReceivedMessage) -> Row:
    """Return a message's row in a list."""
    body = message.body_bytes
    return Row(
        message.lookup_id,
        message.label,
        kind_word(body if len(body) <= _PEEKED * _PEEKED else body[:_PEEKED], message.body_type),
        len(body),
        message.priority,
        message.arrived_time,
        int(message.message_class),
        message.destination_queue,
    )


async def show_message(
    queue: Queue, lookup_id: int, form: str | None, *, whole: bool, user: str, names: Mapping[str, str] | None = None
) -> Shown | None:
    """Return one message with its body in a form, for a user; None if it is gone.

    `names` maps SIDs to the names of users.
    """
    with contextlib.suppress(MessageNotFound):
        message = await queue.peek_by_lookup_id(lookup_id)
        body = await PAGES.run(user, partial(view_body, message.body_bytes, message.body_type, form, whole=whole))
        return Shown(message, body, _sender(message, names or {}), _delivery(message), _expires(message))
    return None


def _sender(message: ReceivedMessage, names: Mapping[str, str]) -> str:
    if not message.sender_id:
        return "does not name a user"
    try:
        name = sid_text(message.sender_id)
    except RemoteProtocolError:
        name = message.sender_id.hex()
    name = names.get(name) or _WELL_KNOWN.get(name, name)
    proof = {True: "verified", False: "not verified", None: "not known whether verified"}[message.sender_verified]
    return f"user {name}, {proof}"


def _delivery(message: ReceivedMessage) -> str:
    kind = "transactional" if message.is_transactional else "recoverable" if message.recoverable else "express"
    extra: list[Any] = [
        f"aborted {message.abort_count} times" if message.abort_count else None,
        f"moved {message.move_count} times" if message.move_count else None,
        "signed" if message.authenticated else None,
        "encrypted" if message.encrypt else None,
    ]
    return ", ".join([kind, f"priority {message.priority}", *filter(None, extra)])


def _expires(message: ReceivedMessage) -> dt.datetime | None:
    seconds = message.time_to_be_received
    return None if seconds is None else message.arrived_time + dt.timedelta(seconds=seconds)
