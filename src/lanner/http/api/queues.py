"""Queues: listed, created, changed, deleted."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from lanner.http.sessions import Manager

router = APIRouter(tags=["queues"])


@router.get("/queues")
async def queues(
    qm: Manager,
    page: Annotated[int, Query(ge=1)] = 1,
    page_size: Annotated[int, Query(ge=1, le=1000)] = 100,
    name: Annotated[str, Query(description="A part of the name, or a pattern with * and ?.")] = "",
    sort: Annotated[str, Query(description="A column; with - before it, backwards.")] = "name",
    columns: Annotated[str, Query(description="Names of columns, with commas between them.")] = "",
) -> dict[str, Any]:
    """One page of the queues that the user may see."""
    wanted = [one.strip() for one in columns.split(",") if one.strip()]
    return await qm.queue_page(page=page, page_size=page_size, name=name, sort=sort, columns=wanted or None)
