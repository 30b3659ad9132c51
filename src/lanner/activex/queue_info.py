"""MSMQQueueInfo: a queue by name, to create, open or delete, and its properties (MC-MQAC 3.10)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from lanner.activex import arguments
from lanner.activex.longs import from_long, to_long
from lanner.activex.names import format_name_of_path, names_one_queue, read_format_name, read_path_name
from lanner.activex.queue import ACCESS, MSMQQueue
from lanner.activex.tables import MSMQ_QUEUE_INFO
from lanner.com.objects import ComObject
from lanner.directory import AttributeFilter, Operator
from lanner.engine.directory_events import identifier_is
from lanner.engine.queue_properties import BASE_PRIORITIES, COPIED_ATTRIBUTES
from lanner.model.directory_objects import GUID_NULL, OutgoingQueue, Queue
from lanner.model.enums import (
    INFINITE,
    DirectoryOperationResult,
    QueueAccessType,
    QueuePrivacyLevel,
    QueueShareMode,
    QueueType,
)
from lanner.model.errors import (
    AccessDenied,
    DsError,
    IllegalPropertyValue,
    IllegalQueuePathname,
    InvalidParameter,
    NoDs,
    QAdsPropertyNotSupported,
    QDnsPropertyNotSupported,
    QueueExists,
    QueueNotFound,
    StatusError,
    UnsupportedAccessMode,
    UnsupportedFormatnameOperation,
)
from lanner.security.access import is_granted, map_generic_rights
from lanner.security.access_masks import QUEUE_MAPPING, QueueAccess
from lanner.wire.format_name import DirectFormatName, FormatName, PublicFormatName, parse
from lanner.wire.security_descriptor import AceType, Acl, SecurityDescriptor
from lanner.wire.sid import BUILTIN_ADMINISTRATORS, EVERYONE
from lanner.wire.spelling import without_prefix

if TYPE_CHECKING:
    from lanner.activex.environment import Environment
    from lanner.com.automation.values import Variant
    from lanner.com.members import InterfaceTable
    from lanner.com.objects import ComCall
    from lanner.security.identity import Identity

T = TypeVar("T")

_PUBLIC: Final = "PUBLIC="
# Attributes that Refresh copies in addition to those that a client can set.
_TOLD: Final = ("identifier", "create_time", "modify_time", "qualified_pathname", "directory_path")


def _get(value: Callable[[MSMQQueueInfo], T]) -> Callable[[MSMQQueueInfo, ComCall], T | Awaitable[T]]:
    """Return a getter that first refreshes the object, unless that was done already (3.10.4.1.1).

    The value of a refreshed object is returned directly, without a coroutine.
    """

    def get(self: MSMQQueueInfo, call: ComCall) -> T | Awaitable[T]:
        return value(self) if self.is_refreshed else refreshed(self, call)

    async def refreshed(self: MSMQQueueInfo, call: ComCall) -> T:
        await self.refresh(call)
        return value(self)

    return get


class MSMQQueueInfo(ComObject):
    """3.10 MSMQQueueInfo. Values set by the client stay in the object until Create or Update."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = MSMQ_QUEUE_INFO.interfaces

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._reset()

    def _reset(self) -> None:
        """Set the initial state (3.10.3)."""
        # refQueue. Its PathName, which may be NULL, is kept in `path_name`.
        self.queue: Queue = self._environment.engine.set_queue_defaults()
        self.path_name: str | None = None
        self.format_name: str | None = None
        self.is_refreshed = False
        self.is_application_queue = False
        self.is_queue_created = False
        # Values that the client has set since the queue was last read or written.
        self._changes: dict[str, Any] = {}

    @property
    def octets(self) -> int:
        """The size of the names, which clients may make as long as they like.

        Their validity is checked only when the queue is created or opened.
        """
        texts = self.path_name, self.format_name, self.queue.label, self.queue.multicast_address
        return sum([len(text) for text in texts if text])

    def _put(self, attribute: str, value: object) -> None:
        setattr(self.queue, attribute, value)
        self._changes[attribute] = value

    def _of_application_queue(self, value: T, otherwise: T) -> T:
        return value if self.is_application_queue else otherwise

    # Properties
    # ----------------------------------------------------------------------------------------------

    get_queue_guid = _get(lambda self: self._of_application_queue(arguments.to_guid(self.queue.identifier), None))
    get_service_type_guid = _get(lambda self: arguments.to_guid(self.queue.type))
    get_label = _get(lambda self: self.queue.label)
    get_path_name = _get(lambda self: self.path_name)
    get_is_transactional = _get(lambda self: int(self.queue.transactional))
    get_is_transactional2 = _get(lambda self: self.queue.transactional)
    get_priv_level = _get(
        lambda self: int(self._of_application_queue(self.queue.privacy_level, QueuePrivacyLevel.OPTIONAL))
    )
    get_journal = _get(lambda self: int(self.is_application_queue and self.queue.journaling))
    get_quota = _get(lambda self: to_long(self._of_application_queue(self.queue.quota, INFINITE)))
    # DECISIONS: in kilobytes, like the quota itself.
    get_journal_quota = _get(lambda self: to_long(self._of_application_queue(self.queue.journal_quota, INFINITE)))
    get_base_priority = _get(lambda self: self.queue.base_priority if self._is_named_public else 0)
    get_create_time = _get(lambda self: arguments.to_date(self.queue.create_time))
    get_modify_time = _get(lambda self: arguments.to_date(self._of_application_queue(self.queue.modify_time, 0)))
    get_authenticate = _get(lambda self: int(self.is_application_queue and self.queue.authentication))
    get_multicast_address = _get(lambda self: self.queue.multicast_address or "")

    def put_service_type_guid(self, call: ComCall, value: str | None) -> None:
        """Set ServiceTypeGuid (3.10.4.1.3)."""
        del call
        self._put("type", arguments.from_guid(value, "ServiceTypeGuid") if value else GUID_NULL)

    def put_label(self, call: ComCall, value: str | None) -> None:
        """Set Label (3.10.4.1.5)."""
        del call
        self._put("label", value or "")

    def put_path_name(self, call: ComCall, value: str | None) -> None:
        """Set PathName (3.10.4.1.7). From now on the object denotes a different queue."""
        del call
        self.path_name, self.format_name = value, None
        self.is_refreshed = self.is_application_queue = self.is_queue_created = False

    def get_format_name(self, call: ComCall) -> str | None:
        """Return FormatName (3.10.4.1.8)."""
        del call
        return self.format_name

    def put_format_name(self, call: ComCall, value: str | None) -> None:
        """Set FormatName (3.10.4.1.9). From now on the object denotes a different queue."""
        del call
        self.path_name, self.format_name = None, None if value is None else without_prefix(value)
        self.is_refreshed = self.is_application_queue = self.is_queue_created = False

    def put_priv_level(self, call: ComCall, value: int) -> None:
        """Set PrivLevel (3.10.4.1.12)."""
        del call
        try:
            self._put("privacy_level", QueuePrivacyLevel(value))
        except ValueError:
            raise IllegalPropertyValue(f"PrivLevel {value}") from None

    def put_journal(self, call: ComCall, value: int) -> None:
        """Set Journal (3.10.4.1.14)."""
        del call
        self._put("journaling", bool(value))

    def put_quota(self, call: ComCall, value: int) -> None:
        """Set Quota (3.10.4.1.16)."""
        del call
        self._put("quota", from_long(value))

    def put_journal_quota(self, call: ComCall, value: int) -> None:
        """Set JournalQuota (3.10.4.1.24)."""
        del call
        self._put("journal_quota", from_long(value))

    def put_base_priority(self, call: ComCall, value: int) -> None:
        """Set BasePriority (3.10.4.1.18)."""
        del call
        if value not in BASE_PRIORITIES or not self._is_named_public:
            raise IllegalPropertyValue(f"BasePriority {value} of {self.format_name}")
        self._put("base_priority", value)

    def put_authenticate(self, call: ComCall, value: int) -> None:
        """Set Authenticate (3.10.4.1.22)."""
        del call
        self._put("authentication", bool(value))

    def put_multicast_address(self, call: ComCall, value: str | None) -> None:
        """Set MulticastAddress (3.10.4.1.38)."""
        del call
        self._put("multicast_address", value or None)

    async def get_is_world_readable(self, call: ComCall) -> int:
        """Return IsWorldReadable (3.10.4.1.25)."""
        return int(await self.get_is_world_readable2(call))

    async def get_is_world_readable2(self, call: ComCall) -> bool:
        """Return IsWorldReadable2 (3.10.4.1.36).

        For a queue that does not exist, this is what Create would set by default.
        """
        if not self.is_refreshed and (self.format_name or self.path_name):
            try:
                await self.refresh(call)
            except StatusError:
                return False
        if self.queue.security is None:
            if self.is_refreshed and self.is_application_queue:
                raise AccessDenied(f"{call.identity.name} may not read the access list of {self.format_name}")
            return False
        return _has_other_owners(self.queue.security)

    async def get_path_name_dns(self, call: ComCall) -> str:
        """Return PathNameDNS (3.10.4.1.31)."""
        queue = await self._published(call)
        if queue is None:
            raise QDnsPropertyNotSupported(f"{self.format_name} is no public queue")
        return queue.qualified_pathname

    async def get_ads_path(self, call: ComCall) -> str:
        """Return ADsPath (3.10.4.1.39)."""
        queue = await self._published(call)
        if queue is None:
            raise QAdsPropertyNotSupported(f"{self.format_name} is no public queue")
        return queue.directory_path

    async def _published(self, call: ComCall) -> Queue | None:
        if not self.is_refreshed:
            await self.refresh(call)
        name = await self._name_of_one_queue(call)
        with self._environment.lock:
            queue, _ = self._find(name)
        return self.queue if _is_public(queue) else None

    @property
    def _is_named_public(self) -> bool:
        return self.format_name is not None and self.format_name[: len(_PUBLIC)].upper() == _PUBLIC

    # Names
    # ----------------------------------------------------------------------------------------------

    async def update_format_name(self, call: ComCall) -> FormatName:
        """Update and return the format name (3.10.6.1 Update QueueFormatName)."""
        if self.format_name is not None:
            return read_format_name(self._environment, self.format_name)
        if self.path_name is None:
            raise IllegalQueuePathname("neither PathName nor FormatName is set")
        path_name = self.path_name
        found = await format_name_of_path(self._environment, path_name, call.identity)
        self._learn(path_name, found)
        return parse(found)

    def _learn(self, path_name: str, format_name: str) -> None:
        """Store the format name of a path, unless the object denotes a different queue by now."""
        if self.format_name is None and self.path_name == path_name:
            self.format_name = format_name

    async def _name_of_one_queue(self, call: ComCall) -> FormatName:
        name = await self.update_format_name(call)
        if not names_one_queue(name):
            raise UnsupportedFormatnameOperation(f"{name} is not the name of one queue")
        return name

    def _find(self, name: FormatName) -> tuple[Queue, bool]:
        """Return a queue by name, and whether it is local.

        Queues of other computers are found only if they are public. Called with the lock held.
        """
        engine = self._environment.engine
        queue = engine.find_queue(name)
        if queue is not None:
            return queue, True
        if isinstance(name, PublicFormatName) and not name.is_journal:
            filters = identifier_is(name.identifier)
        elif isinstance(name, DirectFormatName) and _names_public(name) and not engine.is_local_host(name.host):
            filters = [AttributeFilter("Pathname", Operator.EQUALS, str(name.path_name))]
        else:
            raise QueueNotFound(f"no queue {name} on {engine.queue_manager.computer_name}")
        return self._read(name, filters), False

    def _read(self, name: FormatName, filters: list[AttributeFilter]) -> Queue:
        result, found = self._environment.engine.read_directory("Queue", filters)
        if result is DirectoryOperationResult.OBJECT_NOT_FOUND:
            raise QueueNotFound(f"{name}: no such public queue in the directory")
        if result is not DirectoryOperationResult.SUCCESS or not isinstance(found, Queue):
            raise _directory_error(result, f"{name} could not be read")
        return found

    # Create and delete
    # --------------------------------------------------------------------------------------------

    async def create(self, call: ComCall, is_transactional: Variant, is_world_readable: Variant) -> None:
        """Create the queue (3.10.4.1.26)."""
        transactional = arguments.flag(is_transactional, "IsTransactional", default=False)
        world_readable = arguments.flag(is_world_readable, "IsWorldReadable", default=False)
        if not self.path_name:
            raise IllegalQueuePathname("PathName is not set")
        path = read_path_name(self._environment, self.path_name)
        environment, engine = self._environment, self._environment.engine
        with environment.committer.change() as change:
            if not engine.is_local_host(path.computer) and path.queue_type is not QueueType.PUBLIC:
                raise IllegalQueuePathname(f"{path}: private queues are created by their own computer")
            if engine.find_by_path(path) is not None:
                raise QueueExists(f"queue {path} exists already")
            request = engine.set_queue_defaults(str(path))
            for attribute in COPIED_ATTRIBUTES:
                if attribute not in ("pathname", "security"):
                    setattr(request, attribute, getattr(self.queue, attribute))
            request.transactional = transactional
            # Its descriptor (3.10.4.1.26.1) is the default of MS-MQDMPR 3.1.7.1.3.1.
            if engine.queue_manager.directory_integrated and not engine.is_local_host(path.computer):
                queue = engine.create_elsewhere(request, call.identity)
                if world_readable and queue.security is not None:
                    queue.security = _with_world_readers(queue.security)
                    _require_success(engine.write_directory(queue, ["Security"]), f"{path} could not be changed")
            else:
                queue = engine.create_queue(request, identity=call.identity)
                if world_readable and queue.security is not None:
                    engine.set_queue_properties(queue, {"security": _with_world_readers(queue.security)})
            self._copy(queue)
            if queue.queue_type is QueueType.PUBLIC:
                self.format_name = str(PublicFormatName(queue.identifier))
            else:
                self.format_name = str(engine.private_format_name(path))
            self.is_queue_created = self.is_application_queue = True
        await change

    async def delete(self, call: ComCall) -> None:
        """Delete the queue (3.10.4.1.27)."""
        name = await self._name_of_one_queue(call)
        environment = self._environment
        with environment.committer.change() as change:
            queue, is_local = self._find(name)
            if is_local:
                environment.engine.delete_queue(queue, identity=call.identity)
            else:
                with environment.engine.audit.change("delete queue", call.identity, {"queue": queue.pathname}):
                    _require(queue, call.identity, QueueAccess.DELETE_QUEUE)
                    result = environment.engine.delete_directory_object(queue, identity=call.identity)
                    _require_success(result, f"{name} could not be deleted")
            self._reset()
        await change

    # Open
    # ----------------------------------------------------------------------------------------------

    async def open(self, call: ComCall, access: int, share_mode: int) -> MSMQQueue:
        """Open the queue (3.10.4.1.28)."""
        access_type = ACCESS.get(access)
        if access_type is None:
            raise UnsupportedAccessMode(f"Access {access:#x}")
        if share_mode not in tuple(QueueShareMode):
            raise InvalidParameter(f"ShareMode {share_mode:#x}")
        share = QueueShareMode(share_mode)
        if access_type is QueueAccessType.SEND and share is not QueueShareMode.DENY_NONE:
            raise UnsupportedAccessMode("exclusive, for sending")
        name = await self.update_format_name(call)
        if access_type is not QueueAccessType.SEND and not names_one_queue(name):
            raise UnsupportedFormatnameOperation(f"{name} can be opened for sending only")
        environment = self._environment
        with environment.committer.change() as change:
            descriptor = environment.engine.open_queue(name, access_type, share, call.identity)
        queue = MSMQQueue(environment, descriptor, self)
        try:
            # Opening may have created a subqueue or an outgoing queue.
            await change
        except BaseException:
            queue.released()
            raise
        return queue

    # Refresh and update
    # -------------------------------------------------------------------------------------------

    async def refresh(self, call: ComCall) -> None:
        """Read the properties (3.10.4.1.29). Unsaved values set by the client are lost."""
        name = await self._name_of_one_queue(call)
        engine = self._environment.engine
        with self._environment.lock:
            queue, is_local = self._find(name)
            self.is_application_queue = _is_application_queue(queue)
            if not self.is_application_queue:
                self.queue = engine.set_queue_defaults()
                self.path_name = queue.pathname
            elif not is_local:
                _require(queue, call.identity, QueueAccess.GET_QUEUE_PROPERTIES)
                self._copy(queue)
            else:
                seen = engine.get_queue_properties(queue, identity=call.identity)
                if _is_public(queue):
                    published = self._read(name, identifier_is(queue.identifier))
                    published.security = seen.security
                    seen = published
                self._copy(seen)
        self.is_refreshed = True

    def _copy(self, queue: Queue) -> None:
        self.queue = self._environment.engine.set_queue_defaults()
        for attribute in (*COPIED_ATTRIBUTES, *_TOLD):
            setattr(self.queue, attribute, getattr(queue, attribute))
        self.path_name = queue.pathname
        self._changes.clear()

    async def update(self, call: ComCall) -> None:
        """Write the properties that the client has set (3.10.4.1.30).

        The document writes every property of the object. Properties that were never read from the
        queue, however, have defaults that the client did not ask for, so only those that the client
        set are written.
        """
        name = await self._name_of_one_queue(call)
        environment, changes = self._environment, dict(self._changes)
        with environment.committer.change() as change:
            queue, is_local = self._find(name)
            if not _is_application_queue(queue):
                raise UnsupportedFormatnameOperation(f"{name} belongs to the queue manager")
            if is_local:
                environment.engine.set_queue_properties(queue, changes, identity=call.identity)
            else:
                _require(queue, call.identity, QueueAccess.SET_QUEUE_PROPERTIES)
                for attribute, value in changes.items():
                    setattr(queue, attribute, value)
                result = environment.engine.write_directory(queue, list(changes), identity=call.identity)
                _require_success(result, f"{name} could not be changed")
            self._changes.clear()
        await change


def _names_public(name: DirectFormatName) -> bool:
    part = name.queue_part
    is_whole = part is not None and part.subqueue is None and not part.is_journal
    return part is not None and is_whole and part.queue_type is QueueType.PUBLIC


def _is_public(queue: Queue) -> bool:
    return queue.queue_type is QueueType.PUBLIC and not queue.parent and not isinstance(queue, OutgoingQueue)


def _is_application_queue(queue: Queue) -> bool:
    """Return whether a queue is an ApplicationQueue (3.1.1.2)."""
    is_of_kind = queue.queue_type in (QueueType.PUBLIC, QueueType.PRIVATE)
    return is_of_kind and not isinstance(queue, OutgoingQueue)


def _directory_error(result: DirectoryOperationResult, what: str) -> StatusError:
    text = f"{what}: {result.value}"
    is_away = result is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
    return NoDs(text) if is_away else DsError(text)


def _require_success(result: DirectoryOperationResult, message: str) -> None:
    if result is not DirectoryOperationResult.SUCCESS:
        raise _directory_error(result, message)


def _require(queue: Queue, identity: Identity, right: QueueAccess) -> None:
    """Check a right against the descriptor that the directory has for a remote queue."""
    if not identity.is_system and not is_granted(queue.security, identity, right):
        raise AccessDenied(f"{identity.name} has no right {right!r} on queue {queue.pathname}")


def _has_other_owners(security: bytes) -> bool:
    """Return whether anyone besides the owner may take ownership of the queue (3.10.4.1.25).

    Administrators are ignored, because they may do so with every queue.
    """
    descriptor = map_generic_rights(SecurityDescriptor.unpack(security), QUEUE_MAPPING)
    if descriptor.dacl is None:
        return True
    return any(
        ace.ace_type == AceType.ACCESS_ALLOWED
        and ace.mask & QueueAccess.TAKE_QUEUE_OWNERSHIP
        and ace.sid not in (descriptor.owner, BUILTIN_ADMINISTRATORS)
        for ace in descriptor.dacl.aces
    )


def _with_world_readers(security: bytes) -> bytes:
    """Return the descriptor with the right of Everyone to receive and peek added."""
    descriptor = SecurityDescriptor.unpack(security)
    aces = () if descriptor.dacl is None else descriptor.dacl.aces
    widened = tuple(
        replace(ace, mask=ace.mask | QueueAccess.RECEIVE_MESSAGE) if ace.sid == EVERYONE else ace for ace in aces
    )
    return replace(descriptor, dacl=Acl(widened)).pack()
