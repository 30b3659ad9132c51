"""`lanner console`: the web console of a queue manager, here or elsewhere."""

from __future__ import annotations

import contextlib
import html
import os
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from lanner.cli.errors import CommandError, UsageError
from lanner.cli.options import Json
from lanner.cli.output import note, say, write_json
from lanner.cli.session import Place, check_directory, host_and_port, reaching, running
from lanner.security.private_files import write_private

_ADDRESS = "127.0.0.1"


@reaching
def console(
    *,
    browse: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open a browser; by default only on a terminal.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=0xFFFF, help="With --host: the local port.")] = 15801,
    at: Place,
    json: Json = False,
) -> None:
    """Open the web console. The link logs you on once, within a minute.

    With --host the console of a queue manager elsewhere runs here, until Ctrl-C.
    """
    is_opened = sys.stdout.isatty() and not json if browse is None else browse
    if at.host is not None:
        _serve(at, port, is_opened=is_opened, as_json=json)
        return
    check_directory(at.data)
    manager = running(at.data)
    if manager is None:
        raise CommandError(f"no queue manager runs on {at.data}: `lanner serve --data {at.data}` starts one")
    with manager:
        address = manager.status()["listeners"].get("http")
        if address is None:
            raise CommandError(
                f"the queue manager of {at.data} has no console: set http.enabled, and look into its log"
            )
        _show(f"{address}/login?ticket={manager.log_on_ticket()}", is_opened=is_opened, as_json=json)


def _show(link: str, *, is_opened: bool, as_json: bool) -> None:
    if as_json:
        write_json({"link": link})
    else:
        say(link)
    sys.stdout.flush()
    if is_opened and not webbrowser.open(page_for(link).as_uri()):
        note("no browser could be opened: copy the link")


def page_for(link: str) -> Path:
    """Return a page of this user's own that leads to a link.

    Every user of the machine sees the arguments of a browser, and could use the link first.
    """
    folder = os.environ.get("XDG_RUNTIME_DIR") or tempfile.mkdtemp(prefix="lanner-")
    page = Path(folder) / "lanner-console.html"
    text = f'<!doctype html><title>Lanner</title><meta http-equiv="refresh" content="0; url={html.escape(link)}">\n'
    write_private(page, text.encode())
    return page


def _serve(at: Place, port: int, *, is_opened: bool, as_json: bool) -> None:
    # Imported here: the server takes time to import, and other commands do not need it.
    import asyncio

    from lanner.host.accepting import listen_tcp
    from lanner.http.log_ons import ToHost
    from lanner.http.server import Server, ServerSettings

    if at.host is None or at.user is None or at.password is None:
        raise UsageError("the console of another host: give --user")
    host, there = host_and_port(at.host)
    log_ons = ToHost(host, there, at.user, at.password)
    try:
        listening = listen_tcp(_ADDRESS, port)
    except OSError as error:
        raise CommandError(f"{_ADDRESS} port {port}: {error.strerror}; choose another with --port") from error

    async def run() -> None:
        await (await log_ons.log_on({"user": log_ons.user, "password": log_ons.password}, "")).manager.close()
        link = f"http://{_ADDRESS}:{listening.getsockname()[1]}/login?ticket={log_ons.ticket}"
        _show(link, is_opened=is_opened, as_json=as_json)
        await Server(listening, log_ons, ServerSettings(hosts=(_ADDRESS, "localhost"))).run(ends_idle=False)

    with listening, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())
