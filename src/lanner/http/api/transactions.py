"""Distributed transactions that are in doubt. For administrators."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from lanner.http.sessions import Manager

router = APIRouter(tags=["transactions"])


@router.get("/transactions")
async def transactions(qm: Manager) -> list[dict[str, Any]]:
    """What is in doubt here, and what programs are about to end."""
    return await qm.transactions()


@router.post("/transactions/{transaction}/commit")
async def commit(qm: Manager, transaction: str) -> list[dict[str, Any]]:
    """Commit by hand what is in doubt here of a transaction."""
    return await qm.commit_transaction(transaction)


@router.post("/transactions/{transaction}/abort")
async def abort(qm: Manager, transaction: str) -> list[dict[str, Any]]:
    """Abort by hand what is in doubt here of a transaction."""
    return await qm.abort_transaction(transaction)
