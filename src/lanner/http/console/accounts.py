"""Users of the queue manager, for administrators, and tokens, for everyone."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from lanner.http.console.page import done, explain, render
from lanner.http.console.visiting import Looking, PageRoute
from lanner.model.errors import LannerError
from lanner.security.roles import TEXTS, Role

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/users")
async def users(request: Request, visitor: Looking) -> Response:
    return await _page(request, visitor)


async def _page(
    request: Request,
    visitor: Looking,
    *,
    made: dict[str, Any] | None = None,
    error: LannerError | None = None,
    removing: str = "",
) -> Response:
    manager = visitor.manager
    return await render(
        request,
        visitor,
        "users.html",
        status=200 if error is None else 409,
        accounts=await manager.users() if visitor.sees_all else [],
        roles=TEXTS,
        tokens=await manager.tokens(),
        made=made,
        removing=removing,
        error=None if error is None else explain(error),
    )


@router.post("/users/add")
async def add_user(
    request: Request,
    visitor: Looking,
    name: Annotated[str, Form()],
    password: Annotated[str, Form()],
    role: Annotated[str, Form()] = Role.USER,
) -> Response:
    try:
        await visitor.manager.add_user(name.strip(), password, role=role)
    except LannerError as error:
        return await _page(request, visitor, error=error)
    return done(visitor, "/users", f"User {name.strip()} added")


@router.post("/users/set")
async def set_user(
    request: Request,
    visitor: Looking,
    name: Annotated[str, Form()],
    role: Annotated[str, Form()],
) -> Response:
    """Give a user a role."""
    try:
        await visitor.manager.set_user(name, role=role)
    except LannerError as error:
        return await _page(request, visitor, error=error)
    return done(visitor, "/users", f"{name} has the role {role}")


@router.post("/users/remove")
async def remove_user(
    request: Request, visitor: Looking, name: Annotated[str, Form()], confirmed: Annotated[str, Form()] = ""
) -> Response:
    if not confirmed:
        return await _page(request, visitor, removing=name)
    try:
        await visitor.manager.remove_user(name)
    except LannerError as error:
        return await _page(request, visitor, error=error)
    return done(visitor, "/users", f"User {name} removed")


@router.post("/tokens/create")
async def create_token(
    request: Request,
    visitor: Looking,
    description: Annotated[str, Form()] = "",
    user: Annotated[str, Form()] = "",
    days: Annotated[str, Form()] = "",
    scope: Annotated[list[str] | None, Form()] = None,
) -> Response:
    """Make a token and show its text, this once."""
    lifetime = float(days) * 86400 if days.isdecimal() else None
    try:
        made = await visitor.manager.create_token(
            scope or ["read"], lifetime=lifetime, description=description, user=user.strip() or None
        )
    except LannerError as error:
        return await _page(request, visitor, error=error)
    return await _page(request, visitor, made=made)


@router.post("/tokens/revoke")
async def revoke_token(visitor: Looking, identifier: Annotated[str, Form()]) -> Response:
    await visitor.manager.revoke_token(identifier)
    return done(visitor, "/users", "Token revoked. What was opened with it is closed")
