"""Queues of messages for other computers, and the sessions with these. For administrators."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Response

from lanner.http.names import QueueName
from lanner.http.sessions import Manager

router = APIRouter(tags=["outgoing"])


@router.get("/outgoing")
async def outgoing(qm: Manager) -> list[dict[str, Any]]:
    """How the outgoing queues fare: state, messages, next hops, problem, next retry, history."""
    return await qm.outgoing()


@router.post("/outgoing/{name}/pause", status_code=HTTPStatus.NO_CONTENT)
async def pause(qm: Manager, name: QueueName) -> Response:
    """Keep the messages of an outgoing queue until it is resumed."""
    await qm.pause(name)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.post("/outgoing/{name}/resume", status_code=HTTPStatus.NO_CONTENT)
async def resume(qm: Manager, name: QueueName) -> Response:
    """Send the messages of a paused queue."""
    await qm.resume(name)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.post("/outgoing/{name}/resend", status_code=HTTPStatus.NO_CONTENT)
async def resend(qm: Manager, name: QueueName) -> Response:
    """Send messages that are not acknowledged now."""
    await qm.resend(name)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/sessions")
async def sessions(qm: Manager) -> list[dict[str, Any]]:
    """Who is connected: clients, and other queue managers."""
    return await qm.sessions()


@router.delete("/sessions/{kind}/{number}", status_code=HTTPStatus.NO_CONTENT)
async def close_session(qm: Manager, kind: str, number: int) -> Response:
    """End a connection.

    What a client holds returns to its queues; a queue manager connects again.
    """
    await qm.close_session(kind, number)
    return Response(status_code=HTTPStatus.NO_CONTENT)
