"""Who may write to a data directory, and to whom its files belong.

A user who can write to the directory can replace any file in it, so the owner must be the only one.
Symbolic links are not followed: root may run commands on a directory of the service's user, who
could point a link at any file of the system. For the same reason root leaves no files of its own
there: each file that root makes is given to the owner of the directory, so that the service can
read it.

The owner can exchange a file for a link at any time, also after it was checked. So a file is opened
by `open_own`, which follows no link; what opens files by their paths itself, as LMDB does, runs
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
# Opens whatever has the name, a symbolic link or a socket too, without reading it.
_ENTRY: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class UnsafeDirectory(LannerError):
    """Another user can write to the data directory, or could have; the message says what to run."""


def user_name(uid: int) -> str:
    """Return the name of a user for people, or its number."""
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
    """Raise UnsafeDirectory unless only its owner, who is this process's user, can write to a data directory.

    For root it may be any user's; files that root has left in it are given to the owner.
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
        # A running queue manager, or another command, has removed it meanwhile.
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
        # Any user may connect to a socket; the queue manager checks who that is.
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
    """Give a file that root has made to the owner of its directory. For other users, do nothing."""
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

    The descriptor must come from the open directory that `owner` describes. The user who owns
    the directory can exchange it and what is in it for links at any time; looked up by its path
    once more, root could give away a file of its own.
    """
    found = os.fstat(descriptor)
    # A second name could be that of a file elsewhere.
    is_single = stat.S_ISDIR(found.st_mode) or found.st_nlink == 1
    if (found.st_uid, found.st_gid) != (owner.st_uid, owner.st_gid) and is_single:
        # fchown(2) refuses descriptors of O_PATH; their link in /proc names the same file.
        os.chown(f"/proc/self/fd/{descriptor}", owner.st_uid, owner.st_gid)


@contextmanager
def as_owner(directory: Path) -> Iterator[Path]:
    """Have root reach no other files in the block than the owner of a directory can.

    Other users keep their rights.

    Give the path of the directory for the block. It works though the owner cannot reach every
    directory above, and stays that of this directory whatever is put in its place. The whole
    process has the owner's rights meanwhile, its other threads too. It keeps root's real and saved
    user, so the owner can neither signal nor trace it.
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
    """Open a file of a data directory, or of a backup, that root is to copy elsewhere, and return the descriptor.

    UnsafeDirectory for what is no file, and for a file that another user has in a directory of its
    owner's: that may be a second name of any file. No symbolic link is followed. Raises OSError.
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
    """Open a file of a data directory, mode 0600 if it is made, and return the descriptor.

    No symbolic link is followed.

    Raises OSError; UnsafeDirectory if root would open a second name of another user's file.
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
