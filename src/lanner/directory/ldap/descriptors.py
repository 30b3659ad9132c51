"""Conversion of security descriptors between MSMQ's rights and those of a domain controller.

A domain controller interprets every mask as rights on directory objects (MS-ADTS 5.1.3.2): the bit
that a queue manager reads as MQSEC_GET_MACHINE_PROPERTIES permits writing properties there. Profile
DOCUMENT writes the masks unchanged. Profile SAFE (DECISIONS) writes the right that is meant, and
translates back when reading. Rights on messages become the control access rights that the schema
defines for them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from lanner.security.access_masks import EnterpriseAccess, QueueAccess, QueueManagerAccess, SiteAccess
from lanner.security.profile import Profile
from lanner.security.queue_security import Guarded
from lanner.wire.security_descriptor import ACL_REVISION_DS, Ace, AceFlags, AceType, Acl, SecurityDescriptor, allow
from lanner.wire.sid import EVERYONE, Sid

# MS-ADTS 5.1.3.2.
CREATE_CHILD: Final = 0x001
LIST_CHILDREN: Final = 0x004
READ_PROPERTY: Final = 0x010
WRITE_PROPERTY: Final = 0x020
LIST_OBJECT: Final = 0x080
CONTROL_ACCESS: Final = 0x100
_GET: Final = READ_PROPERTY | LIST_CHILDREN | LIST_OBJECT
_STANDARD: Final = 0x000F_0000

_OBJECT_TYPES: Final = {
    AceType.ACCESS_ALLOWED: AceType.ACCESS_ALLOWED_OBJECT,
    AceType.ACCESS_DENIED: AceType.ACCESS_DENIED_OBJECT,
    AceType.SYSTEM_AUDIT: AceType.SYSTEM_AUDIT_OBJECT,
}
_PLAIN_TYPES: Final = {int(value): int(key) for key, value in _OBJECT_TYPES.items()}


def _control_right(text: str) -> uuid.UUID:
    return uuid.UUID(text)


@dataclass(frozen=True, slots=True)
class _Rights:
    """How the rights of one kind of object are written."""

    get: int
    set: int
    create: int
    messages: tuple[tuple[int, uuid.UUID], ...] = ()

    @property
    def all_messages(self) -> int:
        return sum(bit for bit, _ in self.messages)


_RIGHTS: Final = {
    Guarded.QUEUE_MANAGER: _Rights(
        int(QueueManagerAccess.GET_MACHINE_PROPERTIES),
        int(QueueManagerAccess.SET_MACHINE_PROPERTIES),
        int(QueueManagerAccess.CREATE_QUEUE),
        tuple(
            (int(bit), _control_right(f"4b6e08{digits}-df3c-11d1-9c86-006008764d0e"))
            for bit, digits in (
                (QueueManagerAccess.DELETE_DEADLETTER_MESSAGE, "c0"),
                (QueueManagerAccess.PEEK_DEADLETTER_MESSAGE, "c1"),
                (QueueManagerAccess.DELETE_JOURNAL_QUEUE_MESSAGE, "c2"),
                (QueueManagerAccess.PEEK_JOURNAL_QUEUE_MESSAGE, "c3"),
            )
        ),
    ),
    Guarded.QUEUE: _Rights(
        int(QueueAccess.GET_QUEUE_PROPERTIES),
        int(QueueAccess.SET_QUEUE_PROPERTIES),
        0,
        tuple(
            (int(bit), _control_right(f"06bd32{digits}-df3e-11d1-9c86-006008764d0e"))
            for bit, digits in (
                (QueueAccess.DELETE_MESSAGE, "00"),
                (QueueAccess.PEEK_MESSAGE, "01"),
                (QueueAccess.WRITE_MESSAGE, "02"),
                (QueueAccess.DELETE_JOURNAL_MESSAGE, "03"),
            )
        ),
    ),
    Guarded.SITE: _Rights(
        int(SiteAccess.GET_SITE_PROPERTIES),
        int(SiteAccess.SET_SITE_PROPERTIES),
        0x7,
    ),
    Guarded.ENTERPRISE: _Rights(
        int(EnterpriseAccess.GET_ENTERPRISE_PROPERTIES),
        int(EnterpriseAccess.SET_ENTERPRISE_PROPERTIES),
        0x7,
    ),
}


def to_directory(descriptor: SecurityDescriptor, kind: Guarded, profile: Profile) -> SecurityDescriptor:
    """Return a descriptor in the form written to the directory."""
    if profile is Profile.DOCUMENT:
        return descriptor
    rights = _RIGHTS[kind]
    return _with_lists(descriptor, lambda aces: (one for ace in aces for one in _written(ace, rights)))


def from_directory(descriptor: SecurityDescriptor, kind: Guarded, profile: Profile) -> SecurityDescriptor:
    """Convert a descriptor that was read, without entries that were inherited from above.

    The domain controller enforces those itself.
    """
    if profile is Profile.DOCUMENT:
        return descriptor
    rights = _RIGHTS[kind]
    return _with_lists(descriptor, lambda aces: _read(aces, rights))


def _with_lists(descriptor: SecurityDescriptor, change) -> SecurityDescriptor:  # type: ignore[no-untyped-def]  # noqa: ANN001
    def changed(acl: Acl | None) -> Acl | None:
        if acl is None:
            return None
        aces = tuple(change(acl.aces))
        is_plain = all(ace.object_type is None for ace in aces)
        return Acl(aces, Acl().revision if is_plain else ACL_REVISION_DS)

    return replace(descriptor, dacl=changed(descriptor.dacl), sacl=changed(descriptor.sacl))


def _written(ace: Ace, rights: _Rights) -> Iterable[Ace]:
    object_type = _OBJECT_TYPES.get(AceType(ace.ace_type))
    if object_type is None:
        yield ace
        return
    mask = ace.mask & _STANDARD
    for bits, meant in ((rights.get, _GET), (rights.set, WRITE_PROPERTY), (rights.create, CREATE_CHILD)):
        if ace.mask & bits:
            mask |= meant
    if mask:
        yield replace(ace, mask=mask)
    for bit, right in rights.messages:
        if ace.mask & bit:
            yield replace(ace, ace_type=object_type, mask=CONTROL_ACCESS, object_type=right)


def _read(aces: Iterable[Ace], rights: _Rights) -> list[Ace]:
    known = {right: bit for bit, right in rights.messages}
    found: list[Ace] = []
    for ace in aces:
        if AceFlags.INHERITED in ace.flags:
            continue
        if ace.object_type is not None:
            mask = known.get(ace.object_type, 0) if ace.mask & CONTROL_ACCESS else 0
        else:
            mask = ace.mask & _STANDARD
            for bits, meant in (
                (rights.get, READ_PROPERTY),
                (rights.set, WRITE_PROPERTY),
                (rights.create, CREATE_CHILD),
                (rights.all_messages, CONTROL_ACCESS),
            ):
                if ace.mask & meant:
                    mask |= bits
        plain = Ace(_PLAIN_TYPES.get(ace.ace_type, ace.ace_type), mask, ace.sid, ace.flags)
        if not mask:
            continue
        # One entry was written as several: its message rights follow it, and are joined again.
        if found and replace(found[-1], mask=mask) == plain:
            found[-1] = replace(found[-1], mask=found[-1].mask | mask)
        else:
            found.append(plain)
    return found


def queue_manager_descriptor(machine: Sid | None, user: Sid, *, is_foreign: bool) -> SecurityDescriptor:
    """Return the descriptor of MS-MQDSSM 3.1.6.1.1.8, in MSMQ's rights.

    Owner and group are set by the server. MQSEC_MACHINE_SELF_RIGHTS has no published value; the
    machine's own entry contains it, because it has every right.
    """
    world = QueueManagerAccess.GENERIC_WRITE if is_foreign else QueueManagerAccess.WORLD_RIGHTS
    entries = [allow(EVERYONE, world)]
    entries += [allow(sid, QueueManagerAccess.GENERIC_ALL) for sid in dict.fromkeys((machine, user)) if sid is not None]
    return SecurityDescriptor(dacl=Acl(tuple(entries)))


def site_descriptor(
    supplied: SecurityDescriptor | None, owner: Sid, *, is_domain_user: bool, domain_admins: Sid, profile: Profile
) -> SecurityDescriptor:
    """Return the descriptor of MS-MQDSSM 3.1.6.1.3.4, in MSMQ's rights.

    Profile SAFE gives Domain Admins the rights that the document gives Everyone.
    """
    supplied = supplied or SecurityDescriptor()
    if supplied.has_dacl:
        return SecurityDescriptor(dacl=supplied.dacl, sacl=supplied.sacl, control=supplied.control)
    entries: tuple[Ace, ...]
    if is_domain_user and not owner.is_guest:
        entries = (allow(EVERYONE, SiteAccess.GENERIC_READ), allow(owner, SiteAccess.GENERIC_ALL))
    elif profile is Profile.SAFE:
        entries = (allow(EVERYONE, SiteAccess.GENERIC_READ), allow(domain_admins, SiteAccess.GENERIC_ALL))
    else:
        entries = (allow(EVERYONE, SiteAccess.GENERIC_ALL),)
    return SecurityDescriptor(dacl=Acl(entries), sacl=supplied.sacl)
