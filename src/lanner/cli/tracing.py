"""`lanner trace`: the route of messages, from the reports of queue managers about them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from itertools import islice
from typing import Annotated, Any

import typer

from lanner.cli.errors import nothing
from lanner.cli.options import Json
from lanner.cli.output import show_table, write_json
from lanner.cli.session import Place, open_manager, reaching, walk
from lanner.cli.views import local_time
from lanner.client import ReceivedMessage
from lanner.model.enums import MessageClass
from lanner.transfer.tracing import parse_report
from lanner.wire.identifiers import MessageIdentifier

# Not in the specification: the maximum number of reports that are shown. One message causes a few
# reports per computer.
MAX_REPORTS = 10_000


def reports(messages: Iterable[ReceivedMessage]) -> list[dict[str, Any]]:
    """Return the trace reports among messages, grouped by traced message and sorted by hop."""
    found: list[tuple[tuple[int, str, int], dict[str, Any]]] = []
    parsed = (
        (message, report)
        for message in messages
        if message.message_class == MessageClass.REPORT
        and (report := parse_report(message.label, message.body_bytes)) is not None
    )
    for place, (message, report) in enumerate(islice(parsed, MAX_REPORTS)):
        time = report.time.isoformat()
        document = {
            "message": str(MessageIdentifier(report.source_queue_manager, report.message_ordinal)),
            "hops": report.hops,
            "time": time,
            "event": "received" if report.next_hop is None else "sent",
            "by": str(message.source_machine),
            "next_hop": report.next_hop,
            "target": report.target_queue,
        }
        # Clocks of different computers differ; hop counts are reliable.
        found.append(((report.hops, time, place), document))
    first = {document["message"]: place for place, (_, document) in reversed(list(enumerate(found)))}
    found.sort(key=lambda pair: (first[pair[1]["message"]], pair[0]))
    return [document for _, document in found]


@reaching
def trace(
    queue: Annotated[
        str, typer.Argument(metavar="QUEUE", help="The queue that the reports go to.", show_default=False)
    ],
    *,
    message: Annotated[str | None, typer.Option("--message", help="Only the message with this id.")] = None,
    at: Place,
    json: Json = False,
) -> None:
    """Show the route of messages that were sent with `lanner send --trace QUEUE`.

    One line is shown per report.
    """
    with open_manager(at) as manager:
        told = reports(walk(manager.open(queue)))
    found = [one for one in told if message is None or one["message"].lower() == message.lower()]
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
