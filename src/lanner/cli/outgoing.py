"""`lanner outgoing`: messages for other computers, and why they have not left. `lanner status`: who is connected."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

import typer

from lanner.cli.control import ask, ask_running
from lanner.cli.errors import nothing
from lanner.cli.options import DEFAULT_DATA, Data, Json
from lanner.cli.output import counted, say, show_fields, show_table, size, write_json
from lanner.cli.session import check_directory
from lanner.cli.views import local_time

app = typer.Typer(help="Messages for other computers.", no_args_is_help=True)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The format name of the destination, or a part that no other has.", show_default=False
    ),
]
# What a document of Administration says.
Document = dict[str, Any]

_STATES = {
    "Connected": "connected",
    "Disconnected": "not connected",
    "Disconnecting": "disconnecting",
    "Inactive": "inactive",
    "Locked": "locked",
    "NeedValidation": "no route",
    "Waiting": "connecting",
    "OnHold": "paused",
}


@app.command("list")
def list_outgoing(*, data: Data = DEFAULT_DATA, json: Json = False) -> None:
    """List the queues whose messages are for other computers."""
    documents: list[Document] = ask(data, "outgoing list")
    if json:
        write_json(documents)
        return
    if not documents:
        raise nothing("there are no outgoing queues: none was sent to yet")
    titles = ("NAME", "STATE", "MESSAGES", "SIZE", "NEXT HOPS", "PROBLEM")
    rows = [
        (
            one["name"],
            _STATES[one["state"]],
            str(one["messages"]),
            size(one["bytes"]),
            ", ".join(one["next_hops"]) or "-",
            _problem(one) or "-",
        )
        for one in documents
    ]
    show_table([(title, title in ("MESSAGES", "SIZE")) for title in titles], rows)


@app.command()
def show(name: Name, *, data: Data = DEFAULT_DATA, json: Json = False) -> None:
    """Show how an outgoing queue gets on: its connection, its attempts, what is not acknowledged."""
    document: Document = ask(data, "outgoing show", name=name)
    if json:
        write_json(document)
        return
    fields = [
        ("name", document["name"]),
        ("state", _STATES[document["state"]]),
        ("messages", f"{document['messages']}, {size(document['bytes'])}"),
        ("next hops", ", ".join(document["next_hops"]) or "none"),
    ]
    if problem := _problem(document):
        fields.append(("problem", problem))
    if document["sequence"] is not None:
        fields += _sequence(document["sequence"])
    show_fields(fields)
    history = document["connection_history"]
    if history:
        say("")
        show_table(
            [("TIME", False), ("ADDRESS", False), ("STATUS", False), ("ERROR", False)],
            [
                (_time(entry["time"]), ", ".join(entry["addresses"]) or "-", entry["text"], _error(entry))
                for entry in history
            ],
        )


def _problem(document: Document) -> str:
    """What went wrong last, and when it is tried again."""
    parts = [document["problem"] or ""]
    if document["retry_in"] is not None:
        parts.append(f"next attempt in {document['retry_in']:.0f} s")
    if document["state"] == "OnHold":
        parts.append("`lanner outgoing resume` lets it go on")
    if document["state"] == "Locked":
        parts.append("the setting security.hardened allows HTTP only")
    return "; ".join(part for part in parts if part)


def _sequence(sequence: Document) -> list[tuple[str, str]]:
    """The transactional messages' progress, without what says nothing."""
    fields = [("transactional", f"{counted(sequence['no_ack_count'])} sent and not acknowledged")]
    for title, key in (
        ("first of them", "first_non_ack"),
        ("last of them", "last_non_ack"),
        ("last acknowledged", "last_ack"),
        ("next to be sent", "next_seq"),
    ):
        if (place := sequence[key]) is not None:
            fields.append((title, f"number {place['number']} of sequence {place['sequence']}"))
    if sequence["last_ack"] is not None and sequence["last_ack_time"] is not None:
        times = f", {sequence['last_ack_count']} times" if sequence["last_ack_count"] > 1 else ""
        fields.append(("acknowledged at", f"{_time(sequence['last_ack_time'])}{times}"))
    if sequence["no_read_count"]:
        fields.append(("not received yet", counted(sequence["no_read_count"])))
    if sequence["no_ack_count"]:
        due = f", next at {_time(sequence['resend_time'])}" if sequence["resend_time"] is not None else ""
        fields.append(
            ("sent again", f"{counted(sequence['resend_count'], 'time')}, every {sequence['resend_interval']} s{due}")
        )
    return fields


def _error(entry: Document) -> str:
    if entry["error"] is None:
        return "-"
    return entry["error"] if entry["error_text"] is None else f"{entry['error_text']} ({entry['error']})"


def _time(text: str) -> str:
    return local_time(dt.datetime.fromisoformat(text))


@app.command()
def pause(name: Name, *, data: Data = DEFAULT_DATA, json: Json = False) -> None:
    """Keep messages here until the queue is resumed, over restarts too."""
    _tell(ask(data, "outgoing pause", name=name), "is paused", as_json=json)


@app.command()
def resume(name: Name, *, data: Data = DEFAULT_DATA, json: Json = False) -> None:
    """Let the messages of a paused queue go."""
    _tell(ask(data, "outgoing resume", name=name), "goes on", as_json=json)


@app.command()
def resend(name: Name, *, data: Data = DEFAULT_DATA, json: Json = False) -> None:
    """Try again now: connect, and send transactional messages that are not acknowledged."""
    _tell(ask(data, "outgoing resend", name=name), "is tried again now", as_json=json)


def _tell(document: Document, done: str, *, as_json: bool) -> None:
    if as_json:
        write_json(document)
    else:
        say(f"{document['name']} {done}, {counted(document['messages'])} in it")


def status(*, data: Data = DEFAULT_DATA, json: Json = False) -> None:
    """Show the running queue manager: where it listens, and who is connected. Exit code 3 if none runs."""
    check_directory(data)
    document: Document | None = ask_running(data, {"request": "status"})
    if document is None:
        raise nothing(f"no queue manager runs on {data}: `lanner serve --data {data}` starts one")
    if json:
        write_json(document)
        return
    show_fields(
        [
            ("queue manager", f"{document['name']} ({document['identifier']})"),
            ("process", f"{document['process']}, lanner {document['version']}"),
            *document["listeners"].items(),
            (
                "outgoing",
                f"{counted(document['outgoing_messages'])} in {counted(document['outgoing_queues'], 'outgoing queue')}",
            ),
            ("sessions", str(len(document["sessions"]))),
        ]
    )
    if document["sessions"]:
        say("")
        show_table(
            [("ADDRESS", False), ("QUEUE MANAGER", False), ("OPENED BY", False), ("STATE", False), ("QUEUES", False)],
            [
                (
                    one["address"],
                    one["queue_manager"],
                    "us" if one["initiator"] else "them",
                    one["state"],
                    ", ".join(one["queues"]) or "-",
                )
                for one in document["sessions"]
            ],
        )
