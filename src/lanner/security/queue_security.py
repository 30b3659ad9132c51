"""The descriptors new objects get, and the check that a descriptor uses its own kind of rights.

Create Default Queue Security Descriptor is MS-MQDMPR 3.1.7.1.3.1; queue manager and site follow
MS-MQDSSM 3.1.6.1.1.8 and 3.1.6.1.3.4. No document gives defaults for an enterprise or a connected
network: ours follow the site's.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from lanner.model.errors import IllegalSecurityDescriptor, RemoteProtocolError
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
from lanner.wire.security_descriptor import AccessMask, Acl, SecurityDescriptor, allow
from lanner.wire.sid import ANONYMOUS_LOGON, EVERYONE, Sid

READ_QUEUE: Final = QueueAccess.GET_QUEUE_PROPERTIES | QueueAccess.GET_QUEUE_PERMISSIONS


class Guarded(enum.Enum):
    """A kind of object, with the enumeration its entries take their bits from (MS-MQDMPR 3.1.1.1-3.1.1.9)."""

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
    """Read a descriptor somebody wants to set on an object: generic rights mapped, bits checked.

    Raises IllegalSecurityDescriptor for bytes that are none, and for an entry with a bit that the
    enumeration of this kind of object does not have.
    """
    try:
        descriptor = map_generic_rights(SecurityDescriptor.unpack(data), kind.mapping)
    except RemoteProtocolError as error:
        raise IllegalSecurityDescriptor(str(error)) from error
    check_rights(descriptor, kind)
    return descriptor


def check_rights(descriptor: SecurityDescriptor, kind: Guarded) -> None:
    """MS-MQDMPR 3.1.1.1 Security: entries use only bits of the enumeration for their object."""
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


def create_default_queue_security_descriptor(
    supplied: bytes | None,
    caller: Identity,
    *,
    machine_sid: Callable[[], Sid | None] | None = None,
    is_domain_user: Callable[[Sid], bool] | None = None,
    reachable_over_srmp: bool = False,
) -> bytes:
    """MS-MQDMPR 3.1.7.1.3.1: the descriptor of a queue that `caller` creates, self-relative.

    `machine_sid` looks up the host's objectSid in the directory and is given in directory-integrated mode
    only; None from it is a lookup that failed. `is_domain_user` answers for an owner other than the caller;
    without it no other owner is known to be one.
    """
    machine = machine_sid() if machine_sid is not None else None
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


def default_queue_manager_security(
    caller: Identity,
    supplied: bytes | None = None,
    *,
    machine_sid: Sid | None = None,
    is_foreign: bool = False,
) -> bytes:
    """MS-MQDSSM 3.1.6.1.1.8: the descriptor of a new queue manager object."""
    descriptor = SecurityDescriptor() if supplied is None else SecurityDescriptor.unpack(supplied)
    user = descriptor.owner or caller.sid
    world = QueueManagerAccess.GENERIC_WRITE if is_foreign else QueueManagerAccess.WORLD_RIGHTS
    # The document leaves the owner empty; a descriptor without one has nobody who may repair it.
    final = _with_entries(
        SecurityDescriptor(owner=user),
        (EVERYONE, world),
        (machine_sid, QueueManagerAccess.GENERIC_ALL),
        (machine_sid, QueueManagerAccess.SELF_RIGHTS),
        (user, QueueManagerAccess.GENERIC_ALL),
    )
    return final.pack()


def default_site_security(
    caller: Identity, supplied: bytes | None = None, is_domain_user: Callable[[Sid], bool] | None = None
) -> bytes:
    """MS-MQDSSM 3.1.6.1.3.4: the descriptor of a new site."""
    return _world_and_owner(supplied, caller, is_domain_user, SiteAccess.GENERIC_READ, SiteAccess.GENERIC_ALL)


def default_enterprise_security(caller: Identity, supplied: bytes | None = None) -> bytes:
    return _world_and_owner(supplied, caller, None, EnterpriseAccess.GENERIC_READ, EnterpriseAccess.GENERIC_ALL)


def default_connected_network_security(caller: Identity, supplied: bytes | None = None) -> bytes:
    return _world_and_owner(
        supplied, caller, None, ConnectedNetworkAccess.GENERIC_READ, ConnectedNetworkAccess.GENERIC_ALL
    )


def _world_and_owner(
    supplied: bytes | None, caller: Identity, is_domain_user: Callable[[Sid], bool] | None, read: int, every: int
) -> bytes:
    security, owner, is_open = _owned(supplied, caller, is_domain_user)
    if not security.has_dacl:
        security = _with_entries(security, (EVERYONE, every if is_open else read), (owner, 0 if is_open else every))
    return security.pack()


def _owned(
    supplied: bytes | None, caller: Identity, is_domain_user: Callable[[Sid], bool] | None
) -> tuple[SecurityDescriptor, Sid, bool]:
    """Give the supplied descriptor its final owner; say who that is, and whether nobody real owns the object."""
    security = SecurityDescriptor() if supplied is None else SecurityDescriptor.unpack(supplied)
    owner = security.owner or caller.sid
    if owner == caller.sid:
        is_known, is_guest = caller.is_domain_user, caller.is_guest
    else:
        is_known, is_guest = is_domain_user is not None and is_domain_user(owner), False
    if not is_known:
        owner = ANONYMOUS_LOGON
    # The steps copy DACL and SACL only; the group is kept too, since nothing replaces it.
    return replace(security, owner=owner), owner, not is_known or is_guest or owner.is_guest


def _with_entries(security: SecurityDescriptor, *entries: tuple[Sid | None, int]) -> SecurityDescriptor:
    aces = tuple(allow(sid, mask) for sid, mask in entries if sid is not None and mask)
    return replace(security, dacl=Acl(aces))
