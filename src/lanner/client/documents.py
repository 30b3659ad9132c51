"""Messages and queues as documents, for `--json` and the HTTP API."""

from __future__ import annotations

import base64
import datetime as dt
from typing import TYPE_CHECKING

from lanner.client import bodies
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import INFINITE, Acknowledgements, MessageClass, QueueType
from lanner.wire.path_name import PathName

if TYPE_CHECKING:
    from lanner.client.message import ReceivedMessage
    from lanner.model.directory_objects import Queue as QueueObject


def class_name(number: int) -> str:
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
    """Return every property of a message.

    A lookup id is text: it has 64 bits, and many JSON parsers keep only 53.
    """
    return {
        "queue": queue,
        "id": message.id,
        "lookup_id": str(message.lookup_id),
        "label": message.label,
        **bodies.json_body(message.body_bytes, message.body_type),
        "body_type": message.body_type,
        "body_size": len(message.body_bytes),
        "class": class_name(message.message_class),
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
    """Return every attribute of a queue. Quotas are kilobytes; null means no limit."""
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
