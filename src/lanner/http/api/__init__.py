"""The routes under /api/v1, with one module per noun."""

from __future__ import annotations

from fastapi import APIRouter

from lanner.http.api import (
    access,
    certificates,
    dead_letters,
    definitions,
    events,
    health,
    messages,
    outgoing,
    overview,
    peers,
    queues,
    session,
    transactions,
    users,
)

router = APIRouter()
for part in (
    overview,
    queues,
    session,
    messages,
    access,
    outgoing,
    dead_letters,
    peers,
    transactions,
    users,
    certificates,
    definitions,
    events,
    health,
):
    router.include_router(part.router)
