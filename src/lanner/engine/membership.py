"""A queue manager that enters a domain, leaves it, or comes back after its computer was set up again.

The identifiers of a queue manager and of its public queues are their objects' GUIDs (MS-MQDMPR
3.1.1), and a domain chooses those. So whatever enters one gets other identifiers. The former ones
are remembered: names that programs and stored messages have still mean the same queues here.

Each of these changes is one commit. The objects are made first, and making them again finds them,
so a change that was interrupted is done at the next start.
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
    """Changes between a domain and none."""

    def __init__(self, core: Core, names: Names, queues: Queues) -> None:
        self._queue_manager = core.queue_manager
        self._settings = core.settings
        self._attributes = core.attributes
        self._registry = names.registry
        self._directory = names.directory_events
        self._queues = queues

    def change(self) -> None:
        """Enter the domain of the settings, or leave the one that the queue manager is in."""
        qm = self._queue_manager
        self.refuse_messages_on_their_way()
        qm.directory_integrated = self._settings.directory_integrated
        qm.site_identifier_list = [uuid.UUID(site) for site in self._settings.site_identifiers]
        qm.directory_server_list = self._directory.directory.servers()
        qm.out_routing_server_identifier_list = []
        qm.in_routing_server_identifier_list = []
        qm.routing_server = False
        qm.full_path = ""
        result, identifier = self._directory.directory.create_object(qm)
        if identifier is None:
            raise _failed(result, f"the object of the queue manager {qm.computer_name} could not be made")
        if qm.directory_integrated:
            # A computer that comes back has an object, with the keys that it had then.
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

        Each has the identifier of its sender inside, and so has what acknowledges it.
        """
        waiting = [queue for queue in self._registry.outgoing_queues() if queue.message_count]
        if waiting:
            messages = sum(queue.message_count for queue in waiting)
            raise CannotJoinDomain(
                f"{messages} messages for other computers wait in {len(waiting)} outgoing queues, the first of them "
                f"{waiting[0].pathname}, and answers to them could not be assigned afterwards: let `lanner serve` deliver "
                "them first, or purge those queues"
            )

    def _publish(self, queue: Queue) -> None:
        """Make the object of a public queue, whose messages stay where they are."""
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
            # Made before an interruption, or by this computer in an earlier life.
            by_path = [AttributeFilter("Pathname", Operator.EQUALS, queue.pathname)]
            result, found = directory.read("Queue", by_path)
            identifier = None if found is None else found.identifier
        if identifier is None:
            raise _failed(result, f"the object of queue {queue.pathname} could not be made")
        return identifier

    def restore_queue(self, identifier: uuid.UUID) -> Queue | None:
        """Make the queue of an object that this queue manager has in the directory, if it is not here.

        The messages that it had are lost with the store that had them.
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
