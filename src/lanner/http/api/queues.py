"""Queues: list, create, change, delete."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict

from lanner.aio import Queue, QueueManager
from lanner.client.documents import queue_json
from lanner.http.names import QueueName, queue_name
from lanner.http.routes import SessionRoute
from lanner.http.sessions import Manager
from lanner.model.enums import INFINITE, QueuePrivacyLevel
from lanner.model.errors import InvalidParameter

router = APIRouter(route_class=SessionRoute, tags=["queues"])


class QueueChanges(BaseModel):
    """Attributes of a queue. Quotas are kilobytes; null means no limit."""

    model_config = ConfigDict(extra="forbid")

    label: str | None = None
    journaling: bool | None = None
    quota_kb: int | None = None
    journal_quota_kb: int | None = None
    authentication: bool | None = None
    privacy_level: Literal["none", "optional", "body"] | None = None
    base_priority: int | None = None
    type: UUID | None = None
    multicast_address: str | None = None

    def attributes(self) -> dict[str, object]:
        """Return the given attributes, by the names of the data model."""
        given: dict[str, object] = {}
        for name in self.model_fields_set & set(QueueChanges.model_fields):
            value = getattr(self, name)
            if name.endswith("quota_kb"):
                given[name.removesuffix("_kb")] = INFINITE if value is None else value
            elif name == "privacy_level":
                given[name] = QueuePrivacyLevel[(value or "optional").upper()]
            elif value is not None or name == "multicast_address":
                given[name] = value
        return given


class NewQueue(QueueChanges):
    """A queue to create."""

    name: str
    transactional: bool = False
    access: dict[str, list[str]] | str | None = None


async def described(qm: QueueManager, queue: Queue) -> dict[str, Any]:
    """Return the document of a queue."""
    found = await queue.attributes()
    return queue_json(found, qm.open(found.pathname).format_name)


@router.get("/queues")
async def queues(
    qm: Manager,
    page: Annotated[int, Query(ge=1)] = 1,
    page_size: Annotated[int, Query(ge=1, le=1000)] = 100,
    name: Annotated[str, Query(description="A part of the name, or a pattern with * and ?.")] = "",
    sort: Annotated[str, Query(description="The column to sort by; with - before it, in descending order.")] = "name",
    columns: Annotated[
        str, Query(description="Names of columns, with commas between them. `oldest` needs a page of at most 100.")
    ] = "",
) -> dict[str, Any]:
    """One page of the queues that the user may see."""
    wanted = [one.strip() for one in columns.split(",") if one.strip()]
    return await qm.queue_page(page=page, page_size=page_size, name=name, sort=sort, columns=wanted or None)


@router.post("/queues", status_code=HTTPStatus.CREATED)
async def create_queue(qm: Manager, queue: NewQueue) -> dict[str, Any]:
    """Create a queue. `access` is rights by account, or SDDL."""
    known = ("label", "journaling", "quota", "journal_quota")
    made = await qm.create_queue(
        queue_name(queue.name),
        transactional=queue.transactional,
        journal=bool(queue.journaling),
        label=queue.label or "",
        quota_kb=queue.quota_kb,
        journal_quota_kb=queue.journal_quota_kb,
        access=queue.access,
        **{name: value for name, value in queue.attributes().items() if name not in known},
    )
    return await described(qm, made)


@router.get("/queues/{name}")
async def queue(qm: Manager, name: QueueName) -> dict[str, Any]:
    """The attributes of a queue, and its numbers of messages."""
    return await described(qm, qm.open(queue_name(name)))


@router.patch("/queues/{name}")
async def change_queue(qm: Manager, name: QueueName, changes: QueueChanges) -> dict[str, Any]:
    """Change attributes. The name, and whether the queue is transactional, cannot be changed."""
    attributes = changes.attributes()
    if not attributes:
        raise InvalidParameter(f"nothing to change: one of {', '.join(QueueChanges.model_fields)}")
    found = qm.open(queue_name(name))
    await found.set(**attributes)
    return await described(qm, found)


@router.delete("/queues/{name}", status_code=HTTPStatus.NO_CONTENT)
async def delete_queue(qm: Manager, name: QueueName) -> Response:
    """Delete a queue with its messages, journal and subqueues."""
    await qm.delete_queue(queue_name(name))
    return Response(status_code=HTTPStatus.NO_CONTENT)
