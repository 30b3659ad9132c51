"""The root of the command: what it is made of."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated

import typer

import lanner
from lanner.cli import (
    backups,
    certificates,
    console,
    consuming,
    deadletters,
    directory,
    doctor,
    journals,
    moving,
    outgoing,
    packets,
    peer,
    pipeline,
    queues,
    reading,
    resolve,
    sending,
    serving,
    tokens,
    tracing,
    transactions,
    users,
)
from lanner.cli.errors import EXIT_ERROR, Command, Group, Root

app = typer.Typer(
    cls=Root,
    name="lanner",
    help="A message queue manager that speaks the protocols of Microsoft Message Queuing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (
    serving.serve,
    sending.send,
    reading.peek,
    reading.receive,
    consuming.consume,
    moving.move,
    moving.copy,
    moving.resend,
    moving.delete,
    journals.journal,
    tracing.trace,
    outgoing.status,
    resolve.resolve,
    doctor.doctor,
    packets.export,
    packets.import_,
    backups.backup,
    backups.restore,
    console.console,
):
    app.command(command.__name__.rstrip("_"), cls=Command)(command)
for name, group in (
    ("queue", queues.app),
    ("outgoing", outgoing.app),
    ("deadletter", deadletters.app),
    ("peer", peer.app),
    ("transaction", transactions.app),
    ("user", users.app),
    ("token", tokens.app),
    ("certificate", certificates.app),
    ("directory", directory.app),
    ("pipeline", pipeline.app),
):
    for commands in (group, *(inner.typer_instance for inner in group.registered_groups)):
        for registered in commands.registered_commands if commands is not None else ():
            registered.cls = Command
    app.add_typer(group, name=name, cls=Group)


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
        typer.Option("--version", help="Say the version.", callback=lambda value: _version(asked=value), is_eager=True),
    ] = False,
) -> None:
    """What all commands share."""
    del debug, version  # acted on before this is called
    logging.basicConfig(level=logging.WARNING, format="lanner: %(message)s")


def main() -> None:
    """Run the command."""
    _check_streams()
    app()


def _check_streams() -> None:
    """A stream that is closed would give its number to the next file that is opened, the store's perhaps."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stdout is None:
        print("lanner: standard output is closed; give it a place, such as /dev/null", file=sys.stderr)
        raise SystemExit(EXIT_ERROR)
