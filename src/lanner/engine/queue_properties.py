"""Values of the attributes of a queue (MS-MQDMPR 3.1.1.2), and the rights needed to change them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

from lanner.model.enums import INFINITE, QueuePrivacyLevel
from lanner.model.errors import (
    AccessDenied,
    IllegalFormatname,
    IllegalPropertyValue,
    IllegalSecurityDescriptor,
    PropertyNotallowed,
)
from lanner.security.access_masks import QueueAccess
from lanner.security.queue_security import Guarded, checked_descriptor
from lanner.wire.format_name import parse
from lanner.wire.security_descriptor import AccessMask, SecurityDescriptor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanner.model.directory_objects import Queue
    from lanner.security.identity import Identity

# MS-MQDMPR 3.1.7.1.3: the attributes that Create Queue takes from the request, and their types. It
# sets the others itself.
COPIED_ATTRIBUTES: Final[dict[str, type]] = {
    "label": str,
    "type": uuid.UUID,
    "pathname": str,
    "journaling": bool,
    "quota": int,
    "journal_quota": int,
    "authentication": bool,
    "privacy_level": QueuePrivacyLevel,
    "transactional": bool,
    "multicast_address": str,
    "security": bytes,
    "base_priority": int,
}
# A queue's name and whether it is transactional are fixed at its creation.
CHANGEABLE_ATTRIBUTES: Final = tuple(name for name in COPIED_ATTRIBUTES if name not in ("pathname", "transactional"))

# MS-MQMQ 2.3.1.8.
MAX_LABEL_LENGTH: Final = 124
# MS-MQMQ 2.3.1.6.
BASE_PRIORITIES: Final = range(-0x8000, 0x8000)
# Quotas are unsigned 32-bit numbers of kilobytes.
_RANGES: Final = {
    "quota": range(INFINITE + 1),
    "journal_quota": range(INFINITE + 1),
    "base_priority": BASE_PRIORITIES,
}
_OPTIONAL: Final = frozenset({"multicast_address"})


def copied_attributes(request: Queue) -> dict[str, Any]:
    """Return the attributes that a new queue takes from the request.

    A missing descriptor is made later.
    """
    return {
        name: None if name == "security" and request.security is None else check_value(name, getattr(request, name))
        for name in COPIED_ATTRIBUTES
    }


def check_changes(changes: Mapping[str, object]) -> dict[str, Any]:
    """Return the values in the form in which a queue keeps them.

    An error names the attribute that cannot be changed, or cannot have that value.
    """
    for name in changes:
        if name not in CHANGEABLE_ATTRIBUTES:
            raise PropertyNotallowed(
                f"{name} of a queue cannot be changed; these can: {', '.join(CHANGEABLE_ATTRIBUTES)}"
            )
    return {name: check_value(name, value) for name, value in changes.items()}


def check_value(name: str, value: object) -> object:
    """Return the value of one attribute in the form in which a queue keeps it."""
    if value is None and name in _OPTIONAL:
        return None
    wanted = COPIED_ATTRIBUTES[name]
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        error = IllegalSecurityDescriptor if name == "security" else IllegalPropertyValue
        raise error(f"{name} of a queue: {wanted.__name__} expected, not {value!r}")
    if isinstance(value, bytes):
        return checked_descriptor(value, Guarded.QUEUE).pack()
    if isinstance(value, int) and name in _RANGES and value not in _RANGES[name]:
        raise IllegalPropertyValue(f"{name} of a queue: {value} is not {_RANGES[name][0]} to {_RANGES[name][-1]}")
    if name == "label" and isinstance(value, str) and len(value) > MAX_LABEL_LENGTH:
        raise IllegalPropertyValue(f"label of a queue: {len(value)} characters, at most {MAX_LABEL_LENGTH}")
    if name == "multicast_address":
        _check_multicast_address(str(value))
    return value


def _check_multicast_address(value: str) -> None:
    try:
        parse(f"MULTICAST={value}")
    except IllegalFormatname:
        raise IllegalPropertyValue(
            f"multicast_address of a queue: {value!r} is not an address 224.0.0.0 to 239.255.255.255 with a port"
        ) from None


def rights_to_change(changes: Mapping[str, object], security: bytes | None, identity: Identity) -> int:
    """Return the rights (MS-MQMQ 2.2.24) that all the changes together need.

    `security` is the current descriptor.
    """
    rights = QueueAccess.SET_QUEUE_PROPERTIES if changes.keys() - {"security"} else QueueAccess(0)
    new_security = changes.get("security")
    return rights | _rights_to_secure(security, new_security, identity) if isinstance(new_security, bytes) else rights


def _rights_to_secure(old: bytes | None, new: bytes, identity: Identity) -> int:
    """Return the rights that a change of a descriptor needs (MS-DTYP 2.5.3.2, 2.4.3).

    Each part of a descriptor has a right of its own. An identity can take ownership, but not give
    it to another.
    """
    before = SecurityDescriptor() if old is None else SecurityDescriptor.unpack(old)
    after = SecurityDescriptor.unpack(new)
    rights = 0
    if after.owner != before.owner:
        if after.owner not in identity.sids and not identity.is_system:
            raise AccessDenied(f"{identity.name} cannot make {after.owner} the owner of a queue, only itself")
        rights |= QueueAccess.TAKE_QUEUE_OWNERSHIP
    if after.sacl != before.sacl:
        rights |= AccessMask.ACCESS_SYSTEM_SECURITY
    if (after.has_dacl, after.dacl, after.group) != (before.has_dacl, before.dacl, before.group) or not rights:
        rights |= QueueAccess.CHANGE_QUEUE_PERMISSIONS
    return rights
