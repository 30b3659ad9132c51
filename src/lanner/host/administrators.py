"""Administrators of a queue manager, according to the current state of its accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.security.identity import Identity
from lanner.security.roles import has_role_for
from lanner.security.scopes import ADMIN, has_scope
from lanner.wire.sid import BUILTIN_ADMINISTRATORS, LOCAL_SYSTEM

if TYPE_CHECKING:
    from lanner.engine import Engine


def is_administrator(engine: Engine, identity: Identity, scope: str = ADMIN) -> bool:
    """Return whether a caller is an administrator now, or has a role for a scope.

    If the caller logged on with a token, the token must have the scope, too. A connection may live
    longer than a right, so the accounts are consulted at each call (MS-MQMR 5.1). A caller that has
    been removed from them has no rights.
    """
    if not has_scope(identity, scope):
        return False
    if identity.sid == LOCAL_SYSTEM:
        return True
    settings = engine.settings
    resolve, groups_naming = settings.resolve_identity, settings.groups_naming
    current = identity if resolve is None else resolve(identity.sid)
    if current is not None and has_role_for(current, scope):
        return True
    # The account file has no users of a domain, but may contain their groups.
    if not identity.is_domain_user or groups_naming is None:
        return False
    here = groups_naming(identity.groups)
    named = Identity(identity.name, identity.sid, here, is_administrator=BUILTIN_ADMINISTRATORS in here)
    return has_role_for(named, scope)
