"""The routes under /api/v1: one module for each noun."""

from __future__ import annotations

from fastapi import APIRouter

from lanner.http.api import overview, queues

router = APIRouter()
for part in (overview, queues):
    router.include_router(part.router)
