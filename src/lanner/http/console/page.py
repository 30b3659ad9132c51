"""What every page has: who looks at it, the frame around it, its headers, and notices of what was done.

The one thing a maintainer must know: the policy in `lanner.http.guards` allows scripts and styles
from this process only, none inline, so a template that has a `style` attribute or an event handler
does not work in a browser.
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
from lanner.model.enums import OutgoingState
from lanner.model.errors import LannerError
from lanner.security.roles import Role

if TYPE_CHECKING:
    from lanner.client._async.queue import Queue
    from lanner.client._async.queue_manager import QueueManager
    from lanner.http.console.samples import Sampler

# Seconds for which the names of users are good.
_NAMES_LIFE: Final = 60.0
HERE: Final = Path(__file__).parent
# Without a referrer, a browser names the origin of a form as "null", as if another site had sent
# it.
_HEADERS: Final = {"Referrer-Policy": "same-origin"}
_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=True,
    # They do not change while the process runs.
    auto_reload=False,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters.update(FILTERS)
# The computer in a path name: what stands before private$ or before the name of a public queue.
_COMPUTER: Final = re.compile(r"^(?!private\$\\)[^\\=]+\\", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Notice:
    """What was done, for the next page: a sentence, and where its result is."""

    text: str
    name: str = ""
    href: str = ""


@dataclass(slots=True)
class Visitor:
    """The user who looks at a page: the connection that has this user's rights, and the session's CSRF token.

    There is one for each session. Its samples and notices stay for the next page.
    """

    manager: QueueManager
    name: str
    role: str
    # Whether it sees what an administrator sees: sessions, other computers, checks.
    sees_all: bool
    csrf: str
    sampler: Sampler
    notices: list[Notice] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)
    _named_at: float = -math.inf

    async def names(self) -> dict[str, str]:
        """Return the names of users by their SIDs, as far as this user may see accounts."""
        if self.sees_all and time.monotonic() - self._named_at > _NAMES_LIFE:
            self._named_at = time.monotonic()
            self._names = {one["sid"]: one["name"] for one in await self.manager.users()}
        return self._names

    @property
    def is_administrator(self) -> bool:
        return self.role == Role.ADMINISTRATOR

    @property
    def operates(self) -> bool:
        """Whether it may end sessions, pause outgoing queues, and take the queue manager offline."""
        return self.role in (Role.OPERATOR, Role.ADMINISTRATOR)

    def told(self) -> list[Notice]:
        """Return the notices that were not shown yet."""
        notices, self.notices[:] = list(self.notices), []
        return notices


@dataclass(frozen=True, slots=True)
class Frame:
    """The counts beside the names of the pages; None where the user may not know them."""

    queues: int | None
    dead_letters: int | None
    outgoing: int | None
    stuck: int


def url(path: str, **query: object) -> str:
    """Return an address with a query; what is None or empty stays out."""
    given = {name: value for name, value in query.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def queue_url(name: str, **query: object) -> str:
    """Return the page of a queue."""
    return url("/queue", name=name, **query)


def local_name(path_name: str) -> str:
    r"""Return a path name without the computer: `ALPHA\private$\orders` is `private$\orders`."""
    return _COMPUTER.sub("", path_name)


def short_name(path_name: str) -> str:
    """Return the last part of a queue's name, which a person types to confirm."""
    return path_name.rpartition("\\")[2]


def split_name(path_name: str) -> tuple[str, str]:
    """Return the grey part of a name and the part that matters."""
    local = local_name(path_name)
    head, slash, tail = local.rpartition("\\")
    return head + slash, tail


def shell(*words: object) -> str:
    """Return a command line that a shell takes as these words, whatever is in them."""
    return shlex.join(map(str, words))


def here_name(name: str) -> str:
    r"""Return a name for a command: `private$\orders` is `.\private$\orders`."""
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
    """Count what the navigation shows, without looking at any message."""
    told = await visitor.manager.overview()
    sample = visitor.sampler.last
    stuck = 0 if sample is None else sum(is_stuck(one) for one in sample.outgoing)
    return Frame(told["queues"], told.get("dead_letters"), told.get("outgoing_queues"), stuck)


async def count_dead_letters(manager: QueueManager) -> list[int]:
    """Return how many dead letters there are, ordinary and transactional."""
    return list(await asyncio.gather(_count(manager.dead_letter), _count(manager.transactional_dead_letter)))


async def _count(queue: Queue) -> int:
    async with queue:
        return await queue.count()


def is_stuck(outgoing: dict[str, Any]) -> bool:
    """Whether messages wait in an outgoing queue because of a problem.

    Nobody needs to help one that was paused.
    """
    is_paused = outgoing["state"] == OutgoingState.ON_HOLD.value
    return bool(outgoing["messages"]) and outgoing["problem"] is not None and not is_paused


async def render(
    request: Request, visitor: Visitor, template: str, *, status: int = 200, **values: object
) -> HTMLResponse:
    """Return a page in its frame; only what is inside, if htmx asks for a part."""
    part = request.headers.get("HX-Request") == "true" and "part" in values
    text = _TEMPLATES.get_template(str(values["part"]) if part else template).render(
        visitor=visitor,
        frame=None if part else await frame(visitor),
        notices=[] if part else visitor.told(),
        here=request.url.path,
        manager_name=visitor.manager.name,
        **values,
    )
    return HTMLResponse(text, status, _HEADERS)


def plain_page(template: str, *, status: int = 200, **values: object) -> HTMLResponse:
    """Return a page for someone who has not logged on."""
    return HTMLResponse(_TEMPLATES.get_template(template).render(**values), status, _HEADERS)


def done(visitor: Visitor, to: str, text: str, *, name: str = "", href: str = "") -> RedirectResponse:
    """Go to a page after an action, and say there what was done."""
    visitor.notices.append(Notice(text, name, href))
    return RedirectResponse(to, status_code=303)


def explain(error: LannerError) -> tuple[str, str]:
    """Return the text of an error and MSMQ's name of its status."""
    status = getattr(error, "status", None)
    return str(error), "" if status is None else f"{type(error).__name__}, {status:#010x}"


def lookup_ids(values: Sequence[str]) -> list[int]:
    """Return lookup identifiers from a form, where one field may have many: a form has few fields."""
    try:
        return [int(one) for value in values for one in value.split(",") if one]
    except ValueError:
        raise HTTPException(400, "A lookup id is a number.") from None


def chosen(count: int) -> str:
    """Return how many messages were chosen, in words."""
    return plural(count, "message")
