"""Messages and queues as people and programs see them."""

from __future__ import annotations

import base64
import datetime as dt
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lanner.cli import bodies
from lanner.cli.output import counted, say, show_fields, show_table, size, write_json
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import INFINITE, Acknowledgements, MessageClass, QueueType
from lanner.model.errors import RemoteProtocolError
from lanner.model.reasons import reason_text
from lanner.wire.path_name import PathName
from lanner.wire.sid import sid_text

if TYPE_CHECKING:
    from lanner.client import ReceivedMessage
    from lanner.model.directory_objects import Queue as QueueObject

_VERIFIED = {True: "verified", False: "not verified", None: "not known whether verified"}


def _class_name(number: int) -> str:
    try:
        return MessageClass(number).name.lower()
    except ValueError:
        return f"{number:#06x}"


def _acknowledge(flags: Acknowledgements) -> list[str]:
    wanted = (
        Acknowledgements.POS_ARRIVAL,
        Acknowledgements.POS_RECEIVE,
        Acknowledgements.NEG_ARRIVAL,
        Acknowledgements.NEG_RECEIVE,
    )
    names = ("pos_arrival", "pos_receive", "neg_arrival", "neg_receive")
    return [name for flag, name in zip(wanted, names, strict=True) if flags & flag]


def message_json(message: ReceivedMessage, queue: str) -> dict[str, object]:
    """Every property. A lookup id is text: it has 64 bits, and many readers of JSON only 53."""
    return {
        "queue": queue,
        "id": message.id,
        "lookup_id": str(message.lookup_id),
        "label": message.label,
        **bodies.json_body(message.body_bytes, message.body_type),
        "body_type": message.body_type,
        "body_size": len(message.body_bytes),
        "class": _class_name(message.message_class),
        "priority": message.priority,
        "recoverable": message.recoverable,
        "transactional": message.is_transactional,
        "sent_time": message.sent_time.isoformat(),
        "arrived_time": message.arrived_time.isoformat(),
        "time_to_reach_queue": message.time_to_reach_queue,
        "time_to_be_received": message.time_to_be_received,
        "correlation_id": message.correlation_id,
        "destination_queue": message.destination_queue,
        "response_queue": message.response_queue,
        "administration_queue": message.administration_queue,
        "acknowledge": _acknowledge(message.acknowledge),
        "use_dead_letter_queue": message.use_dead_letter_queue,
        "use_journal_queue": message.use_journal_queue,
        "use_tracing": message.use_tracing,
        "tracing_queue": None if message.tracing_queue is None else str(message.tracing_queue),
        "app_specific": message.app_specific,
        "extension": base64.b64encode(message.extension).decode(),
        "authenticated": message.authenticated,
        "encrypted": message.encrypt,
        "source_machine": str(message.source_machine),
        "sender_id": message.sender_id.hex(),
        "sender_verified": message.sender_verified,
        "connector_type": None if message.connector_type is None else str(message.connector_type),
        "abort_count": message.abort_count,
        "move_count": message.move_count,
    }


def show_message(message: ReceivedMessage, queue: str, *, as_json: bool, raw: str | None = None) -> None:
    """One message, whole; with `raw`, an encoding, only its body."""
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
        ("class", _class_name(message.message_class)),
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
    text = bodies.text_of(message.body_bytes, message.body_type)
    say("")
    say(bodies.hex_dump(message.body_bytes) if text is None else text)
    say("")


def _sender(message: ReceivedMessage) -> str | None:
    """Return whom a message names as its sender, and whether that is proven."""
    if not message.sender_id:
        return None
    try:
        name = sid_text(message.sender_id)
    except RemoteProtocolError:
        # The identifier of a queue manager.
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
    """Return the line of one message in a list."""
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
    """Messages with the queue they lie in, a line each; how many there were. Dead letters have a reason."""
    if as_json:
        count = 0
        for queue, message in messages:
            write_json(message_json(message, queue))
            count += 1
        return count
    rows = [_listed(queue, message, with_reason=with_reason) for queue, message in messages]
    if rows:
        # Those who want to know more of a dead letter look at it: its line has room for the reason.
        rest = (
            ("REASON", "DESTINATION", "LABEL") if with_reason else ("PRIORITY", "SIZE", "DESTINATION", "LABEL", "BODY")
        )
        titles = ("LOOKUP ID", "SENT", *rest)
        show_table([(title, title in ("PRIORITY", "SIZE")) for title in titles], rows)
    return len(rows)


def queue_kind(queue: QueueObject) -> str:
    if isinstance(queue, OutgoingQueue):
        return "outgoing"
    if queue.queue_type is not QueueType.CONNECTOR:
        part = PathName.parse(queue.pathname)
        if part.is_journal or part.subqueue is not None:
            return "journal" if part.is_journal else "subqueue"
    return queue.queue_type.value.lower()


def _quota(kilobytes: int) -> int | None:
    return None if kilobytes == INFINITE else kilobytes


def queue_json(queue: QueueObject, format_name: str) -> dict[str, object]:
    """Every attribute a person may ask for. Quotas are kilobytes, null is no limit."""
    journal = queue.journal_queue
    document: dict[str, object] = {
        "name": queue.pathname,
        "format_name": format_name,
        "kind": queue_kind(queue),
        "label": queue.label,
        "transactional": queue.transactional,
        "journaling": queue.journaling,
        "messages": queue.message_count,
        "bytes": queue.total_bytes,
        "journal_messages": 0 if journal is None else journal.message_count,
        "journal_bytes": 0 if journal is None else journal.total_bytes,
        "quota_kb": _quota(queue.quota),
        "journal_quota_kb": _quota(queue.journal_quota),
        "authentication": queue.authentication,
        "privacy_level": queue.privacy_level.name.lower(),
        "base_priority": queue.base_priority,
        "multicast_address": queue.multicast_address,
        "type": str(queue.type),
        "identifier": str(queue.identifier),
        "create_time": _moment(queue.create_time),
        "modify_time": _moment(queue.modify_time),
        "subqueues": [subqueue.pathname for subqueue in queue.subqueues.values()],
    }
    if isinstance(queue, OutgoingQueue):
        document["state"] = queue.state.value
    return document


def _moment(seconds: int) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat()


def show_queue(document: dict[str, object]) -> None:
    """The attributes of one queue."""
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
    """Queues, a line each."""
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
    show_table([(title, title in ("MESSAGES", "SIZE", "JOURNAL", "QUOTA")) for title in titles], rows)
