"""`lanner transaction`: distributed transactions that are in doubt, and ending them by hand."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import typer

from lanner.cli.errors import UsageError, nothing
from lanner.cli.options import Json
from lanner.cli.output import counted, say, show_table, write_json
from lanner.cli.session import Place, open_manager, reaching
from lanner.cli.views import local_time
from lanner.client import QueueManager
from lanner.services.documents import Document

app = typer.Typer(help="Distributed transactions that are in doubt.", no_args_is_help=True)

Identifier = Annotated[
    str,
    typer.Argument(metavar="ID", help="The identifier of a transaction, or the beginning of it.", show_default=False),
]


def _find(manager: QueueManager, text: str) -> tuple[str, list[Document]]:
    """Return the identifier with this prefix, and its rows; the text itself if there is none."""
    wanted = text.strip("{}").lower()
    rows = manager.transactions()
    found = sorted({row["transaction"] for row in rows if row["transaction"].startswith(wanted)})
    if len(found) > 1:
        raise UsageError(f"{len(found)} transactions have identifiers that begin with {text}: give more of it")
    name = found[0] if found else text
    return name, [row for row in rows if row["transaction"] == name]


def _row(one: Document) -> tuple[str, ...]:
    since = "-" if one.get("since") is None else local_time(dt.datetime.fromisoformat(one["since"]))
    return one["transaction"], one["kind"], one["state"], ", ".join(one["resources"]) or "-", one["owner"] or "-", since


@app.command("list")
@reaching
def list_transactions(*, at: Place, json: Json = False) -> None:
    """List the transactions that are in doubt here.

    These are commits that a resource has not received, and prepared branches of other coordinators.
    """
    with open_manager(at) as manager:
        rows = manager.transactions()
    if json:
        write_json(rows)
        return
    if not rows:
        raise nothing("no transaction is in doubt")
    titles = ("TRANSACTION", "KIND", "STATE", "RESOURCES", "USER", "SINCE")
    show_table([(title, False) for title in titles], [_row(row) for row in rows])


@app.command()
@reaching
def show(identifier: Identifier, *, at: Place, json: Json = False) -> None:
    """Show everything that this queue manager has about a transaction."""
    with open_manager(at) as manager:
        name, rows = _find(manager, identifier)
    if json:
        write_json(rows)
        return
    if not rows:
        raise nothing(f"no transaction {name} is in doubt")
    for row in rows:
        say(f"{row['kind']} {row['transaction']}: {row['state']}")
        say(f"  coordinator  {row['coordinator'] or 'not known'}")
        say(f"  resources    {', '.join(row['resources']) or '-'}")
        say(f"  user         {row['owner'] or '-'}")
        for operation in row.get("operations", ()):
            say(f"  {operation['operation']:<12} {counted(operation['messages'])} of {operation['queue']}")


@app.command()
@reaching
def commit(identifier: Identifier, *, at: Place, json: Json = False) -> None:
    """Commit by hand the branches that are in doubt here.

    This also removes a commit from the log if its resources were ended by hand.
    """
    _end(identifier, at, json=json, is_commit=True)


@app.command()
@reaching
def abort(identifier: Identifier, *, at: Place, json: Json = False) -> None:
    """Abort by hand the branches in doubt here. Other resources are not notified."""
    _end(identifier, at, json=json, is_commit=False)


def _end(identifier: str, at: Place, *, json: bool, is_commit: bool) -> None:
    with open_manager(at) as manager:
        name, _ = _find(manager, identifier)
        rows = manager.commit_transaction(name) if is_commit else manager.abort_transaction(name)
    if json:
        write_json(rows)
    else:
        say(f"{name} is {'committed' if is_commit else 'aborted'} here")
