"""Where one message is, and what happened to it: looked up by its id in all queues, journals and dead letters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from lanner.http.console.page import local_name, queue_url, render
from lanner.http.console.visiting import Looking, PageRoute
from lanner.http.console.words import class_name, reason
from lanner.model.enums import MessageClass
from lanner.model.errors import LannerError
from lanner.transfer.tracing import parse_report
from lanner.wire.identifiers import MessageIdentifier

if TYPE_CHECKING:
    from lanner.client import ReceivedMessage
    from lanner.client._async.queue import Queue

router = APIRouter(route_class=PageRoute, include_in_schema=False)
Document = dict[str, Any]

# How many messages of each queue are examined.
_SCANNED = 10_000
_REPORTS = 1000


@router.get("/trace")
async def trace(request: Request, visitor: Looking, message: str = "", reports: str = "") -> Response:
    """Show every trace of a message: the message itself, copies, acknowledgments, and reports of its way."""
    manager, message = visitor.manager, message.strip()
    steps: list[Document] = []
    searched = 0
    refused: list[str] = []
    if message:
        sample = await visitor.sampler.latest()
        places: list[tuple[str, str, Queue]] = []
        for row in sample.rows:
            name = local_name(row["name"])
            if row["messages"]:
                places.append(("queue", name, manager.open(name)))
            if row["journal_messages"]:
                places.append(("journal", name, manager.open(name).journal))
        if sample.dead_letters:
            places += [("dead letters", one, manager.open(one)) for one in ("system$;DEADLETTER", "system$;DEADXACT")]
        if sample.outgoing:
            places += [("outgoing", one.format_name, one) for one in await manager.outgoing_queues()]
        searched = len(places)
        for found in await asyncio.gather(*(_look(*place, message) for place in places)):
            if isinstance(found, str):
                refused.append(found)
            else:
                steps += found
        if reports:
            steps += await _reports(manager.open(reports), message)
        steps.sort(key=lambda step: step["at"])
    return await render(
        request,
        visitor,
        "trace.html",
        message=message,
        reports=reports,
        steps=steps,
        searched=searched,
        refused=refused,
    )


async def _look(kind: str, name: str, queue: Queue, wanted: str) -> list[Document] | str:
    """Return what one queue has of a message; its name if the user may not look."""
    try:
        async with queue:
            own = await queue.find(f"id={wanted}", limit=10, scan=_SCANNED)
            answers = await queue.find(f"correlation_id={wanted}", limit=10, scan=_SCANNED)
    except LannerError:
        return name
    return [_step(kind, name, one) for one in own.messages] + [_answer(name, one) for one in answers.messages]


def _step(kind: str, name: str, message: ReceivedMessage) -> Document:
    words = {
        "queue": f"Waits in {name}",
        "journal": f"Was received from {name}: the journal has a copy",
        "dead letters": f"Became a dead letter: {reason(int(message.message_class)).lower()}",
        "outgoing": f"Waits for another computer in {name}",
    }
    tab = "journal" if kind == "journal" else ""
    state = {"dead letters": "bad", "journal": "ok"}.get(kind, "clock")
    href = queue_url(name, tab=tab, message=message.lookup_id)
    return {"at": message.arrived_time, "state": state, "title": words[kind], "text": message.label, "href": href}


def _answer(name: str, message: ReceivedMessage) -> Document:
    """Return a message that answers it: a reply or an acknowledgment."""
    number = int(message.message_class)
    is_bad = number >= MessageClass.NACK_BAD_DEST_QUEUE
    title = (
        "A reply came" if not number else f"Acknowledged: {reason(number).lower() if is_bad else class_name(number)}"
    )
    href = queue_url(name, message=message.lookup_id)
    state = "bad" if is_bad else "ok"
    return {
        "at": message.arrived_time,
        "state": state,
        "title": f"{title}, in {name}",
        "text": message.label,
        "href": href,
    }


async def _reports(queue: Queue, wanted: str) -> list[Document]:
    """Return what computers on the way reported about a message."""
    steps = []
    async with queue:
        found = await queue.find("class=report", limit=_REPORTS, scan=_SCANNED)
    for one in found.messages:
        report = parse_report(one.label, one.body_bytes)
        if report is None:
            continue
        about = str(MessageIdentifier(report.source_queue_manager, report.message_ordinal))
        if about.lower() == wanted.lower():
            where = "received" if report.next_hop is None else f"sent on to {report.next_hop}"
            title = f"Hop {report.hops}: {where}"
            step = {"at": report.time, "state": "ok", "title": title, "text": f"for {report.target_queue}", "href": ""}
            steps.append(step)
    return steps
