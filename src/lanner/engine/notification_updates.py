"""Notification Updates and the attributes of objects (MS-MQCN 3.1.1.2, 3.1.1.3, 3.3.5.2).

The tables map properties to attributes. A value on the wire has the type of its property.
`attribute_values` returns it in the type of the attribute, and raises for an invalid value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanner.engine.directory_events import ChangeNotification
from lanner.model.directory_objects import Queue, QueueManager
from lanner.model.enums import QueuePrivacyLevel, QueueScope
from lanner.model.errors import RemoteProtocolError
from lanner.wire.change_notification import (
    MQDS_ENTERPRISESCOPE,
    MQDS_QUEUE,
    NotificationCommand,
    NotificationUpdate,
)
from lanner.wire.property_ids import DeletionProperty, MachineProperty, QueueProperty

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Mapping, Sequence

    from lanner.model.directory_objects import DirectoryObject
    from lanner.wire.notification_values import PropertyValue

# 3.1.1.3, in the order of 3.3.5.2. The last two are in no list that is sent.
QUEUE_ATTRIBUTES: Final[dict[int, str]] = {
    QueueProperty.TYPE: "type",
    QueueProperty.INSTANCE: "identifier",
    QueueProperty.BASEPRIORITY: "base_priority",
    QueueProperty.JOURNAL: "journaling",
    QueueProperty.QUOTA: "quota",
    QueueProperty.JOURNAL_QUOTA: "journal_quota",
    QueueProperty.CREATE_TIME: "create_time",
    QueueProperty.MODIFY_TIME: "modify_time",
    QueueProperty.SCOPE: "scope",
    QueueProperty.SECURITY: "security",
    QueueProperty.PATHNAME: "pathname",
    QueueProperty.LABEL: "label",
    QueueProperty.AUTHENTICATE: "authentication",
    QueueProperty.PRIV_LEVEL: "privacy_level",
    QueueProperty.TRANSACTION: "transactional",
    QueueProperty.MULTICAST_ADDRESS: "multicast_address",
    QueueProperty.ADS_PATH: "directory_path",
}
# 3.1.1.2.1.
QUEUE_MANAGER_ATTRIBUTES: Final[dict[int, str]] = {
    MachineProperty.MACHINE_ID: "identifier",
    MachineProperty.FOREIGN: "foreign_system",
    MachineProperty.QUOTA: "queue_manager_quota",
    MachineProperty.JOURNAL_QUOTA: "journal_quota",
    MachineProperty.SECURITY: "security",
    MachineProperty.CNS: "connected_network_identifier_list",
    MachineProperty.MACHINE_TYPE: "queue_manager_version",
    MachineProperty.OS: "operating_system_type",
}

# 3.3.5.2: the fifteen properties of a created queue, and those that a change may carry.
CREATED_QUEUE: Final[tuple[int, ...]] = tuple(
    one for one in QUEUE_ATTRIBUTES if one not in (QueueProperty.MULTICAST_ADDRESS, QueueProperty.ADS_PATH)
)
CHANGED_QUEUE: Final[tuple[int, ...]] = (
    QueueProperty.JOURNAL,
    QueueProperty.QUOTA,
    QueueProperty.BASEPRIORITY,
    QueueProperty.JOURNAL_QUOTA,
    QueueProperty.SECURITY,
    QueueProperty.AUTHENTICATE,
    QueueProperty.PRIV_LEVEL,
)
CHANGED_QUEUE_MANAGER: Final[tuple[int, ...]] = (
    MachineProperty.QUOTA,
    MachineProperty.JOURNAL_QUOTA,
    MachineProperty.SECURITY,
)

_SCOPES: Final = {0: QueueScope.SITE, 1: QueueScope.ENTERPRISE}
_FLAGS: Final = frozenset({"journaling", "authentication", "transactional", "foreign_system"})


def update_of(
    operation: ChangeNotification,
    changed: DirectoryObject,
    attributes: Sequence[str] | None,
    identifier: uuid.UUID,
    *,
    master: uuid.UUID,
    owner: uuid.UUID,
) -> NotificationUpdate:
    """Return the Notification Update that a directory server sends about a change (3.3.5.2).

    `attributes` are the names of the written attributes; None: all. `master` is the directory
    server, and `owner` the queue manager to notify.
    """
    if operation is ChangeNotification.QUEUE_DELETION:
        return NotificationUpdate(
            NotificationCommand.DELETE,
            None,
            identifier,
            master,
            (DeletionProperty.SCOPE, DeletionProperty.OBJTYPE),
            (MQDS_ENTERPRISESCOPE, MQDS_QUEUE),
        )
    properties: list[tuple[int, PropertyValue]]
    if operation is ChangeNotification.QUEUE_CREATION and isinstance(changed, Queue):
        properties = [
            (one, identifier if one is QueueProperty.INSTANCE else property_value(changed, QUEUE_ATTRIBUTES[one]))
            for one in CREATED_QUEUE
        ]
        return _update(NotificationCommand.CREATE, changed.pathname, None, master, properties)
    if isinstance(changed, QueueManager):
        properties = [
            (MachineProperty.MACHINE_ID, identifier),
            (MachineProperty.FOREIGN, property_value(changed, "foreign_system")),
        ]
        properties += _written(changed, CHANGED_QUEUE_MANAGER, QUEUE_MANAGER_ATTRIBUTES, attributes)
    else:
        properties = [(QueueProperty.QMID, owner)]
        properties += _written(changed, CHANGED_QUEUE, QUEUE_ATTRIBUTES, attributes)
    return _update(NotificationCommand.CHANGE, None, identifier, master, properties)


def _update(
    command: NotificationCommand,
    path_name: str | None,
    identifier: uuid.UUID | None,
    master: uuid.UUID,
    properties: Sequence[tuple[int, PropertyValue]],
) -> NotificationUpdate:
    identifiers, values = zip(*properties, strict=True)
    return NotificationUpdate(command, path_name, identifier, master, identifiers, values)


def _written(
    changed: DirectoryObject,
    allowed: Iterable[int],
    names: Mapping[int, str],
    attributes: Sequence[str] | None,
) -> list[tuple[int, PropertyValue]]:
    wanted = None if attributes is None else {name.replace("_", "").lower() for name in attributes}
    found: list[tuple[int, PropertyValue]] = []
    for one in allowed:
        name = names[one]
        if wanted is None or name.replace("_", "") in wanted:
            found.append((one, property_value(changed, name)))
    return found


def property_value(owner: DirectoryObject, name: str) -> PropertyValue:
    """Return an attribute as the value of its property (MS-MQMQ 2.3)."""
    value = getattr(owner, name)
    if name == "scope":
        return int(value is QueueScope.ENTERPRISE)
    if name in _FLAGS:
        return int(value)
    found: PropertyValue = b"" if name == "security" and value is None else value
    return found


def attribute_values(values: Mapping[int, PropertyValue], names: Mapping[int, str]) -> dict[str, object]:
    """Return the attributes that the properties of an update set. Raises RemoteProtocolError."""
    found: dict[str, object] = {}
    for one, name in names.items():
        if one in values:
            found[name] = _attribute_value(name, values[one])
    return found


def _attribute_value(name: str, value: PropertyValue) -> object:
    if name in _FLAGS:
        if value not in (0, 1):
            raise RemoteProtocolError(f"{name}: {value!r} is neither 0 nor 1")
        return bool(value)
    if name == "scope":
        if not isinstance(value, int) or value not in _SCOPES:
            raise RemoteProtocolError(f"Scope {value!r}: 0 or 1 expected")
        return _SCOPES[value]
    if name == "privacy_level":
        if not isinstance(value, int) or value not in frozenset(QueuePrivacyLevel):
            raise RemoteProtocolError(f"PrivacyLevel {value!r}: 0 to 2 expected")
        return QueuePrivacyLevel(value)
    return value
