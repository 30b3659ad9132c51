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
    """The sessions with other queue managers."""
    found: list[dict[str, Any]] = (await qm.status())["sessions"]
    return found


@router.delete("/sessions/{address}", status_code=HTTPStatus.NO_CONTENT)
async def close_session(qm: Manager, address: str) -> Response:
    """End the sessions with the queue manager at an address. Messages under way are sent again in the next one."""
    await qm.close_session(address)
    return Response(status_code=HTTPStatus.NO_CONTENT)
