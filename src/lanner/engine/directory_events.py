"""Directory events (MS-MQDMPR 3.1.6.1, 3.1.6.2, 3.1.7.1.18-3.1.7.1.25) and the offline mode.

The `Directory` implements what a directory does for an event (MS-MQDSSM 3.1.6). This part adds what
the queue manager does: the offline mode with its one-minute timer, the local answers while offline,
the timers for sites and site gates, and the change notifications for other protocols (MS-MQCN
3.3.4.1).
"""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from lanner.directory import AttributeFilter, Operator, matches
from lanner.directory.topology import TopologyError, provision, remove
from lanner.model.directory_objects import DirectoryObject, Queue, QueueManager, RoutingLink, Site, attributes_of
from lanner.model.enums import DirectoryOperationResult, QueueType
from lanner.model.errors import CannotImpersonateClient
from lanner.security.domain_accounts import is_domain_name
from lanner.security.identity import SYSTEM

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable, Sequence

    from lanner.directory import Directory, SortOrder
    from lanner.directory.topology import Computer, Topology
    from lanner.engine.core import Core
    from lanner.security.identity import Identity

_T = TypeVar("_T", bound=DirectoryObject)

# MS-MQDMPR 3.1.2.5.
DIRECTORY_ONLINE_INTERVAL = 60.0

# Not in the specification: seconds. MS-MQBR 3.1.3 reads the enterprise once an hour; with this
# value a change takes effect sooner. The enterprise is not read for each connection attempt,
# because a router with many unreachable queues would do little else.
ROUTING_DATA_LIFETIME = 60.0

# Not in the specification: seconds for which the directory is read while everything else waits.
READING_SLICE = 0.05

# The place of a queue manager in its enterprise (MS-MQDMPR 3.1.1.1).
_ROUTING_ATTRIBUTES = (
    "site_identifier_list",
    "out_routing_server_identifier_list",
    "in_routing_server_identifier_list",
    "routing_server",
)


class ChangeNotification(enum.Enum):
    """Values of iOperation (MS-MQCN 3.3.4.1)."""

    QUEUE_CREATION = "QueueCreation"
    QUEUE_DELETION = "QueueDeletion"
    QUEUE_UPDATE = "QueueUpdate"
    QUEUE_MANAGER_UPDATE = "QueueManagerUpdate"


# A subscriber of Send Change Notification returns this. It is called with the identifier of the
# object once the directory has made the change. None: the subscriber has nothing to do.
Completion: TypeAlias = "Callable[[uuid.UUID], None] | None"
# iOperation, iDirectoryObject, and the attributes that a write changes (None: all attributes).
ChangeNotificationSubscriber: TypeAlias = (
    "Callable[[ChangeNotification, DirectoryObject, Sequence[str] | None], Completion]"
)


class _Announcing:
    """The directory events that `topology` calls, so that owners are notified of its changes."""

    def __init__(self, events: DirectoryEvents) -> None:
        self.create_object = events.create_directory_object
        self.delete_object = events.delete_directory_object
        self.write = events.write_directory


def identifier_is(identifier: uuid.UUID) -> list[AttributeFilter]:
    """Return the filter that finds one object."""
    return [AttributeFilter("Identifier", Operator.EQUALS, identifier)]


class DirectoryEvents:
    """The queue manager's side of the directory."""

    def __init__(self, core: Core, directory: Directory) -> None:
        self._queue_manager = core.queue_manager
        self._attributes = core.attributes
        self._settings = core.settings
        self._clocks = core.clocks
        self.directory = directory
        self.change_notification_subscribers: list[ChangeNotificationSubscriber] = []
        # When the timers 3.1.2.1, 3.1.2.2 and 3.1.2.5 expire on the monotonic clock. None: the
        # timer is not running.
        self._sites_due: float | None = None
        self._site_gates_due: float | None = None
        self._online_due: float | None = None
        # The Directory Server List Update Timer (3.1.3).
        self._servers_due: float | None = None
        # The numbers of public queues to be read again, and when to continue.
        self._unread: deque[int] = deque()
        self._unread_due: float | None = None
        # Cache for routing: the time of the last read, and all objects of that kind.
        self._routing_data: dict[type[DirectoryObject], tuple[float, list[Any]]] = {}

    def directory_of(self, identity: Identity) -> Directory:
        """Return the directory with the credentials for a change by a user (MS-MQDMPR 3.1.1.6).

        With Enterprise.WeakenedSecurity these are the computer's credentials, otherwise the user's.
        The queue manager itself and its administrators act as the computer if they delegate no
        credentials. Raises CannotImpersonateClient.
        """
        qm = self._queue_manager
        weakened = qm.enterprise_reference is not None and qm.enterprise_reference.weakened_security
        if not qm.directory_integrated or identity.is_system or weakened:
            return self.directory
        if is_domain_name(identity.name):
            found = self.directory.acting_for(identity.name)
            if found is not None:
                return found
        if identity.is_administrator:
            return self.directory
        raise CannotImpersonateClient(
            f"the directory of the domain decides what {identity.name} may change, and {qm.computer_name} cannot "
            f"show it credentials of {identity.name}: be a user of the domain, and have the domain trust "
            f"{qm.computer_name} for delegation to the service ldap; or ask an administrator of {qm.computer_name}"
        )

    def create_directory_object(
        self,
        directory_object: DirectoryObject,
        attributes: Sequence[str] | None = None,
        *,
        identity: Identity = SYSTEM,
    ) -> tuple[DirectoryOperationResult, uuid.UUID | None]:
        """3.1.7.1.18 Create Directory Object."""
        directory = self.directory_of(identity)
        complete: Callable[[uuid.UUID], None] = _nothing_to_complete
        if _is_public_queue(directory_object):
            complete = self._send_change_notification(ChangeNotification.QUEUE_CREATION, directory_object)
        result, identifier = directory.create_object(directory_object, attributes)
        self._note_connection(result)
        self._forget_routing_data(directory_object)
        if result is DirectoryOperationResult.SUCCESS and identifier is not None:
            complete(identifier)
        return result, identifier

    def delete_directory_object(
        self, directory_object: DirectoryObject, *, identity: Identity = SYSTEM
    ) -> DirectoryOperationResult:
        """3.1.7.1.19 Delete Directory Object."""
        directory = self.directory_of(identity)
        complete: Callable[[uuid.UUID], None] = _nothing_to_complete
        if _is_public_queue(directory_object):
            complete = self._send_change_notification(ChangeNotification.QUEUE_DELETION, directory_object)
        self._forget_routing_data(directory_object)
        result = self._note_connection(directory.delete_object(directory_object))
        if result is DirectoryOperationResult.SUCCESS:
            complete(directory_object.identifier)
        return result

    def read_directory(
        self,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
        *,
        force_directory_read: bool = False,
    ) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        """3.1.7.1.20 Read Directory."""
        if force_directory_read:
            # An earlier answer would hide that the directory is unreachable.
            return self.directory.read_at("", object_type, filters, attributes)
        if self._queue_manager.directory_offline:
            return self._read_while_offline(object_type, filters, attributes)
        result, found = self.directory.read(object_type, filters, attributes)
        self._note_connection(result)
        return result, found

    def _read_while_offline(
        self,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None,
    ) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        """Return a local answer, or an earlier one of the directory (DECISIONS).

        Without the latter, one unknown name would hide everything that was read before.
        """
        if object_type == "Queue":
            for queue in self._queue_manager.queue_collection.values():
                if matches(queue, filters):
                    return DirectoryOperationResult.SUCCESS, queue
        elif object_type == "QueueManager" and matches(self._queue_manager, filters):
            return DirectoryOperationResult.SUCCESS, self._queue_manager
        found = self.directory.recall(object_type, filters, attributes)
        if found is not None:
            return DirectoryOperationResult.SUCCESS, found
        if object_type == "Queue":
            return DirectoryOperationResult.OBJECT_NOT_FOUND, None
        return DirectoryOperationResult.DIRECTORY_NOT_CONNECTED, None

    def read_directory_at(
        self, server: str, object_type: str, identifier: uuid.UUID, attributes: Sequence[str]
    ) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        """Do Read Directory at a directory server, at any if `server` is empty (MS-MQCN 3.2.5.2).

        The event itself has no parameter for a server. While the directory is offline nothing is
        read, because the local answers are values that the caller has already.
        """
        if self._queue_manager.directory_offline:
            return DirectoryOperationResult.DIRECTORY_NOT_CONNECTED, None
        result, found = self.directory.read_at(server, object_type, identifier_is(identifier), attributes)
        if not server:
            self._note_connection(result)
        return result, found

    def read_directory_begin(
        self,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
        sort_order: Sequence[SortOrder] | None = None,
    ) -> tuple[DirectoryOperationResult, int | None]:
        """3.1.7.1.21 Read Directory Begin."""
        return self.directory.read_begin(object_type, filters, attributes, sort_order)

    def read_directory_next(self, query_handle: int) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        """3.1.7.1.22 Read Directory Next."""
        return self.directory.read_next(query_handle)

    def read_directory_end(self, query_handle: int) -> DirectoryOperationResult:
        """3.1.7.1.23 Read Directory End."""
        return self.directory.read_end(query_handle)

    def read_all_of(self, kind: type[_T], filters: Sequence[AttributeFilter] | None = None) -> list[_T] | None:
        """Do GetDirectoryData (MS-MQBR 3.1.5.9).

        Returns every object of a kind, or None if one of them could not be read.
        """
        result, handle = self.read_directory_begin(kind.__name__, filters)
        if result is not DirectoryOperationResult.SUCCESS or handle is None:
            return None
        found: list[_T] = []
        while True:
            result, member = self.read_directory_next(handle)
            if not isinstance(member, kind):
                break
            found.append(member)
        self.read_directory_end(handle)
        return found if result is DirectoryOperationResult.END_OF_DATA else None

    def write_directory(
        self,
        directory_object: DirectoryObject,
        attributes: Sequence[str] | None = None,
        *,
        identity: Identity = SYSTEM,
    ) -> DirectoryOperationResult:
        """3.1.7.1.24 Write Directory."""
        result = self._note_connection(self.directory_of(identity).write(directory_object, attributes))
        self._forget_routing_data(directory_object)
        if result is DirectoryOperationResult.SUCCESS:
            operation = None
            if _is_public_queue(directory_object):
                operation = ChangeNotification.QUEUE_UPDATE
            elif isinstance(directory_object, QueueManager):
                operation = ChangeNotification.QUEUE_MANAGER_UPDATE
            if operation is not None:
                self._send_change_notification(operation, directory_object, attributes)(directory_object.identifier)
        return result

    def check_directory_online(self) -> None:
        """3.1.7.1.25 Check Directory Online."""
        qm = self._queue_manager
        self.directory.initialize()
        result, found = self.read_directory("QueueManager", identifier_is(qm.identifier), force_directory_read=True)
        if result is not DirectoryOperationResult.SUCCESS or found is None:
            self._online_due = self._clocks.monotonic() + DIRECTORY_ONLINE_INTERVAL
            return
        adopt(qm, found)
        self._attributes.save_queue_manager()
        qm.directory_offline = False
        self.read_collections()
        self._unread = deque(
            queue.number
            for queue in qm.queue_collection.values()
            if queue.queue_type is QueueType.PUBLIC and not queue.parent
        )
        self._read_queues_again()

    def _read_queues_again(self) -> None:
        """Read the public queues again (3.1.7.1.25), for a time; the timer continues.

        There may be thousands, and messages would wait for all of them.
        """
        self._unread_due = None
        end = self._clocks.monotonic() + READING_SLICE
        while self._unread:
            if self._clocks.monotonic() >= end:
                self._unread_due = self._clocks.monotonic()
                return
            queue = self._queue_manager.queue_collection.get(self._unread.popleft())
            if queue is None:
                continue
            result, fresh = self.read_directory("Queue", identifier_is(queue.identifier))
            if result is DirectoryOperationResult.SUCCESS and fresh is not None:
                adopt(queue, fresh)
                self._attributes.save_queue(queue)
            elif result is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED:
                self._unread.clear()

    def read_collections(self) -> None:
        """Read the sites and routing servers that the identifier lists name (DMPR-3.1.1.1-9)."""
        qm = self._queue_manager
        qm.site_collection = self._listed(Site, qm.site_identifier_list, qm.site_collection)
        qm.out_routing_server_collection = self._listed(
            QueueManager, qm.out_routing_server_identifier_list, qm.out_routing_server_collection
        )
        qm.in_routing_server_collection = self._listed(
            QueueManager, qm.in_routing_server_identifier_list, qm.in_routing_server_collection
        )
        links = self.read_all_of(RoutingLink)
        if links is not None:
            for site in qm.site_collection:
                site.site_gate_collection = self.site_gates(site.identifier, links)

    def _listed(self, kind: type[_T], identifiers: Sequence[uuid.UUID], known: Sequence[_T]) -> list[_T]:
        """Return the objects of a list of identifiers.

        An object that cannot be read is taken from the cache.
        """
        cached = {member.identifier: member for member in known}
        found: list[_T] = []
        for identifier in identifiers:
            _, fresh = self.read_directory(kind.__name__, identifier_is(identifier))
            member = fresh if isinstance(fresh, kind) else cached.get(identifier)
            if member is not None:
                found.append(member)
        return found

    def site_gates(self, site: uuid.UUID, links: Iterable[RoutingLink]) -> list[QueueManager]:
        """Return Site.SiteGateCollection (3.1.1.7), which no directory stores.

        The routing links of a site name its gates. A link names the gates of both its sites, and a
        gate belongs to the site that it is in (MS-MQBR 1.5).
        """
        named = {
            gate: None
            for link in links
            if site in (link.site1_identifier, link.site2_identifier)
            for gate in link.site_gate_identifier_list
        }
        return [gate for gate in self._listed(QueueManager, list(named), ()) if site in gate.site_identifier_list]

    def routing_links(self) -> list[RoutingLink]:
        """Return every routing link of the enterprise. The answer is at most a minute old."""
        return self._remembered(RoutingLink, None)

    def routing_servers(self) -> list[QueueManager]:
        """Return every routing server of the enterprise. The answer is at most a minute old."""
        return self._remembered(QueueManager, [AttributeFilter("RoutingServer", Operator.EQUALS, value=True)])

    def _remembered(self, kind: type[_T], filters: Sequence[AttributeFilter] | None) -> list[_T]:
        now = self._clocks.monotonic()
        read_at, objects = self._routing_data.get(kind, (None, []))
        if read_at is None or now - read_at >= ROUTING_DATA_LIFETIME:
            found = self.read_all_of(kind, filters)
            if found is not None:
                self._routing_data[kind] = (now, found)
                return found
        return objects

    def _forget_routing_data(self, changed: DirectoryObject) -> None:
        if not isinstance(changed, Queue):
            self._routing_data.clear()

    def provision_directory(self, topology: Topology) -> list[str]:
        """Write an administrator's topology to the directory and apply it.

        Returns the list of changes made (`topology.provision`).
        """
        own = self._queue_manager.computer_name.casefold()
        for computer in topology.computers:
            if computer.name.casefold() == own:
                self._check_own_keys(computer)
        done = provision(self.directory, topology, _Announcing(self))
        self.read_routing_data()
        return done

    def _check_own_keys(self, computer: Computer) -> None:
        """Raise TopologyError if the topology has other public keys for this computer."""
        own = self._queue_manager
        for wanted, keys in (
            (computer.encryption_keys, own.public_encryption_key_list),
            (computer.signing_keys, own.public_signing_key_list),
        ):
            if wanted not in (b"", keys):
                raise TopologyError(
                    f"computer {computer.name}: that is this one, and the file has other keys of it than it has; "
                    "leave them out here, and take those of `lanner directory show` for the others"
                )

    def remove_from_directory(self, kind: str, *names: str) -> None:
        """Remove one object of the topology from the directory (`topology.remove`)."""
        own = self._queue_manager.computer_name
        if kind == "computer" and own.casefold() in map(str.casefold, names):
            raise TopologyError(f"computer {own}: that is this one, which stays in its directory")
        remove(self.directory, kind, *names, changes=_Announcing(self))
        self.read_routing_data()

    def read_routing_data(self) -> None:
        """Read this queue manager's sites, site gates and routing servers again.

        Needed after changes that were just made. Otherwise they are read at the start and by
        timers.
        """
        qm = self._queue_manager
        result, found = self.read_directory("QueueManager", identifier_is(qm.identifier))
        if result is not DirectoryOperationResult.SUCCESS or found is None:
            return
        self._routing_data.clear()
        for name in _ROUTING_ATTRIBUTES:
            setattr(qm, name, getattr(found, name))
        self._attributes.save_queue_manager()
        self.read_collections()

    def directory_sites_update(self) -> None:
        """3.1.6.1 Directory Sites Update. A site that cannot be read keeps its cached values."""
        for site in self._queue_manager.site_collection:
            result, fresh = self.read_directory("Site", identifier_is(site.identifier))
            if result is DirectoryOperationResult.SUCCESS and fresh is not None:
                adopt(site, fresh)

    def directory_site_gates_update(self) -> None:
        """3.1.6.2 Directory Site Gates Update.

        Adds the gates that were named since the last update.
        """
        links = self.read_all_of(RoutingLink) or ()
        for site in self._queue_manager.site_collection:
            for gate in site.site_gate_collection:
                result, fresh = self.read_directory("QueueManager", identifier_is(gate.identifier))
                if result is DirectoryOperationResult.SUCCESS and fresh is not None:
                    adopt(gate, fresh)
            known = {gate.identifier for gate in site.site_gate_collection}
            named = self.site_gates(site.identifier, links)
            site.site_gate_collection += [gate for gate in named if gate.identifier not in known]

    def directory_server_list_update(self) -> None:
        """Read DirectoryServerList again (3.1.3). Without an answer it stays as it is."""
        servers = self.directory.servers()
        if servers:
            self._queue_manager.directory_server_list = servers
            self._attributes.save_queue_manager()

    def _note_connection(self, result: DirectoryOperationResult) -> DirectoryOperationResult:
        """Enter the offline mode if the directory is unreachable, except in a workgroup.

        DMPR-3.1.7.1.20-6.
        """
        qm = self._queue_manager
        if result is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED and qm.directory_integrated:
            qm.directory_offline = True
            if self._online_due is None:
                self._online_due = self._clocks.monotonic() + DIRECTORY_ONLINE_INTERVAL
                self._clocks.deadline_changed()
        return result

    def _send_change_notification(
        self,
        operation: ChangeNotification,
        directory_object: DirectoryObject,
        attributes: Sequence[str] | None = None,
    ) -> Callable[[uuid.UUID], None]:
        """Raise Send Change Notification (MS-MQCN 3.3.4.1); return the work to do after the change.

        DECISIONS: MS-MQDMPR raises it before a create or a delete. But the message needs the
        identifier that the directory gives a new object, and must not announce a change that then
        fails.
        """
        found = [
            subscriber(operation, directory_object, attributes) for subscriber in self.change_notification_subscribers
        ]
        completions = [completion for completion in found if completion is not None]

        def complete(identifier: uuid.UUID) -> None:
            for completion in completions:
                completion(identifier)

        return complete

    # Timers 3.1.2.1, 3.1.2.2, 3.1.2.5 -------------------------------------------------------------

    def start_timers(self) -> None:
        """Start the timers of a queue manager that is integrated in a directory."""
        now = self._clocks.monotonic()
        self._sites_due = now + self._settings.directory_sites_update_interval
        self._site_gates_due = now + self._settings.directory_site_gates_update_interval
        self._servers_due = now + self._settings.directory_server_list_update_interval

    def next_deadline(self) -> float | None:
        """Return when `on_timer` is next due, on the monotonic clock."""
        timers = (self._sites_due, self._site_gates_due, self._online_due, self._servers_due, self._unread_due)
        return min((due for due in timers if due is not None), default=None)

    def on_timer(self) -> None:
        """Raise the events of the timers that are due."""
        now = self._clocks.monotonic()
        if self._sites_due is not None and self._sites_due <= now:
            self._sites_due = now + self._settings.directory_sites_update_interval
            self.directory_sites_update()
        if self._site_gates_due is not None and self._site_gates_due <= now:
            self._site_gates_due = now + self._settings.directory_site_gates_update_interval
            self.directory_site_gates_update()
        if self._servers_due is not None and self._servers_due <= now:
            self._servers_due = now + self._settings.directory_server_list_update_interval
            self.directory_server_list_update()
        if self._online_due is not None and self._online_due <= now:
            self._online_due = None
            self.check_directory_online()
        elif self._unread_due is not None and self._unread_due <= now:
            self._read_queues_again()


def _nothing_to_complete(_identifier: uuid.UUID) -> None:
    """Do nothing: the change has no owner to notify."""


def _is_public_queue(directory_object: DirectoryObject) -> bool:
    return isinstance(directory_object, Queue) and directory_object.queue_type is QueueType.PUBLIC


def adopt(mine: DirectoryObject, fresh: DirectoryObject) -> None:
    """Copy the directory attributes of `fresh` to `mine`.

    The other attributes of `mine` are local and stay.
    """
    for name in attributes_of(type(fresh), "directory"):
        if name != "identifier":
            setattr(mine, name, getattr(fresh, name))
