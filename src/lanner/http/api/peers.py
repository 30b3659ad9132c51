"""Other queue managers, as this one knows them. For administrators."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel

from lanner.http.routes import SessionRoute
from lanner.http.sessions import Manager

router = APIRouter(route_class=SessionRoute, tags=["peers"])


class Trust(BaseModel):
    """The addresses to accept a queue manager from; if empty, the learnt ones."""

    addresses: list[str] = []


@router.get("/peers")
async def peers(qm: Manager) -> list[dict[str, Any]]:
    """The queue managers that are bound to addresses, and conflicting claims."""
    return await qm.peers()


@router.post("/peers/{guid}/trust")
async def trust(qm: Manager, guid: str, how: Trust) -> dict[str, Any]:
    """Accept a queue manager identifier from these addresses, not from learnt ones."""
    return await qm.trust_peer(guid, how.addresses)


@router.delete("/peers/{guid}", status_code=HTTPStatus.NO_CONTENT)
async def forget(qm: Manager, guid: str) -> Response:
    """Remove the binding of a queue manager identifier to addresses, and end its sessions."""
    await qm.forget_peer(guid)
    return Response(status_code=HTTPStatus.NO_CONTENT)
