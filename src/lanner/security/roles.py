"""Rights that users have in addition to access lists. Each account has exactly one role.

A role is membership in a group in the account file; members are listed by SID, so accounts from
other systems can have roles too. Monitors and operators may do what an administrator's token with
certain scopes permits (`scopes`). In addition they have the rights below on every queue, even if
its list does not grant them. They cannot change accounts, access lists, properties or settings.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from lanner.security.access_masks import QueueAccess, QueueManagerAccess
from lanner.security.scopes import OPERATE, READ
from lanner.wire.sid import BUILTIN_ADMINISTRATORS, BUILTIN_PERFORMANCE_MONITOR_USERS, BUILTIN_SERVER_OPERATORS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanner.security.identity import Identity
    from lanner.wire.sid import Sid


class Role(enum.StrEnum):
    """The role of an account.

    If an external SID is in several groups, the most powerful role applies.
    """

    USER = "user"
    MONITOR = "monitor"
    OPERATOR = "operator"
    ADMINISTRATOR = "administrator"


# The groups, by their local names and with the SIDs of the Windows groups for the same purpose.
GROUPS: Final[dict[Role, tuple[str, Sid]]] = {
    Role.ADMINISTRATOR: ("Administrators", BUILTIN_ADMINISTRATORS),
    Role.OPERATOR: ("Operators", BUILTIN_SERVER_OPERATORS),
    Role.MONITOR: ("Monitors", BUILTIN_PERFORMANCE_MONITOR_USERS),
}
# Descriptions for users who choose one.
TEXTS: Final = {
    Role.USER: "what access lists allow",
    Role.MONITOR: "sees queues, computers and figures, and no messages",
    Role.OPERATOR: "also messages of every queue, outgoing queues, sessions, offline and online",
    Role.ADMINISTRATOR: "everything",
}
_SCOPES: Final[Mapping[Role, frozenset[str]]] = {
    Role.MONITOR: frozenset({READ}),
    Role.OPERATOR: frozenset({READ, OPERATE}),
}
_SEEING: Final = QueueAccess.GET_QUEUE_PROPERTIES | QueueAccess.GET_QUEUE_PERMISSIONS
_QUEUE_RIGHTS: Final[Mapping[Role, QueueAccess]] = {
    Role.MONITOR: _SEEING,
    Role.OPERATOR: _SEEING
    | QueueAccess.PEEK_MESSAGE
    | QueueAccess.RECEIVE_MESSAGE
    | QueueAccess.RECEIVE_JOURNAL_MESSAGE
    | QueueAccess.WRITE_MESSAGE,
}
_SEEING_MACHINE: Final = QueueManagerAccess.GET_MACHINE_PROPERTIES | QueueManagerAccess.GET_MACHINE_PERMISSIONS
_MACHINE_RIGHTS: Final[Mapping[Role, QueueManagerAccess]] = {
    Role.MONITOR: _SEEING_MACHINE,
    Role.OPERATOR: _SEEING_MACHINE
    | QueueManagerAccess.RECEIVE_DEADLETTER_MESSAGE
    | QueueManagerAccess.RECEIVE_JOURNAL_QUEUE_MESSAGE,
}


def role_of(identity: Identity) -> Role:
    """Return the role of a user, as recorded in the identity from the account file."""
    if identity.is_administrator:
        return Role.ADMINISTRATOR
    lesser = (Role.OPERATOR, Role.MONITOR)
    return next((role for role in lesser if GROUPS[role][1] in identity.groups), Role.USER)


def has_role_for(identity: Identity, scope: str) -> bool:
    """Return whether the role of a user includes an administrator's requests of a scope."""
    role = role_of(identity)
    return role is Role.ADMINISTRATOR or scope in _SCOPES.get(role, ())


def roles_for(scope: str) -> list[Role]:
    """Return the roles that include an administrator's requests of a scope, the lowest first."""
    return [role for role in Role if role is Role.ADMINISTRATOR or scope in _SCOPES.get(role, ())]


def role_grants_on_queue(identity: Identity, rights: int) -> bool:
    """Return whether a role gives rights on every queue.

    An administrator has the rights of the access list.
    """
    return not int(rights) & ~int(_QUEUE_RIGHTS.get(role_of(identity), 0))


def role_grants_on_machine(identity: Identity, rights: int) -> bool:
    """Return whether a role gives rights on the queue manager."""
    return not int(rights) & ~int(_MACHINE_RIGHTS.get(role_of(identity), 0))
