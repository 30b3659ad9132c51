"""What is checked before a request is looked at, and what every answer says to browsers.

A page of another site could have its name mean this address (DNS rebinding), so the Host header must be a name of this computer.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lanner.http.problems import problem

# Not in the specification: octets of a request, room for the largest message in base64; seconds until it is there.
MAX_BODY: Final = 8 << 20
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
    """The outermost part of the application."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str], *, is_tls: bool = False) -> None:
        self._app = app
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

        headers = Headers(scope=scope)
        refusal: ASGIApp | None = None
        if not self._is_ours(headers.get("host", "")):
            detail = f"{headers.get('host', '')!r} is no name of this computer: add it to http.hosts"
            refusal = problem(HTTPStatus.MISDIRECTED_REQUEST, "Misdirected Request", detail)
        elif (headers.get("content-length") or "0").isdecimal() and int(headers.get("content-length") or 0) > MAX_BODY:
            refusal = _too_large()
        if refusal is not None:
            await refusal(scope, receive, answer)
        else:
            await self._app(scope, _limited(receive), answer)

    def _is_ours(self, host: str) -> bool:
        name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
        try:
            name = str(ipaddress.ip_address(name))
        except ValueError:
            name = name.lower().rstrip(".")
        return name in self._hosts


def _too_large() -> ASGIApp:
    return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Content Too Large", f"a request has at most {MAX_BODY} octets")


class BodyTooLarge(Exception):
    """More than MAX_BODY octets came, and nobody had said so."""


def _limited(receive: Receive) -> Receive:
    """Return `receive` with a limit to how much comes, and to how slowly. What comes behind the request is waited for without one."""
    taken = 0
    is_whole = False

    async def limited() -> Message:
        nonlocal taken, is_whole
        if is_whole:
            return await receive()
        async with asyncio.timeout(BODY_TIMEOUT):
            message = await receive()
        taken += len(message.get("body", b""))
        if taken > MAX_BODY:
            raise BodyTooLarge(f"a request has at most {MAX_BODY} octets")
        is_whole = not message.get("more_body", False)
        return message

    return limited
