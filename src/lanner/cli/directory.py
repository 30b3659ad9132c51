"""`lanner directory`: the enterprise that the queue manager has in its directory.

The enterprise has sites, links, other computers and distribution lists.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from lanner.cli.errors import UsageError
from lanner.cli.options import Json, Yes
from lanner.cli.output import confirm, note, say, write_json
from lanner.cli.session import Place, open_manager, reaching
from lanner.directory.enterprise import to_toml
from lanner.security.keys import best_key_bits, weakness
from lanner.security.printable import one_line

app = typer.Typer(help="The enterprise: sites, links, computers, lists.", no_args_is_help=True)


@app.command()
@reaching
def show(*, at: Place, json: Json = False) -> None:
    """Show the known enterprise, in the form that `apply` reads.

    It includes the data about this computer that other computers need.
    """
    with open_manager(at) as manager:
        document = manager.enterprise.document()
    weak = list(_weak_keys(document))
    if json:
        write_json(document)
        for line in weak:
            note(line)
    else:
        # `apply` ignores comments.
        for line in weak:
            say(f"# {one_line(line)}")
        say(to_toml(document).rstrip("\n"))


def _weak_keys(document: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each computer whose encryption key is weak."""
    for name, computer in document.get("computers", {}).items():
        problem = weakness(best_key_bits(base64.b64decode(computer.get("encryption_keys", ""))))
        if problem is not None:
            yield f"computer {name}: its key has {problem}"


@app.command()
@reaching
def apply(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The enterprise, in TOML; the same for all computers.",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ],
    *,
    at: Place,
    json: Json = False,
) -> None:
    """Apply a file at once. Objects that it does not name are left as they are."""
    with open_manager(at) as manager:
        done = manager.enterprise.apply(file)
    if json:
        write_json(done)
        return
    for line in done or ["nothing has changed"]:
        say(line)


@app.command()
@reaching
def remove(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="site, computer, link, list or user.", show_default=False)
    ],
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help="Its name. For a link: its two sites. For a user: the SID.", show_default=False
        ),
    ],
    *,
    yes: Yes = False,
    at: Place,
) -> None:
    """Remove an object from the directory. With a computer, its public queues are removed too."""
    if kind not in ("site", "computer", "link", "list", "user") or len(names) != (2 if kind == "link" else 1):
        raise UsageError("what is removed: site NAME, computer NAME, list NAME, user SID, or link SITE SITE")
    what = f"{kind} {' - '.join(names)}"
    with open_manager(at) as manager:
        confirm(f"Remove {what} from the directory?", yes=yes)
        manager.enterprise.remove(kind, *names)
    say(f"removed {what}")
