"""Outgoing queues, and the sessions with other computers. For administrators."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Response

from lanner.http.names import QueueName
from lanner.http.routes import SessionRoute
from lanner.http.sessions import Manager

router = APIRouter(route_class=SessionRoute, tags=["outgoing"])


@router.get("/outgoing")
async def outgoing(qm: Manager) -> list[dict[str, Any]]:
    """The outgoing queues with state, messages, next hops, problem, next retry and history."""
    return await qm.outgoing()


@router.post("/outgoing/{name}/pause", status_code=HTTPStatus.NO_CONTENT)
async def pause(qm: Manager, name: QueueName) -> Response:
    """Hold back the messages of an outgoing queue until it is resumed."""
    await qm.pause(name)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.post("/outgoing/{name}/resume", status_code=HTTPStatus.NO_CONTENT)
async def resume(qm: Manager, name: QueueName) -> Response:
    """Send the messages of a paused queue."""
    await qm.resume(name)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.post("/outgoing/{name}/resend", status_code=HTTPStatus.NO_CONTENT)
async def resend(qm: Manager, name: QueueName) -> Response:
    """Resend unacknowledged messages now."""
    await qm.resend(name)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/sessions")
async def sessions(qm: Manager) -> list[dict[str, Any]]:
    """The connections of clients and of other queue managers."""
    return await qm.sessions()


@router.delete("/sessions/{kind}/{number}", status_code=HTTPStatus.NO_CONTENT)
async def close_session(qm: Manager, kind: str, number: int) -> Response:
    """End a connection.

    Messages held by a client return to their queues; a queue manager connects again.
    """
    await qm.close_session(kind, number)
    return Response(status_code=HTTPStatus.NO_CONTENT)
