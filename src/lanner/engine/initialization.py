"""Initialization of a queue manager, its directory object and its queues (MS-MQDMPR 3.1.3).

An error in a step ends the initialization before any later step. The time of a step does not depend
on the number of messages.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Final

from lanner.directory.embedded import ADMINISTRATORS
from lanner.engine.directory_events import adopt, identifier_is
from lanner.engine.membership import Membership
from lanner.engine.persistence import apply_attributes
from lanner.engine.queue_kinds import ADMINISTRATION_QUEUE
from lanner.model.directory_objects import INITIALIZATION_RETRY_TIMER_DURATION, Enterprise, OutgoingQueue, Queue
from lanner.model.enums import DirectoryOperationResult, OutgoingState, QueueType
from lanner.model.errors import DsError
from lanner.security.access_masks import QueueAccess
from lanner.security.queue_security import default_queue_manager_security
from lanner.wire.change_notification import NOTIFY_QUEUE_NUMBER
from lanner.wire.path_name import PathName
from lanner.wire.security_descriptor import Acl, SecurityDescriptor, allow
from lanner.wire.sid import ANONYMOUS_LOGON, BUILTIN_ADMINISTRATORS, EVERYONE

if TYPE_CHECKING:
    from lanner.engine.core import Core
    from lanner.engine.names import Names
    from lanner.engine.outgoing_queues import OutgoingQueues
    from lanner.engine.positions import Positions

_LOG = logging.getLogger(__name__)

# MS-MQDMPR 3.1.3, except the last, which is not in the specification: attribute of the queue
# manager, path, label.
SYSTEM_QUEUES: Final = (
    ("system_deadletter_queue", r".\system$;DEADLETTER", "Deadletter queue"),
    ("system_transactional_deadletter_queue", r".\system$;DEADXACT", "Transactional dead-letter queue"),
    ("system_journal_queue", r".\system$;JOURNAL", "Journal queue"),
    ("order_acknowledgment_queue", r".\private$\order_queue$", "Order acknowledgment queue"),
    ("change_notification_queue", r".\private$\notify_queue$", "Change notification queue"),
    ("awaiting_final_ack_queue", r".\private$\awaiting_final_ack$", "Messages that await their final acknowledgment"),
)
# The system queue that other queue managers send to, with its private queue number (MS-MQCN 1.9).
# Everyone may send to it; its messages are checked when they are processed.
_ADDRESSED: Final = {
    "change_notification_queue": (
        NOTIFY_QUEUE_NUMBER,
        SecurityDescriptor(
            owner=BUILTIN_ADMINISTRATORS,
            group=BUILTIN_ADMINISTRATORS,
            dacl=Acl(
                (
                    allow(BUILTIN_ADMINISTRATORS, QueueAccess.GENERIC_ALL),
                    allow(EVERYONE, QueueAccess.WRITE_MESSAGE),
                    allow(ANONYMOUS_LOGON, QueueAccess.WRITE_MESSAGE),
                )
            ),
        ).pack(),
    )
}


class Initialization:
    """Loads or provisions the queue manager and its queues."""

    def __init__(self, core: Core, names: Names, positions: Positions, outgoing: OutgoingQueues) -> None:
        self._queue_manager = core.queue_manager
        self._settings = core.settings
        self._clocks = core.clocks
        self._attributes = core.attributes
        self._registry = names.registry
        self._directory = names.directory_events
        self._positions = positions
        self._outgoing = outgoing
        self._queues = outgoing.queues
        self.membership = Membership(core, names, outgoing.queues)

    def run(self) -> None:
        """Do the steps of 3.1.3 up to the queues and their states."""
        provisioning = not self._attributes.load_queue_manager()
        self._query_policy()
        if provisioning:
            self._provision()
        self._load_queues()
        changes = self._queue_manager.directory_integrated != self._settings.directory_integrated
        if changes and self._settings.changes_membership:
            self.membership.change()
        if self._queue_manager.directory_integrated:
            self._synchronise_with_directory(provisioning=provisioning)
            self._directory.start_timers()
        self._create_system_queues()
        self._outgoing.reset_states()

    def _query_policy(self) -> None:
        """Set the names of the computer and the values that the settings determine."""
        qm, settings = self._queue_manager, self._settings
        policy = settings.query_policy()
        qm.machine_domain_id = policy.domain_guid
        # Without a name in the settings, the queue manager keeps its current one.
        name = policy.account_domain_name or qm.computer_name or settings.default_computer_name
        if qm.computer_name and name.lower() != qm.computer_name.lower():
            _LOG.warning(
                "the queue manager %s is now called %s: messages to the old name no longer arrive here",
                qm.computer_name,
                name,
            )
        qm.computer_name = name
        domain = policy.dns_domain_name
        qm.qualified_computer_name = f"{qm.computer_name}.{domain}" if domain else qm.computer_name
        qm.hardened_security = settings.hardened_security
        if settings.queue_manager_quota is not None:
            qm.queue_manager_quota = settings.queue_manager_quota
        if settings.journal_quota is not None:
            qm.journal_quota = settings.journal_quota

    def _provision(self) -> None:
        """Set up a new queue manager and create its object in the directory."""
        qm, settings = self._queue_manager, self._settings
        qm.create_time = qm.modify_time = int(self._clocks.wall())
        qm.directory_integrated = settings.directory_integrated
        qm.security = default_queue_manager_security(ADMINISTRATORS, profile=settings.profile)
        qm.initialization_retry_timer_duration = INITIALIZATION_RETRY_TIMER_DURATION
        if settings.public_keys is not None:
            qm.public_encryption_key_list, qm.public_signing_key_list = settings.public_keys()
        qm.site_identifier_list = [uuid.UUID(site) for site in settings.site_identifiers]
        qm.directory_server_list = self._directory.directory.servers()
        result, identifier = self._directory.directory.create_object(qm)
        if identifier is not None:
            # A computer that is set up again keeps its existing object (MS-MQDSSM 3.1.6.1.1.2).
            qm.identifier = identifier
            if qm.directory_integrated:
                # That object does not have the current keys of this computer.
                self._directory.directory.write(qm, ["PublicEncryptionKeyList", "PublicSigningKeyList"])
        else:
            _LOG.warning("the queue manager's object was not created in the directory: %s", result.value)

    def _synchronise_with_directory(self, *, provisioning: bool) -> None:
        qm = self._queue_manager
        result, found = self._directory.read_directory("QueueManager", identifier_is(qm.identifier))
        if result is DirectoryOperationResult.SUCCESS and found is not None:
            adopt(qm, found)
            self._directory.read_collections()
        elif not (result is DirectoryOperationResult.OBJECT_NOT_FOUND and provisioning):
            _raise_unless_offline(result, "the queue manager's own object cannot be read")
        attributes = ["NonLDAPCapableQueueManagerNotification"]
        result, enterprise = self._directory.read_directory("Enterprise", None, attributes)
        if result is DirectoryOperationResult.SUCCESS and isinstance(enterprise, Enterprise):
            qm.enterprise_reference = enterprise
        elif result is DirectoryOperationResult.ATTRIBUTE_NOT_FOUND:
            qm.enterprise_reference = Enterprise(non_ldap_capable_queue_manager_notification=True)
        else:
            _raise_unless_offline(result, "the enterprise's object cannot be read")
        _, found = self._directory.read_directory("Enterprise", None, ["WeakenedSecurity"])
        if isinstance(found, Enterprise) and qm.enterprise_reference is not None:
            # Determines whose credentials are used for a change of the directory (3.1.1.6).
            qm.enterprise_reference.weakened_security = found.weakened_security

    def _load_queues(self) -> None:
        qm = self._queue_manager
        classes = {"Queue": Queue, "OutgoingQueue": OutgoingQueue}
        for number, class_name, attributes in self._attributes.queues():
            queue = qm.queue_collection.get(number)
            if queue is None:
                queue = classes[class_name]()
            apply_attributes(queue, attributes)
            self._name_host(queue)
            self._registry.index(queue)
            self._positions.count(queue)
        qm.total_bytes = sum(queue.total_bytes for queue in qm.queue_collection.values())

    def _name_host(self, queue: Queue) -> None:
        """Put the name of this computer into a queue's path names, in case it was renamed."""
        if isinstance(queue, OutgoingQueue) or queue.queue_type is QueueType.CONNECTOR:
            return
        path = PathName.parse(queue.pathname)
        queue.pathname = str(path.with_computer(self._queue_manager.computer_name))
        queue.qualified_pathname = str(path.with_computer(self._queue_manager.qualified_computer_name))

    def _create_system_queues(self) -> None:
        for attribute, pathname, label in SYSTEM_QUEUES:
            path = PathName.parse(pathname)
            queue = self._registry.find_by_path(path)
            number, security = _ADDRESSED.get(attribute, (0, None))
            if queue is None:
                is_transactional = attribute == "system_transactional_deadletter_queue"
                queue = self._queues.make_system_queue(
                    path, label, transactional=is_transactional, number=number, security=security
                )
            elif (queue.private_queue_number, queue.security) != (number, security):
                # The queue was created by a version without change notifications.
                self._registry.unindex(queue)
                queue.private_queue_number, queue.security = number, security
                self._registry.register(queue)
            setattr(self._queue_manager, attribute, queue)
        path = PathName.parse(ADMINISTRATION_QUEUE)
        if self._registry.find_by_path(path) is None:
            request = self._queues.set_queue_defaults(ADMINISTRATION_QUEUE)
            request.label = "Administration queue"
            self._queues.make(request, path)

    def reload_queues(self) -> None:
        """Load the attributes of all queues again, after the store has undone unsynced changes.

        The disk does not decide the state of the connection to a destination. It does decide
        whether a queue is paused.
        """
        outgoing = self._registry.outgoing_queues
        states = {queue.number: queue.state for queue in outgoing()}
        self._load_queues()
        for queue in outgoing():
            if OutgoingState.ON_HOLD not in (queue.state, states.get(queue.number)):
                queue.state = states.get(queue.number, queue.state)


def _raise_unless_offline(result: DirectoryOperationResult, what: str) -> None:
    """Raise DsError, unless the directory is disconnected, which begins the offline mode."""
    if result is not DirectoryOperationResult.DIRECTORY_NOT_CONNECTED:
        raise DsError(f"{what}: {result.value}")
