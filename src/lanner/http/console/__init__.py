"""The web console: HTML pages for people, with the rights of the logged-on user.

Each page module queries the queue manager through `lanner.client`, puts the answer into words
(`words`), and renders a template. Templates escape everything; the policy in `lanner.http.guards`
allows no inline script and no inline style.
"""

from fastapi import APIRouter

from lanner.http.console import (
    accounts,
    connections,
    dead_letters,
    entry,
    live,
    machine,
    message_actions,
    pages,
    queue_pages,
    reports,
    tracing,
)
from lanner.http.console.visiting import no_page

router = APIRouter()
for _part in (
    entry,
    accounts,
    connections,
    live,
    machine,
    pages,
    queue_pages,
    message_actions,
    dead_letters,
    tracing,
    reports,
):
    router.include_router(_part.router)

__all__ = ["no_page", "router"]
