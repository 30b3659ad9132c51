"""Scopes of tokens, and the rights of MS-MQMQ 2.2.23 and 2.2.24 in each.

A scope limits what the bearer of a token may do with its user's rights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanner.security.access_masks import QueueAccess, QueueManagerAccess
from lanner.wire.security_descriptor import AccessMask

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lanner.security.identity import Identity

READ: Final = "read"
SEND: Final = "send"
RECEIVE: Final = "receive"
MANAGE: Final = "manage"
OPERATE: Final = "operate"
ADMIN: Final = "admin"

# Descriptions for users who choose one.
SCOPES: Final = {
    READ: "see queues and their messages, and what an administrator may see if the user is one",
    SEND: "send messages",
    RECEIVE: "receive, move, purge and see messages",
    MANAGE: "create, change and delete queues, and who may use them",
    OPERATE: "pause and resend outgoing queues, end sessions and transactions in doubt, go offline and online",
    ADMIN: "everything that the user may do",
}
_QUEUE_RIGHTS: Final = {
    READ: QueueAccess.PEEK_MESSAGE | QueueAccess.GET_QUEUE_PROPERTIES | QueueAccess.GET_QUEUE_PERMISSIONS,
    SEND: QueueAccess.WRITE_MESSAGE,
    RECEIVE: QueueAccess.RECEIVE_MESSAGE | QueueAccess.RECEIVE_JOURNAL_MESSAGE,
    MANAGE: QueueAccess.SET_QUEUE_PROPERTIES
    | QueueAccess.GET_QUEUE_PROPERTIES
    | QueueAccess.DELETE_QUEUE
    | QueueAccess.GET_QUEUE_PERMISSIONS
    | QueueAccess.CHANGE_QUEUE_PERMISSIONS
    | QueueAccess.TAKE_QUEUE_OWNERSHIP
    | AccessMask.ACCESS_SYSTEM_SECURITY,
    OPERATE: 0,
}
_MACHINE_RIGHTS: Final = {
    READ: QueueManagerAccess.PEEK_DEADLETTER_MESSAGE
    | QueueManagerAccess.PEEK_JOURNAL_QUEUE_MESSAGE
    | QueueManagerAccess.GET_MACHINE_PROPERTIES
    | QueueManagerAccess.GET_MACHINE_PERMISSIONS,
    SEND: 0,
    RECEIVE: QueueManagerAccess.RECEIVE_DEADLETTER_MESSAGE | QueueManagerAccess.RECEIVE_JOURNAL_QUEUE_MESSAGE,
    MANAGE: QueueManagerAccess.CREATE_QUEUE | QueueManagerAccess.GET_MACHINE_PROPERTIES,
    OPERATE: 0,
}


def has_scope(identity: Identity, scope: str) -> bool:
    """Return whether an identity is not limited, or limited to scopes that include this one."""
    return identity.scope is None or ADMIN in identity.scope or scope in identity.scope


def covers_queue_rights(identity: Identity, rights: int) -> bool:
    """Return whether the scope of an identity includes rights on queues."""
    return identity.scope is None or _covers(identity.scope, _QUEUE_RIGHTS, rights)


def covers_machine_rights(identity: Identity, rights: int) -> bool:
    """Return whether the scope of an identity includes rights on the queue manager."""
    return identity.scope is None or _covers(identity.scope, _MACHINE_RIGHTS, rights)


def _covers(scope: Iterable[str], table: Mapping[str, int], rights: int) -> bool:
    allowed = 0
    for one in scope:
        if one == ADMIN:
            return True
        allowed |= int(table[one])
    return not int(rights) & ~allowed
