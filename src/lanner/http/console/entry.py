"""Logging on and off, the user's own page, and the static files of pages."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from typing import Annotated, Final, NamedTuple
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, HTTPException, Request
from starlette.responses import RedirectResponse, Response

from lanner.http.console.page import HERE, plain_page, render
from lanner.http.console.visiting import Looking, PageRoute
from lanner.http.sessions import CurrentSession, client_address, refuse_other_sites, sessions_of
from lanner.model.errors import AccessDenied

router = APIRouter(route_class=PageRoute, include_in_schema=False)


class _File(NamedTuple):
    content: bytes
    packed: bytes
    kind: str
    tag: str


def _file(content: bytes, name: str) -> _File:
    kind = mimetypes.guess_type(name)[0] or "text/plain"
    return _File(content, gzip.compress(content, mtime=0), kind, f'"{hashlib.sha256(content).hexdigest()[:16]}"')


# Read once, because there are few. Only these names are served.
_FILES: Final = {
    path.name: _file(path.read_bytes(), path.name) for path in (HERE / "static").iterdir() if path.is_file()
}


@router.get("/static/{name}")
async def static(request: Request, name: str) -> Response:
    found = _FILES.get(name)
    if found is None:
        raise HTTPException(404, f"there is no file {name}")
    headers = {"ETag": found.tag, "Cache-Control": "max-age=300", "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=found.kind)
    return Response(found.content, headers=headers, media_type=found.kind)


def _inside(target: str) -> str:
    """Return the page to show after the log-on, which must be one of this console."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return "/"
    is_own = not parts.scheme and not parts.netloc and target.startswith("/") and target[1:2] not in ("/", "\\")
    return target if is_own else "/"


@router.get("/login")
async def log_on_page(request: Request, ticket: str = "", next: str = "/") -> Response:  # noqa: A002 (of the address)
    """Show the form, or follow the one-time link of `lanner console`."""
    if not ticket:
        return _form(next)
    # A page, not a redirect: the browser comes from the file of `lanner console`, which is another
    # site, and would not send the new cookie with a redirected request.
    response = plain_page("entered.html", to=_inside(next))
    try:
        await sessions_of(request).log_on(response, {"ticket": ticket}, client_address(request))
    except AccessDenied:
        text = "The link was used already, or is older than a minute. `lanner console` makes a new one."
        return _form(next, error=text, status=403)
    return response


@router.post("/login")
async def log_on(
    request: Request,
    user: Annotated[str, Form()] = "",
    password: Annotated[str, Form()] = "",
    next: Annotated[str, Form()] = "/",  # noqa: A002 (of the form)
) -> Response:
    refuse_other_sites(request)
    response = RedirectResponse(_inside(next), 303)
    secret = {"user": user, "password": password}
    try:
        await sessions_of(request).log_on(response, secret, client_address(request))
    except AccessDenied as error:
        return _form(next, user=user, error=str(error.args[0]), status=403)
    return response


def _form(target: str, *, user: str = "", error: str = "", status: int = 200) -> Response:
    return plain_page("logon.html", status=status, next=_inside(target), user=user, error=error, manager_name="")


@router.post("/logout")
async def log_off(request: Request, session: CurrentSession) -> Response:
    del session
    response = RedirectResponse("/login", 303)
    await sessions_of(request).log_off(request, response)
    return response


# The user
# --------------------------------------------------------------------------------------------------


@router.get("/account")
async def account(request: Request, visitor: Looking) -> Response:
    return await render(request, visitor, "account.html", who=await visitor.manager.who_am_i())
