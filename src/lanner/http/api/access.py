"""The access list of a queue."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from lanner.http.names import QueueName, queue_name
from lanner.http.routes import SessionRoute
from lanner.http.sessions import Manager
from lanner.model.errors import InvalidParameter

router = APIRouter(route_class=SessionRoute, tags=["access"])


class NewAccess(BaseModel):
    """One change of an access list, as `lanner queue access` makes it."""

    model_config = ConfigDict(extra="forbid")

    verb: Literal["grant", "deny", "revoke", "owner", "set"]
    who: str | None = None
    rights: list[str] = []
    # For the verb "set".
    sddl: str | None = None
    # Apply the change even if it keeps the user from changing the list again.
    force: bool = False


@router.get("/queues/{name}/access")
async def access(qm: Manager, name: QueueName) -> dict[str, Any]:
    """The owner and the access list."""
    return (await qm.open(queue_name(name)).access()).document()


@router.post("/queues/{name}/access")
async def change_access(qm: Manager, name: QueueName, change: NewAccess) -> dict[str, Any]:
    """Grant, deny or revoke rights, change the owner, or replace the list by SDDL."""
    queue = qm.open(queue_name(name))
    if change.verb == "set":
        if change.sddl is None:
            raise InvalidParameter("verb `set` needs `sddl`")
        await queue.set_access(change.sddl, force=change.force)
    elif change.who is None:
        raise InvalidParameter(f"verb `{change.verb}` needs `who`")
    elif change.verb == "owner":
        await queue.set_owner(change.who, force=change.force)
    else:
        verbs = {"grant": queue.grant, "deny": queue.deny, "revoke": queue.revoke}
        await verbs[change.verb](change.who, *change.rights, force=change.force)
    return (await queue.access()).document()
