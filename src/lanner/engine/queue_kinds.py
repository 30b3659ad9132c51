"""The kind of a queue and its format name, for the data pipeline and the log of events."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import QueueType
from lanner.wire.format_name import FormatName, parse

if TYPE_CHECKING:
    from lanner.model.directory_objects import Queue, QueueManager

OUTGOING: Final = "outgoing"
CONNECTOR: Final = "connector"
# MC-MQAC 2.2.2.13, note 3.
REPORT_QUEUE: Final = uuid.UUID("55ee8f32-cce9-11cf-b108-0020afd61ce9")
# The queue for administrative messages to this computer; an ordinary private queue.
ADMINISTRATION_QUEUE: Final = r".\private$\admin_queue$"


def queue_kind(qm: QueueManager, queue: Queue) -> str:
    """Return the kind of a queue.

    It is destination, journal, deadletter, xact_deadletter, outgoing, admin, report, subqueue or
    connector.
    """
    if isinstance(queue, OutgoingQueue):
        return OUTGOING
    if queue is qm.system_deadletter_queue:
        return "deadletter"
    if queue is qm.system_transactional_deadletter_queue:
        return "xact_deadletter"
    if queue is qm.system_journal_queue or (queue.is_system and queue.parent):
        return "journal"
    if queue.queue_type is QueueType.CONNECTOR:
        return CONNECTOR
    if queue.parent:
        return "subqueue"
    if queue.identifier == REPORT_QUEUE:
        return "report"
    is_admin = queue.pathname.lower().endswith(ADMINISTRATION_QUEUE.lower().removeprefix("."))
    return "admin" if is_admin else "destination"


def queue_text(qm: QueueManager, queue: Queue) -> str:
    """Return the format name of a queue; for an outgoing queue, the name that it was opened by."""
    if queue_kind(qm, queue) in (OUTGOING, CONNECTOR):
        return queue.pathname
    return str(format_name_of(queue))


def format_name_of(queue: Queue) -> FormatName:
    """Return the name for other computers: DIRECT=OS:computer and the path of the queue."""
    return parse(f"DIRECT=OS:{queue.pathname}")
