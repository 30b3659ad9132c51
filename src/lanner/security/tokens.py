"""Tokens: credentials of programs, limited in time and scope by their user.

A program logs on with a token instead of a password. A token is `lanner_ID_SECRET`. The queue
manager keeps the identifier, a hash of the secret, the owner, the scope and the expiry time, in a
file like that of the accounts. The secret has 256 random bits, so its hash needs no salt and no
work factor.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from lanner.model.errors import InvalidParameter
from lanner.security.private_files import PrivateFileError, locked, read_private, write_private
from lanner.security.scopes import SCOPES
from lanner.wire.sid import Sid

# Name of the file in a data directory.
TOKEN_FILE: Final = "tokens.json"  # noqa: S105 (the name of a file)
FILE_VERSION: Final = 1
PREFIX: Final = "lanner"
_ID_SIZE: Final = 6  # octets
_SECRET_SIZE: Final = 32
# Not in the specification: tokens of one user, and characters of a description.
MAX_TOKENS_OF_USER: Final = 100
MAX_DESCRIPTION: Final = 100
# Not in the specification: tokens that a user creates in an hour, including revoked ones. The audit
# log has a record of each, which must not push out other records.
MAX_NEW: Final = 200
_HOUR: Final = 3600.0
# Not in the specification: seconds, a hundred years.
MAX_LIFETIME: Final = 100 * 365.25 * 86400


@dataclass(frozen=True, slots=True)
class Token:
    """A token, without its secret."""

    id: str
    sid: str
    scope: tuple[str, ...]
    created: float  # seconds since 1970
    expires: float | None = None  # seconds since 1970; None: never
    description: str = ""
    hash: str = field(default="", repr=False)

    def is_over(self, now: float) -> bool:
        return self.expires is not None and now >= self.expires

    def document(self) -> dict[str, Any]:
        """Return the token as its user sees it."""
        return {name: value for name, value in asdict(self).items() if name != "hash"}


class TokenFile:
    """The tokens of a data directory. Every method sees the newest content of the file."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        # The times at which each user created tokens in the last hour. A restart resets it.
        self._made: dict[str, deque[float]] = {}
        # The last content and its tokens: strangers can cause any number of lookups.
        self._known: tuple[bytes, list[Token]] = b"", []

    def create(
        self, sid: Sid, scope: Iterable[str], lifetime: float | None = None, description: str = ""
    ) -> tuple[Token, str]:
        """Create a token of a user, which ends after `lifetime` seconds.

        The returned text of the token is not available later.
        """
        wanted = tuple(dict.fromkeys(scope))
        unknown = [one for one in wanted if one not in SCOPES]
        if unknown or not wanted:
            what = f"unknown scope {', '.join(unknown)}" if unknown else "a token needs a scope"
            raise InvalidParameter(f"{what}: one or more of {', '.join(SCOPES)}")
        # NaN is refused here as well.
        if lifetime is not None and not 0 < lifetime <= MAX_LIFETIME:
            raise InvalidParameter(
                f"a token that ends after {lifetime:g} seconds: more than 0 expected, at most {MAX_LIFETIME:g}"
            )
        if len(description) > MAX_DESCRIPTION:
            raise InvalidParameter(f"a description of {len(description)} characters, at most {MAX_DESCRIPTION}")
        now = self._clock()
        secret = secrets.token_urlsafe(_SECRET_SIZE)
        ends = None if lifetime is None else now + lifetime
        made = Token(secrets.token_hex(_ID_SIZE), str(sid), wanted, now, ends, description, _hash(secret))
        with locked(self.path):
            kept = [token for token in self._read() if not token.is_over(now)]
            if sum(token.sid == made.sid for token in kept) >= MAX_TOKENS_OF_USER:
                raise InvalidParameter(f"a user has at most {MAX_TOKENS_OF_USER} tokens: revoke one")
            self._count(made.sid, now)
            self._write([*kept, made])
        return made, f"{PREFIX}_{made.id}_{secret}"

    def _count(self, sid: str, now: float) -> None:
        """Count a token that a user creates. Raises InvalidParameter for too many."""
        self._made = {one: times for one, times in self._made.items() if times[-1] > now - _HOUR}
        times = self._made.setdefault(sid, deque(maxlen=MAX_NEW))
        if len(times) == MAX_NEW and times[0] > now - _HOUR:
            raise InvalidParameter(f"a user makes at most {MAX_NEW} tokens in an hour: try again later")
        times.append(now)

    def tokens_of(self, sid: Sid | None = None) -> list[Token]:
        """Return the tokens of a user, or of all users."""
        now = self._clock()
        return [token for token in self._read() if not token.is_over(now) and sid in (None, Sid.parse(token.sid))]

    def find(self, identifier: str) -> Token:
        """Return a token by its identifier. Raises InvalidParameter."""
        for token in self.tokens_of():
            if token.id == identifier:
                return token
        raise InvalidParameter(f"there is no token {identifier}: it was revoked, or has ended")

    def revoke(self, identifier: str) -> None:
        """End a token. Raises InvalidParameter if there is none."""
        with locked(self.path):
            tokens = self._read()
            kept = [token for token in tokens if token.id != identifier]
            if len(kept) == len(tokens):
                raise InvalidParameter(f"there is no token {identifier}: it was revoked, or has ended")
            self._write(kept)

    def verify(self, text: str) -> Token | None:
        """Return the token of a text; None if it is no token, or has ended."""
        prefix, _, rest = text.partition("_")
        identifier, _, secret = rest.partition("_")
        found = next((token for token in self._read() if token.id == identifier), None)
        is_right = hmac.compare_digest(_hash(secret), _hash("") if found is None else found.hash)
        if found is None or prefix != PREFIX or not is_right or found.is_over(self._clock()):
            return None
        return found

    def _read(self) -> list[Token]:
        data = read_private(self.path)
        if data is None:
            return []
        known, tokens = self._known
        if data == known:
            return tokens
        try:
            content = json.loads(data)
            if content["version"] != FILE_VERSION:
                raise PrivateFileError(f"{self.path} is of version {content['version']}, and not {FILE_VERSION}")
            tokens = [Token(**{**one, "scope": tuple(one["scope"])}) for one in content["tokens"]]
        except (ValueError, LookupError, TypeError) as error:
            # The error itself may quote a hash.
            raise PrivateFileError(
                f"{self.path} is damaged ({type(error).__name__}): remove it, and make new tokens"
            ) from None
        self._known = data, tokens
        return tokens

    def _write(self, tokens: Iterable[Token]) -> None:
        content = {"version": FILE_VERSION, "tokens": [asdict(token) for token in tokens]}
        write_private(self.path, json.dumps(content, indent=1).encode())


def token_id(text: str) -> str:
    """Return the identifier in the text of a token, which is no secret."""
    return text.partition("_")[2].partition("_")[0][: 2 * _ID_SIZE]


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
