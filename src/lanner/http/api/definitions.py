"""Definitions of this queue manager, to be created again on another one.

They are queues, access lists, users without secrets, and settings.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict

from lanner.aio import QueueManager
from lanner.http.api.queues import NewQueue, QueueChanges, create_queue, described
from lanner.http.routes import SessionRoute
from lanner.http.sessions import Manager
from lanner.model.errors import AccessDenied, InvalidParameter, QueueExists, StatusError
from lanner.security.access_lists import AccessList
from lanner.security.roles import Role


class _Route(SessionRoute):
    """A route for administrators, who import as many definitions as there are."""

    max_values = None


router = APIRouter(route_class=_Route, tags=["definitions"])

_PAGE = 1000


class QueueDefinition(NewQueue):
    """A queue; `access` is SDDL, or rights by account."""


class UserDefinition(BaseModel):
    """An account. Passwords are not exported; a new account needs one."""

    model_config = ConfigDict(extra="ignore")

    name: str
    # None: keep the role; a new account becomes a user.
    role: Role | None = None
    password: str | None = None


class Definitions(BaseModel):
    """The document that `GET definitions` returns.

    Its settings are for information: import ignores them, and the service has them in its file.
    """

    model_config = ConfigDict(extra="ignore")

    queues: list[QueueDefinition] = []
    users: list[UserDefinition] = []


@router.get("/definitions")
async def export(qm: Manager) -> dict[str, Any]:
    """Everything defined here, without secrets and without messages.

    For administrators.
    """
    users = [{name: user[name] for name in ("name", "role", "guest", "groups")} for user in await qm.users()]
    return {
        "queue_manager": qm.name,
        "queues": [await _definition(qm, name) for name in await _names(qm)],
        "users": users,
        "settings": await qm.settings(),
    }


async def _names(qm: QueueManager) -> list[str]:
    names: list[str] = []
    for page in range(1, 1_000_000):
        told = await qm.queue_page(page=page, page_size=_PAGE, columns=["name"])
        names += [one["name"] for one in told["items"]]
        if len(told["items"]) < _PAGE:
            break
    return names


async def _definition(qm: QueueManager, name: str) -> dict[str, Any]:
    queue = qm.open(name)
    document, access = await described(qm, queue), await queue.access()
    kept = {key: document[key] for key in ("transactional", *QueueChanges.model_fields)}
    # Without the computer name, so that another computer can create it.
    return {"name": ".\\" + name.partition("\\")[2], **kept, "access": _portable(access)}


def _portable(access: AccessList) -> dict[str, list[str]] | str | None:
    """Return rights by account, which another computer understands, else SDDL.

    SDDL is for lists that rights by account cannot express.
    """
    entries = access.entries
    if entries is None or any(one.access != "allow" for one in entries):
        return access.sddl
    accounts: dict[str, list[str]] = {}
    for one in entries:
        accounts.setdefault(one.account, []).extend(one.rights)
    return accounts


async def _administrators_only(qm: Manager) -> None:
    """Refuse others before the document is checked, which may take seconds."""
    who = await qm.who_am_i()
    if not who["administrator"]:
        raise AccessDenied(f"{who['user']} is no administrator, and cannot import definitions")


@router.post("/definitions", dependencies=[Depends(_administrators_only)])
async def import_(qm: Manager, definitions: Definitions) -> dict[str, Any]:
    """Create what is missing, and change what exists.

    Nothing is deleted; refused definitions are reported.
    """
    # Raises AccessDenied for tokens that may not.
    known = {user["name"].casefold() for user in await qm.users()}
    done: dict[str, list[str]] = {"created": [], "changed": []}
    refused: list[dict[str, str]] = []
    for user in definitions.users:
        try:
            done[await _import_user(qm, user, is_known=user.name.casefold() in known)].append(user.name)
        except StatusError as error:
            refused.append({"name": user.name, "detail": str(error.args[0])})
    for queue in definitions.queues:
        try:
            done[await _import_queue(qm, queue)].append(queue.name)
        except StatusError as error:
            refused.append({"name": queue.name, "detail": str(error.args[0])})
    return {**done, "refused": refused}


async def _import_queue(qm: QueueManager, queue: QueueDefinition) -> str:
    try:
        await create_queue(qm, queue)
    except QueueExists:
        found = qm.open(queue.name)
        changes = queue.attributes()
        if changes:
            await found.set(**changes)
        if isinstance(queue.access, str):
            await found.set_access(queue.access)
        for account, rights in queue.access.items() if isinstance(queue.access, dict) else ():
            await found.grant(account, *rights)
        return "changed"
    return "created"


async def _import_user(qm: QueueManager, user: UserDefinition, *, is_known: bool) -> str:
    if is_known:
        await qm.set_user(user.name, password=user.password, role=user.role)
        return "changed"
    if user.password is None:
        raise InvalidParameter(f"user {user.name} is new here: add a `password` to its definition")
    await qm.add_user(user.name, user.password, role=user.role or Role.USER)
    return "created"
