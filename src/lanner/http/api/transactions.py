"""Distributed transactions that are in doubt. For administrators."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from lanner.http.routes import SessionRoute
from lanner.http.sessions import Manager

router = APIRouter(route_class=SessionRoute, tags=["transactions"])


@router.get("/transactions")
async def transactions(qm: Manager) -> list[dict[str, Any]]:
    """The transactions that are in doubt here, and those that programs are about to end."""
    return await qm.transactions()


@router.post("/transactions/{transaction}/commit")
async def commit(qm: Manager, transaction: str) -> list[dict[str, Any]]:
    """Commit the local in-doubt branches of a transaction."""
    return await qm.commit_transaction(transaction)


@router.post("/transactions/{transaction}/abort")
async def abort(qm: Manager, transaction: str) -> list[dict[str, Any]]:
    """Abort the local in-doubt branches of a transaction."""
    return await qm.abort_transaction(transaction)
