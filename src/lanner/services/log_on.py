"""Log-on calls of Lanner's own interface, which bind a connection permanently to a user.

They serve programs that act for many users and have no rights of their own, such as the HTTP
process. A call is accepted on a connection that can do nothing else (`needs_log_on`), and on a
sealed connection of an authenticated caller. A user logs on with a password, a token or a ticket. A
ticket comes from another connection of the same user, and is valid for one logon within a minute.

Failed attempts are delayed, counted and recorded for the user's address, as in every other
protocol. The HTTP process reports that address, because no other process knows it; for any other
caller it is the address that the call came from. Tokens and tickets have 256 random bits and cannot
be guessed. They are therefore checked before any delay, so that an attacker who sends wrong ones
cannot lock anyone out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lanner.model.errors import MQ_OK, AccessDenied, InvalidParameter, StatusError
from lanner.rpc.interface import RETURNS
from lanner.rpc.pdu import AuthLevel
from lanner.security.identity import SYSTEM
from lanner.security.log_lines import log_of_peer
from lanner.security.logons import LogonRefused, Logons
from lanner.security.tokens import token_id
from lanner.services.callers import refusal
from lanner.wire.sid import LOCAL_SYSTEM, Sid

if TYPE_CHECKING:
    from lanner.rpc.calls import ServerCall
    from lanner.rpc.connection import ServerConnection
    from lanner.rpc.server import Results
    from lanner.security.audit import AuditLog
    from lanner.security.identity import Identity
    from lanner.security.tokens import Token, TokenFile
    from lanner.security.users import UserFile

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)
# Not in the specification: the seconds for which a ticket is valid, and the maximum number of
# unused tickets.
TICKET_LIFE: Final = 60.0
MAX_TICKETS: Final = 1000
# Not in the specification: the maximum number of passwords that are verified at the same time. Each
# takes 16 MiB and some tens of milliseconds.
_VERIFIERS: Final = 4
# Not in the specification: the maximum number of unused tickets of one user.
_MAX_TICKETS_OF_USER: Final = 10
# Not in the specification: the maximum number of characters in a secret or an address.
_MAX_TEXT: Final = 1024
# Not in the specification: the maximum number of characters in the whole request, where each may be
# an escape sequence.
_MAX_REQUEST: Final = 6 * 4 * _MAX_TEXT
# The longest interval, in seconds, between two checks of whether a token has expired.
_LONGEST_WAIT: Final = 86400.0


class Tickets:
    """Tickets: logons that users begin on one connection and complete on another."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._issued: dict[str, tuple[float, Identity]] = {}

    def issue(self, identity: Identity) -> str:
        """Return a short-lived secret that is valid for one logon as a user."""
        now = self._clock()
        self._issued = {text: one for text, one in self._issued.items() if one[0] > now}
        own = [text for text, one in self._issued.items() if one[1].sid == identity.sid]
        # A user who requests too many loses its own oldest tickets, not those of other users.
        for text in own[: len(own) + 1 - _MAX_TICKETS_OF_USER]:
            del self._issued[text]
        while len(self._issued) >= MAX_TICKETS:
            del self._issued[next(iter(self._issued))]
        text = secrets.token_urlsafe(32)
        self._issued[text] = (now + TICKET_LIFE, identity)
        return text

    def redeem(self, text: str) -> Identity | None:
        """Invalidate a ticket and return its user; None if it is unknown or expired."""
        end, identity = self._issued.pop(text, (0.0, None))
        return identity if end > self._clock() else None


class LogOn:
    """The log-on call of one queue manager."""

    def __init__(self, users: UserFile, tokens: TokenFile, tickets: Tickets, logons: Logons, audit: AuditLog) -> None:
        self._users = users
        self._tokens = tokens
        self._tickets = tickets
        self._logons = logons
        self._audit = audit
        # A separate pool, so that other slow work does not delay password checks.
        self._threads = ThreadPoolExecutor(_VERIFIERS, "lanner-passwords")
        # The connections that tokens have opened.
        self._connections: dict[str, weakref.WeakSet[ServerConnection]] = {}

    async def log_on(self, call: ServerCall, request: str) -> Results:
        """Bind the connection of a call to a user."""
        try:
            address = self._check(call)
            asked = _read(request)
            if call.connection.needs_log_on:
                address = _text(asked, "address")
            identity, token = await self._verify(asked, address)
            # Another call on this connection may have logged on meanwhile.
            self._check(call)
        except StatusError as error:
            log_of_peer(_LOG, logging.INFO, "refused log on", call.peer, "%r: %s", call, error)
            return refusal(error)
        origin = f"http {address}" if call.connection.needs_log_on else address
        call.log_on(identity.at(origin))
        if token is not None:
            self._connections.setdefault(token.id, weakref.WeakSet()).add(call.connection)
            if token.expires is not None:
                _end_with(weakref.ref(call.connection), token)
        scope = None if identity.scope is None else sorted(identity.scope)
        answer = {"user": identity.name, "sid": str(identity.sid), "scope": scope}
        return {"answer": json.dumps(answer), RETURNS: MQ_OK}

    def revoked(self, identifier: str) -> None:
        """Close the connections that a token has opened."""
        for connection in list(self._connections.pop(identifier, ())):
            connection.hang_up()

    @staticmethod
    def _check(call: ServerCall) -> str:
        """Return the address of a caller that may log on here; raise AccessDenied otherwise."""
        connection = call.connection
        if connection.has_logged_on:
            raise AccessDenied(
                f"this connection belongs to {call.identity.name}: connect again to log on as another user"
            )
        if not connection.needs_log_on:
            if call.auth_level < AuthLevel.PKT_PRIVACY or call.identity.is_anonymous:
                raise AccessDenied("others could read the password: log on by a connection at level privacy")
            if connection.has_handles:
                raise AccessDenied(f"{call.identity.name} has opened a session here: connect again to log on")
        return call.peer

    async def _verify(self, asked: Mapping[str, Any], address: str) -> tuple[Identity, Token | None]:
        match sorted(asked.keys() - {"address"}):
            case ["password", "user"]:
                return await self._by_password(_text(asked, "user"), _text(asked, "password"), address), None
            case ["token"]:
                return await self._by_token(_text(asked, "token"), address)
            case ["ticket"]:
                return await self._by_ticket(_text(asked, "ticket"), address), None
        raise InvalidParameter("a log on has a user and a password, a token, or a ticket")

    async def _by_password(self, user: str, password: str, address: str) -> Identity:
        identity = await self._try(
            user, address, "password", lambda: self._in_thread(self._users.verify, user, password)
        )
        if identity is None or identity.is_anonymous:
            raise AccessDenied(f"user name or password of {user!r} is wrong")
        return identity

    async def _in_thread(
        self, verify: Callable[[str, str], Identity | None], user: str, password: str
    ) -> Identity | None:
        return await asyncio.get_running_loop().run_in_executor(self._threads, verify, user, password)

    async def _by_token(self, text: str, address: str) -> tuple[Identity, Token]:
        token = self._tokens.verify(text)
        owner = None if token is None else self._owner(Sid.parse(token.sid))
        if token is None or owner is None:
            await self._try(f"token {token_id(text)}", address, "token", _nobody)
            raise AccessDenied("the token is wrong, was revoked, or has ended: `lanner token create` makes another")
        return owner.limited_to(frozenset(token.scope)), token

    async def _by_ticket(self, text: str, address: str) -> Identity:
        identity = self._tickets.redeem(text)
        if identity is None:
            await self._try("ticket", address, "ticket", _nobody)
            raise AccessDenied("the link was used already, or is older than a minute: `lanner console` makes another")
        return identity

    def _owner(self, sid: Sid) -> Identity | None:
        return SYSTEM if sid == LOCAL_SYSTEM else self._users.resolve(sid)

    async def _try(self, account: str, address: str, what: str, verify: Callable[[], Awaitable[T | None]]) -> T | None:
        """Verify a secret, after the delay that earlier failures impose."""
        try:
            attempt = self._logons.begin(account, address, f"log on by {what}")
        except LogonRefused as error:
            self._audit.logon_failed(account, address, what, str(error))
            raise AccessDenied(f"{account}: {error}") from error
        if attempt.wait:
            await asyncio.sleep(attempt.wait)
        found = await verify()
        if found is None:
            attempt.failed()
            self._audit.logon_failed(account, address, what, f"the {what} is wrong")
        else:
            attempt.succeeded()
        return found


async def _nobody() -> None:
    """Verify a secret that is known to be wrong."""


def _end_with(connection: weakref.ref[ServerConnection], token: Token) -> None:
    """Close a connection when its token expires."""
    found = connection()
    if found is None or token.expires is None:
        return
    left = token.expires - time.time()
    if left <= 0:
        found.hang_up()
        return
    del found
    asyncio.get_running_loop().call_later(min(left, _LONGEST_WAIT), _end_with, connection, token)


def _read(text: str) -> Mapping[str, Any]:
    try:
        asked = json.loads(text) if len(text) <= _MAX_REQUEST else None
    except (ValueError, RecursionError):
        # The text of the exception would quote a secret.
        asked = None
    if not isinstance(asked, dict):
        raise InvalidParameter("a log on is an object in JSON")
    return asked


def _text(asked: Mapping[str, Any], key: str) -> str:
    value = asked.get(key)
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise InvalidParameter(f"a log on needs the text `{key}`, of at most {_MAX_TEXT} characters")
    return value
