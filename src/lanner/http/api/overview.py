"""The user of a request, and totals."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from lanner.http.names import queue_name
from lanner.http.routes import SessionRoute
from lanner.http.sessions import Manager

router = APIRouter(route_class=SessionRoute, tags=["overview"])


@router.get("/overview")
async def overview(qm: Manager) -> dict[str, Any]:
    """Totals over the queues that the user may see.

    Administrators also see dead letters and outgoing queues.
    """
    return await qm.overview()


@router.get("/history")
async def history(
    qm: Manager,
    queue: Annotated[
        str | None, Query(description="The queue; without it, all queues together, for administrators.")
    ] = None,
    seconds: Annotated[int, Query(description="900, 3600 or 86400.")] = 900,
) -> dict[str, Any]:
    """The depth of a queue over time.

    `points` have time, messages, and messages per second in and out.
    """
    name = None if queue is None else qm.open(queue_name(queue)).path_name
    return await qm.history(name, seconds=seconds)


@router.get("/whoami")
async def whoami(qm: Manager) -> dict[str, Any]:
    """The user who makes the request, and the scope of its token."""
    return await qm.who_am_i()


@router.get("/status")
async def status(qm: Manager) -> dict[str, Any]:
    """The document of `lanner status`. For administrators."""
    return await qm.status()


@router.get("/settings")
async def settings(qm: Manager) -> dict[str, Any]:
    """The settings of the service, without passwords. For administrators."""
    return await qm.settings()


@router.get("/metrics", response_class=Response)
async def metrics(
    qm: Manager,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
    names: Annotated[list[str] | None, Query(alias="name[]", description="Only these metrics.")] = None,
) -> Response:
    """The metrics for Prometheus, as at `[metrics] bind`. For administrators."""
    told = await qm.metrics(accept, names or [])
    return Response(told["text"], media_type=told["content_type"])
