"""The root of the `lanner` command, which imports its commands when they are used."""

from __future__ import annotations

import logging
import os
import sys
from importlib import import_module
from typing import Annotated, Any, Final

import typer

import lanner
from lanner.cli.errors import EXIT_ERROR, Command, Group, Root

# The module of each command, and its line in `lanner --help`. A module is imported only when one of
# its commands runs: importing them all would take longer than most commands.
COMMANDS: Final = {
    "serve": ("serving.serve", "Run a queue manager until SIGTERM or Ctrl-C. SIGHUP reads the settings again."),
    "send": ("sending.send", "Send a message. Its body is BODY, --body, a file, or standard input."),
    "peek": ("reading.peek", "Look at messages and leave them in the queue."),
    "receive": ("reading.receive", "Take messages out of a queue. They leave it when they have been written."),
    "consume": (
        "consuming.consume",
        "Run a command for each message, until SIGTERM or Ctrl-C.",
    ),
    "move": (
        "moving.move",
        "Move messages to a subqueue or to any other queue.",
    ),
    "copy": (
        "moving.copy",
        "Copy messages to another queue, also of another data directory. A copy has the same content and a new id.",
    ),
    "resend": (
        "moving.resend",
        "Send messages again, with changes or without. The old one is removed in the same step, unless you keep it.",
    ),
    "delete": (
        "moving.delete",
        "Delete one message by its lookup id, or those that a filter finds. `lanner queue purge` deletes all.",
    ),
    "journal": (
        "journals.journal",
        "List a queue's journal, or peek at, receive or purge its messages.",
    ),
    "trace": (
        "tracing.trace",
        "Show the route of messages that were sent with `lanner send --trace QUEUE`.",
    ),
    "status": (
        "outgoing.status",
        "Show the running queue manager: its addresses, its connections, and refused messages.",
    ),
    "sessions": (
        "sessions.sessions",
        "List who is connected: clients, and other queue managers; or end a connection.",
    ),
    "resolve": (
        "resolve.resolve",
        "Show step by step what a name means: its format name, and the queue here or the path to it.",
    ),
    "doctor": (
        "doctor.doctor",
        "Check the data directory and the settings, or the connection to PEER. Changes no queue and no message.",
    ),
    "export": (
        "packets.export",
        (
            "Write the messages of a queue, journal, dead-letter queue or subqueue to a file, as they are. The "
            "messages stay in the queue."
        ),
    ),
    "import": (
        "packets.import_",
        "Send the messages of a file to a queue. Repeating the command sends none twice.",
    ),
    "backup": (
        "backups.backup",
        "Copy a data directory, with its accounts and keys, into a new one. The queue manager may be running.",
    ),
    "restore": (
        "backups.restore",
        "Copy a backup into a data directory that holds no queue manager yet. Every record in it is read once.",
    ),
    "bench": (
        "stress.bench",
        "Measure a queue manager: rate, and time from send to receive.",
    ),
    "console": ("console.console", "Open the web console. The link logs you on once, within a minute."),
    "queue": ("queues.app", "Queues: list, create, show, change, purge, delete; access lists."),
    "machine": ("machine.app", "The queue manager as a whole: offline and online."),
    "outgoing": ("outgoing.app", "Messages for other computers."),
    "deadletter": ("deadletters.app", "Messages that could not be delivered."),
    "peer": ("peer.app", "Other queue managers, and the addresses from which each is accepted."),
    "transaction": ("transactions.app", "Distributed transactions that are in doubt."),
    "user": ("users.app", "Who may use and administer the queue manager."),
    "token": ("tokens.app", "Tokens with which programs log on to the HTTP API."),
    "certificate": ("certificates.app", "Certificates: of users who sign messages, and of TLS between queue managers."),
    "domain": ("domain.app", "The Active Directory domain of this computer."),
    "directory": ("directory.app", "The enterprise: sites, links, computers, lists."),
    "pipeline": ("pipeline.app", "Jobs on Spark: from queues to tables, and a report."),
}


class Lazy(Root):
    """The root command, whose commands are imported when they are used."""

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 (the framework's)
        super().__init__(*arguments, **named)
        # These are stand-ins, which are sufficient for the help and for suggestions after a wrong
        # name.
        self.commands = {name: Command(name, help=text) for name, (_, text) in COMMANDS.items()}
        self._loaded: dict[str, Any] = {}
        self._is_listing = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 (the framework's)
        if self._is_listing or cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        if cmd_name not in self._loaded:
            self._loaded[cmd_name] = _load(cmd_name)
        return self._loaded[cmd_name]

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 (the framework's)
        self._is_listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_listing = False


def _load(name: str) -> Any:  # noqa: ANN401 (the framework's)
    """Import a command or a group of commands."""
    module, _, attribute = COMMANDS[name][0].partition(".")
    found = getattr(import_module(f"lanner.cli.{module}"), attribute)
    holder = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False)
    if isinstance(found, typer.Typer):
        for commands in (found, *(inner.typer_instance for inner in found.registered_groups)):
            for registered in commands.registered_commands if commands is not None else ():
                registered.cls = Command
        holder.add_typer(found, name=name, cls=Group)
    else:
        holder.command(name, cls=Command)(found)
    return typer.main.get_group(holder).commands[name]


app = typer.Typer(
    cls=Lazy,
    name="lanner",
    help="A message queue manager that speaks the protocols of Microsoft Message Queuing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(*, asked: bool) -> None:
    if asked:
        print(f"lanner {lanner.__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=lambda value: _version(asked=value), is_eager=True
        ),
    ] = False,
) -> None:
    """Handle the options that all commands share."""
    del debug, version  # their callbacks have already run
    logging.basicConfig(level=logging.WARNING, format="lanner: %(message)s")


def main() -> None:
    """Run the command."""
    _check_streams()
    app()


def _check_streams() -> None:
    """Reopen closed standard streams.

    Otherwise the next file to be opened, perhaps the store's, would get the stream's number.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stdout is None:
        print("lanner: standard output is closed; give it a place, such as /dev/null", file=sys.stderr)
        raise SystemExit(EXIT_ERROR)
