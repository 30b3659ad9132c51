"""Who may write to a data directory, and to whom its files belong.

A user who can write to the directory can replace any file in it, so the owner must be the only one. Symbolic links are
not followed: root may run commands on a directory of the service's user, who could point a link at any file of the
system. For the same reason root leaves no files of its own there: each file that root makes is given to the owner of
the directory, so that the service can read it.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path
from typing import Final

from lanner.model.errors import LannerError

__all__ = ["UnsafeDirectory", "check_data_directory", "give_to_owner", "open_own", "user_name"]

MODE: Final = 0o600
_WRITERS: Final = stat.S_IWGRP | stat.S_IWOTH
_ROOT: Final = 0


class UnsafeDirectory(LannerError):
    """Somebody else can write to the data directory, or could have; the message says what to run."""


def user_name(uid: int) -> str:
    """Return the name of a user for people, or its number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def check_data_directory(directory: Path) -> None:
    """Raise UnsafeDirectory unless only its owner, who is this process's user, can write to a data directory.

    For root it may be any user's; files that root has left in it are given to the owner.
    """
    found = directory.stat()
    user = os.geteuid()
    if user not in (_ROOT, found.st_uid):
        raise UnsafeDirectory(
            f"{directory} belongs to {user_name(found.st_uid)}, and this process runs as {user_name(user)}: "
            "run as its owner, or give another data directory"
        )
    _check_mode(directory, found)
    with os.scandir(directory) as entries:
        for entry in entries:
            _check_entry(Path(entry.path), found)


def _check_entry(path: Path, directory: os.stat_result) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        # A running queue manager, or another command, has removed it meanwhile.
        return
    if stat.S_ISLNK(found.st_mode):
        raise UnsafeDirectory(
            f"{path} is a symbolic link, and none is followed in a data directory: put the file itself there, or remove it"
        )
    if found.st_uid != directory.st_uid:
        if os.geteuid() != _ROOT:
            owner = user_name(directory.st_uid)
            raise UnsafeDirectory(
                f"{path} belongs to {user_name(found.st_uid)}, not to {owner}: run chown {directory.st_uid} {path} as root"
            )
        give_to_owner(path)
    # Whoever can connect to a socket can write to it; the queue manager checks who that is.
    if not stat.S_ISSOCK(found.st_mode):
        _check_mode(path, found)


def _check_mode(path: Path, found: os.stat_result) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if mode & _WRITERS:
        raise UnsafeDirectory(f"{path} has mode {mode:04o}, so that other users can change it: run chmod go-w {path}")


def give_to_owner(path: Path) -> None:
    """Give a file that root has made to the owner of its directory. For other users, do nothing."""
    if os.geteuid() != _ROOT:
        return
    owner = path.parent.stat()
    if _is_to_give(path.lstat(), owner):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _is_to_give(found: os.stat_result, owner: os.stat_result) -> bool:
    # A second name could be that of a file elsewhere.
    is_single = stat.S_ISDIR(found.st_mode) or found.st_nlink == 1
    return (found.st_uid, found.st_gid) != (owner.st_uid, owner.st_gid) and is_single


def open_own(path: Path, flags: int) -> int:
    """Open a file of a data directory, mode 0600 if it is made, and return the descriptor. No symbolic link is followed.

    Raises OSError.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
    try:
        if flags & os.O_CREAT and os.geteuid() == _ROOT:
            # By the descriptor: the owner of the directory can put another file under the name at any time.
            owner = path.parent.stat()
            if _is_to_give(os.fstat(descriptor), owner):
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
