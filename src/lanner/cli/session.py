"""The queue manager that a command is about: a running one, here or elsewhere, or a data directory that none runs on."""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import lmdb
import typer

from lanner.cli.errors import CommandError, UsageError
from lanner.cli.options import DEFAULT_DATA, Data, Host, PasswordFile, User
from lanner.client import Message, QueueManager, ReceivedMessage, remote
from lanner.client import Queue as LocalQueue
from lanner.client.connect import connect
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.errors import QueueNotFound, ServiceNotAvailable, UnsupportedOperation
from lanner.services.listener import LOCAL_SOCKET
from lanner.store import Store

if TYPE_CHECKING:
    from lanner.client.enterprise import Enterprise
    from lanner.client.names import QueueNames
    from lanner.model.directory_objects import Queue as QueueObject
    from lanner.security.signing import SigningKey

# A queue manager in this process and one elsewhere have transactions of their own kind; no function here mixes them.
Unit = Any


class Queue(Protocol):
    """What both kinds of queue objects have."""

    @property
    def name(self) -> str: ...
    @property
    def path_name(self) -> str: ...
    @property
    def format_name(self) -> str: ...
    @property
    def attributes(self) -> QueueObject: ...
    @property
    def journal(self) -> Queue: ...
    def exists(self) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[ReceivedMessage]: ...
    def set(self, **changes: object) -> None: ...
    def send(self, message: Message | ReceivedMessage | bytes | str, *, transaction: Unit = None) -> str: ...
    def send_many(
        self, messages: Iterable[Message | ReceivedMessage | bytes | str], *, transaction: Unit = None
    ) -> list[str]: ...
    def peek(self, timeout: float | None = None) -> ReceivedMessage: ...
    def receive(self, timeout: float | None = None, *, transaction: Unit = None) -> ReceivedMessage: ...
    def receive_many(
        self, count: int, timeout: float | None = 0, *, transaction: Unit = None
    ) -> list[ReceivedMessage]: ...
    def peek_by_lookup_id(self, lookup_id: int, where: str = "current") -> ReceivedMessage: ...
    def receive_by_lookup_id(
        self, lookup_id: int, where: str = "current", *, transaction: Unit = None
    ) -> ReceivedMessage: ...
    def purge(self) -> int: ...


class Manager(Protocol):
    """What both kinds of queue manager objects have."""

    signing_key: SigningKey | None

    @property
    def name(self) -> str: ...
    def open(self, name: str) -> Queue: ...
    def create_queue(self, name: str, **attributes: Any) -> Queue: ...  # noqa: ANN401 (those of the data model)
    def delete_queue(self, name: str) -> None: ...
    def queues(self) -> list[Any]: ...
    def outgoing_queues(self) -> list[Any]: ...
    @property
    def dead_letter(self) -> Queue: ...
    @property
    def transactional_dead_letter(self) -> Queue: ...
    @property
    def system_journal(self) -> Queue: ...
    @property
    def enterprise(self) -> Enterprise: ...
    def transaction(self) -> AbstractContextManager[Unit]: ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where the queue manager of a command is."""

    data: Path = DEFAULT_DATA
    host: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)


def reaching(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--data`, `--host`, `--user` and `--password-file`; it takes them as `at: Place`."""
    signature = inspect.signature(command, eval_str=True)
    options = {
        "data": (Data, DEFAULT_DATA),
        "host": (Host, None),
        "user": (User, None),
        "password_file": (PasswordFile, None),
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
        command(at=_place(**given), **arguments)

    del run.__dict__["__wrapped__"]
    run.__dict__["__signature__"] = signature.replace(parameters=parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _place(data: Path, host: str | None, user: str | None, password_file: Path | None) -> Place:
    if host is None:
        if user is not None or password_file is not None:
            raise UsageError("--user goes with --host: on this machine the kernel says who you are")
        return Place(data)
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


def check_directory(data: Path) -> None:
    """CommandError if there is something that cannot be a data directory of ours."""
    if data.exists() and not data.is_dir():
        raise CommandError(f"{data} is no directory: give another with --data or LANNER_DATA")
    if data.exists() and not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        raise CommandError(f"{data} cannot be read and written by uid {os.geteuid()}: run as its owner")


def running(data: Path) -> remote.QueueManager | None:
    """A connection to the queue manager that runs on a directory; None if none does."""
    if not (data / LOCAL_SOCKET).exists():
        return None
    try:
        return connect(data=data)
    except ServiceNotAvailable:
        # It was killed and left its socket behind.
        return None


@contextmanager
def open_directory(data: Path, *, create: bool = False, name: str | None = None) -> Iterator[QueueManager]:
    """The queue manager of a data directory that none runs on, until the command ends."""
    is_there = Store.exists(data)
    if not create and not is_there:
        missing = "holds no queue manager" if data.is_dir() else "does not exist"
        raise CommandError(
            f"data directory {data} {missing}: give another with --data or LANNER_DATA, "
            f"or make one with `lanner queue create NAME --data {data}`"
        )
    try:
        # A name is for a new queue manager; one that is there would be renamed, and all its queues.
        manager = QueueManager(data, None if is_there else name)
    except lmdb.Error as error:
        raise CommandError(f"{data} cannot be opened: {error}; `lanner doctor --data {data}` says more") from error
    with manager:
        yield manager


@contextmanager
def open_manager(at: Place, *, create: bool = False, name: str | None = None) -> Iterator[Manager]:
    """The queue manager of a command: elsewhere, in the process that runs it, or its directory itself while none does."""
    if at.host is not None:
        with connect(at.host, at.user, at.password) as elsewhere:
            _check_name(elsewhere, at.host, name)
            yield elsewhere
        return
    check_directory(at.data)
    here = running(at.data)
    if here is not None:
        with here:
            _check_name(here, str(at.data), name)
            yield here
        return
    with open_directory(at.data, create=create, name=name) as manager:
        _check_name(manager, str(at.data), name)
        yield manager


def _check_name(manager: Manager, place: str, name: str | None) -> None:
    if name is not None and name.upper() != manager.name.upper():
        raise UsageError(f"{place} holds the queue manager {manager.name}: --name {name} is for a new one")


# What the two kinds do in ways of their own --------------------------------------------------------------------------


def names_of(manager: Manager) -> QueueNames:
    """How people spell queues there."""
    return manager.operations.names if isinstance(manager, QueueManager) else _elsewhere(manager).names


def _elsewhere(manager: Manager) -> remote.QueueManager:
    if not isinstance(manager, remote.QueueManager):
        raise TypeError(f"{manager!r} is no connection")
    return manager


def is_transactional(manager: Manager, name: str) -> bool | None:
    """Whether a queue asks for a transaction; None: it is on another computer, which keeps that to itself."""
    queue = manager.open(name)
    if isinstance(queue, remote.Queue):
        return queue.is_transactional()
    try:
        found = queue.attributes
    except QueueNotFound:
        return None
    return None if isinstance(found, OutgoingQueue) else found.transactional


@contextmanager
def receiving(manager: Manager, queue: Queue, count: int, timeout: float | None) -> Iterator[list[ReceivedMessage]]:
    """Messages that leave the queue when the block has ended, not before. IOTimeout if none came in a time that was given."""
    if isinstance(queue, remote.Queue):
        try:
            held = queue.receiving(count, timeout)
            messages = held.__enter__()
        except UnsupportedOperation:
            # An outgoing queue of a running queue manager has no such reads.
            yield queue.receive_many(count, timeout)
            return
        try:
            yield messages
        except BaseException as error:
            held.__exit__(type(error), error, None)
            raise
        held.__exit__(None, None, None)
        return
    with manager.transaction() as unit:
        if timeout == 0:
            yield queue.receive_many(count, transaction=unit)
        else:
            first = queue.receive(timeout, transaction=unit)
            yield [first, *queue.receive_many(count - 1, transaction=unit)]


@contextmanager
def receiving_by_lookup_id(manager: Manager, queue: Queue, lookup_id: int, where: str) -> Iterator[ReceivedMessage]:
    """A message that leaves the queue when the block has ended."""
    if isinstance(queue, remote.Queue):
        with queue.receiving_by_lookup_id(lookup_id, where) as message:
            yield message
        return
    with manager.transaction() as unit:
        yield queue.receive_by_lookup_id(lookup_id, where, transaction=unit)


def move_messages(manager: Manager, origin: Queue, lookup_ids: list[int], destination: Queue) -> None:
    """Move messages, all of them or none."""
    if isinstance(origin, remote.Queue) and isinstance(destination, remote.Queue):
        origin.move_many(lookup_ids, destination)
    elif isinstance(origin, LocalQueue) and isinstance(destination, LocalQueue):
        with manager.transaction() as unit:
            for lookup_id in lookup_ids:
                origin.move(lookup_id, destination, transaction=unit)


# Queues --------------------------------------------------------------------------------------------------------------


def attributes(manager: Manager, name: str) -> QueueObject:
    """The attributes of a queue; QueueNotFound if it is not there."""
    return manager.open(name).attributes


def source(manager: Manager, name: str) -> Queue:
    """A queue to read from, outgoing ones too; QueueNotFound if it is not there."""
    queue = manager.open(name)
    if not isinstance(queue, remote.Queue):
        # Elsewhere it is told by the first read, and who may read need not be an administrator.
        queue.attributes  # noqa: B018 (for its error)
    return queue


def path_name(queue: Queue) -> str:
    """The path name for people; that of a queue elsewhere need not be asked for, which only administrators may."""
    return queue.full_name if isinstance(queue, remote.Queue) else queue.path_name


def walk(queue: Queue, limit: int | None = None) -> Iterator[ReceivedMessage]:
    """The messages from the first on, each looked at and left there."""
    return itertools.islice(queue, limit)
