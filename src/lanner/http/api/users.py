"""Accounts, for administrators, and tokens, for every user."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, SecretStr

from lanner.http.routes import SessionRoute
from lanner.http.sessions import Manager
from lanner.security.roles import Role

router = APIRouter(route_class=SessionRoute)


class NewUser(BaseModel):
    """An account to add."""

    model_config = ConfigDict(extra="forbid")

    name: str
    password: SecretStr
    role: Role = Role.USER


class UserChanges(BaseModel):
    """Changes to an account."""

    model_config = ConfigDict(extra="forbid")

    password: SecretStr | None = None
    role: Role | None = None


class NewToken(BaseModel):
    """A token to create. It expires after `lifetime` seconds, or never.

    An administrator may create a token for another user.
    """

    model_config = ConfigDict(extra="forbid")

    scope: list[str]
    lifetime: float | None = None
    description: str = ""
    user: str | None = None


@router.get("/users", tags=["users"])
async def users(qm: Manager) -> list[dict[str, Any]]:
    """The accounts of the queue manager."""
    return await qm.users()


@router.post("/users", tags=["users"], status_code=HTTPStatus.CREATED)
async def add_user(qm: Manager, user: NewUser) -> dict[str, Any]:
    """Add an account."""
    return await qm.add_user(user.name, user.password.get_secret_value(), role=user.role)


@router.patch("/users/{name}", tags=["users"])
async def change_user(qm: Manager, name: str, changes: UserChanges) -> dict[str, Any]:
    """Change the password of an account, or its role."""
    password = None if changes.password is None else changes.password.get_secret_value()
    return await qm.set_user(name, password=password, role=changes.role)


@router.delete("/users/{name}", tags=["users"], status_code=HTTPStatus.NO_CONTENT)
async def remove_user(qm: Manager, name: str) -> Response:
    """Remove an account."""
    await qm.remove_user(name)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/tokens", tags=["tokens"])
async def tokens(qm: Manager) -> list[dict[str, Any]]:
    """The tokens of the user; for an administrator, of all users."""
    return await qm.tokens()


@router.post("/tokens", tags=["tokens"], status_code=HTTPStatus.CREATED)
async def create_token(qm: Manager, token: NewToken) -> dict[str, Any]:
    """Create a token. Its text is only in this answer."""
    return await qm.create_token(token.scope, lifetime=token.lifetime, description=token.description, user=token.user)


@router.delete("/tokens/{identifier}", tags=["tokens"], status_code=HTTPStatus.NO_CONTENT)
async def revoke_token(qm: Manager, identifier: str) -> Response:
    """Revoke a token, and end the sessions it opened."""
    await qm.revoke_token(identifier)
    return Response(status_code=HTTPStatus.NO_CONTENT)
