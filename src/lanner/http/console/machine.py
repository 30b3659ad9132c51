"""The queue manager as a whole: settings, offline and online, definitions for another one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Form, Request
from pydantic import ValidationError
from starlette.responses import Response

from lanner.http.api.definitions import Definitions, export, import_
from lanner.http.console.confirming import Question, ask
from lanner.http.console.page import done, explain, render
from lanner.http.console.samples import every_queue
from lanner.http.console.visiting import Looking, PageRoute
from lanner.model.errors import AccessDenied, LannerError

if TYPE_CHECKING:
    from lanner.http.console.page import Visitor

router = APIRouter(route_class=PageRoute, include_in_schema=False)
Document = dict[str, Any]


@router.get("/settings")
async def settings(request: Request, visitor: Looking) -> Response:
    return await _page(request, visitor)


async def _page(
    request: Request,
    visitor: Visitor,
    *,
    error: tuple[str, str] | None = None,
    outcome: Document | None = None,
    given: str = "",
) -> Response:
    manager = visitor.manager
    try:
        told, about = await asyncio.gather(manager.settings(), manager.status())
    except AccessDenied as refused:
        heading = "You may not see the settings"
        return await render(request, visitor, "denied.html", status=403, heading=heading, text=str(refused))
    return await render(
        request,
        visitor,
        "settings.html",
        status=200 if error is None else 409,
        groups=_groups(told),
        about=about,
        error=error,
        outcome=outcome,
        given=given,
    )


def _groups(told: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the settings by their tables, in the order of the file."""
    own = [(name, _text(value)) for name, value in told.items() if not isinstance(value, Mapping)]
    tables = [(name, list(_flat(value))) for name, value in told.items() if isinstance(value, Mapping)]
    return [("", own), *((name, rows) for name, rows in tables if rows)]


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _text(value)


def _text(value: object) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value) or "none"


# Offline and online
# --------------------------------------------------------------------------------------------


@router.post("/machine/{action}")
async def act(request: Request, visitor: Looking, action: str, confirmed: Annotated[str, Form()] = "") -> Response:
    manager = visitor.manager
    if action == "online":
        await manager.bring_online()
        return done(visitor, "/", f"{manager.name} is online")
    if not confirmed:
        about = await manager.status()
        sessions, waiting = len(about["sessions"]), about["outgoing_messages"]
        question = Question(
            f"Take {manager.name} offline?",
            "It exchanges no messages with other computers until you bring it online, or it restarts.",
            "Go offline",
            "/machine/offline",
            "/",
            (
                (
                    "out",
                    "warn",
                    f"{sessions:,}",
                    "sessions with other computers end. What was not acknowledged is sent again later.",
                ),
                (
                    "clock",
                    "warn",
                    f"{waiting:,}",
                    "messages for other computers wait, and so does whatever is sent to them meanwhile.",
                ),
                (
                    "keep",
                    "ok",
                    "Goes on",
                    "everything here: programs on this computer, and those that connect to it, send and receive.",
                ),
            ),
            command="lanner machine offline",
        )
        return await ask(request, visitor, question)
    await manager.take_offline()
    return done(visitor, "/", f"{manager.name} is offline")


# Definitions
# --------------------------------------------------------------------------------------------------


@router.get("/settings/definitions")
async def definitions(visitor: Looking) -> Response:
    """Return the definitions file: queues, access lists, users without secrets, and settings."""
    text = json.dumps(await export(visitor.manager), indent=2)
    name = "".join(sign if sign.isalnum() else "-" for sign in visitor.manager.name)
    headers = {"Content-Disposition": f'attachment; filename="{name}-definitions.json"'}
    return Response(text, headers=headers, media_type="application/json")


@router.post("/settings/import")
async def bring_in(
    request: Request, visitor: Looking, text: Annotated[str, Form()] = "", confirmed: Annotated[str, Form()] = ""
) -> Response:
    """Show what a file would create and change; after confirmation, do it."""
    try:
        found = Definitions.model_validate_json(text)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        place = ".".join(map(str, wrong["loc"]))
        return await _page(request, visitor, error=(f"{place or 'the file'}: {wrong['msg']}", ""), given=text)
    if not confirmed:
        known = await every_queue(visitor.manager, await visitor.sampler.latest())
        here = {one["name"].partition("\\")[2].casefold() for one in known}
        users = {one["name"].casefold() for one in await visitor.manager.users()}
        new = [one.name for one in found.queues if one.name.partition("\\")[2].casefold() not in here]
        strangers = [one.name for one in found.users if one.name.casefold() not in users]
        return await ask(request, visitor, _import_question(found, new, strangers, text))
    try:
        outcome = await import_(visitor.manager, found)
    except LannerError as error:
        return await _page(request, visitor, error=explain(error), given=text)
    return await _page(request, visitor, outcome=outcome)


def _import_question(found: Definitions, new: list[str], strangers: list[str], text: str) -> Question:
    queues, users = len(found.queues), len(found.users)
    return Question(
        "Import these definitions?",
        "Nothing is deleted, and no message is touched.",
        "Import",
        "/settings/import",
        "/settings",
        (
            ("plus", "ok", f"{len(new):,}", f"queues are made{_named(new)}."),
            (
                "queues",
                "warn",
                f"{queues - len(new):,}",
                "queues that are here get the properties and rights of the file.",
            ),
            ("users", "warn", f"{users - len(strangers):,}", "users that are here get the roles of the file."),
            ("users", "", f"{len(strangers):,}", "users are new; those without a password in the file are refused."),
        ),
        fields={"text": text},
        is_destructive=False,
    )


def _named(names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f": {', '.join(names[:5])}{more}"
