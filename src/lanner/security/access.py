"""The access check of MS-DTYP 2.5.3.2, and the rights that each way to open a queue needs."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from lanner.model.enums import QueueAccessType
from lanner.security.access_masks import QUEUE_MAPPING, GenericMapping, QueueAccess, QueueManagerAccess
from lanner.security.identity import Identity
from lanner.wire.security_descriptor import AccessMask, Ace, AceFlags, AceType, Acl, SecurityDescriptor
from lanner.wire.sid import OWNER_RIGHTS, Sid

_OWNER_IMPLICIT: Final = int(AccessMask.READ_CONTROL | AccessMask.WRITE_DAC)
# The rights of the privileges SeTakeOwnership and SeSecurity, which administrators hold.
_ADMINISTRATOR_IMPLICIT: Final = int(AccessMask.WRITE_OWNER | AccessMask.ACCESS_SYSTEM_SECURITY)
ALLOWING: Final = frozenset({AceType.ACCESS_ALLOWED, AceType.ACCESS_ALLOWED_OBJECT})
# A condition cannot be evaluated here, so its result is "unknown". MS-DTYP 2.5.3.2 then applies a
# denying callback entry and skips an allowing one.
DENYING: Final = frozenset(
    {
        AceType.ACCESS_DENIED,
        AceType.ACCESS_DENIED_OBJECT,
        AceType.ACCESS_DENIED_CALLBACK,
        AceType.ACCESS_DENIED_CALLBACK_OBJECT,
    }
)

# MS-MQMQ 2.2.24. A move takes the message out of its queue, so it needs the rights of a receive.
QUEUE_RIGHTS: Final = {
    QueueAccessType.RECEIVE: QueueAccess.RECEIVE_MESSAGE,
    QueueAccessType.SEND: QueueAccess.WRITE_MESSAGE,
    QueueAccessType.MOVE: QueueAccess.RECEIVE_MESSAGE,
    QueueAccessType.PEEK: QueueAccess.PEEK_MESSAGE,
    QueueAccessType.RECEIVE_ADMIN: QueueAccess.RECEIVE_MESSAGE,
    QueueAccessType.PEEK_ADMIN: QueueAccess.PEEK_MESSAGE,
}
# A queue's journal is guarded by the queue's own descriptor.
JOURNAL_RIGHTS: Final = QUEUE_RIGHTS | {
    QueueAccessType.RECEIVE: QueueAccess.RECEIVE_JOURNAL_MESSAGE,
    QueueAccessType.MOVE: QueueAccess.RECEIVE_JOURNAL_MESSAGE,
    QueueAccessType.RECEIVE_ADMIN: QueueAccess.RECEIVE_JOURNAL_MESSAGE,
}
# MS-MQMQ 2.2.23: the machine's dead-letter and journal queues are guarded by the queue manager's
# descriptor. Programs cannot send to them: no right of that enumeration allows it.
DEADLETTER_RIGHTS: Final = {
    QueueAccessType.RECEIVE: QueueManagerAccess.RECEIVE_DEADLETTER_MESSAGE,
    QueueAccessType.MOVE: QueueManagerAccess.RECEIVE_DEADLETTER_MESSAGE,
    QueueAccessType.RECEIVE_ADMIN: QueueManagerAccess.RECEIVE_DEADLETTER_MESSAGE,
    QueueAccessType.PEEK: QueueManagerAccess.PEEK_DEADLETTER_MESSAGE,
    QueueAccessType.PEEK_ADMIN: QueueManagerAccess.PEEK_DEADLETTER_MESSAGE,
}
MACHINE_JOURNAL_RIGHTS: Final = {
    QueueAccessType.RECEIVE: QueueManagerAccess.RECEIVE_JOURNAL_QUEUE_MESSAGE,
    QueueAccessType.MOVE: QueueManagerAccess.RECEIVE_JOURNAL_QUEUE_MESSAGE,
    QueueAccessType.RECEIVE_ADMIN: QueueManagerAccess.RECEIVE_JOURNAL_QUEUE_MESSAGE,
    QueueAccessType.PEEK: QueueManagerAccess.PEEK_JOURNAL_QUEUE_MESSAGE,
    QueueAccessType.PEEK_ADMIN: QueueManagerAccess.PEEK_JOURNAL_QUEUE_MESSAGE,
}


def access_check(
    descriptor: SecurityDescriptor | None,
    identity: Identity,
    desired: int,
    mapping: GenericMapping = QUEUE_MAPPING,
) -> bool:
    """Return whether the descriptor grants every right in `desired` (MS-DTYP 2.5.3.2).

    Entries are evaluated in stored order: a denying entry counts for rights that no earlier entry
    has granted. Without a DACL, or with a NULL one, there is no policy and all rights are granted.
    The local system is not checked: see `identity.SYSTEM`.
    """
    if identity.is_system:
        return True
    remaining = mapping.map(int(desired))
    if identity.is_administrator:
        remaining &= ~_ADMINISTRATOR_IMPLICIT
    if remaining & AccessMask.ACCESS_SYSTEM_SECURITY:
        return False
    if descriptor is None or descriptor.dacl is None:
        return True
    token = _with_owner_rights(identity.sids, descriptor.owner)
    if descriptor.owner in token and not any(ace.sid == OWNER_RIGHTS for ace in descriptor.dacl.aces):
        # The pseudocode says "does not contain ACEs from object owner"; by 2.4.2.4 this means
        # OWNER_RIGHTS.
        remaining &= ~_OWNER_IMPLICIT
    for ace in descriptor.dacl.aces:
        if not remaining:
            break
        if not _applies(ace, token):
            continue
        # Generic bits are mapped when a descriptor is set (MS-DTYP 2.4.3), by `map_generic_rights`,
        # so they are taken literally here.
        if ace.ace_type in ALLOWING:
            remaining &= ~ace.mask
        elif ace.ace_type in DENYING and ace.mask & remaining:
            return False
    return remaining == 0


@lru_cache(maxsize=8192)
def is_granted(
    security: bytes | None, identity: Identity, desired: int, mapping: GenericMapping = QUEUE_MAPPING
) -> bool:
    """Do `access_check` on a stored descriptor.

    The result is cached, because every message causes the same few checks.
    """
    descriptor = None if security is None else SecurityDescriptor.unpack(security)
    return access_check(descriptor, identity, desired, mapping)


def map_generic_rights(descriptor: SecurityDescriptor, mapping: GenericMapping) -> SecurityDescriptor:
    """Replace generic bits in every entry. Call this when a descriptor is set on an object."""
    return replace(descriptor, dacl=_mapped(descriptor.dacl, mapping), sacl=_mapped(descriptor.sacl, mapping))


def _mapped(acl: Acl | None, mapping: GenericMapping) -> Acl | None:
    if acl is None:
        return None
    return replace(acl, aces=tuple(replace(ace, mask=mapping.map(ace.mask)) for ace in acl.aces))


def _with_owner_rights(sids: frozenset[Sid], owner: Sid | None) -> frozenset[Sid]:
    return sids | {OWNER_RIGHTS} if owner in sids else sids


def _applies(ace: Ace, token: frozenset[Sid]) -> bool:
    # An object entry that names a type needs an object tree, which queues do not have (MS-DTYP
    # 2.5.3.2).
    return AceFlags.INHERIT_ONLY not in ace.flags and ace.object_type is None and ace.sid in token
