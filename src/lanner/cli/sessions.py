"""`lanner sessions`: list connections, and end one."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import typer

from lanner.cli.errors import UsageError, nothing
from lanner.cli.options import Json, Yes
from lanner.cli.output import confirm, say, show_table, write_json
from lanner.cli.session import Place, open_manager, reaching
from lanner.cli.views import local_time
from lanner.services.session_documents import CLIENT, QUEUE_MANAGER


@reaching
def sessions(
    *,
    close: Annotated[int | None, typer.Option("--close", metavar="NUMBER", help="End this connection.")] = None,
    kind: Annotated[str, typer.Option("--kind", help="With --close: `client`, or `queue manager`.")] = CLIENT,
    yes: Yes = False,
    at: Place,
    json: Json = False,
) -> None:
    """List who is connected: clients, and other queue managers; or end a connection."""
    if kind not in (CLIENT, QUEUE_MANAGER):
        raise UsageError(f"--kind {kind}: one of {CLIENT}, {QUEUE_MANAGER}")
    with open_manager(at) as manager:
        if close is not None:
            confirm(f"End the connection {close} ({kind})?", yes=yes)
            manager.close_session(kind, close)
            if json:
                write_json({"kind": kind, "number": close})
            else:
                say(f"the connection {close} ({kind}) is ended")
            return
        found = manager.sessions()
    if json:
        write_json(found)
        return
    if not found:
        raise nothing("nobody is connected")
    titles = ("NUMBER", "KIND", "ADDRESS", "USER", "SINCE")
    rows = [
        [
            str(one["number"]),
            one["kind"],
            one["address"],
            one["user"],
            "-" if one["since"] is None else local_time(dt.datetime.fromisoformat(one["since"])),
        ]
        for one in found
    ]
    show_table([(title, title == "NUMBER") for title in titles], rows)
