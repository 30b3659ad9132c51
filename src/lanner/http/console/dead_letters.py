"""Dead letters: the reason for each, and returning it to the queue it was for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from lanner.http.console.browsing import PAGE, Filter, list_messages, row_of, show_message
from lanner.http.console.page import count_dead_letters, done, explain, lookup_ids, render, url
from lanner.http.console.visiting import Looking, PageRoute
from lanner.http.console.words import class_name, plural
from lanner.model.errors import AccessDenied, LannerError, QueueNotFound, StatusError

if TYPE_CHECKING:
    from lanner.client import ReceivedMessage
    from lanner.client._async.queue import Queue
    from lanner.client._async.queue_manager import QueueManager

router = APIRouter(route_class=PageRoute, include_in_schema=False)

# The seconds to be received below which a returned message expires at once.
_LEAST_TIME: Final = 1
QUEUES: Final = {"ordinary": "system$;DEADLETTER", "transactional": "system$;DEADXACT"}
# The maximum number of dead letters among which reasons are counted, and that one step returns. If
# there are more, the pages say so.
_COUNTED: Final = 1000


@router.get("/deadletters")
async def dead_letters(
    request: Request,
    visitor: Looking,
    which: str = "ordinary",
    reason: str = "",
    after: int | None = None,
    message: int | None = None,
    form: str | None = None,
    whole: bool = False,
) -> Response:
    manager = visitor.manager
    which = which if which in QUEUES else "ordinary"
    try:
        counts = await count_dead_letters(manager)
        async with manager.open(QUEUES[which]) as queue:
            wanted = Filter(f"class={reason}", "condition") if reason else Filter()
            listing = await list_messages(queue, wanted, after)
            reasons = await _reasons(queue)
            chosen = (
                None if message is None else await show_message(queue, message, form, whole=whole, user=visitor.name)
            )
    except AccessDenied as error:
        return await render(
            request, visitor, "denied.html", status=403, heading="You may not see dead letters", text=str(error)
        )
    return await render(
        request,
        visitor,
        "deadletters.html",
        which=which,
        counts=dict(zip(QUEUES, counts, strict=True)),
        total=sum(counts),
        reason=reason,
        reasons=reasons,
        listing=listing,
        page_size=PAGE,
        counted=_COUNTED,
        chosen=chosen,
        lookup_id=message,
        name=QUEUES[which],
    )


async def _reasons(queue: Queue) -> list[tuple[str, int, int]]:
    """Return the reasons with their class and their count among the first dead letters."""
    found = await queue.find(limit=_COUNTED, scan=_COUNTED)
    counts = Counter(int(message.message_class) for message in found.messages)
    return [(class_name(number).lower(), number, count) for number, count in counts.most_common()]


@router.post("/deadletters/choose")
async def choose(
    request: Request,
    visitor: Looking,
    which: Annotated[str, Form()],
    what: Annotated[str, Form()] = "selected",
    message: Annotated[list[str] | None, Form()] = None,
    reason: Annotated[str, Form()] = "",
) -> Response:
    """Show the effects of a return before it is done.

    `what` is "selected", "all", or one lookup id.
    """
    manager = visitor.manager
    async with manager.open(QUEUES[which]) as queue:
        chosen = lookup_ids(message or [] if what == "selected" else [] if what == "all" else [what])
        if what == "all":
            wanted = [f"class={reason}"] if reason else []
            chosen = (await queue.find(*wanted, limit=_COUNTED, scan=_COUNTED, ids_only=True)).lookup_ids
        rows = []
        for lookup_id in chosen[:PAGE]:
            letter = await queue.peek_by_lookup_id(lookup_id)
            rows.append({"row": row_of(letter), "problem": await _problem(manager, letter)})
    return await render(
        request,
        visitor,
        "return.html",
        which=which,
        chosen=chosen,
        rows=rows,
        failing=sum(row["problem"] is not None for row in rows),
        outcome=None,
        most=_COUNTED,
    )


async def _problem(manager: QueueManager, letter: ReceivedMessage) -> str | None:
    """Return why a message would fail again, as far as this queue manager can tell."""
    if letter.time_to_be_received is not None and letter.time_to_be_received < _LEAST_TIME:
        return "it would expire again at once: give it a new time to be received"
    name = letter.destination_queue
    if name is None:
        return "it names no destination"
    try:
        async with manager.open(name) as queue:
            if not await queue.exists():
                return "its queue still does not exist"
    except LannerError as error:
        # A queue of another computer cannot be queried.
        return None if not isinstance(error, QueueNotFound) else "its queue still does not exist"
    return None


@router.post("/deadletters/return")
async def give_back(
    request: Request,
    visitor: Looking,
    which: Annotated[str, Form()],
    message: Annotated[list[str], Form()],
    target: Annotated[str, Form()] = "",
    time_to_be_received: Annotated[str, Form()] = "",
) -> Response:
    """Send a copy of each to its queue, or to another one.

    The dead letter is removed in the same step.
    """
    returned, refused = 0, []
    changes: dict[str, Any] = (
        {"time_to_be_received": int(time_to_be_received)} if time_to_be_received.isdecimal() else {}
    )
    async with visitor.manager.open(QUEUES[which]) as queue:
        for lookup_id in lookup_ids(message):
            try:
                await queue.resend(lookup_id, target.strip() or None, **changes)
                returned += 1
            except StatusError as error:
                refused.append({"lookup_id": lookup_id, "why": explain(error)})
    back = url("/deadletters", which=which)
    if not refused:
        return done(visitor, back, f"{plural(returned, 'message')} returned. None was refused")
    outcome: dict[str, Any] = {"returned": returned, "refused": refused}
    return await render(
        request, visitor, "return.html", status=409, which=which, chosen=[], rows=[], failing=0, outcome=outcome, most=0
    )
