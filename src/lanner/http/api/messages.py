"""The messages of a queue: list, read, send, move, copy, resend, remove.

A lookup id is a string: it has 64 bits, and many JSON parsers keep only 53.
"""

from __future__ import annotations

import base64
import binascii
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict

from lanner.aio import Queue, QueueManager
from lanner.client.documents import message_json
from lanner.client.message import Message
from lanner.http.names import QueueName, queue_name
from lanner.http.routes import SessionRoute
from lanner.http.sessions import Manager
from lanner.model.errors import InvalidParameter

router = APIRouter(route_class=SessionRoute, tags=["messages"])

LookupId = Annotated[int, Path(ge=0, description="The lookup id of a message.")]


class NewMessage(BaseModel):
    """A message to send, or changes to one that is sent again.

    Times are seconds; null means no limit.
    """

    model_config = ConfigDict(extra="forbid")

    body: str | None = None
    # The encoding of `body`: text, or base64 for octets.
    body_encoding: str = "text"
    body_type: int | None = None
    label: str | None = None
    priority: int | None = None
    recoverable: bool | None = None
    time_to_reach_queue: float | None = None
    time_to_be_received: float | None = None
    use_dead_letter_queue: bool | None = None
    use_journal_queue: bool | None = None
    use_tracing: bool | None = None
    tracing_queue: str | None = None
    acknowledge: str | None = None
    administration_queue: str | None = None
    response_queue: str | None = None
    correlation_id: str | None = None
    app_specific: int | None = None
    # Octets in base64.
    extension: str | None = None
    authenticate: bool | None = None
    encrypt: bool | None = None

    def fields(self) -> dict[str, Any]:
        """Return the given fields, by the names of `Message`."""
        given = {name: getattr(self, name) for name in self.model_fields_set & set(NewMessage.model_fields)}
        encoding = given.pop("body_encoding", "text")
        if encoding not in ("text", "base64"):
            raise InvalidParameter(f"body_encoding {encoding!r}: text or base64")
        if given.get("body") is not None and encoding == "base64":
            given["body"] = _octets(given["body"], "body")
        if given.get("extension") is not None:
            given["extension"] = _octets(given["extension"], "extension")
        return given

    def message(self) -> Message:
        """Return the message."""
        given = {name: value for name, value in self.fields().items() if value is not None or name.startswith("time_")}
        try:
            return Message(**given)
        except (TypeError, ValueError) as error:
            raise InvalidParameter(str(error)) from error


class Target(BaseModel):
    """The destination of messages."""

    model_config = ConfigDict(extra="forbid")

    target: str


class Resend(BaseModel):
    """A message to send again, with changes; a null target is the queue that it was sent to."""

    model_config = ConfigDict(extra="forbid")

    target: str | None = None
    keep: bool = False
    changes: NewMessage = NewMessage()


class Passing(BaseModel):
    """Messages to move or copy: by lookup ids, or by conditions that they meet."""

    model_config = ConfigDict(extra="forbid")

    target: str
    lookup_ids: list[str] | None = None
    filter: list[str] | None = None
    limit: int = 1000


def _octets(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidParameter(f"{what} is not base64") from None


def conditions(**given: object) -> list[str]:
    """Return the conditions of `Queue.find` for the given parameters."""
    signs = {"label": "label~", "body": "body~", "class_": "class=", "sender": "sender="}
    times = {"since": "arrived>=", "until": "arrived<="}
    return [f"{sign}{given[name]}" for name, sign in (signs | times).items() if given.get(name) is not None]


def target_of(text: str) -> str:
    """Return the target queue; a private queue of this computer needs no computer name."""
    return queue_name(text)


async def send(qm: QueueManager, queue: Queue, message: Message) -> str:
    """Send a message, in its own transaction if the queue is transactional."""
    if not await queue.is_transactional():
        return await queue.send(message)
    async with qm.transaction() as unit:
        return await queue.send(message, transaction=unit)


@router.get("/queues/{name}/messages")
async def messages(
    qm: Manager,
    name: QueueName,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: Annotated[int | None, Query(description="`after` of the answer before.")] = None,
    scan: Annotated[int, Query(ge=1, le=100_000, description="Messages that are looked at for one answer.")] = 10_000,
    label: Annotated[str | None, Query(description="A part of the label.")] = None,
    body: Annotated[str | None, Query(description="A part of the body's text.")] = None,
    class_: Annotated[str | None, Query(alias="class", description="The class, such as normal.")] = None,
    sender: Annotated[str | None, Query(description="An account or a SID.")] = None,
    since: Annotated[str | None, Query(description="Arrived then or later, such as 2026-11-18T10:00.")] = None,
    until: Annotated[str | None, Query(description="Arrived then or earlier.")] = None,
    filter_: Annotated[list[str] | None, Query(alias="filter", description="Conditions, such as priority>=4.")] = None,
) -> dict[str, Any]:
    """Messages that meet all conditions; they stay in the queue.

    At most `scan` messages are examined. Unless it is null, pass `after` of the answer to continue
    after the last of them.
    """
    queue = qm.open(queue_name(name))
    given = conditions(label=label, body=body, class_=class_, sender=sender, since=since, until=until)
    found = await queue.find(*given, *(filter_ or []), after=after, limit=limit, scan=scan)
    return {
        "messages": [message_json(message, queue.path_name) for message in found.messages],
        "scanned": found.scanned,
        "after": None if found.after is None else str(found.after),
    }


@router.post("/queues/{name}/messages", status_code=HTTPStatus.CREATED)
async def send_message(qm: Manager, name: QueueName, message: NewMessage) -> dict[str, Any]:
    """Send a message. A recoverable one is on disk when this answers."""
    return {"id": await send(qm, qm.open(queue_name(name)), message.message())}


@router.delete("/queues/{name}/messages")
async def purge(qm: Manager, name: QueueName) -> dict[str, int]:
    """Remove every message of a queue."""
    return {"messages": await qm.open(queue_name(name)).purge()}


@router.post("/queues/{name}/messages/move")
async def move_many(qm: Manager, name: QueueName, passing: Passing) -> dict[str, int]:
    """Move messages to any queue: by lookup ids, or the first that meet conditions."""
    queue = qm.open(queue_name(name))
    chosen = await _chosen(queue, passing)
    if chosen:
        await queue.move_many(chosen, target_of(passing.target))
    return {"messages": len(chosen)}


@router.post("/queues/{name}/messages/copy")
async def copy_many(qm: Manager, name: QueueName, passing: Passing) -> dict[str, int]:
    """Send copies of messages to any queue; the originals stay."""
    queue = qm.open(queue_name(name))
    chosen = await _chosen(queue, passing)
    if chosen:
        await queue.copy_many(chosen, target_of(passing.target))
    return {"messages": len(chosen)}


async def _chosen(queue: Queue, passing: Passing) -> list[int]:
    if (passing.lookup_ids is None) == (passing.filter is None):
        raise InvalidParameter("which messages? Give `lookup_ids`, or `filter` with conditions")
    if passing.lookup_ids is not None:
        try:
            return [int(one) for one in passing.lookup_ids]
        except ValueError:
            raise InvalidParameter("`lookup_ids` are numbers as texts") from None
    found = await queue.find(*(passing.filter or []), limit=passing.limit, ids_only=True)
    return found.lookup_ids


@router.get("/queues/{name}/messages/{lookup_id}")
async def message(qm: Manager, name: QueueName, lookup_id: LookupId) -> dict[str, Any]:
    """One message, which stays in the queue."""
    queue = qm.open(queue_name(name))
    return message_json(await queue.peek_by_lookup_id(lookup_id), queue.path_name)


@router.delete("/queues/{name}/messages/{lookup_id}", status_code=HTTPStatus.NO_CONTENT)
async def delete_message(qm: Manager, name: QueueName, lookup_id: LookupId) -> Response:
    """Remove one message."""
    await qm.open(queue_name(name)).delete(lookup_id)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.post("/queues/{name}/messages/{lookup_id}/move")
async def move_message(qm: Manager, name: QueueName, lookup_id: LookupId, to: Target) -> dict[str, int]:
    """Move one message to a subqueue (by its short name), or to any queue."""
    await qm.open(queue_name(name)).move(lookup_id, target_of(to.target))
    return {"messages": 1}


@router.post("/queues/{name}/messages/{lookup_id}/copy")
async def copy_message(qm: Manager, name: QueueName, lookup_id: LookupId, to: Target) -> dict[str, str]:
    """Send a copy of a message to any queue."""
    (sent,) = await qm.open(queue_name(name)).copy_many([lookup_id], target_of(to.target))
    return {"id": sent}


@router.post("/queues/{name}/messages/{lookup_id}/resend")
async def resend_message(qm: Manager, name: QueueName, lookup_id: LookupId, how: Resend) -> dict[str, str]:
    """Send a message again, with changes.

    The original is removed in the same step, unless it is kept.
    """
    target = None if how.target is None else target_of(how.target)
    queue = qm.open(queue_name(name))
    return {"id": await queue.resend(lookup_id, target, keep=how.keep, **how.changes.fields())}
