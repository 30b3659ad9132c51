"""Connections: list those of clients and other queue managers, and end one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from lanner.http.console.page import done, render
from lanner.http.console.visiting import Looking, PageRoute
from lanner.model.errors import AccessDenied

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/sessions")
async def sessions(request: Request, visitor: Looking) -> Response:
    try:
        rows = await visitor.manager.sessions()
    except AccessDenied as error:
        heading = "You may not see sessions"
        return await render(request, visitor, "denied.html", status=403, heading=heading, text=str(error))
    return await render(request, visitor, "sessions.html", rows=rows)


@router.post("/sessions/close")
async def close_session(
    request: Request,
    visitor: Looking,
    kind: Annotated[str, Form()],
    number: Annotated[int, Form()],
    confirmed: Annotated[str, Form()] = "",
) -> Response:
    if not confirmed:
        found = [row for row in await visitor.manager.sessions() if (row["kind"], row["number"]) == (kind, number)]
        if not found:
            return done(visitor, "/sessions", "That connection has ended already")
        return await render(request, visitor, "session_close.html", row=found[0])
    await visitor.manager.close_session(kind, number)
    return done(visitor, "/sessions", f"The connection {kind} {number} was ended")
