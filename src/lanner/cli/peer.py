"""`lanner peer`: the addresses from which queue manager identifiers are accepted."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import typer

from lanner.cli.errors import UsageError, nothing
from lanner.cli.options import Json
from lanner.cli.output import say, show_table, write_json
from lanner.cli.session import Place, open_manager, reaching
from lanner.cli.views import local_time
from lanner.client import QueueManager
from lanner.services.documents import Document

app = typer.Typer(help="Other queue managers, and the addresses from which each is accepted.", no_args_is_help=True)

Guid = Annotated[
    str,
    typer.Argument(
        metavar="GUID", help="The identifier of a queue manager, or the beginning of it.", show_default=False
    ),
]


def _find(manager: QueueManager, text: str) -> str:
    """Return the identifier with this prefix; the text itself if no peer has one."""
    wanted = text.strip("{}").lower()
    found = [one["guid"] for one in manager.peers() if one["guid"].startswith(wanted)]
    if len(found) > 1:
        raise UsageError(f"{len(found)} queue managers have identifiers that begin with {text}: give more of it")
    return found[0] if found else text


def _row(one: Document) -> tuple[str, ...]:
    addresses = ", ".join(f"{address} ({why})" for address, why in one["addresses"].items())
    conflicts = ", ".join(f"{each['address']} ({each['refused']} refused)" for each in one["conflicts"])
    connected = ", ".join(one["connected"])
    shown = (one["name"], addresses, _time(one["last_seen"]), connected, conflicts)
    return one["guid"], *(text or "-" for text in shown)


@app.command("list")
@reaching
def list_peers(*, at: Place, json: Json = False) -> None:
    """List the queue managers that are bound to addresses, and conflicting claims."""
    with open_manager(at) as manager:
        documents = manager.peers()
    if json:
        write_json(documents)
        return
    if not documents:
        raise nothing("no queue manager has connected yet, and none is trusted")
    titles = ("GUID", "NAME", "ADDRESSES", "LAST SEEN", "CONNECTED", "ALSO CLAIMED FROM")
    show_table([(title, False) for title in titles], [_row(one) for one in documents], ("LAST SEEN", "CONNECTED"))
    if any(one["conflicts"] for one in documents):
        say("")
        say(
            "If an identifier is claimed from another address too, its computer has moved, or another one "
            "imitates it. Find out which computer has it:"
        )
        say("`lanner peer trust GUID ADDRESS` accepts it from there, and from no learnt address.")


def _time(text: str | None) -> str:
    return "-" if text is None else local_time(dt.datetime.fromisoformat(text))


@app.command()
@reaching
def trust(
    guid: Guid,
    addresses: Annotated[
        list[str] | None,
        typer.Argument(metavar="ADDRESS...", help="Its addresses; without them, those from which it has connected."),
    ] = None,
    *,
    at: Place,
    json: Json = False,
) -> None:
    """Accept a queue manager from these addresses.

    Addresses that were trusted before stay trusted; learnt addresses do not.
    """
    with open_manager(at) as manager:
        document: Document = manager.trust_peer(_find(manager, guid), addresses or [])
    if json:
        write_json(document)
    else:
        say(f"{document['guid']} is accepted from {', '.join(document['addresses'])}")


@app.command()
@reaching
def forget(guid: Guid, *, at: Place, json: Json = False) -> None:
    """Remove the binding of a queue manager to addresses, and end its sessions.

    The next connection that uses its identifier binds it again.
    """
    with open_manager(at) as manager:
        found = _find(manager, guid)
        manager.forget_peer(found)
    if json:
        write_json({"guid": found})
    else:
        say(f"{found} is forgotten")
