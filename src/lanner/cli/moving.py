"""`lanner move` and `lanner copy`: messages from one queue to another."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated

import typer

from lanner.cli.errors import CommandError, UsageError, nothing
from lanner.cli.options import DryRun, Json, LookupId, QueueName, lookup_id
from lanner.cli.output import counted, progress, say, write_json
from lanner.cli.session import Place, open_manager, reaching, walk
from lanner.client import Message, Queue, QueueManager
from lanner.model.errors import QueueNotFound, StatusError
from lanner.wire.path_name import PathName

# Ours: messages of one commit.
BATCH = 500


def _target_of_move(manager: QueueManager, queue: Queue, target: str | None) -> Queue:
    path = PathName.parse(queue.path_name)
    if target is None:
        if path.subqueue is None:
            raise UsageError(f"move from {path} to which subqueue? Give its name")
        return manager.open(str(path.without_suffix()))
    if "\\" in target or "=" in target:
        return manager.open(target)
    return manager.open(f"{path.without_suffix()};{target.removeprefix(';')}")


@reaching
def move(
    queue: QueueName,
    target: Annotated[
        str | None,
        typer.Argument(metavar="SUBQUEUE", help="A subqueue; without it, from a subqueue back to its queue."),
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every message.")] = False,
    identifier: LookupId = None,
    dry_run: DryRun = False,
    at: Place,
    json: Json = False,
) -> None:
    """Move messages between a queue and its subqueues: one by its lookup id, or all."""
    if everything == (identifier is not None):
        raise UsageError("move which messages? Give --lookup-id or --all")
    with open_manager(at) as manager:
        origin = manager.open(queue)
        path_name = origin.path_name
        destination = _target_of_move(manager, origin, target)
        if destination.exists() and destination.path_name == path_name:
            raise UsageError(f"{path_name}: messages cannot be moved to where they are")
        count = 0
        if identifier is not None:
            number = lookup_id(identifier)
            origin.peek_by_lookup_id(number)
            if not dry_run:
                origin.move_many([number], destination)
            count = 1
        else:
            count = origin.count()
            if not dry_run:
                count = _move_all(origin, destination)
        name = destination.name
    if json:
        write_json({"queue": path_name, "target": name, "messages": count, "dry_run": dry_run})
    elif count:
        say(f"{'would move' if dry_run else 'moved'} {counted(count)} from {path_name} to {name}")
    if not count:
        raise nothing(f"{path_name} is empty")


def _move_all(origin: Queue, destination: Queue) -> int:
    moved = 0
    with progress("moving", origin.count()) as advance:
        while identifiers := [message.lookup_id for message in walk(origin, BATCH)]:
            origin.move_many(identifiers, destination)
            moved += len(identifiers)
            advance(len(identifiers))
    return moved


def _send_batch(manager: QueueManager, target: Queue, batch: list[Message], *, transactional: bool) -> None:
    if transactional:
        with manager.transaction() as unit:
            target.send_many(batch, transaction=unit)
    else:
        target.send_many(batch)


def _copies(origin: Queue, limit: int | None) -> Iterable[Message]:
    return (message.copy() for message in walk(origin, limit))


@reaching
def copy(
    queue: QueueName,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="The queue that gets the copies.", show_default=False)
    ],
    *,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="How many at most; else all.")] = None,
    to_data: Annotated[Path | None, typer.Option("--to-data", help="The data directory of TARGET.")] = None,
    transaction: Annotated[
        bool, typer.Option("--transaction", help="Send to a transactional queue of another computer.")
    ] = False,
    dry_run: DryRun = False,
    at: Place,
    json: Json = False,
) -> None:
    """Copy messages to another queue, also of another data directory. A copy has the same content and a new id."""
    with ExitStack() as stack:
        manager = stack.enter_context(open_manager(at))
        origin = manager.open(queue)
        path_name = origin.path_name
        other = manager
        if to_data is not None and (at.host is not None or to_data.resolve() != at.data.resolve()):
            other = stack.enter_context(open_manager(Place(to_data)))
        destination = other.open(target)
        transactional = transaction
        # A queue of another computer is not found; one that should be here is told by the first send.
        with suppress(QueueNotFound):
            found = other.open(target).attributes()
            transactional = transactional or found.transactional
            if other is manager and found.pathname == path_name:
                raise UsageError(f"{path_name}: a queue cannot be copied to itself")
        total = origin.count() if count is None else min(count, origin.count())
        copied = total if dry_run else 0
        if not dry_run:
            messages = iter(_copies(origin, total))
            with progress("copying", total) as advance:
                while batch := list(itertools.islice(messages, BATCH)):
                    try:
                        _send_batch(other, destination, batch, transactional=transactional)
                    except StatusError as error:
                        raise CommandError(f"{copied} of {total} messages are copied, then: {error}") from error
                    copied += len(batch)
                    advance(len(batch))
        name = destination.format_name
    if json:
        write_json({"queue": path_name, "target": name, "messages": copied, "dry_run": dry_run})
    elif copied:
        say(f"{'would copy' if dry_run else 'copied'} {counted(copied)} from {path_name} to {name}")
    if not copied:
        raise nothing(f"{path_name} is empty")
