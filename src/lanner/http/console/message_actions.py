"""Actions on messages and queues: send, resend, move, copy, delete, purge, delete the queue.

An action that destroys something, or moves many messages, first shows a page that explains its
effects. One message needs a plain confirmation. For more than `TYPED` messages, a purge, or the
deletion of a queue, the user must type the queue's name. The server checks the name again, and asks
again if the count has changed by more than a tenth.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Form, Request
from starlette.responses import Response, StreamingResponse

from lanner.client import Message
from lanner.client.documents import message_json
from lanner.host.finding import MAX_FOUND
from lanner.host.waking import turn
from lanner.http.console.browsing import SCANNED, Filter, open_outgoing, open_queue, show_message
from lanner.http.console.message_bodies import text_of
from lanner.http.console.page import chosen as counted
from lanner.http.console.page import done, explain, local_name, lookup_ids, queue_url, render, short_name
from lanner.http.console.samples import every_queue, oldest_arrivals
from lanner.http.console.visiting import Looking, PageRoute
from lanner.model.enums import Acknowledgements
from lanner.model.errors import InvalidParameter, LannerError, MessageNotFound
from lanner.wire.body_types import VT_BSTR

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lanner.client._async.queue import Queue
    from lanner.client._async.queue_manager import QueueManager
    from lanner.client.found import Found
    from lanner.client.message import ReceivedMessage
    from lanner.http.console.page import Visitor

router = APIRouter(route_class=PageRoute, include_in_schema=False)

# For more messages than this, the name of the queue must be typed.
TYPED: Final = 100
# The maximum number of messages that one form moves, copies or deletes.
MOST: Final = 10_000
# Messages of an exported file that are read at a time.
_LINES: Final = 200
# Prefix of an action on all messages that the filter finds, instead of the selected ones.
EVERYTHING: Final = "all-"
# What a message may ask for, and the words for it.
_ACKNOWLEDGMENTS: Final = {
    "none": "Nothing",
    "full_reach_queue": "Arrived, or could not arrive",
    "full_receive": "Received, or could not be",
    "nack_reach_queue": "Only if it could not arrive",
    "nack_receive": "Only if it was not received",
    "pos_arrival": "Only if it arrived",
    "pos_receive": "Only if it was received",
}
Text = Annotated[str, Form()]
Texts = Annotated[list[str] | None, Form()]


# Sending
# --------------------------------------------------------------------------------------------------


@router.get("/queue/send")
async def send_form(request: Request, visitor: Looking, name: str) -> Response:
    return await _send_page(request, visitor, name, {}, None)


@router.get("/queue/resend")
async def resend_form(request: Request, visitor: Looking, name: str, message: int, part: str = "") -> Response:
    """Return the form filled with the message, for changes."""
    async with await _queue(visitor.manager, name, part) as queue:
        shown = await show_message(queue, message, None, whole=True, user=visitor.name)
    if shown is None:
        raise MessageNotFound(f"message {message} is no longer in {name}: it was received or removed")
    original = shown.message
    body, encoding = _written(original)
    form = {
        "label": original.label,
        "body": body,
        "encoding": encoding,
        "priority": original.priority,
        "recoverable": original.recoverable,
        "time_to_reach_queue": _seconds(original.time_to_reach_queue),
        "time_to_be_received": _seconds(original.time_to_be_received),
        "acknowledge": next(
            (name for name in _ACKNOWLEDGMENTS if Acknowledgements[name.upper()] == original.acknowledge), ""
        ),
        "administration_queue": original.administration_queue or "",
        "use_dead_letter_queue": original.use_dead_letter_queue,
        "use_journal_queue": original.use_journal_queue,
        "response_queue": original.response_queue or "",
        "correlation_id": original.correlation_id or "",
        "app_specific": original.app_specific,
        "message": message,
        "part": part,
        "target": original.destination_queue or name,
    }
    return await _send_page(request, visitor, name, form, None)


def _written(message: ReceivedMessage) -> tuple[str, str]:
    """Return the body of a message as the form shows it, and how it is written there."""
    text = text_of(message.body_bytes, message.body_type)
    if text is None:
        return message.body_bytes.hex(" "), "hex"
    return text[0], "text" if message.body_type == VT_BSTR else "utf-8"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


async def _send_page(
    request: Request, visitor: Visitor, name: str, form: dict[str, Any], error: LannerError | None
) -> Response:
    empty = {
        "label": "",
        "body": "",
        "encoding": "text",
        "priority": 3,
        "recoverable": True,
        "time_to_reach_queue": _seconds(Message().time_to_reach_queue),
        "time_to_be_received": "",
        "acknowledge": "none",
        "administration_queue": "",
        "use_dead_letter_queue": True,
        "use_journal_queue": False,
        "response_queue": "",
        "correlation_id": "",
        "app_specific": 0,
        "message": None,
        "part": "",
        "target": name,
        "keep": False,
    }
    told = None if error is None else explain(error)
    status = 200 if error is None else 409
    return await render(
        request,
        visitor,
        "send.html",
        status=status,
        name=name,
        form={**empty, **form},
        error=told,
        acknowledgments=_ACKNOWLEDGMENTS,
    )


@router.post("/queue/send")
async def send(
    request: Request,
    visitor: Looking,
    name: Text,
    label: Text = "",
    body: Text = "",
    encoding: Text = "text",
    priority: Text = "3",
    recoverable: Text = "",
    time_to_reach_queue: Text = "",
    time_to_be_received: Text = "",
    acknowledge: Text = "none",
    administration_queue: Text = "",
    use_dead_letter_queue: Text = "",
    use_journal_queue: Text = "",
    response_queue: Text = "",
    correlation_id: Text = "",
    app_specific: Text = "0",
    message: Text = "",
    part: Text = "",
    target: Text = "",
    keep: Text = "",
) -> Response:
    """Send a message, or an edited one in place of the original."""
    form = {
        "label": label,
        "body": body,
        "encoding": encoding,
        "priority": priority,
        "recoverable": bool(recoverable),
        "time_to_reach_queue": time_to_reach_queue,
        "time_to_be_received": time_to_be_received,
        "acknowledge": acknowledge,
        "administration_queue": administration_queue,
        "use_dead_letter_queue": bool(use_dead_letter_queue),
        "use_journal_queue": bool(use_journal_queue),
        "response_queue": response_queue,
        "correlation_id": correlation_id,
        "app_specific": app_specific,
        "message": int(message) if message.isdecimal() else None,
        "part": part,
        "target": target or name,
        "keep": bool(keep),
    }
    try:
        octets = bytes.fromhex(body) if encoding == "hex" else body.replace("\r\n", "\n").encode()
        changes: dict[str, Any] = {
            "label": label,
            "body": body.replace("\r\n", "\n") if encoding == "text" else octets,
            "priority": int(priority),
            "recoverable": bool(recoverable),
            "time_to_reach_queue": float(time_to_reach_queue) if time_to_reach_queue else None,
            "time_to_be_received": float(time_to_be_received) if time_to_be_received else None,
            **({"acknowledge": acknowledge} if acknowledge else {}),
            "administration_queue": administration_queue or None,
            "use_dead_letter_queue": bool(use_dead_letter_queue),
            "use_journal_queue": bool(use_journal_queue),
            "response_queue": response_queue or None,
            "correlation_id": correlation_id or None,
            "app_specific": int(app_specific or 0),
        }
    except ValueError as error:
        return await _send_page(request, visitor, name, form, LannerError(f"a field cannot be read: {error}"))
    try:
        if message.isdecimal():
            async with await _queue(visitor.manager, name, part) as queue:
                original = await queue.peek_by_lookup_id(int(message))
                before, was = _written(original)
                if (body.replace("\r\n", "\n"), encoding) == (before.replace("\r\n", "\n"), was):
                    # It stays as it is, with a type that the form cannot express.
                    del changes["body"]
                else:
                    changes["body_type"] = VT_BSTR if encoding == "text" else original.body_type if was == "hex" else 0
                await queue.resend(int(message), target or name, keep=bool(keep), **changes)
            words = "Message resent, the original stays" if keep else "Message resent in place of the original"
        else:
            await _send(visitor.manager, name, Message(**changes))
            words = "Message sent"
    except LannerError as error:
        return await _send_page(request, visitor, name, form, error)
    return done(visitor, queue_url(name), words, name=target or name, href=queue_url(target or name))


async def _send(manager: QueueManager, name: str, message: Message) -> None:
    """Send one message, in a transaction if the queue requires one."""
    async with manager.open(name) as queue:
        if await queue.is_transactional():
            async with manager.transaction() as unit:
                await queue.send(message, transaction=unit)
        else:
            await queue.send(message)


# Moving and copying
# -------------------------------------------------------------------------------------------------


@router.post("/queue/choose")
async def choose(
    request: Request,
    visitor: Looking,
    name: Text,
    action: Text,
    part: Text = "",
    message: Texts = None,
    find: Text = "",
    place: Text = "label",
    age: Text = "",
) -> Response:
    """Show the effects of an action on the selected messages, or on those that a filter finds."""
    async with await _queue(visitor.manager, name, part) as queue:
        wanted = Filter(find, place, age)
        found = await _found(queue, wanted) if action.startswith(EVERYTHING) else lookup_ids(message or [])
        told = await _told(queue, name, part)
    action = action.removeprefix(EVERYTHING)
    if not found:
        raise MessageNotFound("no message is selected, or the filter finds none: nothing was done")
    values: dict[str, Any] = {
        "name": name,
        "part": part,
        "messages": found,
        "filter": wanted,
        "most": MOST,
        "error": None,
    }
    if action in ("move", "copy"):
        known = await _known_targets(visitor)
        return await render(request, visitor, "move.html", action=action, target="", known=known, **values)
    typed = short_name(name) if len(found) > TYPED else ""
    return await render(request, visitor, "delete_messages.html", typed=typed, **told, **values)


async def _told(queue: Queue, name: str, part: str) -> dict[str, bool]:
    """Return the effects of removing messages, for the page that asks for confirmation.

    `tells`: senders get negative acknowledgments. `keeps`: messages can become dead letters.

    A message that was in a queue of this computer becomes a dead letter only if it was sent in a
    transaction; one for another computer does in any case.
    """
    tells = part != "journal" and not name.lower().startswith("system$")
    # None for an outgoing queue, which is of neither kind.
    return {"tells": tells, "keeps": tells and await queue.is_transactional() is not False}


async def _found(queue: Queue, wanted: Filter) -> list[int]:
    """Return the lookup ids of all messages that a filter finds, up to `MOST`."""
    found: list[int] = []
    after = None
    while len(found) < MOST:
        some = await queue.find(
            *wanted.conditions, after=after, limit=min(MAX_FOUND, MOST - len(found)), scan=SCANNED, ids_only=True
        )
        found += some.lookup_ids
        after = some.after
        if after is None:
            break
    return found


@router.post("/queue/move")
async def move(
    request: Request,
    visitor: Looking,
    name: Text,
    action: Text,
    target: Text,
    message: Annotated[list[str], Form()],
    part: Text = "",
) -> Response:
    """Move or copy messages to any queue."""
    chosen = lookup_ids(message)
    target = target.strip()
    known = await _known_targets(visitor)
    is_subqueue = "\\" not in target and "=" not in target
    async with await _queue(visitor.manager, name, part) as queue:
        try:
            if is_subqueue:
                _refuse_ambiguous(target, known)
                to = visitor.manager.open(f"{queue.path_name.partition(';')[0]};{target.removeprefix(';')}")
            else:
                to = visitor.manager.open(target)
            if action == "copy":
                await queue.copy_many(chosen, to)
            else:
                await queue.move_many(chosen, to)
        except LannerError as error:
            return await render(
                request,
                visitor,
                "move.html",
                status=409,
                action=action,
                name=name,
                part=part,
                messages=chosen,
                target=target,
                known=known,
                filter=Filter(),
                most=MOST,
                error=explain(error),
            )
    if is_subqueue:
        target = f"{name.partition(';')[0]};{target.removeprefix(';')}"
    word = "copied" if action == "copy" else "moved"
    back = queue_url(name, tab=part)
    return done(visitor, back, f"{counted(len(chosen))} {word}", name=target, href=queue_url(target))


async def _known_targets(visitor: Visitor) -> list[str]:
    """Return the names of the queues here."""
    rows = await every_queue(visitor.manager, await visitor.sampler.latest())
    return sorted(local_name(row["name"]) for row in rows)


def _refuse_ambiguous(target: str, known: list[str]) -> None:
    """Raise InvalidParameter for a name that a user may mean as that of a queue."""
    queue = next((one for one in known if short_name(one).casefold() == target.casefold()), None)
    if queue is not None:
        whole = queue if "\\" in queue else f".\\{queue}"
        raise InvalidParameter(f"{target} is a queue here: write {whole} for it, or ;{target} for a subqueue")


# Saving
# --------------------------------------------------------------------------------------------------


@router.get("/queue/export")
async def export(
    visitor: Looking, name: str, part: str = "", find: str = "", place: str = "label", age: str = ""
) -> Response:
    """Return messages as a file: one line of JSON per message, as in the HTTP API.

    The messages stay in the queue.
    """
    queue = await _queue(visitor.manager, name, part)
    wanted = Filter(find, place, age)
    first = await queue.find(*wanted.conditions, limit=_LINES, scan=SCANNED)
    file = "".join(sign if sign.isalnum() or sign in ".-" else "-" for sign in short_name(name)) or "queue"
    headers = {"Content-Disposition": f'attachment; filename="{file.encode("ascii", "replace").decode()}.jsonl"'}
    lines = _lines(queue, wanted, first, visitor.name.encode())
    return StreamingResponse(lines, headers=headers, media_type="application/x-ndjson")


async def _lines(queue: Queue, wanted: Filter, found: Found, user: bytes) -> AsyncIterator[str]:
    async with queue:
        while True:
            # A user may save many queues at a time.
            await turn(user)
            for message in found.messages:
                yield json.dumps(message_json(message, queue.path_name)) + "\n"
            if found.after is None:
                return
            found = await queue.find(*wanted.conditions, after=found.after, limit=_LINES, scan=SCANNED)


# Removing
# --------------------------------------------------------------------------------------------------


@router.post("/queue/delete-messages")
async def delete_messages(
    request: Request,
    visitor: Looking,
    name: Text,
    message: Annotated[list[str], Form()],
    part: Text = "",
    typed: Text = "",
) -> Response:
    chosen = lookup_ids(message)
    async with await _queue(visitor.manager, name, part) as queue:
        told = await _told(queue, name, part)
    values = {"name": name, "part": part, "messages": chosen, "filter": Filter(), "most": MOST, **told}
    needed = short_name(name) if len(chosen) > TYPED else ""
    if needed and typed != needed:
        error = ("The name does not match: nothing was deleted.", "")
        return await render(request, visitor, "delete_messages.html", status=409, typed=needed, error=error, **values)
    async with await _queue(visitor.manager, name, part) as queue:
        try:
            await queue.delete(*chosen)
        except LannerError as error:
            return await render(
                request, visitor, "delete_messages.html", status=409, typed=needed, error=explain(error), **values
            )
    return done(visitor, queue_url(name, tab=part), f"{counted(len(chosen))} deleted")


@router.get("/queue/purge")
async def purge_form(request: Request, visitor: Looking, name: str, part: str = "") -> Response:
    return await _purge_page(request, visitor, name, part, None)


async def _purge_page(
    request: Request, visitor: Visitor, name: str, part: str, error: tuple[str, str] | None
) -> Response:
    async with await _queue(visitor.manager, name, part) as queue:
        attributes = await queue.attributes()
        told = await _told(queue, name, part)
        path = "" if part else attributes.pathname
        known = await oldest_arrivals(visitor.manager, [path]) if path and attributes.message_count else {}
    journal = attributes.journal_queue
    return await render(
        request,
        visitor,
        "purge.html",
        status=200 if error is None else 409,
        name=name,
        part=part,
        **told,
        count=attributes.message_count,
        octets=attributes.total_bytes,
        oldest=known.get(path),
        journal=0 if journal is None else journal.message_count,
        subqueues=len(attributes.subqueues),
        typed=short_name(name),
        error=error,
    )


@router.post("/queue/purge")
async def purge(
    request: Request, visitor: Looking, name: Text, count: Annotated[int, Form()], typed: Text = "", part: Text = ""
) -> Response:
    if typed != short_name(name):
        return await _purge_page(request, visitor, name, part, ("The name does not match: nothing was removed.", ""))
    async with await _queue(visitor.manager, name, part) as queue:
        now = await queue.count()
        if _has_changed(count, now):
            return await _purge_page(request, visitor, name, part, (f"Nothing was removed: {_changed(count, now)}", ""))
        removed = await queue.purge()
    return done(visitor, queue_url(name, tab=part), f"{counted(removed)} removed")


def _has_changed(count: int, now: int) -> bool:
    """Return whether the number of messages has changed by more than a tenth since it was shown."""
    return abs(now - count) > max(1, count // 10)


def _changed(count: int, now: int) -> str:
    return f"there were {count:,} messages when you looked, and there are {now:,} now."


@router.get("/queue/delete")
async def delete_form(request: Request, visitor: Looking, name: str) -> Response:
    return await _delete_page(request, visitor, name, None)


async def _delete_page(request: Request, visitor: Visitor, name: str, error: tuple[str, str] | None) -> Response:
    async with open_queue(visitor.manager, name) as queue:
        attributes = await queue.attributes()
    journal = attributes.journal_queue
    return await render(
        request,
        visitor,
        "queue_delete.html",
        status=200 if error is None else 409,
        name=name,
        transactional=attributes.transactional,
        count=attributes.message_count,
        octets=attributes.total_bytes,
        journal=0 if journal is None else journal.message_count,
        subqueues=len(attributes.subqueues),
        typed=short_name(name),
        error=error,
    )


@router.post("/queue/delete")
async def delete_queue(
    request: Request, visitor: Looking, name: Text, count: Annotated[int, Form()], typed: Text = ""
) -> Response:
    if typed != short_name(name):
        return await _delete_page(request, visitor, name, ("The name does not match: nothing was deleted.", ""))
    async with open_queue(visitor.manager, name) as queue:
        now = await queue.count()
    if _has_changed(count, now):
        return await _delete_page(request, visitor, name, (f"Nothing was deleted: {_changed(count, now)}", ""))
    await visitor.manager.delete_queue(name)
    return done(visitor, "/queues", f"Queue {short_name(name)} deleted")


async def _queue(manager: QueueManager, name: str, part: str) -> Queue:
    """Return the queue of a form: the queue itself, its journal, or an outgoing queue."""
    outgoing = await open_outgoing(manager, name) if "=" in name else None
    queue = open_queue(manager, name) if outgoing is None else outgoing
    return queue.journal if part == "journal" else queue
