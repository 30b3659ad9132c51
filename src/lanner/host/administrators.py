"""Who administers a queue manager, as its accounts say now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.security.roles import has_role_for
from lanner.security.scopes import ADMIN, has_scope
from lanner.wire.sid import LOCAL_SYSTEM

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.security.identity import Identity


def is_administrator(engine: Engine, identity: Identity, scope: str = ADMIN) -> bool:
    """Return whether a caller is an administrator now, or has a role for a scope; and if it came by a token, whether that has the scope.

    A connection may live longer than a right: the accounts are asked again with each call
    (MS-MQMR 5.1), and a caller whom they no longer know is nobody.
    """
    if not has_scope(identity, scope):
        return False
    if identity.sid == LOCAL_SYSTEM:
        return True
    resolve = engine.settings.resolve_identity
    current = identity if resolve is None else resolve(identity.sid)
    return current is not None and has_role_for(current, scope)
