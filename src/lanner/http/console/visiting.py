"""Who looks at the console: the dependency of every page, and the user's samples.

The HTTP process knows sessions; it puts a function into `app.state.visitor` that returns the `Visitor` of a request,
or raises `NotLoggedOn`.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Form, Request

from lanner.http.console.page import Visitor, check_token
from lanner.http.console.samples import Sampler


class NotLoggedOn(Exception):  # noqa: N818 (an answer, not a fault)
    """The request has no session, or one that has ended."""


async def _visitor(request: Request) -> Visitor:
    found: Visitor = await request.app.state.visitor(request)
    return found


async def _acting(request: Request, visitor: Annotated[Visitor, Depends(_visitor)], token: Annotated[str, Form()] = "") -> Visitor:
    """Return who sends a form; the token in it shows that this session asked for it."""
    del request
    check_token(visitor, token)
    return visitor


# For pages, and for what changes something.
Looking = Annotated[Visitor, Depends(_visitor)]
Acting = Annotated[Visitor, Depends(_acting)]


def sampler_of(request: Request, visitor: Visitor) -> Sampler:
    """Return the samples of a user, which are taken from now on."""
    samplers: dict[str, Sampler] = request.app.state.samplers
    found = samplers.get(visitor.name)
    if found is None or found.manager is not visitor.manager:
        found = samplers[visitor.name] = Sampler(visitor.manager)
    return found
