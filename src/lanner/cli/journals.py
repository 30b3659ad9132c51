"""`lanner journal`: copies of received messages, and of sent messages that requested a copy."""

from __future__ import annotations

from typing import Annotated

import typer

from lanner.cli.errors import UsageError, nothing
from lanner.cli.options import All, DryRun, Encoding, Json, LookupId, Raw, Yes, raw_encoding
from lanner.cli.queues import purge_queue
from lanner.cli.reading import peek_messages, receive_messages
from lanner.cli.session import Place, open_manager, reaching, walk
from lanner.cli.views import list_messages, show_message
from lanner.client import Queue, QueueManager, ReceivedMessage


def _journal(manager: QueueManager, queue: str | None) -> Queue:
    return manager.system_journal if queue is None else manager.open(queue).journal


@reaching
def journal(
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="The queue; without it, the system journal.")
    ] = None,
    *,
    peek: Annotated[bool, typer.Option("--peek", help="Show messages whole.")] = False,
    receive: Annotated[bool, typer.Option("--receive", help="Receive messages.")] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Remove all messages.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Maximum number: 1 to peek or receive, 1000 to list.")
    ] = None,
    everything: All = False,
    lookup_id: LookupId = None,
    raw: Raw = False,
    encoding: Encoding = "utf-8",
    dry_run: DryRun = False,
    yes: Yes = False,
    at: Place,
    json: Json = False,
) -> None:
    """List a queue's journal, or peek at, receive or purge its messages."""
    if peek + receive + purge > 1:
        raise UsageError("one of --peek, --receive and --purge")
    if dry_run and not purge:
        raise UsageError("--dry-run goes with --purge; --peek shows what --receive would take")
    written = raw_encoding(raw=raw, encoding=encoding)
    with open_manager(at) as manager:
        opened = _journal(manager, queue)
        name = opened.path_name

        def show(message: ReceivedMessage) -> None:
            show_message(message, name, as_json=json, raw=written)

        if purge:
            purge_queue(manager, opened.name, dry_run=dry_run, yes=yes, as_json=json)
            return
        if receive:
            limit = None if everything else count or 1
            found = receive_messages(opened, show, limit=limit, timeout=0, lookup_id=lookup_id, where="current")
        elif peek or raw or lookup_id is not None:
            limit = None if everything else count or 1
            found = peek_messages(opened, show, limit=limit, timeout=0, lookup_id=lookup_id, where="current")
        else:
            limit = None if everything else count or 1000
            found = list_messages(((name, message) for message in walk(opened, limit)), as_json=json)
    if not found:
        raise nothing(f"{name} is empty")
