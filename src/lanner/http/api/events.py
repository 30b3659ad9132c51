"""Events of messages: live, and the history of one message.

For administrators.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import StreamingResponse

from lanner.aio import QueueManager
from lanner.http.routes import SessionRoute
from lanner.http.sessions import Manager
from lanner.model.errors import StatusError

router = APIRouter(route_class=SessionRoute, tags=["events"])

# Seconds between two polls of the log, and polls without an event after which a comment keeps the
# connection alive.
_INTERVAL: Final = 1.0
_SILENT: Final = 15
_AT_ONCE: Final = 1000


@router.get("/events", response_class=StreamingResponse)
async def events(
    request: Request,
    qm: Manager,
    after: Annotated[int | None, Query(description="Begin behind this event; else with the next one.")] = None,
    last_event_id: Annotated[int | None, Header(description="Sent by a browser that reconnects.")] = None,
) -> StreamingResponse:
    """Server-Sent Events: each event of a message, with its number as `id`."""
    begin = after if last_event_id is None else last_event_id
    # A refusal must be the response itself, not an event in the stream.
    first = await qm.events(begin, limit=_AT_ONCE)
    return StreamingResponse(_follow(request, qm, first), media_type="text/event-stream")


@router.get("/events/trace")
async def trace(
    qm: Manager,
    message: str,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
    after: Annotated[int, Query(ge=0, description="`after` of the answer before.")] = 0,
) -> dict[str, Any]:
    """The events here of one message and its acknowledgments, by its id.

    One answer covers at most 100,000 events of the log. If its `after` is less than `newest`, pass
    it to continue.
    """
    return await qm.events(after, limit=limit, message=message)


async def _follow(request: Request, qm: QueueManager, told: dict[str, Any]) -> AsyncIterator[str]:
    yield ": what happens to messages\n\n"
    silent = 0
    while not await request.is_disconnected():
        for event in told["events"]:
            yield f"id: {event['number']}\nevent: {event['event']}\ndata: {json.dumps(event)}\n\n"
        silent = 0 if told["events"] else silent + 1
        if silent >= _SILENT:
            silent = 0
            yield ": nothing has happened\n\n"
        if len(told["events"]) < _AT_ONCE:
            await asyncio.sleep(_INTERVAL)
        try:
            told = await qm.events(told["after"], limit=_AT_ONCE)
        except StatusError as error:
            yield f"event: error\ndata: {json.dumps({'detail': str(error.args[0])})}\n\n"
            return
