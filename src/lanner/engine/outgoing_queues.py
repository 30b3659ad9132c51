"""Queues for other computers: outgoing and connector queues.

This part implements MS-MQDMPR 3.1.4.14, 3.1.4.15, 3.1.7.1.5, 3.1.7.2.3, 3.1.7.2.4. These queues are
created when they are first opened, and an idle outgoing queue can be removed. Another computer can
name any number of destinations, and messages for destinations that do not answer stay. Therefore
the number of outgoing queues created for messages of other computers is limited.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Final

from lanner.engine.directory_events import identifier_is
from lanner.model.directory_objects import OutgoingQueue, Queue, Site
from lanner.model.enums import INFINITE, OutgoingState, QueueType
from lanner.model.errors import (
    IllegalFormatname,
    InsufficientResources,
    QueueNotFound,
    UnsupportedFormatnameOperation,
)
from lanner.security.access_masks import ConnectedNetworkAccess
from lanner.wire.format_name import (
    ConnectorFormatName,
    DirectFormatName,
    FormatName,
    MulticastFormatName,
    PrivateFormatName,
    PublicFormatName,
)
from lanner.wire.spelling import check_computer

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.engine.core import Core
    from lanner.engine.names import Names
    from lanner.engine.outgoing_sequences import OutgoingSequences
    from lanner.engine.queues import Queues
    from lanner.security.identity import Identity

_LOG = logging.getLogger(__name__)

# Not in the specification: seconds. Other computers can cause this warning with every message, so
# it is logged only this often.
_COMPLAINT_INTERVAL: Final = 10.0


class OutgoingQueues:
    """Creation, pausing, resuming and removal of queues for other computers."""

    def __init__(self, core: Core, names: Names, queues: Queues, sequences: OutgoingSequences) -> None:
        self._queue_manager = core.queue_manager
        self._clocks = core.clocks
        self._numbers = core.numbers
        self._attributes = core.attributes
        self._access = core.access
        self._names = names
        self._registry = names.registry
        self._directory = names.directory_events
        self.queues = queues
        self._sequences = sequences
        # Limit on outgoing queues created for messages of other computers; set by the transfer.
        self.max_for_others = INFINITE
        # The peer that causes the queues created now; empty: unknown. The number per peer is
        # limited.
        self.cause = ""
        self.max_per_cause = INFINITE
        self._causes: dict[int, str] = {}
        # The peer whose transactional messages are being acknowledged; empty: none. Queues for
        # these acknowledgments do not count as created for others, because strangers may have used
        # up that limit. Their number per peer is limited too.
        self.acknowledged_peer = ""
        # Limit on queues for messages of one user who is no administrator; set by the transfer.
        self.max_per_user = INFINITE
        self._order_queues: dict[int, str] = {}
        # Called with a cause that has reached its limit.
        self.too_many_subscribers: list[Callable[[str, str], None]] = []
        # Called when a limit is reached, so that idle queues are removed soon.
        self.full_subscribers: list[Callable[[], None]] = []
        self._complaint_due = 0.0
        self.state_subscribers: list[Callable[[OutgoingQueue], None]] = []

    def make_connector_queue(self, name: ConnectorFormatName, identity: Identity) -> Queue | None:
        """Return a new queue for messages to a foreign site (Connector, MS-MQDMPR 3.1.1.2).

        Returns None if there is no such site. An identity may read the queue if the site's
        descriptor grants MQSEC_CN_OPEN_CONNECTOR (MS-MQMQ 2.2.27).
        """
        _, site = self._directory.read_directory("Site", identifier_is(name.identifier))
        if not isinstance(site, Site) or not site.foreign_site:
            return None
        queue = Queue(label=str(name), pathname=name.key, transactional=name.is_transactional)
        queue.queue_type = QueueType.CONNECTOR
        queue.security = site.security
        self._access.check_queue_access(queue, identity, ConnectedNetworkAccess.OPEN_CONNECTOR)
        self._register(queue)
        return queue

    def make(self, name: FormatName, identity: Identity, *, for_others: bool) -> OutgoingQueue:
        """Return a new outgoing queue for a remote destination (the steps of Open Queue).

        With `for_others`, a message of another computer causes the queue. Raises
        InsufficientResources if there are too many such queues, or too many of an identity that is
        no administrator.
        """
        acknowledged = self.acknowledged_peer if for_others else ""
        is_counted = for_others and not acknowledged
        queue = OutgoingQueue(label=str(name), destination_format_name=str(name), is_for_others=is_counted)
        if isinstance(name, DirectFormatName):
            if self._registry.is_local_host(name.host):
                raise self._registry.no_queue(name)
            try:
                check_computer(name.host)
            except ValueError as error:
                # No computer can have this name, so messages to it would wait for ever.
                raise IllegalFormatname(f"{name}: {error}") from None
        if isinstance(name, PublicFormatName):
            found = self._names.read_queue(name.identifier)
            if found is None:
                raise UnsupportedFormatnameOperation(f"{name}: no such public queue {self._names.where()}")
            if found.queue_manager is not None and self._registry.is_local_host(found.queue_manager.computer_name):
                raise self._registry.no_queue(name)
            # The specification reads the object again for the new queue, because it may have been
            # deleted in between.
            found = self._names.read_queue(name.identifier)
            if found is None:
                raise QueueNotFound(f"{name}: the directory no longer has this queue")
            queue.base_priority = found.base_priority
        if isinstance(name, PrivateFormatName) and self._registry.is_own(name.queue_manager_identifier):
            raise self._registry.no_queue(name)
        if is_counted and self._registry.count_for_others >= self.max_for_others:
            raise self._too_many(name)
        cause, causes = (acknowledged, self._order_queues) if acknowledged else (self.cause, self._causes)
        if for_others and cause:
            self._check_cause(name, cause, causes)
        if not for_others and not identity.is_administrator:
            self._check_user(name, identity)
            queue.maker = str(identity.sid)
        queue.identifier = uuid.uuid4()
        queue.queue_type = QueueType.PRIVATE
        queue.pathname = str(name)
        queue.multicast = isinstance(name, MulticastFormatName)
        queue.state = self._initial_state(queue)
        self._register(queue)
        if for_others and cause:
            causes[queue.number] = cause
        return queue

    def _check_cause(self, name: FormatName, cause: str, causes: dict[int, str]) -> None:
        """Raise InsufficientResources if a peer has caused too many queues.

        Removed ones do not count.
        """
        existing = self._queue_manager.queue_collection
        for number in [number for number in causes if number not in existing]:
            del causes[number]
        if sum(each == cause for each in causes.values()) < self.max_per_cause:
            return
        text = f"{name}: {cause} has caused {self.max_per_cause} outgoing queues already"
        for subscriber in self.too_many_subscribers:
            subscriber(cause, text)
        self._report_full()
        raise InsufficientResources(text)

    def _check_user(self, name: FormatName, identity: Identity) -> None:
        """Raise InsufficientResources if a user has created too many queues.

        Any computer name that the user invents creates one.
        """
        count = self._registry.count_made_by(str(identity.sid))
        if count >= self.max_per_user:
            self._report_full()
            raise InsufficientResources(
                f"{name}: there are {count} outgoing queues for messages of {identity.name} already, as many as "
                "transfer.max_queues_per_user allows; empty ones are removed in a moment, and an administrator can "
                "purge others"
            )

    def _report_full(self) -> None:
        for subscriber in self.full_subscribers:
            subscriber()

    def _register(self, queue: Queue) -> None:
        queue.number = self._numbers.queue.next()
        queue.create_time = queue.modify_time = int(self._clocks.wall())
        self._registry.register(queue)

    def _too_many(self, name: FormatName) -> InsufficientResources:
        self._report_full()
        count = self._registry.count_for_others
        text = f"{name}: there are {count} outgoing queues already that other computers have caused"
        now = self._clocks.monotonic()
        if now >= self._complaint_due:
            self._complaint_due = now + _COMPLAINT_INTERVAL
            _LOG.warning("%s; acknowledgments to more destinations are dropped, and messages are not forwarded", text)
        return InsufficientResources(text)

    # State ----------------------------------------------------------------------------------------

    def _initial_state(self, queue: OutgoingQueue) -> OutgoingState:
        name = FormatName.parse(queue.destination_format_name)
        is_http = isinstance(name, DirectFormatName) and name.is_http
        if self._queue_manager.hardened_security and not is_http:
            return OutgoingState.LOCKED
        return OutgoingState.INACTIVE

    def reset_states(self) -> None:
        """Set the state of each outgoing queue at startup.

        HardenedSecurity locks them (DMPR-3.1.3-12).
        """
        for queue in self._registry.outgoing_queues():
            stored = queue.state
            if self._initial_state(queue) is OutgoingState.LOCKED:
                queue.state = OutgoingState.LOCKED
            elif stored is OutgoingState.LOCKED:
                queue.state = OutgoingState.WAITING
            elif stored is not OutgoingState.ON_HOLD:
                queue.state = OutgoingState.INACTIVE
            if queue.state is not stored:
                self._attributes.save_queue(queue)

    def pause_queue(self, queue: OutgoingQueue) -> None:
        """3.1.4.14 and 3.1.7.2.3 Pause Queue."""
        self.set_state(queue, OutgoingState.ON_HOLD)

    def set_state(self, queue: OutgoingQueue, state: OutgoingState) -> None:
        """Change the state of an outgoing queue, durably, and inform subscribers."""
        queue.state = state
        self._attributes.save_queue(queue)
        for subscriber in self.state_subscribers:
            subscriber(queue)

    # Idle queues ----------------------------------------------------------------------------------

    def is_idle(self, queue: OutgoingQueue) -> bool:
        """Return whether a queue is empty, closed, not paused, and waits for no FinalAck."""
        if queue.open_queue_descriptors or queue.message_count or queue.held_positions:
            return False
        sequence = self._sequences.outgoing_sequence(queue)
        return queue.state is not OutgoingState.ON_HOLD and (sequence is None or not sequence.no_read_count)

    def remove_idle_outgoing_queue(self, queue: OutgoingQueue) -> bool:
        """Remove an outgoing queue that is idle.

        It is created again when a message is sent to its destination.
        """
        if queue.is_deleted or not self.is_idle(queue):
            return False
        self.queues.delete_one(queue)
        return True
