"""The queue manager that a command works on.

It is a running one, here or elsewhere, or a data directory on which none runs.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lmdb
import typer

from lanner.cli.errors import CommandError, UsageError
from lanner.cli.options import DEFAULT_DATA, Data, Host, Kerberos, PasswordFile, User
from lanner.client import Queue, QueueManager, ReceivedMessage, connect
from lanner.model.errors import ServiceNotAvailable, UnsupportedOperation
from lanner.services.ports import LOCAL_SOCKET
from lanner.store import Store
from lanner.transfer.peers import Peer


@dataclass(frozen=True, slots=True)
class Place:
    """The location of a command's queue manager."""

    data: Path = DEFAULT_DATA
    host: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    # Log on with the Kerberos ticket of this process.
    kerberos: bool = False


def reaching(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--data`, `--host`, `--user`, `--password-file` and `--kerberos` to a command.

    The command takes their values as `at: Place`.
    """
    signature = inspect.signature(command, eval_str=True)
    options = {
        "data": (Data, DEFAULT_DATA),
        "host": (Host, None),
        "user": (User, None),
        "password_file": (PasswordFile, None),
        "kerberos": (Kerberos, False),
    }
    parameters = []
    for parameter in signature.parameters.values():
        if parameter.name == "at":
            parameters += [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
                for name, (kind, default) in options.items()
            ]
        else:
            parameters.append(parameter)

    @functools.wraps(command)
    def run(**arguments: Any) -> None:  # noqa: ANN401 (the framework's)
        given = {name: arguments.pop(name) for name in options}
        command(at=place_of(**given), **arguments)

    del run.__dict__["__wrapped__"]
    run.__dict__["__signature__"] = signature.replace(parameters=parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def place_of(
    data: Path, host: str | None, user: str | None, password_file: Path | None, *, kerberos: bool = False
) -> Place:
    if host is None:
        if user is not None or password_file is not None or kerberos:
            option = "--kerberos" if kerberos else "--user"
            raise UsageError(f"{option} goes with --host: on this machine the kernel identifies you")
        return Place(data)
    if kerberos:
        if user is not None or password_file is not None:
            raise UsageError("--kerberos goes without --user and --password-file: your ticket identifies you")
        return Place(data, host, kerberos=True)
    password = None
    if password_file is not None:
        if user is None:
            raise UsageError("--password-file of whom? Give --user")
        password = password_file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    elif user is not None:
        if not sys.stdin.isatty():
            raise UsageError(f"the password of {user}: give it with --password-file")
        password = str(typer.prompt(f"Password of {user} at {host}", hide_input=True, err=True))
    return Place(data, host, user, password)


def host_and_port(text: str) -> tuple[str, int | None]:
    """Parse HOST, HOST:PORT, an IPv6 address or [ADDRESS]:PORT.

    Without a port, the endpoint mapper names it.
    """
    host, port = text, ""
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise UsageError(f"--host {text}: an IPv6 address with a port is written [::1]:2103")
        port = port[1:]
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not host or (text.endswith(":") and text.count(":") == 1):
        raise UsageError(f"--host {text}: a name or an address, with :PORT behind it or not")
    if port and not (port.isdecimal() and 0 < int(port) < 1 << 16):
        raise UsageError(f"--host {text}: the port is a number from 1 to 65535")
    return host, int(port) if port else None


def command_line() -> str:
    """Return the name of this process in the audit log."""
    return f"command line uid {os.geteuid()}"


def check_directory(data: Path) -> None:
    """Raise CommandError if the path exists and cannot be a data directory."""
    if data.exists() and not data.is_dir():
        raise CommandError(f"{data} is no directory: give another with --data or LANNER_DATA")
    if data.exists() and not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        raise CommandError(f"{data} cannot be read and written by uid {os.geteuid()}: run as its owner")


def running(data: Path) -> QueueManager | None:
    """Return a connection to the queue manager that runs on a directory; None if none does."""
    if not (data / LOCAL_SOCKET).exists():
        return None
    try:
        return connect(data=data)
    except ServiceNotAvailable:
        # It was killed and left its socket behind.
        return None


def connect_to(at: Place) -> QueueManager | None:
    """Return a connection to the running queue manager of a command; None if none runs here."""
    if at.host is not None:
        host, port = host_and_port(at.host)
        return connect(host, at.user, at.password, port=port, authentication="kerberos" if at.kerberos else "ntlm")
    check_directory(at.data)
    return running(at.data)


@contextmanager
def open_directory(data: Path, *, create: bool = False, name: str | None = None) -> Iterator[QueueManager]:
    """Yield the queue manager of a data directory on which none runs, until the command ends."""
    is_there = Store.exists(data)
    if not create and not is_there:
        missing = "holds no queue manager" if data.is_dir() else "does not exist"
        raise CommandError(
            f"data directory {data} {missing}: give another with --data or LANNER_DATA, "
            f"or make one with `lanner queue create NAME --data {data}`"
        )
    try:
        # A name is for a new queue manager; an existing one would be renamed with all its queues. A
        # command does not have the service's profile, so it migrates nothing.
        manager = QueueManager(data, None if is_there else name, local_origin=command_line(), migrates_owners=False)
    except lmdb.Error as error:
        raise CommandError(f"{data} cannot be opened: {error}; `lanner doctor --data {data}` says more") from error
    with manager:
        yield manager


@contextmanager
def open_manager(at: Place, *, create: bool = False, name: str | None = None) -> Iterator[QueueManager]:
    """Yield the queue manager of a command.

    It is the one at a host, or the process that runs on the directory, or the directory itself if
    none runs.
    """
    found = connect_to(at)
    if found is not None:
        with found:
            _check_name(found, at.host or str(at.data), name)
            yield found
        return
    with open_directory(at.data, create=create, name=name) as manager:
        _check_name(manager, str(at.data), name)
        yield manager


def names_of_queues(at: Place) -> list[str]:
    """Return the names of the public and private queues."""
    with open_manager(at) as manager:
        return [queue.name for queue in manager.queues()]


def _check_name(manager: QueueManager, place: str, name: str | None) -> None:
    if name is not None and name.upper() != manager.name.upper():
        raise UsageError(f"{place} holds the queue manager {manager.name}: --name {name} is for a new one")


def peers_of(manager: QueueManager) -> dict[str, Peer]:
    """Return the peers in the settings of a running queue manager."""
    try:
        return read_peers(manager.status().get("peers", {}), {})
    except UnsupportedOperation:
        # A queue manager that is not a Lanner does not report them.
        return {}


def read_peers(addresses: Mapping[str, Iterable[str]], certificates: Mapping[str, str | None]) -> dict[str, Peer]:
    """Return the peers from the status of a queue manager.

    The status has the addresses of all peers, and the certificates of those with TLS.
    """
    return {
        name: Peer(name, tuple(each), certificate=_path(certificates.get(name)), tls=name in certificates)
        for name, each in addresses.items()
    }


def read_tls(files: Mapping[str, Any]) -> dict[str, Any]:
    """Return the TLS settings from the status of a queue manager."""
    return {
        "tls_port": files["port"],
        **{f"tls_{name}": _path(files[name]) for name in ("certificate", "key", "authorities")},
    }


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def walk(queue: Queue, limit: int | None = None) -> Iterator[ReceivedMessage]:
    """Yield the messages from the first on; they stay in the queue."""
    return itertools.islice(queue, limit)
