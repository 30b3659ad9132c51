"""The root of the command: what it is made of."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

import lanner
from lanner.cli import deadletters, doctor, journals, moving, queues, reading, sending, serving, users
from lanner.cli.errors import Root

app = typer.Typer(
    cls=Root,
    name="lanner",
    help="A message queue manager that speaks the protocols of Microsoft Message Queuing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command()(serving.serve)
app.add_typer(queues.app, name="queue")
app.command()(sending.send)
app.command()(reading.peek)
app.command()(reading.receive)
app.command()(moving.move)
app.command()(moving.copy)
app.add_typer(deadletters.app, name="deadletter")
app.command()(journals.journal)
app.add_typer(users.app, name="user")
app.command()(doctor.doctor)


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
    app()
