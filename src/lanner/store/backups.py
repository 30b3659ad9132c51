"""Copy a running store into a new directory, and restore a store from such a copy.

Every LMDB commit is a consistent state: a batch enters the database only after everything that
precedes it in the write-ahead log (commit.py). So the last commit after a checkpoint contains
everything that was acknowledged before the checkpoint was requested. The copy reads that one commit
for as long as it takes, and no other work waits for it.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import lmdb

from lanner.model.errors import InsufficientResources
from lanner.store.data_directory import as_owner, open_to_copy
from lanner.store.environment import DATA_FILE, DEFAULT_MAP_SIZE, LOCK_FILE, MAX_DBS, sync_directory
from lanner.store.format import forget_epoch
from lanner.store.verification import Contents, verify

__all__ = ["copy_file", "copy_running", "copy_snapshot", "new_directory", "restore_files"]

# Called with the bytes written since the last call and the approximate total.
Advance = Callable[[int, int], object]

_PARTIAL = "restoring"
# Not in the specification: bytes copied at once, and seconds between two looks at LMDB's progress.
_PIECE = 1 << 20
_LOOK = 0.1


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Create a directory that becomes `path` if the block succeeds and is removed if it fails."""
    if path.exists():
        raise FileExistsError(f"{path} exists: a backup goes into a new directory")
    partial = path.with_name(path.name + ".partial")
    try:
        partial.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise InsufficientResources(
            f"{partial} exists: another backup is being made, or one was interrupted; remove it in that case"
        ) from None
    try:
        yield partial
        sync_directory(partial)
        partial.rename(path)
        sync_directory(path.parent)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, lmdb.Error | OSError):
            raise InsufficientResources(f"backup to {path} failed: {error}") from error
        raise


def copy_running(data: Path, directory: Path, advance: Advance = lambda _done, _total: None) -> None:
    """Copy the last commit of a store that another process has open.

    This process must not have it open.
    """
    # LMDB follows symbolic links. With the owner's rights, a link cannot make root write to a file
    # that the owner could not write to.
    with as_owner(data) as path:
        env = lmdb.open(str(path), map_size=DEFAULT_MAP_SIZE, max_dbs=MAX_DBS, readonly=True, create=False)
    with env:
        copy_snapshot(env, directory, advance)


def copy_snapshot(env: lmdb.Environment, directory: Path, advance: Advance = lambda _done, _total: None) -> None:
    """Copy the last commit, without free pages, into an empty directory and mark it as a copy."""
    total = _live(env)
    failures: list[BaseException] = []

    def copy() -> None:
        try:
            env.copy(str(directory), compact=True)
        except BaseException as error:  # noqa: BLE001 (raised in the caller's thread)
            failures.append(error)

    # LMDB does not report progress; the size of the file shows it.
    thread = threading.Thread(target=copy, name="backup")
    thread.start()
    done = 0
    while thread.is_alive():
        thread.join(_LOOK)
        size = _size(directory / DATA_FILE)
        advance(size - done, total)
        done = size
    if failures:
        raise failures[0]
    (directory / DATA_FILE).chmod(0o600)
    with lmdb.open(str(directory), map_size=DEFAULT_MAP_SIZE, max_dbs=MAX_DBS) as copied:
        forget_epoch(copied)
    (directory / LOCK_FILE).unlink(missing_ok=True)
    sync_directory(directory)


def restore_files(
    backup: Path,
    data: Path,
    names: list[str],
    advance: Advance = lambda _done, _total: None,
    verified: Callable[[int], object] = lambda _rows: None,
) -> Contents:
    """Restore a backup into a data directory that has no store, after verifying the copy.

    The database file is renamed last, so an interrupted restore leaves no store behind. Root reads
    the backup with its own rights and writes with those of the directory's owner, who could place
    links in the directory meanwhile.
    """
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as opened:
        try:
            files = {name: opened.enter_context(os.fdopen(open_to_copy(backup / name), "rb")) for name in names}
            total = sum(os.fstat(file.fileno()).st_size for file in files.values())
            within = opened.enter_context(as_owner(data))
            partial = within / _PARTIAL
            # Left behind by an interrupted restore.
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(mode=0o700)
            opened.callback(shutil.rmtree, partial, ignore_errors=True)
            for name, file in files.items():
                _write(file, partial / name, lambda done: advance(done, total))
            contents = verify(partial, verified)
            for name in sorted(names, key=lambda name: name == DATA_FILE):
                (partial / name).rename(within / name)
            sync_directory(within)
        except (lmdb.Error, OSError) as error:
            raise InsufficientResources(f"restore of {backup} into {data} failed: {error}") from error
    return contents


def copy_file(source: Path, target: Path) -> None:
    """Copy a file durably, to a copy that only its owner may read."""
    with os.fdopen(open_to_copy(source), "rb") as file:
        _write(file, target)


def _write(file: BinaryIO, target: Path, advance: Callable[[int], object] = lambda _bytes: None) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as writing:
        while piece := file.read(_PIECE):
            writing.write(piece)
            advance(len(piece))
        writing.flush()
        os.fsync(writing.fileno())


def _live(env: lmdb.Environment) -> int:
    """Return the bytes of all pages in use, which is the size of a compact copy."""
    with env.begin() as txn:
        stats = [txn.stat(env.open_db(bytes(name), txn, create=False)) for name in txn.cursor().iternext(values=False)]
    pages = sum(one["branch_pages"] + one["leaf_pages"] + one["overflow_pages"] for one in stats)
    return int((pages + 3) * env.stat()["psize"])


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
