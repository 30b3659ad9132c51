"""`lanner peek` and `lanner receive`, and the same for journals and dead letters."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from lanner.cli.errors import UsageError, nothing
from lanner.cli.options import (
    All,
    Count,
    Encoding,
    Filters,
    Json,
    LookupId,
    QueueName,
    Raw,
    Timeout,
    duration,
    raw_encoding,
)
from lanner.cli.options import lookup_id as read_lookup_id
from lanner.cli.output import progress
from lanner.cli.session import Place, open_manager, reaching, walk
from lanner.cli.views import show_message
from lanner.client import Queue, ReceivedMessage
from lanner.model.enums import MessageSeekAction

# Not in the specification: the number of messages that are received, written, and then removed in
# one commit.
BATCH = 100

Where = Annotated[
    str, typer.Option("--where", help="With --lookup-id: current, next, previous; without: first or last.")
]
Show = Callable[[ReceivedMessage], None]


def _check_where(where: str, lookup_id: str | None) -> None:
    known = [action.value for action in MessageSeekAction]
    if where not in known:
        raise UsageError(f"--where {where}: one of {', '.join(known)}")
    if lookup_id is None and where in ("next", "previous"):
        raise UsageError(f"--where {where} of which message? Give --lookup-id")


def peek_messages(
    queue: Queue,
    show: Show,
    *,
    limit: int | None,
    timeout: float | None,
    lookup_id: str | None,
    where: str,
    filters: list[str] | None = None,
) -> int:
    """Show messages and leave them in the queue; return their number."""
    _check_where(where, lookup_id)
    if filters:
        if lookup_id is not None or where != "current":
            raise UsageError("--filter goes without --lookup-id and --where")
        count = 0
        for message in itertools.islice(_found(queue, filters), limit):
            show(message)
            count += 1
        return count
    if lookup_id is not None or where in ("first", "last"):
        show(queue.peek_by_lookup_id(read_lookup_id(lookup_id or "0"), where))
        return 1
    if timeout != 0:
        # This waits for a message, or raises IOTimeout.
        queue.peek(timeout)
    count = 0
    for message in walk(queue, limit):
        show(message)
        count += 1
    return count


def _found(queue: Queue, filters: list[str]) -> Iterator[ReceivedMessage]:
    """Yield the messages that meet all conditions."""
    after = None
    while True:
        found = queue.find(*filters, after=after)
        yield from found.messages
        if found.after is None:
            return
        after = found.after


def receive_messages(
    queue: Queue,
    show: Show,
    *,
    limit: int | None,
    timeout: float | None,
    lookup_id: str | None,
    where: str,
    filters: list[str] | None = None,
) -> int:
    """Receive messages and return their number.

    They leave the queue after they have been written.
    """
    _check_where(where, lookup_id)
    if filters:
        raise UsageError("--filter looks for messages: use it with peek, and receive one by its --lookup-id")
    if lookup_id is not None or where in ("first", "last"):
        identifier = read_lookup_id(lookup_id or "0")
        with queue.receiving_by_lookup_id(identifier, where) as message:
            _show_all(show, [message])
        return 1
    count = 0
    with progress("receiving", 0 if sys.stdout.isatty() else limit) as advance:
        for size in _batches(limit):
            with queue.receiving(size, timeout if count == 0 else 0) as batch:
                _show_all(show, batch)
            count += len(batch)
            advance(len(batch))
            if len(batch) < size:
                break
    return count


def _batches(limit: int | None) -> Iterator[int]:
    while limit is None or limit > 0:
        size = BATCH if limit is None else min(limit, BATCH)
        yield size
        if limit is not None:
            limit -= size


def _show_all(show: Show, messages: list[ReceivedMessage]) -> None:
    for message in messages:
        show(message)
    sys.stdout.flush()


def _command(name: str, read: Callable[..., int], text: str) -> Callable[..., None]:
    """Return a command with this name and help, which reads with a function above."""

    def command(
        queue: QueueName,
        *,
        count: Count = 1,
        everything: All = False,
        timeout: Timeout = "0",
        lookup_id: LookupId = None,
        where: Where = "current",
        filters: Filters = None,
        raw: Raw = False,
        encoding: Encoding = "utf-8",
        at: Place,
        json: Json = False,
    ) -> None:
        written = raw_encoding(raw=raw, encoding=encoding)
        with open_manager(at) as manager:
            opened = manager.open(queue)
            path_name = opened.path_name
            found = read(
                opened,
                lambda message: show_message(message, path_name, as_json=json, raw=written),
                limit=None if everything else count,
                timeout=duration(timeout, "--timeout"),
                lookup_id=lookup_id,
                where=where,
                filters=filters,
            )
        if not found:
            raise nothing(f"{path_name} is empty")

    command.__name__ = name
    command.__doc__ = text
    return reaching(command)


peek = _command("peek", peek_messages, "Look at messages and leave them in the queue.")
receive = _command(
    "receive", receive_messages, "Take messages out of a queue. They leave it when they have been written."
)
