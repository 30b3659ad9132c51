"""Signed tickets: the grants with which clients read from reader processes.

A reader process has no users and no access lists. The queue manager checks the rights and records
the result in a grant: one range of one queue, some columns, a time limit. A ticket is a bearer
token: its holder may read the range. The queue manager makes a new key at each start and shares it
only with the processes it has started.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hmac
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lanner.spark.flight.errors import TicketRefused

__all__ = ["LIFE", "Grant", "Tickets"]

# Not in the specification: seconds for which a reader process accepts a ticket. Revoking rights
# does not end a ticket. The queue manager itself checks the rights at each call: with an older
# ticket, it serves what its user may read now.
LIFE: Final = 900.0
_DIGEST: Final = "sha256"


@dataclass(frozen=True, slots=True)
class Grant:
    """The contents of a ticket, and the user it was issued to."""

    user: str
    epoch: int
    queue: int
    generation: int
    held: list[int]  # lookup ids that are left out
    after: int
    upto: int
    place: dict[str, Any]  # packet_source.Place
    columns: str | list[str]
    include_body: bool
    compact: bool
    where: list[list[object]]  # columnar.filters
    body_format: str | None = None  # columnar.values
    body_schema: str | None = None
    until: float = 0.0  # on the monotonic clock, which all processes of a machine share


class Tickets:
    """Seals grants, and opens those that were sealed with the same key."""

    def __init__(self, key: bytes | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.key = secrets.token_bytes(32) if key is None else key
        self._clock = clock

    def sealed(self, grant: Grant) -> str:
        """Return the text of a grant. It is valid for `LIFE` seconds."""
        content = json.dumps(dataclasses.asdict(dataclasses.replace(grant, until=self._clock() + LIFE))).encode()
        return f"{_text(content)}.{_text(self._digest(content))}"

    def opened(self, text: str) -> Grant:
        """Return a grant. Raises TicketRefused if it is forged or has expired."""
        try:
            content, digest = (base64.urlsafe_b64decode(part) for part in text.split("."))
        except (ValueError, binascii.Error):
            content = digest = b""
        if not hmac.compare_digest(self._digest(content), digest):
            raise TicketRefused("the queue manager has not issued this ticket since its start: request a new one")
        grant = Grant(**json.loads(content))
        if grant.until < self._clock():
            raise TicketRefused(f"the ticket was valid for {LIFE:g} seconds and has expired: request a new one")
        return grant

    def _digest(self, content: bytes) -> bytes:
        return hmac.digest(self.key, content, _DIGEST)


def _text(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).decode()
