"""The page that explains an action before it is done, for actions that need one more click."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lanner.http.console.page import render

if TYPE_CHECKING:
    from fastapi import Request
    from starlette.responses import Response

    from lanner.http.console.page import Visitor


@dataclass(frozen=True, slots=True)
class Question:
    """A request for confirmation.

    An effect is an icon, the state that colours it, a word, and the rest of a sentence. `fields`
    are what the form sends to `action` when the user confirms, in addition to `confirmed`.
    """

    title: str
    subject: str
    verb: str
    action: str
    back: str
    effects: tuple[tuple[str, str, str, str], ...]
    fields: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    is_destructive: bool = True


async def ask(request: Request, visitor: Visitor, question: Question) -> Response:
    """Return the confirmation page."""
    return await render(request, visitor, "confirm.html", question=question)
