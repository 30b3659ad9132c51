"""Who asks, the sums of what there is, and whether the process and the queue manager answer."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from lanner.http.sessions import Manager

router = APIRouter(tags=["overview"])


@router.get("/overview")
async def overview(qm: Manager) -> dict[str, Any]:
    """Sums over the queues that the user may see; for an administrator, also dead letters and outgoing queues."""
    return await qm.overview()


@router.get("/whoami")
async def whoami(qm: Manager) -> dict[str, Any]:
    """The user who asks, and the scope of its token."""
    return await qm.who_am_i()
