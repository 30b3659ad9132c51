"""Queues: create, delete, open, close, change (MS-MQDMPR 3.1.7.1.3-3.1.7.1.6, 3.1.7.1.33)."""

from __future__ import annotations

import copy
import logging
import uuid
from typing import TYPE_CHECKING

from lanner.engine.directory_events import identifier_is
from lanner.engine.names import Names, path_key, private_queue_local_identifier
from lanner.engine.queue_properties import check_changes, copied_attributes, rights_to_change
from lanner.engine.tables import QUEUE_KEY
from lanner.model.directory_objects import OutgoingQueue, Queue, Site
from lanner.model.enums import (
    DirectoryOperationResult,
    MessageClass,
    OutgoingState,
    PositionState,
    QueueAccessType,
    QueueShareMode,
    QueueType,
)
from lanner.model.errors import (
    AccessDenied,
    DsError,
    IllegalFormatname,
    IllegalQueuePathname,
    InsufficientResources,
    InvalidHandle,
    NoDs,
    OperationCancelled,
    QueueExists,
    QueueNotAvailable,
    QueueNotFound,
    SharingViolation,
    StatusError,
    UnsupportedAccessMode,
    UnsupportedFormatnameOperation,
)
from lanner.model.live import START, MessagePosition, OpenQueueDescriptor
from lanner.security.access import (
    DEADLETTER_RIGHTS,
    JOURNAL_RIGHTS,
    MACHINE_JOURNAL_RIGHTS,
    QUEUE_RIGHTS,
    is_granted,
)
from lanner.security.access_masks import (
    QUEUE_MANAGER_MAPPING,
    ConnectedNetworkAccess,
    QueueAccess,
    QueueManagerAccess,
)
from lanner.security.identity import SYSTEM
from lanner.security.queue_security import create_default_queue_security_descriptor
from lanner.wire.format_name import (
    ConnectorFormatName,
    DirectFormatName,
    FormatName,
    MachineFormatName,
    MulticastFormatName,
    MultipleElementFormatName,
    PrivateFormatName,
    PublicFormatName,
)
from lanner.wire.path_name import PathName
from lanner.wire.sid import Sid
from lanner.wire.spelling import check_computer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lanner.security.identity import Identity

_LOG = logging.getLogger(__name__)

# Private queues that every queue manager has bear fixed numbers, order_queue$ 4 (MS-MQQB 2.2.4); others begin behind them.
LAST_SYSTEM_QUEUE_NUMBER = 15
ADMIN_ACCESS = frozenset({QueueAccessType.RECEIVE_ADMIN, QueueAccessType.PEEK_ADMIN})
# Ours, seconds: what others can do with every message is told of at most so often.
_COMPLAINT_INTERVAL = 10.0


class Queues(Names):
    """The life of queues and of open handles to them."""

    # Create and delete ----------------------------------------------------------------------------------

    def set_queue_defaults(self, pathname: str = "") -> Queue:
        """3.1.7.1.33 Set Queue Defaults: a request for Create Queue; the descriptor is made there."""
        return Queue(pathname=pathname)

    def create_queue(self, request: Queue, *, skip_directory: bool = False, identity: Identity = SYSTEM) -> Queue:
        """3.1.7.1.3 Create Queue."""
        self._require_ready()
        path = PathName.parse(request.pathname)
        if not self.is_local_host(path.computer):
            raise IllegalQueuePathname(f"{request.pathname}: queues can be created on this computer only")
        if path.is_journal or path.is_system:
            raise IllegalQueuePathname(f"{request.pathname}: system queues and journals are made by the queue manager")
        self._check_machine_access(identity, QueueManagerAccess.CREATE_QUEUE)
        return self._create_queue(request, path, skip_directory=skip_directory, identity=identity)

    def _create_queue(
        self, request: Queue, path: PathName, *, skip_directory: bool = True, identity: Identity = SYSTEM
    ) -> Queue:
        qm = self.queue_manager
        path = path.with_computer(qm.computer_name)
        if path_key(path.queue_part) in self._by_path:
            raise QueueExists(f"queue {path} exists already")
        parent = None
        if path.subqueue is not None:
            parent = self.find_by_path(path.without_suffix())
            if parent is None:
                raise QueueNotFound(f"{path}: no queue {path.without_suffix()} to be a subqueue of")
        queue = Queue(**copied_attributes(request))
        queue.pathname = str(path)
        queue.security = create_default_queue_security_descriptor(
            queue.security,
            identity,
            machine_sid=self._machine_sid if qm.directory_integrated else None,
            is_domain_user=self.settings.is_domain_user,
            reachable_over_srmp=qm.srmp_http_support,
        )
        queue.queue_type = path.queue_type
        if parent is not None:
            queue.parent = parent.number
            queue.transactional = parent.transactional
        self._complete(queue, path)
        if queue.queue_type is QueueType.PUBLIC and parent is None and not skip_directory:
            self._publish(queue)
        self._register(queue)
        if parent is None and not path.is_system:
            self._create_journal(queue, path)
        return queue

    def _complete(self, queue: Queue, path: PathName) -> None:
        """The attributes the queue manager sets itself."""
        now = int(self.clock())
        queue.number = self._queue_number.next()
        queue.create_time = queue.modify_time = now
        queue.qualified_pathname = str(path.with_computer(self.queue_manager.qualified_computer_name))
        queue.queue_manager = self.queue_manager
        if queue.queue_type is QueueType.PRIVATE and not queue.parent:
            number = self._private_queue_number.next()
            if number <= LAST_SYSTEM_QUEUE_NUMBER:
                number = self._private_queue_number.next(LAST_SYSTEM_QUEUE_NUMBER) + LAST_SYSTEM_QUEUE_NUMBER - 1
            queue.private_queue_number = number

    def _machine_sid(self) -> Sid | None:
        sid = self.directory.computer_sid(self.queue_manager.computer_name)
        return None if sid is None else Sid.unpack(sid)

    def _publish(self, queue: Queue) -> None:
        result, identifier = self.create_directory_object(queue)
        if result is not DirectoryOperationResult.SUCCESS or identifier is None:
            raise _directory_error(result, f"queue {queue.pathname} could not be created in the directory")
        queue.identifier = identifier
        found = self._read_queue(identifier)
        # A directory may tell its paths while it creates; only what is read back counts.
        queue.full_path = "" if found is None else found.full_path
        queue.directory_path = "" if found is None else found.directory_path

    def _create_journal(self, queue: Queue, path: PathName) -> None:
        journal = Queue(queue_type=QueueType.SYSTEM, parent=queue.number, label="Journal queue")
        journal.pathname = f"{path};journal"
        self._complete(journal, path)
        journal.qualified_pathname += ";journal"
        self._register(journal)

    def _register(self, queue: Queue) -> None:
        """Add to QueueCollection, durably."""
        self._save_attributes(queue)
        self._index(queue)

    def _index(self, queue: Queue) -> None:
        qm = self.queue_manager
        qm.queue_collection[queue.number] = queue
        queue.queue_manager = qm
        by_name = self._by_format_name(queue)
        if by_name is not None:
            by_name[FormatName.parse(queue.pathname).key] = queue
            if isinstance(queue, OutgoingQueue) and queue.is_for_others:
                self._queues_for_others.add(queue.number)
            return
        part = PathName.parse(queue.pathname).queue_part
        self._by_path[path_key(part)] = queue
        if queue.queue_type is QueueType.PUBLIC and not queue.parent:
            self._by_identifier[queue.identifier] = queue
        if queue.private_queue_number:
            self._by_private_number[queue.private_queue_number] = queue
            self._by_private_name.setdefault(private_queue_local_identifier(part.name), queue)
        parent = qm.queue_collection.get(queue.parent)
        if parent is not None:
            if part.is_journal:
                parent.journal_queue = queue
            elif part.subqueue is not None:
                parent.subqueues[part.subqueue.lower()] = queue

    def _by_format_name(self, queue: Queue) -> dict[str, Queue] | None:
        """Queues without a path name here are found by a format name."""
        if isinstance(queue, OutgoingQueue):
            return self._by_destination
        return self._by_connector if queue.queue_type is QueueType.CONNECTOR else None

    def _unindex(self, queue: Queue) -> None:
        qm = self.queue_manager
        qm.queue_collection.pop(queue.number, None)
        by_name = self._by_format_name(queue)
        if by_name is not None:
            by_name.pop(FormatName.parse(queue.pathname).key, None)
            self._queues_for_others.discard(queue.number)
            return
        part = PathName.parse(queue.pathname).queue_part
        self._by_path.pop(path_key(part), None)
        self._by_identifier.pop(queue.identifier, None)
        self._by_private_number.pop(queue.private_queue_number, None)
        identifier = private_queue_local_identifier(part.name)
        if self._by_private_name.get(identifier) is queue:
            del self._by_private_name[identifier]
        parent = qm.queue_collection.get(queue.parent)
        if parent is not None and part.subqueue is not None:
            parent.subqueues.pop(part.subqueue.lower(), None)

    def require_queue(self, name: FormatName) -> Queue:
        """The queue of a name, local or outgoing, for its attributes."""
        self._require_ready()
        queue = self.find_queue(name) or self.find_outgoing_queue(name)
        if queue is None:
            raise self._no_queue(name)
        return queue

    def _no_queue(self, name: FormatName) -> QueueNotFound:
        return QueueNotFound(f"no queue {name} on {self.queue_manager.computer_name}")

    def local_queues(self) -> Iterator[Queue]:
        """Public and private queues, without journals, subqueues, system and outgoing queues."""
        for queue in self.queue_manager.queue_collection.values():
            is_local = queue.queue_type in (QueueType.PRIVATE, QueueType.PUBLIC) and not queue.parent
            if is_local and not isinstance(queue, OutgoingQueue):
                yield queue

    def outgoing_queues(self) -> Iterator[OutgoingQueue]:
        """Queues whose messages wait for another computer."""
        for queue in self.queue_manager.queue_collection.values():
            if isinstance(queue, OutgoingQueue):
                yield queue

    def set_queue_properties(self, queue: Queue, changes: dict[str, object], *, identity: Identity = SYSTEM) -> None:
        """Change attributes of a queue that Create Queue would take; the pathname and kind stay."""
        self._require_ready()
        checked = check_changes(changes)
        self.check_queue_access(queue, identity, rights_to_change(checked, queue.security, identity))
        for name, value in checked.items():
            setattr(queue, name, value)
        self.save_queue(queue)

    def get_queue_properties(self, queue: Queue, *, identity: Identity = SYSTEM) -> Queue:
        """The attributes of a queue at this moment; its Security only for those who may see it."""
        self.check_queue_access(queue, identity, QueueAccess.GET_QUEUE_PROPERTIES)
        snapshot = copy.copy(queue)
        try:
            self.check_queue_access(queue, identity, QueueAccess.GET_QUEUE_PERMISSIONS)
        except AccessDenied:
            snapshot.security = None
        return snapshot

    def save_queue(self, queue: Queue) -> None:
        """Write changed attributes; a public queue's also to the directory."""
        queue.modify_time = int(self.clock())
        self._save_attributes(queue)
        if queue.queue_type is QueueType.PUBLIC and not queue.parent:
            result = self.write_directory(queue)
            if result is not DirectoryOperationResult.SUCCESS:
                raise _directory_error(result, f"queue {queue.pathname} could not be changed in the directory")

    def delete_queue(self, queue: Queue, *, skip_directory: bool = False, identity: Identity = SYSTEM) -> None:
        """3.1.7.1.4 Delete Queue, with its journal and subqueues."""
        self._require_ready()
        if queue.is_system:
            raise AccessDenied(f"queue {queue.pathname} belongs to the queue manager")
        self.check_queue_access(queue, identity, QueueAccess.DELETE_QUEUE)
        is_published = queue.queue_type is QueueType.PUBLIC and not queue.parent
        for part in [*queue.subqueues.values(), queue, queue.journal_queue]:
            if part is not None:
                self._delete_one(part)
        if is_published and not skip_directory:
            result = self.delete_directory_object(queue)
            if result is not DirectoryOperationResult.SUCCESS:
                raise _directory_error(result, f"queue {queue.pathname} is gone here but not in the directory")

    def _delete_one(self, queue: Queue) -> None:
        error = f"queue {queue.pathname} was deleted"
        self._stop_waiting_reads(list(queue.waiting_reads), QueueNotAvailable(error))
        # Before the messages: an acknowledgment or a dead letter of theirs must find another queue than this.
        self._unindex(queue)
        for position in self._all_positions(queue):
            if position.is_uncommitted_send:
                self._remove(queue, position)
            else:
                self.message_position_deleted(queue, position, MessageClass.NACK_QUEUE_DELETED)
        queue.is_deleted = True
        for descriptor in queue.open_queue_descriptors:
            descriptor.queue = None
        queue.open_queue_descriptors.clear()
        self._queues_table.delete(QUEUE_KEY.pack(queue.number))
        self.store.drop_queue(queue.number)

    def _all_positions(self, queue: Queue) -> Iterator[MessagePosition]:
        """Every position of the list, held or not, while the caller removes them."""
        yield from list(queue.held_positions.values())
        after = START
        while (lookup_id := self.store.next(queue.number, after)) is not None:
            after = lookup_id
            if lookup_id not in queue.held_positions:
                record = self.store.get(queue.number, lookup_id)
                if record is not None:
                    yield MessagePosition(queue, lookup_id, record)

    # Access -----------------------------------------------------------------------------------------------

    def check_queue_access(self, queue: Queue, identity: Identity, rights: int) -> None:
        """Raise AccessDenied unless the queue's descriptor grants the rights."""
        if identity.is_system:
            return
        if isinstance(queue, OutgoingQueue) or (queue.is_system and not queue.parent):
            # They have no descriptor: what may be read of them is in `_check_open`, the rest is administration.
            self._require_administrator(queue, identity)
        elif not is_granted(self._guarding_queue(queue).security, identity, rights):
            raise AccessDenied(f"{identity.name} has no right {_right_name(rights)} on queue {queue.pathname}")

    def _check_machine_access(self, identity: Identity, rights: QueueManagerAccess) -> None:
        if identity.is_system:
            return
        if not is_granted(self.queue_manager.security, identity, rights, QUEUE_MANAGER_MAPPING):
            raise AccessDenied(
                f"{identity.name} has no right {_right_name(rights)} on {self.queue_manager.computer_name}"
            )

    def _guarding_queue(self, queue: Queue) -> Queue:
        """A journal or a subqueue is guarded by its queue's descriptor."""
        return self.queue_manager.queue_collection.get(queue.parent, queue) if queue.parent else queue

    def _check_open(self, queue: Queue, access: QueueAccessType, identity: Identity) -> None:
        qm = self.queue_manager
        if queue in (qm.order_acknowledgment_queue, qm.change_notification_queue) and not identity.is_system:
            raise AccessDenied(f"queue {queue.pathname} is for the queue manager's own use")
        if queue in (qm.system_deadletter_queue, qm.system_transactional_deadletter_queue):
            self._check_machine_access(identity, DEADLETTER_RIGHTS[access])
        elif queue is qm.system_journal_queue:
            self._check_machine_access(identity, MACHINE_JOURNAL_RIGHTS[access])
        elif isinstance(queue, OutgoingQueue):
            if access is not QueueAccessType.SEND:
                self._require_administrator(queue, identity)
        elif queue.queue_type is QueueType.CONNECTOR:
            self.check_queue_access(queue, identity, ConnectedNetworkAccess.OPEN_CONNECTOR)
        else:
            rights = JOURNAL_RIGHTS if queue.is_system else QUEUE_RIGHTS
            self.check_queue_access(queue, identity, rights[access])

    @staticmethod
    def _require_administrator(queue: Queue, identity: Identity) -> None:
        if not identity.is_administrator:
            raise AccessDenied(
                f"{identity.name} is no administrator: queue {queue.pathname} belongs to the queue manager"
            )

    # Open and close -----------------------------------------------------------------------------------------

    def open_queue(
        self,
        name: FormatName,
        access: QueueAccessType,
        share_mode: QueueShareMode = QueueShareMode.DENY_NONE,
        identity: Identity = SYSTEM,
    ) -> OpenQueueDescriptor:
        """3.1.7.1.5 Open Queue."""
        self._require_ready()
        return self._open_queue(name, access, share_mode, identity)

    def _open_queue(
        self,
        name: FormatName,
        access: QueueAccessType,
        share_mode: QueueShareMode,
        identity: Identity,
        *,
        for_others: bool = False,
    ) -> OpenQueueDescriptor:
        name = self._expand_format_name(name)
        if isinstance(name, MultipleElementFormatName):
            return self._open_multiple(name, access, share_mode, identity, for_others=for_others)
        self._check_operation(name, access)
        queue = self._find_to_open(name, access, identity)
        if queue is None:
            if access is not QueueAccessType.SEND:
                raise self._no_queue(name)
            queue = self._outgoing_queue(name, for_others=for_others)
        self._check_open(queue, access, identity)
        self._check_sharing(queue, access, share_mode)
        if isinstance(name, DirectFormatName) and name.is_on_this_computer:
            # A packet must not carry ".": every computer would take it for itself.
            name = self.format_name_of(queue)
        descriptor = self._new_descriptor(name, access, share_mode)
        descriptor.queue = queue
        descriptor.sender_identifier = identity.sid.pack()
        queue.open_queue_descriptors.append(descriptor)
        return descriptor

    def _open_multiple(
        self,
        name: MultipleElementFormatName,
        access: QueueAccessType,
        share_mode: QueueShareMode,
        identity: Identity,
        *,
        for_others: bool,
    ) -> OpenQueueDescriptor:
        if access is not QueueAccessType.SEND:
            raise UnsupportedFormatnameOperation(f"{name}: several queues can be opened together for sending only")
        if share_mode is not QueueShareMode.DENY_NONE:
            raise UnsupportedAccessMode(f"{name}: several queues cannot be opened exclusively")
        descriptor = self._new_descriptor(name, access, share_mode)
        descriptor.multiple = True
        descriptor.sender_identifier = identity.sid.pack()
        for element in name.elements:
            try:
                child = self._open_queue(element, access, share_mode, identity, for_others=for_others)
                descriptor.children.append(child)
            except StatusError:
                self.close_queue(descriptor)
                raise
        # Their names, since "." must not stand in a packet.
        descriptor.format_name = ",".join(child.format_name for child in descriptor.children)
        return descriptor

    @staticmethod
    def _check_operation(name: FormatName, access: QueueAccessType) -> None:
        is_send = access is QueueAccessType.SEND
        is_http = isinstance(name, DirectFormatName) and name.is_http
        if (is_http or isinstance(name, MulticastFormatName)) and not is_send:
            raise UnsupportedFormatnameOperation(f"{name} can be opened for sending only")
        is_subqueue = isinstance(name, DirectFormatName) and (
            name.queue_part is not None and name.queue_part.subqueue is not None
        )
        # Journals and dead-letter queues are filled by queue managers, subqueues by moves; a connector queue by
        # messages to the queues behind it, and no packet can name it (MS-MQMQ 2.2.19.2).
        is_filled_by_others = isinstance(name, (MachineFormatName, ConnectorFormatName)) or name.is_read_only
        if is_send and (is_filled_by_others or is_subqueue):
            raise UnsupportedFormatnameOperation(f"{name} cannot be opened for sending")

    def _find_to_open(self, name: FormatName, access: QueueAccessType, identity: Identity) -> Queue | None:
        if access in ADMIN_ACCESS:
            return self.find_outgoing_queue(name)
        queue = self.find_queue(name)
        if queue is not None:
            return queue
        if isinstance(name, DirectFormatName) and name.path_name is not None:
            path = name.path_name
            parent = None if path.subqueue is None else self.find_by_path(path.without_suffix())
            if parent is not None:
                # A subqueue comes into being when somebody who may do so first opens it.
                self._check_open(parent, access, identity)
                return self._create_queue(self.set_queue_defaults(str(path)), path)
        if isinstance(name, ConnectorFormatName):
            return self._connector_queue(name, identity)
        return self.find_outgoing_queue(name) if access is QueueAccessType.SEND else None

    def _connector_queue(self, name: ConnectorFormatName, identity: Identity) -> Queue | None:
        """MS-MQDMPR 3.1.1.2 Connector: where messages for a foreign site wait for its connector.

        Whoever the site's descriptor gives MQSEC_CN_OPEN_CONNECTOR (MS-MQMQ 2.2.27) may read it.
        """
        _, site = self.read_directory("Site", identifier_is(name.identifier))
        if not isinstance(site, Site) or not site.foreign_site:
            return None
        queue = Queue(label=str(name), pathname=name.key, transactional=name.is_transactional)
        queue.queue_type = QueueType.CONNECTOR
        queue.security = site.security
        self.check_queue_access(queue, identity, ConnectedNetworkAccess.OPEN_CONNECTOR)
        queue.number = self._queue_number.next()
        queue.create_time = queue.modify_time = int(self.clock())
        self._register(queue)
        return queue

    def _outgoing_queue(self, name: FormatName, *, for_others: bool) -> OutgoingQueue:
        """The steps of Open Queue for a destination that is not here.

        `for_others`: nobody here asked for it. A stranger can name any number of destinations, and what waits for those that
        do not answer stays; so there is a limit, InsufficientResources beyond it.
        """
        queue = OutgoingQueue(label=str(name), destination_format_name=str(name), is_for_others=for_others)
        if isinstance(name, DirectFormatName):
            if self.is_local_host(name.host):
                raise self._no_queue(name)
            try:
                check_computer(name.host)
            except ValueError as error:
                # No computer can be called so: what is sent to it would wait for ever.
                raise IllegalFormatname(f"{name}: {error}") from None
        if isinstance(name, PublicFormatName):
            found = self._read_queue(name.identifier)
            if found is None:
                raise UnsupportedFormatnameOperation(f"{name}: no such public queue in the directory")
            if found.queue_manager is not None and self.is_local_host(found.queue_manager.computer_name):
                raise self._no_queue(name)
            # The text reads again for the new queue; a directory that fails here has it no more.
            found = self._read_queue(name.identifier)
            if found is None:
                raise QueueNotFound(f"{name}: the directory no longer tells of this queue")
            queue.base_priority = found.base_priority
        if isinstance(name, PrivateFormatName) and name.queue_manager_identifier == self.queue_manager.identifier:
            raise self._no_queue(name)
        if for_others and len(self._queues_for_others) >= self.max_queues_for_others:
            raise self._too_many_queues_for_others(name)
        queue.identifier = uuid.uuid4()
        queue.queue_type = QueueType.PRIVATE
        queue.pathname = str(name)
        queue.multicast = isinstance(name, MulticastFormatName)
        queue.state = self._initial_state(queue)
        queue.number = self._queue_number.next()
        queue.create_time = queue.modify_time = int(self.clock())
        self._register(queue)
        return queue

    def _too_many_queues_for_others(self, name: FormatName) -> InsufficientResources:
        text = f"{name}: there are {len(self._queues_for_others)} outgoing queues already that other computers had made"
        now = self.monotonic()
        if now >= self._queues_for_others_complaint_due:
            self._queues_for_others_complaint_due = now + _COMPLAINT_INTERVAL
            _LOG.warning("%s; acknowledgments to more destinations are dropped, messages not passed on", text)
        return InsufficientResources(text)

    def _initial_state(self, queue: OutgoingQueue) -> OutgoingState:
        name = FormatName.parse(queue.destination_format_name)
        is_http = isinstance(name, DirectFormatName) and name.is_http
        if self.queue_manager.hardened_security and not is_http:
            return OutgoingState.LOCKED
        return OutgoingState.INACTIVE

    @staticmethod
    def _check_sharing(queue: Queue, access: QueueAccessType, share_mode: QueueShareMode) -> None:
        """The three sharing rules of Open Queue, in their order."""
        exclusive = share_mode is QueueShareMode.DENY_RECEIVE
        opened = {(d.access_type, d.share_mode) for d in queue.open_queue_descriptors}
        deny, share = QueueShareMode.DENY_RECEIVE, QueueShareMode.DENY_NONE
        is_receive = access is QueueAccessType.RECEIVE
        if (QueueAccessType.RECEIVE, deny) in opened:
            conflict = exclusive or is_receive
        elif (QueueAccessType.PEEK, deny) in opened or (QueueAccessType.PEEK_ADMIN, deny) in opened:
            conflict = is_receive
        elif (QueueAccessType.RECEIVE, share) in opened:
            conflict = exclusive
        else:
            conflict = False
        if conflict:
            raise SharingViolation(f"queue {queue.pathname} is open elsewhere in a way that excludes this")

    def _new_descriptor(
        self, name: FormatName, access: QueueAccessType, share_mode: QueueShareMode
    ) -> OpenQueueDescriptor:
        handle = self._next_handle()
        descriptor = OpenQueueDescriptor(handle, handle, access, share_mode, str(name))
        self._descriptors[handle] = descriptor
        return descriptor

    def descriptor(self, handle: int) -> OpenQueueDescriptor:
        """The open descriptor of a handle; a closed one's handle is no longer valid."""
        try:
            return self._descriptors[handle]
        except KeyError:
            raise InvalidHandle(f"queue handle {handle} is not open") from None

    def close_queue(self, descriptor: OpenQueueDescriptor) -> None:
        """3.1.7.1.6 Close Queue; every waiting read of the descriptor ends, an unfinished one is undone (DECISIONS)."""
        self._descriptors.pop(descriptor.handle, None)
        descriptor.is_closed = True
        for child in descriptor.children:
            self.close_queue(child)
        queue = descriptor.queue
        if queue is None:
            return
        self._stop_waiting_reads(descriptor.waiting_reads, OperationCancelled("the queue was closed"))
        for position in list(descriptor.unfinished_reads.values()):
            if position.state in (PositionState.LOCKED, PositionState.PURGE_PENDING):
                self.dequeue_message_end(descriptor, position, delete_message=False)
        for cursor in list(descriptor.cursors):
            self.close_cursor(cursor)
        if descriptor in queue.open_queue_descriptors:
            queue.open_queue_descriptors.remove(descriptor)
        descriptor.queue = None

    # Outgoing queues (3.1.4.14, 3.1.4.15, 3.1.7.2.3, 3.1.7.2.4) ------------------------------------------------

    def pause_queue(self, queue: OutgoingQueue) -> None:
        """3.1.4.14 and 3.1.7.2.3 Pause Queue."""
        self._set_outgoing_state(queue, OutgoingState.ON_HOLD)

    def resume_queue(self, queue: OutgoingQueue) -> None:
        """3.1.4.15 and 3.1.7.2.4 Resume Queue."""
        self._set_outgoing_state(queue, OutgoingState.INACTIVE)

    def _set_outgoing_state(self, queue: OutgoingQueue, state: OutgoingState) -> None:
        queue.state = state
        self._save_attributes(queue)
        for subscriber in self.outgoing_state_subscribers:
            subscriber(queue)


def _directory_error(result: DirectoryOperationResult, message: str) -> StatusError:
    text = f"{message}: {result.value}"
    if result is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED:
        return NoDs(text)
    if result is DirectoryOperationResult.OBJECT_ALREADY_EXISTS:
        return QueueExists(text)
    return DsError(text)


def _right_name(rights: int) -> str:
    return getattr(rights, "name", None) or f"{rights:#x}"
