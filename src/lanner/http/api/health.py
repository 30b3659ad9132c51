"""Whether the process and the queue manager answer; no log-on is needed."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from lanner.http.openapi import OPEN_TO_ALL
from lanner.http.problems import problem
from lanner.http.routes import SessionRoute
from lanner.http.sessions import sessions_of

router = APIRouter(route_class=SessionRoute, tags=["health"])


@router.get("/health/live", openapi_extra=OPEN_TO_ALL)
async def live() -> dict[str, Any]:
    """Answer that this process is alive."""
    return {"status": "ok"}


@router.get("/health/ready", response_model=None, openapi_extra=OPEN_TO_ALL)
async def ready(request: Request) -> Response:
    """Answer whether the queue manager is ready, too."""
    if await sessions_of(request).is_ready():
        return JSONResponse({"status": "ok"})
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, "Service Unavailable", "the queue manager does not answer")
