"""Checks that precede every request, and security headers for every answer.

A page of another site could make its own name resolve to this address (DNS rebinding), so the Host
header must be a name of this computer.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lanner.http.bodies import MAX_BODY, MAX_OF_STRANGER, Body, Budget, too_large
from lanner.http.problems import NotLoggedOn, http_problem, not_logged_on, problem
from lanner.http.sessions import client_address
from lanner.security.peer_address import peer_of

# Not in the specification: seconds in which the body of a request must arrive.
BODY_TIMEOUT: Final = 60.0

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guards:
    """The outermost layer of the application."""

    def __init__(
        self,
        app: ASGIApp,
        hosts: Iterable[str],
        knows: Callable[[Request], Awaitable[bool]],
        *,
        is_tls: bool = False,
    ) -> None:
        """Prepare the layer.

        `knows` returns whether the user of a request has logged on, or can; it does not read the
        body.
        """
        self._app = app
        self._knows = knows
        self._budget = Budget()
        self._hosts = frozenset(host.lower().rstrip(".") for host in hosts)
        self._headers = dict(_HEADERS)
        if is_tls:
            self._headers["Strict-Transport-Security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        host = Headers(scope=scope).get("host", "")
        if not self._is_ours(host):
            detail = f"{host!r} is no name of this computer: add it to http.hosts"
            await problem(HTTPStatus.MISDIRECTED_REQUEST, "Misdirected Request", detail)(scope, receive, answer)
            return
        try:
            body = await self._body(Request(scope))
        except (HTTPException, NotLoggedOn) as error:
            handler = not_logged_on if isinstance(error, NotLoggedOn) else http_problem
            await (await handler(Request(scope), error))(scope, receive, answer)
            return
        try:
            await self._app(scope, _limited(receive, body), answer)
        finally:
            body.close()

    async def _body(self, request: Request) -> Body:
        """Return the body limit for the user of a request.

        Raises if the announced body is larger.
        """
        announced = request.headers.get("content-length")
        size = int(announced) if announced is not None and announced.isdecimal() else 0
        if size > MAX_BODY:
            raise too_large(MAX_BODY)
        limit = MAX_OF_STRANGER
        if size > limit or "transfer-encoding" in request.headers:
            if await self._knows(request):
                limit = MAX_BODY
            elif size > limit:
                raise NotLoggedOn(f"a request of more than {limit} octets is taken from users who have logged on")
        return Body(self._budget, peer_of(client_address(request)), limit)

    def _is_ours(self, host: str) -> bool:
        name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
        try:
            name = str(ipaddress.ip_address(name))
        except ValueError:
            name = name.lower().rstrip(".")
        return name in self._hosts


def _limited(receive: Receive, body: Body) -> Receive:
    """Return `receive` with limits for the size of a body and for the time until it is complete.

    After that, waiting has no time limit.
    """
    is_whole = False
    end = asyncio.get_running_loop().time() + BODY_TIMEOUT

    async def limited() -> Message:
        nonlocal is_whole
        if is_whole:
            return await receive()
        async with asyncio.timeout_at(end):
            message = await receive()
        body.take(message.get("body", b""))
        is_whole = not message.get("more_body", False)
        return message

    return limited
