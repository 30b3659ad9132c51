"""Authentication: a password of the account file, and then a token.

Basic authentication comes with the handshake of a Flight client (`authenticate_basic_token`) or
with any call. The answer carries a token. It is valid for some hours after its last use, until the
password changes, and as long as this process lives.

A handshake does not state the address of the client. So its password is verified only while the
account has few wrong passwords from handshakes. After that every handshake gets a token, and the
first call with the token verifies the password, with an address that is known.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import pyarrow.flight as fl

from lanner.host.budget import Resource
from lanner.model.errors import LannerError, ServiceNotAvailable
from lanner.security.audit import AuditLog
from lanner.security.identity import ANONYMOUS, Identity
from lanner.security.logons import Attempt, LogonRefused, Logons
from lanner.security.users import UserFile
from lanner.spark.flight.errors import NotAuthenticated, TooBusy
from lanner.spark.flight.refusals import refusal

# Not in the specification: seconds after its last use.
TOKEN_LIFE: Final = 12 * 3600.0
# Not in the specification: tokens at a time. Beyond it the user who has the most loses the least
# recently used one.
MAX_TOKENS: Final = 10_000
# Not in the specification: tokens of one user. Beyond it the user loses the least recently used
# one.
MAX_TOKENS_OF_USER: Final = 1_000
# Not in the specification: tokens of handshakes whose password is not yet verified, and the seconds
# until the first call with one. The oldest is dropped first, with its password. Tokens of verified
# users are not affected.
MAX_UNVERIFIED: Final = 256
UNVERIFIED_LIFE: Final = 30.0
# Not in the specification: seconds for which a verified password is not verified again. A Spark job
# logs on from each of its processes, within seconds.
KNOWN_LIFE: Final = 600.0
# Not in the specification: passwords that are verified at a time. Each takes 16 MiB and some tens
# of milliseconds.
_VERIFIERS: Final = threading.BoundedSemaphore(4)
# Not in the specification: logons that wait or are being verified. Each occupies a thread of gRPC.
MAX_LOGONS: Final = 64
# Stands for the address of handshakes, which have none.
HANDSHAKE: Final = "Flight handshake"
# Stands for the address of local programs that use the socket in the data directory.
NEAR: Final = "local"


@dataclass(slots=True)
class _Token:
    name: str
    password_hash: str | None
    used: float


@dataclass(slots=True)
class _Unverified:
    """A handshake whose password is not yet verified."""

    name: str
    password: str = field(repr=False)
    came: float


@dataclass(slots=True)
class _Known:
    """A verified password, as a digest that is useless outside of this process."""

    digest: bytes
    password_hash: str | None
    until: float


class Tokens:
    """The bearer tokens of callers that have logged on."""

    def __init__(
        self,
        users: UserFile,
        logons: Logons | None = None,
        audit: AuditLog | None = None,
        under_way: Resource | None = None,
    ) -> None:
        """Issue tokens to users of the account file.

        `logons` counts wrong passwords. `under_way` counts logons that wait or are being verified.
        """
        self._users = users
        self._logons = Logons() if logons is None else logons
        self._audit = audit or AuditLog()
        self._under_way = under_way or Resource("logons", MAX_LOGONS)
        self._lock = threading.Lock()
        self._tokens: dict[str, _Token] = {}  # in the order of last use
        self._unverified: dict[str, _Unverified] = {}  # in the order of arrival
        self._known: dict[str, _Known] = {}  # by user name
        self._secret = secrets.token_bytes(32)
        self._stopping = threading.Event()

    def stop_waiting(self) -> None:
        """End the calls that wait for their logon."""
        self._stopping.set()

    def log_on(self, name: str, password: str, address: str) -> tuple[Identity, str]:
        """Return a user and a new token.

        Raises NotAuthenticated, without stating whether the user or the password was wrong.
        """
        identity = self.verified(name, password, address)
        return identity, self._new_token(_Token(identity.name, self._password_hash(identity.name), time.monotonic()))

    def shake_hands(self, name: str, password: str) -> str:
        """Return a token for a caller whose address is unknown.

        Raises NotAuthenticated if the password was verified and is wrong.
        """
        try:
            attempt = self._logons.begin(name, HANDSHAKE, "Flight")
        except LogonRefused:
            attempt = None
        if attempt is None or attempt.wait:
            return self._new_unverified(_Unverified(name, password, time.monotonic()))
        with self._counted(HANDSHAKE), _VERIFIERS:
            identity = self._check(attempt, password)
        return self._new_token(_Token(identity.name, self._password_hash(identity.name), time.monotonic()))

    @contextmanager
    def _counted(self, address: str) -> Iterator[None]:
        if not self._under_way.take(address):
            raise TooBusy("too many logons at a time: try again later")
        try:
            yield
        finally:
            self._under_way.give_back(address)

    def verified(self, name: str, password: str, address: str) -> Identity:
        """Return a user whose password is right, after the delay that earlier wrong ones cause."""
        with self._counted(address):
            try:
                with _VERIFIERS:
                    # Begun only now, so that the logons which ran before this one count.
                    attempt = self._logons.begin(name, address, "Flight")
                    if not attempt.wait:
                        return self._check(attempt, password)
            except LogonRefused as error:
                self._audit.logon_failed(name, address, "Arrow Flight", str(error))
                raise NotAuthenticated(str(error)) from None
            if self._stopping.wait(attempt.wait):
                raise ServiceNotAvailable("the queue manager is stopping")
            with _VERIFIERS:
                return self._check(attempt, password)

    def _check(self, attempt: Attempt, password: str) -> Identity:
        name = attempt.account
        digest = hmac.digest(self._secret, f"{name}\0{password}".encode("utf-8", "surrogatepass"), "sha256")
        identity = self._remembered(name, digest) or self._users.verify(name, password)
        if identity is None:
            attempt.failed()
            # A handshake does not state its address.
            self._audit.logon_failed(name, attempt.address, "Arrow Flight", "user or password is not right")
            raise NotAuthenticated("user or password is not right")
        attempt.succeeded()
        with self._lock:
            found = _Known(digest, self._password_hash(identity.name), time.monotonic() + KNOWN_LIFE)
            self._known[identity.name] = found
        return identity

    def _new_token(self, new: _Token) -> str:
        token = secrets.token_urlsafe(32)
        self._keep(token, new)
        return token

    def _keep(self, token: str, new: _Token) -> None:
        with self._lock:
            self._expire()
            self._tokens[token] = new
            own = [one for one, found in self._tokens.items() if found.name == new.name]
            for one in own[:-MAX_TOKENS_OF_USER]:
                del self._tokens[one]
            if len(self._tokens) > MAX_TOKENS:
                [(most, _)] = Counter(found.name for found in self._tokens.values()).most_common(1)
                del self._tokens[next(one for one, found in self._tokens.items() if found.name == most)]

    def _new_unverified(self, new: _Unverified) -> str:
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._expire()
            self._unverified[token] = new
            while len(self._unverified) > MAX_UNVERIFIED:
                del self._unverified[next(iter(self._unverified))]
        return token

    def _remembered(self, name: str, digest: bytes) -> Identity | None:
        """Return the user if this password was verified recently and has not changed."""
        with self._lock:
            known = self._known.get(name)
            if known is None or known.until < time.monotonic() or not hmac.compare_digest(known.digest, digest):
                return None
            return self._users.identity(name) if known.password_hash == self._password_hash(name) else None

    def identity(self, token: str, address: str) -> Identity:
        """Return the user of a token that is used from an address."""
        self._complete(token, address)
        with self._lock:
            self._expire()
            found = self._tokens.pop(token, None)
            identity = None if found is None else self._users.identity(found.name)
            if found is None or identity is None or self._password_hash(found.name) != found.password_hash:
                raise NotAuthenticated("the token has expired, or was issued before a restart: log on again")
            found.used = time.monotonic()
            self._tokens[token] = found
        return identity

    def _complete(self, token: str, address: str) -> None:
        """Log on with the password of a handshake if it is not yet verified."""
        with self._lock:
            self._expire()
            found = self._unverified.get(token)
        if found is None:
            return
        try:
            identity = self.verified(found.name, found.password, address)
        except NotAuthenticated:
            with self._lock:
                self._unverified.pop(token, None)
            raise
        new = _Token(identity.name, self._password_hash(identity.name), time.monotonic())
        with self._lock:
            self._unverified.pop(token, None)
        self._keep(token, new)

    def bearer(self, header: str | None, address: str) -> Identity:
        """Return the user of an `authorization` header; the anonymous user without one."""
        if header is None:
            return ANONYMOUS
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer":
            raise NotAuthenticated(f"authorization by {kind!r}: Bearer expected")
        return self.identity(token.strip(), address)

    def _expire(self) -> None:
        now = time.monotonic()
        while self._tokens and now - next(iter(self._tokens.values())).used > TOKEN_LIFE:
            del self._tokens[next(iter(self._tokens))]
        while self._unverified and now - next(iter(self._unverified.values())).came > UNVERIFIED_LIFE:
            del self._unverified[next(iter(self._unverified))]

    def _password_hash(self, name: str) -> str | None:
        return next((account.password_hash for account in self._users.users() if account.name == name), None)


class Caller(fl.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """The caller of one call, according to its headers."""

    def __init__(self, tokens: Tokens, *, basic: tuple[str, str] | None = None, bearer: str | None = None) -> None:
        self._tokens = tokens
        self._basic = basic
        self._bearer = bearer
        self._token: str | None = None

    def identity(self, address: str) -> Identity:
        """Return the user who calls from an address. Raises NotAuthenticated if there is none."""
        if self._basic is None:
            return self._tokens.bearer(self._bearer, address)
        identity, self._token = self._tokens.log_on(*self._basic, address)
        return identity

    def shake_hands(self) -> None:
        if self._basic is not None:
            self._token = self._tokens.shake_hands(*self._basic)
        elif self._bearer is None:
            raise NotAuthenticated("user and password are needed to log on")

    def sending_headers(self) -> dict[str, str]:
        return {} if self._token is None else {"authorization": f"Bearer {self._token}"}


def admitted(identity: Identity, *, allow_anonymous: bool) -> Identity:
    """Return the caller. Raises NotAuthenticated if it is anonymous and must not be."""
    if identity.is_anonymous and not allow_anonymous:
        raise NotAuthenticated("log on: every call needs a user and a password, or a token")
    return identity


class Callers(fl.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Reads the headers of each call."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def start_call(self, info: fl.CallInfo, headers: dict[str, list[str]]) -> Caller:
        """Return the caller. An error ends the call."""
        given = [value for name, values in headers.items() if name.lower() == "authorization" for value in values]
        try:
            caller = self._caller(given[0]) if given else Caller(self._tokens)
            if info.method == fl.FlightMethod.HANDSHAKE:
                caller.shake_hands()
        except TooBusy as error:
            raise fl.FlightUnavailableError(str(error), refusal(error)) from None
        except LannerError as error:
            raise fl.FlightUnauthenticatedError(str(error), refusal(error)) from None
        return caller

    def _caller(self, header: str) -> Caller:
        kind, _, value = header.partition(" ")
        if kind.lower() == "bearer":
            return Caller(self._tokens, bearer=header)
        if kind.lower() != "basic":
            raise NotAuthenticated(f"authorization by {kind!r}: Basic or Bearer expected")
        try:
            name, colon, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            colon = ""
        if not colon:
            raise NotAuthenticated("the user and password cannot be read: name:password in base64 expected")
        return Caller(self._tokens, basic=(name, password))


class NoHandshake(fl.ServerAuthHandler):  # type: ignore[misc]  # pyarrow has no types
    """A handler without effect: headers carry everything, not the older handshake of Flight."""

    def authenticate(self, outgoing: fl.ServerAuthSender, incoming: fl.ServerAuthReader) -> None:
        pass

    def is_valid(self, token: bytes) -> bytes:
        del token
        return b""
