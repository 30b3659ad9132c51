"""One queue: its figures and plots, messages, journal, subqueues, access list and properties."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from lanner.http.console.browsing import Filter, Listing, list_messages, open_outgoing, open_queue, show_message
from lanner.http.console.confirming import Question, ask
from lanner.http.console.page import done, explain, here_name, local_name, queue_url, render, shell
from lanner.http.console.past import SPANS, last_rate, past, span_of, trend
from lanner.http.console.samples import Rate, oldest_arrivals
from lanner.http.console.visiting import Looking, PageRoute
from lanner.http.console.words import percent
from lanner.model.enums import INFINITE, QueuePrivacyLevel
from lanner.model.errors import AccessDenied, LannerError, QueueNotFound, StatusError
from lanner.security.access_lists import AccessList

if TYPE_CHECKING:
    from lanner.client._async.queue import Queue
    from lanner.client._async.queue_manager import QueueManager
    from lanner.http.console.page import Visitor
    from lanner.model.directory_objects import Queue as QueueObject

router = APIRouter(route_class=PageRoute, include_in_schema=False)

# The number of samples from which on a session has its own rates.
_ENOUGH: Final = 3
TABS: Final = ("messages", "journal", "subqueues", "access", "properties")
# The rights that a user can grant: the words of `Queue.grant`, and their meanings.
RIGHTS: Final = (
    ("send", "send messages"),
    ("peek", "look at messages"),
    ("receive", "receive messages"),
    ("receive-journal", "read the journal"),
    ("get-properties", "see the properties"),
    ("set-properties", "change the properties"),
    ("delete-messages", "remove messages"),
    ("delete-queue", "delete the queue"),
    ("get-permissions", "see the access list"),
    ("change-permissions", "change the access list"),
    ("take-ownership", "become the owner"),
    ("full", "everything"),
)


@router.get("/queue")
async def queue_page(
    request: Request,
    visitor: Looking,
    name: str,
    tab: str = "messages",
    after: int | None = None,
    find: str = "",
    place: str = "label",
    age: str = "",
    message: int | None = None,
    form: str | None = None,
    whole: bool = False,
    span: int = 900,
) -> Response:
    wanted = Filter(find, place if place in ("label", "body", "condition") else "label", age)
    tab = tab if tab in TABS else "messages"
    return await _show(
        request, visitor, name, tab, wanted, after=after, message=message, form=form, whole=whole, span=span
    )


async def _show(
    request: Request,
    visitor: Visitor,
    name: str,
    tab: str,
    wanted: Filter,
    *,
    after: int | None = None,
    message: int | None = None,
    form: str | None = None,
    whole: bool = False,
    span: int = 900,
    refused_change: dict[str, Any] | None = None,
) -> Response:
    """Return the page of a queue.

    `refused_change` is a change of its access list that was refused, for another try.
    """
    manager = visitor.manager
    outgoing = await _outgoing(manager, name)
    queue = open_queue(manager, name) if outgoing is None else outgoing
    shown = queue.journal if tab == "journal" else queue
    values: dict[str, Any] = {
        "name": name,
        "tab": tab,
        "filter": wanted,
        "after": after,
        "is_outgoing": outgoing is not None,
        "chosen": None,
        "gone": False,
        "listing": None,
        "refused": None,
        "lookup_id": message,
    }
    async with queue, shown:
        values["access"] = await _access(queue)
        values["may"] = _rights(visitor, values["access"], is_outgoing=outgoing is not None)
        if message is not None and tab in ("messages", "journal"):
            try:
                values["chosen"] = await show_message(
                    shown, message, form, whole=whole, user=visitor.name, names=await visitor.names()
                )
                values["gone"] = values["chosen"] is None
            except AccessDenied as error:
                values["refused"] = explain(error)
            if request.headers.get("HX-Request") == "true":
                return await render(request, visitor, "message_pane.html", part="message_pane.html", **values)
        try:
            attributes = await queue.attributes()
        except AccessDenied as error:
            return await _not_allowed(request, visitor, name, error)
        except QueueNotFound as error:
            return await _missing(request, visitor, name, error)
        values |= _facts(visitor, attributes)
        values["format_name"] = queue.format_name
        before = await past(manager, attributes.pathname) if attributes.pathname else []
        if len(visitor.sampler.samples) < _ENOUGH:
            values["rate"] = last_rate(before)
        values |= {"trend": trend(before), "span": span_of(span), "spans": SPANS}
        values |= await _waiting(manager, queue, attributes)
        if tab in ("messages", "journal"):
            values |= await _messages(shown, wanted, after)
    change = refused_change or {"verb": "grant", "who": "", "rights": [], "error": None}
    status = 200 if refused_change is None else 409
    return await render(request, visitor, "queue.html", status=status, rights=RIGHTS, change=change, **values)


async def _outgoing(manager: QueueManager, name: str) -> Queue | None:
    """Return the outgoing queue of a format name.

    A local queue has a format name too, and is opened by it.
    """
    return await open_outgoing(manager, name) if "=" in name else None


async def _waiting(manager: QueueManager, queue: Queue, attributes: QueueObject) -> dict[str, Any]:
    """Return when the oldest message arrived.

    If the queue manager does not report it, the message that will be received next counts.
    """
    path = attributes.pathname
    known = await oldest_arrivals(manager, [path]) if path and attributes.message_count else {}
    waits: float | dt.datetime | None = known.get(path)
    is_oldest = waits is not None
    if waits is None and attributes.message_count:
        with contextlib.suppress(StatusError):
            waits = (await queue.peek_by_lookup_id(0, "first")).arrived_time
    return {"waits": waits, "is_oldest": is_oldest or not attributes.message_count}


async def _messages(queue: Queue, wanted: Filter, after: int | None) -> dict[str, Any]:
    empty = Listing([], None, 0)
    try:
        return {"listing": await list_messages(queue, wanted, after)}
    except StatusError as error:
        return {"listing": empty, "refused": explain(error)}


async def _access(queue: Queue) -> Any:  # noqa: ANN401 (an AccessList, or why there is none)
    try:
        return await queue.access()
    except StatusError as error:
        return explain(error)


def _rights(visitor: Visitor, access: object, *, is_outgoing: bool) -> Callable[[str], bool]:
    """Return whether the visitor may do something with the queue, by the word for the right.

    What the queue manager does not say is offered, and may be refused.
    """
    if is_outgoing:
        return lambda _word: visitor.operates
    if not isinstance(access, AccessList):
        return lambda _word: True
    return lambda word: access.may(word) is not False


def _facts(visitor: Visitor, attributes: QueueObject) -> dict[str, Any]:
    """Return the figures at the top of the page."""
    sampler = visitor.sampler
    sampler.touch()
    limited = attributes.quota != INFINITE
    journal = attributes.journal_queue
    path = attributes.pathname
    return {
        "attributes": attributes,
        "share": percent(attributes.total_bytes, attributes.quota * 1024) if limited else None,
        "rate": sampler.rate(path) if path else Rate(0.0, 0.0),
        "journal_messages": 0 if journal is None else journal.message_count,
        "journal_bytes": 0 if journal is None else journal.total_bytes,
        "subqueues": sorted(attributes.subqueues.items()),
        "infinite": INFINITE,
    }


async def _not_allowed(request: Request, visitor: Visitor, name: str, error: AccessDenied) -> Response:
    return await render(
        request,
        visitor,
        "denied.html",
        status=403,
        heading=f"You may not read {local_name(name)}",
        send_to=name,
        text=str(error),
    )


async def _missing(request: Request, visitor: Visitor, name: str, error: QueueNotFound) -> Response:
    text, status = explain(error)
    return await render(
        request,
        visitor,
        "problem.html",
        status=404,
        title=f"There is no queue {name}",
        text=text,
        status_text=status,
        back="/queues",
    )


# Access
# --------------------------------------------------------------------------------------------------


@router.post("/queue/access")
async def change_access(
    request: Request,
    visitor: Looking,
    name: Annotated[str, Form()],
    verb: Annotated[str, Form()],
    who: Annotated[str, Form()],
    rights: Annotated[list[str] | None, Form()] = None,
    account: Annotated[str, Form()] = "",
    confirmed: Annotated[str, Form()] = "",
) -> Response:
    if verb == "revoke" and not rights and not confirmed:
        return await ask(request, visitor, _revoke_question(name, who, account or who))
    words = rights or []
    try:
        async with open_queue(visitor.manager, name) as queue:
            if verb == "grant":
                await queue.grant(who, *words)
            elif verb == "deny":
                await queue.deny(who, *words)
            elif verb == "owner":
                await queue.set_owner(who)
            else:
                await queue.revoke(who, *words)
    except StatusError as error:
        refused = {"verb": verb, "who": account or who, "rights": words, "error": explain(error)}
        return await _show(request, visitor, name, "access", Filter(), refused_change=refused)
    return done(visitor, queue_url(name, tab="access"), f"The access list was changed for {account or who}")


def _revoke_question(name: str, who: str, account: str) -> Question:
    return Question(
        f"Revoke the entries of {account}?",
        f"On {local_name(name)}",
        "Revoke",
        "/queue/access",
        queue_url(name, tab="access"),
        (
            (
                "lock",
                "warn",
                "All",
                f"entries of {account} leave the access list, those that allow and those that deny.",
            ),
            (
                "users",
                "",
                "Others",
                "keep theirs. A user may still have a right by a group, by its role, or as the owner.",
            ),
        ),
        fields={"name": name, "verb": "revoke", "who": who, "account": account},
        command=shell("lanner", "queue", "access", "revoke", here_name(name), account),
    )


# Properties
# --------------------------------------------------------------------------------------------------


@router.post("/queue/properties")
async def change_properties(
    request: Request,
    visitor: Looking,
    name: Annotated[str, Form()],
    label: Annotated[str, Form()] = "",
    quota: Annotated[str, Form()] = "",
    journal_quota: Annotated[str, Form()] = "",
    journaling: Annotated[str, Form()] = "",
    authentication: Annotated[str, Form()] = "",
    privacy_level: Annotated[str, Form()] = "OPTIONAL",
    base_priority: Annotated[str, Form()] = "0",
) -> Response:
    async with open_queue(visitor.manager, name) as queue:
        before = await queue.attributes()
        wanted: dict[str, object] = {
            "label": label,
            "quota": int(quota) if quota.isdecimal() else INFINITE,
            "journal_quota": int(journal_quota) if journal_quota.isdecimal() else INFINITE,
            "journaling": bool(journaling),
            "authentication": bool(authentication),
            "privacy_level": QueuePrivacyLevel[privacy_level],
            "base_priority": int(base_priority or 0),
        }
        changes = {key: value for key, value in wanted.items() if getattr(before, key) != value}
        back = queue_url(name, tab="properties")
        if not changes:
            return done(visitor, back, "Nothing was changed")
        try:
            await queue.set(**changes)
        except LannerError as error:
            text, status = explain(error)
            return await render(
                request,
                visitor,
                "problem.html",
                status=409,
                title="The properties were not changed",
                text=text,
                status_text=status,
                back=back,
            )
    return done(visitor, back, "The properties were changed")
