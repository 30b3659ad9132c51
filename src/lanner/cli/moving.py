"""`lanner move`, `copy`, `resend` and `delete`: move, copy or remove messages of a queue."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from lanner.cli.errors import CommandError, UsageError, nothing
from lanner.cli.options import DryRun, Filters, Json, LookupId, QueueName, Yes, duration, lookup_id
from lanner.cli.output import confirm, counted, note, progress, say, write_json
from lanner.cli.session import Place, open_manager, reaching
from lanner.client import Message, Queue, QueueManager
from lanner.model.errors import MessageNotFound, QueueNotFound, StatusError
from lanner.wire.path_name import PathName

# Not in the specification: the number of messages per commit.
BATCH = 500

Everything = Annotated[bool, typer.Option("--all", help="Every message.")]


def selected(
    queue: Queue,
    command: str,
    identifier: str | None,
    filters: list[str] | None,
    *,
    everything: bool,
    count: int | None,
) -> list[int]:
    """Return the lookup ids of the messages that a command selects.

    Raises UsageError unless exactly one way to select them is given.
    """
    if (identifier is not None) + everything + bool(filters) != 1:
        raise UsageError(f"{command} which messages? Give --lookup-id, --filter or --all")
    if identifier is not None:
        number = lookup_id(identifier)
        queue.peek_by_lookup_id(number)
        return [number]
    return list(itertools.islice(matching(queue, filters or []), count))


def matching(queue: Queue, filters: list[str]) -> Iterator[int]:
    """Yield the lookup ids of the messages that meet all conditions."""
    after = None
    while True:
        found = queue.find(*filters, after=after, limit=1000, ids_only=True)
        yield from found.lookup_ids
        if found.after is None:
            return
        after = found.after


def in_batches(what: str, lookup_ids: list[int], work: Callable[[list[int]], object], size: int = BATCH) -> int:
    """Process messages in batches, and return how many of them still existed.

    `work` must process all of a batch or nothing.
    """
    done = 0
    with progress(what, len(lookup_ids)) as advance:
        for first in range(0, len(lookup_ids), size):
            batch = lookup_ids[first : first + size]
            try:
                done += _still_there(batch, work)
            except StatusError as error:
                raise CommandError(f"{what}: {done} of {len(lookup_ids)} messages are done, then: {error}") from error
            advance(len(batch))
    return done


def _still_there(batch: list[int], work: Callable[[list[int]], object]) -> int:
    try:
        work(batch)
    except MessageNotFound:
        if len(batch) == 1:
            return 0
        # Another reader has received some of them meanwhile.
        return sum(_still_there([one], work) for one in batch)
    return len(batch)


def _report(
    verbs: tuple[str, str], path_name: str, target: str | None, count: int, *, dry_run: bool, json: bool
) -> None:
    """Report what was done; `verbs` are the infinitive and the past participle."""
    if json:
        to = {} if target is None else {"target": target}
        write_json({"queue": path_name, **to, "messages": count, "dry_run": dry_run})
    elif count:
        verb = f"would {verbs[0]}" if dry_run else verbs[1]
        say(f"{verb} {counted(count)} from {path_name}" + ("" if target is None else f" to {target}"))
    if not count:
        raise nothing(f"{path_name} has no such message")


def _target_of_move(manager: QueueManager, queue: Queue, target: str | None) -> Queue:
    path = PathName.parse(queue.path_name)
    if target is None:
        if path.subqueue is None:
            raise UsageError(f"move from {path} to which queue or subqueue? Give its name")
        return manager.open(str(path.without_suffix()))
    if "\\" in target or "=" in target:
        return manager.open(target)
    subqueue = manager.open(f"{path.without_suffix()};{target.removeprefix(';')}")
    with suppress(StatusError):
        if not target.startswith(";") and manager.open(target).exists():
            queue_name = f".\\private$\\{target}"
            note(
                f"{target} is a subqueue of {path.without_suffix()} here; for the queue of that name write {queue_name}"
            )
    return subqueue


@reaching
def move(
    queue: QueueName,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help=r"A subqueue by its name, or any queue ('.\private$\other'); without it, from a subqueue back "
            r"to its queue.",
        ),
    ] = None,
    *,
    everything: Everything = False,
    identifier: LookupId = None,
    filters: Filters = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Maximum number of messages; by default all.")
    ] = None,
    dry_run: DryRun = False,
    at: Place,
    json: Json = False,
) -> None:
    """Move messages to a subqueue or to any other queue.

    One by its lookup id, those that a filter finds, or all.
    """
    with open_manager(at) as manager:
        origin = manager.open(queue)
        path_name = origin.path_name
        destination = _target_of_move(manager, origin, target)
        if destination.path_name.lower() == path_name.lower():
            raise UsageError(f"{path_name}: messages cannot be moved to where they are")
        chosen = selected(origin, "move", identifier, filters, everything=everything, count=count)
        moved = len(chosen)
        if not dry_run:
            moved = in_batches("moving", chosen, lambda batch: origin.move_many(batch, destination))
        name = destination.name
    _report(("move", "moved"), path_name, name, moved, dry_run=dry_run, json=json)


@reaching
def copy(
    queue: QueueName,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="The queue that gets the copies.", show_default=False)
    ],
    *,
    identifier: LookupId = None,
    filters: Filters = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Maximum number of messages; by default all.")
    ] = None,
    to_data: Annotated[Path | None, typer.Option("--to-data", help="The data directory of TARGET.")] = None,
    transaction: Annotated[
        bool, typer.Option("--transaction", help="Send to a transactional queue of another computer.")
    ] = False,
    dry_run: DryRun = False,
    at: Place,
    json: Json = False,
) -> None:
    """Copy messages to another queue, also of another data directory.

    A copy has the same content and a new id.
    """
    with ExitStack() as stack:
        manager = stack.enter_context(open_manager(at))
        origin = manager.open(queue)
        path_name = origin.path_name
        other = manager
        if to_data is not None and (at.host is not None or to_data.resolve() != at.data.resolve()):
            other = stack.enter_context(open_manager(Place(to_data)))
        destination = other.open(target)
        if other is manager and destination.path_name.lower() == path_name.lower():
            raise UsageError(f"{path_name}: a queue cannot be copied to itself")
        everything = identifier is None and not filters
        chosen = selected(origin, "copy", identifier, filters, everything=everything, count=count)
        copied = len(chosen)
        work = _copying(origin, destination, other, transaction=transaction, is_elsewhere=other is not manager)
        if not dry_run:
            copied = in_batches("copying", chosen, work)
        name = destination.format_name
    _report(("copy", "copied"), path_name, name, copied, dry_run=dry_run, json=json)


def _copying(
    origin: Queue, destination: Queue, manager: QueueManager, *, transaction: bool, is_elsewhere: bool
) -> Callable[[list[int]], object]:
    """Return the function that copies a batch.

    The queue manager copies, or this program if the target belongs to another queue manager.
    """
    if is_elsewhere:
        # A queue of another computer is not found. If a local one is missing, the first send
        # reports it.
        with suppress(QueueNotFound):
            transaction = transaction or destination.attributes().transactional

    def copy_batch(lookup_ids: list[int]) -> None:
        with ExitStack() as stack:
            unit = stack.enter_context(manager.transaction()) if transaction else None
            if is_elsewhere:
                messages: list[Message] = [origin.peek_by_lookup_id(one).copy() for one in lookup_ids]
                destination.send_many(messages, transaction=unit)
            else:
                origin.copy_many(lookup_ids, destination, transaction=unit)

    return copy_batch


@reaching
def resend(
    queue: QueueName,
    target: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="The queue that gets it; without it, the one that it was sent to."),
    ] = None,
    *,
    identifier: LookupId = None,
    filters: Filters = None,
    everything: Everything = False,
    body: Annotated[str | None, typer.Option("--body", help="The new body, as text.")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="The new body, from a file.")] = None,
    label: Annotated[str | None, typer.Option("--label", help="The new label.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", min=0, max=7, help="The new priority.")] = None,
    recoverable: Annotated[
        bool | None, typer.Option("--recoverable/--express", help="Whether it survives a restart.")
    ] = None,
    time_to_be_received: Annotated[
        str | None, typer.Option("--time-to-be-received", help="How long it may wait: 90, 5m, `forever`.")
    ] = None,
    response_queue: Annotated[str | None, typer.Option("--response-queue", help="Where answers go.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the old message where it is.")] = False,
    dry_run: DryRun = False,
    at: Place,
    json: Json = False,
) -> None:
    """Send messages again, with changes or without.

    The old one is removed in the same step, unless you keep it.
    """
    if body is not None and file is not None:
        raise UsageError("--body or --file, not both")
    given: dict[str, Any] = {
        "body": file.read_bytes() if file is not None else body,
        "label": label,
        "priority": priority,
        "recoverable": recoverable,
        "response_queue": response_queue,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if time_to_be_received is not None:
        changes["time_to_be_received"] = duration(time_to_be_received, "--time-to-be-received")
    with open_manager(at) as manager:
        origin = manager.open(queue)
        path_name = origin.path_name
        to = None if target is None else manager.open(target)
        chosen = selected(origin, "resend", identifier, filters, everything=everything, count=None)
        sent = len(chosen)
        if not dry_run:
            sent = in_batches(
                "resending",
                chosen,
                lambda batch: origin.resend(batch[0], to, keep=keep, **changes),
                size=1,
            )
    _report(("resend", "resent"), path_name, target, sent, dry_run=dry_run, json=json)


@reaching
def delete(
    queue: QueueName,
    *,
    identifier: LookupId = None,
    filters: Filters = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Maximum number of messages; by default all.")
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    at: Place,
    json: Json = False,
) -> None:
    """Delete one message by its lookup id, or those that a filter finds.

    `lanner queue purge` deletes all.
    """
    with open_manager(at) as manager:
        origin = manager.open(queue)
        path_name = origin.path_name
        chosen = selected(origin, "delete", identifier, filters, everything=False, count=count)
        deleted = len(chosen)
        if not dry_run and chosen:
            confirm(f"Delete {counted(deleted)} from {path_name}?", yes=yes)
            deleted = in_batches("deleting", chosen, lambda batch: origin.delete(*batch))
    _report(("delete", "deleted"), path_name, None, deleted, dry_run=dry_run, json=json)
