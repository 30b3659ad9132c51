"""The memory that requests may use: for their bodies, and for parsing them.

A body is read before it is known whether its user may do what the request asks for. Clients that
have not logged on may therefore send only small bodies, and all requests under way share a budget.
JSON grows when it is parsed: each comma is counted as one object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException

# Not in the specification: the maximum octets of a request without a logged-on user, which is
# enough for a log-on; and of other requests, enough for the largest message in base64.
MAX_OF_STRANGER: Final = 16 << 10
MAX_BODY: Final = 8 << 20
# Not in the specification: octets of memory for the requests of one address, and of all.
MAX_OF_PEER: Final = 160 << 20
MAX_IN_ALL: Final = 512 << 20
# The estimated cost of an object, counted by the comma or ampersand after it.
_OBJECT: Final = 64


@dataclass(slots=True)
class Budget:
    """The memory used by the requests under way. Not thread-safe."""

    used: int = 0
    by_peer: dict[str, int] = field(default_factory=dict)

    def add(self, peer: str, size: int) -> None:
        """Add the octets of an address. Raises HTTPException if there is no room for them."""
        if self.used + size > MAX_IN_ALL or self.by_peer.get(peer, 0) + size > MAX_OF_PEER:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at a time: try again later")
        self.used += size
        self.by_peer[peer] = self.by_peer.get(peer, 0) + size

    def give_back(self, peer: str, size: int) -> None:
        self.used -= size
        left = self.by_peer.get(peer, 0) - size
        if left:
            self.by_peer[peer] = left
        else:
            self.by_peer.pop(peer, None)


@dataclass(slots=True)
class Body:
    """The body of one request while it arrives."""

    budget: Budget
    peer: str
    limit: int
    octets: int = 0
    weight: int = 0

    def take(self, part: bytes) -> None:
        """Count a part. Raises HTTPException if it exceeds a limit."""
        self.octets += len(part)
        if self.octets > self.limit:
            raise too_large(self.limit)
        weight = len(part) + _OBJECT * (part.count(b",") + part.count(b"&"))
        self.budget.add(self.peer, weight)
        self.weight += weight

    def close(self) -> None:
        """Return the memory to the budget, because the request has been answered."""
        self.budget.give_back(self.peer, self.weight)
        self.weight = 0


def too_large(limit: int) -> HTTPException:
    """Return the error for a body of more octets than `limit`."""
    text = f"a request has at most {limit} octets"
    if limit == MAX_OF_STRANGER:
        text += " if its user has not logged on"
    return HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
