"""The page that says what an action will do, before it is done: for actions that need one click more and no typing."""

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
    """What is asked.

    An effect is the icon, the state that colours it, a word and the rest of a sentence. `fields`
    are what the form sends to `action` when the answer is yes, beside `confirmed`.
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
    """Return the page."""
    return await render(request, visitor, "confirm.html", question=question)
