"""Console pages: users (administrators only) and tokens (everyone)."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from lanner.http.console.confirming import Question, ask
from lanner.http.console.page import done, explain, render, shell
from lanner.http.console.visiting import Looking, PageRoute
from lanner.model.errors import AccessDenied, LannerError
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
    """Change a user's role."""
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
    """Create a token and show its text, which is shown only this once."""
    lifetime = float(days) * 86400 if days.isdecimal() else None
    try:
        made = await visitor.manager.create_token(
            scope or ["read"], lifetime=lifetime, description=description, user=user.strip() or None
        )
    except LannerError as error:
        return await _page(request, visitor, error=error)
    return await _page(request, visitor, made=made)


@router.post("/tokens/revoke")
async def revoke_token(
    request: Request,
    visitor: Looking,
    identifier: Annotated[str, Form()],
    description: Annotated[str, Form()] = "",
    confirmed: Annotated[str, Form()] = "",
) -> Response:
    if not confirmed:
        question = Question(
            "Revoke this token?",
            description or identifier,
            "Revoke",
            "/tokens/revoke",
            "/users",
            (
                (
                    "lock",
                    "warn",
                    "At once",
                    "programs that use it are logged off, and what they have not acknowledged returns to its queue.",
                ),
                ("x", "bad", "For good", "a revoked token cannot be restored; create a new one instead."),
            ),
            {"identifier": identifier, "description": description},
            shell("lanner", "token", "revoke", identifier),
        )
        return await ask(request, visitor, question)
    await visitor.manager.revoke_token(identifier)
    return done(visitor, "/users", "Token revoked. What was opened with it is closed")


# Certificates
# --------------------------------------------------------------------------------------------------


@router.get("/certificates")
async def certificates(request: Request, visitor: Looking) -> Response:
    return await _certificates(request, visitor)


async def _certificates(request: Request, visitor: Looking, error: LannerError | None = None) -> Response:
    manager = visitor.manager
    try:
        rows, accounts = await asyncio.gather(manager.certificates(), manager.users())
    except AccessDenied as refused:
        heading = "You may not see certificates"
        return await render(request, visitor, "denied.html", status=403, heading=heading, text=str(refused))
    return await render(
        request,
        visitor,
        "certificates.html",
        status=200 if error is None else 409,
        rows=rows,
        accounts=[one for one in accounts if one["sid"]],
        error=None if error is None else explain(error),
    )


@router.post("/certificates/add")
async def add_certificate(
    request: Request, visitor: Looking, sid: Annotated[str, Form()], certificate: Annotated[str, Form()]
) -> Response:
    try:
        await visitor.manager.register_certificate(certificate, sid)
    except LannerError as error:
        return await _certificates(request, visitor, error)
    return done(visitor, "/certificates", "The certificate was registered")


@router.post("/certificates/remove")
async def remove_certificate(
    request: Request,
    visitor: Looking,
    sha256: Annotated[str, Form()],
    subject: Annotated[str, Form()] = "",
    confirmed: Annotated[str, Form()] = "",
) -> Response:
    if not confirmed:
        question = Question(
            "Remove this certificate?",
            subject,
            "Remove",
            "/certificates/remove",
            "/certificates",
            (
                (
                    "lock",
                    "warn",
                    "Signatures",
                    (
                        "made with it are no longer attributed to the user: queues that take only signed messages "
                        "refuse them."
                    ),
                ),
                ("keep", "ok", "Stays", "what was received before, and every other certificate of the user."),
            ),
            {"sha256": sha256, "subject": subject},
            shell("lanner", "certificate", "remove", sha256[:16]),
        )
        return await ask(request, visitor, question)
    await visitor.manager.remove_certificate(sha256)
    return done(visitor, "/certificates", "The certificate was removed")
