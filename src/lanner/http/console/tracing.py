"""The trace of one message: searched by its id in all queues, journals and dead letters."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from lanner.http.console.page import local_name, queue_url, render
from lanner.http.console.samples import every_queue
from lanner.http.console.visiting import Looking, PageRoute
from lanner.http.console.words import class_name, moment, reason
from lanner.model.enums import MessageClass
from lanner.model.errors import LannerError, UnsupportedOperation
from lanner.transfer.tracing import parse_report
from lanner.wire.identifiers import MessageIdentifier

if TYPE_CHECKING:
    from lanner.client import ReceivedMessage
    from lanner.client._async.queue import Queue
    from lanner.client._async.queue_manager import QueueManager

router = APIRouter(route_class=PageRoute, include_in_schema=False)
Document = dict[str, Any]

# The maximum number of messages examined per queue.
_SCANNED = 10_000
_REPORTS = 1000
# The maximum number of requests to the log of events; each examines at most 100,000 events.
_PAGES = 30


@router.get("/trace")
async def trace(request: Request, visitor: Looking, message: str = "", reports: str = "") -> Response:
    """Show every trace of a message: itself, copies, acknowledgments, and route reports."""
    manager, message = visitor.manager, message.strip()
    steps: list[Document] = []
    searched = 0
    refused: list[str] = []
    has_log = True
    if message:
        sample = await visitor.sampler.latest()
        places: list[tuple[str, str, Queue]] = []
        for row in await every_queue(manager, sample):
            name = local_name(row["name"])
            if row["messages"]:
                places.append(("queue", name, manager.open(name)))
            if row["journal_messages"]:
                places.append(("journal", name, manager.open(name).journal))
            filled = [f"{name};{key}" for key, messages in row["subqueues"].items() if messages]
            places += [("queue", one, manager.open(one)) for one in filled]
        if visitor.sees_all:
            places.append(("sent", "system$;JOURNAL", manager.system_journal))
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
        events, has_log = await _events(manager, message) if visitor.sees_all else ([], True)
        # Events have times in milliseconds, and also cover messages that are gone.
        steps += events
        steps.sort(key=lambda step: (moment(step["at"]), step["state"] == "clock"))
    return await render(
        request,
        visitor,
        "trace.html",
        message=message,
        reports=reports,
        steps=steps,
        searched=searched,
        is_id=is_message_id(message),
        refused=refused,
        has_log=has_log,
    )


def is_message_id(text: str) -> bool:
    r"""Return whether a text is `guid\number`."""
    guid, _, number = text.partition("\\")
    try:
        uuid.UUID(guid)
    except ValueError:
        return False
    return number.isdecimal()


async def _look(kind: str, name: str, queue: Queue, wanted: str) -> list[Document] | str:
    """Return the traces of a message in one queue; the queue's name if the user may not look."""
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
        "sent": f"Was sent: {name} has the copy that its sender asked for",
        "journal": f"Was received from {name}: the journal has a copy",
        "dead letters": f"Became a dead letter: {reason(int(message.message_class)).lower()}",
        "outgoing": f"Waits for another computer in {name}",
    }
    tab = "journal" if kind == "journal" else ""
    state = {"dead letters": "bad", "journal": "ok", "sent": "ok"}.get(kind, "clock")
    href = queue_url(name, tab=tab, message=message.lookup_id)
    return {"at": message.arrived_time, "state": state, "title": words[kind], "text": message.label, "href": href}


def _answer(name: str, message: ReceivedMessage) -> Document:
    """Return the step for a message that answers the traced one: a reply or an acknowledgment."""
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


# The title and the look of each event; {queue} and {target} are names.
_EVENTS: Final[dict[str, tuple[str, str]]] = {
    "arrived": ("clock", "Arrived in {queue}"),
    "sent": ("clock", "Sent: it waits for another computer in {queue}"),
    "transferred_in": ("ok", "Came from another computer, to {queue}"),
    "transferred_out": ("ok", "Another computer has it, for {queue}"),
    "received": ("ok", "Received from {queue}"),
    "moved": ("clock", "Moved from {queue} to {target}"),
    "expired": ("bad", "Its time ran out in {queue}"),
    "purged": ("bad", "Removed when {queue} was purged or deleted"),
    "dead_lettered": ("bad", "A copy became a dead letter in {queue}"),
    "journaled": ("ok", "A copy is in the journal {queue}"),
    "receive_aborted": ("bad", "A program took it from {queue} and gave it back"),
    "send_aborted": ("bad", "Its transaction was aborted: it never became visible in {queue}"),
    "refused": ("bad", "Refused: it was not accepted into {queue}"),
    "concluded": ("ok", "Its destination has reported the final outcome"),
}


async def _events(manager: QueueManager, message: str) -> tuple[list[Document], bool]:
    """Return a message's events and those of its acknowledgments, and whether there is a log."""
    found: list[Document] = []
    after = 0
    try:
        # Each answer covers a limited number of events, so that a long log delays no other request.
        for _ in range(_PAGES):
            told = await manager.events(after, limit=_REPORTS, message=message)
            found += told["events"]
            after = told["after"]
            if after >= told["newest"] or len(found) >= _REPORTS:
                break
    except UnsupportedOperation:
        return [], False
    except LannerError:
        # The text is not a message id.
        return [], True
    return [_event(one, message, manager.name) for one in found], True


def _event(one: Document, message: str, own: str) -> Document:
    state, words = _EVENTS.get(one["event"], ("clock", one["event"]))
    title = words.format(queue=_place(one["queue"], own), target=_place(one["target"], own))
    if one["message"].lower() != message.lower():
        title = f"Acknowledgment ({one['class']}): {title[0].lower()}{title[1:]}"
    text = "" if one["reason"] is None else one["reason"].upper()
    if one["aborts"]:
        text = f"{text} given back {one['aborts']} times".strip()
    return {"at": one["time"] / 1000, "state": state, "title": title, "text": text, "href": ""}


def _place(name: str | None, own: str) -> str:
    """Return a queue's name as the other steps show it, without this computer's name."""
    name = name or "a queue"
    here = f"DIRECT=OS:{own}\\"
    return name[len(here) :] if name.upper().startswith(here.upper()) else local_name(name)


async def _reports(queue: Queue, wanted: str) -> list[Document]:
    """Return the reports of computers on the route of a message."""
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
