"""`lanner deadletter`: messages that could not be delivered."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Annotated

import typer

from lanner.cli.errors import EXIT_ERROR, UsageError, nothing
from lanner.cli.options import (
    All,
    Count,
    DryRun,
    Encoding,
    Json,
    LookupId,
    Raw,
    Yes,
    duration,
    raw_encoding,
)
from lanner.cli.options import lookup_id as read_lookup_id
from lanner.cli.output import confirm, counted, note, progress, say, write_json
from lanner.cli.reading import peek_messages, receive_messages
from lanner.cli.session import Place, open_manager, reaching, walk
from lanner.cli.views import list_messages, show_message
from lanner.client import Message, Queue, QueueManager, ReceivedMessage
from lanner.model.errors import MessageNotFound, QueueNotFound, StatusError

app = typer.Typer(help="Messages that could not be delivered.", no_args_is_help=True)


class Which(enum.StrEnum):
    ALL = "all"
    PLAIN = "plain"
    TRANSACTIONAL = "transactional"


Kind = Annotated[Which, typer.Option("--which", help="Which dead letters.")]


def _queues(manager: QueueManager, which: Which) -> list[Queue]:
    queues = {Which.PLAIN: manager.dead_letter, Which.TRANSACTIONAL: manager.transactional_dead_letter}
    return list(queues.values()) if which is Which.ALL else [queues[which]]


def _holder(manager: QueueManager, which: Which, identifier: str) -> Queue:
    """Return the dead-letter queue that has a message."""
    number = read_lookup_id(identifier)
    for queue in _queues(manager, which):
        try:
            queue.peek_by_lookup_id(number)
        except MessageNotFound:
            continue
        return queue
    raise MessageNotFound(f"no dead letter has the lookup id {identifier}; `lanner deadletter list` shows them")


@app.command("list")
@reaching
def list_dead_letters(*, which: Kind = Which.ALL, count: Count = 1000, at: Place, json: Json = False) -> None:
    """List the dead letters, one per line."""
    with open_manager(at) as manager:
        letters = ((queue.path_name, letter) for queue in _queues(manager, which) for letter in walk(queue, count))
        if not list_messages(letters, as_json=json, with_reason=True):
            raise nothing("there are no dead letters")


@app.command("peek")
@app.command("show", help="The same as peek.")
@reaching
def peek(
    *,
    which: Kind = Which.ALL,
    count: Count = 1,
    everything: All = False,
    lookup_id: LookupId = None,
    raw: Raw = False,
    encoding: Encoding = "utf-8",
    at: Place,
    json: Json = False,
) -> None:
    """Show dead letters and leave them in their queue."""
    _read(
        which,
        None if everything else count,
        lookup_id,
        raw=raw_encoding(raw=raw, encoding=encoding),
        at=at,
        as_json=json,
        is_receive=False,
    )


@app.command()
@reaching
def receive(
    *,
    which: Kind = Which.ALL,
    count: Count = 1,
    everything: All = False,
    lookup_id: LookupId = None,
    raw: Raw = False,
    encoding: Encoding = "utf-8",
    at: Place,
    json: Json = False,
) -> None:
    """Receive dead letters. They leave their queue after they have been written."""
    _read(
        which,
        None if everything else count,
        lookup_id,
        raw=raw_encoding(raw=raw, encoding=encoding),
        at=at,
        as_json=json,
        is_receive=True,
    )


def _read(
    which: Which,
    limit: int | None,
    lookup_id: str | None,
    *,
    raw: str | None,
    at: Place,
    as_json: bool,
    is_receive: bool,
) -> None:
    found = 0
    with open_manager(at) as manager:
        queues = _queues(manager, which) if lookup_id is None else [_holder(manager, which, lookup_id)]
        for queue in queues:
            name = queue.path_name

            def show(message: ReceivedMessage, name: str = name) -> None:
                show_message(message, name, as_json=as_json, raw=raw)

            left = None if limit is None else limit - found
            if left == 0:
                break
            if is_receive:
                found += receive_messages(queue, show, limit=left, timeout=0, lookup_id=lookup_id, where="current")
            else:
                found += peek_messages(queue, show, limit=left, timeout=0, lookup_id=lookup_id, where="current")
    if not found:
        raise nothing("there are no dead letters")


@app.command()
@reaching
def purge(
    *,
    which: Kind = Which.ALL,
    dry_run: DryRun = False,
    yes: Yes = False,
    at: Place,
    json: Json = False,
) -> None:
    """Remove all dead letters."""
    with open_manager(at) as manager:
        queues = _queues(manager, which)
        count = sum(queue.count() for queue in queues)
        if count and not dry_run:
            confirm(f"Remove {counted(count, 'dead letter')}?", yes=yes)
            count = sum(queue.purge() for queue in queues)
    if json:
        write_json({"messages": count, "dry_run": dry_run})
    elif count:
        say(f"{'would remove' if dry_run else 'removed'} {counted(count, 'dead letter')}")
    if not count:
        raise nothing("there are no dead letters")


@app.command("return")
@reaching
def give_back(
    *,
    which: Kind = Which.ALL,
    lookup_id: LookupId = None,
    everything: Annotated[bool, typer.Option("--all", help="All dead letters.")] = False,
    time_to_be_received: Annotated[
        str | None, typer.Option("--ttbr", help="A new time to be received; by default that of the original.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    at: Place,
    json: Json = False,
) -> None:
    """Send dead letters again, to their original queues: one by its lookup id, or all.

    A copy is sent, and the dead letter is removed when the copy is on disk. If the queue refuses
    the copy, the dead letter stays.
    """
    if everything == (lookup_id is not None):
        raise UsageError("return which dead letters? Give --lookup-id or --all")

    def copy_of(letter: ReceivedMessage) -> Message:
        copy = letter.copy()
        if time_to_be_received is not None:
            copy.time_to_be_received = duration(time_to_be_received, "--ttbr")
        return copy

    with open_manager(at) as manager:
        letters = list(_chosen(manager, which, lookup_id))
        if letters and not dry_run and everything:
            confirm(f"Send {counted(len(letters), 'dead letter')} again?", yes=yes)
        sent, refused = 0, 0
        with progress("returning", len(letters)) as advance:
            for queue, identifier in letters:
                advance(1)
                letter = queue.peek_by_lookup_id(identifier)
                try:
                    if not dry_run:
                        _return(manager, queue, letter, copy_of(letter))
                except StatusError as error:
                    note(f"dead letter {identifier} stays: {error}")
                    refused += 1
                    continue
                sent += 1
                if json:
                    line = {"lookup_id": str(identifier), "id": letter.id, "queue": letter.destination_queue}
                    write_json(line | {"dry_run": dry_run})
                else:
                    say(f"{'would send' if dry_run else 'sent'} {letter.id} to {letter.destination_queue}")
    if refused:
        raise typer.Exit(EXIT_ERROR)
    if not sent:
        raise nothing("there are no dead letters")


def _chosen(manager: QueueManager, which: Which, lookup_id: str | None) -> Iterator[tuple[Queue, int]]:
    if lookup_id is not None:
        yield _holder(manager, which, lookup_id), read_lookup_id(lookup_id)
        return
    for queue in _queues(manager, which):
        for letter in walk(queue):
            yield queue, letter.lookup_id


def _return(manager: QueueManager, queue: Queue, letter: ReceivedMessage, copy: Message) -> None:
    """Send the copy, then remove the dead letter: a failure in between leaves two, never none."""
    name = letter.destination_queue
    if name is None:
        raise QueueNotFound("the message names no destination")
    # If the queue is gone, the send reports it; whether a queue of another computer is
    # transactional is unknown.
    needed = manager.open(name).is_transactional()
    target = manager.open(name)
    if letter.is_transactional if needed is None else needed:
        with manager.transaction() as unit:
            target.send(copy, transaction=unit)
    else:
        target.send(copy)
    queue.receive_by_lookup_id(letter.lookup_id)
