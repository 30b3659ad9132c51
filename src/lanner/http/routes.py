"""What holds for every route of a user who has logged on.

A user has a few requests in progress at a time, and a document has a limited number of values.
Otherwise one user could keep this process, which has one event loop, busy for minutes: with a
hundred requests at once, or with a document of two megabytes. Each value that does not fit its
place makes an error of a kilobyte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, ClassVar, Final

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from lanner.host.fair_threads import FairThreads

# Not in the specification: values in the document of one request. A move of messages has at most
# 10,000 lookup ids.
MAX_VALUES: Final = 20_000
# Not in the specification: requests of one user that are in progress at the same time. Programs
# that send wait for the disk together.
AT_ONCE: Final = 8
# Makes pages, which take up to half a second of the processor and 60 MiB: two at a time for a user.
PAGES: Final = FairThreads()
# The name, in the scope of a request, of the function that lets the user's next one begin.
_LEAVE: Final = "lanner.leave"


@dataclass(slots=True)
class _User:
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    requests: int = 0


class Gates:
    """The gate of each user, which lets a few requests through at a time."""

    def __init__(self) -> None:
        self._users: dict[str, _User] = {}

    async def enter(self, request: Request, user: str) -> None:
        """Wait until a request of a user may begin. `leave` must follow."""
        found = self._users.setdefault(user, _User())
        found.requests += 1
        try:
            await found.room.acquire()
        except BaseException:
            self._forget(user, found)
            raise

        def leave() -> None:
            found.room.release()
            self._forget(user, found)

        request.scope[_LEAVE] = leave

    def _forget(self, user: str, found: _User) -> None:
        found.requests -= 1
        if not found.requests:
            del self._users[user]


def leave(request: Request) -> None:
    """Let the next request of the user begin, unless that was done before."""
    request.scope.pop(_LEAVE, lambda: None)()


class SessionRoute(APIRoute):
    """A route for users who have logged on.

    The next request of the user begins when this one has its answer. The answer may be a stream
    that goes on for long.
    """

    # None: no limit.
    max_values: ClassVar[int | None] = MAX_VALUES

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(_Request(request, self.max_values))
            finally:
                leave(request)

        return answer


class _Request(Request):
    """A request whose document has a limited number of values."""

    def __init__(self, request: Request, max_values: int | None) -> None:
        super().__init__(request.scope, request.receive)
        self._max_values = max_values

    async def json(self) -> Any:  # noqa: ANN401 (as the document is)
        document = await super().json()
        if self._max_values is not None and _has_more(document, self._max_values):
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a document has at most {self._max_values} values"
            )
        return document


def _has_more(document: object, most: int) -> bool:
    """Return whether a document has more values than that."""
    count = 0
    left = [document]
    while left:
        one = left.pop()
        if isinstance(one, dict | list):
            count += len(one)
            if count > most:
                return True
            left.extend(one.values() if isinstance(one, dict) else one)
    return False
