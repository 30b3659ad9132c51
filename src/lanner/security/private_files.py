"""Files with secrets: mode 0600, replaced as a whole or not at all, locked while they change."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from lanner.model.errors import LannerError
from lanner.store.data_directory import MODE, open_own

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class PrivateFileError(LannerError):
    """A file with secrets cannot be trusted or read; the message names it and the remedy."""


def read_private(path: Path) -> bytes | None:
    """Return the content; None if there is no such file.

    A file that other users may read or write is refused.
    """
    try:
        # Not `open_own`: a file with a password may be anywhere, and a link to it is the reader's
        # own.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PrivateFileError(f"{path}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & _OTHERS:
            raise PrivateFileError(f"{path} has mode {mode:04o} and holds secrets: run chmod 600 {path}")
        return file.read()


def write_private(path: Path, data: bytes, *, mode: int = MODE, owner: tuple[int, int] | None = None) -> None:
    """Replace the file atomically: after a power failure it has the old content or the new one.

    A link at `path` is not followed but replaced. `owner` is a user and a group; None: those of the
    directory if root writes.
    """
    # A new file under a random name, so that another user of the directory cannot have created it
    # before.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        descriptor = open_own(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise PrivateFileError(f"{path} could not be written: {error.strerror}") from error


def create_private(path: Path, data: bytes) -> None:
    """Write a new file, durably. Raises FileExistsError if there is one of this name already."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _sync_directory(path.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise PrivateFileError(f"{path} could not be written: {error.strerror}") from error


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from changing the file during the block.

    The lock is a separate file beside it, because `path` itself is replaced.
    """
    lock = path.with_name(f"{path.name}.lock")
    try:
        descriptor = open_own(lock, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise PrivateFileError(f"{lock}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
