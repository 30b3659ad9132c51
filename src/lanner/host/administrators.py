"""Who administers a queue manager, as its accounts say now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.security.scopes import ADMIN, has_scope
from lanner.wire.sid import BUILTIN_ADMINISTRATORS, LOCAL_SYSTEM

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.security.identity import Identity


def is_administrator(engine: Engine, identity: Identity, scope: str = ADMIN) -> bool:
    """Return whether a caller is an administrator now, and if it came by a token, whether that has a scope.

    A connection may live longer than a right: the accounts are asked again with each call
    (MS-MQMR 5.1), and a caller whom they no longer know is nobody.
    """
    if not has_scope(identity, scope):
        return False
    if identity.sid == LOCAL_SYSTEM:
        return True
    settings = engine.settings
    resolve, groups_naming = settings.resolve_identity, settings.groups_naming
    current = identity if resolve is None else resolve(identity.sid)
    if current is not None and current.is_administrator:
        return True
    # The account file does not know users of a domain, but may name their groups.
    return (
        identity.is_domain_user
        and groups_naming is not None
        and BUILTIN_ADMINISTRATORS in groups_naming(identity.groups)
    )
