"""The routes under /api/v1, with one module per noun."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

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
from lanner.http.openapi import PROBLEMS
from lanner.model.errors import InvalidParameter


def known_parameters(request: Request) -> None:
    """Refuse a query parameter that the route does not have.

    A misspelt filter would otherwise find everything.
    """
    known = sorted(one.alias for one in request.scope["route"].dependant.query_params)
    for name in request.query_params:
        if name not in known:
            listed = f"one of {', '.join(known)}" if known else "this address has none"
            raise InvalidParameter(f"unknown parameter {name!r}: {listed}")


router = APIRouter(dependencies=[Depends(known_parameters)], responses=PROBLEMS)
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
