"""`lanner serve`: run a queue manager in the foreground."""

from __future__ import annotations

import logging
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.logging import RichHandler

import lanner
from lanner.cli.output import say, show_fields, write_json
from lanner.security.printable import PrintableFormatter

if TYPE_CHECKING:
    from lanner.daemon.service import Daemon
    from lanner.daemon.settings import Settings


def serve(
    *,
    data: Annotated[Path | None, typer.Option("--data", help="The data directory.", show_default="./data")] = None,
    name: Annotated[str | None, typer.Option("--name", help="The name of the queue manager.")] = None,
    bind: Annotated[
        str | None,
        typer.Option("--bind", help="The address to listen on and to connect from.", show_default="127.0.0.1"),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="Settings, in TOML; the command line overrides them.")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", help="As root: become this user after binding the ports.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Report readiness as JSON.")] = False,
) -> None:
    """Run a queue manager until SIGTERM or Ctrl-C. SIGHUP reads the settings again."""
    from lanner.daemon.service import serve as run
    from lanner.daemon.settings import load_settings

    _log_to_stderr()
    given: dict[str, object] = {"data": data, "name": name, "bind": bind}
    overrides = {key: value for key, value in given.items() if value is not None}

    def load() -> Settings:
        return load_settings(config, overrides)

    run(load, lambda running: _ready(running, as_json=json), user=user)


def _log_to_stderr() -> None:
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    if sys.stderr.isatty():
        handler: logging.Handler = RichHandler(console=Console(stderr=True), show_path=False)
        handler.setFormatter(PrintableFormatter("%(message)s"))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)


def _ready(daemon: Daemon, *, as_json: bool) -> None:
    """Print which queue manager runs, its addresses, and commands to try."""
    settings = daemon.settings
    addresses = daemon.addresses
    if as_json:
        write_json({"name": daemon.name, "data": str(settings.data), "bind": settings.bind, "listeners": addresses})
        sys.stdout.flush()
        return
    data = shlex.quote(str(settings.data))
    # The path of the command that was called, if the shell would not find `lanner`.
    command = "lanner" if shutil.which("lanner") else shlex.quote(sys.argv[0])
    _title(f"Lanner {lanner.__version__} is running")
    show_fields(
        [
            ("  queue manager", daemon.name),
            ("  data directory", str(settings.data)),
            ("  address", settings.bind),
            *((f"  {listener}", address) for listener, address in addresses.items()),
        ]
    )
    say("")
    _title("What to try next")
    say("  From another terminal:")
    say(rf"    {command} queue create '.\private$\orders' --data {data}")
    say(rf"    {command} send '.\private$\orders' 'hello' --data {data}")
    say(rf"    {command} receive '.\private$\orders' --data {data}")
    say(f"    {command} status --data {data}")
    if "http" in addresses:
        say(f"    {command} console --data {data}")
    say(f"    {command} doctor OTHER-COMPUTER --data {data}")
    if "metrics" in addresses:
        say(f"    curl {addresses['metrics']}")
    sys.stdout.flush()


def _title(text: str) -> None:
    if sys.stdout.isatty():
        Console(highlight=False).print(text, style="bold")
    else:
        say(text)
