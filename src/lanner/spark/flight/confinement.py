"""Permanent confinement of a process: files, network, programs and privileges it does not need.

Landlock (Linux 5.13 and later, landlock(7)) restricts the calling thread and all threads that it
starts later. So this must run before the process starts a thread. On a kernel without Landlock the
process keeps the rights of its user.
"""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import stat
import struct
import sys
from collections.abc import Iterable
from enum import IntFlag
from pathlib import Path
from typing import Final

__all__ = ["Files", "confine", "own_program"]

_LOG: Final = logging.getLogger(__name__)

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_NO_NEW_PRIVS: Final = 38
_ALL_TCP: Final = 0x3  # bind and connect; since version 4
_ALL_SCOPES: Final = 0x3  # abstract sockets and signals of other processes; since version 6


class Files(IntFlag):
    """LANDLOCK_ACCESS_FS_*."""

    EXECUTE = 0x1
    WRITE = 0x2
    READ = 0x4
    LIST = 0x8
    REMOVE = 0x20
    MAKE_SOCKET = 0x200
    TRUNCATE = 0x4000
    OF_FILE = EXECUTE | WRITE | READ | TRUNCATE | 0x8000


# The rights that each version of Landlock can deny.
_FORBIDDEN: Final = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}


def own_program() -> list[Path]:
    """Return the paths of Python, its modules and the libraries they need."""
    system = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/etc/localtime")
    machine = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system", "/dev/null", "/dev/urandom")
    return [Path(one) for one in (sys.prefix, sys.base_prefix, *filter(None, sys.path), *system, *machine)]


def confine(allowed: Iterable[tuple[Path, Files]]) -> bool:
    """Allow these files and directories, with everything beneath them, and nothing else.

    Returns whether the kernel supports it.
    """
    # A core file would have the content of messages.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    if version < 1:
        _LOG.info("this kernel has no Landlock: a process that reads for the pipeline has the rights of its user")
        return False
    forbidden = _FORBIDDEN[min(version, max(_FORBIDDEN))]
    ruleset = struct.pack("=QQQ", forbidden, _ALL_TCP if version >= 4 else 0, _ALL_SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = _check(libc.syscall(_CREATE_RULESET, ruleset, ctypes.c_size_t(size), 0))
    try:
        for path, access in allowed:
            _allow(libc, rules, path, access & forbidden)
        _check(libc.syscall(_RESTRICT_SELF, rules, 0))
    finally:
        os.close(rules)
    return True


def _allow(libc: ctypes.CDLL, rules: int, path: Path, access: int) -> None:
    try:
        file = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # Not every system has it.
    try:
        if not stat.S_ISDIR(os.fstat(file).st_mode):
            access &= Files.OF_FILE
        _check(libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", access, file), 0))
    finally:
        os.close(file)


def _check(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
