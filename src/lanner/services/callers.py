"""Access checks that apply to whole interfaces: administrators only, and hardened mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.host.administrators import is_administrator
from lanner.model.errors import AccessDenied
from lanner.rpc.faults import FaultStatus, RpcFault
from lanner.rpc.interface import RETURNS
from lanner.security.printable import printable
from lanner.security.roles import roles_for
from lanner.security.scopes import ADMIN, has_scope

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.errors import StatusError
    from lanner.rpc.calls import ServerCall
    from lanner.rpc.server import Authorization, Results
    from lanner.security.identity import Identity


def require_administrator(engine: Engine, identity: Identity, scope: str = ADMIN) -> None:
    """Raise AccessDenied unless the caller may act as an administrator.

    The caller needs to be an administrator now, or to have a role that covers `scope`. A token that
    is limited to other scopes is refused.
    """
    if not has_scope(identity, scope):
        raise AccessDenied(
            f"the token of {identity.name} is for {', '.join(sorted(identity.scope or ()))}, and not for {scope}"
        )
    if not is_administrator(engine, identity, scope):
        *others, last = roles_for(scope)
        roles = f"{', '.join(others)} or {last}" if others else last
        raise AccessDenied(f"{identity.name} is no {roles} of {engine.queue_manager.computer_name}")


def refuse_in_hardened_mode(engine: Engine) -> Authorization:
    """Return a check that refuses every call in hardened mode (MS-MQDMPR 3.1.1.1)."""

    def authorize(call: ServerCall) -> None:
        if engine.queue_manager.hardened_security:
            raise RpcFault(FaultStatus.ACCESS_DENIED, f"{call!r}: the queue manager is hardened", did_not_execute=True)

    return authorize


def refusal(error: StatusError) -> Results:
    """Return the results of a call of Lanner's own interface that fails.

    The text may quote a null from a name, and RPC's strings end there.
    """
    return {"answer": printable(str(error.args[0])), RETURNS: error.status}
