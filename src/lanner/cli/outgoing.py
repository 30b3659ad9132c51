"""`lanner outgoing`: messages for other computers, and the reasons why they wait.

`lanner status`: connections and refused messages.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Annotated

import typer

from lanner.cli.errors import CommandError, nothing
from lanner.cli.options import Json
from lanner.cli.output import counted, say, show_fields, show_table, size, write_json
from lanner.cli.session import Place, check_directory, open_manager, reaching, running
from lanner.cli.views import local_time
from lanner.client import QueueManager, connect
from lanner.client.runtimes import is_embedded
from lanner.services.documents import Document
from lanner.wire.spelling import without_prefix

app = typer.Typer(help="Messages for other computers.", no_args_is_help=True)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The format name of the destination, or a part of it that is unique.", show_default=False
    ),
]
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


def _find(manager: QueueManager, name: str) -> Document:
    """Return the outgoing queue with this format name, or the only one that contains the text."""
    documents = manager.outgoing()
    wanted = without_prefix(name).lower()
    exact = [one for one in documents if one["name"].lower() == wanted]
    found = exact or [one for one in documents if wanted in one["name"].lower()]
    if not found:
        raise CommandError(f"no outgoing queue has {name!r} in its name: `lanner outgoing list` shows all")
    if len(found) > 1:
        names = ", ".join(one["name"] for one in found[:5])
        raise CommandError(f"{len(found)} outgoing queues have {name!r} in their names, give more of it: {names}")
    return found[0]


@app.command("list")
@reaching
def list_outgoing(*, at: Place, json: Json = False) -> None:
    """List the queues whose messages are for other computers."""
    with open_manager(at) as manager:
        documents = manager.outgoing()
    if json:
        write_json(documents)
        return
    if not documents:
        raise nothing("there are no outgoing queues: no message was sent to another computer yet")
    titles = ("NAME", "STATE", "MESSAGES", "SIZE", "NEXT HOPS", "PROBLEM")
    rows = [
        (
            one["name"],
            _STATES[one["state"]],
            str(one["messages"]),
            size(one["bytes"]),
            ", ".join(one["next_hops"]) or "-",
            # The other columns have the address and the name.
            re.sub(r"^connecting to \S+: ", "", _problem(one).removeprefix(f"{one['name']}: ")) or "-",
        )
        for one in documents
    ]
    show_table([(title, title in ("MESSAGES", "SIZE")) for title in titles], rows, spare=("NEXT HOPS", "SIZE"))


@app.command()
@reaching
def show(name: Name, *, at: Place, json: Json = False) -> None:
    """Show an outgoing queue: its connection, its attempts, its unacknowledged messages."""
    with open_manager(at) as manager:
        document = _find(manager, name)
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
    """Return the last problem and the time of the next attempt."""
    parts = [document["problem"] or ""]
    if document["retry_in"] is not None:
        parts.append(f"next attempt in {document['retry_in']:.0f} s")
    if document["state"] == "OnHold":
        parts.append("`lanner outgoing resume` resumes it")
    if document["state"] == "Locked":
        parts.append("the setting security.hardened allows HTTP only")
    return "; ".join(part for part in parts if part)


def _sequence(sequence: Document) -> list[tuple[str, str]]:
    """Return the progress of the transactional messages, without empty fields."""
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
@reaching
def pause(name: Name, *, at: Place, json: Json = False) -> None:
    """Pause a queue: its messages wait, even over a restart, until the queue is resumed."""
    with open_manager(at) as manager:
        found = _find(manager, name)["name"]
        manager.pause(found)
        document = _find(manager, found)
    _tell(document, "is paused", as_json=json)


@app.command()
@reaching
def resume(name: Name, *, at: Place, json: Json = False) -> None:
    """Send the messages of a paused queue."""
    with open_manager(at) as manager:
        document = _find(manager, name)
        found = document["name"]
        if document["state"] == "Locked":
            raise CommandError(f"{found} is locked: the setting security.hardened allows HTTP only")
        if document["state"] != "OnHold":
            raise CommandError(f"{found} is not paused, it is {document['state']}")
        manager.resume(found)
        document = _find(manager, found)
    _tell(document, "goes on", as_json=json)


@app.command()
@reaching
def resend(name: Name, *, at: Place, json: Json = False) -> None:
    """Connect now, and resend unacknowledged transactional messages."""
    with open_manager(at) as manager:
        document = _find(manager, name)
        if is_embedded(manager):
            raise CommandError(
                "nothing is sent while no queue manager runs: `lanner serve` sends what waits as soon as it starts"
            )
        if document["state"] in ("OnHold", "Locked"):
            raise CommandError(f"{document['name']} is {document['state']}: `lanner outgoing resume` first")
        manager.resend(document["name"])
    _tell(document, "is tried again now", as_json=json)


def _tell(document: Document, done: str, *, as_json: bool) -> None:
    if as_json:
        write_json(document)
    else:
        say(f"{document['name']} {done}, {counted(document['messages'])} in it")


@reaching
def status(*, at: Place, json: Json = False) -> None:
    """Show the running queue manager: its addresses, its connections, and refused messages.

    Exit code 3 if none runs.
    """
    if at.host is not None:
        manager = connect(at.host, at.user, at.password)
    else:
        check_directory(at.data)
        here = running(at.data)
        if here is None:
            raise nothing(f"no queue manager runs on {at.data}: `lanner serve --data {at.data}` starts one")
        manager = here
    with manager:
        document = manager.status()
    if json:
        write_json(document)
        return
    show_fields(
        [
            ("queue manager", f"{document['name']} ({document['identifier']})"),
            ("process", f"{document['process']}, lanner {document['version']}"),
            ("state", "online" if document["online"] else "offline: `lanner machine online` connects it again"),
            *document["listeners"].items(),
            (
                "outgoing",
                f"{counted(document['outgoing_messages'])} in {counted(document['outgoing_queues'], 'outgoing queue')}",
            ),
            ("refused", _refused(document["refused"])),
            ("peers", _peers(document)),
            ("sessions", str(len(document["sessions"]))),
        ]
    )
    if document.get("limits"):
        say("")
        titles = ("RESOURCE", "USED", "LIMIT", "PER PEER", "REFUSED", "MOST BY")
        touched = [one for one in document["limits"] if one["used"] or one["refused"]]
        show_table(
            [(title, title in ("USED", "LIMIT", "PER PEER", "REFUSED")) for title in titles],
            [limit_row(one) for one in touched],
            spare=("PER PEER",),
        )
        say(f"({len(document['limits']) - len(touched)} more limits are not in use: --json shows them)")
    if document["sessions"]:
        say("")
        show_table(
            [(title, False) for title in ("ADDRESS", "QUEUE MANAGER", "OPENED BY", "STATE", "TLS", "QUEUES")],
            [
                (
                    one["address"],
                    one["queue_manager"],
                    "us" if one["initiator"] else "them",
                    one["state"],
                    one["certificate"] or "-",
                    ", ".join(one["queues"]) or "-",
                )
                for one in document["sessions"]
            ],
        )
    if document["refused"]:
        say("")
        titles = ("REFUSED BY", "QUEUE", "CLASS", "MESSAGES", "LAST", "PEER")
        show_table(
            [(title, title == "MESSAGES") for title in titles],
            [
                (
                    "us" if one["side"] == "here" else "them",
                    one["queue"],
                    one["class"],
                    str(one["messages"]),
                    _time(one["last_time"]),
                    one["last_peer"],
                )
                for one in document["refused"]
            ],
        )


def _peers(document: Document) -> str:
    """Return the incidents that an operator should look at."""
    conflicts, incidents = document["peer_conflicts"], document["incidents"]
    parts = [f"{one['count']} {one['text']}, last {one['last_peer']}" for one in incidents]
    if conflicts:
        parts.insert(0, f"{counted(conflicts, 'identifier')} claimed from several addresses, see `lanner peer list`")
    return "; ".join(parts) or "nothing unusual"


def limit_row(one: Document) -> tuple[str, ...]:
    """Return a resource with its use and limits, as a table row."""
    shown = size if "bytes" in one["resource"] else str
    most = "-" if one["greatest_peer"] is None else f"{one['greatest_peer']} ({shown(one['greatest'])})"
    per_peer = "-" if one["per_peer"] is None else shown(one["per_peer"])
    return one["resource"], shown(one["used"]), shown(one["limit"]), per_peer, str(one["refused"]), most


def _refused(rows: list[Document]) -> str:
    """Return how many messages each side has refused since the queue manager started."""
    here, there = (sum(one["messages"] for one in rows if one["side"] == side) for side in ("here", "peer"))
    return f"{counted(here)} from other computers, {counted(there)} by other computers"
