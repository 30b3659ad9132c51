"""Dropping the rights that only the start needs: root, and binding ports below 1024.

The order is: the privileged ports are bound (`host.early_ports`), the rights are dropped, and the
store is opened. `setuid` of the C library covers all threads. Capabilities belong to a thread, so
they are cleared before the first thread is started.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lanner.daemon.settings import SettingsError
from lanner.host.early_ports import bind_early, is_privileged
from lanner.security.users import USER_FILE
from lanner.store.data_directory import user_name
from lanner.store.environment import DATA_FILE

if TYPE_CHECKING:
    from lanner.daemon.settings import Settings

_LOG = logging.getLogger(__name__)

_ROOT: Final = 0
_WRITERS: Final = stat.S_IWGRP | stat.S_IWOTH
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# As many as the kernel follows.
_MAX_LINKS: Final = 40
# Numbers from the manual pages prctl and capabilities.
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAPBSET_READ: Final = 23
_PR_CAPBSET_DROP: Final = 24
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_CAPABILITY_VERSION_3: Final = 0x20080522
# Files that mark a data directory: a store, or only the accounts that `lanner user add` created
# before the first start.
_MARKS: Final = frozenset({DATA_FILE, USER_FILE})
# The content of an empty file system.
_EMPTY: Final = frozenset({"lost+found"})
# For capget(2): effective, permitted and inheritable, first for the low 32 capabilities, then for
# the high ones.
_WORDS: Final = 6


def prepare(settings: Settings, user: str | None) -> None:
    """Bind the privileged ports, then become `user`, if one is given, and drop every capability.

    Raises SettingsError.
    """
    account = None if user is None else _account(user)
    if account is not None:
        _hand_over(settings.data, account)
    elif os.geteuid() == _ROOT:
        _LOG.warning(
            "the queue manager runs as root and does not need to: `lanner serve --user NAME` binds its ports and "
            "then becomes that user, and the unit packaging/lanner.service runs it as the user lanner"
        )
        return
    if os.geteuid() == _ROOT or has_capabilities():
        for port in _ports(settings):
            if is_privileged(port):
                bind_early(settings.bind, port)
        if account is not None and os.geteuid() == _ROOT:
            become(account)
        drop_capabilities()


def _ports(settings: Settings) -> list[int]:
    """Return the TCP ports of `bind` that the service listens on."""
    ports = [settings.transfer.port] if settings.transfer.enabled else []
    if settings.rpc.enabled:
        ports += [settings.rpc.port, settings.rpc.read_port, settings.rpc.endpoint_mapper_port]
        ports += [settings.com.port] if settings.com.enabled else []
    return [] if settings.security.hardened else ports


def _account(user: str) -> pwd.struct_passwd:
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise SettingsError(
            f"--user {user}: there is no such user; `useradd --system --no-create-home {user}` makes one"
        ) from None
    if account.pw_uid == _ROOT:
        raise SettingsError(f"--user {user}: that is root, whose rights the queue manager does not need")
    if os.geteuid() not in (_ROOT, account.pw_uid):
        raise SettingsError(f"--user {user}: only root can become another user, and this is {user_name(os.geteuid())}")
    return account


def _hand_over(data: Path, account: pwd.struct_passwd) -> None:
    """Change the owner of the data directory to the user, if it is new or root's."""
    if os.geteuid() != _ROOT:
        return
    try:
        directory = _Walk(data, account).open()
    except OSError as error:
        raise SettingsError(f"data directory {data}: {error.strerror}") from error
    try:
        owner = os.fstat(directory).st_uid
        if owner == _ROOT:
            _give(directory, data, account)
    except OSError as error:
        raise SettingsError(f"data directory {data}: {error.strerror}") from error
    finally:
        os.close(directory)
    if owner not in (_ROOT, account.pw_uid):
        raise SettingsError(
            f"{data} belongs to {user_name(owner)}, not to {account.pw_name}: run as {user_name(owner)}, or run "
            f"chown -R {account.pw_name} {data}"
        )


class _Walk:
    """The path to a data directory, walked one name after the other by descriptors.

    An attacker who can change a directory on the path can redirect root at any time, and root would
    then give away another directory. So every directory on the path must belong to root or to the
    user, and no other user may write to it, unless it has the sticky bit, with which no other user
    can move its entries. A link is followed only if it lies in a directory that root alone can
    change.
    """

    def __init__(self, data: Path, account: pwd.struct_passwd) -> None:
        self._data = data
        self._owners = {_ROOT: "root", account.pw_uid: account.pw_name}
        self._names = list(reversed(data.absolute().parts))  # still to walk, the next one last
        self._where = Path("/")
        self._links = 0

    def open(self) -> int:
        """Open the directory; create missing parts of the path.

        Raises SettingsError if the path is not safe, or OSError.
        """
        directory = os.open(self._names.pop(), _DIRECTORY)
        try:
            while self._names:
                self._check(os.fstat(directory))
                name = self._names.pop()
                found = self._found(name, directory)
                if not stat.S_ISLNK(found.st_mode):
                    step = os.open(name, _DIRECTORY, dir_fd=directory)
                    self._where /= name
                else:
                    step = self._follow(name, directory)
                directory, left = step, directory
                os.close(left)
        except BaseException:
            os.close(directory)
            raise
        return directory

    def _found(self, name: str, directory: int) -> os.stat_result:
        with suppress(FileNotFoundError):
            return os.stat(name, dir_fd=directory, follow_symlinks=False)
        os.mkdir(name, 0o755 if self._names else 0o700, dir_fd=directory)
        return os.stat(name, dir_fd=directory, follow_symlinks=False)

    def _check(self, found: os.stat_result) -> None:
        mode = stat.S_IMODE(found.st_mode)
        if found.st_uid not in self._owners:
            raise SettingsError(
                f"data directory {self._data}: {self._where}, on the way to it, belongs to "
                f"{user_name(found.st_uid)}, who could put another directory there: give it to "
                f"{' or '.join(self._owners.values())}, or choose another path"
            )
        if mode & _WRITERS and not mode & stat.S_ISVTX:
            raise SettingsError(
                f"data directory {self._data}: {self._where}, on the way to it, has mode {mode:04o}, so that other "
                f"users could put another directory there: run chmod go-w {self._where}"
            )

    def _follow(self, name: str, directory: int) -> int:
        """Follow a link."""
        found = os.fstat(directory)
        self._links += 1
        if not self._names:
            raise SettingsError(f"data directory {self._data} is a symbolic link: give the directory itself")
        if found.st_uid != _ROOT or stat.S_IMODE(found.st_mode) & _WRITERS:
            raise SettingsError(
                f"data directory {self._data}: {self._where / name}, on the way to it, is a symbolic link in a "
                "directory that others than root can write to: give the path without it"
            )
        if self._links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = Path(os.readlink(name, dir_fd=directory))
        self._names.extend(reversed(target.parts))
        if not target.is_absolute():
            return os.dup(directory)
        self._where = Path("/")
        return os.open(self._names.pop(), _DIRECTORY)


def _give(directory: int, data: Path, account: pwd.struct_passwd) -> None:
    """Change the owner of a directory of root to the user, the directory itself last.

    Until then only root can change its content.
    """
    mode = stat.S_IMODE(os.fstat(directory).st_mode)
    names = os.listdir(directory)
    if mode & _WRITERS:
        raise SettingsError(f"{data} has mode {mode:04o}, so that other users can change it: run chmod go-w {data}")
    if _MARKS.isdisjoint(names) and not _EMPTY.issuperset(names):
        raise SettingsError(
            f"{data} belongs to root, has files, and is no data directory: give --data a new directory, or an empty one"
        )
    for name in names:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        # A second name could be that of a file elsewhere.
        if stat.S_ISDIR(found.st_mode) or found.st_nlink == 1:
            os.chown(name, account.pw_uid, account.pw_gid, dir_fd=directory, follow_symlinks=False)
    os.fchown(directory, account.pw_uid, account.pw_gid)


def become(account: pwd.struct_passwd) -> None:
    """Become a user for good: its groups, its identifiers, no way back.

    Raises SettingsError if the user cannot run this program.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    capability = 0
    while libc.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0) >= 0:
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
        capability += 1
    os.initgroups(account.pw_name, account.pw_gid)
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    for program in (os.__file__, __file__):
        # More modules will be imported. Without this check one of the imports would fail later,
        # with an obscure error.
        if not os.access(program, os.R_OK):
            raise SettingsError(
                f"--user {account.pw_name}: that user cannot read {program}: install Python and lanner where it can"
            )
    os.environ.update(HOME=account.pw_dir, USER=account.pw_name, LOGNAME=account.pw_name)
    _LOG.info("the queue manager runs as user %s", account.pw_name)


def has_capabilities() -> bool:
    """Return whether this thread has a capability, which a service manager may have granted."""
    found = (ctypes.c_uint32 * _WORDS)()
    ctypes.CDLL(None).capget(ctypes.byref(_header()), ctypes.byref(found))
    return any(found)


def _header() -> ctypes.Array[ctypes.c_uint32]:
    return (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)


def drop_capabilities() -> None:
    """Clear all capabilities of this thread and its children, and prevent gaining new ones.

    Raises SettingsError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    none = (ctypes.c_uint32 * _WORDS)()
    results = (
        libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0),
        libc.capset(ctypes.byref(_header()), ctypes.byref(none)),
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
    )
    if any(results):
        raise SettingsError(f"the capabilities of the start cannot be dropped: {os.strerror(ctypes.get_errno())}")
