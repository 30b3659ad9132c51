"""`lanner queue access`: the owner and the access list of a queue."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lanner.cli.errors import CommandError, UsageError
from lanner.cli.options import DryRun, Json, QueueName
from lanner.cli.output import say, show_table, write_json
from lanner.cli.session import Place, open_manager, reaching
from lanner.client import Queue, QueueManager
from lanner.host.access_migration import SavedAccess, read_saved
from lanner.model.errors import AccessDenied, InvalidOwner, QueueNotFound
from lanner.security.access_lists import AccessList
from lanner.security.queue_rights import RIGHTS, split_rights
from lanner.security.queue_security import NO_OWNERS
from lanner.wire.security_descriptor import SecurityDescriptor
from lanner.wire.sid import BUILTIN_ADMINISTRATORS

app = typer.Typer(help="The owner of a queue, and who may do what with it.", no_args_is_help=True)

_RIGHTS_HELP = "send, receive, peek, admin, full; several with commas."
_SDDL = re.compile(r"[OGDS]:")

Who = Annotated[
    str,
    typer.Argument(
        metavar="WHO",
        help="A user or group (`lanner user list`), a Unix user, Everyone, Anonymous, Administrators, or a SID.",
        show_default=False,
    ),
]
Rights = Annotated[list[str], typer.Argument(metavar="RIGHTS", help=_RIGHTS_HELP, show_default=False)]
OptionalRights = Annotated[
    list[str] | None,
    typer.Argument(metavar="RIGHTS", help=f"{_RIGHTS_HELP} Without them, all.", show_default=False),
]
Force = Annotated[bool, typer.Option("--force", help="Proceed even if you lose the right to change the list.")]


def read_access(given: Sequence[str]) -> dict[str, list[str]] | str | None:
    """Return the values of `--access`: rights by account, or SDDL; None if there are none."""
    rights: dict[str, list[str]] = {}
    for text in given:
        who, colon, words = text.rpartition(":")
        # An account may be called D or O, so the words after it decide: no right is spelled like a
        # part of SDDL.
        if colon and who and split_rights([words]) and all(word in RIGHTS for word in split_rights([words])):
            rights.setdefault(who, []).extend(split_rights([words]))
        elif len(given) == 1 and _SDDL.match(text):
            return text
        else:
            raise UsageError(
                f"--access {text}: WHO:RIGHTS, such as bob:send,peek, with rights of {', '.join(RIGHTS)}; "
                "or one SDDL text, such as 'D:(A;;GA;;;BA)'"
            )
    return rights or None


def _show(found: AccessList) -> None:
    owner = "nobody" if found.owner is None else found.owner
    say(f"owner: {owner}" if found.owner == found.owner_sid else f"owner: {owner} ({found.owner_sid})")
    if found.entries is None:
        say("no access list: everyone has all rights")
        return
    columns = [(title, False) for title in ("ACCOUNT", "ACCESS", "RIGHTS", "SID")]
    show_table(columns, [(one.account, one.access, ", ".join(one.rights), one.sid) for one in found.entries])


def _change(at: Place, name: str, change: Callable[[Queue], None], done: str, *, as_json: bool) -> None:
    with open_manager(at) as manager:
        queue = manager.open(name)
        change(queue)
        if as_json:
            write_json({"queue": queue.path_name, **queue.access().document()})
        else:
            say(f"{queue.path_name}: {done}")


@app.command()
@reaching
def show(
    queue: QueueName,
    *,
    sddl: Annotated[bool, typer.Option("--sddl", help="Print SDDL, as `access set` and `--access` read it.")] = False,
    at: Place,
    json: Json = False,
) -> None:
    """Show the owner and the entries, in the order in which they are checked."""
    if sddl and json:
        raise UsageError("--sddl or --json: the JSON has the SDDL too")
    with open_manager(at) as manager:
        opened = manager.open(queue)
        found = opened.access()
        path_name = opened.path_name
    if json:
        write_json({"queue": path_name, **found.document()})
    elif not sddl:
        _show(found)
    elif found.sddl is None:
        raise CommandError(f"the access list of {path_name} has entries without a form in SDDL: see it without --sddl")
    else:
        say(found.sddl)


@app.command()
@reaching
def grant(queue: QueueName, who: Who, rights: Rights, *, force: Force = False, at: Place, json: Json = False) -> None:
    """Grant an account rights. This replaces an earlier denial of the same rights."""
    _change(
        at,
        queue,
        lambda opened: opened.grant(who, *rights, force=force),
        f"{who} may {', '.join(split_rights(rights))}",
        as_json=json,
    )


@app.command()
@reaching
def deny(queue: QueueName, who: Who, rights: Rights, *, force: Force = False, at: Place, json: Json = False) -> None:
    """Deny an account rights, regardless of what entries for its groups allow."""
    _change(
        at,
        queue,
        lambda opened: opened.deny(who, *rights, force=force),
        f"{who} may not {', '.join(split_rights(rights))}",
        as_json=json,
    )


@app.command()
@reaching
def revoke(
    queue: QueueName, who: Who, rights: OptionalRights = None, *, force: Force = False, at: Place, json: Json = False
) -> None:
    """Remove rights from an account's entries, both granted and denied.

    Without rights, remove all of its entries.
    """
    words = split_rights(rights or [])
    _change(
        at,
        queue,
        lambda opened: opened.revoke(who, *words, force=force),
        f"the entries of {who} {'have no ' + ', '.join(words) if words else 'are removed'}",
        as_json=json,
    )


@app.command()
@reaching
def owner(queue: QueueName, who: Who, *, force: Force = False, at: Place, json: Json = False) -> None:
    """Change the owner, who may always change the list."""
    _change(at, queue, lambda opened: opened.set_owner(who, force=force), f"{who} is the owner", as_json=json)


@app.command("set")
@reaching
def set_access(
    queue: QueueName,
    sddl: Annotated[str, typer.Argument(metavar="SDDL", help="Such as 'O:BAD:(A;;GA;;;BA)'.", show_default=False)],
    *,
    force: Force = False,
    at: Place,
    json: Json = False,
) -> None:
    """Replace the parts given in an SDDL text: owner (O:), group (G:), list (D:)."""
    _change(at, queue, lambda opened: opened.set_access(sddl, force=force), "the access list is set", as_json=json)


@app.command()
@reaching
def restore(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="access-lists-TIME.json in the data directory, which the queue manager wrote.",
            show_default=False,
        ),
    ],
    *,
    dry_run: DryRun = False,
    at: Place,
    json: Json = False,
) -> None:
    """Restore the owners and access lists that a start of the queue manager has replaced."""
    saved = read_saved(file)
    with open_manager(at) as manager:
        results = [{"queue": one.pathname, "result": _restore(manager, one, dry_run=dry_run)} for one in saved]
    if json:
        write_json({"dry_run": dry_run, "queues": results})
        return
    for one in results:
        say(f"{one['queue']}: {one['result']}")


def _restore(manager: QueueManager, saved: SavedAccess, *, dry_run: bool) -> str:
    queue = manager.open(saved.pathname)
    try:
        current = queue.attributes().security
    except QueueNotFound:
        return "there is no such queue any more"
    if current == saved.security:
        return "unchanged"
    if dry_run:
        return "would be restored"
    wanted = SecurityDescriptor.unpack(saved.security)
    try:
        queue.set(security=saved.security)
    except (AccessDenied, InvalidOwner):
        if wanted.owner not in NO_OWNERS:
            raise
        # Only the profile "document" allows Anonymous to own a queue.
        safe = replace(wanted, owner=BUILTIN_ADMINISTRATORS).pack()
        if current == safe:
            return "unchanged"
        queue.set(security=safe)
        return "list restored; the Administrators stay the owner"
    return "restored"
