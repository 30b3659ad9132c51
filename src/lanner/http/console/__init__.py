"""The web console: pages that the HTTP process renders for people, with the rights of the user that logged on.

Each page module asks the queue manager through `lanner.client`, brings the answer into words
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

__all__ = ["router"]
