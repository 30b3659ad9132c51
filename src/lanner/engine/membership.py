"""Membership changes: a queue manager enters a domain, leaves it, or returns after a new setup.

The identifiers of a queue manager and of its public queues are the GUIDs of their objects
(MS-MQDMPR 3.1.1), and a domain chooses those. A queue manager that enters a domain therefore gets
other identifiers. The former ones are remembered, so that names in programs and stored messages
still mean the same queues here.

Each of these changes is one commit. The objects are created first. Creating them again finds the
existing ones, so an interrupted change is completed at the next start.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from lanner.directory import AttributeFilter, Operator
from lanner.engine.directory_events import adopt, identifier_is
from lanner.model.directory_objects import Queue
from lanner.model.enums import DirectoryOperationResult, QueueType
from lanner.model.errors import CannotJoinDomain, DsError, NoDs
from lanner.security.queue_security import readable_in_a_domain
from lanner.wire.path_name import PathName

if TYPE_CHECKING:
    from lanner.engine.core import Core
    from lanner.engine.names import Names
    from lanner.engine.queues import Queues

_LOG = logging.getLogger(__name__)

_SUCCESS = DirectoryOperationResult.SUCCESS


class Membership:
    """Changes between membership in a domain and none."""

    def __init__(self, core: Core, names: Names, queues: Queues) -> None:
        self._queue_manager = core.queue_manager
        self._settings = core.settings
        self._attributes = core.attributes
        self._registry = names.registry
        self._directory = names.directory_events
        self._queues = queues

    def change(self) -> None:
        """Enter the domain of the settings, or leave the current one."""
        qm = self._queue_manager
        self.refuse_messages_on_their_way()
        qm.directory_integrated = self._settings.directory_integrated
        qm.site_identifier_list = [uuid.UUID(site) for site in self._settings.site_identifiers]
        qm.directory_server_list = self._directory.directory.servers()
        qm.out_routing_server_identifier_list = []
        qm.in_routing_server_identifier_list = []
        qm.routing_server = False
        qm.full_path = ""
        if self._settings.public_keys is not None:
            # In a domain the signing key is published as a certificate (MS-MQDSSM 3.1.6.1.1.9).
            qm.public_encryption_key_list, qm.public_signing_key_list = self._settings.public_keys()
        result, identifier = self._directory.directory.create_object(qm)
        if identifier is None:
            raise _failed(result, f"the object of the queue manager {qm.computer_name} could not be made")
        if qm.directory_integrated:
            # A computer that returns has an object with its former keys.
            self._directory.directory.write(qm, ["PublicEncryptionKeyList", "PublicSigningKeyList"])
        if identifier != qm.identifier:
            _remember(qm.former_identifiers, qm.identifier)
            qm.identifier = identifier
        for queue in list(self._registry.local_queues()):
            if queue.queue_type is QueueType.PUBLIC:
                self._publish(queue)
        self._attributes.save_queue_manager()

    def refuse_messages_on_their_way(self) -> None:
        """Raise CannotJoinDomain while messages wait for other computers.

        Each message contains the identifier of its sender, and so do its acknowledgments.
        """
        waiting = [queue for queue in self._registry.outgoing_queues() if queue.message_count]
        if waiting:
            messages = sum(queue.message_count for queue in waiting)
            raise CannotJoinDomain(
                f"{messages} messages for other computers wait in {len(waiting)} outgoing queues, the first of them "
                f"{waiting[0].pathname}, and answers to them could not be assigned afterwards: let `lanner serve` "
                "deliver them first, or purge those queues"
            )

    def _publish(self, queue: Queue) -> None:
        """Create the object of a public queue, whose messages stay in place."""
        self._registry.unindex(queue)
        try:
            queue.full_path = queue.directory_path = ""
            if self._queue_manager.directory_integrated:
                queue.security = readable_in_a_domain(queue.security, self._queues.machine_sid())
            identifier = self._create(queue)
            if identifier != queue.identifier:
                _remember(queue.former_identifiers, queue.identifier)
                queue.identifier = identifier
        finally:
            self._registry.index(queue)
        _, found = self._directory.directory.read("Queue", identifier_is(queue.identifier))
        if isinstance(found, Queue):
            queue.full_path, queue.directory_path = found.full_path, found.directory_path
        self._attributes.save_queue(queue)

    def _create(self, queue: Queue) -> uuid.UUID:
        directory = self._directory.directory
        result, identifier = directory.create_object(queue)
        if result is DirectoryOperationResult.OBJECT_ALREADY_EXISTS:
            # Created before an interruption, or by an earlier installation of this computer.
            by_path = [AttributeFilter("Pathname", Operator.EQUALS, queue.pathname)]
            result, found = directory.read("Queue", by_path)
            identifier = None if found is None else found.identifier
        if identifier is None:
            raise _failed(result, f"the object of queue {queue.pathname} could not be made")
        return identifier

    def restore_queue(self, identifier: uuid.UUID) -> Queue | None:
        """Create the queue for an object that this queue manager has in the directory.

        Returns None if the queue exists here. The messages of the former queue were lost with its
        store.
        """
        if identifier in {queue.identifier for queue in self._registry.local_queues()}:
            return None
        result, found = self._directory.directory.read("Queue", identifier_is(identifier))
        if not isinstance(found, Queue):
            raise _failed(result, f"the object {identifier} of a queue cannot be read")
        path = PathName.parse(found.pathname)
        if self._registry.has_path(path):
            return None
        queue = self._queues.make(found, path)
        self._registry.unindex(queue)
        pathname, qualified = queue.pathname, queue.qualified_pathname
        queue.identifier = identifier
        adopt(queue, found)
        # The directory writes the computer's name in its own case.
        queue.pathname, queue.qualified_pathname = pathname, qualified
        self._registry.index(queue)
        self._attributes.save_queue(queue)
        return queue


def _remember(former: list[uuid.UUID], identifier: uuid.UUID) -> None:
    if identifier not in former:
        former.append(identifier)


def _failed(result: DirectoryOperationResult, what: str) -> DsError | NoDs:
    kind = NoDs if result is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED else DsError
    return kind(f"{what}: {result.value}; the log says more")
