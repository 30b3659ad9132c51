"""What a queue is for, in one word, and its name in full: as the data pipeline and the log of events tell them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import QueueType

if TYPE_CHECKING:
    from lanner.engine.engine import Engine
    from lanner.model.directory_objects import Queue

OUTGOING: Final = "outgoing"
CONNECTOR: Final = "connector"
# MC-MQAC 2.2.2.13, note 3.
REPORT_QUEUE: Final = uuid.UUID("55ee8f32-cce9-11cf-b108-0020afd61ce9")
# Where administrative messages to this computer come; an ordinary private queue.
ADMINISTRATION_QUEUE: Final = r".\private$\admin_queue$"


def queue_kind(engine: Engine, queue: Queue) -> str:
    """destination, journal, deadletter, xact_deadletter, outgoing, admin, report, subqueue or connector."""
    qm = engine.queue_manager
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


def queue_text(engine: Engine, queue: Queue) -> str:
    """The format name of a queue; of one for another computer, the name that it was opened by."""
    if queue_kind(engine, queue) in (OUTGOING, CONNECTOR):
        return queue.pathname
    return str(engine.format_name_of(queue))
