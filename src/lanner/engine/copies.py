"""Copies of messages: journals and dead letters.

This part implements target and source journaling (MS-MQDMPR 3.1.1.2 Journaling, 3.1.1.12). Three
attributes of a message request copies: PositiveJournalingRequested, NegativeJournalingRequested and
ApplicationDeadletterQueue.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from lanner.engine.queues import LAST_SYSTEM_QUEUE_NUMBER
from lanner.model.directory_objects import KILOBYTE
from lanner.model.enums import INFINITE, MessageClass, QueueType
from lanner.model.events import EventKind
from lanner.model.live import DEAD_LETTER
from lanner.wire.builder import set_message_class
from lanner.wire.envelope import read_envelope
from lanner.wire.format_name import DirectFormatName, PrivateFormatName
from lanner.wire.path_name import PathName

if TYPE_CHECKING:
    from lanner.engine.application_deadletters import ApplicationDeadletters
    from lanner.engine.arrivals import Arrivals
    from lanner.engine.core import Core
    from lanner.engine.positions import Positions
    from lanner.engine.registry import QueueRegistry
    from lanner.model.directory_objects import Queue
    from lanner.wire.message import Message

_LOG = logging.getLogger(__name__)

# MS-MQQB 3.1.5.8.8, 3.1.7.1.2, MC-MQAC 3.1.6.1.1: after a non-transactional message fails here for
# one of these reasons, no other queue manager is left to keep it. 3.1.7.1.2 is about outgoing
# queues. No section covers a message whose time is over on arrival (status 3 of Enqueue Message);
# it is kept in the same way.
KEPT_WHERE_IT_FAILED: Final = frozenset(
    {
        MessageClass.NACK_QUEUE_EXCEED_QUOTA,
        MessageClass.NACK_RECEIVE_TIMEOUT,
        MessageClass.NACK_REACH_QUEUE_TIMEOUT,
    }
)

# MS-MQQB 3.1.5.8.10, note 62: messages to these queues are not acknowledged.
INTERNAL_QUEUES: Final = frozenset({"admin_queue$", "notify_queue$", "order_queue$"})


class Copies:
    """Writes journal copies and dead letters."""

    def __init__(
        self,
        core: Core,
        registry: QueueRegistry,
        positions: Positions,
        arrivals: Arrivals,
        deadletters: ApplicationDeadletters,
    ) -> None:
        self._store = core.store
        self._queue_manager = core.queue_manager
        self._clocks = core.clocks
        self._access = core.access
        self._recorder = core.recorder
        self._registry = registry
        self._positions = positions
        self._arrivals = arrivals
        self.deadletters = deadletters
        # Messages that became dead letters since the start, by the class of the reason.
        self.dead_letters: Counter[int] = Counter()
        # Numbers of the journals and dead-letter queues that the log has reported as full.
        self._full_queues: set[int] = set()

    def is_from_here(self, message: Message) -> bool:
        """Return whether this queue manager is the source of a message."""
        return self._registry.is_own(message.source_machine_identifier)

    def is_to_internal_queue(self, message: Message) -> bool:
        """Return whether a message goes to a queue of queue managers (QQB-3.1.5.8.10-2)."""
        name = message.destination_queue_format_name
        if isinstance(name, DirectFormatName):
            part = name.queue_part
            return part is not None and part.queue_type is QueueType.PRIVATE and part.name.lower() in INTERNAL_QUEUES
        if not isinstance(name, PrivateFormatName):
            return False
        queue = self._registry.find_queue(name)
        if queue is None:
            return name.number <= LAST_SYSTEM_QUEUE_NUMBER
        return PathName.parse(queue.pathname).name.lower() in INTERNAL_QUEUES

    def journal_sent(self, message: Message) -> None:
        """Make the copy of source journaling.

        Messages to internal queues are not copied (QQB-3.1.5.8.10-2).
        """
        if not self.is_to_internal_queue(message):
            self._journal(self._queue_manager.system_journal_queue, message.packet)

    def journal_received(self, queue: Queue, packet: bytes) -> None:
        """Make the copy of target journaling in the journal of a queue."""
        self._journal(self._access.guarding_queue(queue).journal_queue, packet)

    def _journal(self, target: Queue | None, packet: bytes) -> None:
        """Make a journal copy.

        On a full disk, the remaining room is reserved for receives and dead letters.
        """
        if self._store.refuses_sends:
            if target is not None and self._is_newly_full(target):
                _LOG.warning("the disk is full: %s gets no more copies until there is room", target.pathname)
        else:
            self._copy_to(target, packet, EventKind.JOURNALED)

    def dead_letter(self, message: Message, reason: int) -> None:
        """Keep a message that was not delivered, if it requests that (DMPR-3.1.1.12-2, -12)."""
        is_from_here = self.is_from_here(message)
        is_kept = is_from_here or (reason in KEPT_WHERE_IT_FAILED and not message.is_transactional)
        if not message.negative_journaling_requested or not is_kept:
            return
        qm = self._queue_manager
        target = self.deadletters.queue_for(message) if is_from_here else None
        if target is None:
            target = (
                qm.system_transactional_deadletter_queue if message.is_transactional else qm.system_deadletter_queue
            )
        # As on Windows, the class of a dead letter is the reason.
        self._copy_to(target, set_message_class(message.packet, reason), EventKind.DEAD_LETTERED, reason)
        self.dead_letters[reason] += 1

    def _is_newly_full(self, target: Queue) -> bool:
        """Return whether the log has not yet reported a queue as full.

        It is reported once, because the log may be on the same disk.
        """
        is_new = target.number not in self._full_queues
        self._full_queues.add(target.number)
        return is_new

    def _copy_to(self, target: Queue | None, packet: bytes, kind: EventKind, reason: int = 0) -> None:
        """Write a copy to a journal or dead-letter queue.

        Drop it if the quota would be exceeded.
        """
        if target is None:
            return
        size = len(packet)
        quota = self._quota(target)
        if quota != INFINITE and target.total_bytes + size > quota * KILOBYTE:
            if self._is_newly_full(target):
                _LOG.warning(
                    "%s is full: quota %d KiB, used %d bytes; a copy of %d bytes and those after it are dropped "
                    "until there is room",
                    target.pathname,
                    quota,
                    target.total_bytes,
                    size,
                )
            return
        self._full_queues.discard(target.number)
        envelope = read_envelope(packet)
        position = self._arrivals.new_position(target, packet, envelope, int(self._clocks.wall()))
        position.record.flags = DEAD_LETTER
        self._positions.write(position, envelope)
        if self._recorder is not None:
            self._recorder.add(kind, position, reason)
        self._positions.message_position_available(target, position)

    def _quota(self, target: Queue) -> int:
        if target is self._queue_manager.system_journal_queue:
            return self._queue_manager.journal_quota
        if target.is_system and target.parent:
            return self._access.guarding_queue(target).journal_quota
        return target.quota
