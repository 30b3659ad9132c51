"""The descriptors of new objects, and the check that a descriptor uses its own kind of rights.

Create Default Queue Security Descriptor is MS-MQDMPR 3.1.7.1.3.1. Queue manager and site follow
MS-MQDSSM 3.1.6.1.1.8 and 3.1.6.1.3.4. No document gives defaults for an enterprise or a connected
network; these follow the site's.

The documents make S-1-5-7 the owner of objects that no domain user created, and give Everyone full
control. An owner may rewrite the access list, so every anonymous caller could. That is profile
DOCUMENT. With profile SAFE (DECISIONS) the account that created the object owns it, or else the
Administrators.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from lanner.model.errors import IllegalSecurityDescriptor, InvalidOwner, RemoteProtocolError
from lanner.security.access import map_generic_rights
from lanner.security.access_masks import (
    CONNECTED_NETWORK_MAPPING,
    ENTERPRISE_MAPPING,
    QUEUE_MANAGER_MAPPING,
    QUEUE_MAPPING,
    SITE_MAPPING,
    ConnectedNetworkAccess,
    EnterpriseAccess,
    GenericMapping,
    QueueAccess,
    QueueManagerAccess,
    SiteAccess,
)
from lanner.security.identity import Identity
from lanner.security.profile import Profile
from lanner.wire.security_descriptor import AccessMask, Acl, SecurityDescriptor, allow
from lanner.wire.sid import (
    ANONYMOUS_LOGON,
    AUTHENTICATED_USERS,
    BUILTIN_ADMINISTRATORS,
    EVERYONE,
    LOCAL_SYSTEM,
    OWNER_RIGHTS,
    Sid,
)

READ_QUEUE: Final = QueueAccess.GET_QUEUE_PROPERTIES | QueueAccess.GET_QUEUE_PERMISSIONS
# An owner may change the list. If one of these were the owner, every caller could.
NO_OWNERS: Final = frozenset({ANONYMOUS_LOGON, AUTHENTICATED_USERS, EVERYONE, OWNER_RIGHTS})


class Guarded(enum.Enum):
    """A kind of object, with the enumeration of its rights (MS-MQDMPR 3.1.1.1-3.1.1.9)."""

    QUEUE_MANAGER = (QueueManagerAccess, QUEUE_MANAGER_MAPPING)
    QUEUE = (QueueAccess, QUEUE_MAPPING)
    SITE = (SiteAccess, SITE_MAPPING)
    ENTERPRISE = (EnterpriseAccess, ENTERPRISE_MAPPING)
    CONNECTED_NETWORK = (ConnectedNetworkAccess, CONNECTED_NETWORK_MAPPING)

    def __init__(self, rights: type[enum.IntFlag], mapping: GenericMapping) -> None:
        self.rights = rights
        self.mapping = mapping

    @property
    def all_rights(self) -> int:
        return self.mapping.all


def checked_descriptor(data: bytes, kind: Guarded) -> SecurityDescriptor:
    """Parse a descriptor that is to be set on an object: map generic rights, check the bits.

    Raises IllegalSecurityDescriptor for bytes that are no descriptor, and for an entry with a bit
    that the enumeration of this kind of object lacks.
    """
    try:
        descriptor = map_generic_rights(SecurityDescriptor.unpack(data), kind.mapping)
    except RemoteProtocolError as error:
        raise IllegalSecurityDescriptor(str(error)) from error
    check_rights(descriptor, kind)
    return descriptor


def check_rights(descriptor: SecurityDescriptor, kind: Guarded) -> None:
    """Refuse entries with bits outside the object's enumeration (MS-MQDMPR 3.1.1.1 Security)."""
    # MS-DTYP 2.4.3: ACCESS_SYSTEM_SECURITY in a SACL audits access to the SACL itself.
    lists = (
        (descriptor.dacl, kind.all_rights),
        (descriptor.sacl, kind.all_rights | AccessMask.ACCESS_SYSTEM_SECURITY),
    )
    for acl, known in lists:
        for ace in acl.aces if acl is not None else ():
            unknown = ace.mask & ~known
            if unknown:
                name = kind.name.lower().replace("_", " ")
                raise IllegalSecurityDescriptor(f"entry for {ace.sid}: {unknown:#x} is no right of a {name}")


def check_owner(owner: Sid | None) -> None:
    """Raise InvalidOwner for an owner whose rights many callers, or all, would have."""
    if owner in NO_OWNERS:
        raise InvalidOwner(f"{owner} cannot own a queue: an owner may change its access list")


def create_default_queue_security_descriptor(
    supplied: bytes | None,
    caller: Identity,
    *,
    profile: Profile = Profile.SAFE,
    machine_sid: Callable[[], Sid | None] | None = None,
    is_domain_user: Callable[[Sid], bool] | None = None,
    reachable_over_srmp: bool = False,
    is_published: bool = False,
) -> bytes:
    """Return the descriptor of a queue that `caller` creates (MS-MQDMPR 3.1.7.1.3.1).

    The descriptor is self-relative. `machine_sid` looks up the host's objectSid in the directory,
    and is passed in directory-integrated mode only; it returns None if the lookup failed.
    `is_domain_user` decides about an owner other than the caller; without it, no other owner counts
    as a domain user. `is_published`: the queue gets an object in a domain.
    """
    machine = machine_sid() if machine_sid is not None else None
    if profile is Profile.SAFE:
        security, accounts = _safely_owned(supplied, caller, is_domain_user)
        entries = _safe_entries(accounts, machine)
        if is_published:
            # A domain controller hides objects that a reader may not read, but other users must
            # find a public queue by its name. The computer writes the object when a local
            # administrator changes the queue.
            entries += [(machine, QueueAccess.GENERIC_ALL), (EVERYONE, READ_QUEUE)]
        if security.has_dacl:
            return readable_in_a_domain(security.pack(), machine) if is_published else security.pack()
        return _with_entries(security, *entries).pack()
    security, owner, is_open = _owned(supplied, caller, is_domain_user)
    if not security.has_dacl:
        world, owner_access, anonymous = READ_QUEUE, QueueAccess.GENERIC_ALL, QueueAccess(0)
        if is_open:
            world, owner_access = QueueAccess.GENERIC_ALL, QueueAccess(0)
        if reachable_over_srmp:
            world |= QueueAccess.WRITE_MESSAGE
            anonymous = QueueAccess.WRITE_MESSAGE
        security = _with_entries(
            security,
            (EVERYONE, world),
            (ANONYMOUS_LOGON, anonymous),
            (machine, READ_QUEUE),
            (owner, owner_access),
        )
    return security.pack()


def is_open_default(security: SecurityDescriptor) -> bool:
    """Return whether a list is the one of DOCUMENT for a queue that no domain user created.

    It consists of full control for Everyone and, where the queue manager has them, the entries for
    SRMP and for the computer's account.
    """
    if security.dacl is None:
        return False
    rights: dict[Sid, int] = {}
    for ace in security.dacl.aces:
        if ace != allow(ace.sid, ace.mask) or ace.sid in rights:
            return False
        rights[ace.sid] = ace.mask
    if rights.pop(EVERYONE, 0) != QueueAccess.GENERIC_ALL:
        return False
    if rights.pop(ANONYMOUS_LOGON, QueueAccess.WRITE_MESSAGE) != QueueAccess.WRITE_MESSAGE:
        return False
    # The remaining entry can only be the computer's account, if it has not changed since.
    return len(rights) <= 1 and all(sid.is_account and mask == READ_QUEUE for sid, mask in rights.items())


def without_anonymous_owner(security: SecurityDescriptor) -> SecurityDescriptor:
    """Return the descriptor of profile SAFE for a queue that S-1-5-7 owns.

    Its creator is not known, so the Administrators become the owner. A list that an operator made
    is kept.
    """
    owned = replace(security, owner=BUILTIN_ADMINISTRATORS)
    if security.dacl is None or not is_open_default(security):
        return owned
    machine = next((ace.sid for ace in security.dacl.aces if ace.mask == READ_QUEUE), None)
    return _with_entries(owned, *_safe_entries([BUILTIN_ADMINISTRATORS], machine))


def default_queue_manager_security(
    caller: Identity,
    supplied: bytes | None = None,
    *,
    profile: Profile = Profile.SAFE,
    machine_sid: Sid | None = None,
    is_foreign: bool = False,
) -> bytes:
    """Return the descriptor of a new queue manager object (MS-MQDSSM 3.1.6.1.1.8)."""
    descriptor = SecurityDescriptor() if supplied is None else SecurityDescriptor.unpack(supplied)
    user = descriptor.owner or caller.sid
    if profile is Profile.SAFE and user in NO_OWNERS:
        user = BUILTIN_ADMINISTRATORS
    world = QueueManagerAccess.GENERIC_WRITE if is_foreign else QueueManagerAccess.WORLD_RIGHTS
    # The document leaves the owner empty, but then no user could repair the descriptor.
    final = _with_entries(
        SecurityDescriptor(owner=user),
        (EVERYONE, world),
        (machine_sid, QueueManagerAccess.GENERIC_ALL),
        (machine_sid, QueueManagerAccess.SELF_RIGHTS),
        (user, QueueManagerAccess.GENERIC_ALL),
    )
    return final.pack()


def default_site_security(
    caller: Identity,
    supplied: bytes | None = None,
    is_domain_user: Callable[[Sid], bool] | None = None,
    profile: Profile = Profile.SAFE,
) -> bytes:
    """Return the descriptor of a new site (MS-MQDSSM 3.1.6.1.3.4)."""
    rights = SiteAccess.GENERIC_READ, SiteAccess.GENERIC_ALL
    return _world_and_owner(supplied, caller, is_domain_user, profile, *rights)


def default_enterprise_security(
    caller: Identity, supplied: bytes | None = None, profile: Profile = Profile.SAFE
) -> bytes:
    rights = EnterpriseAccess.GENERIC_READ, EnterpriseAccess.GENERIC_ALL
    return _world_and_owner(supplied, caller, None, profile, *rights)


def default_connected_network_security(
    caller: Identity, supplied: bytes | None = None, profile: Profile = Profile.SAFE
) -> bytes:
    rights = ConnectedNetworkAccess.GENERIC_READ, ConnectedNetworkAccess.GENERIC_ALL
    return _world_and_owner(supplied, caller, None, profile, *rights)


def _world_and_owner(
    supplied: bytes | None,
    caller: Identity,
    is_domain_user: Callable[[Sid], bool] | None,
    profile: Profile,
    read: int,
    every: int,
) -> bytes:
    if profile is Profile.SAFE:
        security, accounts = _safely_owned(supplied, caller, is_domain_user)
        if not security.has_dacl:
            security = _with_entries(security, (EVERYONE, read), *((sid, every) for sid in accounts))
        return security.pack()
    security, owner, is_open = _owned(supplied, caller, is_domain_user)
    if not security.has_dacl:
        security = _with_entries(security, (EVERYONE, every if is_open else read), (owner, 0 if is_open else every))
    return security.pack()


def _safely_owned(
    supplied: bytes | None, caller: Identity, is_domain_user: Callable[[Sid], bool] | None
) -> tuple[SecurityDescriptor, list[Sid]]:
    """Give the supplied descriptor its final owner; return the accounts with full control too."""
    security = SecurityDescriptor() if supplied is None else SecurityDescriptor.unpack(supplied)
    # Anyone can be the anonymous user or the guest, and root administers without an entry.
    is_account = not (caller.is_system or caller.is_anonymous or caller.is_guest or caller.sid.is_guest)
    creators = [caller.sid] if is_account and caller.sid not in NO_OWNERS else []
    owner = security.owner
    if owner is None or not _may_own(owner, caller, is_domain_user):
        owner = next(iter(creators), BUILTIN_ADMINISTRATORS)
    accounts = list(dict.fromkeys([owner, *creators, BUILTIN_ADMINISTRATORS]))
    return replace(security, owner=owner), accounts


def _may_own(owner: Sid, caller: Identity, is_domain_user: Callable[[Sid], bool] | None) -> bool:
    """Return whether a caller may create an object for this owner."""
    if owner in NO_OWNERS or owner == LOCAL_SYSTEM or owner.is_guest:
        return False
    if caller.is_system or owner in caller.sids or owner == BUILTIN_ADMINISTRATORS:
        return True
    return is_domain_user is not None and is_domain_user(owner)


def _safe_entries(accounts: list[Sid], machine: Sid | None) -> list[tuple[Sid | None, int]]:
    """Return the entries of a new queue with profile SAFE (DECISIONS).

    Everyone may send, and nothing else.
    """
    return [
        *((sid, QueueAccess.GENERIC_ALL) for sid in accounts),
        (EVERYONE, QueueAccess.WRITE_MESSAGE),
        (ANONYMOUS_LOGON, QueueAccess.WRITE_MESSAGE),
        (machine, READ_QUEUE),
    ]


def _owned(
    supplied: bytes | None, caller: Identity, is_domain_user: Callable[[Sid], bool] | None
) -> tuple[SecurityDescriptor, Sid, bool]:
    """Give the supplied descriptor its final owner.

    Returns the descriptor, the owner, and whether the object belongs to no real account.
    """
    security = SecurityDescriptor() if supplied is None else SecurityDescriptor.unpack(supplied)
    owner = security.owner or caller.sid
    if owner == caller.sid:
        is_known, is_guest = caller.is_domain_user, caller.is_guest
    else:
        is_known, is_guest = is_domain_user is not None and is_domain_user(owner), False
    if not is_known:
        owner = ANONYMOUS_LOGON
    # The steps copy only DACL and SACL; the group is kept too, because nothing replaces it.
    return replace(security, owner=owner), owner, not is_known or is_guest or owner.is_guest


def _with_entries(security: SecurityDescriptor, *entries: tuple[Sid | None, int]) -> SecurityDescriptor:
    aces = tuple(allow(sid, mask) for sid, mask in entries if sid is not None and mask)
    return replace(security, dacl=Acl(aces))


def readable_in_a_domain(security: bytes | None, machine: Sid | None, *, by_all: bool = True) -> bytes:
    """Return the descriptor of a queue that gets an object in a domain.

    A domain controller hides objects that a reader has no right to read. A workgroup needs no such
    entries.
    """
    found = SecurityDescriptor() if security is None else SecurityDescriptor.unpack(security)
    if not found.has_dacl or found.dacl is None:
        return found.pack()
    wanted: dict[Sid, int] = {} if machine is None else {machine: QueueAccess.GENERIC_ALL}
    if by_all:
        wanted[EVERYONE] = READ_QUEUE
    held = {(ace.sid, ace.mask) for ace in found.dacl.aces}
    entries = tuple(allow(sid, mask) for sid, mask in wanted.items() if (sid, mask) not in held)
    return replace(found, dacl=replace(found.dacl, aces=(*found.dacl.aces, *entries))).pack()
