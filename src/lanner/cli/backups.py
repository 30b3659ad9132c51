"""`lanner backup` and `lanner restore`: copy a data directory, and restore the copy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lanner.cli.errors import CommandError
from lanner.cli.options import DEFAULT_DATA, Data, Json
from lanner.cli.output import bytes_progress, counted, progress, say, size, write_json
from lanner.cli.session import check_directory, open_directory, running
from lanner.client.runtimes import runtime_of
from lanner.model.errors import StoreLocked
from lanner.security.users import USER_FILE
from lanner.store import Store
from lanner.store.backups import copy_file, copy_running, new_directory, restore_files
from lanner.store.data_directory import check_data_directory
from lanner.store.environment import DATA_FILE
from lanner.store.lock import DirectoryLock
from lanner.store.verification import Contents, count_rows, verify


def backup(
    target: Annotated[Path, typer.Argument(metavar="DIR", help="The directory to make.", show_default=False)],
    *,
    data: Data = DEFAULT_DATA,
    json: Json = False,
) -> None:
    """Copy a data directory, with its accounts and keys, into a new one.

    The queue manager may be running.

    The copy is a snapshot with everything that was acknowledged before the command began. Every
    record in it is read once.
    """
    check_directory(data)
    if data.is_dir():
        check_data_directory(data)
    with new_directory(target) as partial:
        # Copy the files last: an account that is added meanwhile may own messages in the copy of
        # the store.
        name = _copy_store(data, partial)
        for secret in _secrets(data):
            copy_file(secret, partial / secret.name)
        contents = _verify(partial)
    total = sum(path.stat().st_size for path in target.iterdir())
    if json:
        document = {"queue_manager": name, "data": str(data), "backup": str(target), "bytes": total}
        write_json(document | {"queues": contents.queues, "messages": contents.messages})
    else:
        say(f"{data} is copied to {target}, {size(total)}; {_told(contents)}")


def restore(
    source: Annotated[
        Path, typer.Argument(metavar="DIR", help="A directory that `lanner backup` made.", show_default=False)
    ],
    *,
    data: Data = DEFAULT_DATA,
    json: Json = False,
) -> None:
    """Copy a backup into a data directory that holds no queue manager yet.

    Every record in it is read once.

    The restored queue manager has the identity of the one that was copied: do not run both.
    """
    check_directory(data)
    if not (source / DATA_FILE).is_file():
        raise CommandError(f"{source} is no backup, {DATA_FILE} is missing: give a directory that `lanner backup` made")
    taken = [name for name in (DATA_FILE, USER_FILE) if (data / name).exists()]
    if taken:
        raise CommandError(
            f"{data} holds a queue manager already ({', '.join(taken)}): move it away, or give another with --data"
        )
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_data_directory(data)
    names = [DATA_FILE, *(path.name for path in _secrets(source))]
    rows = count_rows(source)
    lock = DirectoryLock(data)
    try:
        with bytes_progress("Copying") as copied, progress("Checking", rows) as checked:
            contents = restore_files(source, data, names, copied, checked)
    finally:
        lock.release()
    if json:
        write_json({"data": str(data), "backup": str(source), "queues": contents.queues, "messages": contents.messages})
    else:
        say(f"{source} is restored to {data}; {_told(contents)}")


def _copy_store(data: Path, partial: Path) -> str:
    """Copy the store, through the queue manager that runs on it if there is one.

    Returns the queue manager's name.
    """
    here = running(data)
    if here is not None:
        with here, bytes_progress("Copying") as copied:
            here.checkpoint()
            copy_running(data, partial, copied)
            return here.name
    try:
        with open_directory(data) as manager, bytes_progress("Copying") as copied:
            runtime_of(manager).store.copy_into(partial, copied)
            return manager.name
    except StoreLocked as error:
        if Store.exists(data):
            raise CommandError(
                f"{error.args[0]}; it is not `lanner serve`: end it, or let `lanner serve` run on {data} for "
                "online backups"
            ) from error
        raise


def _verify(directory: Path) -> Contents:
    with progress("Checking", count_rows(directory)) as checked:
        return verify(directory, checked)


def _secrets(directory: Path) -> list[Path]:
    return sorted([*directory.glob("*.json"), *directory.glob("*.pem"), *directory.glob("*.keytab")])


def _told(contents: Contents) -> str:
    return f"{counted(contents.messages)} in {counted(contents.queues, 'queue')} were read and are whole"
