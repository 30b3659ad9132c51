"""Ownership and permissions of a data directory.

A user who can write to the directory can replace any file in it, so its owner must be the only one.
Symbolic links are not followed: root may run commands on a directory that belongs to the service's
user, who could point a link at any file of the system. Root leaves no files of its own there. It
gives each file that it creates to the owner of the directory, so that the service can read it.

The owner can replace a file by a link at any time, even after a check. Therefore files are opened
with `open_own`, which follows no link. Code that opens files by path itself, such as LMDB, runs
with the owner's rights (`as_owner`).
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lanner.model.errors import LannerError

__all__ = [
    "UnsafeDirectory",
    "as_owner",
    "check_data_directory",
    "give_to_owner",
    "open_own",
    "open_to_copy",
    "user_name",
]

MODE: Final = 0o600
_WRITERS: Final = stat.S_IWGRP | stat.S_IWOTH
_ROOT: Final = 0
# Opens any kind of entry, including a symbolic link or a socket, without reading it.
_ENTRY: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class UnsafeDirectory(LannerError):
    """Raised if another user can or could change the data directory; says what to run."""


def user_name(uid: int) -> str:
    """Return a user's name for display, or "uid" and the number if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def check_data_directory(directory: Path) -> None:
    """Raise UnsafeDirectory unless only the owner of a data directory can write to it.

    The owner must be this process's user. Root may use any user's directory; files that root has
    left in it are given to the owner.
    """
    with _opened(directory) as descriptor:
        found = os.fstat(descriptor)
        user = os.geteuid()
        if user not in (_ROOT, found.st_uid):
            raise UnsafeDirectory(
                f"{directory} belongs to {user_name(found.st_uid)}, and this process runs as {user_name(user)}: "
                "run as its owner, or give another data directory"
            )
        _check_mode(directory, found)
        for name in os.listdir(descriptor):  # noqa: PTH208 (pathlib takes no descriptor)
            _check_entry(directory / name, descriptor, found)


def _check_entry(path: Path, parent: int, owner: os.stat_result) -> None:
    try:
        descriptor = os.open(path.name, _ENTRY, dir_fd=parent)
    except FileNotFoundError:
        # A running queue manager or another command has removed it meanwhile.
        return
    try:
        found = os.fstat(descriptor)
        if stat.S_ISLNK(found.st_mode):
            raise _link(path)
        if found.st_uid != owner.st_uid:
            if os.geteuid() == _ROOT:
                _give(descriptor, owner)
            if os.fstat(descriptor).st_uid != owner.st_uid:
                raise _foreign(path, found.st_uid, owner.st_uid)
        # Any user may connect to a socket; the queue manager checks which user it is.
        if not stat.S_ISSOCK(found.st_mode):
            _check_mode(path, found)
    finally:
        os.close(descriptor)


def _link(path: Path) -> UnsafeDirectory:
    return UnsafeDirectory(
        f"{path} is a symbolic link, and none is followed in a data directory: put the file itself there, or remove it"
    )


def _foreign(path: Path, found: int, owner: int) -> UnsafeDirectory:
    advice = f"run chown {owner} {path} as root"
    if os.geteuid() == _ROOT:
        advice = "it has another name elsewhere; put a copy of it there, or remove it"
    return UnsafeDirectory(f"{path} belongs to {user_name(found)}, not to {user_name(owner)}: {advice}")


def _check_mode(path: Path, found: os.stat_result) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if mode & _WRITERS:
        raise UnsafeDirectory(f"{path} has mode {mode:04o}, so that other users can change it: run chmod go-w {path}")


def give_to_owner(path: Path) -> None:
    """Give a file that root created to the owner of its directory; do nothing for other users."""
    if os.geteuid() != _ROOT:
        return
    with _opened(path.parent) as parent:
        descriptor = os.open(path.name, _ENTRY, dir_fd=parent)
        try:
            _give(descriptor, os.fstat(parent))
        finally:
            os.close(descriptor)


def _give(descriptor: int, owner: os.stat_result) -> None:
    """Change the owner of an open file to that of its directory.

    The descriptor must have been opened relative to the directory that `owner` describes. The user
    who owns the directory can replace it and its contents by links at any time. If root looked the
    file up by its path again, it could give away a file of its own.
    """
    found = os.fstat(descriptor)
    # A second name of the file could be elsewhere in the file system.
    is_single = stat.S_ISDIR(found.st_mode) or found.st_nlink == 1
    if (found.st_uid, found.st_gid) != (owner.st_uid, owner.st_gid) and is_single:
        # fchown(2) rejects O_PATH descriptors; the descriptor's link in /proc names the same file.
        os.chown(f"/proc/self/fd/{descriptor}", owner.st_uid, owner.st_gid)


@contextmanager
def as_owner(directory: Path) -> Iterator[Path]:
    """Restrict root to the rights of a directory's owner within the block.

    Does nothing for other users. Yields a path to use for the directory in the block. This path
    works even if the owner cannot reach every parent directory, and it refers to this directory
    even if another is put in its place.

    Meanwhile the whole process has the owner's rights, including its other threads. It keeps root's
    real and saved user IDs, so the owner can neither signal nor trace it.
    """
    with _opened(directory) as descriptor:
        owner = os.fstat(descriptor)
        if os.geteuid() != _ROOT or owner.st_uid == _ROOT:
            yield directory
            return
        groups, group = os.getgroups(), os.getegid()
        os.setgroups([owner.st_gid])
        try:
            os.setegid(owner.st_gid)
            os.seteuid(owner.st_uid)
            yield Path(f"/proc/self/fd/{descriptor}")
        finally:
            os.seteuid(_ROOT)
            os.setegid(group)
            os.setgroups(groups)


def open_to_copy(path: Path) -> int:
    """Open a file of a data directory or a backup that root will copy, and return the descriptor.

    Follows no symbolic link. Raises OSError. Raises UnsafeDirectory if it is not a regular file, or
    if it belongs to another user than its directory does: then it may be a second name of any file.
    """
    with _opened(path.parent) as parent:
        try:
            descriptor = os.open(path.name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise _link(path) from None
        found, owner = os.fstat(descriptor).st_uid, os.fstat(parent).st_uid
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UnsafeDirectory(f"{path} is no file, and cannot be copied: remove it")
            if os.geteuid() == _ROOT and owner not in (_ROOT, found):
                raise _foreign(path, found, owner)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def open_own(path: Path, flags: int) -> int:
    """Open a file of a data directory, created with mode 0600, and return the descriptor.

    Follows no symbolic link. Raises OSError. Raises UnsafeDirectory if root would open a second
    name of another user's file.
    """
    with _opened(path.parent) as parent:
        descriptor = os.open(path.name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, MODE, dir_fd=parent)
        try:
            if flags & os.O_CREAT and os.geteuid() == _ROOT:
                owner = os.fstat(parent)
                _give(descriptor, owner)
                found = os.fstat(descriptor).st_uid
                if owner.st_uid not in (_ROOT, found):
                    raise _foreign(path, found, owner.st_uid)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor
