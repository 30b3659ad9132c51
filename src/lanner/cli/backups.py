"""`lanner backup`: a copy of a data directory that a queue manager can open."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from lanner.cli.options import DEFAULT_DATA, Data, Json
from lanner.cli.output import say, size, write_json
from lanner.cli.session import check_directory, open_directory
from lanner.client.runtimes import runtime_of


def backup(
    target: Annotated[Path, typer.Argument(metavar="DIR", help="The directory to make.", show_default=False)],
    *,
    data: Data = DEFAULT_DATA,
    json: Json = False,
) -> None:
    """Copy a data directory, with its accounts and keys, into a new one."""
    check_directory(data)
    with open_directory(data) as manager:
        runtime_of(manager).store.backup(target)
        try:
            for secret in sorted([*data.glob("*.json"), *data.glob("*.pem")]):
                shutil.copy2(secret, target)
            for path in target.iterdir():
                path.chmod(0o600)
        except OSError:
            shutil.rmtree(target)
            raise
        name = manager.name
    total = sum(path.stat().st_size for path in target.iterdir())
    if json:
        write_json({"queue_manager": name, "data": str(data), "backup": str(target), "bytes": total})
    else:
        say(f"{data} is copied to {target}, {size(total)}")
