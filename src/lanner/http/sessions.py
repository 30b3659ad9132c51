"""Authentication of requests: by a token, a password, or the cookie of a browser's session.

Each user has a connection to the queue manager, bound to that user and kept for later requests. A
browser's connection lasts until its session ends. A program's connection lasts while requests
arrive; it is found by a keyed hash of the program's credentials.

A browser also sends its cookie with requests that other sites initiate. A cookie-authenticated
request that changes something must therefore carry the session's CSRF token, in the header
X-CSRF-Token or in the form field `csrf_token`. Requests that declare another site as their origin
are never served.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import Depends, Request, Response
from starlette.exceptions import HTTPException

from lanner.aio import QueueManager
from lanner.http.log_ons import LogOns
from lanner.http.problems import Forbidden, NotLoggedOn
from lanner.http.routes import Gates, leave
from lanner.model.errors import AccessDenied, StatusError

COOKIE: Final = "lanner_session"
CSRF_HEADER: Final = "X-CSRF-Token"
CSRF_FIELD: Final = "csrf_token"
# The name, in the state of a request, of the function that counts its connection for a user.
COUNT_FOR: Final = "count_for"
# Not in the specification: the maximum number of sessions, in total and of one user.
MAX_SESSIONS: Final = 1000
MAX_SESSIONS_OF_USER: Final = 100
# Not in the specification: how long a program's connection is kept, in seconds: without a request,
# and in total (so that a changed password takes effect soon).
PROGRAM_IDLE: Final = 30.0
PROGRAM_LIFE: Final = 300.0
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(eq=False, slots=True)
class UserSession:
    """A logged-on user."""

    manager: QueueManager
    # Whether the queue manager still answers. It may have ended the connection, for example because
    # a token was revoked.
    is_open: Callable[[], bool]
    # The user as the queue manager identifies it: `user`, `administrator`, `scope` and others.
    who: Mapping[str, object]
    # The session ends after this many seconds without a request, and in total.
    idle: float
    life: float
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    is_browser: bool = False
    began: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)
    # The number of requests under way.
    users: int = 0
    # State that the console keeps for its pages.
    visit: object | None = field(default=None, repr=False)

    def is_over(self, now: float) -> bool:
        return not self.is_open() or (not self.users and (now - self.last > self.idle or now - self.began > self.life))


class Sessions:
    """The users who have logged on to this process."""

    def __init__(self, log_ons: LogOns, session_timeout: float = 1800.0, *, is_secure: bool = False) -> None:
        """Prepare sessions.

        `session_timeout`: seconds without a request after which a browser must log on again.
        """
        self._log_ons = log_ons
        self._timeout = session_timeout
        self._is_secure = is_secure
        self._key = secrets.token_bytes(32)
        self._sessions: dict[str, UserSession] = {}
        self._asked, self._was_ready = -1.0, False
        # Locks that make concurrent requests of a new program log on only once.
        self._locks: dict[str, asyncio.Lock] = {}
        self.gates = Gates()

    def __len__(self) -> int:
        return len(self._sessions)

    async def is_ready(self) -> bool:
        """Return whether the queue manager answers; the answer may be up to a second old."""
        now = time.monotonic()
        if now - self._asked > 1.0:
            self._was_ready = await self._log_ons.is_ready()
            self._asked = now
        return self._was_ready

    # Browsers
    # ----------------------------------------------------------------------------------------------

    async def log_on(self, response: Response, secret: Mapping[str, str], address: str) -> UserSession:
        """Begin the session of a browser, and set its cookie.

        Raises AccessDenied if the credentials are wrong.
        """
        session = await self._begin(secret, address, self._timeout, 24 * 3600.0)
        session.is_browser = True
        cookie = secrets.token_urlsafe(32)
        self._sessions[cookie] = session
        response.set_cookie(COOKIE, cookie, path="/", httponly=True, samesite="strict", secure=self._is_secure)
        return session

    async def log_off(self, request: Request, response: Response) -> None:
        """End the session of a browser."""
        session = self._sessions.pop(request.cookies.get(COOKIE, ""), None)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict", secure=self._is_secure)
        if session is not None:
            await session.manager.close()

    def of_browser(self, request: Request) -> UserSession | None:
        """Return the session of a browser, if it has one."""
        session = self._sessions.get(request.cookies.get(COOKIE, ""))
        if session is None or not session.is_browser or session.is_over(time.monotonic()):
            return None
        return session

    # Requests
    # ----------------------------------------------------------------------------------------------

    async def of(self, request: Request) -> UserSession:
        """Return the session of the user who makes a request.

        Raises NotLoggedOn without valid credentials, and Forbidden for a request from another site.
        """
        refuse_other_sites(request)
        secret = _authorization(request)
        if secret is not None:
            return _counted(request, await self._of_program(secret, client_address(request)))
        session = self.of_browser(request)
        if session is None:
            raise NotLoggedOn("log on with a token (Authorization: Bearer), or with a user and a password (Basic)")
        if request.method not in _SAFE and not await _has_csrf(request, session):
            raise Forbidden(f"the CSRF token of the session is missing: send it as {CSRF_HEADER}")
        return _counted(request, session)

    async def knows(self, request: Request) -> bool:
        """Return whether a request belongs to a session, or has valid credentials."""
        try:
            secret = _authorization(request)
            if secret is None:
                return self.of_browser(request) is not None
            await self._of_program(secret, client_address(request))
        except (NotLoggedOn, Forbidden, StatusError):
            return False
        return True

    async def _of_program(self, secret: Mapping[str, str], address: str) -> UserSession:
        text = "\0".join((*sorted(f"{name}={value}" for name, value in secret.items()), address))
        key = hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256").hex()
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                found = self._sessions.get(key)
                if found is not None and not found.is_over(time.monotonic()):
                    return found
                try:
                    made = await self._begin(secret, address, PROGRAM_IDLE, PROGRAM_LIFE)
                except AccessDenied as error:
                    raise NotLoggedOn(str(error.args[0])) from error
                self._sessions[key] = made
                return made
        finally:
            if not lock.locked():
                self._locks.pop(key, None)

    async def _begin(self, secret: Mapping[str, str], address: str, idle: float, life: float) -> UserSession:
        await self.tidy()
        logged_on = await self._log_ons.log_on(secret, address)
        manager = logged_on.manager
        try:
            who = await manager.who_am_i()
            await self._make_room(str(who["user"]))
        except BaseException:
            await manager.close()
            raise
        return UserSession(manager, logged_on.is_open, who, idle, life)

    async def _make_room(self, user: str) -> None:
        """End an idle session if the limit of this user, or the limit in total, is reached.

        The candidates are the sessions of this user, or those of the user with the most. The one
        that has been idle for longest ends.
        """
        count = Counter(str(one.who["user"]) for one in self._sessions.values())
        if count[user] < MAX_SESSIONS_OF_USER:
            if len(self._sessions) < MAX_SESSIONS:
                return
            user = count.most_common(1)[0][0]
        idle = [key for key, one in self._sessions.items() if one.who["user"] == user and not one.users]
        if not idle:
            raise Forbidden(f"{user} has {count[user]} sessions with requests under way: try again later")
        ended = self._sessions.pop(min(idle, key=lambda key: self._sessions[key].last))
        await ended.manager.close()

    async def tidy(self) -> None:
        """End expired sessions."""
        now = time.monotonic()
        over = [key for key, session in self._sessions.items() if session.is_over(now)]
        for session in [self._sessions.pop(key) for key in over]:
            await session.manager.close()

    async def close(self) -> None:
        while self._sessions:
            _, session = self._sessions.popitem()
            await session.manager.close()


def client_address(request: Request) -> str:
    """Return the address of a client.

    No proxy header is trusted, because no trusted proxy is configured.
    """
    return "" if request.client is None else request.client.host


def _authorization(request: Request) -> Mapping[str, str] | None:
    """Return a program's credentials; None if the request has none."""
    header = request.headers.get("authorization")
    if header is None:
        return None
    kind, _, value = header.partition(" ")
    match kind.lower():
        case "bearer":
            return {"token": value.strip()}
        case "basic":
            try:
                user, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                user = colon = password = ""
            if colon:
                return {"user": user, "password": password}
    raise NotLoggedOn("Authorization is neither `Bearer TOKEN` nor `Basic` with a user and a password")


def _counted(request: Request, session: UserSession) -> UserSession:
    """Count the connection of a request for its user. Raises HTTPException for too many."""
    user = str(session.who["user"])
    count_for = request.scope.get("state", {}).get(COUNT_FOR)
    if count_for is not None and not count_for(user):
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, f"{user} has too many connections: close some of them")
    return session


def refuse_other_sites(request: Request) -> None:
    origin = request.headers.get("origin")
    if origin is not None and host_of(origin) != request.headers.get("host", "").lower():
        raise Forbidden(f"a page of {origin} has made this request")
    if request.headers.get("sec-fetch-site", "none") in ("cross-site", "same-site") and request.method not in _SAFE:
        raise Forbidden("a page of another site has made this request")


def host_of(address: str) -> str | None:
    """Return the host and port of a URL; None if it cannot be parsed."""
    try:
        return urlsplit(address).netloc.lower()
    except ValueError:
        return None


async def _has_csrf(request: Request, session: UserSession) -> bool:
    given = request.headers.get(CSRF_HEADER)
    if given is None and request.headers.get("content-type", "").startswith(
        ("application/x-www-form-urlencoded", "multipart/form-data")
    ):
        value = (await request.form()).get(CSRF_FIELD)
        given = value if isinstance(value, str) else None
    return given is not None and hmac.compare_digest(given.encode(), session.csrf.encode())


# Dependencies of routes
# ------------------------------------------------------------------------------------------------


def sessions_of(request: Request) -> Sessions:
    found: Sessions = request.app.state.sessions
    return found


async def current_session(request: Request) -> AsyncIterator[UserSession]:
    """Yield the session of a request, and keep it in use until the request ends.

    It waits if the user has many requests in progress.
    """
    sessions = sessions_of(request)
    session = await sessions.of(request)
    session.users += 1
    try:
        await sessions.gates.enter(request, str(session.who["user"]))
        yield session
    finally:
        leave(request)
        session.users -= 1
        session.last = time.monotonic()


async def current_manager(session: Annotated[UserSession, Depends(current_session)]) -> QueueManager:
    """Return the queue manager as the user of a request sees it."""
    return session.manager


CurrentSession = Annotated[UserSession, Depends(current_session)]
Manager = Annotated[QueueManager, Depends(current_manager)]
