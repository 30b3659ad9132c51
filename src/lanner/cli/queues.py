"""`lanner queue`: list, create, show, change, delete and purge queues."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lanner.cli import access as access_command
from lanner.cli.access import read_access
from lanner.cli.errors import Group, UsageError, nothing
from lanner.cli.options import DryRun, Json, QueueName, Yes, guid, kilobytes
from lanner.cli.output import confirm, counted, progress, say, write_json
from lanner.cli.session import Place, open_manager, reaching
from lanner.cli.views import show_queue, show_queues
from lanner.client import QueueManager
from lanner.client.documents import queue_json
from lanner.engine.queue_properties import BASE_PRIORITIES, MAX_LABEL_LENGTH
from lanner.model.directory_objects import Queue
from lanner.model.enums import QueuePrivacyLevel
from lanner.model.errors import QueueExists

app = typer.Typer(help="Queues: list, create, show, change, purge, delete; access lists.", no_args_is_help=True)
app.add_typer(access_command.app, name="access", cls=Group)

Label = Annotated[str | None, typer.Option("--label", help="What the queue is for.")]
Quota = Annotated[str | None, typer.Option("--quota-kb", help="Kilobytes of messages at most, or `none`.")]
JournalQuota = Annotated[
    str | None, typer.Option("--journal-quota-kb", help="Kilobytes of journal at most, or `none`.")
]
Authenticate = Annotated[
    bool | None, typer.Option("--authenticate/--no-authenticate", help="Accept only signed messages.")
]
Privacy = Annotated[str | None, typer.Option("--privacy", help="Encrypted bodies: none, optional or body (required).")]
BasePriority = Annotated[int | None, typer.Option("--base-priority", help="Routing priority of a public queue.")]
TypeId = Annotated[str | None, typer.Option("--type", help="The service type, a GUID.")]
Multicast = Annotated[
    str | None, typer.Option("--multicast", help="The multicast ADDRESS:PORT; stored and shown, not used.")
]
Access = Annotated[
    list[str] | None,
    typer.Option(
        "--access",
        metavar="WHO:RIGHTS",
        help="Rights for an account, such as bob:send,peek; may be repeated. Or one SDDL text.",
    ),
]


def _changes(
    label: str | None,
    authenticate: bool | None,
    privacy: str | None,
    base_priority: int | None,
    type_id: str | None,
    multicast: str | None,
) -> dict[str, object]:
    """Check the options that were given; return their values by attribute name."""
    changes: dict[str, object] = {}
    if label is not None:
        if len(label) > MAX_LABEL_LENGTH:
            raise UsageError(f"--label of {len(label)} characters: at most {MAX_LABEL_LENGTH}")
        changes["label"] = label
    if authenticate is not None:
        changes["authentication"] = authenticate
    if privacy is not None:
        if privacy.upper() not in QueuePrivacyLevel.__members__:
            raise UsageError(f"--privacy {privacy}: none, optional or body")
        changes["privacy_level"] = QueuePrivacyLevel[privacy.upper()]
    if base_priority is not None:
        if base_priority not in BASE_PRIORITIES:
            raise UsageError(f"--base-priority {base_priority}: {BASE_PRIORITIES[0]} to {BASE_PRIORITIES[-1]}")
        changes["base_priority"] = base_priority
    if type_id is not None:
        changes["type"] = guid(type_id, "--type")
    if multicast is not None:
        changes["multicast_address"] = multicast or None
    return changes


def _document(manager: QueueManager, queue: Queue) -> dict[str, object]:
    # The path name of an outgoing queue is the format name of its destination.
    return queue_json(queue, manager.open(queue.pathname).format_name)


def _all_queues(manager: QueueManager, *, everything: bool) -> list[Queue]:
    """Return the queues, with those for other computers last."""
    found: list[Queue] = []
    for queue in [one.attributes() for one in manager.queues()]:
        found.append(queue)
        if everything:
            found += [*queue.subqueues.values(), *([queue.journal_queue] if queue.journal_queue else [])]
    if everything:
        systems = (manager.dead_letter, manager.transactional_dead_letter, manager.system_journal)
        found += [one.attributes() for one in systems]
    found.sort(key=lambda queue: queue.pathname.lower())
    outgoing = [one.attributes() for one in manager.outgoing_queues()]
    return [*found, *sorted(outgoing, key=lambda queue: queue.pathname.lower())]


@app.command("list")
@reaching
def list_queues(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Journals, subqueues and system queues too.")] = False,
    at: Place,
    json: Json = False,
) -> None:
    """List the queues, with those for other computers last."""
    with open_manager(at) as manager:
        found = _all_queues(manager, everything=everything)
        if json:
            write_json([_document(manager, queue) for queue in found])
        else:
            show_queues(found)


@app.command()
@reaching
def create(
    queue: QueueName,
    *,
    transactional: Annotated[bool, typer.Option("--transactional", help="Accept only transactional messages.")] = False,
    journal: Annotated[bool, typer.Option("--journal", help="Keep a copy of each received message.")] = False,
    label: Label = None,
    quota_kb: Quota = None,
    journal_quota_kb: JournalQuota = None,
    authenticate: Authenticate = None,
    privacy: Privacy = None,
    base_priority: BasePriority = None,
    type_id: TypeId = None,
    multicast: Multicast = None,
    access: Access = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Do nothing if the queue exists.")] = False,
    name: Annotated[str | None, typer.Option("--name", help="Name of a new queue manager.")] = None,
    at: Place,
    json: Json = False,
) -> None:
    """Create a queue, and the data directory if there is none."""
    changes: dict[str, Any] = _changes(label, authenticate, privacy, base_priority, type_id, multicast)
    changes["quota"] = kilobytes(quota_kb, "--quota-kb")
    changes["journal_quota"] = kilobytes(journal_quota_kb, "--journal-quota-kb")
    changes |= {"transactional": transactional, "journaling": journal}
    with open_manager(at, create=True, name=name) as manager:
        try:
            made = manager.create_queue(queue, access=read_access(access or []), **changes)
        except QueueExists:
            if not if_missing:
                raise
            made = manager.open(queue)
        if json:
            write_json(_document(manager, made.attributes()))
        else:
            say(f"{made.path_name} is ready")


@app.command()
@reaching
def show(queue: QueueName, *, at: Place, json: Json = False) -> None:
    """Show a queue's attributes and its numbers of messages."""
    with open_manager(at) as manager:
        document = _document(manager, manager.open(queue).attributes())
    if json:
        write_json(document)
    else:
        show_queue(document)


@app.command("set")
@reaching
def set_attributes(
    queue: QueueName,
    *,
    journal: Annotated[
        bool | None, typer.Option("--journal/--no-journal", help="Keep a copy of each received message.")
    ] = None,
    label: Label = None,
    quota_kb: Quota = None,
    journal_quota_kb: JournalQuota = None,
    authenticate: Authenticate = None,
    privacy: Privacy = None,
    base_priority: BasePriority = None,
    type_id: TypeId = None,
    multicast: Multicast = None,
    at: Place,
    json: Json = False,
) -> None:
    """Change a queue's attributes. Its name and whether it is transactional cannot be changed."""
    changes: dict[str, Any] = _changes(label, authenticate, privacy, base_priority, type_id, multicast)
    if journal is not None:
        changes["journaling"] = journal
    if quota_kb is not None:
        changes["quota"] = kilobytes(quota_kb, "--quota-kb")
    if journal_quota_kb is not None:
        changes["journal_quota"] = kilobytes(journal_quota_kb, "--journal-quota-kb")
    if not changes:
        raise UsageError("nothing to change: `lanner queue set --help` lists the attributes")
    with open_manager(at) as manager:
        manager.open(queue).set(**changes)
        changed = manager.open(queue).attributes()
        if json:
            write_json(_document(manager, changed))
        else:
            say(f"{changed.pathname}: {', '.join(sorted(changes))} set")


@app.command()
@reaching
def delete(
    queue: QueueName,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    at: Place,
    json: Json = False,
) -> None:
    """Delete a queue with its messages, journal and subqueues."""
    with open_manager(at) as manager:
        found = manager.open(queue).attributes()
        parts = [found, *found.subqueues.values(), *([found.journal_queue] if found.journal_queue else [])]
        messages = sum(part.message_count for part in parts)
        path_name = found.pathname
        what = f"{path_name} with {counted(messages)}"
        if not dry_run:
            confirm(f"Delete {what}?", yes=yes)
            manager.delete_queue(queue)
    if json:
        write_json({"queue": path_name, "messages": messages, "dry_run": dry_run})
    else:
        say(f"would delete {what}" if dry_run else f"{what} is deleted")


@app.command()
@reaching
def purge(
    queue: QueueName,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    at: Place,
    json: Json = False,
) -> None:
    """Remove every message of a queue. Transactional ones that request it become dead letters."""
    with open_manager(at) as manager:
        purge_queue(manager, queue, dry_run=dry_run, yes=yes, as_json=json)


def purge_queue(manager: QueueManager, name: str, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Purge any queue; exit code 3 if it is empty."""
    found = manager.open(name).attributes()
    count, path_name = found.message_count, found.pathname
    if not dry_run and count:
        confirm(f"Remove {counted(count)} of {path_name}?", yes=yes)
        with progress("purging", None):
            count = manager.open(name).purge()
    if as_json:
        write_json({"queue": path_name, "messages": count, "dry_run": dry_run})
    elif count:
        say(f"{'would remove' if dry_run else 'removed'} {counted(count)} of {path_name}")
    if not count:
        raise nothing(f"{path_name} is empty")
