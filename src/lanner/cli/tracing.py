"""`lanner trace`: the way of messages, from the reports that queue managers sent about them."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

import typer

from lanner.cli.control import ask
from lanner.cli.errors import nothing
from lanner.cli.options import DEFAULT_DATA, Data, Json
from lanner.cli.output import show_table, write_json
from lanner.cli.views import local_time


def trace(
    queue: Annotated[
        str, typer.Argument(metavar="QUEUE", help="The queue that the reports go to.", show_default=False)
    ],
    *,
    message: Annotated[str | None, typer.Option("--message", help="Only the message with this id.")] = None,
    data: Data = DEFAULT_DATA,
    json: Json = False,
) -> None:
    """Show the way of messages that were sent with `lanner send --trace QUEUE`, a line for each report."""
    reports: list[dict[str, Any]] = ask(data, "reports", queue=queue)
    found = [one for one in reports if message is None or one["message"].lower() == message.lower()]
    if not found:
        raise nothing(f"{queue} has no report{'' if message is None else f' about {message}'}")
    if json:
        for one in found:
            write_json(one)
        return
    rows = [
        (
            one["message"],
            local_time(dt.datetime.fromisoformat(one["time"])),
            str(one["hops"]),
            one["event"],
            one["by"],
            one["next_hop"] or "-",
            one["target"],
        )
        for one in found
    ]
    titles = ("MESSAGE", "TIME", "HOPS", "EVENT", "BY", "NEXT HOP", "TARGET")
    show_table([(title, title == "HOPS") for title in titles], rows)
