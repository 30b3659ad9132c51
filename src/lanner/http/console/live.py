"""Values that change while a page is open: one stream per tab, and the points of its plots.

The stream sends one event a second. An event contains the texts that have changed, each with the
key of the element that shows it. The browser inserts them as text, so they cannot contain markup.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from lanner.http.console.past import SPANS, past, span_of
from lanner.http.console.visiting import Looking, PageRoute
from lanner.http.console.words import duration, number, size

if TYPE_CHECKING:
    from lanner.http.console.samples import Sample, Sampler

router = APIRouter(route_class=PageRoute, include_in_schema=False)

# A stream ends after this many seconds and the browser opens the next one, so that a tab notices
# when its session has ended.
_LIFE: Final = 600.0
_SILENT: Final = 3.0
# The first samples of a session have no rate yet.
_ENOUGH: Final = 2


@router.get("/samples")
async def samples(visitor: Looking, queue: str | None = None, span: int = 900) -> Response:
    """Return the points of a plot: time, messages, in and out.

    The points before the session come from the queue manager's history. The session's own samples
    follow; they have a higher resolution.
    """
    span = span_of(span)
    await visitor.sampler.latest()
    before = await past(visitor.manager, queue, span)
    own = visitor.sampler.series(queue)[_ENOUGH:]
    if span > min(seconds for seconds, _ in SPANS):
        own = own[-1:]
    # Two samples within one second are one point.
    own = list({point[0]: point for point in own}.values())
    first = own[0][0] if own else float("inf")
    interval = before[1][0] - before[0][0] if len(before) > 1 else 0
    return JSONResponse(
        {"points": [*(point for point in before if point[0] < first), *own], "span": span, "interval": interval}
    )


@router.get("/live")
async def live(request: Request, visitor: Looking, queue: str | None = None) -> Response:
    """Return the stream of a tab."""
    if queue is not None:
        visitor.sampler.watch(queue)
    return StreamingResponse(_events(request, visitor.sampler, queue), media_type="text/event-stream")


async def _events(request: Request, sampler: Sampler, queue: str | None) -> AsyncIterator[str]:
    told: dict[str, str] = {}
    ends = asyncio.get_running_loop().time() + _LIFE
    # Sent at once, so that the browser sees that the stream works.
    yield ": begun\n\n"
    while asyncio.get_running_loop().time() < ends and not await request.is_disconnected():
        sample = await sampler.next(_SILENT)
        if sample is None:
            # The queue manager does not answer. The page notices because no event arrives.
            continue
        values = _values(sample, sampler, queue)
        rate = sampler.rate(queue)
        changed = {key: value for key, value in values.items() if told.get(key) != value}
        told |= changed
        point = (round(sample.at), sample.total(queue)[0], rate.into, rate.out)
        document: dict[str, Any] = {"at": sample.at, "values": changed, "point": point, "count": point[1]}
        yield f"data: {json.dumps(document)}\n\n"


def _values(sample: Sample, sampler: Sampler, queue: str | None) -> dict[str, str]:
    """Return the texts of a page by their keys."""
    values: dict[str, str] = {}
    rate = sampler.rate(queue)
    if queue is not None:
        row = next((row for row in sample.rows if row["name"].lower() == queue.lower()), None)
        if row is not None:
            values |= {"n": number(row["messages"]), "n2": number(row["messages"]), "b": size(row["bytes"])}
            values |= {"i": number(rate.into), "o": number(rate.out), "j": number(row["journal_messages"])}
        return values
    values |= {
        "messages": number(sample.messages),
        "in": number(rate.into),
        "out": number(rate.out),
        "waiting": number(sum(one["messages"] for one in sample.outgoing)),
        "dead": number(sample.dead_letters),
    }
    for row in sample.rows:
        name = row["name"]
        own = sampler.rate(name)
        values |= {f"n:{name}": number(row["messages"]), f"i:{name}": number(own.into), f"o:{name}": number(own.out)}
    for one in sample.outgoing:
        values[f"x:{one['name']}"] = number(one["messages"])
        if one["retry_in"] is not None:
            values[f"r:{one['name']}"] = f"in {duration(one['retry_in'])}"
    return values
