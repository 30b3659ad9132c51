"""`lanner token`: tokens, with which programs log on to the HTTP API."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

import typer

from lanner.cli.errors import nothing
from lanner.cli.options import Json, duration
from lanner.cli.output import note, say, show_table, write_json
from lanner.cli.session import Place, open_manager, reaching
from lanner.cli.views import local_time
from lanner.security.scopes import SCOPES

app = typer.Typer(help="Tokens with which programs log on to the HTTP API.", no_args_is_help=True)


@app.command()
@reaching
def create(
    *,
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope", help="; ".join(f"{name}: {text}" for name, text in SCOPES.items()) + "; may be repeated."
        ),
    ],
    expires: Annotated[str, typer.Option("--expires", help="When it ends: 12h, 30d, or `never`.")] = "30d",
    description: Annotated[str, typer.Option("--description", help="What it is for.")] = "",
    owner: Annotated[str | None, typer.Option("--for", help="The user whose rights it has; by default you.")] = None,
    at: Place,
    json: Json = False,
) -> None:
    """Create a token and print it; it is not shown again.

    It never allows more than its user may do.
    """
    wanted = [part for one in scope for part in one.split(",") if part]
    lifetime = None if expires.lower() == "never" else duration(expires, "--expires")
    with open_manager(at) as manager:
        made = manager.create_token(wanted, lifetime=lifetime, description=description, user=owner)
    if json:
        write_json(made)
        return
    say(made["token"])
    note(f"token {made['id']} of {made['user']} for {', '.join(made['scope'])} is not shown again")


@app.command("list")
@reaching
def list_tokens(*, at: Place, json: Json = False) -> None:
    """List your tokens, without their texts; as an administrator, those of all users."""
    with open_manager(at) as manager:
        found = manager.tokens()
    if json:
        write_json(found)
    elif found:
        rows = [(one["id"], str(one["user"]), ", ".join(one["scope"]), _end(one), one["description"]) for one in found]
        show_table([(title, False) for title in ("ID", "USER", "SCOPE", "EXPIRES", "DESCRIPTION")], rows)
    if not found:
        raise nothing("there are no tokens")


@app.command()
@reaching
def revoke(
    identifier: Annotated[str, typer.Argument(metavar="ID", help="The token, as `list` shows it.", show_default=False)],
    *,
    at: Place,
    json: Json = False,
) -> None:
    """Revoke a token, and end the sessions it opened."""
    with open_manager(at) as manager:
        manager.revoke_token(identifier)
    if json:
        write_json({"revoked": identifier})
    else:
        say(f"token {identifier} is revoked")


def _end(token: dict[str, Any]) -> str:
    expires = token["expires"]
    return "never" if expires is None else local_time(dt.datetime.fromtimestamp(expires, dt.UTC))
