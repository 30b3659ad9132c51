"""Dead letters: list them with their reasons, and send them again."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from lanner.aio import Queue, QueueManager
from lanner.client.documents import message_json
from lanner.client.reasons import reason_of
from lanner.http.api.messages import LookupId
from lanner.http.routes import SessionRoute
from lanner.http.sessions import Manager
from lanner.model.errors import MessageNotFound

router = APIRouter(route_class=SessionRoute, tags=["dead letters"])

Which = Annotated[Literal["all", "plain", "transactional"], Query(description="The dead letters of which messages.")]


def _queues(qm: QueueManager, which: str) -> list[Queue]:
    queues = {"plain": qm.dead_letter, "transactional": qm.transactional_dead_letter}
    return list(queues.values()) if which == "all" else [queues[which]]


@router.get("/deadletters")
async def dead_letters(
    qm: Manager, which: Which = "all", limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> list[dict[str, Any]]:
    """The dead letters, each with its reason."""
    letters: list[dict[str, Any]] = []
    for queue in _queues(qm, which):
        if len(letters) < limit:
            found = await queue.find(limit=limit - len(letters))
            letters += [
                {**message_json(letter, queue.path_name), "reason": reason_of(letter.message_class)}
                for letter in found.messages
            ]
    return letters


@router.post("/deadletters/{lookup_id}/return")
async def return_dead_letter(qm: Manager, lookup_id: LookupId, which: Which = "all") -> dict[str, str]:
    """Send a dead letter to the queue that it was for.

    It is removed from the dead-letter queue in the same step.
    """
    for queue in _queues(qm, which):
        try:
            return {"id": await queue.resend(lookup_id)}
        except MessageNotFound:
            continue
    raise MessageNotFound(f"no dead letter has the lookup id {lookup_id}")
