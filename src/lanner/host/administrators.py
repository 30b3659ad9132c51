"""Who administers a queue manager, as its accounts say now."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.security.identity import Identity


def is_administrator(engine: Engine, identity: Identity) -> bool:
    """Return whether a caller is an administrator now.

    A connection may live longer than a right: the accounts are asked again with each call
    (MS-MQMR 5.1), and a caller whom they no longer know is nobody.
    """
    if identity.is_system:
        return True
    resolve = engine.settings.resolve_identity
    current = identity if resolve is None else resolve(identity.sid)
    return current is not None and current.is_administrator
