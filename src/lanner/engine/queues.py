"""The life of queues: create, change, delete (MS-MQDMPR 3.1.7.1.3, 3.1.7.1.4, 3.1.7.1.33)."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final

from lanner.directory import AttributeFilter, Operator
from lanner.engine.checks import require_ready
from lanner.engine.queue_properties import check_changes, copied_attributes, rights_to_change
from lanner.model.directory_objects import OutgoingQueue, Queue, QueueManager, attributes_of
from lanner.model.enums import DirectoryOperationResult, MessageClass, QueueType
from lanner.model.errors import (
    AccessDenied,
    DsError,
    IllegalQueuePathname,
    NoDs,
    QueueExists,
    QueueNotAvailable,
    QueueNotFound,
    StatusError,
)
from lanner.security.access import is_granted
from lanner.security.access_lists import descriptor_text
from lanner.security.access_masks import QUEUE_MANAGER_MAPPING, QueueAccess, QueueManagerAccess
from lanner.security.identity import SYSTEM
from lanner.security.profile import Profile
from lanner.security.queue_security import check_owner, create_default_queue_security_descriptor, readable_in_a_domain
from lanner.wire.path_name import PathName
from lanner.wire.security_descriptor import SecurityDescriptor
from lanner.wire.sid import Sid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lanner.engine.core import Core
    from lanner.engine.names import Names
    from lanner.engine.outgoing_sequences import OutgoingSequences
    from lanner.engine.positions import Positions
    from lanner.security.identity import Identity
    from lanner.wire.format_name import FormatName

# Private queues that every queue manager has use fixed numbers; order_queue$ is 4 (MS-MQQB 2.2.4).
# The numbers of other queues begin after them.
LAST_SYSTEM_QUEUE_NUMBER: Final = 15
_PUBLISHED: Final = frozenset(attributes_of(Queue, "directory"))


class Queues:
    """Creation, change and deletion of queues."""

    def __init__(self, core: Core, names: Names, positions: Positions, sequences: OutgoingSequences) -> None:
        self._store = core.store
        self._queue_manager = core.queue_manager
        self._settings = core.settings
        self._clocks = core.clocks
        self._numbers = core.numbers
        self._attributes = core.attributes
        self._access = core.access
        self._audit = core.audit
        self._names = names
        self._registry = names.registry
        self._directory = names.directory_events
        self._positions = positions
        self._waiting = positions.waiting
        self._sequences = sequences

    # Create ---------------------------------------------------------------------------------------

    def set_queue_defaults(self, pathname: str = "") -> Queue:
        """3.1.7.1.33 Set Queue Defaults.

        Returns a request for Create Queue, which makes the descriptor.
        """
        return Queue(pathname=pathname)

    def create_queue(self, request: Queue, *, skip_directory: bool = False, identity: Identity = SYSTEM) -> Queue:
        """3.1.7.1.3 Create Queue."""
        require_ready(self._queue_manager)
        path = PathName.parse(request.pathname)
        if not self._registry.is_local_host(path.computer):
            raise IllegalQueuePathname(f"{request.pathname}: queues can be created on this computer only")
        if path.is_journal or path.is_system:
            raise IllegalQueuePathname(f"{request.pathname}: system queues and journals are made by the queue manager")
        details: dict[str, object] = {"queue": request.pathname}
        with self._audit.change("create queue", identity, details):
            self._access.check_machine_access(identity, QueueManagerAccess.CREATE_QUEUE)
            queue = self.make(request, path, skip_directory=skip_directory, identity=identity)
            details |= {"queue": queue.pathname, "access": _shown(queue.security)}
        return queue

    def make(
        self,
        request: Queue,
        path: PathName,
        *,
        skip_directory: bool = True,
        identity: Identity = SYSTEM,
        ends_when_unused: bool = False,
    ) -> Queue:
        """Create a queue and its journal in any state of the queue manager; check no access."""
        qm = self._queue_manager
        path = path.with_computer(qm.computer_name)
        if self._registry.has_path(path):
            raise QueueExists(f"queue {path} exists already")
        parent = None
        if path.subqueue is not None:
            parent = self._registry.find_by_path(path.without_suffix())
            if parent is None:
                raise QueueNotFound(f"{path}: no queue {path.without_suffix()} to be a subqueue of")
        queue = Queue(**copied_attributes(request))
        queue.pathname = str(path)
        queue.security = create_default_queue_security_descriptor(
            queue.security,
            identity,
            profile=self._settings.profile,
            machine_sid=self.machine_sid if qm.directory_integrated else None,
            is_domain_user=self._settings.is_domain_user,
            reachable_over_srmp=qm.srmp_http_support,
            is_published=qm.directory_integrated and path.queue_type is QueueType.PUBLIC,
        )
        queue.queue_type = path.queue_type
        if parent is not None:
            queue.parent = parent.number
            queue.transactional = parent.transactional
            queue.ends_when_unused = ends_when_unused
        self._complete(queue, path)
        if queue.queue_type is QueueType.PUBLIC and parent is None and not skip_directory:
            self._publish(queue, identity)
        self._registry.register(queue)
        if parent is None and not path.is_system:
            self._create_journal(queue, path)
        return queue

    def create_elsewhere(self, request: Queue, identity: Identity) -> Queue:
        """Create a public queue of another computer in the directory (MC-MQAC 3.10.4.1.26).

        The queue manager that owns the queue is notified (MS-MQCN). The descriptor of that queue
        manager's object in the directory decides who may do this.
        """
        require_ready(self._queue_manager)
        path = PathName.parse(request.pathname)
        with self._audit.change("create queue", identity, {"queue": request.pathname}):
            wanted = [AttributeFilter("ComputerName", Operator.EQUALS, path.computer)]
            result, host = self._directory.read_directory("QueueManager", wanted, ["Security", "ComputerName"])
            if result is not DirectoryOperationResult.SUCCESS or not isinstance(host, QueueManager):
                raise _directory_error(result, f"queue {path}: its computer cannot be found in the directory")
            rights = QueueManagerAccess.CREATE_QUEUE
            if not identity.is_system and not is_granted(host.security, identity, rights, QUEUE_MANAGER_MAPPING):
                raise AccessDenied(f"{identity.name} has no right {rights.name} on {path.computer}")
            queue = Queue(**copied_attributes(request))
            queue.queue_type = QueueType.PUBLIC
            now = int(self._clocks.wall())
            queue.create_time = queue.modify_time = now
            queue.security = create_default_queue_security_descriptor(
                queue.security,
                identity,
                profile=self._settings.profile,
                machine_sid=lambda: self._sid_of(path.computer),
                is_domain_user=self._settings.is_domain_user,
                is_published=True,
            )
            result, identifier = self._directory.create_directory_object(queue, identity=identity)
            if result is not DirectoryOperationResult.SUCCESS or identifier is None:
                raise _directory_error(result, f"queue {path} could not be created in the directory")
            queue.identifier = identifier
        return queue

    def make_system_queue(
        self, path: PathName, label: str, *, transactional: bool, number: int = 0, security: bytes | None = None
    ) -> Queue:
        """Create one of the queue manager's own queues, without a journal.

        With `number`, the queue can be addressed as a private queue of that number.
        """
        queue = Queue(label=label, queue_type=QueueType.SYSTEM, transactional=transactional)
        queue.private_queue_number, queue.security = number, security
        queue.pathname = str(path.with_computer(self._queue_manager.computer_name))
        self._complete(queue, path)
        self._registry.register(queue)
        return queue

    def _create_journal(self, queue: Queue, path: PathName) -> None:
        journal = Queue(queue_type=QueueType.SYSTEM, parent=queue.number, label="Journal queue")
        journal.pathname = f"{path};journal"
        self._complete(journal, path)
        journal.qualified_pathname += ";journal"
        self._registry.register(journal)

    def _complete(self, queue: Queue, path: PathName) -> None:
        """Set the attributes that the queue manager chooses."""
        now = int(self._clocks.wall())
        queue.number = self._numbers.queue.next()
        queue.create_time = queue.modify_time = now
        queue.qualified_pathname = str(path.with_computer(self._queue_manager.qualified_computer_name))
        queue.queue_manager = self._queue_manager
        if queue.queue_type is QueueType.PRIVATE and not queue.parent:
            numbers = self._numbers.private_queue
            number = numbers.next()
            if number <= LAST_SYSTEM_QUEUE_NUMBER:
                number = numbers.next(LAST_SYSTEM_QUEUE_NUMBER) + LAST_SYSTEM_QUEUE_NUMBER - 1
            queue.private_queue_number = number

    def machine_sid(self) -> Sid | None:
        """Return the SID of the computer's account; None if the directory does not have it."""
        return self._sid_of(self._queue_manager.computer_name)

    def _sid_of(self, computer: str) -> Sid | None:
        sid = self._directory.directory.computer_sid(computer)
        return None if sid is None else Sid.unpack(sid)

    def _publish(self, queue: Queue, identity: Identity) -> None:
        result, identifier = self._directory.create_directory_object(queue, identity=identity)
        if result is not DirectoryOperationResult.SUCCESS or identifier is None:
            raise _directory_error(result, f"queue {queue.pathname} could not be created in the directory")
        queue.identifier = identifier
        found = self._names.read_queue(identifier)
        # A directory may choose the paths of the object that it creates, so read them back.
        queue.full_path = "" if found is None else found.full_path
        queue.directory_path = "" if found is None else found.directory_path

    # Change ---------------------------------------------------------------------------------------

    def require_queue(self, name: FormatName) -> Queue:
        """Return the local or outgoing queue of a name, for access to its attributes.

        Raises QueueNotFound.
        """
        require_ready(self._queue_manager)
        queue = self._registry.find_queue(name) or self._registry.find_outgoing_queue(name)
        if queue is None:
            raise self._registry.no_queue(name)
        return queue

    def set_queue_properties(self, queue: Queue, changes: dict[str, object], *, identity: Identity = SYSTEM) -> None:
        """Change attributes that Create Queue accepts, except pathname and transactional."""
        require_ready(self._queue_manager)
        if "security" not in changes:
            self._set_queue_properties(queue, changes, identity)
            return
        details: dict[str, object] = {"queue": queue.pathname, "before": _shown(queue.security)}
        with self._audit.change("change access", identity, details):
            self._set_queue_properties(queue, changes, identity)
            details["after"] = _shown(queue.security)

    def _set_queue_properties(self, queue: Queue, changes: dict[str, object], identity: Identity) -> None:
        if "security" in changes:
            self._access.check_securing(queue, identity)
        checked = check_changes(changes)
        self._access.check_queue_access(queue, identity, rights_to_change(checked, queue.security, identity))
        security = checked.get("security")
        if self._settings.profile is Profile.SAFE and isinstance(security, bytes):
            owner = SecurityDescriptor.unpack(security).owner
            if queue.security is None or owner != SecurityDescriptor.unpack(queue.security).owner:
                check_owner(owner)
        if queue.queue_type is QueueType.PUBLIC and not queue.parent and not _PUBLISHED.isdisjoint(checked):
            # May raise, so it comes before the first change.
            self._directory.directory_of(identity)
            if isinstance(security, bytes) and self._queue_manager.directory_integrated:
                checked["security"] = readable_in_a_domain(security, self.machine_sid(), by_all=False)
        for name, value in checked.items():
            setattr(queue, name, value)
        self._save(queue, checked, identity)

    def replace_security(self, queue: Queue, security: bytes) -> None:
        """Give a queue another descriptor during startup, without an access check."""
        queue.security = security
        self._save(queue, ["security"], SYSTEM)

    def get_queue_properties(self, queue: Queue, *, identity: Identity = SYSTEM) -> Queue:
        """Return a copy of a queue's attributes.

        Security is included only if the identity may read it.
        """
        self._access.check_queue_access(queue, identity, QueueAccess.GET_QUEUE_PROPERTIES)
        snapshot = copy.copy(queue)
        try:
            self._access.check_queue_access(queue, identity, QueueAccess.GET_QUEUE_PERMISSIONS)
        except AccessDenied:
            snapshot.security = None
        return snapshot

    def _save(self, queue: Queue, changed: Iterable[str], identity: Identity) -> None:
        """Write changed attributes; those of a public queue also to the directory.

        Unchanged attributes are not written there, because the computer may not be allowed to write
        some of them (for example the owner of its queue).
        """
        queue.modify_time = int(self._clocks.wall())
        self._attributes.save_queue(queue)
        if queue.queue_type is QueueType.PUBLIC and not queue.parent:
            published = [name for name in changed if name in _PUBLISHED]
            if not published:
                return
            result = self._directory.write_directory(queue, published, identity=identity)
            if result is not DirectoryOperationResult.SUCCESS:
                raise _directory_error(result, f"queue {queue.pathname} could not be changed in the directory")

    # Delete ---------------------------------------------------------------------------------------

    def delete_queue(self, queue: Queue, *, skip_directory: bool = False, identity: Identity = SYSTEM) -> None:
        """3.1.7.1.4 Delete Queue, with its journal and subqueues."""
        require_ready(self._queue_manager)
        with self._audit.change("delete queue", identity, {"queue": queue.pathname, "messages": queue.message_count}):
            if queue.is_system:
                raise AccessDenied(f"queue {queue.pathname} belongs to the queue manager")
            self._access.check_queue_access(queue, identity, QueueAccess.DELETE_QUEUE)
            self._delete_queue(queue, skip_directory=skip_directory, identity=identity)

    def _delete_queue(self, queue: Queue, *, skip_directory: bool, identity: Identity) -> None:
        is_published = queue.queue_type is QueueType.PUBLIC and not queue.parent
        if is_published and not skip_directory:
            # May raise, so it comes before the first deletion.
            self._directory.directory_of(identity)
        for part in [*queue.subqueues.values(), queue, queue.journal_queue]:
            if part is not None:
                self.delete_one(part)
        if is_published and not skip_directory:
            result = self._directory.delete_directory_object(queue, identity=identity)
            if result is not DirectoryOperationResult.SUCCESS:
                raise _directory_error(result, f"queue {queue.pathname} was deleted here but not in the directory")

    def delete_one(self, queue: Queue) -> None:
        """Delete one queue with its messages, but not its journal and subqueues."""
        error = f"queue {queue.pathname} was deleted"
        self._waiting.stop_all(queue.waiting_reads, QueueNotAvailable(error))
        # Unindex the queue before its messages are deleted, so that their acknowledgments and dead
        # letters do not end up in it.
        self._registry.unindex(queue)
        for position in self._positions.all_positions(queue):
            if position.is_uncommitted_send:
                self._positions.remove(queue, position)
            else:
                self._positions.message_position_deleted(queue, position, MessageClass.NACK_QUEUE_DELETED)
        self._detach(queue)
        queue.open_queue_descriptors.clear()
        self._attributes.delete_queue(queue)
        self._store.drop_queue(queue.number)
        if isinstance(queue, OutgoingQueue):
            self._sequences.forget(queue)

    @staticmethod
    def _detach(queue: Queue) -> None:
        queue.is_deleted = True
        for descriptor in queue.open_queue_descriptors.values():
            descriptor.queue = None

    # Subqueues that end when they are unused ------------------------------------------------------

    def keep(self, queue: Queue) -> None:
        """Keep a subqueue until its queue is deleted."""
        queue.ends_when_unused = False
        self._attributes.save_queue(queue)

    def end_if_unused(self, queue: Queue) -> None:
        """Delete a subqueue with `ends_when_unused` that is empty and not open.

        A subqueue to which a transaction moves messages stays until the transaction has ended.
        """
        if not queue.ends_when_unused or queue.is_deleted or queue.open_queue_descriptors or queue.message_count:
            return
        transactions = self._queue_manager.transaction_collection.values()
        if any(one.target_queue is queue for each in transactions for one in each.transactional_operations):
            return
        self.delete_one(queue)

    def end_unused(self) -> None:
        """Delete the subqueues that became empty without a handle being closed."""
        emptied, self._positions.emptied = self._positions.emptied, []
        for queue in emptied:
            self.end_if_unused(queue)

    def end_all_unused(self) -> None:
        """Delete the subqueues that nobody used when the queue manager stopped."""
        for queue in list(self._queue_manager.queue_collection.values()):
            self.end_if_unused(queue)

    def go_back(self) -> None:
        """Remove queues that the store has undone because they were not synced."""
        stored = self._attributes.queue_numbers()
        for number, queue in list(self._queue_manager.queue_collection.items()):
            if number not in stored:
                error = f"queue {queue.pathname} could not be stored"
                self._waiting.stop_all(queue.waiting_reads, QueueNotAvailable(error))
                self._detach(queue)
                self._registry.unindex(queue)


def _shown(security: bytes | None) -> str | None:
    """Return a descriptor in the form that the audit log shows."""
    return None if security is None else descriptor_text(SecurityDescriptor.unpack(security))


def _directory_error(result: DirectoryOperationResult, message: str) -> StatusError:
    text = f"{message}: {result.value}"
    if result is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED:
        return NoDs(text)
    if result is DirectoryOperationResult.OBJECT_ALREADY_EXISTS:
        return QueueExists(text)
    return DsError(text)
