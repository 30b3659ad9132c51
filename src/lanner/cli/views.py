"""The output of messages and queues, for people and for programs."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lanner.cli import bodies
from lanner.cli.output import counted, say, show_fields, show_table, size, write_json
from lanner.client.bodies import text_of
from lanner.client.documents import class_name, message_json, queue_kind
from lanner.model.enums import INFINITE
from lanner.model.errors import RemoteProtocolError
from lanner.model.reasons import reason_text
from lanner.wire.sid import sid_text

if TYPE_CHECKING:
    from lanner.client import ReceivedMessage
    from lanner.model.directory_objects import Queue as QueueObject

_VERIFIED = {True: "verified", False: "not verified", None: "not known whether verified"}


def show_message(message: ReceivedMessage, queue: str, *, as_json: bool, raw: str | None = None) -> None:
    """Show one message in full; with the encoding `raw`, only its body."""
    if raw is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(bodies.encoded(message.body_bytes, message.body_type, raw))
        return
    if as_json:
        write_json(message_json(message, queue))
        return
    fields = [
        ("label", message.label),
        ("id", message.id),
        ("lookup id", str(message.lookup_id)),
        ("class", class_name(message.message_class)),
        ("priority", str(message.priority)),
        ("delivery", _delivery(message)),
        ("sent", local_time(message.sent_time)),
    ]
    optional = {
        "sender": _sender(message),
        "destination": message.destination_queue,
        "response queue": message.response_queue,
        "administration queue": message.administration_queue,
        "correlation id": message.correlation_id,
        "app specific": str(message.app_specific) if message.app_specific else None,
        "time to be received": _seconds(message.time_to_be_received),
        "aborted": counted(message.abort_count, "time") if message.abort_count else None,
        "moved": counted(message.move_count, "time") if message.move_count else None,
    }
    fields += [(name, value) for name, value in optional.items() if value is not None]
    fields += bodies.fields(message.body_bytes, message.body_type)
    show_fields(fields)
    text = text_of(message.body_bytes, message.body_type)
    say("")
    say(bodies.hex_dump(message.body_bytes) if text is None else text)
    say("")


def _sender(message: ReceivedMessage) -> str | None:
    """Return the sender that a message names, and whether it is proven."""
    if not message.sender_id:
        return None
    try:
        name = sid_text(message.sender_id)
    except RemoteProtocolError:
        # The identifier is that of a queue manager.
        name = message.sender_id.hex()
    return f"{name} ({_VERIFIED[message.sender_verified]})"


def _delivery(message: ReceivedMessage) -> str:
    if message.is_transactional:
        return "transactional"
    return "recoverable" if message.recoverable else "express"


def _seconds(value: int | None) -> str | None:
    return None if value is None else f"{value} s"


def local_time(moment: dt.datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def _listed(queue: str, message: ReceivedMessage, *, with_reason: bool) -> Sequence[str]:
    """Return the table row of one message."""
    begin = (str(message.lookup_id), local_time(message.sent_time))
    destination = message.destination_queue or queue
    if with_reason:
        return (*begin, reason_text(message.message_class), destination, message.label)
    return (
        *begin,
        str(message.priority),
        size(len(message.body_bytes)),
        destination,
        message.label,
        bodies.preview(message.body_bytes, message.body_type),
    )


def list_messages(messages: Iterable[tuple[str, ReceivedMessage]], *, as_json: bool, with_reason: bool = False) -> int:
    """List messages with their queues, one per line, and return their number.

    Dead letters are listed with their reason.
    """
    if as_json:
        count = 0
        for queue, message in messages:
            write_json(message_json(message, queue))
            count += 1
        return count
    rows = [_listed(queue, message, with_reason=with_reason) for queue, message in messages]
    if rows:
        # A dead letter's row has the reason; use peek for the other properties.
        rest = (
            ("REASON", "DESTINATION", "LABEL") if with_reason else ("PRIORITY", "SIZE", "DESTINATION", "LABEL", "BODY")
        )
        titles = ("LOOKUP ID", "SENT", *rest)
        spare = ("SENT",) if with_reason else ("DESTINATION", "SENT", "SIZE", "PRIORITY")
        show_table([(title, title in ("PRIORITY", "SIZE")) for title in titles], rows, spare)
    return len(rows)


def show_queue(document: dict[str, object]) -> None:
    """Show the attributes of one queue."""
    fields = []
    for name, value in document.items():
        if name.endswith("quota_kb"):
            text = "unlimited" if value is None else f"{value} KiB"
            fields.append((name.removesuffix("_kb").replace("_", " "), text))
        elif name.endswith("bytes") and isinstance(value, int):
            fields.append((name.replace("_", " "), size(value)))
        elif value is not None and value != []:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            fields.append((name.replace("_", " "), {"True": "yes", "False": "no"}.get(shown, shown)))
    show_fields(fields)


def show_queues(queues: Sequence[QueueObject]) -> None:
    """List queues, one per line."""
    rows = [
        (
            queue.pathname,
            queue_kind(queue),
            str(queue.message_count),
            size(queue.total_bytes),
            "-" if queue.journal_queue is None or not queue.journaling else str(queue.journal_queue.message_count),
            "yes" if queue.transactional else "no",
            "-" if queue.quota == INFINITE else f"{queue.quota} KiB",
            queue.label,
        )
        for queue in queues
    ]
    titles = ("NAME", "KIND", "MESSAGES", "SIZE", "JOURNAL", "TRANS", "QUOTA", "LABEL")
    columns = [(title, title in ("MESSAGES", "SIZE", "JOURNAL", "QUOTA")) for title in titles]
    show_table(columns, rows, spare=("LABEL", "QUOTA", "TRANS", "JOURNAL", "SIZE", "KIND"))
