"""Who calls: user and password of the account file, once, and then a token; nobody without either.

Basic authentication comes with the handshake of a Flight client (`authenticate_basic_token`) or with any call. The answer carries a token,
which is good for some hours after its last use, until the password changes, and as long as this process lives.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import secrets
import threading
import time
from dataclasses import dataclass
from typing import Final

import pyarrow.flight as fl

from lanner.host.budget import Resource
from lanner.model.errors import LannerError
from lanner.security.identity import ANONYMOUS, Identity
from lanner.security.users import UserFile
from lanner.spark.flight.errors import NotAuthenticated, TooBusy

# Not in the specification: seconds after its last use.
TOKEN_LIFE: Final = 12 * 3600.0
# Not in the specification: tokens at a time. The least recently used one is dropped first.
MAX_TOKENS: Final = 10_000
# Not in the specification: seconds for which a verified password is not verified again. A Spark job
# logs on from each of its processes, within seconds.
KNOWN_LIFE: Final = 600.0
# Not in the specification: passwords that are verified at a time. Each takes 16 MiB and some tens of
# milliseconds.
_VERIFIERS: Final = threading.BoundedSemaphore(4)
# Not in the specification: logons that wait for that, or are verified, at a time. Each has a thread.
MAX_LOGONS: Final = 64


def refusal(error: LannerError) -> bytes:
    """What goes with an error for programs: its class, and its status where it has one."""
    status = getattr(error, "status", None)
    return json.dumps({"error": type(error).__name__, "status": status, "message": str(error.args[0])}).encode()


@dataclass(slots=True)
class _Token:
    name: str
    password_hash: str | None
    used: float


@dataclass(slots=True)
class _Known:
    """A password that was right: a digest of it that means nothing outside of this process."""

    digest: bytes
    password_hash: str | None
    until: float


class Tokens:
    """The bearer tokens of the callers that have logged on."""

    def __init__(self, users: UserFile, logons: Resource | None = None) -> None:
        """`logons`: counts those that are being verified."""
        self._users = users
        self._logons = logons or Resource("logons", MAX_LOGONS)
        self._lock = threading.Lock()
        self._tokens: dict[str, _Token] = {}  # in the order of their last use
        self._known: dict[str, _Known] = {}  # by the names of users
        self._secret = secrets.token_bytes(32)

    def log_on(self, name: str, password: str) -> tuple[Identity, str]:
        """Return a user and a new token. NotAuthenticated does not say whether the user or the password was wrong."""
        digest = hmac.digest(self._secret, f"{name}\0{password}".encode("utf-8", "surrogatepass"), "sha256")
        identity = self._remembered(name, digest)
        if identity is None:
            if not self._logons.take(""):
                raise TooBusy("too many logons at a time: try again later")
            try:
                with _VERIFIERS:
                    identity = self._users.verify(name, password)
            finally:
                self._logons.give_back("")
            if identity is None:
                raise NotAuthenticated("user or password is not right")
            with self._lock:
                found = _Known(digest, self._password_hash(identity.name), time.monotonic() + KNOWN_LIFE)
                self._known[identity.name] = found
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._expire()
            self._tokens[token] = _Token(identity.name, self._password_hash(identity.name), time.monotonic())
            while len(self._tokens) > MAX_TOKENS:
                del self._tokens[next(iter(self._tokens))]
        return identity, token

    def _remembered(self, name: str, digest: bytes) -> Identity | None:
        """Return the user, if this password was verified a while ago and is still the same."""
        with self._lock:
            known = self._known.get(name)
            if known is None or known.until < time.monotonic() or not hmac.compare_digest(known.digest, digest):
                return None
            return self._users.identity(name) if known.password_hash == self._password_hash(name) else None

    def identity(self, token: str) -> Identity:
        """Return the user of a token."""
        with self._lock:
            self._expire()
            found = self._tokens.pop(token, None)
            identity = None if found is None else self._users.identity(found.name)
            if found is None or identity is None or self._password_hash(found.name) != found.password_hash:
                raise NotAuthenticated("the token has expired, or is of before a restart: log on again")
            found.used = time.monotonic()
            self._tokens[token] = found
        return identity

    def bearer(self, header: str | None) -> Identity:
        """Return the user of a header with a token, and the anonymous user without a header."""
        if header is None:
            return ANONYMOUS
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer":
            raise NotAuthenticated(f"authorization by {kind!r}: Bearer expected")
        return self.identity(token.strip())

    def _expire(self) -> None:
        oldest = time.monotonic() - TOKEN_LIFE
        for token, found in list(self._tokens.items()):
            if found.used >= oldest:
                return
            del self._tokens[token]

    def _password_hash(self, name: str) -> str | None:
        return next((account.password_hash for account in self._users.users() if account.name == name), None)


class Caller(fl.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """Who makes one call."""

    def __init__(self, identity: Identity, token: str | None) -> None:
        self.identity = identity
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        return {} if self._token is None else {"authorization": f"Bearer {self._token}"}


class Callers(fl.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Looks at the headers of each call."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def start_call(self, info: fl.CallInfo, headers: dict[str, list[str]]) -> Caller:
        """The caller; an error ends the call."""
        given = [value for name, values in headers.items() if name.lower() == "authorization" for value in values]
        if not given:
            if info.method == fl.FlightMethod.HANDSHAKE:
                raise fl.FlightUnauthenticatedError("user and password are needed to log on")
            return Caller(ANONYMOUS, None)
        try:
            return self._caller(given[0])
        except TooBusy as error:
            raise fl.FlightUnavailableError(str(error), refusal(error)) from None
        except LannerError as error:
            raise fl.FlightUnauthenticatedError(str(error), refusal(error)) from None

    def _caller(self, header: str) -> Caller:
        kind, _, value = header.partition(" ")
        if kind.lower() == "bearer":
            return Caller(self._tokens.bearer(header), None)
        if kind.lower() != "basic":
            raise NotAuthenticated(f"authorization by {kind!r}: Basic or Bearer expected")
        try:
            name, colon, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            colon = ""
        if not colon:
            raise NotAuthenticated("the user and password cannot be read: name:password in base64 expected")
        return Caller(*self._tokens.log_on(name, password))


class NoHandshake(fl.ServerAuthHandler):  # type: ignore[misc]  # pyarrow has no types
    """Everything is in the headers; the older handshake of Flight has nothing to add."""

    def authenticate(self, outgoing: fl.ServerAuthSender, incoming: fl.ServerAuthReader) -> None:
        pass

    def is_valid(self, token: bytes) -> bytes:
        del token
        return b""
