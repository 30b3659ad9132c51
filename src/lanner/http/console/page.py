"""The common parts of all pages: the visitor, the frame, headers, and notices of past actions.

The one thing a maintainer must know: the policy in `lanner.http.guards` allows scripts and styles
from this process only, none inline. A template with a `style` attribute or an event handler
therefore does not work in a browser.
"""

from __future__ import annotations

import asyncio
import math
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from fastapi import HTTPException, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse

from lanner.http.console.words import FILTERS, plural
from lanner.http.routes import PAGES
from lanner.model.enums import OutgoingState
from lanner.model.errors import LannerError
from lanner.security.printable import printable
from lanner.security.roles import Role

if TYPE_CHECKING:
    from lanner.client._async.queue import Queue
    from lanner.client._async.queue_manager import QueueManager
    from lanner.http.console.samples import Sampler

# Seconds for which the names of users are cached.
_NAMES_LIFE: Final = 60.0
HERE: Final = Path(__file__).parent
# With "no-referrer", a browser would send a form's origin as "null", as if another site had sent
# it.
_HEADERS: Final = {"Referrer-Policy": "same-origin"}
_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=True,
    # Templates do not change while the process runs.
    auto_reload=False,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters.update(FILTERS)
# Characters that control a terminal, reorder a line, or are half of a surrogate pair; and the parts
# of a page whose characters a form sends back.
_HIDDEN: Final = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_HIDDEN_OR_SENT: Final = re.compile(rf'(value="[^"]*"|<textarea.*?</textarea>)|{_HIDDEN.pattern}', re.DOTALL)
_HALF: Final = re.compile("[\ud800-\udfff]")
# The computer in a path name: the part before private$ or before the name of a public queue.
_COMPUTER: Final = re.compile(r"^(?!private\$\\)[^\\=]+\\", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice of a past action for the next page: a sentence, and a link to the result."""

    text: str
    name: str = ""
    href: str = ""


@dataclass(slots=True)
class Visitor:
    """The user of a page: the connection with this user's rights, and the session's CSRF token.

    There is one visitor per session. Its samples and notices stay for the next page.
    """

    manager: QueueManager
    name: str
    role: str
    # Whether the user sees what an administrator sees: sessions, other computers, checks.
    sees_all: bool
    csrf: str
    sampler: Sampler
    notices: list[Notice] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)
    _named_at: float = -math.inf

    async def names(self) -> dict[str, str]:
        """Return the names of users by their SIDs, if this user may see accounts."""
        if self.sees_all and time.monotonic() - self._named_at > _NAMES_LIFE:
            self._named_at = time.monotonic()
            self._names = {one["sid"]: one["name"] for one in await self.manager.users()}
        return self._names

    @property
    def is_administrator(self) -> bool:
        return self.role == Role.ADMINISTRATOR

    @property
    def operates(self) -> bool:
        """Whether the user may end sessions, pause outgoing queues, and go offline."""
        return self.role in (Role.OPERATOR, Role.ADMINISTRATOR)

    def told(self) -> list[Notice]:
        """Return the notices that have not been shown, and clear them."""
        notices, self.notices[:] = list(self.notices), []
        return notices


@dataclass(frozen=True, slots=True)
class Frame:
    """The counts beside the page names; None where the user may not see them."""

    queues: int | None
    dead_letters: int | None
    outgoing: int | None
    stuck: int


def url(path: str, **query: object) -> str:
    """Return a URL with a query, without parameters that are None, False or empty."""
    given = {name: value for name, value in query.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(given, doseq=True, errors='replace')}" if given else path


def queue_url(name: str, **query: object) -> str:
    """Return the URL of a queue's page."""
    return url("/queue", name=name, **query)


def local_name(path_name: str) -> str:
    r"""Return a path name without the computer: `ALPHA\private$\orders` is `private$\orders`."""
    return _COMPUTER.sub("", path_name)


def short_name(path_name: str) -> str:
    """Return the last part of a queue's name, which a user types to confirm."""
    return path_name.rpartition("\\")[2]


def split_name(path_name: str) -> tuple[str, str]:
    """Return the part of a name to show in grey, and the main part."""
    local = local_name(path_name)
    head, slash, tail = local.rpartition("\\")
    return head + slash, tail


def shell(*words: object) -> str:
    """Return a command line that a shell splits into exactly these words."""
    return shlex.join(map(str, words))


def here_name(name: str) -> str:
    r"""Return a name for a command: `private$\orders` becomes `.\private$\orders`."""
    return name if "=" in name else f".\\{local_name(name)}"


_TEMPLATES.globals.update(
    shell=shell,
    here_name=here_name,
    url=url,
    queue_url=queue_url,
    local_name=local_name,
    short_name=short_name,
    split_name=split_name,
)


async def frame(visitor: Visitor) -> Frame:
    """Return the counts for the navigation, without reading any message."""
    told = await visitor.manager.overview()
    sample = visitor.sampler.last
    stuck = 0 if sample is None else sum(is_stuck(one) for one in sample.outgoing)
    return Frame(told["queues"], told.get("dead_letters"), told.get("outgoing_queues"), stuck)


async def count_dead_letters(manager: QueueManager) -> list[int]:
    """Return the numbers of ordinary and of transactional dead letters."""
    return list(await asyncio.gather(_count(manager.dead_letter), _count(manager.transactional_dead_letter)))


async def _count(queue: Queue) -> int:
    async with queue:
        return await queue.count()


def is_stuck(outgoing: dict[str, Any]) -> bool:
    """Return whether messages wait in an outgoing queue because of a problem.

    A paused queue is not stuck.
    """
    is_paused = outgoing["state"] == OutgoingState.ON_HOLD.value
    return bool(outgoing["messages"]) and outgoing["problem"] is not None and not is_paused


async def render(
    request: Request, visitor: Visitor, template: str, *, status: int = 200, **values: object
) -> HTMLResponse:
    """Return a page in its frame; only the inner part if htmx requests it."""
    part = request.headers.get("HX-Request") == "true" and "part" in values
    page = _TEMPLATES.get_template(str(values["part"]) if part else template)
    shown: dict[str, object] = {
        "visitor": visitor,
        "frame": None if part else await frame(visitor),
        "notices": [] if part else visitor.told(),
        "here": request.url.path,
        "manager_name": visitor.manager.name,
        **values,
    }
    return await PAGES.run(visitor.name, lambda: HTMLResponse(_visible(page.render(shown)), status, _HEADERS))


def plain_page(template: str, *, status: int = 200, **values: object) -> HTMLResponse:
    """Return a page for a user who has not logged on."""
    return HTMLResponse(_visible(_TEMPLATES.get_template(template).render(**values)), status, _HEADERS)


def _visible(text: str) -> str:
    """Return a page on which the characters that peers may have hidden in a text are shown.

    Otherwise a name can pass for another one.
    """
    if _HIDDEN.search(text) is None:
        return text
    shown = _HIDDEN_OR_SENT.sub(lambda found: found[1] or printable(found[0]), text)
    return _HALF.sub("\ufffd", shown)


def done(visitor: Visitor, to: str, text: str, *, name: str = "", href: str = "") -> RedirectResponse:
    """Redirect to a page after an action, which shows the notice of it."""
    visitor.notices.append(Notice(text, name, href))
    return RedirectResponse(to, status_code=303)


def explain(error: LannerError) -> tuple[str, str]:
    """Return the text of an error and MSMQ's name of its status."""
    status = getattr(error, "status", None)
    if status is None:
        return str(error), ""
    # The text of the error ends with the status.
    return str(error.args[0]), f"{type(error).__name__}, {status:#010x}"


def lookup_ids(values: Sequence[str]) -> list[int]:
    """Return lookup identifiers from a form.

    One field may have many, because the number of fields in a form is limited.
    """
    try:
        return [int(one) for value in values for one in value.split(",") if one]
    except ValueError:
        raise HTTPException(400, "A lookup id is a number.") from None


def chosen(count: int) -> str:
    """Return how many messages are selected, in words."""
    return plural(count, "message")
