"""The memory that requests may take: what comes of a body, and what reading it makes of it.

A body is read before anybody knows whether its user may do what it asks for. So whoever has not
logged on says little, and all requests that are under way share a budget. JSON grows when it is
read: each comma stands for an object of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException

# Not in the specification: octets of a request of somebody who has not logged on, which is room for
# a log-on; and of the others, room for the largest message in base64.
MAX_OF_STRANGER: Final = 16 << 10
MAX_BODY: Final = 8 << 20
# Not in the specification: octets of memory for the requests of one address, and of all.
MAX_OF_PEER: Final = 160 << 20
MAX_IN_ALL: Final = 512 << 20
# What an object costs that has a comma or an ampersand behind it.
_OBJECT: Final = 64


@dataclass(slots=True)
class Budget:
    """What the requests under way take. One thread."""

    used: int = 0
    by_peer: dict[str, int] = field(default_factory=dict)

    def add(self, peer: str, size: int) -> None:
        """Count octets of an address. HTTPException if there is no room for them."""
        if self.used + size > MAX_IN_ALL or self.by_peer.get(peer, 0) + size > MAX_OF_PEER:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "too much is asked for at a time: try again later")
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
    """The body of one request, as it comes."""

    budget: Budget
    peer: str
    limit: int
    octets: int = 0
    weight: int = 0

    def take(self, part: bytes) -> None:
        """Count a part. HTTPException for one that is too much."""
        self.octets += len(part)
        if self.octets > self.limit:
            raise too_large(self.limit)
        weight = len(part) + _OBJECT * (part.count(b",") + part.count(b"&"))
        self.budget.add(self.peer, weight)
        self.weight += weight

    def close(self) -> None:
        """The request was answered."""
        self.budget.give_back(self.peer, self.weight)
        self.weight = 0


def too_large(limit: int) -> HTTPException:
    """Return the error of a body of more octets than `limit`."""
    text = f"a request has at most {limit} octets"
    if limit == MAX_OF_STRANGER:
        text += " if its user has not logged on"
    return HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
