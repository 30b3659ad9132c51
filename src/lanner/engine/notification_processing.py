"""The processing of change notifications (MS-MQCN 3.2.5.1, 3.2.5.2).

A notification is an unverified claim. Version 0x02 only names an object, and this module acts on
the object as the directory has it. Version 0x01 carries values and must be signed by a queue
manager. Profile SAFE demands more: version 0x01 must come from a directory server, this computer
never queries a directory server that it does not know, and it deletes a queue only if the directory
no longer has it (docs/decisions.md).

Nothing here writes to the directory, so a notification never causes another one.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Final

from lanner.engine.notification_updates import (
    CHANGED_QUEUE,
    CHANGED_QUEUE_MANAGER,
    CREATED_QUEUE,
    QUEUE_ATTRIBUTES,
    QUEUE_MANAGER_ATTRIBUTES,
    attribute_values,
)
from lanner.engine.queue_properties import COPIED_ATTRIBUTES, check_value
from lanner.model.directory_objects import Queue, QueueManager
from lanner.model.enums import DirectoryOperationResult, QueueType
from lanner.model.errors import LannerError, RemoteProtocolError
from lanner.security.profile import Profile
from lanner.security.queue_security import Guarded, checked_descriptor
from lanner.wire.change_notification import (
    MQDS_MACHINE,
    MQDS_QUEUE,
    VERSION_1,
    ChangeNotificationMessage,
    NotificationBody,
    NotificationCommand,
    NotificationEvent,
    NotificationUpdate,
)
from lanner.wire.path_name import PathName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lanner.engine.core import Core
    from lanner.engine.names import Names
    from lanner.engine.queues import Queues

_LOG = logging.getLogger(__name__)

# 3.2.5.2 iAttributeList of a queue, which calls Journaling "Journal", and of a queue manager.
_QUEUE_LIST: Final = (
    "Type",
    "Identifier",
    "BasePriority",
    "Journaling",
    "Quota",
    "JournalQuota",
    "CreateTime",
    "ModifyTime",
    "Security",
    "Pathname",
    "Label",
    "Authentication",
    "PrivacyLevel",
    "Transactional",
    "MulticastAddress",
    "DirectoryPath",
)
_QUEUE_MANAGER_LIST: Final = ("QueueManagerQuota", "JournalQuota", "Security")
# Attributes that Create Queue does not take from a request; MS-MQCN sets them afterwards
# (DECISIONS).
_SET_AFTERWARDS: Final = ("create_time", "modify_time", "scope", "directory_path")

# Not in the specification: seconds. A queue of this age has been replicated to every domain
# controller, so if a domain controller does not have it, it was deleted.
_REPLICATED_AFTER: Final = 86_400


class NotificationProcessing:
    """Applies notifications to the queues and the queue manager."""

    def __init__(self, core: Core, names: Names, queues: Queues) -> None:
        self._queue_manager = core.queue_manager
        self._attributes = core.attributes
        self._clocks = core.clocks
        self._is_safe = core.settings.profile is Profile.SAFE
        self._registry = names.registry
        self._directory = names.directory_events
        self._queues = queues

    def process(self, message: ChangeNotificationMessage, sender: uuid.UUID) -> None:
        """Apply a message; `sender` is the queue manager that signed a version 0x01 message.

        An invalid update ends the message: updates before it stay applied, later ones are ignored.
        """
        try:
            if message.version != VERSION_1:
                self._process_body(message.notification_body)
                return
            if self._is_safe and not self._is_directory_server(sender):
                raise RemoteProtocolError(f"its sender {sender} is no directory server")
            for update in message.updates():
                self._process_update(update)
        except LannerError as error:
            _LOG.info("a change notification is disregarded: %s", error)

    def _is_directory_server(self, identifier: uuid.UUID) -> bool:
        """Return whether the sender of a version 0x01 message is a directory server.

        DECISIONS: 1.7 and 2.2.4 leave version 0x01 to directory servers, but the steps do not check
        it.
        """
        result, found = self._directory.read_directory_at("", "QueueManager", identifier, ["DirectoryServer"])
        return result is DirectoryOperationResult.SUCCESS and isinstance(found, QueueManager) and found.directory_server

    # Version 0x01 (3.2.5.1) -----------------------------------------------------------------------

    def _process_update(self, update: NotificationUpdate) -> None:
        kind = update.object_type
        is_deletion = update.command is NotificationCommand.DELETE
        if kind not in ((MQDS_QUEUE,) if is_deletion else (MQDS_QUEUE, MQDS_MACHINE)):
            raise RemoteProtocolError(f"Notification Update of an object of type {kind}")
        if is_deletion:
            queue = None if update.guid_identifier is None else self._queue(update.guid_identifier)
            if queue is not None:
                self._delete(queue)
        elif kind == MQDS_MACHINE:
            # The specification has no rule for the creation of a queue manager.
            names = {one: QUEUE_MANAGER_ATTRIBUTES[one] for one in CHANGED_QUEUE_MANAGER}
            is_own = update.guid_identifier == self._queue_manager.identifier
            if is_own and update.command is NotificationCommand.CHANGE:
                self._change_queue_manager(attribute_values(update.values, names))
        elif update.command is NotificationCommand.CREATE:
            self._create(attribute_values(update.values, {one: QUEUE_ATTRIBUTES[one] for one in CREATED_QUEUE}))
        else:
            queue = self._queue_named(update)
            if queue is not None:
                wanted = {one: QUEUE_ATTRIBUTES[one] for one in CHANGED_QUEUE}
                self._change(queue, attribute_values(update.values, wanted))

    def _queue_named(self, update: NotificationUpdate) -> Queue | None:
        """Return the local public queue that an update is about."""
        if update.guid_identifier is not None:
            return self._queue(update.guid_identifier)
        path = PathName.parse(update.path_name or "")
        return self._registry.find_by_path(path) if _is_public(path) else None

    # Version 0x02 (3.2.5.2) -----------------------------------------------------------------------

    def _process_body(self, body: NotificationBody) -> None:
        server = self._server_to_ask(body.domain_controller)
        match body.event:
            case NotificationEvent.CREATE_QUEUE:
                self.create_from_directory(body.object_guid, server)
            case NotificationEvent.CHANGE_QUEUE:
                self.refresh_queue(body.object_guid, server)
            case NotificationEvent.DELETE_QUEUE:
                queue = self._queue(body.object_guid)
                if queue is not None and (not self._is_safe or self._is_gone(queue, server)):
                    self._delete(queue)
            case NotificationEvent.CHANGE_MACHINE:
                if body.object_guid == self._queue_manager.identifier:
                    self.refresh_queue_manager(server)

    def _server_to_ask(self, named: str) -> str:
        """Return the directory server to query; empty: the default one.

        DECISIONS: a name in an unsigned message must not make this computer log on to an arbitrary
        server.
        """
        if self._is_safe and not self._directory.directory.knows_server(named):
            return ""
        return named

    def create_from_directory(self, identifier: uuid.UUID, server: str = "") -> None:
        """Handle event 1: create a queue that the directory has and this queue manager lacks."""
        if self._queue(identifier) is None:
            found = self._read_queue(identifier, server)
            if found is not None:
                self._create(_attributes_of(found))

    def refresh_queue(self, identifier: uuid.UUID, server: str = "") -> None:
        """Handle event 2: give a queue the attributes that it has in the directory."""
        queue = self._queue(identifier)
        found = None if queue is None else self._read_queue(identifier, server)
        if queue is not None and found is not None:
            self._change(queue, _attributes_of(found))

    def refresh_queue_manager(self, server: str = "") -> None:
        """Handle event 4: adopt the quotas and the descriptor of this queue manager's object."""
        own = self._queue_manager
        result, found = self._directory.read_directory_at(server, "QueueManager", own.identifier, _QUEUE_MANAGER_LIST)
        if result is DirectoryOperationResult.SUCCESS and isinstance(found, QueueManager):
            names = ("queue_manager_quota", "journal_quota", "security")
            self._change_queue_manager({name: getattr(found, name) for name in names})

    def missing_queues(self) -> list[uuid.UUID]:
        """Return the public queues of this computer that are in the directory but not here."""
        _, found = self._directory.directory.queues_of(self._queue_manager.computer_name)
        return [identifier for identifier in found or () if self._queue(identifier) is None]

    def public_queues(self) -> list[uuid.UUID]:
        """Return the local public queues."""
        return [queue.identifier for queue in self._registry.local_queues() if queue.queue_type is QueueType.PUBLIC]

    def _read_queue(self, identifier: uuid.UUID, server: str) -> Queue | None:
        result, found = self._directory.read_directory_at(server, "Queue", identifier, _QUEUE_LIST)
        return found if result is DirectoryOperationResult.SUCCESS and isinstance(found, Queue) else None

    def _is_gone(self, queue: Queue, server: str) -> bool:
        """Return whether the directory no longer has a queue (DECISIONS, profile SAFE).

        The server of the change must say so. A forged notification may name a server to which a new
        queue has not been replicated, so for such a queue the default server must confirm it.
        """
        is_young = self._clocks.wall() - queue.create_time < _REPLICATED_AFTER
        for asked in dict.fromkeys((server, "") if is_young else (server,)):
            result, _ = self._directory.read_directory_at(asked, "Queue", queue.identifier, ["Pathname"])
            if result is not DirectoryOperationResult.OBJECT_NOT_FOUND:
                _LOG.info(
                    "queue %s stays: a notification reports its deletion, but the directory says %s",
                    queue.pathname,
                    result,
                )
                return False
        return True

    # Changes here ---------------------------------------------------------------------------------

    def _queue(self, identifier: uuid.UUID) -> Queue | None:
        """Return the local public queue with an identifier."""
        return self._registry.find_by_identifier(identifier)

    def _create(self, values: Mapping[str, object]) -> None:
        """Do Create Queue, then set the attributes that the event does not copy (DECISIONS)."""
        path = PathName.parse(str(values.get("pathname", "")))
        identifier = values.get("identifier")
        if not _is_public(path) or not self._registry.is_local_host(path.computer):
            raise RemoteProtocolError(f"queue {path}: no public queue of this computer")
        if isinstance(identifier, uuid.UUID) and self._queue(identifier) is not None:
            return
        if self._registry.has_path(path):
            return
        request = self._queues.set_queue_defaults(str(path))
        for name in COPIED_ATTRIBUTES:
            if values.get(name) not in (None, b""):
                setattr(request, name, values[name])
        queue = self._queues.create_queue(request, skip_directory=True)
        for name in _SET_AFTERWARDS:
            if name in values:
                setattr(queue, name, values[name])
        if request.security is not None:
            # The descriptor as the directory has it. Create Queue treats it as a caller's request.
            queue.security = checked_descriptor(request.security, Guarded.QUEUE).pack()
        if isinstance(identifier, uuid.UUID):
            self._registry.set_identifier(queue, identifier)
        self._attributes.save_queue(queue)
        _LOG.info("queue %s was created in the directory and is here now", queue.pathname)

    def _change(self, queue: Queue, values: Mapping[str, object]) -> None:
        """Set attributes of a queue. Its messages, journal and handles stay."""
        checked = {
            name: check_value(name, value) if name in COPIED_ATTRIBUTES else value
            for name, value in values.items()
            if name not in ("identifier", "pathname") and not (name == "security" and value is None)
        }
        for name, value in checked.items():
            setattr(queue, name, value)
        pathname = values.get("pathname")
        if isinstance(pathname, str):
            self._rename(queue, PathName.parse(pathname))
        self._attributes.save_queue(queue)

    def _rename(self, queue: Queue, path: PathName) -> None:
        """Rename a queue here, unless the name is taken or belongs to another computer."""
        is_ours = _is_public(path) and self._registry.is_local_host(path.computer)
        if is_ours and not self._registry.has_path(path):
            self._registry.rename(queue, path)

    def _change_queue_manager(self, values: Mapping[str, object]) -> None:
        changed = dict(values)
        security = changed.pop("security", None)
        if isinstance(security, bytes) and security:
            changed["security"] = checked_descriptor(security, Guarded.QUEUE_MANAGER).pack()
        for name, value in changed.items():
            setattr(self._queue_manager, name, value)
        self._attributes.save_queue_manager()

    def _delete(self, queue: Queue) -> None:
        pathname, count = queue.pathname, queue.message_count
        self._queues.delete_queue(queue, skip_directory=True)
        _LOG.warning("queue %s was deleted in the directory, and is deleted here with %d messages", pathname, count)


def _is_public(path: PathName) -> bool:
    return path.queue_type is QueueType.PUBLIC and path.subqueue is None and not path.is_journal


def _attributes_of(queue: Queue) -> dict[str, object]:
    """Return the sixteen attributes that 3.2.5.2 reads."""
    names: Iterable[str] = (name for name in QUEUE_ATTRIBUTES.values() if name != "scope")
    return {name: getattr(queue, name) for name in names}
