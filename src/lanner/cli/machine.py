"""`lanner machine`: take a queue manager off the network, and bring it back."""

from __future__ import annotations

import typer

from lanner.cli.errors import CommandError
from lanner.cli.options import Json
from lanner.cli.output import say, write_json
from lanner.cli.session import Place, connect_to, reaching

app = typer.Typer(help="The queue manager as a whole: offline and online.", no_args_is_help=True)


@app.command()
@reaching
def offline(*, at: Place, json: Json = False) -> None:
    """End the sessions with other computers and begin none, until `online` or a restart.

    Local programs are not affected.
    """
    _set(at, is_online=False, as_json=json)


@app.command()
@reaching
def online(*, at: Place, json: Json = False) -> None:
    """Resume exchanging messages with other computers."""
    _set(at, is_online=True, as_json=json)


def _set(at: Place, *, is_online: bool, as_json: bool) -> None:
    manager = connect_to(at)
    if manager is None:
        raise CommandError(
            f"no queue manager runs on {at.data}, so it exchanges no messages: start it with `lanner serve`"
        )
    with manager:
        if is_online:
            manager.bring_online()
        else:
            manager.take_offline()
        name = manager.name
    if as_json:
        write_json({"name": name, "online": is_online})
    else:
        say(f"{name} is {'online' if is_online else 'offline'}")
