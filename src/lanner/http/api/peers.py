"""Other queue managers, as this one knows them. For administrators."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel

from lanner.http.sessions import Manager

router = APIRouter(tags=["peers"])


class Trust(BaseModel):
    """Addresses to believe a queue manager from; none: those that were learnt."""

    addresses: list[str] = []


@router.get("/peers")
async def peers(qm: Manager) -> list[dict[str, Any]]:
    """The queue managers that are bound to addresses, and who else claims to be one of them."""
    return await qm.peers()


@router.post("/peers/{guid}/trust")
async def trust(qm: Manager, guid: str, how: Trust) -> dict[str, Any]:
    """Believe a queue manager identifier from these addresses."""
    return await qm.trust_peer(guid, how.addresses)


@router.delete("/peers/{guid}", status_code=HTTPStatus.NO_CONTENT)
async def forget(qm: Manager, guid: str) -> Response:
    """Bind a queue manager identifier to no address; its sessions end."""
    await qm.forget_peer(guid)
    return Response(status_code=HTTPStatus.NO_CONTENT)
